package tables_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// memory remembers everything that it is handed.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func keyFor(loc objstore.Location, etag string, size int64) string {
	return fmt.Sprint(loc.Key, " ", etag, " ", size)
}

func (m *memory) Get(loc objstore.Location, etag string, size int64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.kept[keyFor(loc, etag, size)])
}

func (m *memory) Put(loc objstore.Location, etag string, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[keyFor(loc, etag, int64(len(body)))] = bytes.Clone(body)
}

// watched is a bucket that tells which objects were read, and runs something before
// a read.
type watched struct {
	objstore.Reader
	mu     sync.Mutex
	read   []string
	before func(key string)
}

func (r *watched) Get(ctx context.Context, at objstore.Location, rg objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	r.mu.Lock()
	if r.read = append(r.read, at.Key); r.before != nil {
		r.before(at.Key)
	}
	r.mu.Unlock()
	return r.Reader.Get(ctx, at, rg)
}

// rememberingStores are stores for looking, with a memory.
type rememberingStores struct {
	tables.Stores
	r *watched
	m tables.Manifests
}

func (s rememberingStores) Reader(context.Context, objstore.Location) (objstore.Reader, error) {
	return tables.WithManifests(s.r, s.m), nil
}

// once opens the table t.lance as a new pass does and walks it.
type once struct {
	Facts      reconcile.Facts
	References []string
	manifests  []string // read from the store
}

func (w *world) once(m tables.Manifests, before func(string), versions reconcile.Versions) once {
	w.t.Helper()
	r := &watched{Reader: w.store, before: before}
	t := tables.New(reconcile.Target{Name: "t", Location: loc("t.lance")}, rememberingStores{w.stores(), r, m}, tables.Options{Versions: versions})
	out := once{}
	var err error
	if out.Facts, err = t.Open(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if !out.Facts.Settled {
		for ref, err := range t.References(w.t.Context()) {
			if err != nil {
				w.t.Fatal(err)
			}
			out.References = append(out.References, ref.Path)
		}
	}
	for _, key := range r.read {
		if strings.HasSuffix(key, ".manifest") || strings.HasSuffix(key, ".binpb") {
			out.manifests = append(out.manifests, strings.TrimPrefix(key, "t.lance/"))
		}
	}
	return out
}

func newMemory() *memory { return &memory{kept: map[string][]byte{}} }

// same fails when a look with a memory says anything else than one without.
func same(t *testing.T, cold, warm once) {
	t.Helper()
	if d := cmp.Diff([]any{cold.Facts, cold.References}, []any{warm.Facts, warm.References}); d != "" {
		t.Errorf("the memory changes what is said:\n%s", d)
	}
}

func TestTheNextPassReadsNoManifestAgain(t *testing.T) {
	t.Parallel()
	s := shard()
	for name, c := range map[string]struct {
		setup    func(w *world)
		versions reconcile.Versions
		cold     int
	}{
		"a plain table":        {func(w *world) { w.write("t.lance", four()) }, reconcile.VersionsCurrent, 1},
		"one with a log":       {func(w *world) { walTable(w, four().MemWAL(), s) }, reconcile.VersionsCurrent, 4},
		"every version of one": {func(w *world) { w.write("t.lance", four()); w.write("t.lance", four().Next().Fragment(3)) }, reconcile.VersionsAll, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, memstore.Options{})
			c.setup(w)
			m := newMemory()
			cold := w.once(m, nil, c.versions)
			if len(cold.manifests) != c.cold {
				t.Errorf("the first look reads %v, want %d", cold.manifests, c.cold)
			}
			warm := w.once(m, nil, c.versions)
			if len(warm.manifests) > 0 {
				t.Errorf("the second look reads %v", warm.manifests)
			}
			same(t, cold, warm)
		})
	}
}

func TestANewVersionIsRead(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t, memstore.Options{}), newMemory()
	w.write("t.lance", four())
	w.once(m, nil, 0)
	next := four().Next().Fragment(3)
	w.write("t.lance", next)
	got := w.once(m, nil, 0)
	if d := cmp.Diff([]string{next.ManifestName()}, got.manifests); d != "" || len(got.References) != 6 {
		t.Errorf("%s%v", d, got.References)
	}
}

