package objstoretest

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

func testCreateExisting(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.Root.Join("new/deep/object")
	a, err := s.Create(t.Context(), loc, strings.NewReader("first"), 5)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Stat(t.Context(), loc)
	if err != nil || a.ETag != seen.ETag || a.Size != 5 || a.Location != loc {
		t.Errorf("create answered %+v, stat %+v, %v", a, seen, err)
	}
	_, err = s.Create(t.Context(), loc, strings.NewReader("again!"), 6)
	wantError(t, "create again", err, objstore.ErrExist)
	if data, _ := read(t, s, loc, objstore.Range{}); data != "first" {
		t.Errorf("the object is now %q", data)
	}
	if got := list(t, s, h.Root.Dir(), ""); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
	_, err = s.Create(t.Context(), h.Root.Join("stream"), io.MultiReader(strings.NewReader("not "), strings.NewReader("seekable")), 12)
	if err != nil {
		t.Errorf("create from a stream: %v", err)
	}
	if data, _ := read(t, s, h.Root.Join("stream"), objstore.Range{}); data != "not seekable" {
		t.Errorf("the stream became %q", data)
	}
}

func testCreateRace(t *testing.T, s objstore.Writer, h Helper) {
	for round := range 5 {
		loc := h.Root.Join("race-" + strconv.Itoa(round))
		errs := race(16, func(i int) error {
			body := strings.Repeat(string(rune('a'+i)), 1000)
			_, err := s.Create(t.Context(), loc, strings.NewReader(body), 1000)
			return err
		})
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Errorf("round %d: %d and %d both won", round, winner, i)
			case !errors.Is(err, objstore.ErrExist):
				t.Errorf("round %d: writer %d: %v", round, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		if data, _ := read(t, s, loc, objstore.Range{}); data != strings.Repeat(string(rune('a'+winner)), 1000) {
			t.Errorf("round %d: the bytes are not the winner's", round)
		}
	}
}

func testWrongSize(t *testing.T, s objstore.Writer, h Helper) {
	for _, size := range []int64{4, 6, 0} {
		for name, body := range map[string]io.Reader{
			"seekable": strings.NewReader("hello"), "stream": io.MultiReader(strings.NewReader("hello")),
		} {
			loc := h.Root.Join("wrong-" + name)
			if _, err := s.Create(t.Context(), loc, body, size); err == nil {
				t.Errorf("create of 5 bytes (%s) as %d worked", name, size)
			}
			if _, err := s.Stat(t.Context(), loc); !errors.Is(err, objstore.ErrNotExist) {
				t.Errorf("after create of 5 bytes (%s) as %d: %v", name, size, err)
			}
		}
	}
	_, err := s.Create(t.Context(), h.Root.Join("negative"), strings.NewReader(""), -1)
	if err == nil {
		t.Error("create of -1 bytes worked")
	}
}

func testReplace(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "r", "first")
	a, err := s.Stat(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"", "*"} {
		_, err = s.Replace(t.Context(), loc, tag, strings.NewReader("x"), 1)
		wantInvalid(t, "replace with ETag "+strconv.Quote(tag), err)
	}
	b, err := s.Replace(t.Context(), loc, a.ETag, strings.NewReader("second"), 6)
	if err != nil {
		t.Fatalf("replace with the right ETag: %v", err)
	}
	if b.ETag == a.ETag || b.Size != 6 {
		t.Errorf("replace answered %+v", b)
	}
	if seen, err := s.Stat(t.Context(), loc); err != nil || seen.ETag != b.ETag {
		t.Errorf("stat after replace: %+v, %v; want ETag %q", seen, err, b.ETag)
	}
	_, err = s.Replace(t.Context(), loc, a.ETag, strings.NewReader("third"), 5)
	wantError(t, "replace with a stale ETag", err, objstore.ErrExist)
	if data, _ := read(t, s, loc, objstore.Range{}); data != "second" {
		t.Errorf("the object is now %q", data)
	}
	h.Remove(t, loc)
	want := objstore.ErrNotExist
	if h.GoneIsExist {
		want = objstore.ErrExist
	}
	_, err = s.Replace(t.Context(), loc, b.ETag, strings.NewReader("fourth"), 6)
	wantError(t, "replace of what is gone", err, want)
	if _, err := s.Stat(t.Context(), loc); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("replace brought back what was gone: %v", err)
	}
	if got := list(t, s, h.Root.Dir(), ""); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func testReplaceRace(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "r", "first")
	a, err := s.Stat(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	won := 0
	for _, err := range race(16, func(i int) error {
		body := bytes.Repeat([]byte{byte('a' + i)}, 100+i)
		_, err := s.Replace(t.Context(), loc, a.ETag, bytes.NewReader(body), int64(len(body)))
		return err
	}) {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, objstore.ErrExist):
			t.Errorf("a loser: %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d replacers won", won)
	}
}
