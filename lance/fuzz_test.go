package lance

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// bounded runs fn and fails when it allocates more than a small multiple of its input.
func bounded(t *testing.T, n int, fn func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(64<<10+64*n); got > limit {
		t.Errorf("%d bytes of input made it allocate %d, more than %d", n, got, limit)
	}
}

// seeds adds real files of the fixtures by name pattern, the small ones.
func seeds(f *testing.F, pattern string, add func(name string, b []byte)) {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join(fixtures, pattern))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds for %s: %v", pattern, err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) <= 4<<10 {
			add(filepath.Base(p), b)
		}
	}
}

func FuzzManifest(f *testing.F) {
	seeds(f, "*/*/t.lance/_versions/*.manifest", func(_ string, b []byte) { f.Add(b) })
	f.Add(manifestWith(sub(1, uuidBytes("a"), str(3, FragReuseIndex), sub(6, str(1, "/x.FragmentReuseIndexDetails"), sub(2, sub(2, str(1, "d"))))), pb(sub(104, sub(3, sub(1)))),
		sub(18, vint(1, 3), str(4, "/b")), fragment(1, sub(2, dataFile("a", 1, []int64{-2}, vint(7, 3))), sub(6, str(1, "x"))), fragment(1, sub(11, sub(1, str(1, "o"))), sub(3, vint(1, 1)))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m *Manifest
		var err error
		bounded(t, len(b), func() { m, err = DecodeManifest(b) })
		if err != nil {
			return
		}
		fail := func(err error) {
			if err != nil {
				t.Errorf("what was decoded fails later: %v", err)
			}
		}
		bounded(t, len(b), func() {
			for _, err := range m.Files() {
				fail(err)
			}
		})
		fragments := int64(0)
		bounded(t, len(b), func() {
			for fr, err := range m.Fragments() {
				fail(err)
				fr.LiveRows()
				fragments++
			}
		})
		if fragments != m.Summary.Fragments {
			t.Errorf("%d fragments, counted %d", fragments, m.Summary.Fragments)
		}
		bounded(t, len(b), func() {
			for x, err := range m.Indices() {
				fail(err)
				x.Signature(nil)
			}
		})
		bounded(t, len(b), func() {
			for x, err := range m.Fields() {
				fail(err)
				x.Meta("k")
			}
		})
		bounded(t, len(b), func() { _, _, _ = m.InlineTransaction() })
		// A walk over wire bytes loses none of them: what it yields rebuilds the list.
		size := 0
		for raw := range m.fragmentMessages() {
			size += len(raw)
		}
		if msg, _ := m.Message(); size > len(msg) {
			t.Errorf("fragments of %d bytes in a message of %d", size, len(msg))
		}
	})
}

func FuzzTransaction(f *testing.F) {
	seeds(f, "*/*/t.lance/_transactions/*.txn", func(_ string, b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, len(b), func() {
			if tx, err := DecodeTransaction(b); err == nil && tx.Operation < 100 {
				t.Errorf("operation %d", tx.Operation)
			}
		})
	})
}

func FuzzDeletionName(f *testing.F) {
	for _, s := range []string{"_deletions/0-1-7.arrow", "0-2-17875562197259670449.bin", "--.bin", "0-0-0.arrow.bin"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		bounded(t, len(name), func() {
			frag, version, id, bitmap, err := ParseDeletionName(name)
			if err != nil {
				return
			}
			d := DeletionFile{Bitmap: bitmap, ReadVersion: version, ID: id}
			if back := string(d.appendName(nil, frag)); back != name && "_deletions/"+back != name {
				t.Errorf("%q reads as %q", name, back)
			}
		})
	})
}

func FuzzRefs(f *testing.F) {
	seeds(f, "*/*/t.lance/_refs/*/*.json", func(name string, b []byte) { f.Add(name, b) })
	f.Add("feat%2Fx", []byte(`{"parentBranch":"dev","parentVersion":6}`))
	f.Fuzz(func(t *testing.T, stem string, b []byte) {
		bounded(t, len(stem)+len(b), func() {
			if _, err := decodeTag(stem, b); err != nil && !isCorrupt(err) {
				t.Error(err)
			}
			r, err := decodeBranch(stem, b)
			if err != nil && !isCorrupt(err) {
				t.Error(err)
			}
			if err == nil && checkPath([]byte(r.Root)) != nil {
				t.Errorf("root %q leaves the dataset", r.Root)
			}
		})
	})
}

func FuzzFooter(f *testing.F) {
	seeds(f, "*/*/t.lance/data/*.lance", func(name string, b []byte) { f.Add(name, b, int64(0)) })
	seeds(f, "*/*/t.lance/_indices/*/*.idx", func(name string, b []byte) { f.Add(name, b, int64(0)) })
	seeds(f, "*/*/t.lance/_deletions/*", func(name string, b []byte) { f.Add(name, b, int64(0)) })
	f.Add("metadata.lance", lanceFile(pair(5, "partitions", "[1]")), int64(1<<40))
	f.Fuzz(func(t *testing.T, name string, b []byte, more int64) {
		size := int64(len(b))
		if more > 0 && more < 1<<50 {
			size += more
		}
		bounded(t, len(name)+len(b), func() {
			_ = CheckLanceFooter(b, size)
			_ = CheckDeletionFile(name, b)
			_ = CheckDeletionFile("0-0-0.bin", b)
			_ = CheckDeletionFile("0-0-0.arrow", b)
			schemaMetadata(b, "partitions")
		})
		s := &memStore{objects: map[string][]byte{"d/metadata.lance": b, "d/index.idx": b}}
		for _, x := range []Index{{DetailsType: "VectorIndexDetails"}, {DetailsType: "InvertedIndexDetails"}} {
			if _, _, _, err := x.FindFiles(context.Background(), s, "d/"); err != nil {
				t.Error(err)
			}
		}
	})
}
