package lance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

// subject is one table, or one branch of one, that one release judges.
type subject struct {
	fixture, branch string
	j               *judge
}

// dataset is the subject's own root below that of the table.
func (s subject) dataset(root string) string {
	if s.branch == "" {
		return root
	}
	return filepath.Join(root, "tree", filepath.FromSlash(s.branch))
}

func (s subject) command(root string, old uint64) command {
	c := command{Do: "judge", Root: root, Branch: s.branch, Old: old}
	switch {
	case strings.HasSuffix(s.fixture, "/text"):
		c.Text = "name"
	case s.fixture == "0.10.0/tombstone":
		c.Skip = []string{"update"} // of a column with older files of format 0.1 ends every release's process
	}
	return c
}

// untouched is what the release sees in the fixture itself.
func (s subject) untouched(t *testing.T) (m *Manifest, v verdict) {
	t.Helper()
	root := copyTo(t, s.fixture)
	_, m = readNewest(t, dirStore(s.dataset(root)))
	s.j.ask(t, s.command(root, m.Version), &v)
	return m, v
}

// own is what it sees after it made the change itself.
func (s subject) own(t *testing.T, old uint64, p prepare, absent []any) (v verdict) {
	t.Helper()
	root := copyTo(t, s.fixture)
	c := s.command(root, old)
	c.Prepare, c.Absent = &p, absent
	s.j.ask(t, c, &v)
	return v
}

// rows are the keys of all rows: by a filter, for 0.10.0 loses a row when it scans
// its format 2.0; by a scan where the library cannot filter, on a branch of a branch.
func rows(t *testing.T, v verdict) []any {
	t.Helper()
	if f := v.step(t, "filter"); f.Error == "" {
		return f.Keys
	}
	return v.step(t, "scan").Keys
}

// minus is a multiset of keys without another; false when that holds more.
func minus(a, b []any) (rest []any, ok bool) {
	count := map[any]int{}
	for _, k := range b {
		count[k]++
	}
	for _, k := range a {
		if count[k] > 0 {
			count[k]--
			continue
		}
		rest = append(rest, k)
	}
	for _, n := range count {
		if n > 0 {
			return nil, false
		}
	}
	return rest, true
}

// compare holds what was seen in a table that was changed here against what was
// seen in one that the library changed: at no step may it be worse or other. Steps
// that fail on the library's own table tell nothing.
func compare(t *testing.T, about string, got, want verdict, except ...string) {
	t.Helper()
	if want.Error != "" || got.Error != "" {
		t.Fatalf("%s: %q, the library's own: %q", about, got.Error, want.Error)
	}
	for _, name := range slices.Sorted(maps.Keys(want.Steps)) {
		if slices.Contains(except, name) {
			continue
		}
		g, w := got.step(t, name), want.step(t, name)
		switch {
		case w.Error != "":
			t.Logf("%s: %s fails on the library's own table too: %.150s", about, name, w.Error)
		case g.Error != "":
			t.Errorf("%s: %s fails: %s", about, name, g.Error)
		default:
			if d := cmp.Diff(seen(t, want.Steps[name]), seen(t, got.Steps[name])); d != "" {
				t.Errorf("%s: %s: %s", about, name, d)
			}
		}
	}
}

// seen is what a step saw, apart from version numbers.
func seen(t *testing.T, raw json.RawMessage) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	delete(v, "version")
	return v
}

// thorough: for some shapes every drop is tried and undone, for all others one of
// each; what differs between shapes is seen by one.
func (s subject) thorough() bool {
	for _, shape := range []string{"/plain", "/stable", "/scalar", "/clone"} {
		if strings.HasSuffix(s.fixture, shape) {
			return true
		}
	}
	return false
}

// sets are the drops that are tried: one fragment, preferably one with a deletion
// file, all of them, and the last one.
func (s subject) sets(m *Manifest) [][]uint64 {
	var all []uint64
	one := -1
	for f := range m.Fragments() {
		if f.Deletion != nil && one < 0 {
			one = len(all)
		}
		all = append(all, f.ID)
	}
	switch {
	case len(all) == 0:
		return nil
	case len(all) == 1:
		return [][]uint64{all}
	}
	sets := [][]uint64{{all[max(one, 0)]}, all}
	if s.thorough() {
		sets = append(sets, all[len(all)-1:])
	}
	return sets
}