// A writer that commits without a condition, or a table made anew, puts another
// object under a name that was seen before.
func TestAnotherObjectUnderTheSameNameIsRead(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t, memstore.Options{}), newMemory()
	w.write("t.lance", four())
	w.once(m, nil, 0)
	other := four().Drop(2)
	w.write("t.lance", other)
	got := w.once(m, nil, 0)
	if len(got.manifests) != 1 || slices.Contains(got.References, four().DataName(2, 0)) {
		t.Errorf("read %v, named %v", got.manifests, got.References)
	}
}

// The bytes of an object that took the listed one's place before it was read are not
// those of the ETag that the listing showed.
func TestWhatWasReplacedBeforeItWasReadIsNotRemembered(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t, memstore.Options{}), newMemory()
	state := func(word string, epoch uint64) {
		s := shard()
		s.Epoch = epoch
		walTable(w, four().MemWAL().Config("k", word), s)
	}
	state("a", 1)
	replaced := 0
	w.once(m, func(key string) {
		if strings.HasSuffix(key, ".manifest") || strings.HasSuffix(key, ".binpb") {
			replaced++
			state("b", 2) // of the same size
		}
	}, 0)
	if replaced == 0 || len(m.kept) == 0 {
		t.Fatalf("replaced %d, kept %d", replaced, len(m.kept))
	}
	for key, body := range m.kept {
		if etag := fmt.Sprintf("%x", md5.Sum(body)); strings.Fields(key)[1] != etag {
			t.Errorf("kept as %s: the body of %s", key, etag)
		}
	}
}

func TestABrokenManifestIsNotRemembered(t *testing.T) {
	t.Parallel()
	w, m, b := newWorld(t, memstore.Options{}), newMemory(), four()
	w.write("t.lance", b, lancetest.Truncate(b.ManifestName(), 100))
	if got := w.once(m, nil, 0); !got.Facts.Settled || len(m.kept) > 0 {
		t.Errorf("settled %v, kept %d", got.Facts.Settled, len(m.kept))
	}
	s := shard()
	walTable(w, four().MemWAL(), s)
	w.store.Put(loc("t.lance/"+s.ManifestName()), []byte{0xff, 0xff})
	w.once(m, nil, 0)
	for key := range m.kept {
		if strings.Contains(key, ".binpb") {
			t.Errorf("kept %s", key)
		}
	}
}

// What a memory hands out that is no manifest of that version is passed over.
func TestAMemoryThatIsWrongIsPassedOver(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t, memstore.Options{}), newMemory()
	w.write("t.lance", four())
	cold := w.once(m, nil, 0)
	for _, wrong := range [][]byte{[]byte("LANC"), four().Version(9).Manifest()} {
		for key := range m.kept {
			m.kept[key] = wrong
		}
		same(t, cold, w.once(m, nil, 0))
	}
}

// A table without files has no HEAD that would show that reading is denied.
func TestAManifestWithoutFilesIsAlwaysRead(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t, memstore.Options{}), newMemory()
	w.write("t.lance", lancetest.New().Version(1))
	w.once(m, nil, 0)
	if got := w.once(m, nil, 0); len(got.manifests) != 1 {
		t.Errorf("read %v", got.manifests)
	}
}

// A store that tells no ETag is always read.
func TestWithoutAnETagEverythingIsRead(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t, memstore.Options{}), newMemory()
	walTable(w, four().MemWAL(), shard())
	for range 2 {
		r := &watched{Reader: untagged{w.store}}
		tb := tables.New(reconcile.Target{Name: "t", Location: loc("t.lance")}, rememberingStores{w.stores(), r, m}, tables.Options{})
		if _, err := tb.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(r.read) == 0 || len(m.kept) > 0 {
			t.Errorf("read %v, kept %d", r.read, len(m.kept))
		}
	}
}

type untagged struct{ objstore.Reader }

func (u untagged) List(ctx context.Context, prefix objstore.Location, delimiter string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		for at, err := range u.Reader.List(ctx, prefix, delimiter) {
			at.ETag = ""
			if !yield(at, err) {
				return
			}
		}
	}
}

func (u untagged) Get(ctx context.Context, at objstore.Location, rg objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	body, a, err := u.Reader.Get(ctx, at, rg)
	a.ETag = ""
	return body, a, err
}
