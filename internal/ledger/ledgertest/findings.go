package ledgertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

func testHistory(t *testing.T, h Harness) {
	b := open(t, h)
	f := damage("x", 1, reconcile.Missing)
	f.Reason, f.ErrorCode, f.RequestID = reconcile.Ptr("r"), reconcile.Ptr("NoSuchKey"), reconcile.Ptr("req-1")
	f.HTTPStatus, f.Record = reconcile.Ptr(404), reconcile.Ptr("rec-1, rec-2")
	f.ExpectedChecksum, f.ObservedChecksum, f.ObservedSize = reconcile.Ptr("sha256:00"), reconcile.Ptr("sha256:01"), reconcile.Ptr(int64(7))
	f.ColumnsLost, f.ColumnsKept = []string{"a", "b"}, []string{"c"}
	f.PeersAsked, f.PeersHaving, f.BlockedBy = []string{"p"}, []string{"p"}, []string{"over_limit", `a "quoted", {word}`}
	f.ConfirmedAt, f.RecoverableUntil = reconcile.Ptr(at.Add(time.Minute)), reconcile.Ptr(at.Add(time.Hour))
	first := b.pass()
	if sum := b.record(look{pass: first, depth: reconcile.DepthFooter, versions: reconcile.VersionsAll, findings: []reconcile.Finding{f}}); sum != (ledger.TargetSummary{New: 1}) {
		t.Errorf("first sight: %+v", sum)
	}
	seen := b.now()
	got := b.openIDs()[f.FindingID]
	if d := cmp.Diff(f, got.Finding, cmpopts.IgnoreFields(reconcile.Finding{}, "Ref")); d != "" {
		t.Errorf("finding came back otherwise: %s", d)
	}
	if got.TargetURI != targetOf("x").URI || got.Depth != reconcile.DepthFooter || got.Versions != reconcile.VersionsAll || got.SeenCount != 1 ||
		!near(got.FirstSeenAt, seen) || got.FirstPassID != first || got.DamagedSince == nil || got.ResolvedAt != nil || got.Acknowledged {
		t.Errorf("history %+v", got.History)
	}

	h.SetClock(t, 3*time.Hour)
	f.Verdict, f.RowsAtRisk, f.Record = reconcile.Lost, nil, reconcile.Ptr("rec-2")
	second := b.pass()
	if sum := b.record(look{pass: second, findings: []reconcile.Finding{f}}); sum != (ledger.TargetSummary{}) {
		t.Errorf("second sight: %+v", sum)
	}
	now := b.openIDs()[f.FindingID]
	if now.Finding.Verdict != reconcile.Lost || now.Finding.RowsAtRisk != nil || *now.Finding.Record != "rec-2" {
		t.Errorf("the later sight does not stand: %+v", now.Finding)
	}
	if !now.FirstSeenAt.Equal(got.FirstSeenAt) || !near(now.LastSeenAt, seen.Add(3*time.Hour)) || now.SeenCount != 2 || now.FirstPassID != first || now.LastPassID != second {
		t.Errorf("history of the second sight: %+v", now.History)
	}
	if now.Depth != reconcile.DepthFooter || now.Versions != reconcile.VersionsAll {
		t.Errorf("a shallower look made it shallower: %s, %s", now.Depth, now.Versions)
	}
	s, err := b.Sightings(t.Context(), []string{f.FindingID, "ffffffffffffffffffffffffffffffff"})
	if err != nil || len(s) != 1 {
		t.Fatalf("sightings %v, %v", s, err)
	}
	if one := s[f.FindingID]; !one.SeenNamedFor(3*time.Hour-time.Minute, b.now()) || one.SeenNamedFor(4*time.Hour, b.now()) || !one.DamagedFor(2*time.Hour, b.now()) {
		t.Errorf("sighting %+v at %v", one, b.now())
	}
}

