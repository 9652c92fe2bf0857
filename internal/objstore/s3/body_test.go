package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Put(t, "k", []byte("0123456789"))
	s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
	srv.Add(servertest.Rule{Drop: true})
	for _, op := range ops(heads, gets, lists, writes) {
		e := wantKind(t, op, ask(t.Context(), s, root.Join("k"), op), nil)
		if e.Status != 0 || !e.Retryable() {
			t.Errorf("%s: a dropped connection: %v", op, e)
		}
	}
	srv.ClearRules()
	srv.Add(servertest.Rule{Hang: true})
	for _, op := range ops(heads, gets, lists, writes) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		err := ask(ctx, s, root.Join("k"), op)
		if e := wantKind(t, op, err, nil); !errors.Is(err, context.DeadlineExceeded) || e.Status != 0 {
			t.Errorf("%s: a server that hangs: %v", op, err)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: came back after %s", op, d)
		}
		cancel()
	}
}

func TestABodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Put(t, "k", make([]byte, 1<<20))
	srv.Add(servertest.Rule{Op: "GET", Key: "k", Cut: 1000})
	s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
	for _, r := range []objstore.Range{{}, {Offset: 10, Length: 100000}} {
		rc, a, err := s.Get(t.Context(), root.Join("k"), r)
		if err != nil || a.Size != 1<<20 {
			t.Fatalf("get: %+v, %v", a, err)
		}
		data, err := io.ReadAll(rc)
		if e := wantKind(t, "read", err, nil); len(data) >= 1<<16 || !e.Retryable() {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	}
	srv.Add(servertest.Rule{Op: "LIST", Cut: 100})
	for _, op := range lists {
		if e := wantKind(t, op, ask(t.Context(), s, root.Join("k"), op), nil); !e.Retryable() {
			t.Errorf("%s: a listing that breaks off: %v", op, e)
		}
	}
}

func TestRangesThatAreNotHonoured(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"another range": "bytes 0-4/10", "another end": "bytes 5-8/10", "no range": "nonsense", "unknown total": "bytes 5-9/*",
	} {
		srv := servertest.S3(t)
		srv.Put(t, "k", []byte("0123456789"))
		srv.Add(servertest.Rule{Op: "GET", Header: headers("Content-Range", value)})
		s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
		rc, _, err := s.Get(t.Context(), root.Join("k"), objstore.Range{Offset: 5, Length: 5})
		if err == nil {
			_ = rc.Close() // the test has failed
			t.Errorf("%s: accepted", name)
			continue
		}
		wantKind(t, name, err, nil)
	}
}

func TestLocationsOfOtherBucketsAreRefused(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	c := client(t, srv, s3.Options{})
	s, root := bucket(t, c, srv.Bucket)
	other, aws := root.Join("k"), root.Join("k")
	other.Bucket, aws.Endpoint = "other", ""
	for _, loc := range []objstore.Location{other, aws, root} {
		for _, op := range ops(heads, gets, lists, writes) {
			if op == "list" && loc == root {
				continue
			}
			if err := ask(t.Context(), s, loc, op); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s %+v: %v", op, loc, err)
			}
		}
	}
	if n := len(srv.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if _, err := c.Bucket(t.Context(), aws); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a bucket of another endpoint: %v", err)
	}
}

// TestErrorsHoldNoSecrets: whatever a server or the network says.
func TestErrorsHoldNoSecrets(t *testing.T) {
	const id, secret, token = "AKIAQWERTYUIOPASDFGH", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYKEY", "IQoJb3JpZ2luX2VjEJr//////////wEaCXVzLWVhc3QtMSJHMEUCIQ"
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_SESSION_TOKEN", token)
	srv := servertest.S3(t)
	gossip := "key " + id + " said " + secret + " " + token + " at https://u:pass@h/?X-Amz-Signature=deadbeef\r\nInjected: line"
	var errs []error
	s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
	for _, r := range []servertest.Rule{
		{Status: 403, Code: "SignatureDoesNotMatch", Message: gossip}, {Status: 500, Code: "InternalError", Message: gossip},
		{Status: 400, Code: "BadRequest", Message: gossip}, {Drop: true},
	} {
		srv.ClearRules()
		srv.Add(r)
		for _, op := range ops(heads, gets, lists, writes) {
			errs = append(errs, ask(t.Context(), s, root.Join("k"), op))
		}
	}
	dead, err := s3.NewClient(t.Context(), s3.Options{Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	ds, droot := bucket(t, dead, "b")
	for _, op := range ops(heads, gets, lists, writes) {
		errs = append(errs, ask(t.Context(), ds, droot.Join("k"), op))
	}
	for _, endpoint := range []string{"http://user:pass@127.0.0.1:1", "://user:pass@x", "ftp://user:pass@h"} {
		_, err := s3.NewClient(t.Context(), s3.Options{Endpoint: endpoint})
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("endpoint %s: %v", endpoint, err)
		}
		errs = append(errs, err)
	}
	for _, err := range errs {
		if err == nil {
			t.Error("no error")
			continue
		}
		text := fmt.Sprintf("%v %+v", err, err)
		for _, s := range []string{id, secret[:12], token[:12], "pass", "X-Amz-Signature", "deadbeef", "\n", "x-id="} {
			if strings.Contains(text, s) {
				t.Errorf("tells %q: %s", s, text)
			}
		}
		if len(text) > 3000 {
			t.Errorf("an error of %d bytes", len(text))
		}
	}
}
