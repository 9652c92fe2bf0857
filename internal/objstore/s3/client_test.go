package s3

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// The tests of this file change the environment and are not parallel.

func newClient(t *testing.T, opts Options) *Client {
	t.Helper()
	c, err := NewClient(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhichEndpointIsAsked(t *testing.T) {
	shared := "[default]\nendpoint_url = http://shared:1\n[profile svc]\nservices = s\n[services s]\ns3 =\n  endpoint_url = http://service:1\n[profile plain]\nregion = eu-west-1\n"
	for _, tt := range []struct {
		name, host string
		env        map[string]string
		opts       Options
	}{
		{name: "AWS itself", host: ""},
		{name: "an option", opts: Options{Endpoint: "http://opt:1"}, env: map[string]string{"AWS_ENDPOINT_URL_S3": "http://s3env:1"}, host: "opt:1"},
		{name: "the environment", env: map[string]string{"AWS_ENDPOINT_URL": "http://env:1"}, host: "env:1"},
		{name: "the environment for S3 first", env: map[string]string{"AWS_ENDPOINT_URL": "http://env:1", "AWS_ENDPOINT_URL_S3": "http://s3env:1"}, host: "s3env:1"},
		{name: "the shared configuration", env: map[string]string{"AWS_CONFIG_FILE": "shared"}, host: "shared:1"},
		{name: "the environment before it", env: map[string]string{"AWS_CONFIG_FILE": "shared", "AWS_ENDPOINT_URL": "http://env:1"}, host: "env:1"},
		{name: "a service of a profile", env: map[string]string{"AWS_CONFIG_FILE": "shared"}, opts: Options{Profile: "svc"}, host: "service:1"},
		{name: "a profile without", env: map[string]string{"AWS_CONFIG_FILE": "shared"}, opts: Options{Profile: "plain"}, host: ""},
		{name: "none when told to ignore them", env: map[string]string{"AWS_ENDPOINT_URL": "http://env:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, host: ""},
		{name: "AWS by its own name", opts: Options{Endpoint: "https://s3.eu-west-1.amazonaws.com"}, host: ""},
		{name: "AWS from within a network", opts: Options{Endpoint: "https://bucket.vpce-1a2b.s3.us-east-1.vpce.amazonaws.com"}, host: ""},
		{name: "no AWS though it sounds so", opts: Options{Endpoint: "https://amazonaws.com.example.org"}, host: "amazonaws.com.example.org"},
		{name: "one spelling of a host", opts: Options{Endpoint: "HTTPS://Minio.Example.ORG:443/"}, host: "minio.example.org"},
		{name: "a port that is not the default", opts: Options{Endpoint: "https://minio.example.org:80"}, host: "minio.example.org:80"},
		{name: "an address of many colons", opts: Options{Endpoint: "http://[::1]:80"}, host: "[::1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range tt.env {
				if v == "shared" {
					v = write(t, "config", shared)
				}
				t.Setenv(k, v)
			}
			if got := newClient(t, tt.opts).Host(); got != tt.host {
				t.Errorf("host %q, want %q", got, tt.host)
			}
		})
	}
}

func TestWhereABucketIsAsked(t *testing.T) {
	for _, tt := range []struct {
		name, bucket, url, region string
		opts                      Options
		sdk                       bool // needs more than a plain signature
	}{
		{name: "AWS, the bucket in the host", bucket: "buck", url: "https://buck.s3.us-east-1.amazonaws.com", region: "us-east-1"},
		{name: "AWS elsewhere", bucket: "buck", opts: Options{Region: "eu-west-1"}, url: "https://buck.s3.eu-west-1.amazonaws.com", region: "eu-west-1"},
		{name: "AWS, a bucket that no certificate covers", bucket: "b.c", url: "https://s3.us-east-1.amazonaws.com/b.c", region: "us-east-1"},
		{name: "AWS, path style by wish", bucket: "buck", opts: Options{PathStyle: "true"}, url: "https://s3.us-east-1.amazonaws.com/buck", region: "us-east-1"},
		{name: "a custom endpoint, the bucket in the path", bucket: "buck", opts: Options{Endpoint: "http://h:7070", PathStyle: "auto"}, url: "http://h:7070/buck", region: "us-east-1"},
		{name: "a custom endpoint below a path", bucket: "buck", opts: Options{Endpoint: "http://h:7070/store/"}, url: "http://h:7070/store/buck", region: "us-east-1"},
		{name: "a custom endpoint, the bucket in the host by wish", bucket: "buck", opts: Options{Endpoint: "http://h:7070", PathStyle: "false"}, url: "http://buck.h:7070", region: "us-east-1"},
		{name: "a directory bucket", bucket: "b--use1-az4--x-s3", sdk: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, tt.opts)
			s, err := c.Bucket(t.Context(), objstore.Location{Scheme: "s3", Bucket: tt.bucket, Endpoint: c.Host(), Key: "some/key"})
			if err != nil {
				t.Fatal(err)
			}
			if tt.sdk {
				if s.head != nil {
					t.Errorf("asked by the fast path at %s", s.head.url.String())
				}
				return
			}
			req, err := s.head.request(t.Context(), "a key", false)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := req.URL.String(), tt.url+"/a%20key"; got != want || s.head.region != tt.region {
				t.Errorf("HEAD %s in %s, want %s in %s", got, s.head.region, want, tt.region)
			}
			if auth := req.Header.Get("Authorization"); !strings.Contains(auth, "/"+tt.region+"/s3/aws4_request") {
				t.Errorf("Authorization: %s", auth)
			}
		})
	}
	if _, err := NewClient(t.Context(), Options{PathStyle: "maybe"}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("path style maybe: %v", err)
	}
}