func testResolution(t *testing.T, h Harness) {
	b := open(t, h)
	const (
		head, footer, checksum = reconcile.DepthHead, reconcile.DepthFooter, reconcile.DepthChecksum
		current, retained, all = reconcile.VersionsCurrent, reconcile.VersionsRetained, reconcile.VersionsAll
	)
	for i, c := range []struct {
		name            string
		foundDepth      reconcile.Depth
		foundVersions   reconcile.Versions
		depth           reconcile.Depth
		versions        reconcile.Versions
		answer          ledger.Answer
		want            bool
		wantsResolution string
	}{
		{"present at the same depth", head, current, head, current, ledger.Present, true, "present"},
		{"present at a greater depth", head, current, checksum, current, ledger.Present, true, "present"},
		{"a shallow look does not resolve what a deep one found", footer, current, head, current, ledger.Present, false, ""},
		{"nor does one that is less shallow", checksum, current, footer, all, ledger.Present, false, ""},
		{"where the object was seen does not matter to its presence", head, all, head, current, ledger.Present, true, "present"},
		{"no version names it any more", head, current, head, current, ledger.NotNamed, true, "not_named"},
		{"no version names it, whatever the depth", checksum, current, head, retained, ledger.NotNamed, true, "not_named"},
		{"the newest does not name it, but an older one may", head, retained, head, current, ledger.NotNamed, false, ""},
		{"no tag names it, but an older version may", head, all, head, retained, ledger.NotNamed, false, ""},
		{"not looked at", head, current, checksum, all, ledger.Unknown, false, ""},
	} {
		f := damage("x", i, reconcile.Missing)
		b.record(look{pass: b.pass(), depth: c.foundDepth, versions: c.foundVersions, findings: []reconcile.Finding{f}})
		p := b.pass()
		sum := b.record(look{pass: p, depth: c.depth, versions: c.versions, answers: map[string]ledger.Answer{f.FindingID: c.answer}})
		got := b.finding(f.FindingID)
		if (got.ResolvedAt != nil) != c.want || (sum.Resolved == 1) != c.want {
			t.Errorf("%s: resolved at %v, summary %+v", c.name, got.ResolvedAt, sum)
		}
		if c.want && (*got.Resolution != c.wantsResolution || *got.ResolvedPassID != p) {
			t.Errorf("%s: %+v", c.name, got.History)
		}
		if want := (ledger.Look{Depth: c.depth, Versions: c.versions}).Resolves(ledger.Look{Depth: c.foundDepth, Versions: c.foundVersions}, c.answer); want != c.want {
			t.Errorf("%s: the rule says %v", c.name, want)
		}
	}
	// Unanswered findings stay, and are told as carried.
	open := int64(len(b.openIDs()))
	if sum := b.record(look{pass: b.pass()}); sum.Carried != open || open == 0 {
		t.Errorf("%d findings are open, %+v", open, sum)
	}
	// An answer about another target's finding changes nothing.
	other := damage("y", 1, reconcile.Missing)
	if _, err := b.RecordTarget(t.Context(), recordOf("y", look{pass: b.pass(), findings: []reconcile.Finding{other}})); err != nil {
		t.Fatal(err)
	}
	b.record(look{pass: b.pass(), answers: map[string]ledger.Answer{other.FindingID: ledger.Present}})
	if b.finding(other.FindingID).ResolvedAt != nil {
		t.Error("a look at x resolved a finding of y")
	}
}

func testStaleLook(t *testing.T, h Harness) {
	b := open(t, h)
	f := damage("x", 1, reconcile.Missing)
	slow := b.pass()
	h.SetClock(t, time.Hour)
	b.see(f)
	sum := b.record(look{pass: slow, answers: map[string]ledger.Answer{f.FindingID: ledger.Present}})
	if sum.Resolved != 0 || len(b.openIDs()) != 1 {
		t.Errorf("a pass that began before the finding was seen resolved it: %+v", sum)
	}
	// The pass that saw it may see it healed: it looked again after a repair.
	same := b.see(f)
	if sum := b.record(look{pass: same, answers: map[string]ledger.Answer{f.FindingID: ledger.Present}}); sum.Resolved != 1 {
		t.Errorf("the same pass could not resolve it: %+v", sum)
	}
}

