package lance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

const (
	arrowName  = "_deletions/0-1-2.arrow"
	bitmapName = "_deletions/0-1-2.bin"
)

// decoded checks that a deletion file holds exactly the rows of want, which are sorted.
func decoded(t testing.TB, name string, file []byte, want []uint32) {
	t.Helper()
	d, err := DecodeDeletionFile(name, file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, slices.Collect(d.All()), cmpopts.EquateEmpty()); diff != "" || d.Len() != len(want) {
		t.Fatalf("%d rows: %s", d.Len(), diff)
	}
	for _, v := range want {
		for _, near := range []uint32{v - 1, v, v + 1} {
			if _, deleted := slices.BinarySearch(want, near); d.Has(near) != deleted {
				t.Fatalf("row %d: deleted %v", near, d.Has(near))
			}
		}
	}
	for v := range d.All() { // stops when told to
		if v != want[0] {
			t.Fatalf("%d comes first", v)
		}
		break
	}
}

func TestDeletionFilesTellTheirRows(t *testing.T) {
	t.Parallel()
	decoded(t, arrowName, lancetest.DeletionArrow([]uint32{9, 3, 70000, 0}), []uint32{0, 3, 9, 70000})
	decoded(t, arrowName, lancetest.DeletionArrow(nil), nil)
	decoded(t, arrowName, lancetest.DeletionArrow([]uint32{4, 4, 1}), []uint32{1, 4})
	many := append(append(span(0, 20000, 3), span(70000, 130000, 1)...), 1<<31, 1<<31+5, 1<<32-1)
	for _, runs := range []bool{false, true} {
		decoded(t, bitmapName, bitmapFile(t, runs), nil)
		decoded(t, bitmapName, bitmapFile(t, runs, many...), many)
		decoded(t, bitmapName, bitmapFile(t, runs, span(0, 1<<16, 1)...), span(0, 1<<16, 1))
	}
	var none *Deletions
	if none.Len() != 0 || none.Has(0) || len(slices.Collect(none.All())) != 0 {
		t.Error("nil deletes rows")
	}
}

func TestAnyBitmapIsReadAsItsOwnLibraryDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := roaring.New()
		for range rapid.IntRange(0, 5).Draw(t, "parts") {
			from := uint64(rapid.Uint32().Draw(t, "from"))
			step := rapid.Uint64Range(1, 40).Draw(t, "step")
			for v := from; v < min(from+rapid.Uint64Range(0, 9000).Draw(t, "span"), 1<<32); v += step {
				b.Add(uint32(v))
			}
		}
		if rapid.Bool().Draw(t, "runs") {
			b.RunOptimize()
		}
		file, err := b.ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		d, err := DecodeDeletionFile(bitmapName, file)
		if err != nil || uint64(d.Len()) != b.GetCardinality() || !slices.Equal(slices.Collect(d.All()), b.ToArray()) {
			t.Fatalf("%v, %v: other rows", d, err)
		}
		v := rapid.Uint32().Draw(t, "v")
		if d.Has(v) != b.Contains(v) {
			t.Fatalf("row %d: deleted %v", v, d.Has(v))
		}
	})
}

func TestFixturesDeleteAsManyRowsAsTheirManifestsSay(t *testing.T) {
	t.Parallel()
	arrows, bitmaps := 0, 0
	for name, want := range loadTruth(t) {
		for _, f := range want.Fragments {
			if f.Deletion == nil {
				continue
			}
			path := filepath.Join(fixtures, name, want.Root, filepath.FromSlash(f.Deletion.Path))
			b, err := os.ReadFile(path)
			if f.Deletion.Base != nil {
				continue // it lies in another table
			}
			if err != nil {
				t.Fatal(err)
			}
			d, err := DecodeDeletionFile(f.Deletion.Path, b)
			if err != nil || f.Deletion.Rows > 0 && int64(d.Len()) != f.Deletion.Rows {
				t.Errorf("%s: %d rows, %v; want %d", path, d.Len(), err, f.Deletion.Rows)
				continue
			}
			for v := range d.All() {
				if int64(v) >= f.PhysicalRows {
					t.Errorf("%s: row %d of %d", path, v, f.PhysicalRows)
				}
			}
			if filepath.Ext(path) == ".bin" {
				bitmaps++
			} else {
				arrows++
			}
		}
	}
	if arrows < 20 || bitmaps < 2 {
		t.Errorf("only %d and %d files", arrows, bitmaps)
	}
}

func TestCheckDeletionFileArrow(t *testing.T) {
	t.Parallel()
	good := lancetest.DeletionArrow([]uint32{7, 5})
	if err := CheckDeletionFile(arrowName, good); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if err := CheckDeletionFile(arrowName, good[:n]); !isCorrupt(err) {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
	}
	end := len(good)
	footer := end - 10 - int(binary.LittleEndian.Uint32(good[end-10:]))
	zstd := bytes.Index(good, []byte{0x28, 0xb5, 0x2f, 0xfd})
	put := func(at int, v uint32) []byte {
		return patch(good, func(b []byte) { binary.LittleEndian.PutUint32(b[at:], v) })
	}
	for about, file := range map[string][]byte{
		"bytes that were cut out of the middle": append(bytes.Clone(good[:64]), good[72:]...),
		"no magic in front":                     patch(good, func(b []byte) { b[0] = 'x' }),
		"a footer longer than the file":         put(end-10, 1<<20),
		"a negative footer":                     put(end-10, 1<<31),
		"a root outside the footer":             put(footer, 1<<20),
		"zeros":                                 make([]byte, 200),
		"a broken frame of zstd":                put(zstd, 0),
		"a length other than that of the rows":  put(zstd-8, 12),
		"a length beyond any":                   put(zstd-4, 1<<30),
	} {
		if err := CheckDeletionFile(arrowName, file); !isCorrupt(err) {
			t.Errorf("%s: %v", about, err)
		}
	}
	// Whatever byte is other: it is read, or said to be corrupt.
	for i := range good {
		for _, bit := range []byte{1, 0x80, 0xff} {
			_, err := DecodeDeletionFile(arrowName, patch(good, func(b []byte) { b[i] ^= bit }))
			if err != nil && !isCorrupt(err) && !errors.Is(err, ErrUnknownFormat) {
				t.Errorf("byte %d: %v", i, err)
			}
		}
	}
}

func FuzzDecodeDeletionFile(f *testing.F) {
	f.Add(lancetest.DeletionArrow([]uint32{7, 5}), false)
	f.Add(lancetest.DeletionBitmap([]uint32{7, 5, 70000}), true)
	b := roaring.New()
	b.AddRange(5, 100_000)
	b.RunOptimize()
	runs, _ := b.ToBytes()
	f.Add(runs, true)
	f.Fuzz(func(t *testing.T, file []byte, bitmap bool) {
		name := arrowName
		if bitmap {
			name = bitmapName
		}
		d, err := DecodeDeletionFile(name, file)
		if err != nil {
			return
		}
		n, last := 0, int64(-1)
		for v := range d.All() {
			if int64(v) <= last || n < 100 && !d.Has(v) {
				t.Fatalf("row %d after %d", v, last)
			}
			last = int64(v)
			if n++; n > 1<<20 {
				return
			}
		}
		if n != d.Len() {
			t.Fatalf("%d rows of %d", n, d.Len())
		}
	})
}
