package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

func TestRetryable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  objstore.Error
		want bool
	}{
		{"no answer", objstore.Error{Err: io.ErrUnexpectedEOF}, true},
		{"no answer in time", objstore.Error{Err: context.DeadlineExceeded}, true},
		{"a missing object", objstore.Error{Status: 404, Err: objstore.ErrNotExist}, false},
		{"a missing file", objstore.Error{Err: objstore.ErrNotExist}, false},
		{"a missing root", objstore.Error{Err: objstore.ErrNoSuchBucket}, false},
		{"a denied file", objstore.Error{Err: fmt.Errorf("%w: why", objstore.ErrDenied)}, false},
		{"a denied object", objstore.Error{Status: 403, Err: objstore.ErrDenied}, false},
		{"throttled by 503", objstore.Error{Status: 503, Err: objstore.ErrThrottled}, true},
		{"throttled with another status", objstore.Error{Status: 400, Err: objstore.ErrThrottled}, true},
		{"a failure on the store's side", objstore.Error{Status: 500, Err: errors.New("x")}, true},
		{"a gateway's", objstore.Error{Status: 502, Err: errors.New("x")}, true},
		{"not implemented", objstore.Error{Status: 501, Err: objstore.ErrUnsupported}, false},
		{"a time-out of the request", objstore.Error{Status: 408, Err: errors.New("x")}, true},
		{"a redirect", objstore.Error{Status: 301, Err: errors.New("x")}, false},
		{"a bad request", objstore.Error{Status: 400, Err: errors.New("x")}, false},
		{"an archived object", objstore.Error{Status: 403, Err: objstore.ErrArchived}, false},
		{"a conflict", objstore.Error{Status: 412, Err: objstore.ErrExist}, false},
		{"no credentials", objstore.Error{Err: objstore.ErrNoCredentials}, false},
		{"a question without sense", objstore.Error{Err: fs.ErrInvalid}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.err.Retryable(); got != tt.want {
				t.Errorf("%v: %v", &tt.err, got)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	e := &objstore.Error{Op: "probe", Location: s3loc("b", "k"), Status: 403, Code: "AccessDenied", Err: objstore.ErrDenied}
	if got, want := e.Error(), "probe s3://b/k: HTTP 403 AccessDenied: access denied"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRangeBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		r          objstore.Range
		size       int64
		begin, end int64
		bad        bool
	}{
		{objstore.Range{}, 10, 0, 10, false},
		{objstore.Range{}, 0, 0, 0, false},
		{objstore.Range{Offset: 3, Length: 4}, 10, 3, 7, false},
		{objstore.Range{Offset: 3}, 10, 3, 10, false},
		{objstore.Range{Offset: 8, Length: 5}, 10, 8, 10, false},
		{objstore.Range{Offset: 10}, 10, 10, 10, false},
		{objstore.Range{Offset: 11, Length: 1}, 10, 10, 10, false},
		{objstore.Range{Offset: -3}, 10, 7, 10, false},
		{objstore.Range{Offset: -30}, 10, 0, 10, false},
		{objstore.Range{Offset: math.MinInt64}, 10, 0, 10, false},
		{objstore.Range{Offset: 0, Length: math.MaxInt64}, 10, 0, 10, false},
		{objstore.Range{Offset: 1, Length: math.MaxInt64}, 10, 0, 0, true},
		{objstore.Range{Offset: -1, Length: 1}, 10, 0, 0, true},
		{objstore.Range{Offset: 1, Length: -1}, 10, 0, 0, true},
	} {
		begin, end, err := tt.r.Bounds(tt.size)
		if begin != tt.begin || end != tt.end || errors.Is(err, fs.ErrInvalid) != tt.bad {
			t.Errorf("%+v.Bounds(%d) = %d, %d, %v", tt.r, tt.size, begin, end, err)
		}
	}
}