// A pass that was held up saw what is healed by now.
func testStaleSight(t *testing.T, h Harness) {
	b := open(t, h)
	f, g := damage("x", 1, reconcile.Missing), damage("x", 2, reconcile.Missing)
	b.see(f)
	slow := b.pass()
	h.SetClock(t, time.Hour)
	b.record(look{pass: b.pass(), answers: map[string]ledger.Answer{f.FindingID: ledger.NotNamed}})
	sum := b.record(look{pass: slow, findings: []reconcile.Finding{f, g}})
	if sum.Stale != 1 || sum.Reopened != 0 || sum.New != 1 || b.finding(f.FindingID).ResolvedAt == nil || b.finding(g.FindingID).ResolvedAt != nil {
		t.Errorf("a pass that was held up: %+v", sum)
	}
	if sum := b.record(look{pass: b.pass(), findings: []reconcile.Finding{f}}); sum.Reopened != 1 || sum.Stale != 0 {
		t.Errorf("a pass that began after: %+v", sum)
	}
	// Under a lock that was lost nothing is recorded.
	lease := b.lock("x")
	h.SetClock(t, 2*time.Hour)
	r := recordOf("x", look{pass: b.pass(), findings: []reconcile.Finding{damage("x", 3, reconcile.Missing)}})
	r.Lease = &lease
	if _, err := b.RecordTarget(t.Context(), r); err != nil {
		t.Errorf("a lease that ran out and that nobody took: %v", err)
	}
	b.lock("x")
	r.Findings = []reconcile.Finding{damage("x", 4, reconcile.Missing)}
	_, err := b.RecordTarget(t.Context(), r)
	wantErr(t, "record after another took over", err, ledger.ErrFenced)
	if open := b.openIDs(); len(open) != 3 {
		t.Errorf("%d findings are open", len(open))
	}
}

func testReopened(t *testing.T, h Harness) {
	b := open(t, h)
	f := damage("x", 1, reconcile.Missing)
	b.record(look{pass: b.pass(), depth: reconcile.DepthChecksum, versions: reconcile.VersionsAll, findings: []reconcile.Finding{f}})
	first := b.finding(f.FindingID)
	if err := b.Acknowledge(t.Context(), f.FindingID, b.now().Add(1000*time.Hour), "known", "bob"); err != nil {
		t.Fatal(err)
	}
	b.record(look{pass: b.pass(), depth: reconcile.DepthChecksum, versions: reconcile.VersionsAll, answers: map[string]ledger.Answer{f.FindingID: ledger.Present}})
	h.SetClock(t, 2*time.Hour)
	sum := b.record(look{pass: b.pass(), findings: []reconcile.Finding{f}})
	got := b.finding(f.FindingID)
	if sum.Reopened != 1 || sum.New != 0 || got.ResolvedAt != nil || got.Resolution != nil || got.SeenCount != 2 || !got.FirstSeenAt.Equal(first.FirstSeenAt) {
		t.Errorf("reopened: %+v, %+v", sum, got.History)
	}
	if got.Acknowledged || got.AcknowledgedUntil != nil || got.AckReason != nil {
		t.Error("new damage is accepted because the old was")
	}
	if got.DamagedSince == nil || !near(*got.DamagedSince, b.now()) {
		t.Errorf("damaged since %v: a drop would count from damage that was healed", got.DamagedSince)
	}
	if got.Depth != reconcile.DepthHead || got.Versions != reconcile.VersionsCurrent {
		t.Errorf("found anew by %s, %s", got.Depth, got.Versions)
	}
}

func testDamagedSince(t *testing.T, h Harness) {
	b := open(t, h)
	f := damage("x", 1, reconcile.Pending)
	b.see(f)
	since := func() *time.Time {
		s, err := b.Sightings(t.Context(), []string{f.FindingID})
		if err != nil {
			t.Fatal(err)
		}
		return s[f.FindingID].DamagedSince
	}
	for i, v := range []reconcile.Verdict{reconcile.Undecided, reconcile.Denied, reconcile.Archived} {
		h.SetClock(t, time.Duration(i+1)*time.Hour)
		f.Verdict = v
		b.see(f)
		if since() != nil {
			t.Errorf("%s counts as damage", v)
		}
	}
	h.SetClock(t, 10*time.Hour)
	f.Verdict = reconcile.Missing
	b.see(f)
	first := since()
	if first == nil || !near(*first, b.now()) {
		t.Fatalf("missing since %v", first)
	}
	for i, v := range []reconcile.Verdict{reconcile.Undecided, reconcile.SizeMismatch, reconcile.Lost} {
		h.SetClock(t, time.Duration(i+11)*time.Hour)
		f.Verdict = v
		b.see(f)
		if s := since(); s == nil || !s.Equal(*first) {
			t.Errorf("after %s damaged since %v, want %v", v, s, first)
		}
	}
	seen := b.finding(f.FindingID).LastSeenAt
	h.SetClock(t, 0) // a clock that is set back
	b.see(f)
	if got := b.finding(f.FindingID); !got.LastSeenAt.Equal(seen) || got.SeenCount != 9 {
		t.Errorf("seen by a clock that was set back: %+v", got.History)
	}
	harmless := damage("x", 2, reconcile.Missing)
	harmless.Ref.Harmless = true
	b.see(harmless)
	h.SetClock(t, 20*time.Hour)
	if got := b.finding(harmless.FindingID); !got.Harmless || got.DamagedSince != nil {
		t.Errorf("harmless: %+v", got.History)
	}
	b.record(look{pass: b.pass(), answers: map[string]ledger.Answer{f.FindingID: ledger.Present}})
	if since() != nil {
		t.Error("what was resolved is still damaged since then")
	}
}

