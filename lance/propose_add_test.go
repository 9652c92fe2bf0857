package lance

import (
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"
)

// rawOf are the DataFragment messages of some ids.
func rawOf(t testing.TB, m *Manifest, ids ...uint64) (raw [][]byte) {
	t.Helper()
	for f, err := range m.Fragments() {
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(ids, f.ID) {
			raw = append(raw, f.Raw)
		}
	}
	return raw
}

func TestAnUndoBringsTheVeryListBack(t *testing.T) {
	t.Parallel()
	m := mustDecode(t, plainFile())
	for about, ids := range map[string][]uint64{"the first": {0}, "with the deletion file": {1}, "the last": {3}, "some between": {1, 2}, "all": {0, 1, 2, 3}} {
		dropped := mustDecode(t, propose(t)(m.ProposeDelete(ids, "", commitInfo())).Manifest())
		raw := rawOf(t, m, ids...)
		slices.Reverse(raw)
		p := propose(t)(dropped.ProposeAddFragments(raw, nil, commitInfo()))
		n := mustDecode(t, p.Manifest())
		if d := cmp.Diff(apart(t, m.msg, 3, 7, 12), apart(t, n.msg, 3, 7, 12)); d != "" {
			t.Errorf("%s: %s", about, d)
		}
		if n.Version != 7 || n.ReaderFlags != 1 || n.WriterFlags != 1 {
			t.Errorf("%s: version %d, flags %d/%d", about, n.Version, n.ReaderFlags, n.WriterFlags)
		}
		var fragments [][]byte
		for _, b := range raw {
			fragments = append(fragments, sub(1, b))
		}
		want := pb(vint(1, 6), str(2, commitUUID), pair(4, "reconcile.operation", "append"), pair(4, "reconcile.repair_id", "r1"), sub(100, fragments...))
		if d := cmp.Diff(want, p.Transaction()); d != "" {
			t.Errorf("%s: %s", about, d)
		}
	}
}

func TestReturningFragmentsStandInTheOrderOfTheirIDs(t *testing.T) {
	t.Parallel()
	schema := sub(1, str(2, "id"), vint(4, ^uint64(0)))
	file := func(name string) []byte { return sub(2, dataFile(name, 60, []int64{0})) }
	raw := [][]byte{pb(vint(1, 9), file("i")), pb(vint(1, 2), file("c")), pb(file("zero"))}
	for _, tc := range []struct {
		about string
		old   []byte
		want  []uint64
	}{
		{"into a list with gaps", pb(fragment(1, file("b")), fragment(5, file("f")), fragment(10, file("k"))), []uint64{0, 1, 2, 5, 9, 10}},
		{"into none", nil, []uint64{0, 2, 9}},
		{"into an old unsorted list", pb(fragment(5, file("f")), fragment(1, file("b"))), []uint64{0, 2, 5, 1, 9}},
	} {
		m := mustDecode(t, manifestFile(schema, tc.old, vint(3, 4), vint(11, 12), writer, sub(15, str(2, "2.1"))))
		n := mustDecode(t, propose(t)(m.ProposeAddFragments(raw, nil, commitInfo())).Manifest())
		var got []uint64
		for f := range n.Fragments() {
			got = append(got, f.ID)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", tc.about, d)
		}
	}
}

