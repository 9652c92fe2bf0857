package objstoretest

import (
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

func wantInvalid(t testing.TB, what string, err error) {
	t.Helper()
	var e *objstore.Error
	if !errors.Is(err, fs.ErrInvalid) || !errors.As(err, &e) || e.Retryable() {
		t.Errorf("%s: got error %v, want an *objstore.Error that is invalid and final", what, err)
	}
}

// list answers the names below the prefix's last folder.
func list(t testing.TB, s objstore.Lister, prefix objstore.Location, delimiter string) []string {
	t.Helper()
	cut := strings.LastIndexByte(prefix.Key, '/') + 1
	var got []string
	for a, err := range s.List(t.Context(), prefix, delimiter) {
		if err != nil {
			t.Fatalf("list %s: %v", prefix, err)
		}
		if a.Prefix != (delimiter != "" && strings.HasSuffix(a.Location.Key, delimiter)) {
			t.Errorf("list %s: entry %+v", prefix, a)
		}
		if a.Location.Container() != prefix.Container() {
			t.Errorf("list %s: entry %+v lies elsewhere", prefix, a)
		}
		got = append(got, a.Location.Key[cut:])
	}
	return got
}

func testOddKeys(t *testing.T, s objstore.Writer, h Helper) {
	var want []string
	for i, key := range OddKeys {
		if h.Odd != nil && !h.Odd(key) {
			continue
		}
		want = append(want, key)
		body := fmt.Sprintf("%0*d", i+1, i)
		loc := h.Root.Join(key)
		if _, err := s.Create(t.Context(), loc, strings.NewReader(body), int64(len(body))); err != nil {
			t.Errorf("create %q: %v", key, err)
			continue
		}
		for name, look := range looks(s) {
			if a, err := look(t.Context(), loc); err != nil || a.Size != int64(i+1) {
				t.Errorf("%s %q: size %d, error %v", name, key, a.Size, err)
			}
		}
		if data, _ := read(t, s, loc, objstore.Range{}); data != body {
			t.Errorf("get %q: %q", key, data)
		}
		if got := list(t, s, loc, ""); len(got) == 0 || loc.Key[:strings.LastIndexByte(loc.Key, '/')+1]+got[0] != loc.Key {
			t.Errorf("list with the key %q as prefix: %q", key, got)
		}
		if _, err := s.Create(t.Context(), loc, strings.NewReader("y"), 1); !errors.Is(err, objstore.ErrExist) {
			t.Errorf("create %q again: %v", key, err)
		}
	}
	sort.Strings(want)
	if diff := cmp.Diff(want, list(t, s, h.Root.Dir(), "")); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
}

// long is more than two pages of a thousand.
const long = 2500

func fillLong(t *testing.T, s objstore.Writer, h Helper) {
	t.Helper()
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				h.put(t, s, longName(i), "x")
			}
		})
	}
	for i := range long {
		work <- i
	}
	close(work)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// longName spreads the objects over one large folder and many small ones.
func longName(i int) string {
	if i%5 == 0 {
		return fmt.Sprintf("many/dir-%04d/x", i)
	}
	return fmt.Sprintf("many/obj-%04d", i)
}

func testLongListing(t *testing.T, s objstore.Writer, h Helper) {
	fillLong(t, s, h)
	h.put(t, s, "many.other", "x") // begins like the prefix without its slash
	var want, level []string
	for i := range long {
		name := strings.TrimPrefix(longName(i), "many/")
		want = append(want, name)
		level = append(level, strings.TrimSuffix(name, "x"))
	}
	sort.Strings(want)
	sort.Strings(level)
	if diff := cmp.Diff(want, list(t, s, h.Root.Join("many/"), "")); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(level, list(t, s, h.Root.Join("many/"), "/")); diff != "" {
		t.Errorf("listing of one level (-want +got):\n%s", diff)
	}
	if p, ok := s.(objstore.Pager); ok {
		var got []string
		pages := 0
		for token := ""; ; pages++ {
			page, next, err := p.ListPage(t.Context(), h.Root.Join("many/"), "", token)
			if err != nil {
				t.Fatalf("page %d: %v", pages, err)
			}
			for _, a := range page {
				name, _ := a.Location.Rel(h.Root.Join("many"))
				got = append(got, name)
			}
			if next == "" {
				break
			}
			token = next
		}
		if diff := cmp.Diff(want, got); diff != "" || pages < 2 {
			t.Errorf("%d full pages (-want +got):\n%s", pages, diff)
		}
	}
}

func testDelimiter(t *testing.T, s objstore.Writer, h Helper) {
	// "." sorts before "/", "0" after it: the order of keys is not that of names.
	for _, name := range []string{"top", "a.b", "a/1", "a/2/3", "a0", "b/x", "z"} {
		h.put(t, s, name, "x")
	}
	if diff := cmp.Diff([]string{"a.b", "a/", "a0", "b/", "top", "z"}, list(t, s, h.Root.Dir(), "/")); diff != "" {
		t.Errorf("level (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a.b", "a/1", "a/2/3", "a0", "b/x", "top", "z"}, list(t, s, h.Root.Dir(), "")); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1", "2/"}, list(t, s, h.Root.Join("a/"), "/")); diff != "" {
		t.Errorf("below a (-want +got):\n%s", diff)
	}
}

func testPartialPrefix(t *testing.T, s objstore.Writer, h Helper) {
	for _, name := range []string{"part-1", "part-2/x", "pa", "q"} {
		h.put(t, s, name, "x")
	}
	if diff := cmp.Diff([]string{"part-1", "part-2/x"}, list(t, s, h.Root.Join("part-"), "")); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"part-1", "part-2/"}, list(t, s, h.Root.Join("part-"), "/")); diff != "" {
		t.Errorf("level (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"part-2/"}, list(t, s, h.Root.Join("part-2"), "/")); diff != "" {
		t.Errorf("a folder without its slash (-want +got):\n%s", diff)
	}
}

func testListStop(t *testing.T, s objstore.Writer, h Helper) {
	for i := range 5 {
		h.put(t, s, fmt.Sprintf("d/%d", i), "x")
	}
	for _, delimiter := range []string{"", "/"} {
		n := 0
		for _, err := range s.List(t.Context(), h.Root.Join("d/"), delimiter) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Errorf("stopped after %d entries", n)
		}
	}
}
