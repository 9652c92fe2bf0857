// Package objstoretest is the one behaviour suite of object stores: every
// implementation of [objstore.Writer] and every decorator passes it.
package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Helper is what the suite needs beside a store.
type Helper struct {
	// Root is an empty place of the store for this test; keys are joined below it.
	Root objstore.Location
	// Remove takes an object away, as the rest of the world may.
	Remove func(t testing.TB, loc objstore.Location)
	// Put stores an object whatever is there; nil: the suite uses Create.
	Put func(t testing.TB, loc objstore.Location, data []byte)
	// Absent is a store and a place in it whose bucket or root does not exist; a nil
	// store skips those tests.
	Absent   objstore.Reader
	AbsentAt objstore.Location
	// HeadCannotTell: Stat answers "no such object" for a missing bucket (HTTP HEAD).
	HeadCannotTell bool
	// Versions: the store keeps them, delete markers included.
	Versions bool
	// Odd reports whether a key can exist on this store at all; nil: every key.
	Odd func(key string) bool
	// GoneIsExist: Replace of a missing object answers ErrExist. Both forbid the write.
	GoneIsExist bool
}

// New makes a fresh store.
type New func(t testing.TB) (objstore.Writer, Helper)

// OddKeys have what usually breaks signatures, listings and paths.
var OddKeys = []string{
	"plain", "with space", "with%20percent", "plus+plus", "ünïcödé", "emoji-🙂", "question?mark", "hash#tag",
	`quotes'"both`, "amp&amp;<xml>", "semi;colon,comma", "star*[glob]", `back\slash`, "equals=sign", "tilde~at@colon:",
	"a//b", "./y", "dots/../x", "trail/", "deep/er/est", "percent%", "%2F", "new\nline",
	"long-" + string(bytes.Repeat([]byte("x"), 295)), "(paren)!$",
}

// Run runs the suite.
func Run(t *testing.T, newStore New) {
	tests := []struct {
		name string
		run  func(t *testing.T, s objstore.Writer, h Helper)
	}{
		{"stat, restat and probe agree on a present object", testPresent},
		{"a missing object is no such object", testMissing},
		{"a missing bucket is no missing object", testAbsent},
		{"a folder is not an object", testFolder},
		{"an object without bytes is there", testEmpty},
		{"ranges give the bytes that were asked for", testRanges},
		{"a range that makes no sense is refused", testBadRanges},
		{"odd keys are exact everywhere", testOddKeys},
		{"a long listing is whole and in order", testLongListing},
		{"a delimiter gives one level", testDelimiter},
		{"a prefix may end within a name", testPartialPrefix},
		{"a listing stops when the caller does", testListStop},
		{"create leaves what is there alone", testCreateExisting},
		{"of many creators exactly one wins", testCreateRace},
		{"a body of another size is not stored", testWrongSize},
		{"replace asks for the right ETag", testReplace},
		{"of many replacers exactly one wins", testReplaceRace},
		{"an ended context ends every call", testContext},
		{"versions are of exactly one key", Versions},
		{"an object goes over the delete marker that was seen, and no other", OverMarkers},
		{"of many that put over a marker at most one is alone", OverMarkerRace},
		{"answers carry the store's clock", testServerTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, h := newStore(t)
			tt.run(t, s, h)
		})
	}
}

func (h Helper) put(t testing.TB, s objstore.Writer, name, data string) objstore.Location {
	t.Helper()
	loc := h.Root.Join(name)
	if h.Put != nil {
		h.Put(t, loc, []byte(data))
		return loc
	}
	if _, err := s.Create(t.Context(), loc, bytes.NewReader([]byte(data)), int64(len(data))); err != nil {
		t.Fatalf("create %q: %v", name, err)
	}
	return loc
}

func read(t testing.TB, s objstore.Getter, loc objstore.Location, r objstore.Range) (string, objstore.Attrs) {
	t.Helper()
	rc, a, err := s.Get(t.Context(), loc, r)
	if err != nil {
		t.Fatalf("get %s %v: %v", loc, r, err)
	}
	data, err := io.ReadAll(rc)
	if err != nil {
		t.Fatalf("read %s %v: %v", loc, r, err)
	}
	if err := rc.Close(); err != nil {
		t.Fatalf("close %s: %v", loc, err)
	}
	return string(data), a
}

// looks are the three ways to ask for one object.
func looks(s objstore.Reader) map[string]func(context.Context, objstore.Location) (objstore.Attrs, error) {
	return map[string]func(context.Context, objstore.Location) (objstore.Attrs, error){"stat": s.Stat, "restat": s.Restat, "probe": s.Probe}
}

