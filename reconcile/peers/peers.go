// Package peers reaches other places that may hold copies of a target's objects:
// object stores of any built kind with the same layout ([Store]) and web servers that
// are asked by a template of their address ([HTTP]). [Guarded] keeps a peer that does
// not answer from holding up a pass.
//
// A peer's word has three kinds. A copy; an explicit no, which matches
// [objstore.ErrNotExist]; and no answer, which is every other error, with a word for
// it in [Reason]. Only the second exhausts a rung of the repair ladder, so everything
// that is not surely a no is no answer: 403, 5xx, a time-out, a redirect, a bucket
// that is not there.
//
// What cannot be told from here: a web server, or what stands before it, that answers
// 404 to everything says no like a peer that looked. Name as peers only places that
// answer otherwise while they are down. The no of a store whose root holds nothing (a
// mount that is away and left its folder behind) counts for nothing.
//
// What bytes are worth is not decided here but by a [reconcile.Prover].
package peers

import (
	"cmp"
	"errors"
	"io/fs"
	"strconv"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Options of a peer.
type Options struct {
	// Mirrors is the place that the peer mirrors: the root of a store or of a blob
	// collection. An object below it is looked for under the same name at the peer.
	Mirrors objstore.Location
	Timing  Timing
	// Now is the clock that measures transfers; required.
	Now func() time.Time
}

// Timing bounds the waiting for a peer. Zero fields have the defaults, negative ones
// set no bound.
type Timing struct {
	// FirstByte is the time from a request to the header of its answer; 10s. Object
	// stores have their own.
	FirstByte time.Duration
	// Stall is the longest time without a byte of the body; 30s.
	Stall time.Duration
	// Grace and MinRate end a transfer that drips: it may spend Grace (60s), and on top
	// of it the time that its bytes take at MinRate bytes a second (16 KiB/s), waiting
	// for the peer. Time that the reader of the body takes does not count.
	Grace   time.Duration
	MinRate int64
}

func (t Timing) withDefaults() Timing {
	t.FirstByte = cmp.Or(t.FirstByte, 10*time.Second)
	t.Stall = cmp.Or(t.Stall, 30*time.Second)
	t.Grace = cmp.Or(t.Grace, time.Minute)
	t.MinRate = cmp.Or(t.MinRate, 16<<10)
	return t
}

// The words of [Reason].
const (
	// ReasonNoSuchObject is the explicit no, and ReasonOutside the object that the
	// peer's layout has no place for. All others are no answers.
	ReasonNoSuchObject = "no_such_object"
	ReasonOutside      = "outside"

	ReasonBreakerOpen   = "breaker_open"      // not asked: it did not answer before
	ReasonInterrupted   = "interrupted"       // the caller's context ended
	ReasonUnreachable   = "unreachable"       // no connection, a broken one, a certificate that is not trusted
	ReasonTimeout       = "timeout"           // no header in time
	ReasonStalled       = "stalled"           // no further byte in time
	ReasonTooSlow       = "too_slow"          // bytes, but not enough of them
	ReasonCutShort      = "cut_short"         // the body ended before its end
	ReasonTooLong       = "too_long"          // more bytes than promised or recorded
	ReasonNoEnd         = "no_end"            // a body whose end looks like a broken connection, and no record of its size
	ReasonRedirect      = "redirect"          // 3xx
	ReasonEncoded       = "encoded"           // compressed although that was not asked for
	ReasonErrorPage     = "error_page"        // 200 with a page for people
	ReasonDenied        = "denied"            // 401, 403, or nobody to sign as
	ReasonThrottled     = "throttled"         // 429, 503
	ReasonServerError   = "server_error"      // other 5xx
	ReasonStatus        = "unexpected_status" // any other status
	ReasonArchived      = "archived"          // in an archive tier
	ReasonEmptyRoot     = "empty_root"        // no such object, at a root that holds nothing at all
	ReasonNoSuchBucket  = "no_such_bucket"    // the peer's bucket or root folder is absent
	ReasonNoCredentials = "no_credentials"
)

// Error is a peer's refusal or failure. It holds no header, no query, no user, and
// nothing that an HTTP peer wrote into its answer.
type Error struct {
	// Peer is the peer's name.
	Peer string
	// Reason is one of the words above.
	Reason string
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	Err    error
}

// Error implements error.
func (e *Error) Error() string {
	text := "peer " + e.Peer + ": " + e.Reason
	if e.Status != 0 {
		text += " (HTTP " + strconv.Itoa(e.Status) + ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reason is the word for an error of a peer; empty for nil, and
// [ReasonUnreachable] for an error that no peer of this package made.
func Reason(err error) string {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason
	case errors.Is(err, reconcile.ErrNotBelow):
		return ReasonOutside
	case saidNo(err):
		return ReasonNoSuchObject
	}
	return ReasonUnreachable
}

// saidNo reports whether err is an explicit no.
func saidNo(err error) bool {
	return errors.Is(err, objstore.ErrNotExist) && !errors.Is(err, objstore.ErrNoSuchBucket)
}

// invalid is a mistake of whoever makes a peer.
func invalid(text string) error { return &invalidError{text} }

type invalidError struct{ text string }

func (e *invalidError) Error() string { return e.text }
func (e *invalidError) Unwrap() error { return fs.ErrInvalid }
