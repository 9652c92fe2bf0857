package datafile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// maxSeed keeps seeds small enough to be mutated often.
const maxSeed = 16 << 10

func seeds(f *testing.F) {
	f.Helper()
	for _, pattern := range []string{"testdata/*.lance", "../../testdata/lance/*/*/*.lance/data/*.lance"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatalf("no seeds at %s: %v", pattern, err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			if len(b) <= maxSeed {
				f.Add(b)
			}
		}
	}
}

// typed fails unless an error is one of those that the package promises.
func typed(t *testing.T, err error) {
	t.Helper()
	var c *CorruptError
	var u *UnsupportedError
	if err != nil && !errors.As(err, &c) && !errors.As(err, &u) && !errors.Is(err, ErrLegacy) {
		t.Fatalf("error of type %T: %v", err, err)
	}
}

func FuzzOpen(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(t.Context(), memory(b), int64(len(b)))
		if typed(t, err); err != nil {
			return
		}
		if n := len(file.Fields()); n > len(b) {
			t.Fatalf("%d fields of %d bytes", n, len(b))
		}
	})
}

func FuzzRead(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(t.Context(), memory(b), int64(len(b)))
		if err != nil || len(file.fields) > 100 {
			return
		}
		for _, field := range file.Fields() {
			batches := 0
			for batch, err := range file.Read(t.Context(), []*Field{field}) {
				if typed(t, err); err != nil {
					break
				}
				if batch.Rows <= 0 || batch.Columns[0].Len() != batch.Rows {
					t.Fatalf("batch of %d rows with %d values", batch.Rows, batch.Columns[0].Len())
				}
				touchAll(batch.Columns[0], 2000)
				touchAll(batch.Columns[0].Take([]int{batch.Rows - 1, 0}), 2)
				if batches++; batches == 4 {
					break
				}
			}
		}
	})
}

// touchAll reads whatever an array has to give, of at most n values a level.
func touchAll(a *Array, n int) {
	for i := range min(a.Len(), n) {
		a.Null(i)
		a.Int(i)
		a.Uint(i)
		a.Float(i)
		a.Bool(i)
		a.Bytes(i)
		a.Descriptor(i)
		if items, lo, hi := a.List(i); hi > lo {
			_ = items.Null(lo)
			_ = items.Bytes(hi - 1)
		}
	}
	if n > 1 {
		touchAll(a.Items(), n/8)
	}
	for _, name := range a.Names() {
		touchAll(a.Child(name), n/2)
	}
}

func FuzzBitpacking(f *testing.F) {
	f.Add([]byte{3, 0}, uint8(1), uint8(3), uint16(100))
	f.Add(bytes.Repeat([]byte{0x5A}, 1000), uint8(2), uint8(7), uint16(1030))
	f.Fuzz(func(t *testing.T, b []byte, word, width uint8, n uint16) {
		bits := 8 << (word & 3)
		e := &encoding{kind: encInline, bits: bits, width: int(width) % (bits + 1)}
		for _, decode := range []func(*builder, *encoding, []byte, int) error{inline, outOfLine} {
			out := newBuilder(bits, maxDecoded)
			err := decode(out, e, b, int(n))
			if typed(t, err); err == nil && (out.n != int(n) || len(out.data) != int(n)*bits/8) {
				t.Fatalf("%d values in %d bytes, want %d", out.n, len(out.data), n)
			}
		}
	})
}

func FuzzVariable(f *testing.F) {
	f.Add([]byte{12, 0, 0, 0, 13, 0, 0, 0, 14, 0, 0, 0, 'a', 'b'}, uint16(2), false)
	f.Add([]byte{32, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b'}, uint16(1), true)
	f.Fuzz(func(t *testing.T, b []byte, n uint16, block bool) {
		out := newBuilder(0, maxDecoded)
		var err error
		if block {
			err = blockVariable(out, b, int(n))
		} else {
			err = variable(out, b, 4, int(n), 0)
		}
		if typed(t, err); err != nil {
			return
		}
		a, err := out.array(parseType("string", 0))
		if err != nil || a.Len() != int(n) {
			t.Fatalf("%d values, want %d: %v", a.Len(), n, err)
		}
		touchAll(a, int(n))
	})
}

func FuzzFsst(f *testing.F) {
	table := append([]byte{1, 0, 0, 1, 'T', 'S', 'S', 'F'}, 'a', 'b', 'c', 0, 0, 0, 0, 0, 3)
	f.Add(table, []byte{0, 255, 'x', 0})
	f.Fuzz(func(t *testing.T, table, v []byte) {
		s, err := parseFsst(table)
		if typed(t, err); err != nil {
			return
		}
		b := newBuilder(0, maxDecoded)
		err = s.add(b, v)
		if typed(t, err); err == nil && (b.n != 1 || len(b.data) > 8*len(v)) {
			t.Fatalf("%d values of %d bytes out of %d", b.n, len(b.data), len(v))
		}
	})
}

func FuzzGeneral(f *testing.F) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	plain := bytes.Repeat([]byte("lance "), 50)
	f.Add(w.EncodeAll(plain, nil), true)
	f.Add(append([]byte{0x2C, 1, 0, 0, 0, 0, 0, 0}, w.EncodeAll(plain, nil)...), true)
	f.Add([]byte{12, 0, 0, 0, 0x37, 'a', 'b', 'c', 3, 0, 0x10, 'z'}, false)
	f.Fuzz(func(t *testing.T, b []byte, isZstd bool) {
		if len(b) > 1<<10 {
			return // what a bomb may become grows with its length
		}
		var d decoder
		defer d.close()
		scheme := uint64(schemeLz4)
		if isZstd {
			scheme = schemeZstd
		}
		out, err := d.decompress(scheme, b)
		if typed(t, err); err == nil && !isZstd && len(out) > len(b)*lz4Ratio {
			t.Fatalf("%d bytes out of %d", len(out), len(b))
		}
	})
}

// FuzzBlock decodes a buffer under any encoding, as levels and dictionaries are.
func FuzzBlock(f *testing.F) {
	f.Add([]byte{0x0A, 2, 8, 16}, []byte{1, 0, 2, 0}, uint16(2))                                                                 // flat
	f.Add([]byte{0x42, 12, 0x0A, 4, 0x0A, 2, 8, 16, 0x12, 4, 0x0A, 2, 8, 8}, []byte{2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 3}, uint16(3)) // rle
	f.Fuzz(func(t *testing.T, enc, b []byte, n uint16) {
		e, err := parseEncoding(enc, 0)
		if typed(t, err); err != nil || len(b) > 1<<10 {
			return
		}
		var d decoder
		defer d.close()
		out, err := d.block(e, b, int(n))
		if typed(t, err); err == nil && out.n != int(n) {
			t.Fatalf("%d values, want %d", out.n, n)
		}
		_, err = d.levels(e, b, int(n))
		typed(t, err)
	})
}
