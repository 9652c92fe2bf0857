package lance

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// made is the version that a release made after another one, with its transaction.
func made(t *testing.T, dataset string, version uint64) (*Manifest, Transaction) {
	t.Helper()
	e, m := readVersion(t, dataset, version)
	b, err := os.ReadFile(filepath.Join(dataset, "_transactions", m.TransactionFile))
	if err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	tx, err := DecodeTransaction(b)
	if err != nil {
		t.Fatal(err)
	}
	return m, tx
}

// Where the library drops an index, a proposal for the same is its next version,
// byte for byte, index section included.
func TestDroppingAnIndexIsTheLibrarysOwn(t *testing.T) {
	for _, release := range []string{"0.22.3", "0.31.0", newestRelease} {
		j := newJudge(t, release)
		for _, shape := range []string{"scalar", "text", "compacted", "clone"} {
			t.Run(release+" "+shape, func(t *testing.T) {
				for i := 0; ; i++ {
					root := copyTo(t, release+"/"+shape)
					vs, m := readNewest(t, dirStore(root))
					indices := slices.Collect(func(yield func(Index) bool) {
						for x := range m.Indices() {
							if !yield(x) {
								return
							}
						}
					})
					if i == len(indices) {
						break
					}
					var answer verdict
					j.ask(t, command{Do: "prepare", Root: root, Prepare: &prepare{DropIndex: indices[i].Name}}, &answer)
					if answer.Error != "" {
						t.Fatal(answer.Error)
					}
					after, tx := made(t, root, m.Version+1)
					p := propose(t)(m.ProposeDropIndex(indices[i].UUID, CommitInfo{UUID: tx.UUID, Naming: vs.Naming, Now: after.Timestamp}))
					checkOwn(t, indices[i].Name, p, after, tx)
				}
			})
		}
	}
}

// checkOwn compares a proposal with the version that a release made: they differ
// in the properties of the transaction and, for older releases, in its inline copy.
func checkOwn(t *testing.T, about string, p *Proposal, after *Manifest, tx Transaction) {
	t.Helper()
	n := mustDecode(t, p.Manifest())
	own := []protowire.Number{21}
	if d := cmp.Diff(likewise(apart(t, after.msg, own...)), likewise(apart(t, n.msg, own...))); d != "" {
		t.Errorf("%s: %s", about, d)
	}
	if d := cmp.Diff(string(after.indexSection), string(n.indexSection)); d != "" {
		t.Errorf("%s: index section: %s", about, d)
	}
	if d := cmp.Diff(apart(t, tx.Raw, 4), apart(t, p.Transaction(), 4)); d != "" {
		t.Errorf("%s: transaction: %s", about, d)
	}
}

// A process that opened the table before our commit goes on writing: its commits
// land on ours, row for row, or are told to try again.
func TestAProcessThatRunsOnCommitsOverOurs(t *testing.T) {
	drop := func(m *Manifest, info CommitInfo) (*Proposal, error) { return m.ProposeDelete([]uint64{2}, "", info) }
	for _, release := range judgedReleases {
		j := newJudge(t, release)
		for _, tc := range []struct {
			about, shape string
			before       func(t *testing.T, root string) // the process opens the table
			commit       func(t *testing.T, root string)
			gone         []any // of the rows that the process saw
			come         []any
		}{
			{"drop", "plain", nil, func(t *testing.T, root string) { commitOn(t, root, drop) }, []any{10., 11., 12., 13., 14.}, nil},
			{"undo", "plain", func(t *testing.T, root string) { commitOn(t, root, drop) }, func(t *testing.T, root string) {
				_, old := readVersion(t, root, 5)
				commitOn(t, root, func(m *Manifest, info CommitInfo) (*Proposal, error) {
					return m.ProposeAddFragments(rawOf(t, old, 2), nil, info)
				})
			}, nil, []any{10., 11., 12., 13., 14.}},
			{"index", "compacted", nil, func(t *testing.T, root string) {
				commitOn(t, root, func(m *Manifest, info CommitInfo) (*Proposal, error) {
					for x := range m.Indices() {
						return m.ProposeDropIndex(x.UUID, info)
					}
					return nil, errors.New("no index")
				})
			}, nil, nil},
		} {
			for _, op := range []string{"add", "delete", "update", "createIndex", "optimize"} {
				t.Run(release+" "+tc.about+" "+op, func(t *testing.T) {
					root := copyTo(t, release+"/"+tc.shape)
					if tc.before != nil {
						tc.before(t, root)
					}
					runOn(t, j, root, op, tc.commit, tc.gone, tc.come)
				})
			}
		}
	}
}

