package reconcile

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Judge says what an error of a store means for the object that was asked for: a
// verdict, and the reason that goes with it (empty where the verdict says it all).
// It is the one place where kinds of errors become words.
//
// Only [objstore.ErrNotExist] is Missing, and only 401 and 403 are Denied; a store that
// is away as a whole (no_such_bucket) or that nobody can be reached at (unreachable),
// nobody to sign as (no_credentials), throttling, a time-out, a 5xx, a question that the
// store refuses (bad_request) and whatever else kept it from answering are Undecided. Keys
// that the store does not take are bad_credentials, whatever the status. A [Judged] error keeps its own verdict.
// An answer comes before how long it took: throttling that ended in a time-out is
// `throttled`. err must not be nil.
func Judge(err error) (Verdict, string) {
	var judged *Judged
	if errors.As(err, &judged) {
		return judged.Verdict, judged.Reason
	}
	var se *objstore.Error
	errors.As(err, &se)
	switch {
	case errors.Is(err, objstore.ErrNoSuchBucket):
		return Undecided, ReasonNoSuchBucket
	case errors.Is(err, objstore.ErrNotExist):
		return Missing, ""
	case errors.Is(err, objstore.ErrDenied):
		if se != nil && credentialCodes[se.Code] {
			return Denied, ReasonBadCredentials
		}
		return Denied, ReasonAccessDenied
	case errors.Is(err, objstore.ErrNoCredentials):
		return Undecided, ReasonNoCredentials
	case errors.Is(err, objstore.ErrArchived):
		return Archived, ""
	case errors.Is(err, objstore.ErrThrottled):
		return Undecided, ReasonThrottled
	case isTimeout(err):
		return Undecided, ReasonTimeout
	case se != nil && se.Status >= 500:
		return Undecided, ReasonServerError
	case se != nil && credentialCodes[se.Code]:
		return Undecided, ReasonBadCredentials // 400 for what has expired
	case se != nil && se.Status >= 300 && !errors.Is(err, objstore.ErrUnsupported):
		return Undecided, ReasonBadRequest
	case isUnreachable(err):
		return Undecided, ReasonUnreachable
	}
	return Undecided, ReasonNoAnswer
}

// credentialCodes are what S3 says of requests whose signer it does not know, does not
// believe or does not know any more: no right is missing then. From the table of error
// codes in the S3 API reference.
var credentialCodes = map[string]bool{
	"InvalidAccessKeyId": true, "SignatureDoesNotMatch": true, "ExpiredToken": true, "InvalidToken": true, "TokenRefreshRequired": true, "RequestTimeTooSkewed": true,
}

// isUnreachable reports whether no connection came about: nobody listens there, or the
// name or the way to it is not known.
func isUnreachable(err error) bool {
	var name *net.DNSError
	var op *net.OpError
	return errors.As(err, &name) || errors.As(err, &op) && op.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// JudgeLook is [Judge] for a look that failed on its way, at metadata or a listing: no
// statement about an object comes of it, so that it is Denied or Undecided, and the
// reason is never empty.
func JudgeLook(err error) (Verdict, string) {
	v, reason := Judge(err)
	if v != Denied {
		v = Undecided
	}
	if reason == "" {
		reason = ReasonNoAnswer
	}
	return v, reason
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}
