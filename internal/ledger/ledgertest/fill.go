package ledgertest

import (
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Fill gives an empty ledger a little of everything:
//
//	first pass   x of rocketkeep: data/1, /2 and /3 missing; y of archive: data/1 cut short
//	repairs      x: fragments 3 and 5 dropped, 100 rows, because a task failed; y: refused
//	second pass  x: 1 and 2 are resolved, 3 persists, 4 is new; y is not looked at
//	beside       y cools down after 3 failed checks; x's finding 3 is acknowledged; a
//	             handed-in failure, a probe, a failed fetch, a checkpoint and a lock
//
// It returns the ids of the two passes.
func Fill(t testing.TB, l ledger.Ledger) (first, second string) {
	t.Helper()
	b := &bundle{Ledger: l, t: t}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	end := func(pass string, dropped int64) {
		t.Helper()
		must(b.FinishPass(ctx, reconcile.Pass{PassID: pass, Exit: reconcile.Exit{Code: 3, Name: "divergence"}, Totals: reconcile.Totals{
			Targets: 2, TargetsByState: map[reconcile.State]int64{reconcile.StateDiverged: 2}, RowsAtRisk: 90, RowsDropped: dropped}}))
	}
	first = b.pass()
	b.record(look{pass: first, findings: []reconcile.Finding{damage("x", 1, reconcile.Missing), damage("x", 2, reconcile.Missing), damage("x", 3, reconcile.Missing)}})
	cut := damage("y", 1, reconcile.SizeMismatch)
	cut.ObservedSize = reconcile.Ptr(int64(17))
	y := recordOf("y", look{pass: first, findings: []reconcile.Finding{cut}})
	y.Target.Store = "archive"
	_, err := b.RecordTarget(ctx, y)
	must(err)

	lease := b.lock("x")
	r := drop("x")
	r.PassID, r.Trigger, r.TriggerError = first, ledger.TriggerFailure, reconcile.Ptr("Not found: x.rollout.lance/data/3.lance")
	b.intend(lease, r)
	must(b.Settle(ctx, lease, r.RepairID, applied(8)))
	must(b.Verified(ctx, lease, r.RepairID))
	refused := drop("y")
	refused.PassID, refused.Where.Store, refused.State, refused.Error = first, "archive", ledger.StateRefused, reconcile.Ptr("over_limit")
	must(b.Note(ctx, refused))
	for range 3 {
		fail(b, ledger.KindCheck, "y")
	}
	end(first, 100)

	second = b.pass()
	b.record(look{pass: second, version: 8, findings: []reconcile.Finding{damage("x", 3, reconcile.Missing), damage("x", 4, reconcile.Missing)},
		answers: map[string]ledger.Answer{damage("x", 1, reconcile.Missing).FindingID: ledger.NotNamed, damage("x", 2, reconcile.Missing).FindingID: ledger.Present}})
	end(second, 0)
	must(b.Acknowledge(ctx, damage("x", 3, reconcile.Missing).FindingID, b.now().Add(time.Hour), "known since the move", "bob"))
	must(b.AddFailure(ctx, "compact", "x", "Not found: x.rollout.lance/data/4.lance"))
	must(b.PutProbe(ctx, ledger.Probe{RootURI: "s3://bucket", Name: ledger.ProbeConditionalPut, Passed: true, Host: "host1", ToolVersion: "test"}))
	must(b.SaveCheckpoint(ctx, second, targetOf("blobs").URI, ledger.Checkpoint{Position: "k", SourceID: "q", References: 3, Checked: 3, Present: 2, Suspects: []string{"j"}}))
	_, err = b.RefetchFailed(ctx, ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: cut.FindingID, Target: y.Target.URI, PeersSaidNo: []string{"dr"}, Text: "404"})
	must(err)
	return first, second
}
