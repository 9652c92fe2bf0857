package lancetest_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

// built is a table that the real library must agree with.
type built struct {
	versions []*lancetest.Builder // in ascending order; the last is the newest
	rows     int64
	tags     map[string]uint64
	// indexed tables are only counted: their index files hold no index
	indexes []string
}

func TestTheRealLibraryReadsWhatTheBuilderMakes(t *testing.T) {
	t.Parallel()
	v1 := lancetest.New().Fragment(5).Fragment(3).Fragment(100_000)
	tests := map[string]built{
		"one version":     {versions: []*lancetest.Builder{lancetest.New().Fragment(7)}, rows: 7},
		"no fragment":     {versions: []*lancetest.Builder{lancetest.New()}, rows: 0},
		"three versions":  {versions: []*lancetest.Builder{v1, v1.Next().Delete(0, 2), v1.Next().Next().Delete(0, 2).DeleteBitmap(2, 60_000).Tag("keep", 2)}, rows: 3 + 3 + 40_000, tags: map[string]uint64{"keep": 2}},
		"V1 names":        {versions: []*lancetest.Builder{lancetest.New().Naming(lancetest.V1).Fragment(2), lancetest.New().Naming(lancetest.V1).Fragment(2).Fragment(4).Next()}, rows: 6},
		"dropped":         {versions: []*lancetest.Builder{v1, v1.Next().Drop(2)}, rows: 8},
		"gaps in the ids": {versions: []*lancetest.Builder{lancetest.New().FragmentID(3, 1).FragmentID(9, 2)}, rows: 3},
		"several files": {versions: []*lancetest.Builder{lancetest.New().Columns("a", "b", "c").
			Fragment(4, lancetest.File{Fields: []int32{0, 2}}, lancetest.File{Fields: []int32{1}})}, rows: 4},
		"a dead file":    {versions: []*lancetest.Builder{lancetest.New().Fragment(4, lancetest.File{}, lancetest.File{Fields: lancetest.NoFields})}, rows: 4},
		"stable row ids": {versions: []*lancetest.Builder{lancetest.New().StableRowIDs().Fragment(4).Fragment(2).Delete(1, 1)}, rows: 5},
		"old style, no sizes": {versions: []*lancetest.Builder{lancetest.New().NoInlineTransaction().Footer(0, 1).
			Fragment(4, lancetest.File{Size: lancetest.UnknownSize})}, rows: 4},
		"no transaction":           {versions: []*lancetest.Builder{lancetest.New().NoTransaction().Fragment(4)}, rows: 4},
		"configuration and hint":   {versions: []*lancetest.Builder{lancetest.New().Config("lance.x", "1").Hint(1).Fragment(4)}, rows: 4},
		"unknown fields, a prefix": {versions: []*lancetest.Builder{lancetest.New().Prefix([]byte("dictionary")).Unknown(900, []byte("x")).Fragment(4).UnknownInFragment(0, 901, []byte("y"))}, rows: 4},
		"an index":                 {versions: []*lancetest.Builder{lancetest.New().Fragment(4).Index("id_idx", lancetest.IndexFile{Path: "page_data.lance"}, lancetest.IndexFile{Path: "page_lookup.lance"})}, rows: 4, indexes: []string{"id_idx"}},
		"an index without files":   {versions: []*lancetest.Builder{lancetest.New().Fragment(4).Index("id_idx")}, rows: 4, indexes: []string{"id_idx"}},
		"a MemWAL index":           {versions: []*lancetest.Builder{lancetest.New().Fragment(4).MemWAL()}, rows: 4},
	}
	dir := t.TempDir()
	names := slices.Sorted(maps.Keys(tests))
	var roots []string
	for i, name := range names {
		root := filepath.Join(dir, fmt.Sprint(i), "t.lance")
		for _, b := range tests[name].versions {
			b.WriteDir(t, root)
		}
		roots = append(roots, root)
	}
	got := lancetest.Probe(t, roots...)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			want := tests[name]
			expect := lancetest.Probed{Root: roots[i], Version: uint64(len(want.versions)), Rows: want.rows, Scanned: want.rows, Indexes: want.indexes, Tags: want.tags}
			for v := range want.versions {
				expect.Versions = append(expect.Versions, uint64(v+1))
			}
			if want.rows > 0 && len(got[i].Sample) == 0 {
				t.Error("no row came back")
			}
			got[i].Sample = nil
			if diff := cmp.Diff(expect, got[i], equateEmpty); diff != "" {
				t.Errorf("the library's answer differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheRealLibraryReadsBuiltValues(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "t.lance")
	lancetest.New().Values(
		lancetest.Strings("name", "exp-0000", "", "exp-0002", "gone").Null(3),
		lancetest.Int64s("created_at", 1, -2, 1<<60, 4),
	).Values(
		lancetest.Strings("name", "", ""),
		lancetest.Int64s("created_at", 5, 6),
	).Delete(0, 1).WriteDir(t, root)

	got := lancetest.Probe(t, root)[0]
	if got.Error != "" || got.Rows != 5 || got.Scanned != 5 {
		t.Errorf("got %+v, want 5 rows", got)
	}
	text := func(s string) *string { return &s }
	want := []map[string]*string{
		{"name": text(""), "created_at": text("-2")},
		{"name": text("exp-0002"), "created_at": text("1152921504606846976")},
		{"name": nil, "created_at": text("4")},
	}
	if diff := cmp.Diff(want, got.Sample); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestTheRealLibraryReadsABuiltBranchAndItsBase(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "t.lance")
	main := lancetest.New().Fragment(5).Fragment(2)
	main.WriteDir(t, root)
	main.Next().Delete(1, 1).Branch("dev", "", 1).WriteDir(t, root)
	inherited := func(path string) lancetest.File { return lancetest.File{Path: path, BaseID: lancetest.ID(0)} }
	dev := lancetest.New().OnBranch("dev").Base(0, root, true).
		Fragment(5, inherited("0-0.lance")).Fragment(2, inherited("1-0.lance"))
	dev.WriteDir(t, filepath.Join(root, "tree", "dev"))
	dev.Next().Fragment(10).WriteDir(t, filepath.Join(root, "tree", "dev"))

	got := lancetest.Probe(t, root)[0]
	if got.Error != "" || got.Rows != 6 || got.Scanned != 6 {
		t.Errorf("main: %+v", got)
	}
	if b := got.Branches["dev"]; b.Version != 2 || b.Rows != 17 || b.Scanned != 17 {
		t.Errorf("branch dev: %+v", b)
	}
}

func TestTheRealLibraryReadsCopiedFixturesAtTheirNewPlace(t *testing.T) {
	t.Parallel()
	var roots []string
	var truths []lancetest.Truth
	for name, truth := range lancetest.Fixtures(t) {
		roots = append(roots, lancetest.CopyFixture(t, name, filepath.Join(t.TempDir(), "copy")))
		truths = append(truths, truth)
	}
	if _, err := os.Stat(truths[0].BuiltAt); err == nil {
		t.Logf("%s exists: a copy could still be reading from there", truths[0].BuiltAt)
	}
	for i, got := range lancetest.Probe(t, roots...) {
		truth := truths[i]
		if truth.Shards != nil {
			continue // a MemWAL read adds the pending rows
		}
		if got.Error != "" || got.Version != truth.Version || got.Rows != truth.Rows || got.Scanned != truth.Rows {
			t.Errorf("%s: version %d, %d rows, %d scanned, error %q; want version %d, %d rows",
				truth.Name, got.Version, got.Rows, got.Scanned, got.Error, truth.Version, truth.Rows)
		}
		for name, b := range truth.Branches {
			if g := got.Branches[name]; g.Version != b.Version || g.Rows != b.Rows || g.Scanned != b.Rows {
				t.Errorf("%s branch %s: %+v, want version %d, %d rows", truth.Name, name, g, b.Version, b.Rows)
			}
		}
	}
}
