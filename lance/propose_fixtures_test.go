package lance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// fixtureVersion is one manifest of a fixture.
type fixtureVersion struct {
	where  string
	naming Naming
	m      *Manifest
}

// everyVersion reads all manifests of all fixtures, branches and generations of a
// MemWAL included, by dataset root and ascending version.
func everyVersion(t testing.TB) (all [][]fixtureVersion) {
	t.Helper()
	var roots []string
	err := filepath.WalkDir(fixtures, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && filepath.ToSlash(p) == columnFixtures {
			return filepath.SkipDir // one version each; an undo is refused where data files hold dropped columns
		}
		if err == nil && e.IsDir() && e.Name() == "_versions" {
			roots = append(roots, filepath.Dir(p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range roots {
		vs, err := ListVersions(context.Background(), dirStore(root))
		if err != nil {
			t.Fatal(err)
		}
		var versions []fixtureVersion
		for _, e := range slices.Backward(vs.Entries) {
			m, err := ReadManifest(context.Background(), dirStore(root), e)
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, fixtureVersion{filepath.Join(root, e.Name), vs.Naming, m})
		}
		all = append(all, versions)
	}
	return all
}

// transactionOf is the transaction of a version: the file's, which every release writes.
func transactionOf(t testing.TB, v fixtureVersion) (Transaction, bool) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(v.where)), "_transactions", v.m.TransactionFile))
	if v.m.TransactionFile == "" || errors.Is(err, fs.ErrNotExist) {
		return Transaction{}, false
	}
	if err != nil {
		t.Fatal(err)
	}
	tx, err := DecodeTransaction(b)
	if err != nil {
		t.Fatal(err)
	}
	return tx, true
}

// The judge of every byte: where the library itself deleted whole fragments, a
// proposal made from the version before is the library's next version. Two things
// differ: the properties, and the inline copy that older releases do not write.
func TestADeleteIsTheLibrarysOwn(t *testing.T) {
	t.Parallel()
	releases := map[string]int{}
	for _, versions := range everyVersion(t) {
		for i := 1; i < len(versions); i++ {
			before, after := versions[i-1], versions[i]
			tx, ok := transactionOf(t, after)
			if !ok || tx.Operation != OpDelete || len(tx.UpdatedFragmentIDs) > 0 || len(tx.DeletedFragmentIDs) == 0 {
				continue
			}
			info := CommitInfo{UUID: tx.UUID, Naming: after.naming, Now: after.m.Timestamp}
			p := propose(t)(before.m.ProposeDelete(tx.DeletedFragmentIDs, tx.Predicate, info))
			n := mustDecode(t, p.Manifest())
			var inline []protowire.Number
			if after.m.txnSection == nil {
				inline = []protowire.Number{21}
			}
			if d := cmp.Diff(likewise(apart(t, after.m.msg)), likewise(apart(t, n.msg, inline...))); d != "" {
				t.Errorf("%s: %s", after.where, d)
			}
			if d := cmp.Diff(tx.Raw, pb(split(apart(t, p.Transaction(), 4))...)); d != "" {
				t.Errorf("%s: %s", after.where, d)
			}
			if p.ManifestName != "_versions/"+filepath.Base(after.where) || p.TransactionName != "_transactions/"+after.m.TransactionFile {
				t.Errorf("%s: %s, %s", after.where, p.ManifestName, p.TransactionName)
			}
			releases[after.m.WriterVersion.Version]++
		}
	}
	for _, lance := range []string{"0.17.0", "0.39.0", "12.0.0"} {
		if releases[lance] == 0 {
			t.Errorf("no whole fragment was deleted by Lance %s: %v", lance, releases)
		}
	}
}

func split(raws []string) (out [][]byte) {
	for _, r := range raws {
		out = append(out, []byte(r))
	}
	return out
}

// Each fragment, and all of them, can be dropped from every version of every
// fixture and put back, and each index entry can be dropped.
func TestEveryFixtureCanBeRepairedAndUndone(t *testing.T) {
	t.Parallel()
	drops, indices := 0, 0
	for _, versions := range everyVersion(t) {
		for _, v := range versions {
			info := CommitInfo{UUID: commitUUID, Naming: v.naming, Now: v.m.Timestamp.Add(1)}
			var all []uint64
			var intact []string
			for f := range v.m.Fragments() {
				all = append(all, f.ID)
			}
			for x := range v.m.Indices() {
				intact = append(intact, x.UUID)
			}
			sets := [][]uint64{all}
			for _, id := range all {
				sets = append(sets, []uint64{id})
			}
			for _, ids := range sets {
				if len(ids) == 0 {
					continue
				}
				drops++
				dropped := mustDecode(t, propose(t)(v.m.ProposeDelete(ids, "lost", info)).Manifest())
				checkDropped(t, v.where, v.m, dropped, ids)
				back := mustDecode(t, propose(t)(dropped.ProposeAddFragments(rawOf(t, v.m, ids...), intact, info)).Manifest())
				own := []protowire.Number{3, 4, 7, 8, 9, 10, 12, 21}
				if v.m.MaxFragmentID == nil {
					own = append(own, 11)
				}
				if d := cmp.Diff(apart(t, v.m.msg, own...), apart(t, back.msg, own...)); d != "" {
					t.Errorf("%s: undo of %v: %s", v.where, ids, d)
				}
				if flags := v.m.ReaderFlags &^ flagNoTxnFiles; back.ReaderFlags != flags {
					t.Errorf("%s: flags %d became %d", v.where, flags, back.ReaderFlags)
				}
			}
			for x := range v.m.Indices() {
				p, err := v.m.ProposeDropIndex(x.UUID, info)
				if x.Name == MemWALIndex {
					if !isRefused(err) {
						t.Errorf("%s: the MemWAL's entry: %v", v.where, err)
					}
					continue
				}
				indices++
				checkIndexDropped(t, v, x, propose(t)(p, err))
			}
		}
	}
	if drops < 800 || indices < 60 {
		t.Errorf("only %d drops and %d indices", drops, indices)
	}
}

func checkDropped(t *testing.T, where string, old, dropped *Manifest, ids []uint64) {
	t.Helper()
	var want []string
	for b := range old.fragmentMessages() {
		if id, _ := fragmentID(b); !slices.Contains(ids, id) {
			want = append(want, string(b))
		}
	}
	var got []string
	for b := range dropped.fragmentMessages() {
		got = append(got, string(b))
	}
	if !slices.Equal(want, got) {
		t.Errorf("%s: without %v: %d fragments", where, ids, len(got))
	}
	if string(old.indexSection) != string(dropped.indexSection) || (old.indexOffset == nil) != (dropped.indexOffset == nil) || old.indexOffset != nil && *old.indexOffset != *dropped.indexOffset {
		t.Errorf("%s: the index section changed", where)
	}
}

func checkIndexDropped(t *testing.T, v fixtureVersion, x Index, p *Proposal) {
	t.Helper()
	n := mustDecode(t, p.Manifest())
	var want, got []string
	for y := range v.m.Indices() {
		if y.UUID != x.UUID {
			want = append(want, string(y.Raw))
		}
	}
	for y := range n.Indices() {
		got = append(got, string(y.Raw))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: without %s: %s", v.where, x.Name, d)
	}
	if d := cmp.Diff(only(t, v.m.msg, 1, 2), only(t, n.msg, 1, 2)); d != "" {
		t.Errorf("%s: without %s: %s", v.where, x.Name, d)
	}
}
