package lance

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func mustDecode(t testing.TB, file []byte) *Manifest {
	t.Helper()
	m, err := DecodeManifest(file)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func allFiles(t testing.TB, m *Manifest) []File {
	t.Helper()
	var files []File
	for f, err := range m.Files() {
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

func TestFilesTellEveryObjectOnce(t *testing.T) {
	t.Parallel()
	const uuid = "61616161-6161-6161-6161-616161616161"
	none := File{PhysicalRows: -1, LiveRows: -1}
	of := func(f File, base ...uint32) File { // completes an expectation
		if len(base) > 0 {
			f.BaseID, f.HasBase = base[0], true
		}
		return f
	}
	frag := func(id uint64, physical, live int64, files int) File {
		return File{FragmentID: id, HasFragment: true, PhysicalRows: physical, LiveRows: live, FragmentFiles: files}
	}
	with := func(f File, k Kind, path string, size, min int64) File {
		f.Kind, f.Path, f.Size, f.MinSize = k, path, size, min
		return f
	}
	bases := pb(sub(18, vint(3, 1), str(4, "/root")), sub(18, vint(1, 4), str(4, "/flat")))
	for _, tc := range []struct {
		about string
		file  []byte
		want  []File
	}{
		{"the transaction file comes first", manifestFile(str(12, "6-u.txn"), fragment(3, sub(2, dataFile("a.lance", 90, []int64{0})), vint(4, 10))),
			[]File{with(none, KindTransaction, "_transactions/6-u.txn", 0, 1), with(frag(3, 10, 10, 1), KindData, "data/a.lance", 90, 56)}},
		{"several files of a fragment, one of them dead", manifestFile(fragment(0, vint(4, 5),
			sub(2, dataFile("a.lance", 0, []int64{-2, -2})), sub(2, dataFile("b.lance", 70, []int64{-2, 1})), sub(2, dataFile("c.lance", 71, []int64{2})))),
			[]File{func() File { f := with(frag(0, 5, 5, 2), KindData, "data/a.lance", 0, 56); f.Dead = true; return f }(),
				with(frag(0, 5, 5, 2), KindData, "data/b.lance", 70, 56), with(frag(0, 5, 5, 2), KindData, "data/c.lance", 71, 56)}},
		{"deletion files, sparse and dense", manifestFile(
			fragment(0, vint(4, 5), sub(3, vint(2, 4), vint(3, 11231151238407843184), vint(4, 2))),
			fragment(1, vint(4, 5), sub(3, vint(1, 1), vint(4, 5)))),
			[]File{with(frag(0, 5, 3, 0), KindDeletion, "_deletions/0-4-11231151238407843184.arrow", 0, 26),
				with(frag(1, 5, 0, 0), KindDeletion, "_deletions/1-0-0.bin", 0, 8)}},
		{"rows that are not recorded are unknown, not zero", manifestFile(
			fragment(0, sub(2, dataFile("a", 0, []int64{0}))),
			fragment(1, vint(4, 5), sub(2, dataFile("b", 0, []int64{0})), sub(3, vint(2, 1)))),
			[]File{with(frag(0, -1, -1, 1), KindData, "data/a", 0, 56), with(frag(1, 5, -1, 1), KindData, "data/b", 0, 56),
				with(frag(1, 5, -1, 1), KindDeletion, "_deletions/1-1-0.arrow", 0, 26)}},
		{"more deleted rows than there are tell nothing", manifestFile(fragment(0, vint(4, 5), sub(2, dataFile("a", 0, nil)), sub(3, vint(4, 6)))),
			[]File{with(frag(0, 5, -1, 1), KindData, "data/a", 0, 56), with(frag(0, 5, -1, 1), KindDeletion, "_deletions/0-0-0.arrow", 0, 26)}},
		{"base paths are found by id, and 0 is one", manifestFile(bases, fragment(0,
			sub(2, dataFile("a", 60, []int64{0}, vint(7, 0))), sub(2, dataFile("b", 60, []int64{0}, vint(7, 4))),
			sub(2, dataFile("c", 60, []int64{0}, vint(7, 9))), sub(3, vint(7, 0)))),
			[]File{of(with(frag(0, -1, -1, 3), KindData, "data/a", 60, 56), 0), of(with(frag(0, -1, -1, 3), KindData, "b", 60, 56), 4),
				of(with(frag(0, -1, -1, 3), KindData, "data/c", 60, 56), 9), of(with(frag(0, -1, -1, 3), KindDeletion, "_deletions/0-0-0.arrow", 0, 26), 0)}},
		{"overlays and external sequences", manifestFile(fragment(2, vint(4, 3),
			sub(11, sub(1, dataFile("o.lance", 77, []int64{1})), str(2, "bitmap"), vint(3, 9)),
			sub(6, str(1, "_rowids/1"), vint(2, 100), vint(3, 20)), sub(8, str(1, "_rowids/1"), vint(2, 120), vint(3, 20)), sub(10, str(1, "v"), vint(3, 2)))),
			[]File{with(frag(2, 3, 3, 0), KindOverlay, "data/o.lance", 77, 56), with(frag(2, 3, 3, 0), KindRowIDs, "_rowids/1", 0, 120), with(frag(2, 3, 3, 0), KindRowIDs, "v", 0, 2)}},
		{"files of format 0.1 have a lower bound only", manifestFile(fragment(0,
			sub(2, str(1, "a"), packed(2, 0), vint(6, 151)), sub(2, str(1, "b"), packed(2, 1), vint(5, 2)), sub(2, str(1, "c"), packed(2, 2), vint(5, 3), vint(6, 99)))),
			[]File{with(frag(0, -1, -1, 3), KindData, "data/a", 0, 151), with(frag(0, -1, -1, 3), KindData, "data/b", 0, 20), with(frag(0, -1, -1, 3), KindData, "data/c", 99, 56)}},
		{"a fragment that stands twice names its files once", manifestFile(
			fragment(1, sub(2, dataFile("a", 60, []int64{0})), sub(3, vint(2, 1))), fragment(0, sub(2, dataFile("b", 60, []int64{0}))),
			fragment(1, sub(2, dataFile("a", 60, []int64{0})), sub(3, vint(2, 1)))),
			[]File{with(frag(1, -1, -1, 1), KindData, "data/a", 60, 56), with(frag(1, -1, -1, 1), KindDeletion, "_deletions/1-1-0.arrow", 0, 26),
				with(frag(0, -1, -1, 1), KindData, "data/b", 60, 56)}},
		{"a file of two fragments is one object, and under another base another", manifestFile(bases,
			fragment(0, sub(2, dataFile("a", 60, []int64{0}))), fragment(1, sub(2, dataFile("a", 60, []int64{0}))), fragment(2, sub(2, dataFile("a", 60, []int64{0}, vint(7, 0))))),
			[]File{with(frag(0, -1, -1, 1), KindData, "data/a", 60, 56), of(with(frag(2, -1, -1, 1), KindData, "data/a", 60, 56), 0)}},
		{"recorded files of indices", manifestWith(pb(
			sub(1, uuidBytes("a"), str(3, "i"), sub(10, str(1, "index.idx"), vint(2, 400)), sub(10, str(1, "auxiliary.idx"))),
			sub(1, uuidBytes("a"), str(3, "i"), vint(9, 4), sub(10, str(1, "deep/x"), vint(2, 4))),
			sub(1, uuidBytes("b"), str(3, "not recorded")),
			sub(1, uuidBytes("c"), str(3, MemWALIndex), sub(6, str(1, "/lance.table.MemWalIndexDetails"), str(2, "\x12\x00")))), nil, bases),
			[]File{
				{Kind: KindIndex, Path: "_indices/" + uuid + "/index.idx", Size: 400, MinSize: 20, PhysicalRows: -1, LiveRows: -1, IndexUUID: uuid, IndexName: "i"},
				{Kind: KindIndex, Path: "_indices/" + uuid + "/auxiliary.idx", MinSize: 20, PhysicalRows: -1, LiveRows: -1, IndexUUID: uuid, IndexName: "i"},
				{Kind: KindIndex, Path: uuid + "/deep/x", Size: 4, PhysicalRows: -1, LiveRows: -1, IndexUUID: uuid, IndexName: "i", BaseID: 4, HasBase: true}}},
		{"the details of a fragment reuse index may lie in a file", manifestWith(
			sub(1, uuidBytes("a"), str(3, FragReuseIndex), sub(6, str(1, "/lance.table.FragmentReuseIndexDetails"), sub(2, sub(2, str(1, "details.binpb"), vint(3, 204801))))), nil),
			[]File{{Kind: KindIndex, Path: "_indices/" + uuid + "/details.binpb", MinSize: 204801, PhysicalRows: -1, LiveRows: -1, IndexUUID: uuid, IndexName: FragReuseIndex}}},
		{"and inline they name none", manifestWith(
			sub(1, uuidBytes("a"), str(3, FragReuseIndex), sub(6, str(1, "/lance.table.FragmentReuseIndexDetails"), sub(2, sub(1)))), nil), nil},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			m := mustDecode(t, tc.file)
			if d := cmp.Diff(tc.want, allFiles(t, m)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		about string
		file  []byte
		want  Summary
	}{
		{"nothing", manifestFile(), Summary{}},
		{"live rows are physical rows less deleted ones", manifestFile(
			fragment(0, vint(4, 5), sub(2, dataFile("a", 1, []int64{0})), sub(2, dataFile("b", 1, []int64{-2})), sub(3, vint(4, 2))),
			fragment(5, vint(4, 5), sub(2, dataFile("c", 1, []int64{0})), sub(11, sub(1, dataFile("o", 1, nil))), sub(6, str(1, "x")))),
			Summary{Fragments: 2, DataFiles: 3, DeadFiles: 1, DeletionFiles: 1, Overlays: 1, ExternalFiles: 1, PhysicalRows: 10, LiveRows: 8}},
		{"one fragment that does not tell makes all unknown", manifestFile(fragment(0, vint(4, 5)), fragment(1), fragment(2, vint(4, 5))),
			Summary{Fragments: 3, PhysicalRows: -1, LiveRows: -1}},
		{"deletions that are not counted leave the physical rows", manifestFile(fragment(0, vint(4, 5), sub(3)), fragment(1, vint(4, 5))),
			Summary{Fragments: 2, DeletionFiles: 1, PhysicalRows: 10, LiveRows: -1}},
		{"a sum beyond 63 bits is unknown", manifestFile(fragment(0, vint(4, 1<<63-1)), fragment(1, vint(4, 1))),
			Summary{Fragments: 2, PhysicalRows: -1, LiveRows: -1}},
		{"unsorted ids are legal", manifestFile(fragment(2, vint(4, 1)), fragment(0, vint(4, 1)), fragment(7, vint(4, 1))),
			Summary{Fragments: 3, PhysicalRows: 3, LiveRows: 3}},
		{"duplicate ids are told", manifestFile(fragment(2, vint(4, 1)), fragment(0, vint(4, 1)), fragment(2, vint(4, 1))),
			Summary{Fragments: 3, PhysicalRows: 3, LiveRows: 3, DuplicateIDs: true}},
	} {
		if d := cmp.Diff(tc.want, mustDecode(t, tc.file).Summary); d != "" {
			t.Errorf("%s: %s", tc.about, d)
		}
	}
}

func TestFragmentsTellWhatACommitNeeds(t *testing.T) {
	t.Parallel()
	first := pb(vint(1, 4), sub(2, str(1, "a.lance"), packed(2, 0, 1, -2), packed(3, 0, 1), vint(4, 2), vint(5, 2), vint(6, 9), vint(7, 1)),
		sub(3, vint(2, 3), vint(3, 8), vint(4, 1)), vint(4, 6), str(5, "row ids"), vint(14, 7))
	second := pb(vint(1, 5), sub(2, str(1, "b.lance"), vint(2, 3)))
	m := mustDecode(t, manifestFile(vint(3, 1), str(2, string(first)), str(2, string(second))))
	var got []Fragment
	for f, err := range m.Fragments() {
		if err != nil {
			t.Fatal(err)
		}
		c := *f // as documented, only what is copied outlives the iteration
		c.Files = append([]DataFile(nil), f.Files...)
		for i := range c.Files {
			c.Files[i].Fields = append([]int32(nil), f.Files[i].Fields...)
			c.Files[i].ColumnIndices = append([]int32(nil), f.Files[i].ColumnIndices...)
		}
		if f.Deletion != nil {
			d := *f.Deletion
			c.Deletion = &d
		}
		got = append(got, c)
	}
	want := []Fragment{
		{ID: 4, PhysicalRows: 6, Raw: first, Files: []DataFile{{Path: "a.lance", Fields: []int32{0, 1, -2}, ColumnIndices: []int32{0, 1}, Major: 2, Minor: 2, Size: 9, BaseID: 1, HasBase: true}},
			Deletion: &DeletionFile{Name: "4-3-8.arrow", ReadVersion: 3, ID: 8, NumDeleted: 1}},
		{ID: 5, Raw: second, Files: []DataFile{{Path: "b.lance", Fields: []int32{3}}}},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Fragment{}, DataFile{}), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func TestIterationStopsWhenTheCallerDoes(t *testing.T) {
	t.Parallel()
	m := mustDecode(t, manifestWith(pb(sub(1, uuidBytes("a"), sub(10, str(1, "x"))), sub(1, uuidBytes("b"))), nil,
		sub(1, str(2, "a")), sub(1, str(2, "b")), str(12, "1-x.txn"),
		fragment(0, sub(2, dataFile("a", 1, nil)), sub(11, sub(1, dataFile("o", 1, nil))), sub(3), sub(6, str(1, "r"))), fragment(1)))
	total := len(allFiles(t, m))
	for stop := 1; stop <= total; stop++ {
		n := 0
		for range m.Files() {
			if n++; n == stop {
				break
			}
		}
		if n != stop {
			t.Errorf("%d files before the break at %d", n, stop)
		}
	}
	for range m.Fragments() {
		break
	}
	for range m.Fields() {
		break
	}
	for range m.Indices() {
		break
	}
}

func TestFieldsTellNamesOfColumns(t *testing.T) {
	t.Parallel()
	m := mustDecode(t, manifestFile(
		sub(1, str(2, "s"), vint(3, 0), vint(4, ^uint64(0)), str(5, "struct"), vint(6, 1), pair(10, "k", "v"), pair(10, "", "")),
		sub(1, str(2, "leaf"), vint(3, 1), str(5, "int64"), str(9, "ext"))))
	var got []string
	for f, err := range m.Fields() {
		if err != nil {
			t.Fatal(err)
		}
		v, ok := f.Meta("k")
		got = append(got, fmt.Sprint(f.ID, f.ParentID, f.Name, f.LogicalType, f.Nullable, f.ExtensionName, v, ok))
	}
	if d := cmp.Diff([]string{fmt.Sprint(0, -1, "s", "struct", true, "", "v", true), fmt.Sprint(1, 0, "leaf", "int64", false, "ext", "", false)}, got); d != "" {
		t.Error(d)
	}
}

func TestMinFileSize(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind Kind
		name string
		want int64
	}{
		{KindData, "data/x.lance", 20}, {KindIndex, "index.idx", 20}, {KindIndex, "page_data.lance", 20}, {KindIndex, "bloom_filter.bin", 0},
		{KindDeletion, "_deletions/0-1-2.arrow", 26}, {KindDeletion, "_deletions/0-1-2.bin", 8}, {KindTransaction, "1-x.txn", 1}, {KindRowIDs, "x", 0},
	} {
		if got := MinFileSize(tc.kind, tc.name); got != tc.want {
			t.Errorf("%v %s: %d, want %d", tc.kind, tc.name, got, tc.want)
		}
	}
}
