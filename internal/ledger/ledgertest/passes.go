package ledgertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

func testPasses(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	before := b.now()
	p := reconcile.Pass{
		PassID: "0190-a", Mode: "full", ToolVersion: "1.2.3", Actor: "alice", Host: "host1", Reason: reconcile.Ptr("incident 7"),
		Scope: reconcile.Scope{Versions: reconcile.VersionsRetained, Depth: reconcile.DepthFooter, Roles: []reconcile.Role{reconcile.RoleData}, TargetsFilter: []string{"x*"}},
	}
	began, err := b.BeginPass(ctx, p)
	if err != nil || began.Before(before) {
		t.Fatalf("begin pass: %v at %v", err, began)
	}
	again, err := b.BeginPass(ctx, p)
	if err != nil || !again.Equal(began) {
		t.Errorf("begun again at %v (%v), first at %v", again, err, began)
	}
	ps, err := b.ListPasses(ctx, ledger.Filter{})
	if err != nil || len(ps) != 1 || ps[0].FinishedAt != nil || ps[0].Targets != nil || ps[0].ExitCode != nil {
		t.Fatalf("a running pass: %+v, %v", ps, err)
	}
	p.Exit = reconcile.Exit{Code: 3, Name: "divergence"}
	p.Coverage = reconcile.Coverage{References: 10, Checked: 9, Ratio: reconcile.Ptr(0.9)}
	p.Totals = reconcile.Totals{Targets: 3, TargetsByState: map[reconcile.State]int64{reconcile.StateClean: 1, reconcile.StateDiverged: 2},
		References: 10, Checked: 9, RowsAtRisk: 90, Verdicts: map[reconcile.Verdict]int64{reconcile.Missing: 1, reconcile.Present: 8}}
	p.ReportURI = reconcile.Ptr("s3://reports/")
	if err := b.FinishPass(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := b.FinishPass(ctx, p); err != nil {
		t.Errorf("finish again: %v", err)
	}
	ps, err = b.ListPasses(ctx, ledger.Filter{})
	if err != nil || len(ps) != 1 || ps[0].FinishedAt == nil {
		t.Fatalf("a finished pass: %+v, %v", ps, err)
	}
	want := ledger.PassRow{PassID: "0190-a", Mode: "full", ToolVersion: "1.2.3", Actor: "alice", Host: "host1", Reason: p.Reason, StartedAt: began, FinishedAt: ps[0].FinishedAt,
		ExitCode: reconcile.Ptr(int64(3)), ExitName: reconcile.Ptr("divergence"), ScopeVersions: "retained", ScopeDepth: "footer", CoverageRatio: reconcile.Ptr(0.9),
		Targets: reconcile.Ptr(int64(3)), Checked: reconcile.Ptr(int64(9)), RowsAtRisk: reconcile.Ptr(int64(90)), RowsDropped: reconcile.Ptr(int64(0)), ReportURI: p.ReportURI}
	if d := cmp.Diff(want, ps[0]); d != "" {
		t.Error(d)
	}
	p.Totals.Targets = 99
	if err := b.FinishPass(ctx, p); err == nil {
		t.Error("totals that do not add up were taken")
	}
	wantErr(t, "finish what never began", b.FinishPass(ctx, reconcile.Pass{PassID: "nobody"}), ledger.ErrNotFound)
	if _, err := b.BeginPass(ctx, reconcile.Pass{}); err == nil {
		t.Error("a pass without an identity began")
	}
}

// ManyFindings is the record of a pass that found n objects of one target missing.
func ManyFindings(pass string, n int) ledger.TargetRecord {
	fs := make([]reconcile.Finding, n)
	for i := range fs {
		fs[i] = damage("x", i, reconcile.Missing)
	}
	return recordOf("x", look{pass: pass, findings: fs})
}

// Record measures how long n new findings of one target take to record, and then to
// record again and to resolve.
func Record(t testing.TB, l ledger.Ledger, n int) (first, again, resolved time.Duration) {
	b := &bundle{Ledger: l, t: t}
	fs := ManyFindings("", n).Findings
	answers := make(map[string]ledger.Answer, n)
	for _, f := range fs {
		answers[f.FindingID] = ledger.Present
	}
	timed := func(l look, want func(ledger.TargetSummary) int64) time.Duration {
		l.pass = b.pass()
		start := time.Now()
		sum := b.record(l)
		d := time.Since(start)
		if got := want(sum); got != int64(n) {
			t.Fatalf("recorded %d of %d: %+v", got, n, sum)
		}
		return d
	}
	first = timed(look{findings: fs}, func(s ledger.TargetSummary) int64 { return s.New })
	again = timed(look{findings: fs}, func(s ledger.TargetSummary) int64 { return int64(n) - s.New - s.Reopened })
	resolved = timed(look{answers: answers}, func(s ledger.TargetSummary) int64 { return s.Resolved })
	t.Logf("%d findings: new %v, again %v, resolved %v", n, first, again, resolved)
	return first, again, resolved
}

// RecordClean records n targets in which all is well, in one pass: what most of a
// fleet costs.
func RecordClean(t testing.TB, l ledger.Ledger, n int) {
	b := &bundle{Ledger: l, t: t}
	p := b.pass()
	for i := range n {
		if _, err := b.RecordTarget(t.Context(), recordOf(fmt.Sprint("t", i), look{pass: p})); err != nil {
			t.Fatalf("record target: %v", err)
		}
	}
}
