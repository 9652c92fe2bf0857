package blobs_test

import (
	"slices"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// An older version of a blob without a recorded checksum is not promised: two peers that
// agree may bring the blob back where nothing is there.
func TestAVersionThatNothingProvesIsNotPromised(t *testing.T) {
	t.Parallel()
	none, unproven := []string{}, []string{reconcile.BlockedReplaceUnproven}
	for _, c := range []struct {
		name     string
		verdict  reconcile.Verdict
		checksum string
		having   []string
		action   reconcile.Action
		blocked  []string
	}{
		{"a checksum proves it", reconcile.Recoverable, "md5:d41d8cd98f00b204e9800998ecf8427e", nil, reconcile.ActionRestore, none},
		{"nothing does", reconcile.Recoverable, "", nil, reconcile.ActionRestore, unproven},
		{"nor does a peer", reconcile.Recoverable, "", []string{"p"}, reconcile.ActionRestore, unproven},
		{"two peers may", reconcile.Recoverable, "", []string{"p", "q"}, reconcile.ActionRefetch, none},
		{"and replace nothing", reconcile.SizeMismatch, "", []string{"p", "q"}, reconcile.ActionRestore, unproven},
	} {
		col := collection(&list{})
		f := reconcile.NewFinding(col.Target(), reconcile.Reference{Role: reconcile.RoleBlob, Path: "k", Location: s3root.Join("k"), Base: s3root, Size: 3, Checksum: c.checksum}, today)
		f.Verdict, f.Restorable, f.PeersHaving = c.verdict, true, c.having
		fs := []reconcile.Finding{f}
		acts, err := col.Propose(t.Context(), fs, reconcile.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		if fs[0].ProposedAction != c.action || !slices.Equal(fs[0].BlockedBy, c.blocked) || (len(acts) > 0) != (len(c.blocked) == 0) {
			t.Errorf("%s: %s blocked by %q, planned %+v", c.name, fs[0].ProposedAction, fs[0].BlockedBy, acts)
		}
	}
}
