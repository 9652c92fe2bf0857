package s3_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

var sentinels = []error{
	objstore.ErrNotExist, objstore.ErrExist, objstore.ErrDenied, objstore.ErrThrottled, objstore.ErrNoSuchBucket,
	objstore.ErrUnsupported, objstore.ErrArchived, objstore.ErrNoCredentials,
}

// wantKind wants an error that is exactly one sentinel, or none of them (nil).
func wantKind(t testing.TB, what string, err, want error) *objstore.Error {
	t.Helper()
	var e *objstore.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: got %v, want an *objstore.Error", what, err)
	}
	for _, s := range sentinels {
		if errors.Is(err, s) != (s == want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
			break
		}
	}
	return e
}

// ask makes one call of any operation.
func ask(ctx context.Context, s *s3.Store, loc objstore.Location, op string) (err error) {
	switch op {
	case "stat":
		_, err = s.Stat(ctx, loc)
	case "restat":
		_, err = s.Restat(ctx, loc)
	case "probe":
		_, err = s.Probe(ctx, loc)
	case "get":
		var rc io.ReadCloser
		if rc, _, err = s.Get(ctx, loc, objstore.Range{}); err == nil {
			_, err = io.ReadAll(rc)
			err = errors.Join(err, rc.Close())
		}
	case "getversion":
		var rc io.ReadCloser
		if rc, _, err = s.GetVersion(ctx, loc, "v", objstore.Range{}); err == nil {
			err = rc.Close()
		}
	case "versioning":
		_, err = s.Versioning(ctx, loc)
	case "list":
		for _, e := range s.List(ctx, loc.Container(), "") {
			err = e
		}
	case "versions":
		for _, e := range s.Versions(ctx, loc) {
			err = e
		}
	case "create":
		_, err = s.Create(ctx, loc, strings.NewReader("x"), 1)
	case "replace":
		_, err = s.Replace(ctx, loc, "tag", strings.NewReader("x"), 1)
	}
	return err
}

var (
	heads  = []string{"stat", "restat"}
	gets   = []string{"probe", "get"}
	lists  = []string{"list", "versions"}
	writes = []string{"create", "replace"}
)

