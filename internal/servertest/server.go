package servertest

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Server is an S3 server for one test, with one bucket made.
type Server struct {
	// Endpoint is "http://127.0.0.1:port".
	Endpoint, Bucket     string
	AccessKey, SecretKey string
	// Script is nil for a server without one in front.
	*Script

	client *s3.Client
}

// Region that every server here calls its own.
const Region = "us-east-1"

// S3 starts an S3 server in this process, with a script in front. It checks neither
// keys nor signatures. It ends with the test.
func S3(t testing.TB) *Server {
	t.Helper()
	backend := s3mem.New()
	fake := gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0))
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatalf("create bucket: %v", err)
	}
	script, srv := serve(t, fake.Server())
	return (&Server{Endpoint: srv.URL, Bucket: "bucket", AccessKey: "test", SecretKey: "test-secret", Script: script}).connect()
}

// Proxy puts a script in front of another server, on an address of its own. The Host
// header passes through, so that signatures made for the proxy hold at the upstream
// (which must not insist on its own name).
func Proxy(t testing.TB, upstream *Server) *Server {
	t.Helper()
	u, err := url.Parse(upstream.Endpoint)
	if err != nil {
		t.Fatalf("upstream endpoint: %v", err)
	}
	script, srv := serve(t, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, u.Host
			r.Out.Host = r.In.Host
		},
	})
	p := *upstream
	p.Endpoint, p.Script = srv.URL, script
	return p.connect()
}

// Env is the environment of a process that shall use this server and nothing else of
// AWS that this machine may have.
func (s *Server) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.Endpoint, "AWS_ENDPOINT_URL_S3=" + s.Endpoint,
		"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_SESSION_TOKEN=",
		"AWS_REGION=" + Region, "AWS_DEFAULT_REGION=" + Region, "AWS_PROFILE=",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Setenv gives this test the environment of Env; the test must not be parallel.
func (s *Server) Setenv(t testing.TB) {
	t.Helper()
	for _, kv := range s.Env() {
		k, v, _ := strings.Cut(kv, "=")
		t.Setenv(k, v)
	}
}

// URI is "s3://bucket/key".
func (s *Server) URI(key string) string { return "s3://" + s.Bucket + "/" + key }

// Client is the SDK's own client, with all its defaults: what the rest of the world
// would use. It goes through the script and its log.
func (s *Server) Client() *s3.Client { return s.client }

func (s *Server) connect() *Server {
	s.client = s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint), Region: Region, UsePathStyle: true,
		Credentials:                credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, ""),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
	})
	return s
}

// Put stores an object whatever is there.
func (s *Server) Put(t testing.TB, key string, data []byte) {
	t.Helper()
	_, err := s.Client().PutObject(context.Background(), &s3.PutObjectInput{Bucket: aws.String(s.Bucket), Key: aws.String(key), Body: bytes.NewReader(data)})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

// PutTree stores every file below dir, under prefix ("" or ending in "/").
func (s *Server) PutTree(t testing.TB, dir, prefix string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s.Put(t, prefix+filepath.ToSlash(rel), data)
		return nil
	})
	if err != nil {
		t.Fatalf("put tree %s: %v", dir, err)
	}
}

// Remove takes an object away, as the rest of the world may.
func (s *Server) Remove(t testing.TB, key string) {
	t.Helper()
	_, err := s.Client().DeleteObject(context.Background(), &s3.DeleteObjectInput{Bucket: aws.String(s.Bucket), Key: aws.String(key)})
	if err != nil {
		t.Fatalf("remove %s: %v", key, err)
	}
}

// EnableVersions makes the bucket keep versions from now on.
func (s *Server) EnableVersions(t testing.TB) {
	t.Helper()
	_, err := s.Client().PutBucketVersioning(context.Background(), &s3.PutBucketVersioningInput{
		Bucket: aws.String(s.Bucket), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatalf("enable versions: %v", err)
	}
}

// SuspendVersions makes the bucket keep no versions from now on, and those that it has.
func (s *Server) SuspendVersions(t testing.TB) {
	t.Helper()
	_, err := s.Client().PutBucketVersioning(context.Background(), &s3.PutBucketVersioningInput{
		Bucket: aws.String(s.Bucket), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusSuspended},
	})
	if err != nil {
		t.Fatalf("suspend versions: %v", err)
	}
}

// RemoveVersion takes one version or delete marker away for good.
func (s *Server) RemoveVersion(t testing.TB, key, versionID string) {
	t.Helper()
	_, err := s.Client().DeleteObject(context.Background(), &s3.DeleteObjectInput{Bucket: aws.String(s.Bucket), Key: aws.String(key), VersionId: aws.String(versionID)})
	if err != nil {
		t.Fatalf("remove version %s of %s: %v", versionID, key, err)
	}
}

// Uploads are the keys of uploads in parts that are neither completed nor aborted.
func (s *Server) Uploads(t testing.TB) []string {
	t.Helper()
	out, err := s.Client().ListMultipartUploads(context.Background(), &s3.ListMultipartUploadsInput{Bucket: aws.String(s.Bucket)})
	if err != nil {
		t.Fatalf("list uploads: %v", err)
	}
	var keys []string
	for _, u := range out.Uploads {
		keys = append(keys, aws.ToString(u.Key))
	}
	return keys
}

// Keys lists what is in the bucket.
func (s *Server) Keys(t testing.TB, prefix string) []string {
	t.Helper()
	var keys []string
	p := s3.NewListObjectsV2Paginator(s.Client(), &s3.ListObjectsV2Input{Bucket: aws.String(s.Bucket), Prefix: aws.String(prefix)})
	for p.HasMorePages() {
		page, err := p.NextPage(context.Background())
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		for _, o := range page.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
	}
	return keys
}

// missing skips the test, or fails it where the server is required.
func missing(t testing.TB, kind, format string, args ...any) {
	t.Helper()
	for _, k := range strings.Split(os.Getenv("RECONCILE_TEST_REQUIRE"), ",") {
		if strings.TrimSpace(k) == kind {
			t.Fatalf("required server %s: %s", kind, fmt.Sprintf(format, args...))
		}
	}
	t.Skipf("no %s: %s", kind, fmt.Sprintf(format, args...))
}

// Secure is a server reached by TLS under a certificate of its own.
type Secure struct {
	*Server
	// CertFile is a PEM bundle that holds the certificate.
	CertFile string
}

// TLS puts TLS before a server with a script.
func TLS(t testing.TB, plain *Server) *Secure {
	t.Helper()
	srv := httptest.NewUnstartedServer(plain.Script)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it are meant
	srv.StartTLS()
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "cert.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	s := *plain
	s.Endpoint = srv.URL
	return &Secure{Server: &s, CertFile: file}
}