func testBadRecords(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	p := b.pass()
	present := damage("x", 1, reconcile.Present)
	missing := damage("x", 2, reconcile.Missing)
	for name, l := range map[string]look{
		"a finding that is present": {pass: p, findings: []reconcile.Finding{missing, present}},
		"a finding twice":           {pass: p, findings: []reconcile.Finding{missing, missing}},
		"no pass":                   {findings: []reconcile.Finding{missing}},
	} {
		if _, err := b.RecordTarget(ctx, recordOf("x", l)); err == nil {
			t.Errorf("%s was recorded", name)
		}
	}
	_, err := b.RecordTarget(ctx, recordOf("x", look{pass: "never-began"}))
	wantErr(t, "a pass that never began", err, ledger.ErrNotFound)
	if len(b.openIDs()) != 0 {
		t.Error("part of a refused record is there")
	}
	// A superseded finding is the answer that nothing names it.
	b.see(missing)
	missing.Verdict = reconcile.Superseded
	if sum := b.record(look{pass: b.pass(), findings: []reconcile.Finding{missing}}); sum.Resolved != 1 {
		t.Errorf("superseded: %+v", sum)
	}
	fresh := damage("x", 3, reconcile.Superseded)
	if sum := b.record(look{pass: b.pass(), findings: []reconcile.Finding{fresh}}); sum != (ledger.TargetSummary{}) {
		t.Errorf("superseded and never seen: %+v", sum)
	}
}

func testRecordTwice(t *testing.T, h Harness) {
	b := open(t, h)
	f, g := damage("x", 1, reconcile.Missing), damage("x", 2, reconcile.Missing)
	p := b.pass()
	b.record(look{pass: p, findings: []reconcile.Finding{f, g}})
	b.record(look{pass: p, findings: []reconcile.Finding{f, g}})
	if got := b.finding(f.FindingID); got.SeenCount != 1 {
		t.Errorf("one pass saw it %d times", got.SeenCount)
	}
	b.record(look{pass: p, findings: []reconcile.Finding{g}, answers: map[string]ledger.Answer{f.FindingID: ledger.NotNamed}})
	ps, err := b.ListPasses(t.Context(), ledger.Filter{})
	if err != nil || len(ps) != 1 || ps[0].FindingsSeen != 1 || ps[0].FindingsResolved != 1 {
		t.Errorf("after the repair: %+v, %v", ps, err)
	}
	ts, err := b.ListTargets(t.Context(), ledger.Filter{})
	if err != nil || len(ts) != 1 || ts[0].OpenFindings != 1 || ts[0].RowsAtRisk == nil || *ts[0].RowsAtRisk != 90 {
		t.Errorf("target %+v, %v", ts, err)
	}
}

func testHighestVersion(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	x := targetOf("x")
	want := func(v uint64) {
		t.Helper()
		got, err := b.HighestVersion(ctx, x.URI)
		if err != nil || got == nil || *got != v {
			t.Errorf("highest version %v, %v, want %d", got, err, v)
		}
	}
	if got, err := b.HighestVersion(ctx, x.URI); err != nil || got != nil {
		t.Errorf("of a target never met: %v, %v", got, err)
	}
	b.record(look{pass: b.pass(), version: 7})
	want(7)
	b.record(look{pass: b.pass(), version: 5})
	want(7)
	b.record(look{pass: b.pass(), version: 1<<63 | 9}) // a detached version
	want(7)
	b.record(look{pass: b.pass(), version: 8})
	want(8)
	if err := b.AcceptVersion(ctx, x, 3, "alice", "restored from backup"); err != nil {
		t.Fatal(err)
	}
	want(3)
	b.record(look{pass: b.pass(), version: 4})
	want(4)
	if err := b.AcceptVersion(ctx, ledger.Target{URI: x.URI}, 6, "alice", ""); err != nil {
		t.Fatal(err)
	}
	if ts, err := b.ListTargets(ctx, ledger.Filter{}); err != nil || len(ts) != 1 || ts[0].Target != x {
		t.Errorf("names that the caller did not know were forgotten: %+v, %v", ts, err)
	}
	if err := b.AcceptVersion(ctx, x, 0, "alice", ""); err == nil {
		t.Error("version 0 was accepted")
	}
}