func TestASessionTokenIsSigned(t *testing.T) {
	t.Setenv("AWS_SESSION_TOKEN", "token")
	c := newClient(t, Options{Endpoint: "http://h"})
	s, err := c.Bucket(t.Context(), objstore.Location{Scheme: "s3", Bucket: "b", Endpoint: "h"})
	if err != nil {
		t.Fatal(err)
	}
	req, err := s.head.request(t.Context(), "k", false)
	if err != nil {
		t.Fatal(err)
	}
	if req.Header.Get("X-Amz-Security-Token") != "token" || !strings.Contains(req.Header.Get("Authorization"), "x-amz-security-token") {
		t.Errorf("headers: %v", req.Header)
	}
}

// TestWithAndWithoutACABundle: a bundle in the environment must neither break the
// client nor be lost on one of its ways.
func TestWithAndWithoutACABundle(t *testing.T) {
	srv := servertest.S3(t)
	srv.Put(t, "k", []byte("x"))
	tls := servertest.TLS(t, srv)
	for name, bundle := range map[string]string{"unset": "", "set": tls.CertFile} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_CA_BUNDLE", bundle)
			if bundle == "" {
				if err := os.Unsetenv("AWS_CA_BUNDLE"); err != nil {
					t.Fatal(err)
				}
			}
			c := newClient(t, Options{Endpoint: srv.Endpoint})
			secure := newClient(t, Options{Endpoint: tls.Endpoint})
			for _, c := range []*Client{c, secure} {
				s, err := c.Bucket(t.Context(), objstore.Location{Scheme: "s3", Bucket: srv.Bucket, Endpoint: c.Host()})
				if err != nil {
					t.Fatal(err)
				}
				k := s.bucket.Join("k")
				_, err1 := s.Stat(t.Context(), k)
				_, err2 := s.Restat(t.Context(), k)
				_, err3 := s.Probe(t.Context(), k)
				for _, err := range []error{err1, err2, err3} {
					if wantErr := c == secure && bundle == ""; (err != nil) != wantErr {
						t.Errorf("%s: %v", c.Host(), err)
					}
				}
			}
		})
	}
	t.Setenv("AWS_CA_BUNDLE", "/no/such/bundle")
	if _, err := NewClient(t.Context(), Options{}); err == nil {
		t.Error("a bundle that is not there was accepted")
	}
}