// runOn opens a table, lets us commit, and lets the process write.
func runOn(t *testing.T, j *judge, root, op string, commit func(*testing.T, string), gone, come []any) {
	t.Helper()
	var opened, done struct {
		Error   string
		Version uint64
		Rows    int64
		Keys    []any
	}
	j.ask(t, command{Do: "open", Root: root}, &opened)
	if opened.Error != "" {
		t.Fatal(opened.Error)
	}
	commit(t, root)
	_, ours := readNewest(t, dirStore(root))
	j.ask(t, command{Do: "stale", Op: op}, &done)
	want, ok := minus(opened.Keys, gone)
	if want = append(want, come...); !ok || len(opened.Keys) == 0 {
		t.Fatalf("the process sees %v", opened.Keys)
	}
	if done.Error != "" {
		// Who planned with what has changed is told to plan again: a compaction of the
		// fragment, a new index in the place of the one that is gone.
		planned := op == "optimize" || op == "createIndex" && ours.indexSection == nil
		if !planned || !strings.Contains(strings.ToLower(done.Error), "conflict") {
			t.Errorf("%s", done.Error)
		}
		t.Logf("%.200s", done.Error)
	}
	switch op {
	case "add":
		want = append(want, want[0], want[1])
	case "delete":
		want = want[1:]
	}
	if rest, ok := minus(done.Keys, want); !ok || len(rest) > 0 || done.Rows != int64(len(want)) {
		t.Errorf("%d rows, %v; want %v", done.Rows, done.Keys, want)
	}
	if done.Version < ours.Version || done.Version == ours.Version && done.Error == "" && op != "optimize" {
		t.Errorf("version %d after %d", done.Version, ours.Version)
	}
}

// After optimize() the indices are other ones. Where they say that they do not cover
// a fragment that was dropped before (from Lance 8), it comes back as one that is not
// indexed. Where they still name it, nothing tells whether they hold its rows, and
// the way back is without them.
func TestAnUndoAfterOptimizeIsWhole(t *testing.T) {
	for _, release := range []string{"0.22.3", "0.31.0", newestRelease} {
		t.Run(release, func(t *testing.T) {
			j := newJudge(t, release)
			root := copyTo(t, release+"/scalar")
			before, _ := commitOn(t, root, func(m *Manifest, info CommitInfo) (*Proposal, error) {
				return m.ProposeDelete([]uint64{0}, "", info)
			})
			var answer struct {
				Error string
				Keys  []any
			}
			j.ask(t, command{Do: "open", Root: root}, &answer)
			j.ask(t, command{Do: "stale", Op: "optimize"}, &answer)
			if answer.Error != "" || len(answer.Keys) != 8 {
				t.Fatalf("%s, %v", answer.Error, answer.Keys)
			}
			undo := func(m *Manifest, info CommitInfo) (*Proposal, error) {
				var intact []string
				for x := range before.Indices() {
					intact = append(intact, x.UUID)
				}
				return m.ProposeAddFragments(rawOf(t, before, 0), intact, info)
			}
			vs, m := readNewest(t, dirStore(root))
			info := commitInfo()
			info.Naming = vs.Naming
			_, err := undo(m, info)
			if refused := isRefused(err); refused != (release == "0.22.3") || !refused && err != nil {
				t.Fatalf("with other indices: %v", err)
			}
			for _, id := range uuidsOf(t, m) {
				if err == nil {
					break // they say that they do not cover it
				}
				commitOn(t, root, func(m *Manifest, info CommitInfo) (*Proposal, error) { return m.ProposeDropIndex(id, info) })
			}
			commitOn(t, root, undo)
			var seen verdict
			j.ask(t, command{Do: "judge", Root: root, Old: before.Version}, &seen)
			if n := seen.step(t, "count").Rows; n != 12 || len(seen.step(t, "filter").Keys) != 12 || len(seen.step(t, "scan").Keys) != 12 {
				t.Errorf("%d rows are counted, %s, %s", n, seen.Steps["filter"], seen.Steps["scan"])
			}
			for name := range seen.Steps {
				if s := seen.step(t, name); s.Error != "" {
					t.Errorf("%s: %s", name, s.Error)
				}
			}
		})
	}
}