func testPresent(t *testing.T, s objstore.Writer, h Helper) {
	before := time.Now().Add(-time.Minute)
	loc := h.put(t, s, "dir/a", "hello")
	var etags []string
	for name, look := range looks(s) {
		a, err := look(t.Context(), loc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a.Location != loc || a.Size != 5 || a.ETag == "" || a.Archived || a.DeleteMarker || a.Prefix {
			t.Errorf("%s: got %+v", name, a)
		}
		if a.ModTime.Before(before) || a.ModTime.Location() != time.UTC {
			t.Errorf("%s: ModTime %v is not now in UTC", name, a.ModTime)
		}
		etags = append(etags, a.ETag)
	}
	if etags[0] != etags[1] || etags[1] != etags[2] {
		t.Errorf("ETags differ: %q", etags)
	}
}

func testMissing(t *testing.T, s objstore.Writer, h Helper) {
	h.put(t, s, "dir/a", "hello")
	for _, key := range []string{"dir/b", "nodir/x", "dir/a/below-an-object"} {
		if h.Odd != nil && !h.Odd(key) {
			continue
		}
		for name, look := range looks(s) {
			_, err := look(t.Context(), h.Root.Join(key))
			wantError(t, name+" "+key, err, objstore.ErrNotExist)
		}
		_, _, err := s.Get(t.Context(), h.Root.Join(key), objstore.Range{})
		wantError(t, "get "+key, err, objstore.ErrNotExist)
	}
	h.Remove(t, h.Root.Join("dir/a"))
	for name, look := range looks(s) {
		_, err := look(t.Context(), h.Root.Join("dir/a"))
		wantError(t, name+" after removal", err, objstore.ErrNotExist)
	}
	if got := list(t, s, h.Root.Join("nodir/"), ""); len(got) != 0 {
		t.Errorf("listing of nothing: %q", got)
	}
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	var e *objstore.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Errorf("%s: got error %v, want an *objstore.Error that is %q", what, err, want)
		return
	}
	if e.Retryable() {
		t.Errorf("%s: %v says that asking again may help", what, err)
	}
	for _, other := range []error{objstore.ErrNotExist, objstore.ErrExist, objstore.ErrDenied, objstore.ErrThrottled, objstore.ErrNoSuchBucket, objstore.ErrUnsupported, objstore.ErrArchived} {
		if other != want && errors.Is(err, other) {
			t.Errorf("%s: %v is %q as well as %q", what, err, other, want)
		}
	}
}

func testAbsent(t *testing.T, _ objstore.Writer, h Helper) {
	if h.Absent == nil {
		t.Skip("this store has no bucket that can be absent")
	}
	for name, look := range looks(h.Absent) {
		_, err := look(t.Context(), h.AbsentAt.Join("x"))
		want := objstore.ErrNoSuchBucket
		if h.HeadCannotTell && name != "probe" {
			want = objstore.ErrNotExist
		}
		wantError(t, name, err, want)
	}
	_, _, err := h.Absent.Get(t.Context(), h.AbsentAt.Join("x"), objstore.Range{})
	wantError(t, "get", err, objstore.ErrNoSuchBucket)
	for _, delimiter := range []string{"", "/"} {
		n := 0
		for a, err := range h.Absent.List(t.Context(), h.AbsentAt.Dir(), delimiter) {
			if n++; n > 1 || err == nil {
				t.Fatalf("list: entry %d: %+v, %v", n, a, err)
			}
			wantError(t, "list", err, objstore.ErrNoSuchBucket)
		}
		if n == 0 {
			t.Errorf("listing of an absent bucket is empty, not an error")
		}
	}
}

func testFolder(t *testing.T, s objstore.Writer, h Helper) {
	h.put(t, s, "dir/sub/a", "x")
	for _, key := range []string{"dir", "dir/sub", "dir/"} {
		for name, look := range looks(s) {
			// A disk may say that something else stands there; that is no absence.
			if _, err := look(t.Context(), h.Root.Join(key)); err == nil {
				t.Errorf("%s %s: a folder is there as an object", name, key)
			}
		}
	}
}

