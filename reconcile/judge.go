package reconcile

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Judge says what an error of a store means for the object that was asked for: a
// verdict, and the reason that goes with it (empty where the verdict says it all).
// It is the one place where kinds of errors become words.
//
// Only [objstore.ErrNotExist] is Missing, and only 401 and 403 are Denied; a store that
// is away as a whole (no_such_bucket), throttling, a time-out, a 5xx and whatever else
// kept the store from answering are Undecided. A [Judged] error keeps its own verdict.
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
		return Denied, ReasonAccessDenied
	case errors.Is(err, objstore.ErrArchived):
		return Archived, ""
	case errors.Is(err, objstore.ErrThrottled):
		return Undecided, ReasonThrottled
	case isTimeout(err):
		return Undecided, ReasonTimeout
	case se != nil && se.Status >= 500:
		return Undecided, ReasonServerError
	}
	return Undecided, ReasonNoAnswer
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
