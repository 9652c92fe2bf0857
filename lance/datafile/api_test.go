package datafile

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// counting is a Reader that remembers what was read.
type counting struct {
	memory
	reads []span
}

func (c *counting) ReadAt(ctx context.Context, off, n int64) ([]byte, error) {
	c.reads = append(c.reads, span{off, n})
	return c.memory.ReadAt(ctx, off, n)
}

func named(t *testing.T, f *File, name string) *Field {
	t.Helper()
	for _, field := range f.Fields() {
		if field.Name == name {
			return field
		}
	}
	t.Fatalf("no field %q", name)
	return nil
}

func load(t *testing.T, path string) (whole memory, size int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, int64(len(b))
}

func TestOnlyPagesOfWantedColumnsAreRead(t *testing.T) {
	t.Parallel()
	b, size := load(t, "testdata/v2.2-core-0.39.0-101.lance")
	r := &counting{memory: b}
	f, err := Open(t.Context(), r, size)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.reads) != 1 {
		t.Errorf("opened with %d reads, want 1", len(r.reads))
	}
	f.tail = f.tail[len(f.tail)-16<<10:] // as if the file were long
	r.reads = nil
	field := named(t, f, "text_mixed")
	c, err := f.column(t.Context(), field.Column)
	if err != nil {
		t.Fatal(err)
	}
	lo, hi := size, int64(0)
	for _, p := range c.pages {
		for _, s := range p.buffers {
			lo, hi = min(lo, s.off), max(hi, s.off+s.n)
		}
	}
	if _, err := values(t, f, field); err != nil {
		t.Fatal(err)
	}
	if len(r.reads) != len(c.pages) {
		t.Errorf("%d reads for %d pages", len(r.reads), len(c.pages))
	}
	for _, s := range r.reads {
		if s.off < lo || s.off+s.n > hi {
			t.Errorf("read %d..%d, want no more than %d..%d", s.off, s.off+s.n, lo, hi)
		}
	}
}

func TestAPrunedAndRenamedField(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"testdata/v2.1-core-0.31.0-101.lance", "testdata/v2.2-core-0.39.0-101.lance"} {
		f := openFile(t, path)
		want := readExpected(t, strings.TrimSuffix(path, ".lance")+".json.gz").Columns["refs"]
		for _, v := range want {
			list, _ := v.([]any)
			for _, item := range list {
				if m, ok := item.(map[string]any); ok {
					m["number"] = m["n"]
					delete(m, "n")
					delete(m, "u")
				}
			}
		}
		list := *named(t, f, "refs")
		item := *list.Children[0]
		n := *item.Children[1]
		n.Name = "number"
		item.Children = []*Field{&n}
		list.Children = []*Field{&item}
		got, err := values(t, f, &list)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", path, d)
		}
	}
}

func TestAFieldThatTheFileDoesNotHoldIsNull(t *testing.T) {
	t.Parallel()
	for path, name := range map[string]string{"testdata/v2.0-core-0.22.3-101.lance": "packed", "testdata/v2.2-core-0.39.0-101.lance": "deep"} {
		f := openFile(t, path)
		s := *named(t, f, name)
		later := &Field{ID: 901, Name: "later", LogicalType: "int32", Column: -1}
		if s.Packed {
			s = Field{Name: "s", LogicalType: "struct", Column: -1, Children: []*Field{named(t, f, "name"), later}}
		} else {
			s.Children = []*Field{s.Children[1], later}
		}
		got, err := values(t, f, &s)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{s.Children[0].Name: "3", "later": nil}
		if s.Children[0].Name == "name" {
			want["name"] = "row-3"
		}
		if d := cmp.Diff(want, got[3]); d != "" {
			t.Errorf("%s: %s", path, d)
		}
	}
	a := Nulls(&Field{LogicalType: "struct", Children: []*Field{{Name: "x", LogicalType: "list", Children: []*Field{{LogicalType: "string"}}}}}, 3)
	if a.Len() != 3 || !a.Null(2) || !a.Child("x").Null(1) || a.Take([]int{2, 2, 1, 0}).Child("x").Len() != 4 {
		t.Error("nulls of a struct are not null all through")
	}
}