func testAcknowledge(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	f := damage("x", 1, reconcile.Missing)
	b.see(f)
	until := b.now().Add(24 * time.Hour)
	if err := b.Acknowledge(ctx, f.FindingID, until, "known", "bob"); err != nil {
		t.Fatal(err)
	}
	b.see(f)
	got := b.openIDs()[f.FindingID]
	if !got.Acknowledged || got.AckReason == nil || *got.AckReason != "known" || *got.AckActor != "bob" || got.AcknowledgedUntil.Sub(until).Abs() > time.Millisecond {
		t.Errorf("acknowledged: %+v", got.History)
	}
	if s, err := b.Sightings(ctx, []string{f.FindingID}); err != nil || !s[f.FindingID].Acknowledged {
		t.Errorf("sighting %+v, %v", s, err)
	}
	h.SetClock(t, 25*time.Hour)
	if got := b.openIDs()[f.FindingID]; got.Acknowledged {
		t.Error("it is accepted for longer than was said")
	}
	if err := b.Acknowledge(ctx, f.FindingID, b.now().Add(time.Hour), "again", "bob"); err != nil {
		t.Fatal(err)
	}
	if err := b.Acknowledge(ctx, f.FindingID, b.now().Add(-time.Hour), "taken back", "bob"); err != nil {
		t.Fatal(err)
	}
	if got := b.openIDs()[f.FindingID]; got.Acknowledged || got.AckReason != nil {
		t.Errorf("taken back: %+v", got.History)
	}
	b.record(look{pass: b.pass(), answers: map[string]ledger.Answer{f.FindingID: ledger.Present}})
	wantErr(t, "what is resolved", b.Acknowledge(ctx, f.FindingID, b.now().Add(time.Hour), "r", "bob"), ledger.ErrNotFound)
	wantErr(t, "what is not there", b.Acknowledge(ctx, "ffffffffffffffffffffffffffffffff", b.now().Add(time.Hour), "r", "bob"), ledger.ErrNotFound)
}

func testRecordRace(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	const passes, n = 6, 40
	ids := make([]string, passes)
	for i := range ids {
		ids[i] = a.pass()
	}
	var wg sync.WaitGroup
	errs := make([]error, passes)
	for i, id := range ids {
		wg.Go(func() {
			fs := make([]reconcile.Finding, n)
			for j := range fs { // in another order each, as maps give them
				fs[j] = damage("x", (j*7+i*13)%n, reconcile.Missing)
			}
			_, errs[i] = []*bundle{a, b}[i%2].RecordTarget(context.WithoutCancel(t.Context()), recordOf("x", look{pass: id, findings: fs}))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	open := a.openIDs()
	for _, f := range open {
		if f.SeenCount != passes {
			t.Fatalf("finding seen by %d passes, want %d", f.SeenCount, passes)
		}
	}
	if len(open) != n {
		t.Errorf("%d findings, want %d", len(open), n)
	}
}

func testInterruptedRecord(t *testing.T, h Harness) {
	b := open(t, h)
	const n = 1000
	fs := ManyFindings("", n).Findings
	whole := 0
	for i := range 8 {
		p := b.pass()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*4*time.Millisecond)
		_, err := b.RecordTarget(ctx, recordOf("x", look{pass: p, findings: fs}))
		cancel()
		ps, listErr := b.ListPasses(t.Context(), ledger.Filter{Limit: 1})
		if listErr != nil {
			t.Fatal(listErr)
		}
		switch seen := ps[0].FindingsSeen; {
		case err == nil && seen != n:
			t.Errorf("recorded %d of %d", seen, n)
		case seen != 0 && seen != n:
			t.Errorf("an interrupted record left %d of %d (%v)", seen, n, err)
		case seen == n:
			whole++
		}
	}
	t.Logf("%d of 8 were whole", whole)
	if open := len(b.openIDs()); open != 0 && open != n {
		t.Errorf("%d findings are open", open)
	}
	if fs, err := b.ListFindings(t.Context(), ledger.Filter{Limit: 3}); err != nil || whole > 0 && len(fs) != 3 {
		t.Errorf("the ledger is not usable afterwards: %d, %v", len(fs), err)
	}
}
