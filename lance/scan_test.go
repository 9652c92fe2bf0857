package lance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/lance/datafile"
)

// columnTable opens a table of columnFixtures.
func columnTable(t *testing.T, name string) (dirStore, *Manifest) {
	t.Helper()
	s := dirStore(filepath.Join(columnFixtures, name, "t.lance"))
	_, m := readNewest(t, s)
	return s, m
}

// scanned is all rows as text, one a line, with fragment and offset.
func scanned(t testing.TB, m *Manifest, s Store, opts ScanOptions, columns ...string) (lines []string, err error) {
	t.Helper()
	for r, err := range m.Scan(context.Background(), s, opts, columns...) {
		if err != nil {
			return lines, err
		}
		if len(r.Columns) != len(columns) || len(r.Offsets) != r.Len || r.Len == 0 {
			t.Fatalf("%d columns and %d offsets for %d rows", len(r.Columns), len(r.Offsets), r.Len)
		}
		cells := make([]cell, len(r.Columns))
		for k, a := range r.Columns {
			if a.Len() != r.Len {
				t.Fatalf("%d values for %d rows", a.Len(), r.Len)
			}
			cells[k] = cellOf(a)
		}
		for i, o := range r.Offsets {
			b := fmt.Appendf(nil, "%d:%d", r.FragmentID, o)
			for _, c := range cells {
				b = c(append(b, ' '), i)
			}
			lines = append(lines, string(b))
		}
	}
	return lines, nil
}

