package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/servertest"
)

func get(t *testing.T, srv *servertest.Server, key string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	out, err := srv.Client().GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(srv.Bucket), Key: aws.String(key)},
		func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(out.Body)
	return string(data), errors.Join(err, out.Body.Close())
}

func code(err error) string {
	var ae smithy.APIError
	if errors.As(err, &ae) {
		return ae.ErrorCode()
	}
	return fmt.Sprint(err)
}

func TestScript(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Put(t, "data/a", []byte("0123456789"))
	srv.Put(t, "data/b", []byte("0123456789"))
	srv.Add(
		servertest.Rule{Op: "GET", Key: "data/a", Count: 2, Status: 404, Code: "NoSuchKey"},
		servertest.Rule{Op: "GET", Key: "data/*", From: 3, Count: 1, Status: 503, Code: "SlowDown"},
	)
	var got []string
	for _, key := range []string{"data/a", "data/a", "data/a", "data/b", "data/b", "data/b"} {
		data, err := get(t, srv, key)
		if err != nil {
			data = code(err)
		}
		got = append(got, data)
	}
	// The second rule sees only what the first let pass.
	want := []string{"NoSuchKey", "NoSuchKey", "0123456789", "0123456789", "SlowDown", "0123456789"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	for name, rule := range map[string]servertest.Rule{"hang": {Hang: true}, "drop": {Drop: true}, "cut": {Cut: 3}, "slow": {Delay: time.Minute}} {
		srv.ClearRules()
		srv.Add(rule)
		if data, err := get(t, srv, "data/a"); err == nil || len(data) > 3 {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	srv.ClearRules()
	srv.DenyAll()
	if _, err := get(t, srv, "data/a"); code(err) != "AccessDenied" {
		t.Errorf("denied: %v", err)
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Put(t, "a b/ü", []byte("x"))
	if _, err := get(t, srv, "a b/ü"); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, srv, "absent"); err == nil {
		t.Fatal("absent is there")
	}
	srv.Keys(t, "a b/")
	resp, err := http.Head(srv.Endpoint + "/bucket/a%20b/%C3%BC")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	srv.Remove(t, "a b/ü")
	var got []string
	for _, r := range srv.Requests() {
		got = append(got, fmt.Sprintf("%s %d", r, r.Status))
	}
	want := []string{"PUT a b/ü 200", "GET a b/ü 200", "GET absent 404", "LIST a b/ 200", "HEAD a b/ü 200", "DELETE a b/ü 204"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if w := srv.Writes(); len(w) != 2 || w[0].Op != "PUT" || w[1].Op != "DELETE" || w[0].Path != "/bucket/a%20b/%C3%BC" {
		t.Errorf("writes: %+v", w)
	}
	srv.ClearLog()
	if len(srv.Requests()) != 0 {
		t.Error("the log was not cleared")
	}
}

func TestPutTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []string{"a", "sub/deep/b"} {
		p := filepath.Join(dir, n)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(n), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	srv := servertest.S3(t)
	srv.PutTree(t, dir, "root/")
	if diff := cmp.Diff([]string{"root/a", "root/sub/deep/b"}, srv.Keys(t, "")); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// TestProxyBeforeARealServer: signatures made for the proxy hold behind it.
func TestProxyBeforeARealServer(t *testing.T) {
	t.Parallel()
	srv := servertest.Proxy(t, servertest.Versitygw(t))
	srv.Put(t, "x", []byte("data"))
	if data, err := get(t, srv, "x"); err != nil || data != "data" {
		t.Errorf("%q, %v", data, err)
	}
	srv.Add(servertest.Rule{Op: "GET", Count: 1, Status: 403, Code: "AccessDenied"})
	if _, err := get(t, srv, "x"); code(err) != "AccessDenied" {
		t.Errorf("scripted: %v", err)
	}
	if data, err := get(t, srv, "x"); err != nil || data != "data" {
		t.Errorf("after the rule: %q, %v", data, err)
	}
	if got := len(srv.Requests()); got != 4 {
		t.Errorf("%d requests in the log", got)
	}
}

func TestEnvNamesTheServer(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	env := strings.Join(srv.Env(), "\n")
	for _, want := range []string{"AWS_ENDPOINT_URL_S3=" + srv.Endpoint, "AWS_ACCESS_KEY_ID=" + srv.AccessKey, "AWS_SECRET_ACCESS_KEY=" + srv.SecretKey, "AWS_PROFILE="} {
		if !strings.Contains(env+"\n", want+"\n") {
			t.Errorf("no %s in\n%s", want, env)
		}
	}
}
