package refs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/file"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/lance"
)

// disk is a store of a folder, and the place of what lies in it.
func disk(t testing.TB, path string) (objstore.Reader, objstore.Location) {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	at := objstore.Location{Scheme: "file", Key: filepath.ToSlash(abs)}
	s, err := file.New(at.Parent())
	if err != nil {
		t.Fatal(err)
	}
	return s, at
}

func mustLance(t testing.TB, r objstore.Reader, at objstore.Location, cols Columns, filter string) Reader {
	t.Helper()
	reader, err := Lance(r, at, nil, cols, filter, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func contextSum(i int) string { return fmt.Sprintf("sha256:%064x", i) }

// contextLine is row i of the fixture.
func contextLine(i int) string {
	sum := contextSum(i)
	if i%5 == 0 {
		sum = ""
	}
	return fmt.Sprintf("s3://blobs/p%d %d %s c%d", i, 1000+i, sum, i)
}

func TestPayloadsOfATableAreRecognised(t *testing.T) {
	t.Parallel()
	s, at := disk(t, "testdata/context.lance")
	r := mustLance(t, s, at, Columns{}, "")
	var want []string
	for _, i := range []int{1, 2, 5, 7, 8, 10, 11} { // others are texts, and 4 is deleted
		want = append(want, contextLine(i))
	}
	if d := cmp.Diff(want, resumes(t, r)); d != "" {
		t.Error(d)
	}
	lines(t.Context(), r, "")
	if d := cmp.Diff(Counts{Rows: 11, Records: 7, Unnamed: 4}, counts(r)); d != "" {
		t.Error(d)
	}
	got, err := r.Confirm(t.Context(), []string{"s3://blobs/p5", "s3://blobs/p4", "s3://blobs/p3"})
	if d := cmp.Diff(map[string]Record{"s3://blobs/p5": {Key: "s3://blobs/p5", Size: 1005, Record: "c5"}}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	since, err := r.NamedSince(t.Context())
	newest, statErr := os.Stat("testdata/context.lance/_versions/18446744073709551611.manifest")
	if err != nil || statErr != nil || !since.Equal(newest.ModTime()) {
		t.Errorf("%v, %v, %v", since, err, statErr)
	}
}

func TestRowsOfATableAreFiltered(t *testing.T) {
	t.Parallel()
	s, at := disk(t, "testdata/context.lance")
	for filter, want := range map[string][]int{
		"":                           {1, 2, 5, 7, 8, 10, 11},
		"content_type = 'image/png'": {1, 2, 5, 7, 8, 10, 11}, "content_type='text/plain'": nil, "retired = TRUE": {8, 10, 11}, "\"retired\" = false and generation = 1": {1, 5, 7},
		"payload_checksum is not null AND `generation`=0": {2, 8}, "payload_checksum IS NULL": {5, 10}, "id = 'c1'": {1}, "id = 'c''1'": nil, "retired is null": nil, " generation = -1 ": nil,
	} {
		var lined []string
		for _, i := range want {
			lined = append(lined, contextLine(i))
		}
		r := mustLance(t, s, at, Columns{}, filter)
		if d := cmp.Diff(lined, lines(t.Context(), r, "")); d != "" {
			t.Errorf("%s: %s", filter, d)
		}
		got, err := r.Confirm(t.Context(), []string{"s3://blobs/p1", "s3://blobs/p8"})
		n := 0
		for _, i := range want {
			if i == 1 || i == 8 {
				n++
			}
		}
		if err != nil || len(got) != n {
			t.Errorf("%s: %v, %v", filter, got, err)
		}
	}
	for _, filter := range []string{
		"x", "= 1", "x =", "x = 1 or y = 2", "x = 1 and", "x = 'a", "x > 1", "x = y", "x is", "x is not", "x is not true", "not x", "x = 1.5", "x in (1)", "x = 1;", "a-b = 1", "'x' = 1", "x = 99999999999999999999", "x = 1 y = 2", "(x = 1)", "x like 'a'", "\"\" = 1", "x == 1", "x != 1",
	} {
		if _, err := Lance(s, at, nil, Columns{}, filter, Options{}); !errors.Is(err, ErrFilter) {
			t.Errorf("%s: %v", filter, err)
		}
	}
	for filter, want := range map[string]string{"id = 1": "has the type \"string\"", "generation = 'x'": "has the type \"int32\"", "retired = 1": "\"bool\"", "generation = true": "\"int32\"", "nothing is null": "no such column"} {
		got := lines(t.Context(), mustLance(t, s, at, Columns{}, filter), "")
		if len(got) != 1 || !strings.HasPrefix(got[0], "!! ") || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q", filter, got)
		}
	}
}

func TestColumnsOfATableAreNamed(t *testing.T) {
	t.Parallel()
	s, at := disk(t, "testdata/context.lance")
	r := mustLance(t, s, at, Columns{Key: "id", Size: "generation", Record: "generation"}, "id = 'c8'")
	if got := lines(t.Context(), r, ""); !slices.Equal(got, []string{"c8 -1  0"}) {
		t.Errorf("%q", got)
	}
	for cols, want := range map[Columns]string{
		{Key: "nothing"}: "no such column", {Size: "payload_size"}: "no column is named as the key", {Key: "payload_size"}: "\"payload_size\": its type is \"int64\"",
		{Key: "id", Size: "retired"}: "\"retired\": its type", {Key: "id", Checksum: "generation"}: "\"generation\": its type", {Key: "id", Record: "retired"}: "\"retired\": its type",
	} {
		got := lines(t.Context(), mustLance(t, s, at, cols, ""), "")
		if len(got) != 1 || !strings.HasPrefix(got[0], "!! ") || !strings.Contains(got[0], want) {
			t.Errorf("%+v: %q", cols, got)
		}
	}
	s, at = disk(t, "../../../testdata/lance/0.39.0/plain/t.lance")
	if got := lines(t.Context(), mustLance(t, s, at, Columns{}, ""), ""); len(got) != 1 || !strings.Contains(got[0], "no column payload_uri") {
		t.Errorf("%q", got)
	}
}

// Tables of every kind of column, as four releases write them.
func TestColumnsOfManyKindsAreRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		table string
		cols  Columns
		names int
	}{
		{"0.39.0/wide-2.2-10", Columns{Key: "s_uri", Size: "i64_seq", Record: "u64_few"}, 10},
		{"0.39.0/wide-2.2-10", Columns{Key: "s_nulls", Size: "f64_whole", Record: "s_low"}, -1},
		{"0.22.3/wide-2.1-10", Columns{Key: "s_uri", Size: "u64_small"}, 10},
		{"0.10.0/wide-2.0-10", Columns{Key: "s_uri", Size: "u32_null"}, 10},
		{"0.39.0/partial-2.2-10", Columns{Key: "st_null.uri", Size: "st_null.size"}, -1},
	} {
		s, at := disk(t, filepath.Join("../../../testdata/lance/columns", tc.table, "t.lance"))
		r := mustLance(t, s, at, tc.cols, "")
		got := lines(t.Context(), r, "")
		c := counts(r)
		if strings.HasPrefix(strings.Join(got, "\n"), "!! ") || c.Rows < 10 || tc.names > 0 && c.Records+c.Doubled != int64(tc.names) || tc.names < 0 && (c.Records == 0 || c.Unnamed == 0) {
			t.Errorf("%s: %+v: %q", tc.table, c, got)
		}
	}
}