func TestColumnsAreReadByTheirNames(t *testing.T) {
	t.Parallel()
	s, m := columnTable(t, "0.39.0/partial-2.2-10")
	for _, tc := range []struct {
		about   string
		columns []string
		want    []string
	}{
		{"no column: which rows live", nil, []string{"0:0", "0:2", "0:3"}},
		{"in the order asked for, one of them twice", []string{"f64", "n", "n"}, []string{`0:0 "0000000000000000" "0" "0"`, `0:2 "3ff0000000000000" "2" "2"`, `0:3 "bff0000000000000" "3" "3"`}},
		{"a child of a struct, null where the struct is", []string{"st_null.size"}, []string{"0:0 null", `0:2 "2"`, `0:3 "3"`}},
		{"a struct and its child", []string{"st_null.uri", "st_null"}, []string{"0:0 null null", `0:2 "s3://b/2" ["s3://b/2","2"]`, `0:3 null [null,"3"]`}},
	} {
		got, err := scanned(t, m, s, ScanOptions{}, tc.columns...)
		if err != nil {
			t.Fatalf("%s: %v", tc.about, err)
		}
		if d := cmp.Diff(tc.want, got[:3]); d != "" {
			t.Errorf("%s: %s", tc.about, d)
		}
		if len(got) != 15 {
			t.Errorf("%s: %d rows", tc.about, len(got))
		}
	}
	// The second fragment was written with two columns only.
	got, err := scanned(t, m, s, ScanOptions{}, "n", "l_utf8", "st_null.uri", "st_null", "v8_null")
	if err != nil {
		t.Fatal(err)
	}
	if want := `1:0 "10" null null null null`; got[7] != want {
		t.Errorf("%s, want %s", got[7], want)
	}
	got, err = scanned(t, m, s, ScanOptions{}, "st_null.uri") // no file of that fragment is opened
	if err != nil || got[7] != "1:0 null" || len(got) != 15 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestANameThatIsNoColumnIsAnError(t *testing.T) {
	t.Parallel()
	s, m := columnTable(t, "0.39.0/partial-2.2-10")
	for name, text := range map[string]string{
		"nothing": "", "st_null.nothing": "", "n.x": "no struct", "l_utf8.item": "it is \"list\"", "": "", "st_null.": "", "st_null.uri.x": "no struct",
	} {
		_, err := scanned(t, m, s, ScanOptions{}, "n", name)
		if err == nil || errors.Is(err, ErrNoColumn) != (text == "") || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	s, m = columnTable(t, "0.39.0/blob2-2.2-8")
	if _, err := scanned(t, m, s, ScanOptions{}, "body.uri"); err == nil || errors.Is(err, ErrNoColumn) {
		t.Errorf("a part of a blob: %v", err)
	}
}

func TestNamesWithDotsComeFirst(t *testing.T) {
	t.Parallel()
	field := func(id, parent int64, name, typ string) []byte {
		return sub(1, str(2, name), vint(3, uint64(id)), vint(4, uint64(parent)), str(5, typ))
	}
	m := mustDecode(t, manifestFile(field(0, -1, "a", "struct"), field(1, 0, "b.c", "string"), field(2, 0, "b", "struct"), field(3, 2, "c", "int64"),
		field(4, -1, "a.b", "struct"), field(5, 4, "d", "string"), field(6, -1, "x.y", "int32")))
	schema, err := m.schema()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int32{"a": 0, "a.b": 4, "a.b.c": 1, "a.b.d": 5, "x.y": 6} {
		if got, err := schema.find(name); err != nil || got.last().ID != want {
			t.Errorf("%s: %v, %v", name, got.path, err)
		}
	}
	for about, fields := range map[string][][]byte{
		"a parent that is not there": {field(1, 7, "a", "string")}, "an id twice": {field(1, -1, "a", "string"), field(1, -1, "b", "string")},
	} {
		if _, err := mustDecode(t, manifestFile(fields...)).schema(); !isCorrupt(err) {
			t.Errorf("%s: %v", about, err)
		}
	}
}

// Every fixture of a format that is read tells as many rows as its truth, whatever
// happened to it: tombstones, clones, branches, compactions, dropped columns.
func TestFixturesScanAsManyRowsAsTheyHave(t *testing.T) {
	t.Parallel()
	read, legacy := 0, 0
	for name, want := range lancetest.Fixtures(t) {
		root := lancetest.CopyFixture(t, name, filepath.Join(t.TempDir(), "db"))
		s := dirStore(root)
		_, m := readNewest(t, s)
		sch, err := m.schema()
		if err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, f := range sch.top {
			columns = append(columns, f.Name)
		}
		opts := ScanOptions{Bases: func(_ context.Context, b BasePath) (Store, error) { return dirStore(b.Path), nil }}
		got, err := scanned(t, m, s, opts, columns...)
		switch {
		case errors.Is(err, datafile.ErrLegacy):
			legacy++
			if !strings.Contains(err.Error(), "data/") || !strings.Contains(err.Error(), "rewrite") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case int64(len(got)) != want.Rows:
			t.Errorf("%s: %d rows, want %d", name, len(got), want.Rows)
		default:
			read++
		}
	}
	if read < 50 || legacy < 10 {
		t.Errorf("%d tables read, %d legacy", read, legacy)
	}
}

// loaded is a table of columnFixtures in memory.
func loaded(t *testing.T, name string) (*memStore, *Manifest) {
	t.Helper()
	root, m := columnTable(t, name)
	s := &memStore{objects: map[string][]byte{}, getErr: map[string]error{}, cut: map[string]int{}}
	for _, f := range allFiles(t, m) {
		b, err := os.ReadFile(filepath.Join(string(root), f.Path))
		if err == nil {
			s.objects[f.Path] = b
		}
	}
	return s, m
}

func TestALostObjectIsNamed(t *testing.T) {
	t.Parallel()
	s, m := loaded(t, "0.31.0/changed-2.1-10")
	whole, err := scanned(t, m, s, ScanOptions{}, "n", "word")
	if err != nil || len(whole) == 0 {
		t.Fatal(err)
	}
	for _, f := range allFiles(t, m) {
		if f.Kind != KindData && f.Kind != KindDeletion {
			continue
		}
		b := s.objects[f.Path]
		delete(s.objects, f.Path)
		if _, err := scanned(t, m, s, ScanOptions{}, "n", "word"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), f.Path) {
			t.Errorf("without %s: %v", f.Path, err)
		}
		s.objects[f.Path] = b[:len(b)/2]
		if _, err := scanned(t, m, s, ScanOptions{}, "n", "word"); err == nil || !strings.Contains(err.Error(), f.Path) {
			t.Errorf("half of %s: %v", f.Path, err)
		}
		s.objects[f.Path] = b
		s.getErr[f.Path] = fs.ErrPermission
		if _, err := scanned(t, m, s, ScanOptions{}, "n", "word"); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), f.Path) {
			t.Errorf("closed %s: %v", f.Path, err)
		}
		delete(s.getErr, f.Path)
		s.cut[f.Path] = 3
		if _, err := scanned(t, m, s, ScanOptions{}, "n", "word"); !errors.Is(err, errReadCut) || !strings.Contains(err.Error(), f.Path) {
			t.Errorf("%s that ends early: %v", f.Path, err)
		}
		delete(s.cut, f.Path)
	}
	s.sizeless = true
	if got, err := scanned(t, m, s, ScanOptions{}, "n", "word"); err != nil || !slices.Equal(got, whole) {
		t.Errorf("a store without sizes: %d rows, %v", len(got), err)
	}
}

func TestAScanStopsWhenToldTo(t *testing.T) {
	t.Parallel()
	s, m := loaded(t, "0.31.0/changed-2.1-10")
	for range m.Scan(t.Context(), s, ScanOptions{}, "n") {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range m.Scan(ctx, s, ScanOptions{}, "n") {
		cancel()
		if n++; n == 2 && !errors.Is(err, context.Canceled) || n > 2 {
			t.Fatalf("%d: %v", n, err)
		}
	}
	if n != 2 {
		t.Errorf("%d batches", n)
	}
}

// withFiles is a version of the fixture's first fragment with other messages of its
// data files.
func withFiles(t *testing.T, m *Manifest, rows uint64, change func(i int, d *DataFile) []byte) *Manifest {
	t.Helper()
	var parts [][]byte
	for b, err := range messages(m.msg, 1) {
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, str(1, string(b)))
	}
	for f := range m.Fragments() {
		var files [][]byte
		for i := range f.Files {
			files = append(files, sub(2, change(i, &f.Files[i])))
		}
		parts = append(parts, fragment(f.ID, append(files, vint(4, rows))...))
		break
	}
	return mustDecode(t, manifestFile(parts...))
}