func liveRows(t *testing.T, m *Manifest, ids []uint64) (n int64) {
	t.Helper()
	for f := range m.Fragments() {
		if slices.Contains(ids, f.ID) {
			live, known := f.LiveRows()
			if !known {
				t.Fatalf("fragment %d does not tell its rows", f.ID)
			}
			n += live
		}
	}
	return n
}

// judgedShapes are judged in every run of the tests; all shapes take minutes, and
// are judged when RECONCILE_TEST_JUDGE is "all", as in CI (make judge).
var judgedShapes = []string{"plain", "scalar", "stable", "branch"}

// eachSubject runs fn for the fixtures of the judged releases, and every branch of
// one, with the release that wrote it and with the newest.
func eachSubject(t *testing.T, fn func(t *testing.T, s subject)) {
	t.Helper()
	judges := map[string]*judge{}
	for _, release := range judgedReleases {
		judges[release] = newJudge(t, release)
	}
	newest := []*judge{judges[newestRelease], newJudge(t, newestRelease)}
	i := 0
	for name, truth := range lancetest.Fixtures(t) {
		release, shape, _ := strings.Cut(name, "/")
		if judges[release] == nil || os.Getenv("RECONCILE_TEST_JUDGE") != "all" && !slices.Contains(judgedShapes, shape) {
			continue
		}
		for _, branch := range append([]string{""}, slices.Sorted(maps.Keys(truth.Branches))...) {
			i++
			by := []*judge{newest[i%2]}
			if release != newestRelease {
				by = append(by, judges[release])
			}
			for _, j := range by {
				t.Run(strings.Join([]string{name, branch, "by", j.release}, " "), func(t *testing.T) {
					t.Parallel()
					fn(t, subject{name, branch, j})
				})
			}
		}
	}
}

// The judge of everything here. A table from which fragments were dropped is to
// the library what one is from which it deleted the same rows itself, in every
// step that an engine does; with the fragments put back it is what it was; and
// without an index it is what one is from which it dropped that index itself.
func TestTheLibraryCannotTellARepairFromItsOwnCommits(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	eachSubject(t, func(t *testing.T, s subject) {
		m, base := s.untouched(t)
		for i, ids := range s.sets(m) {
			s.judgeDrop(t, m, base, ids)
			if i == 0 || s.thorough() {
				s.judgeUndo(t, m, base, ids)
			}
		}
		for x := range m.Indices() {
			if x.Name != MemWALIndex {
				s.judgeIndexDrop(t, m, base, x)
			}
		}
	})
}

func (s subject) judgeDrop(t *testing.T, m *Manifest, base verdict, ids []uint64) {
	t.Helper()
	about := fmt.Sprintf("without %v", ids)
	root := copyTo(t, s.fixture)
	s.drop(t, root, ids)
	c := s.command(root, m.Version)
	whole := rows(t, base)
	c.Absent = whole
	var got verdict
	s.j.ask(t, c, &got)

	lost, ok := minus(whole, rows(t, got))
	if live := liveRows(t, m, ids); !ok || int64(len(lost)) != live || got.step(t, "count").Rows != int64(len(whole))-live {
		t.Errorf("%s: %d rows are gone, and %d are counted; want %d of %d to go", about, len(lost), got.step(t, "count").Rows, live, len(whole))
	}
	if v := got.step(t, "open").Version; v != m.Version+1 {
		t.Errorf("%s: version %d", about, v)
	}
	if d := cmp.Diff(base.step(t, "scan").Keys, got.step(t, "old").Keys); d != "" {
		t.Errorf("%s: the version before is %s", about, d)
	}
	s.compareOwn(t, about, got, base, s.own(t, m.Version, prepare{Drop: lost}, whole), m, ids)
}