func TestAWalkGoesOnInTheVersionItWasBegunIn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "context.lance")
	if err := os.CopyFS(dir, os.DirFS("testdata/context.lance")); err != nil {
		t.Fatal(err)
	}
	newest := filepath.Join(dir, "_versions", "18446744073709551611.manifest")
	hidden := newest + ".hidden"
	if err := os.Rename(newest, hidden); err != nil {
		t.Fatal(err)
	}
	s, at := disk(t, dir)
	r := mustLance(t, s, at, Columns{}, "")
	var pos string
	for rec, err := range r.Records(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if pos = rec.Position; rec.Record == "c5" {
			break
		}
	}
	if err := os.Rename(hidden, newest); err != nil {
		t.Fatal(err)
	}
	want := []string{contextLine(7), contextLine(8)}
	if got := lines(t.Context(), r, pos); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := lines(t.Context(), r, ""); len(got) != 7 {
		t.Errorf("anew: %q", got)
	}
	if got, err := r.Confirm(t.Context(), []string{"s3://blobs/p11"}); err != nil || len(got) != 1 {
		t.Errorf("the newest names it: %v, %v", got, err)
	}
	// Without its manifest the position is void; without a data file as well.
	gone := func(what string) {
		t.Helper()
		for _, err := range r.Records(t.Context(), pos) {
			if !errors.Is(err, ErrPositionGone) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	data, err := filepath.Glob(dir + "/data/*")
	if err != nil || len(data) != 3 {
		t.Fatal(data, err)
	}
	for _, f := range data {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	gone("cleaned up")
	if got := lines(t.Context(), r, ""); len(got) != 1 || strings.Contains(got[0], ErrPositionGone.Error()) || !strings.HasPrefix(got[0], "!! ") {
		t.Errorf("lost data files: %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "_versions", "18446744073709551612.manifest")); err != nil {
		t.Fatal(err)
	}
	gone("no manifest")
}

func TestATableThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	r := mustLance(t, memstore.New(memstore.Options{}), refsAt, Columns{}, "")
	for _, err := range r.Records(t.Context(), "") {
		if !errors.Is(err, lance.ErrNoVersions) {
			t.Errorf("%v", err)
		}
	}
	if _, err := r.Confirm(t.Context(), []string{"a"}); !errors.Is(err, lance.ErrNoVersions) {
		t.Errorf("confirm: %v", err)
	}
	if _, err := r.NamedSince(t.Context()); !errors.Is(err, lance.ErrNoVersions) {
		t.Errorf("named since: %v", err)
	}
}

func TestKeysOfATableThatComeTwice(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Options{})
	for name, data := range lancetest.New().Values(lancetest.Strings("payload_uri", "a", "", "a", "b", "a").Null(3), lancetest.Int64s("payload_size", 5, 1, 5, 1, -6)).Objects() {
		s.Put(refsAt.Join(name), data)
	}
	r := mustLance(t, s, refsAt, Columns{}, "")
	want := []string{"a 5  ", "! row 2: no key", "! row 5: bad size: \"-6\" (partial)", "! doubled key (2 rows): \"a\" in row 3, \"a\" in row 5 (partial)"}
	if d := cmp.Diff(want, resumes(t, r)); d != "" {
		t.Error(d)
	}
	lines(t.Context(), r, "")
	if d := cmp.Diff(Counts{Rows: 5, Records: 1, Unnamed: 1, Doubled: 2, Bad: 1}, counts(r)); d != "" {
		t.Error(d)
	}
}

// FuzzFilter: what is accepted says so again when it is written in the plainest way.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{"a = 'x''y' and b.c is not null", "\"a\"\"\" = -1", "`x` = TRUE AND y IS NULL", "a=1 and"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseFilter(s)
		if err != nil {
			if !errors.Is(err, ErrFilter) {
				t.Error(err)
			}
			return
		}
		var plain []string
		for _, term := range got.terms {
			column := `"` + strings.ReplaceAll(term.column, `"`, `""`) + `" `
			plain = append(plain, column+map[filterOp]string{isNull: "is null", isNotNull: "is not null", equalsText: "= '" + strings.ReplaceAll(term.text, "'", "''") + "'",
				equalsInt: fmt.Sprintf("= %d", term.number), equalsBool: fmt.Sprintf("= %t", term.truth)}[term.op])
		}
		again, err := ParseFilter(strings.Join(plain, " and "))
		if err != nil || !slices.Equal(got.terms, again.terms) {
			t.Errorf("%q is %+v, and %q is %+v: %v", s, got, plain, again, err)
		}
	})
}