func wide(ids []int32) (out []int64) {
	for _, id := range ids {
		out = append(out, int64(id))
	}
	return out
}

func TestFilesAreReadAsTheManifestMapsThem(t *testing.T) {
	t.Parallel()
	s, m := loaded(t, "0.31.0/changed-2.1-10")
	message := func(d *DataFile, size int64, fields, columns []int64) []byte {
		return pb(str(1, d.Path), packed(2, fields...), packed(3, columns...), vint(4, 2), vint(5, 1), vint(6, uint64(size)))
	}
	same := func(_ int, d *DataFile) []byte { return message(d, d.Size, wide(d.Fields), wide(d.ColumnIndices)) }
	want, err := scanned(t, withFiles(t, m, 10, same), s, ScanOptions{}, "n", "twice")
	if err != nil || len(want) != 10 {
		t.Fatal(want, err)
	}
	schema, err := m.schema()
	if err != nil {
		t.Fatal(err)
	}
	target, err := schema.find("twice")
	if err != nil {
		t.Fatal(err)
	}
	twice := target.last().ID
	for _, tc := range []struct {
		about  string
		rows   uint64
		change func(i int, d *DataFile) []byte
		check  func(got []string, err error) bool
	}{
		{"sizes and rows that are not recorded", 0, func(_ int, d *DataFile) []byte { return message(d, 0, wide(d.Fields), wide(d.ColumnIndices)) },
			func(got []string, err error) bool { return err == nil && slices.Equal(got, want) }},
		{"columns that are not recorded", 10, func(_ int, d *DataFile) []byte { return message(d, d.Size, wide(d.Fields), nil) },
			func(got []string, err error) bool { return err == nil && slices.Equal(got, want) }},
		{"a tombstone in place of the field", 10, func(i int, d *DataFile) []byte {
			fields := wide(d.Fields)
			if i == 1 {
				fields[0] = -2
			}
			return message(d, d.Size, fields, wide(d.ColumnIndices))
		}, func(got []string, err error) bool {
			return err == nil && len(got) == 10 && strings.HasSuffix(got[0], " null")
		}},
		{"fewer columns than fields", 10, func(_ int, d *DataFile) []byte { return message(d, d.Size, wide(d.Fields), []int64{0}) },
			func(_ []string, err error) bool { return isCorrupt(err) }},
		{"a field that the file lacks", 10, func(i int, d *DataFile) []byte {
			if i == 1 {
				return message(d, d.Size, []int64{-2}, nil)
			}
			return message(d, d.Size, append(wide(d.Fields), int64(twice)), nil)
		}, func(_ []string, err error) bool { return isCorrupt(err) }},
		{"a field in two files", 10, func(_ int, d *DataFile) []byte { return message(d, d.Size, append(wide(d.Fields), int64(twice)), nil) },
			func(_ []string, err error) bool {
				_, ok := errors.AsType[*datafile.UnsupportedError](err)
				return ok
			}},
		{"other rows than the files have", 11, same, func(_ []string, err error) bool { return isCorrupt(err) }},
		{"a size that is too low", 10, func(_ int, d *DataFile) []byte { return message(d, d.Size-1, wide(d.Fields), wide(d.ColumnIndices)) },
			func(_ []string, err error) bool { return err != nil }},
		{"a size beyond any", 10, func(_ int, d *DataFile) []byte { return message(d, 1<<60, wide(d.Fields), wide(d.ColumnIndices)) },
			func(_ []string, err error) bool { return err != nil }},
		{"files below a base that nothing opens", 10, func(i int, d *DataFile) []byte { return append(same(i, d), vint(7, 0)...) },
			func(_ []string, err error) bool { return isCorrupt(err) }},
	} {
		got, err := scanned(t, withFiles(t, m, tc.rows, tc.change), s, ScanOptions{}, "n", "twice")
		if !tc.check(got, err) {
			t.Errorf("%s: %v, %v", tc.about, got, err)
		}
	}
}

// Nulls of a declared dictionary in format 2.0, as release 0.10.0 writes them: the
// newest release cannot read them, so that rows.jsonl does not tell them. These are
// the values that were written, which 0.10.0 itself reads.
func TestDictionariesOfTheOldestReleaseAreRead(t *testing.T) {
	t.Parallel()
	s, m := columnTable(t, "0.10.0/wide-2.0-10")
	want := []string{"red", "", "red", "red", "", "red", "blue", "green", "", ""}
	i := 0
	for r, err := range m.Scan(t.Context(), s, ScanOptions{}, "dict") {
		if err != nil {
			t.Fatal(err)
		}
		for k := range r.Len {
			if got := r.Columns[0].String(k); i >= len(want) || got != want[i] || r.Columns[0].Null(k) != (want[i] == "") {
				t.Errorf("row %d is %q, null %v", i, got, r.Columns[0].Null(k))
			}
			i++
		}
	}
	if i != len(want) {
		t.Errorf("%d rows", i)
	}
}
