package lance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// wholeFile reads a file for package datafile.
type wholeFile []byte

func (w wholeFile) ReadAt(_ context.Context, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > int64(len(w))-n {
		return nil, fmt.Errorf("%d bytes at %d of %d", n, off, len(w))
	}
	return w[off : off+n : off+n], nil
}

// typedCheck fails unless an error is one of those that checks promise.
func typedCheck(t *testing.T, err error) {
	t.Helper()
	var c *CorruptError
	var d *datafile.CorruptError
	var u *datafile.UnsupportedError
	if err != nil && !errors.As(err, &c) && !errors.As(err, &d) && !errors.As(err, &u) && !errors.Is(err, ErrUnknownFormat) {
		t.Fatalf("error of type %T: %v", err, err)
	}
}

func TestLegacyFilesAreHeldAgainstTheirOwnTables(t *testing.T) {
	t.Parallel()
	n := 0
	err := filepath.WalkDir(fixtures, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".lance") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || b[len(b)-8] != 0 || b[len(b)-6] > 2 {
			return err
		}
		n++
		l, err := readLegacy(t.Context(), wholeFile(b), int64(len(b)))
		if err == nil {
			err = l.check(t.Context(), wholeFile(b), int64(len(b)), true)
		}
		if err != nil || l.odd != "" || l.rows() == 0 {
			t.Errorf("%s: %+v, %v", path, l, err)
		}
		return nil
	})
	if err != nil || n < 50 {
		t.Errorf("%d files, %v", n, err)
	}
}

func TestTextIsReadInPiecesThatMayEndWithinALetter(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("aé€😀", 400_000) // 10 bytes each; pieces of 1 MiB end anywhere
	for shift := range 4 {
		b := wholeFile(strings.Repeat("x", shift) + text)
		if err := checkUTF8(t.Context(), b, 0, int64(len(b))); err != nil {
			t.Errorf("shifted by %d: %v", shift, err)
		}
		b[len(b)-1] ^= 0x80
		if err := checkUTF8(t.Context(), b, 0, int64(len(b))); err == nil {
			t.Errorf("shifted by %d: a broken last letter is not noticed", shift)
		}
		b[len(b)-1] ^= 0x80
		b[1<<20] = 0xff
		if err := checkUTF8(t.Context(), b, 0, int64(len(b))); err == nil {
			t.Errorf("shifted by %d: a broken letter between pieces is not noticed", shift)
		}
	}
}

func TestOnlyAChangeOfOneByteIsTakenForDamageOfAField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		file, table []byte
		odd         bool
	}{
		{"the same", pb(str(2, "name"), vint(3, 1)), pb(str(2, "name"), vint(3, 1)), false},
		{"one letter", pb(str(2, "namf"), vint(3, 1)), pb(str(2, "name"), vint(3, 1)), true},
		{"renamed", pb(str(2, "name"), vint(3, 1)), pb(str(2, "word"), vint(3, 1)), false},
		{"renamed to another length", pb(str(2, "name"), vint(3, 1)), pb(str(2, "names"), vint(3, 1)), false},
		{"the place of a dictionary", pb(vint(3, 1), sub(8, vint(1, 5))), pb(vint(3, 1), sub(8, vint(1, 6))), false},
	} {
		if got := (Field{Raw: c.file}).oddBeside(Field{Raw: c.table}) != ""; got != c.odd {
			t.Errorf("%s: odd %v", c.name, got)
		}
	}
}

func FuzzCheckDataFile(f *testing.F) {
	seeds(f, "*/*/*.lance/data/*.lance", func(_ string, b []byte) { f.Add(b, int64(5), false) })
	seeds(f, "0.4.20/*/*.lance/data/*.lance", func(_ string, b []byte) { f.Add(b, int64(5), true) })
	m, err := os.ReadFile(firstManifest(f))
	if err != nil {
		f.Fatal(err)
	}
	manifest, err := DecodeManifest(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, rows int64, legacy bool) {
		d := &DataFile{Path: "x.lance", Fields: []int32{0, 1}, ColumnIndices: []int32{0, 1}, Major: 2, Minor: 2}
		if legacy {
			d = &DataFile{Path: "x.lance", Fields: []int32{0}}
		}
		_, err := manifest.CheckDataFile(t.Context(), wholeFile(b), int64(len(b)), d, min(max(rows, 1), 1<<20), true)
		typedCheck(t, err)
		_, err = CheckIndexFile(t.Context(), wholeFile(b), int64(len(b)), 0, "page_data.lance", false)
		typedCheck(t, err)
	})
}

func firstManifest(f *testing.F) string {
	paths, err := filepath.Glob(filepath.Join(fixtures, "0.39.0/plain/t.lance/_versions/*.manifest"))
	if err != nil || len(paths) == 0 {
		f.Fatal("no manifest", err)
	}
	return paths[0]
}

func FuzzOddDeletionFile(f *testing.F) {
	for _, ext := range []string{"*.arrow", "*.bin"} {
		paths, _ := filepath.Glob(filepath.Join(fixtures, "*/*/*.lance/_deletions", ext))
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, ext == "*.bin")
			name := "_deletions/" + filepath.Base(p)
			if odd := OddDeletionFile(name, b); odd != "" {
				f.Errorf("%s: %s", p, odd)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, bitmap bool) {
		name := "0-1-2.arrow"
		if bitmap {
			name = "0-1-2.bin"
		}
		odd := OddDeletionFile(name, b)
		d, err := DecodeDeletionFile(name, b)
		if err == nil && odd == "" && bitmap && OddDeletionFile(name, append(b[:len(b):len(b)], 0)) == "" {
			t.Fatal("a byte more is not noticed")
		}
		if err == nil {
			rows := int64(10)
			_ = (&Fragment{Deletion: &DeletionFile{}, PhysicalRows: rows}).CheckDeletions(d)
		}
	})
}
