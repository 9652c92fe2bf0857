package servertest

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// VersitygwBinary finds the server's program: $RECONCILE_TEST_VERSITYGW, then PATH,
// then where `make` puts it. Empty when there is none.
func VersitygwBinary() string {
	if p := os.Getenv("RECONCILE_TEST_VERSITYGW"); p != "" {
		return p
	}
	if p, err := exec.LookPath("versitygw"); err == nil {
		return p
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(home, ".cache")
	}
	p := filepath.Join(cache, "reconcile", "bin", "versitygw")
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// startTimeout is generous: a busy machine takes seconds for what takes 1.5.
const startTimeout = 30 * time.Second

// Versitygw starts a real S3 server over a temporary folder: signatures and users are
// checked, versions can be enabled, conditional writes hold. It ends with the test.
// Keys are names of files below: no "x" beside "x/y", no "//", no "..".
func Versitygw(t testing.TB) *Server {
	t.Helper()
	bin := VersitygwBinary()
	if bin == "" {
		missing(t, "s3", "versitygw is neither named by RECONCILE_TEST_VERSITYGW nor in PATH nor in the cache folder")
	}
	var lastErr error
	for range 3 { // between finding a free port and taking it, somebody else may
		srv, err := startVersitygw(t, bin)
		if err == nil {
			return srv
		}
		lastErr = err
	}
	t.Fatalf("start versitygw: %v", lastErr)
	return nil
}

func startVersitygw(t testing.TB, bin string) (*Server, error) {
	dir := t.TempDir()
	for _, d := range []string{"data", "ver", "iam"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	srv := (&Server{Endpoint: "http://" + addr, Bucket: "bucket", AccessKey: "admin", SecretKey: "adminsecret"}).connect()
	logPath := filepath.Join(dir, "log")
	logFile, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }() // the child has its own handle
	cmd := exec.Command(bin, "--port", addr, "--access", srv.AccessKey, "--secret", srv.SecretKey,
		"--iam-dir", filepath.Join(dir, "iam"), "--keep-alive", "--quiet",
		"posix", "--versioning-dir", filepath.Join(dir, "ver"), filepath.Join(dir, "data"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = endWithParent()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in the log
		close(ended)
	}()
	stop := func() {
		_ = cmd.Process.Kill() // already gone is as good
		<-ended
	}
	if err := ready(srv, ended); err != nil {
		stop()
		log, _ := os.ReadFile(logPath) // an empty log is no worse
		return nil, errors.Join(err, errors.New(strings.TrimSpace(string(log))))
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			if log, err := os.ReadFile(logPath); err == nil && len(log) > 0 {
				t.Logf("versitygw: %s", log)
			}
		}
	})
	return srv, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	return addr, l.Close()
}

// ready waits for the server's first answer and makes the bucket.
func ready(srv *Server, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client := srv.Client()
	for {
		_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(srv.Bucket)}, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("ended at once")
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