func ops(groups ...[]string) (out []string) {
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

// elsewhere is where a redirect points; nobody listens there.
func elsewhere(kv ...string) map[string]string {
	h := map[string]string{"Location": "http://127.0.0.1:1/"}
	for i := 0; i < len(kv); i += 2 {
		h[kv[i]] = kv[i+1]
	}
	return h
}

type meaning struct {
	name      string
	status    int
	code      string
	header    map[string]string
	ops       []string
	want      error
	retryable bool
	says      string
}

var meanings = []meaning{
	{name: "HEAD 404 is a missing object", status: 404, ops: heads, want: objstore.ErrNotExist},
	{name: "NoSuchKey is a missing object", status: 404, code: "NoSuchKey", ops: gets, want: objstore.ErrNotExist},
	{name: "NoSuchVersion is a missing version", status: 404, code: "NoSuchVersion", ops: []string{"getversion"}, want: objstore.ErrNotExist},
	{name: "a version that is a delete marker has no bytes", status: 405, code: "MethodNotAllowed", ops: []string{"getversion"}, want: objstore.ErrNotExist},
	{name: "405 on the newest version proves nothing", status: 405, code: "MethodNotAllowed", ops: gets},
	{name: "a version id that the server cannot read proves nothing", status: 400, code: "InvalidArgument", ops: []string{"getversion"}},
	{name: "old versions and configuration need rights of their own", status: 403, code: "AccessDenied", ops: []string{"getversion", "versioning"}, want: objstore.ErrDenied},
	{name: "no configuration of versions to tell", status: 501, code: "NotImplemented", ops: []string{"versioning"}, want: objstore.ErrUnsupported},
	{name: "NoSuchBucket is no missing object", status: 404, code: "NoSuchBucket", ops: ops(gets, lists, writes), want: objstore.ErrNoSuchBucket},
	{name: "a 404 that names nothing proves nothing", status: 404, code: "NotFound", ops: ops(gets, lists), says: "does not say what is missing"},
	{name: "a 404 that names something else proves nothing", status: 404, code: "NoSuchUpload", ops: gets},
	{name: "403 is denied", status: 403, code: "AccessDenied", ops: ops(heads, gets, lists, writes), want: objstore.ErrDenied},
	{name: "a bad signature is denied", status: 403, code: "SignatureDoesNotMatch", ops: ops(heads, gets, lists), want: objstore.ErrDenied},
	{name: "401 is denied", status: 401, code: "Unauthorized", ops: ops(heads, gets, lists), want: objstore.ErrDenied},
	{name: "an archived object", status: 403, code: "InvalidObjectState", ops: gets, want: objstore.ErrArchived},
	{name: "503 is throttling", status: 503, code: "SlowDown", ops: ops(heads, gets, lists, writes), want: objstore.ErrThrottled, retryable: true},
	{name: "429 is throttling", status: 429, code: "TooManyRequests", ops: ops(heads, gets, lists), want: objstore.ErrThrottled, retryable: true},
	{name: "a code asks to slow down whatever the status", status: 400, code: "RequestLimitExceeded", ops: ops(gets, lists), want: objstore.ErrThrottled, retryable: true},
	{name: "so does the server that is busy", status: 500, code: "ServerBusy", ops: ops(gets, lists), want: objstore.ErrThrottled, retryable: true},
	{name: "500 is no answer about the object", status: 500, code: "InternalError", ops: ops(heads, gets, lists, writes), retryable: true},
	{name: "502 neither", status: 502, code: "BadGateway", ops: ops(heads, gets, lists), retryable: true},
	{name: "501 is not supported", status: 501, code: "NotImplemented", ops: ops(lists, writes), want: objstore.ErrUnsupported},
	{name: "no versions here", status: 405, code: "MethodNotAllowed", ops: []string{"versions"}, want: objstore.ErrUnsupported},
	{name: "405 elsewhere proves nothing", status: 405, code: "MethodNotAllowed", ops: heads},
	{name: "412 on a write", status: 412, code: "PreconditionFailed", ops: writes, want: objstore.ErrExist},
	{name: "409 on a write", status: 409, code: "ConditionalRequestConflict", ops: writes, want: objstore.ErrExist},
	{name: "409 on a read proves nothing", status: 409, code: "OperationAborted", ops: gets},
	{name: "301 names the region", status: 301, code: "PermanentRedirect", header: elsewhere("X-Amz-Bucket-Region", "eu-west-1"), ops: ops(heads, gets, lists), says: "eu-west-1"},
	{name: "307 is not followed", status: 307, code: "TemporaryRedirect", header: elsewhere(), ops: ops(heads, gets, lists, writes), says: "redirect"},
	{name: "308 is not followed", status: 308, code: "PermanentRedirect", header: elsewhere(), ops: ops(heads, gets, lists), says: "redirect"},
	{name: "400 names its causes", status: 400, code: "BadRequest", ops: ops(heads, gets, lists), says: "expired session token"},
	{name: "304 proves nothing", status: 304, ops: heads},
	{name: "HEAD 204 proves nothing", status: 204, ops: []string{"stat"}},
}

// TestWhatAnswersMean: every operation, on both ways to ask HEAD.
func TestWhatAnswersMean(t *testing.T) {
	t.Parallel()
	for _, tt := range meanings {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := servertest.S3(t)
			srv.Add(servertest.Rule{Status: tt.status, Code: tt.code, Header: tt.header})
			for name, opts := range map[string]s3.Options{"": {}, " by HeadObject": {HeadOracle: true}} {
				s, root := bucket(t, client(t, srv, opts), srv.Bucket)
				for _, op := range tt.ops {
					if tt.status == 204 && opts.HeadOracle {
						continue // the SDK takes any 2xx for success
					}
					before := len(srv.Requests())
					e := wantKind(t, op+name, ask(t.Context(), s, root.Join("k"), op), tt.want)
					checkMeaning(t, op, name, e, tt)
					if n := len(srv.Requests()) - before; n != 1 {
						t.Errorf("%s%s: %d requests", op, name, n)
					}
				}
			}
		})
	}
}

func checkMeaning(t *testing.T, op, name string, e *objstore.Error, tt meaning) {
	t.Helper()
	if e.Status != tt.status || e.Op != op || e.Retryable() != tt.retryable || !strings.Contains(e.Error(), tt.says) {
		t.Errorf("%s%s: %v (status %d, op %s, retryable %v)", op, name, e, e.Status, e.Op, e.Retryable())
	}
	if e.RequestID == "" || e.ServerTime.IsZero() {
		t.Errorf("%s%s: request id %q, server time %v", op, name, e.RequestID, e.ServerTime)
	}
	isHead := op == "stat" || op == "restat"
	if isHead && e.Code != "" || !isHead && e.Code != tt.code {
		t.Errorf("%s%s: code %q", op, name, e.Code)
	}
}