func TestTakeKeepsRowsInTheOrderAskedFor(t *testing.T) {
	t.Parallel()
	path := "testdata/v2.2-core-0.39.0-101.lance"
	f := openFile(t, path)
	want := readExpected(t, strings.TrimSuffix(path, ".lance")+".json.gz")
	keep := []int{100, 3, 3, 0, 57}
	for batch, err := range f.Read(t.Context(), f.Fields()) {
		if err != nil {
			t.Fatal(err)
		}
		for c, field := range f.Fields() {
			taken := batch.Columns[c].Take(keep).Take([]int{0, 1, 3, 4})
			for i, row := range []int{100, 3, 0, 57} {
				if d := cmp.Diff(want.Columns[field.Name][row], jsonValue(taken, i)); d != "" {
					t.Errorf("%s, row %d: %s", field.Name, row, d)
				}
			}
		}
	}
}

func TestNumbersConvertWithoutLossOnly(t *testing.T) {
	t.Parallel()
	doubles := newBuilder(64, maxDecoded)
	for _, v := range []float64{3, -4, 1.5, math.NaN(), 1 << 63, 1e300} {
		if err := doubles.addWords([]uint64{math.Float64bits(v)}); err != nil {
			t.Fatal(err)
		}
	}
	a, err := doubles.array(parseType("double", 0))
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		I   int64
		IOK bool
		U   uint64
		UOK bool
	}
	var got []result
	for i := range a.Len() {
		var r result
		r.I, r.IOK = a.Int(i)
		r.U, r.UOK = a.Uint(i)
		got = append(got, r)
	}
	want := []result{{3, true, 3, true}, {-4, true, 0, false}, {}, {}, {0, false, 1 << 63, true}, {}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	u := flat(parseType("uint64", 0), []byte{255, 255, 255, 255, 255, 255, 255, 255}, 1)
	if v, ok := u.Int(0); ok {
		t.Errorf("Int of the largest uint64 is %d", v)
	}
	if v, ok := u.Float(0); ok {
		t.Errorf("Float of the largest uint64 is %v", v)
	}
	for h, want := range map[uint16]float64{0x3C00: 1, 0xC000: -2, 1: 5.960464477539063e-08, 0x7C00: math.Inf(1)} {
		if got := half(h); got != want {
			t.Errorf("half %#x is %v, want %v", h, got, want)
		}
	}
}

func TestNullBlobsAreNull(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"testdata/v2.0-blob-0.39.0-20.lance", "testdata/v2.1-blob-0.39.0-20.lance", "testdata/v2.2-blob-0.39.0-20.lance", "testdata/v2.2-blob-0.31.0-20.lance"} {
		f := openFile(t, path)
		for batch, err := range f.Read(t.Context(), []*Field{named(t, f, "blob")}) {
			if err != nil {
				t.Fatal(err)
			}
			a := batch.Columns[0]
			for i := range a.Len() {
				d, ok := a.Descriptor(i)
				if want := i%4 == 1; !ok || d.Null != want || a.Null(i) != want || d.Null && d.Empty {
					t.Errorf("%s: blob %d is %+v, %v; want null %v", filepath.Base(path), i, d, ok, want)
				}
				if !d.Null && d.Kind == 0 && d.Position+d.Size > uint64(f.size) {
					t.Errorf("%s: blob %d lies outside the file: %+v", filepath.Base(path), i, d)
				}
			}
		}
	}
}

func TestAFileOfTheLegacyFormatSaysSo(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../testdata/lance/0.39.0/format01/*.lance/data/*.lance")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	b, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), memory(b), int64(len(b))); !errors.Is(err, ErrLegacy) {
		t.Errorf("got %v, want ErrLegacy", err)
	}
}

func TestAnErrorNamesColumnAndPage(t *testing.T) {
	t.Parallel()
	b, size := load(t, "testdata/v2.2-core-0.39.0-101.lance")
	f, err := Open(t.Context(), b, size)
	if err != nil {
		t.Fatal(err)
	}
	field := named(t, f, "kind_null")
	c, err := f.column(t.Context(), field.Column)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.pages[0].buffers[1].n { // its chunks
		b[c.pages[0].buffers[1].off+i] = 0xFF
	}
	if f, err = Open(t.Context(), b, size); err != nil {
		t.Fatal(err)
	}
	_, err = values(t, f, field)
	var bad *CorruptError
	if !errors.As(err, &bad) || bad.Column != "kind_null" || bad.Page != 0 {
		t.Errorf("got %v", err)
	}
	field.LogicalType = "interval"
	_, err = values(t, f, field)
	var unknown *UnsupportedError
	if !errors.As(err, &unknown) || unknown.Column != "kind_null" || !strings.Contains(err.Error(), "interval") {
		t.Errorf("got %v", err)
	}
}