func testEmpty(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "empty", "")
	seen, err := s.Restat(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	for name, look := range looks(s) {
		// Whoever replaces it asks for the ETag that was seen, and how old it is.
		a, err := look(t.Context(), loc)
		if err != nil || a.Size != 0 || a.ETag == "" || a.ETag != seen.ETag || a.ModTime.IsZero() || !a.ModTime.Equal(seen.ModTime) {
			t.Errorf("%s: %+v, error %v; restat saw %+v", name, a, err, seen)
		}
	}
	for _, r := range []objstore.Range{{}, {Offset: 0, Length: 10}, {Offset: -10}, {Offset: 5}} {
		if data, a := read(t, s, loc, r); data != "" || a.Size != 0 {
			t.Errorf("get %v: %q of %d bytes", r, data, a.Size)
		}
	}
	if got := list(t, s, h.Root.Dir(), ""); len(got) != 1 || got[0] != "empty" {
		t.Errorf("list: %q", got)
	}
	if _, err := s.Replace(t.Context(), loc, seen.ETag, strings.NewReader("whole"), 5); err != nil {
		t.Errorf("replace an empty object: %v", err)
	} else if data, _ := read(t, s, loc, objstore.Range{}); data != "whole" {
		t.Errorf("after the replacement: %q", data)
	}
}

func testRanges(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "digits", "0123456789")
	for _, tt := range []struct {
		r    objstore.Range
		want string
	}{
		{objstore.Range{}, "0123456789"},
		{objstore.Range{Offset: 0, Length: 1}, "0"},
		{objstore.Range{Offset: 3, Length: 4}, "3456"},
		{objstore.Range{Offset: 7}, "789"},
		{objstore.Range{Offset: 7, Length: 100}, "789"},
		{objstore.Range{Offset: 9, Length: 1}, "9"},
		{objstore.Range{Offset: 0, Length: 10}, "0123456789"},
		{objstore.Range{Offset: -3}, "789"},
		{objstore.Range{Offset: -10}, "0123456789"},
		{objstore.Range{Offset: -1000}, "0123456789"},
		{objstore.Range{Offset: 10}, ""},
		{objstore.Range{Offset: 10, Length: 5}, ""},
		{objstore.Range{Offset: 1 << 40, Length: 5}, ""},
	} {
		data, a := read(t, s, loc, tt.r)
		if data != tt.want || a.Size != 10 || a.ETag == "" || a.Location != loc {
			t.Errorf("get %v: %q, attrs %+v; want %q of 10 bytes", tt.r, data, a, tt.want)
		}
	}
}

func testBadRanges(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "digits", "0123456789")
	for _, r := range []objstore.Range{{Offset: -3, Length: 2}, {Offset: 0, Length: -1}, {Offset: 1, Length: 1<<63 - 1}} {
		rc, _, err := s.Get(t.Context(), loc, r)
		if err == nil {
			_ = rc.Close() // the test has failed
		}
		wantInvalid(t, "get", err)
	}
}

func testServerTime(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "a", "x")
	near := func(what string, at time.Time) {
		t.Helper()
		if d := time.Since(at); d > time.Minute || d < -time.Minute || at.Location() != time.UTC {
			t.Errorf("%s: server time %v is not now in UTC", what, at)
		}
	}
	for name, look := range looks(s) {
		a, err := look(t.Context(), loc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		near(name, a.ServerTime)
		_, err = look(t.Context(), h.Root.Join("missing"))
		var e *objstore.Error
		if !errors.As(err, &e) {
			t.Fatalf("%s of a missing object: %v", name, err)
		}
		near(name+" of a missing object", e.ServerTime)
	}
	_, a := read(t, s, loc, objstore.Range{})
	near("get", a.ServerTime)
	for a, err := range s.List(t.Context(), h.Root.Dir(), "") {
		if err != nil {
			t.Fatal(err)
		}
		near("list", a.ServerTime)
	}
}

func testContext(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "a", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context canceled", what, err)
		}
	}
	for name, look := range looks(s) {
		_, err := look(ctx, loc)
		check(name, err)
	}
	_, _, err := s.Get(ctx, loc, objstore.Range{})
	check("get", err)
	for _, err := range s.List(ctx, h.Root.Dir(), "") {
		check("list", err)
	}
	_, err = s.Create(ctx, h.Root.Join("b"), bytes.NewReader([]byte("x")), 1)
	check("create", err)
	if _, err := s.Stat(t.Context(), h.Root.Join("b")); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("create under an ended context stored something: %v", err)
	}
	a, err := s.Stat(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Replace(ctx, loc, a.ETag, bytes.NewReader([]byte("y")), 1)
	check("replace", err)
	if data, _ := read(t, s, loc, objstore.Range{}); data != "x" {
		t.Errorf("replace under an ended context stored something: %q", data)
	}
}

// race runs f n times at once.
func race(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}
