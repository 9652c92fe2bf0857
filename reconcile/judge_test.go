package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

func TestErrorsOfStoresHaveOneMeaning(t *testing.T) {
	t.Parallel()
	answered := func(status int, cause error) error {
		return fmt.Errorf("look: %w", &objstore.Error{Op: "stat", Status: status, Err: cause})
	}
	coded := func(status int, code string, cause error) error {
		return fmt.Errorf("look: %w", &objstore.Error{Op: "get", Status: status, Code: code, Err: cause})
	}
	type want struct {
		verdict reconcile.Verdict
		reason  string
		// of a look that failed on its way
		lookVerdict reconcile.Verdict
		lookReason  string
	}
	same := func(v reconcile.Verdict, reason string) want { return want{v, reason, v, reason} }
	for _, tt := range []struct {
		name string
		err  error
		want want
	}{
		{"no such object is missing, and no statement where metadata was read", answered(404, objstore.ErrNotExist), want{reconcile.Missing, "", reconcile.Undecided, "no_answer"}},
		{"an object in an archive tier is archived", answered(403, objstore.ErrArchived), want{reconcile.Archived, "", reconcile.Undecided, "no_answer"}},
		{"403 is denied", answered(403, objstore.ErrDenied), same(reconcile.Denied, "access_denied")},
		{"an absent bucket says nothing of an object", answered(404, objstore.ErrNoSuchBucket), same(reconcile.Undecided, "no_such_bucket")},
		{"an absent bucket is no missing object, even where both are said", errors.Join(objstore.ErrNotExist, objstore.ErrNoSuchBucket), same(reconcile.Undecided, "no_such_bucket")},
		{"throttling is throttling", answered(503, objstore.ErrThrottled), same(reconcile.Undecided, "throttled")},
		{"throttling until the time was over is throttling", answered(503, errors.Join(objstore.ErrThrottled, context.DeadlineExceeded)), same(reconcile.Undecided, "throttled")},
		{"a context's deadline is a time-out", answered(0, context.DeadlineExceeded), same(reconcile.Undecided, "timeout")},
		{"a connection's deadline is a time-out", answered(0, os.ErrDeadlineExceeded), same(reconcile.Undecided, "timeout")},
		{"a network that gave up is a time-out", answered(0, &net.DNSError{IsTimeout: true}), same(reconcile.Undecided, "timeout")},
		{"a name that nobody knows is no time-out", answered(0, &net.DNSError{IsNotFound: true}), same(reconcile.Undecided, "unreachable")},
		{"a port where nobody listens cannot be reached", answered(0, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), same(reconcile.Undecided, "unreachable")},
		{"a connection that took too long is a time-out", answered(0, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}), same(reconcile.Undecided, "timeout")},
		{"a connection that broke while it was read is no answer", answered(0, &net.OpError{Op: "read", Err: syscall.ECONNRESET}), same(reconcile.Undecided, "no_answer")},
		{"500 is the server's error", answered(500, errors.New("InternalError")), same(reconcile.Undecided, "server_error")},
		{"504 is the server's error", answered(504, nil), same(reconcile.Undecided, "server_error")},
		{"400 refuses the question", answered(400, errors.New("BadRequest")), same(reconcile.Undecided, "bad_request")},
		{"a redirect refuses the question", answered(301, errors.New("PermanentRedirect")), same(reconcile.Undecided, "bad_request")},
		{"what a store cannot do is no answer", answered(501, objstore.ErrUnsupported), same(reconcile.Undecided, "server_error")},
		{"what a store cannot do by 405 is no answer", answered(405, objstore.ErrUnsupported), same(reconcile.Undecided, "no_answer")},
		{"403 to a wrong key is not about rights", coded(403, "SignatureDoesNotMatch", objstore.ErrDenied), same(reconcile.Denied, "bad_credentials")},
		{"403 to a right key is about rights", coded(403, "AccessDenied", objstore.ErrDenied), same(reconcile.Denied, "access_denied")},
		{"400 to a session that has expired is about the key", coded(400, "ExpiredToken", errors.New("unexpected answer")), same(reconcile.Undecided, "bad_credentials")},
		{"a broken connection is no answer", answered(0, io.ErrUnexpectedEOF), same(reconcile.Undecided, "no_answer")},
		{"nobody to sign as", objstore.ErrNoCredentials, same(reconcile.Undecided, "no_credentials")},
		{"a cancelled context is no answer", context.Canceled, same(reconcile.Undecided, "no_answer")},
		{"a store that judged by itself is believed", fmt.Errorf("look: %w", &reconcile.Judged{Verdict: reconcile.Unreadable, Reason: "stub", Err: objstore.ErrDenied}),
			want{reconcile.Unreadable, "stub", reconcile.Undecided, "stub"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got want
			got.verdict, got.reason = reconcile.Judge(tt.err)
			got.lookVerdict, got.lookReason = reconcile.JudgeLook(tt.err)
			if got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}
