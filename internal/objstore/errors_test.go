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

func TestAChecksumAgrees(t *testing.T) {
	t.Parallel()
	const md5, other = "d41d8cd98f00b204e9800998ecf8427e", "c4ca4238a0b923820dcc509a6f75849b"
	kept := map[string]string{"sha256": "sha256:aa", "crc32c": "crc32c:yZRlqg=="}
	for _, tt := range []struct {
		name          string
		attrs         objstore.Attrs
		recorded      string
		agrees, known bool
	}{
		{"the same digest", objstore.Attrs{Checksums: kept}, "sha256:aa", true, true},
		{"another digest", objstore.Attrs{Checksums: kept}, "sha256:ab", false, true},
		{"another algorithm than is kept", objstore.Attrs{Checksums: kept, ETag: other}, "md5:" + md5, false, false},
		{"nothing kept", objstore.Attrs{}, "sha256:aa", false, false},
		{"nothing recorded", objstore.Attrs{Checksums: kept}, "", false, false},
		{"an ETag that is the MD5", objstore.Attrs{ETag: md5}, "md5:" + md5, true, true},
		{"an ETag that is not, whatever it is", objstore.Attrs{ETag: other}, "md5:" + md5, false, false},
		{"an MD5 that is kept decides", objstore.Attrs{ETag: md5, Checksums: map[string]string{"md5": "md5:" + other}}, "md5:" + md5, false, true},
		{"no ETag and an empty MD5", objstore.Attrs{}, "md5:", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if agrees, known := tt.attrs.Agrees(tt.recorded); agrees != tt.agrees || known != tt.known {
				t.Errorf("agrees %v, known %v", agrees, known)
			}
		})
	}
}

func TestWhatABucketKeeps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		v    objstore.Versioning
		id   string
		want bool
	}{
		{objstore.VersioningNever, "", false}, {objstore.VersioningNever, "null", false}, {objstore.VersioningEnabled, "v1", true},
		{objstore.VersioningEnabled, "null", true}, {objstore.VersioningSuspended, "v1", true}, {objstore.VersioningSuspended, "null", false},
		{objstore.VersioningSuspended, "", false}, {"", "v1", false},
	} {
		if got := tt.v.Keeps(objstore.Attrs{VersionID: tt.id}); got != tt.want {
			t.Errorf("versioning %q, version %q: kept %v", tt.v, tt.id, got)
		}
	}
	if !errors.Is(objstore.ErrConflict, objstore.ErrExist) || errors.Is(objstore.ErrExist, objstore.ErrConflict) {
		t.Error("a conflict is another state than was asked for, and not the other way round")
	}
}