// bitmapOf is a portable Roaring bitmap.
func bitmapOf(t testing.TB, ids ...uint32) string {
	t.Helper()
	b, err := roaring.BitmapOf(ids...).ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestProposeAddFragmentsRefuses(t *testing.T) {
	t.Parallel()
	field := func(id int32, parent int64) []byte {
		return sub(1, vint(3, uint64(id)), vint(4, uint64(parent)), str(2, "f"))
	}
	table := func(more ...[]byte) []byte {
		return manifestFile(append([][]byte{field(0, -1), field(1, -1), field(2, 1), fragment(1, sub(2, dataFile("b", 60, []int64{0, 1, 2}))), vint(3, 4),
			vint(11, 6), writer, sub(15, str(1, "lance"), str(2, "2.1")), sub(18, vint(3, 1), str(4, "/root")), sub(18, vint(1, 4), str(4, "/flat"))}, more...)...)
	}
	file := func(fields []int64, more ...[]byte) []byte { return sub(2, dataFile("z", 60, fields, more...)) }
	ok := pb(vint(1, 5), file([]int64{0, 1, 2}))
	for _, tc := range []struct {
		about string
		file  []byte
		raw   [][]byte
	}{
		{"nothing", table(), nil},
		{"an id that is taken", table(), [][]byte{pb(vint(1, 1), file([]int64{0, 1}))}},
		{"an id that was never given out", table(), [][]byte{pb(vint(1, 7), file([]int64{0, 1}))}},
		{"one id twice", table(), [][]byte{ok, pb(vint(1, 5), sub(2, dataFile("y", 60, []int64{0, 1})))}},
		{"one file twice", table(), [][]byte{ok, pb(vint(1, 4), file([]int64{0, 1}))}},
		{"a file that is in use", table(), [][]byte{pb(vint(1, 5), sub(2, dataFile("b", 60, []int64{0, 1})))}},
		{"a field that is gone", table(), [][]byte{pb(vint(1, 5), file([]int64{0, 1, 9}))}},
		{"a column that came later", table(field(7, -1)), [][]byte{ok}},
		{"a part of a column that is lacking", table(), [][]byte{pb(vint(1, 5), file([]int64{0}))}},
		{"a base path that is gone", table(), [][]byte{pb(vint(1, 5), file([]int64{0, 1}, vint(7, 3)))}},
		{"a deletion file under a base path that is gone", table(), [][]byte{pb(ok, sub(3, vint(4, 1), vint(7, 9)))}},
		{"a deletion file under a base that is no dataset root", table(), [][]byte{pb(ok, sub(3, vint(4, 1), vint(7, 4)))}},
		{"another file format", table(), [][]byte{pb(vint(1, 5), sub(2, str(1, "z"), packed(2, 0, 1), vint(4, 2), vint(5, 2)))}},
		{"overlays", table(), [][]byte{pb(ok, sub(11, sub(1, dataFile("o", 1, nil))))}},
		{"row ids in a table without", table(), [][]byte{pb(ok, str(5, "\x0a\x00"))}},
		{"no row ids in a table with", table(vint(9, 2), vint(10, 2)), [][]byte{ok}},
		{"no file", table(), [][]byte{vint(1, 5)}},
		{"dead files only", table(), [][]byte{pb(vint(1, 5), file([]int64{-2}))}},
		{"a table that never gave out an id", manifestFile(field(0, -1), vint(3, 1), writer, sub(15, str(2, "2.1"))), [][]byte{pb(file([]int64{0}))}},
	} {
		if _, err := mustDecode(t, tc.file).ProposeAddFragments(tc.raw, nil, commitInfo()); !isRefused(err) {
			t.Errorf("%s: %v", tc.about, err)
		}
	}
	for about, raw := range map[string][]byte{"as it was": ok, "with its parent's id only": pb(vint(1, 5), file([]int64{0, 1})), "in two files": pb(vint(1, 5), file([]int64{0}), sub(2, dataFile("y", 60, []int64{2}))),
		"with a dead column": pb(vint(1, 5), file([]int64{0, -2, 1})), "under base paths": pb(vint(1, 5), file([]int64{0, 1}, vint(7, 4)), sub(3, vint(4, 1), vint(7, 0)))} {
		if _, err := mustDecode(t, table()).ProposeAddFragments([][]byte{raw}, nil, commitInfo()); err != nil {
			t.Errorf("%s: %v", about, err)
		}
	}
	if _, err := mustDecode(t, table()).ProposeAddFragments([][]byte{[]byte("\xff")}, nil, commitInfo()); !isCorrupt(err) {
		t.Errorf("bytes that are no fragment: %v", err)
	}
	mixed := table(vint(9, 256), vint(10, 256))
	propose(t)(mustDecode(t, mixed).ProposeAddFragments([][]byte{pb(vint(1, 5), sub(2, str(1, "z"), packed(2, 0, 1), vint(4, 2), vint(5, 2)))}, nil, commitInfo()))
}

func TestAReturningFragmentMustBeInTheIndicesThatAnswerForIt(t *testing.T) {
	t.Parallel()
	raw := [][]byte{pb(vint(1, 5), sub(2, dataFile("z", 60, []int64{0})))}
	for _, tc := range []struct {
		about   string
		section []byte
		intact  []string
		refused bool
	}{
		{"an index from before", entry("a_idx", str(5, bitmapOf(t, 0, 5))), []string{idOf("a")}, false},
		{"one from before that does not tell", entry("a_idx"), []string{idOf("a")}, false},
		{"one that was merged since", entry("a_idx", str(5, bitmapOf(t, 0, 5))), []string{idOf("b")}, true},
		{"one that was built without it", entry("a_idx", str(5, bitmapOf(t, 0, 6))), nil, false},
		{"one that does not tell", entry("a_idx"), nil, true},
		{"one that cannot be read", entry("a_idx", str(5, "\x3a\x30")), nil, true},
		{"one of several segments", pb(entry("a_idx", str(5, bitmapOf(t, 0))), entry("b_idx", str(5, bitmapOf(t, 5)))), []string{idOf("a")}, true},
		{"the library's own entries", pb(sub(1, uuidBytes("w"), str(3, MemWALIndex)), sub(1, uuidBytes("r"), str(3, FragReuseIndex))), nil, false},
	} {
		m := mustDecode(t, manifestWith(tc.section, nil, sub(1, str(2, "id"), vint(4, ^uint64(0))), vint(3, 4), vint(11, 6), writer, sub(15, str(2, "2.1"))))
		_, err := m.ProposeAddFragments(raw, tc.intact, commitInfo())
		if isRefused(err) != tc.refused || !tc.refused && err != nil {
			t.Errorf("%s: %v", tc.about, err)
		}
	}
}

func TestBitmapHas(t *testing.T) {
	t.Parallel()
	var dense []uint32
	for i := range uint32(9000) {
		dense = append(dense, i*7)
	}
	runs := roaring.New()
	runs.AddRange(100, 70_000)
	runs.AddRange(1<<20, 1<<20+3)
	runs.RunOptimize()
	many := roaring.New()
	for i := range uint64(6) {
		many.AddRange(i<<16+99, i<<16+4000)
	}
	many.Add(1 << 31)
	many.RunOptimize()
	for about, b := range map[string]*roaring.Bitmap{"none": roaring.New(), "a few": roaring.BitmapOf(0, 3, 65535, 65536, 1<<31), "dense": roaring.BitmapOf(dense...), "runs": runs, "many runs": many} {
		raw, err := b.ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range append([]uint32{0, 1, 3, 99, 100, 65535, 65536, 69_999, 70_000, 1 << 20, 1<<20 + 2, 1<<20 + 3, 1 << 31, 1<<32 - 1}, dense[:100]...) {
			if got, err := bitmapHas(raw, v); err != nil || got != b.Contains(v) {
				t.Errorf("%s: %d is %v, %v", about, v, got, err)
			}
		}
	}
	if _, err := bitmapHas([]byte("no"), 1); err == nil {
		t.Error("bytes that are no bitmap")
	}
}

func TestSameFragments(t *testing.T) {
	t.Parallel()
	base := func(path string) []byte { return sub(18, vint(1, 4), vint(3, 1), str(4, path)) }
	f := func(id uint64, name string, more ...[]byte) []byte {
		return fragment(id, append([][]byte{sub(2, dataFile(name, 60, []int64{0}, vint(7, 4)))}, more...)...)
	}
	own := fragment(9, sub(2, dataFile("own", 60, []int64{0})))
	a := mustDecode(t, manifestFile(f(0, "a"), f(1, "b"), f(2, "c"), own, vint(3, 1), base("/x")))
	for _, tc := range []struct {
		about string
		b     []byte
		want  []uint64
	}{
		{"the same", manifestFile(own, f(2, "c"), f(1, "b"), f(0, "a"), vint(3, 2), base("/x")), []uint64{9, 2, 0}},
		{"gone, or with a deletion file", manifestFile(f(0, "a", sub(3, vint(4, 1))), f(1, "b"), own, base("/x")), []uint64{9}},
		{"another file", manifestFile(f(0, "A"), f(2, "c"), base("/x")), []uint64{2}},
		{"under another base path", manifestFile(own, f(0, "a"), f(2, "c"), base("/y")), []uint64{9}},
		{"under none", manifestFile(own, f(0, "a"), f(2, "c")), []uint64{9}},
	} {
		got, err := SameFragments(a, mustDecode(t, tc.b), []uint64{9, 2, 0, 77})
		if d := cmp.Diff(tc.want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", tc.about, err, d)
		}
	}
	twice := mustDecode(t, manifestFile(own, own))
	if _, err := SameFragments(a, twice, []uint64{9}); !isRefused(err) {
		t.Errorf("two fragments of one id: %v", err)
	}
	if _, err := SameFragments(twice, a, []uint64{9}); !isRefused(err) {
		t.Errorf("two fragments of one id: %v", err)
	}
}