// drop commits to a copy of the fixture.
func (s subject) drop(t *testing.T, root string, ids []uint64) {
	t.Helper()
	before, after := commitOn(t, s.dataset(root), func(m *Manifest, info CommitInfo) (*Proposal, error) {
		return m.ProposeDelete(ids, "", info)
	})
	checkDropped(t, fmt.Sprintf("without %v", ids), before, after, ids)
}

func (s subject) judgeUndo(t *testing.T, m *Manifest, base verdict, ids []uint64) {
	t.Helper()
	about := fmt.Sprintf("with %v back", ids)
	root := copyTo(t, s.fixture)
	s.drop(t, root, ids)
	var intact []string
	for x := range m.Indices() {
		intact = append(intact, x.UUID)
	}
	_, back := commitOn(t, s.dataset(root), func(n *Manifest, info CommitInfo) (*Proposal, error) {
		_, old := readVersion(t, s.dataset(root), m.Version)
		return n.ProposeAddFragments(rawOf(t, old, ids...), intact, info)
	})
	if string(back.indexSection) != string(m.indexSection) {
		t.Errorf("%s: the index section changed", about)
	}
	var undone verdict
	s.j.ask(t, s.command(root, m.Version), &undone)
	if v := undone.step(t, "open").Version; v != m.Version+2 {
		t.Errorf("%s: version %d", about, v)
	}
	compare(t, about, undone, base)
}

func readVersion(t *testing.T, dataset string, version uint64) (VersionEntry, *Manifest) {
	t.Helper()
	vs, err := ListVersions(t.Context(), dirStore(dataset))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range vs.Entries {
		if e.Version == version {
			m, err := ReadManifest(t.Context(), dirStore(dataset), e)
			if err != nil {
				t.Fatal(err)
			}
			return e, m
		}
	}
	t.Fatalf("no version %d", version)
	return VersionEntry{}, nil
}

func (s subject) judgeIndexDrop(t *testing.T, m *Manifest, base verdict, x Index) {
	t.Helper()
	about := "without index " + x.Name
	root := copyTo(t, s.fixture)
	before, after := commitOn(t, s.dataset(root), func(m *Manifest, info CommitInfo) (*Proposal, error) {
		return m.ProposeDropIndex(x.UUID, info)
	})
	if d := cmp.Diff(only(t, before.msg, 2), only(t, after.msg, 2)); d != "" {
		t.Errorf("%s: fragments: %s", about, d)
	}
	var got verdict
	s.j.ask(t, s.command(root, m.Version), &got)
	// An index that a release does not understand is hidden from its users.
	left := slices.DeleteFunc(base.step(t, "open").Indices, func(name string) bool { return name == x.Name })
	if d := cmp.Diff(left, got.step(t, "open").Indices); d != "" {
		t.Errorf("%s: indices: %s", about, d)
	}
	if s.j.release == "0.10.0" { // which cannot drop an index, and has no text search without one
		compare(t, about, got, base, "open", "text")
		return
	}
	compare(t, about, got, s.own(t, m.Version, prepare{DropIndex: x.Name}, nil))
}

// compareOwn is compare with a table in which the library deleted the same rows,
// apart from two things that only its own deletes do.
func (s subject) compareOwn(t *testing.T, about string, got, base, own verdict, m *Manifest, ids []uint64) {
	t.Helper()
	if own.Error != "" {
		// On a branch of a branch the library looks for an index where it is not.
		t.Logf("%s: the library cannot delete there: %.150s", about, own.Error)
		for name := range base.Steps {
			if g := got.step(t, name); g.Error != "" && base.step(t, name).Error == "" {
				t.Errorf("%s: %s fails: %s", about, name, g.Error)
			}
		}
		return
	}
	// Without a live fragment that it covers, an index goes with the library's own
	// delete: any index up to Lance 0.17, a vector index up to Lance 8.
	var except []string
	vector := strings.HasSuffix(s.fixture, "/vector") && s.j.release != newestRelease
	if all := int64(len(ids)) == m.Summary.Fragments; all && (vector || s.j.release == "0.10.0") {
		except = []string{"open"}
	}
	compare(t, about, got, own, except...)
}
