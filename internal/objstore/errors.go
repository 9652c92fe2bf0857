package objstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// Sentinels that errors of stores match with errors.Is.
var (
	// ErrNotExist: the store said that there is no such object.
	ErrNotExist = errors.New("no such object")
	// ErrExist: a conditional write found another state than it asked for.
	ErrExist = errors.New("object exists or changed")
	// ErrConflict: something was put, and another writer was there at the same time.
	// Both are kept. It matches ErrExist, too.
	ErrConflict = fmt.Errorf("conflict: another version came in between: %w", ErrExist)
	// ErrDenied: 401 or 403.
	ErrDenied = errors.New("access denied")
	// ErrThrottled: the store asked to slow down (429, 503, SlowDown, ServerBusy).
	ErrThrottled = errors.New("throttled")
	// ErrNoSuchBucket: the bucket, container or root folder itself is absent.
	ErrNoSuchBucket = errors.New("no such bucket or root")
	// ErrUnsupported: this store cannot do that, or the scheme is not built.
	ErrUnsupported = errors.New("not supported")
	// ErrArchived: the object is in an archive tier and must be restored first.
	ErrArchived = errors.New("archived")
	// ErrNoCredentials: nobody to sign requests as was found. It says nothing about
	// any object.
	ErrNoCredentials = errors.New("no credentials")
)

// Error is what every store returns: what was done to which object, and how the
// store answered. It matches the sentinels through Err.
type Error struct {
	// Op is open, stat, restat, probe, get, getversion, list, versions, versioning,
	// create, replace or overmarker.
	Op       string
	Location Location
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	// Code is the store's own error code ("NoSuchKey"), empty when not told.
	Code      string
	RequestID string
	// DeleteMarker reports that the answer named a delete marker as newest version.
	DeleteMarker bool
	// ServerTime is the Date header of the answer (UTC); zero when absent.
	ServerTime time.Time
	// RetryAfter is how long the store asked to be left alone; 0 when not told.
	RetryAfter time.Duration
	Err        error
}

// Error implements error. It names the operation, the object, and the answer,
// and holds no credentials or signed query.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Op, e.Location)
	if e.Status != 0 {
		b.WriteString(": HTTP " + strconv.Itoa(e.Status))
		if e.Code != "" {
			b.WriteString(" " + e.Code)
		}
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same question may get an answer later: there was
// no answer at all, the store was throttling, or it failed on its side. An answer
// that was given, and a question that makes no sense ([fs.ErrInvalid]), are not.
func (e *Error) Retryable() bool {
	if errors.Is(e.Err, ErrThrottled) {
		return true
	}
	if e.Status == 0 {
		for _, final := range []error{ErrNotExist, ErrExist, ErrDenied, ErrNoSuchBucket, ErrUnsupported, ErrArchived, ErrNoCredentials, fs.ErrInvalid} {
			if errors.Is(e.Err, final) {
				return false
			}
		}
		return true
	}
	return e.Status >= 500 && e.Status != 501 || e.Status == 408 || e.Status == 429
}