func TestMissingCredentialsNameTheNextStep(t *testing.T) {
	for _, k := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(k, "")
	}
	c := newClient(t, Options{Endpoint: "http://127.0.0.1:1"})
	start := time.Now()
	_, err := c.Bucket(t.Context(), objstore.Location{Scheme: "s3", Bucket: "b", Endpoint: c.Host()})
	var e *objstore.Error
	if !errors.Is(err, objstore.ErrNoCredentials) || !errors.As(err, &e) || e.Retryable() || !strings.Contains(err.Error(), "AWS_PROFILE") {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %s", d)
	}
	t.Setenv("AWS_CONFIG_FILE", write(t, "config", "[profile p]\nregion = us-east-1\n"))
	if _, err := NewClient(t.Context(), Options{Profile: "absent"}); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a profile that is not there: %v", err)
	}
}

// TestCredentialsThatGoAway: a request whose credentials cannot be renewed says so,
// on both ways.
func TestCredentialsThatGoAway(t *testing.T) {
	srv := servertest.S3(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	script := write(t, "creds", "#!/bin/sh\n[ -e \"$0.gone\" ] && { exit 1; }\ntouch \"$0.gone\"\n"+
		`echo '{"Version":1,"AccessKeyId":"AKIDFROMPROCESS","SecretAccessKey":"s","Expiration":"2020-01-01T00:00:00Z"}'`+"\n")
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONFIG_FILE", write(t, "config", "[default]\ncredential_process = "+script+"\n"))
	c := newClient(t, Options{Endpoint: srv.Endpoint})
	s, err := c.Bucket(t.Context(), objstore.Location{Scheme: "s3", Bucket: srv.Bucket, Endpoint: c.Host()})
	if err != nil {
		t.Fatal(err)
	}
	k := s.bucket.Join("k")
	_, err1 := s.Stat(t.Context(), k)
	_, err2 := s.Restat(t.Context(), k)
	for _, err := range []error{err1, err2} {
		if !errors.Is(err, objstore.ErrNoCredentials) || errors.Is(err, objstore.ErrDenied) || strings.Contains(err.Error(), "AKID") {
			t.Errorf("got %v", err)
		}
	}
	if n := len(srv.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	srv := servertest.S3(t)
	srv.Put(t, "k", []byte("x"))
	srv.Add(servertest.Rule{Key: "k", Status: http.StatusTemporaryRedirect, Header: map[string]string{"Location": srv.Endpoint + "/" + srv.Bucket + "/other"}})
	srv.Put(t, "other", []byte("another object"))
	c := newClient(t, Options{Endpoint: srv.Endpoint})
	s, err := c.Bucket(t.Context(), objstore.Location{Scheme: "s3", Bucket: srv.Bucket, Endpoint: c.Host()})
	if err != nil {
		t.Fatal(err)
	}
	srv.ClearLog()
	k := s.bucket.Join("k")
	a1, err1 := s.Stat(t.Context(), k)
	a2, err2 := s.Restat(t.Context(), k)
	a3, err3 := s.Probe(t.Context(), k)
	if err1 == nil || err2 == nil || err3 == nil || len(srv.Requests()) != 3 {
		t.Errorf("%v %v %v %v %v %v, %v", a1, err1, a2, err2, a3, err3, srv.Requests())
	}
}

func TestScrub(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain words stay":                           "plain words stay",
		"arn:aws:iam::123456789012:user/bob may not": "arn:aws:iam::123456789012:user/bob may not",
		"http://u:p/w@h/x":                           "http://…@h/x",
		"GET /b/k?X-Amz-Signature=abc done":          "GET /b/k?… done",
		"AKIAIOSFODNN7EXAMPLE did":                   "… did",
		"two\r\nlines\x1b[31m":                       "two lines [31m",
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY":   "…",
		"bad \xff utf":                               "bad � utf",
	} {
		if got := scrub(in); got != want {
			t.Errorf("scrub(%q) = %q, want %q", in, got, want)
		}
	}
	if got := scrub(strings.Repeat("word ", 1000)); len(got) > maxText+10 {
		t.Errorf("%d bytes", len(got))
	}
}
