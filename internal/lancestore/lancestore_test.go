package lancestore_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancestore"
	"github.com/rocketkeep/reconcile/internal/objstore"
)

var root = objstore.Location{Scheme: "s3", Bucket: "b", Key: "db/x.lance"}

// scripted answers as told, and notes what it was asked.
type scripted struct {
	got    []objstore.Range
	err    error
	listed []objstore.Attrs
	now    time.Time
}

func (s *scripted) Get(_ context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	s.got = append(s.got, r)
	if s.err != nil {
		return nil, objstore.Attrs{}, &objstore.Error{Op: "get", Location: loc, Status: 404, Err: s.err}
	}
	return io.NopCloser(strings.NewReader("x")), objstore.Attrs{Location: loc, Size: 7, ETag: "e", ServerTime: s.now}, nil
}

func (s *scripted) List(context.Context, objstore.Location, string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		for _, a := range s.listed {
			if !yield(a, nil) {
				return
			}
		}
		if s.err != nil {
			yield(objstore.Attrs{}, s.err)
		}
	}
}

func TestRangesAreAskedForAsLanceMeansThem(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	st := lancestore.New(s, root)
	for _, r := range [][2]int64{{3, 4}, {3, -1}, {3, 0}, {-5, 0}, {-5, 9}} {
		body, o, err := st.Get(t.Context(), "data/a", r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		body.Close()
		if o.Name != "data/a" || o.Size != 7 || o.ETag != "e" {
			t.Errorf("object %+v", o)
		}
	}
	want := []objstore.Range{{Offset: 3, Length: 4}, {Offset: 3}, {Offset: 3, Length: 1}, {Offset: -5}, {Offset: -5}}
	if d := cmp.Diff(want, s.got); d != "" {
		t.Error(d)
	}
}

func TestOnlyAnAbsentObjectIsNotThere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{{objstore.ErrNotExist, true}, {objstore.ErrNoSuchBucket, false}, {errors.Join(objstore.ErrNotExist, objstore.ErrNoSuchBucket), false}, {objstore.ErrDenied, false}} {
		_, _, err := lancestore.New(&scripted{err: tt.err}, root).Get(t.Context(), "a", 0, -1)
		if got := errors.Is(err, fs.ErrNotExist); got != tt.want {
			t.Errorf("%v matches fs.ErrNotExist: %v, want %v", tt.err, got, tt.want)
		}
		var se *objstore.Error
		if !errors.Is(err, tt.err) || !errors.As(err, &se) || se.Status != 404 {
			t.Errorf("%v: the store's own error was lost: %v", tt.err, err)
		}
	}
	if err := lancestore.Translate(nil); err != nil {
		t.Errorf("nothing became %v", err)
	}
}

func TestListingsAreOfThePlaceOnly(t *testing.T) {
	t.Parallel()
	s := &scripted{listed: []objstore.Attrs{{Location: root.Join("data/a"), Size: 1}, {Location: root.Join("data/b/"), Prefix: true}, {Location: objstore.Location{Scheme: "s3", Bucket: "b", Key: "db/y.lance/c"}}}}
	var names []string
	var last error
	for o, err := range lancestore.New(s, root).List(t.Context(), "data/", "/") {
		if last = err; err == nil {
			names = append(names, o.Name)
		}
	}
	if !slices.Equal(names, []string{"data/a", "data/b/"}) || last == nil || !strings.Contains(last.Error(), "not below it") {
		t.Errorf("listed %q and then %v", names, last)
	}
	s = &scripted{err: objstore.ErrNotExist}
	for _, err := range lancestore.New(s, root).List(t.Context(), "", "") {
		if errors.Is(err, fs.ErrNotExist) {
			t.Error("a listing that failed looks like an absent object")
		}
	}
}

func TestTheNewestTimeThatTheStoreToldIsKept(t *testing.T) {
	t.Parallel()
	early := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &scripted{now: early.Add(time.Hour)}
	st := lancestore.New(s, root)
	if !st.ServerNow().IsZero() {
		t.Error("a time before any answer")
	}
	get := func() {
		t.Helper()
		body, _, err := st.Get(t.Context(), "a", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		body.Close()
	}
	get()
	s.now = early // another node of the store, whose clock is behind
	get()
	if got := st.ServerNow(); !got.Equal(early.Add(time.Hour)) {
		t.Errorf("the store's time is %s, want %s", got, early.Add(time.Hour))
	}
}
