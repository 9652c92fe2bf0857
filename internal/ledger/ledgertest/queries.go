package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

func testIntake(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	pending := func() []ledger.TaskFailure {
		t.Helper()
		fs, err := b.PendingFailures(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fs
	}
	// What others do is a plain INSERT.
	insert := func(kind, target, text string) {
		t.Helper()
		if err := h.Exec(ctx, fmt.Sprintf("INSERT INTO reconcile.task_failures (kind, target, error) VALUES ('%s', '%s', '%s')", kind, target, text)); err != nil {
			t.Fatal(err)
		}
	}
	insert("compact", "x", "Not found: x/data/1.lance")
	h.SetClock(t, time.Hour)
	insert("compact", "x", "Not found: x/data/1.lance")
	if err := b.AddFailure(ctx, "compact", "x", "Not found: x/data/1.lance"); err != nil {
		t.Fatal(err)
	}
	insert("compact", "x", "Not found: x/data/2.lance")
	insert("merge_wal", "x", "Not found: x/data/1.lance")
	insert("compact", "generic:y", "Not found: x/data/1.lance")
	fs := pending()
	if len(fs) != 4 || fs[0].SeenCount != 3 || fs[0].Kind != "compact" || fs[0].Target != "x" || fs[0].Error != "Not found: x/data/1.lance" || fs[1].SeenCount != 1 {
		t.Fatalf("pending %+v", fs)
	}
	if d := fs[0].LastSeenAt.Sub(fs[0].FirstSeenAt); d < 59*time.Minute || !near(fs[0].LastSeenAt, b.now()) {
		t.Errorf("first seen %v, last %v", fs[0].FirstSeenAt, fs[0].LastSeenAt)
	}
	h.SetClock(t, 2*time.Hour)
	insert("compact", "x", "Not found: x/data/1.lance")
	if some, err := b.PendingFailures(ctx, 2); err != nil || len(some) != 2 || some[0].ID != fs[0].ID || some[0].SeenCount != 4 || some[1].ID != fs[3].ID {
		t.Errorf("the two that were handed in last: %+v, %v", some, err)
	}
	fs = pending()
	// It fails again while a pass deals with it: that news stays open.
	dropped := ledger.Handling{PassID: "pass-1", RepairID: "repair-1", Note: "dropped"}
	insert("compact", "x", "Not found: x/data/1.lance")
	if done, err := b.HandleFailure(ctx, fs[0], dropped); err != nil || done {
		t.Errorf("closed over a failure that nobody looked at: %v, %v", done, err)
	}
	again := pending()[0]
	for range 2 { // the second answers a lost answer
		if done, err := b.HandleFailure(ctx, again, dropped); err != nil || !done {
			t.Errorf("handled: %v, %v", done, err)
		}
	}
	if done, err := b.HandleFailure(ctx, fs[1], ledger.Handling{Note: "nothing is missing"}); err != nil || !done {
		t.Errorf("handled without a repair: %v, %v", done, err)
	}
	if fs := pending(); len(fs) != 2 {
		t.Errorf("pending after: %+v", fs)
	}
	// After it was handled the same text is news.
	insert("compact", "x", "Not found: x/data/1.lance")
	fs = pending()
	if len(fs) != 3 || fs[2].SeenCount != 1 || fs[2].ID == again.ID {
		t.Errorf("failed anew: %+v", fs)
	}
	// Long texts are one failure when what is kept of them is the same.
	long := strings.Repeat("e", 70_000)
	insert("long", "x", long)
	insert("long", "x", long+"more")
	fs = pending()
	if last := fs[len(fs)-1]; last.SeenCount != 2 || len(last.Error) != 65536 {
		t.Errorf("a long text: %d times, %d bytes", last.SeenCount, len(last.Error))
	}
	// A clock that is set back does not keep a failure out.
	h.SetClock(t, -time.Hour)
	insert("compact", "x", "Not found: x/data/1.lance")
	if fs = pending(); fs[2].SeenCount != 2 {
		t.Errorf("counted by a clock that was set back: %+v", fs[2])
	}
	for _, bad := range [][3]string{{"", "x", "e"}, {"k", strings.Repeat("x", 5000), "e"}, {"k", "x", ""}} {
		if err := b.AddFailure(ctx, bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func testFailureLists(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	add := func(kind, target, text string) {
		t.Helper()
		if err := b.AddFailure(ctx, kind, target, text); err != nil {
			t.Fatal(err)
		}
	}
	add("compact", "generic:x", "Not found: x.generic.lance/data/1.lance")
	h.SetClock(t, time.Hour)
	since := b.now()
	add("scan", "y", "e")
	h.SetClock(t, 2*time.Hour)
	// A text may be all that tells of what it speaks; a plain INSERT need not name the column.
	if err := h.Exec(ctx, "INSERT INTO reconcile.task_failures (kind, error) VALUES ('scan', 'Not found: z.rollout.lance/data/1.lance')"); err != nil {
		t.Fatal(err)
	}
	add("scan", "", "Not found: z.rollout.lance/data/1.lance")
	list := func(f ledger.Filter) []string {
		t.Helper()
		fs, err := b.ListFailures(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		out := []string{}
		for _, f := range fs {
			out = append(out, fmt.Sprintf("%s %q %s %d", f.Kind, f.Target, f.State, f.SeenCount))
		}
		return out
	}
	x, y, z := `compact "generic:x" open 1`, `scan "y" open 1`, `scan "" open 2`
	for _, tt := range []struct {
		name   string
		filter ledger.Filter
		want   []string
	}{
		{"all, the newest first", ledger.Filter{}, []string{z, y, x}},
		{"by target", ledger.Filter{Targets: []string{"generic:*", "y"}}, []string{y, x}},
		{"since", ledger.Filter{Since: since}, []string{z, y}},
		{"open", ledger.Filter{States: []string{ledger.FailureOpen}}, []string{z, y, x}},
		{"handled", ledger.Filter{States: []string{ledger.FailureHandled}}, []string{}},
		{"some", ledger.Filter{Limit: 1}, []string{z}},
	} {
		if d := cmp.Diff(tt.want, list(tt.filter)); d != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, d)
		}
	}
	if _, err := b.ListFailures(ctx, ledger.Filter{Targets: []string{"["}}); !errors.Is(err, ledger.ErrBadPattern) {
		t.Errorf("a bad pattern: %v", err)
	}
	fs, err := b.ListFailures(ctx, ledger.Filter{Targets: []string{"generic:x"}})
	if err != nil || len(fs) != 1 {
		t.Fatalf("%+v, %v", fs, err)
	}
	if fs[0].HandledAt != nil || fs[0].HandledPassID != nil || fs[0].HandledRepairID != nil || fs[0].HandledNote != nil {
		t.Errorf("an open one says that it is handled: %+v", fs[0])
	}
	if done, err := b.HandleFailure(ctx, fs[0], ledger.Handling{PassID: "p", RepairID: "r", Note: "n"}); err != nil || !done {
		t.Fatalf("handled: %v, %v", done, err)
	}
	fs, err = b.ListFailures(ctx, ledger.Filter{States: []string{ledger.FailureHandled}})
	if err != nil || len(fs) != 1 || !near(*fs[0].HandledAt, b.now()) || *fs[0].HandledPassID != "p" || *fs[0].HandledRepairID != "r" || *fs[0].HandledNote != "n" {
		t.Errorf("handled: %+v, %v", fs, err)
	}
	// What was handled just now was touched just now.
	if d := cmp.Diff([]string{`compact "generic:x" handled 1`, z, y}, list(ledger.Filter{})); d != "" {
		t.Errorf("after (-want +got)\n%s", d)
	}
}

func testIntakeRace(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	const n = 16
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = []*bundle{a, b}[i%2].AddFailure(t.Context(), "compact", "x", "same") })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if fs, err := a.PendingFailures(t.Context(), 0); err != nil || len(fs) != 1 || fs[0].SeenCount != n {
		t.Errorf("pending %+v, %v", fs, err)
	}
}

func testProbes(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	get := func() *ledger.Probe {
		t.Helper()
		p, err := b.GetProbe(ctx, "s3://bucket", ledger.ProbeConditionalPut, ledger.ProbeLifetime)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := get(); p != nil {
		t.Errorf("before any probe: %+v", p)
	}
	put := ledger.Probe{RootURI: "s3://bucket", Name: ledger.ProbeConditionalPut, Passed: true, Host: "host1", ToolVersion: "1"}
	if err := b.PutProbe(ctx, put); err != nil {
		t.Fatal(err)
	}
	if p := get(); p == nil || !p.Passed || p.Host != "host1" || p.Detail != "" || !near(p.ProbedAt, b.now()) {
		t.Errorf("probe %+v", p)
	}
	h.SetClock(t, 23*time.Hour)
	if get() == nil {
		t.Error("forgotten within a day")
	}
	h.SetClock(t, 25*time.Hour)
	if get() != nil {
		t.Error("kept for longer than a day")
	}
	put.Passed, put.Detail = false, "200, then 200"
	if err := b.PutProbe(ctx, put); err != nil {
		t.Fatal(err)
	}
	if p := get(); p == nil || p.Passed || p.Detail != "200, then 200" {
		t.Errorf("probe %+v", p)
	}
}

func testLists(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	start := b.now()
	// Three targets a day apart, each with two findings, a repair and a failure.
	for i, name := range []string{"exp-1", "exp-2", "other"} {
		h.SetClock(t, time.Duration(i)*24*time.Hour)
		p := b.pass()
		fs := []reconcile.Finding{damage(name, 1, reconcile.Missing), damage(name, 2, reconcile.Pending)}
		if _, err := b.RecordTarget(ctx, recordOf(name, look{pass: p, findings: fs})); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			if err := b.FinishPass(ctx, reconcile.Pass{PassID: p, Exit: reconcile.Exit{Code: 3, Name: "divergence"}}); err != nil {
				t.Fatal(err)
			}
		}
		b.intend(b.lock(name), drop(name))
		for range i + 2 {
			fail(b, ledger.KindRepair, name)
		}
	}
	if err := b.Acknowledge(ctx, damage("exp-1", 1, reconcile.Missing).FindingID, b.now().Add(time.Hour), "r", "a"); err != nil {
		t.Fatal(err)
	}
	p := b.pass()
	if _, err := b.RecordTarget(ctx, recordOf("exp-2", look{pass: p, answers: map[string]ledger.Answer{damage("exp-2", 1, reconcile.Missing).FindingID: ledger.Present}})); err != nil {
		t.Fatal(err)
	}
	day := func(n float64) time.Time { return start.Add(time.Duration(n * 24 * float64(time.Hour))) }
	for _, c := range []struct {
		list string
		f    ledger.Filter
		want string
	}{
		{"findings", ledger.Filter{Targets: []string{"exp-*"}, States: []string{"open"}}, "exp-1 1,exp-1 2,exp-2 2"},
		{"findings", ledger.Filter{States: []string{"resolved"}}, "exp-2 1"},
		{"findings", ledger.Filter{States: []string{"acknowledged"}}, "exp-1 1"},
		{"findings", ledger.Filter{States: []string{"missing", "resolved"}, Targets: []string{"*-1", "exp-2"}}, "exp-2 1,exp-1 1"},
		{"findings", ledger.Filter{States: []string{"pending"}, Since: day(0.5)}, "exp-2 2,other 2"},
		{"findings", ledger.Filter{Targets: []string{"rocketkeep/exp-1"}}, "exp-1 1,exp-1 2"},
		{"findings", ledger.Filter{Targets: []string{"s3://*exp-1.rollout.lance"}}, "exp-1 1,exp-1 2"},
		{"findings", ledger.Filter{Targets: []string{"nothing"}}, ""},
		{"repairs", ledger.Filter{}, "other,exp-2,exp-1"},
		{"repairs", ledger.Filter{Limit: 2}, "other,exp-2"},
		{"repairs", ledger.Filter{Targets: []string{"exp*"}, Limit: 1}, "exp-2"},
		{"repairs", ledger.Filter{Since: day(1.5)}, "other"},
		{"repairs", ledger.Filter{States: []string{"applied"}}, ""},
		{"cooldowns", ledger.Filter{}, "other,exp-2,exp-1"},
		{"cooldowns", ledger.Filter{States: []string{"active"}}, "other"},
		{"cooldowns", ledger.Filter{States: []string{"inactive"}}, "exp-2,exp-1"},
		{"passes", ledger.Filter{}, "48,48,24,0"},
		{"passes", ledger.Filter{States: []string{"running"}, Limit: 1}, "48"},
		{"passes", ledger.Filter{States: []string{"divergence"}}, "24,0"},
		{"passes", ledger.Filter{Targets: []string{"exp-2"}}, "48,24"},
		{"passes", ledger.Filter{Since: day(0.5), Limit: 5}, "48,48,24"},
		{"targets", ledger.Filter{}, "exp-2,other,exp-1"},
		{"targets", ledger.Filter{States: []string{"clean"}}, "exp-2"},
		{"targets", ledger.Filter{States: []string{"diverged"}, Limit: 1}, "other"},
		{"targets", ledger.Filter{Since: day(1.5), Targets: []string{"o*"}}, "other"},
	} {
		got := b.names(c.list, c.f, start)
		if c.list == "findings" { // at one time in no order that matters
			got = sorted(got)
		}
		want := strings.Split(c.want, ",")
		if c.want == "" {
			want = nil
		}
		if c.list == "findings" {
			want = sorted(want)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s %+v: %s", c.list, c.f, d)
		}
	}
}

// names lists what a filter chooses: targets by name, with the fragment for findings,
// and passes by their hours after start.
func (b *bundle) names(list string, f ledger.Filter, start time.Time) (out []string) {
	b.t.Helper()
	ctx, t := b.t.Context(), b.t
	var err error
	switch list {
	case "findings":
		var fs []ledger.Finding
		fs, err = b.ListFindings(ctx, f)
		for _, r := range fs {
			out = append(out, fmt.Sprint(r.Finding.Target, " ", *r.Finding.FragmentID))
		}
	case "repairs":
		var rs []ledger.Repair
		rs, err = b.ListRepairs(ctx, f)
		for _, r := range rs {
			if len(r.Fragments) != 2 || r.Messages != nil {
				t.Errorf("fragments %+v, messages %v", r.Fragments, r.Messages)
			}
			out = append(out, r.Target)
		}
	case "cooldowns":
		var cs []ledger.Cooldown
		cs, err = b.ListCooldowns(ctx, f)
		for _, c := range cs {
			out = append(out, *c.Target)
		}
	case "passes":
		var ps []ledger.PassRow
		ps, err = b.ListPasses(ctx, f)
		for _, p := range ps {
			out = append(out, fmt.Sprint(int64(p.StartedAt.Sub(start).Round(time.Hour)/time.Hour)))
		}
	case "targets":
		var ts []ledger.TargetHealth
		ts, err = b.ListTargets(ctx, f)
		for _, r := range ts {
			out = append(out, r.Name)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sorted(ss []string) []string {
	slices.Sort(ss)
	return ss
}

func testStatus(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	if s, err := b.Status(ctx); err != nil || s.Targets != 0 || s.LastPass != nil || len(s.Locked) != 0 {
		t.Fatalf("of an empty ledger: %+v, %v", s, err)
	}
	// Two objects of one fragment put the same rows at risk.
	one, two, three := damage("x", 1, reconcile.Missing), damage("x", 2, reconcile.SizeMismatch), damage("x", 3, reconcile.Undecided)
	two.FragmentID = one.FragmentID
	harmless := damage("x", 4, reconcile.Missing)
	harmless.Ref.Harmless = true
	clean := finished(b, 3)
	h.SetClock(t, 20*time.Second)
	finished(b, 1, "exp-0003") // of one target
	h.SetClock(t, 40*time.Second)
	finished(b, 0) // of none
	h.SetClock(t, time.Minute)
	p := b.see(one, two, three, harmless)
	if _, err := b.RecordTarget(ctx, recordOf("y", look{pass: p})); err != nil {
		t.Fatal(err)
	}
	if err := b.Acknowledge(ctx, two.FindingID, b.now().Add(time.Hour), "r", "a"); err != nil {
		t.Fatal(err)
	}
	lease := b.lock("x")
	b.intend(lease, drop("x"))
	for range 3 {
		fail(b, ledger.KindCheck, "x")
	}
	if err := b.AddFailure(ctx, "compact", "x", "e"); err != nil {
		t.Fatal(err)
	}
	s, err := b.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Targets != 2 || s.DamagedTargets != 1 || s.DamagedObjects != 2 || s.RowsAtRisk != 90 || s.Acknowledged != 1 || s.Unsettled != 1 || s.PendingFailures != 1 || !near(s.Now, b.now()) {
		t.Errorf("status %+v", s)
	}
	if d := cmp.Diff(map[reconcile.Verdict]int64{reconcile.Missing: 1, reconcile.SizeMismatch: 1, reconcile.Undecided: 1}, s.OpenByVerdict); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[ledger.Kind]int64{ledger.KindCheck: 1}, s.ActiveCooldowns); d != "" {
		t.Error(d)
	}
	if len(s.Locked) != 1 || s.Locked[0].TargetURI != lease.Target || s.Locked[0].Owner != "alice" || s.Locked[0].Epoch != lease.Epoch {
		t.Errorf("locked %+v", s.Locked)
	}
	if s.LastPass == nil || s.LastPass.PassID != p || s.LastClean == nil || s.LastClean.PassID != clean {
		t.Errorf("last pass %+v, last clean %+v", s.LastPass, s.LastClean)
	}
	ts, err := b.ListTargets(ctx, ledger.Filter{Targets: []string{"x"}})
	if err != nil || len(ts) != 1 {
		t.Fatalf("%+v, %v", ts, err)
	}
	if x := ts[0]; x.OpenFindings != 4 || x.DamagedObjects != 2 || x.Acknowledged != 1 || *x.RowsAtRisk != 90 || x.UnsettledRepairs != 1 || x.CheckCooldownUntil == nil ||
		x.RepairCooldownUntil != nil || *x.Version != 7 || *x.HighestVersion != 7 || *x.State != "diverged" || x.DamagedSince == nil || x.Kind != "rollout" {
		t.Errorf("target %+v", x)
	}
}

// finished is a clean pass over so many targets, narrowed by a filter.
func finished(b *bundle, targets int64, filter ...string) string {
	b.t.Helper()
	ctx := b.t.Context()
	id := uuid.Must(uuid.NewV7()).String()
	p := reconcile.Pass{PassID: id, Mode: "off", ToolVersion: "test", Actor: "alice", Host: "host1", Scope: reconcile.Scope{TargetsFilter: filter}}
	if _, err := b.BeginPass(ctx, p); err != nil {
		b.t.Fatalf("begin pass: %v", err)
	}
	p.Totals.Targets, p.Totals.TargetsByState = targets, map[reconcile.State]int64{reconcile.StateClean: targets}
	if err := b.FinishPass(ctx, p); err != nil {
		b.t.Fatalf("finish pass: %v", err)
	}
	return id
}

func testDiff(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	f := func(n int) reconcile.Finding { return damage("x", n, reconcile.Missing) }
	id := func(n int) string { return f(n).FindingID }
	// 1 stays, 2 is repaired between, 3 is repaired by the second, 4 is not looked at by
	// the second, 5 is new, 6 came and went between, 7 went and came back, 8 comes later.
	first := b.see(f(1), f(2), f(3), f(4), f(7))
	h.SetClock(t, time.Minute)
	between := b.see(f(6), f(4))
	b.record(look{pass: between, findings: []reconcile.Finding{f(4)}, answers: map[string]ledger.Answer{id(2): ledger.Present, id(6): ledger.NotNamed, id(7): ledger.Present}})
	h.SetClock(t, 2*time.Minute)
	second := b.pass()
	b.record(look{pass: second, findings: []reconcile.Finding{f(1), f(5), f(7)}, answers: map[string]ledger.Answer{id(3): ledger.NotNamed}})
	h.SetClock(t, 3*time.Minute)
	later := b.see(f(8), f(2))
	b.record(look{pass: later, findings: []reconcile.Finding{f(8), f(2)}, answers: map[string]ledger.Answer{id(4): ledger.Present}})
	for _, order := range [][2]string{{first, second}, {second, first}} {
		d, err := b.Diff(ctx, order[0], order[1])
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for list, fs := range map[string][]ledger.Finding{"new": d.New, "persisting": d.Persisting, "resolved": d.Resolved, "not looked at": d.NotLookedAt} {
			for _, f := range fs {
				got[f.Finding.Path] += list
			}
		}
		want := map[string]string{"data/1.lance": "persisting", "data/2.lance": "resolved", "data/3.lance": "resolved", "data/4.lance": "not looked at", "data/5.lance": "new", "data/7.lance": "persisting"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if d.From.PassID != first || d.To.PassID != second {
			t.Errorf("from %s to %s", d.From.PassID, d.To.PassID)
		}
	}
	if d, err := b.Diff(ctx, first, first); err != nil || len(d.Persisting) != 5 || len(d.New)+len(d.Resolved)+len(d.NotLookedAt) != 0 {
		t.Errorf("a pass with itself: %+v, %v", d, err)
	}
	_, err := b.Diff(ctx, first, "nobody")
	wantErr(t, "an unknown pass", err, ledger.ErrNotFound)
}

func testPrune(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	const day = 24 * time.Hour
	// Long ago: a finding that was resolved, one that is open, a settled repair, one
	// that is not, a handled failure and an open one.
	h.SetClock(t, -500*day)
	old := b.see(damage("x", 1, reconcile.Missing), damage("x", 2, reconcile.Missing))
	b.record(look{pass: old, findings: []reconcile.Finding{damage("x", 2, reconcile.Missing)}, answers: map[string]ledger.Answer{damage("x", 1, reconcile.Missing).FindingID: ledger.Present}})
	lease := b.lock("x")
	settled := b.intend(lease, drop("x"))
	if err := b.Settle(ctx, lease, settled.RepairID, applied(8)); err != nil {
		t.Fatal(err)
	}
	unsettled := b.intend(lease, drop("x"))
	if err := b.Note(ctx, drop("y")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if err := b.AddFailure(ctx, "compact", "x", text); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := b.PendingFailures(ctx, 1)
	if err != nil || len(fs) != 1 {
		t.Fatalf("%v, %v", fs, err)
	}
	if _, err := b.HandleFailure(ctx, fs[0], ledger.Handling{Note: "note"}); err != nil {
		t.Fatal(err)
	}
	h.SetClock(t, 0)
	recent := b.see(damage("x", 3, reconcile.Missing))
	if got, err := b.Prune(ctx, ledger.Retention{}); err != nil || got != (ledger.Pruned{}) {
		t.Errorf("for ever: %+v, %v", got, err)
	}
	if got, err := b.Prune(ctx, ledger.Retention{Passes: 1<<63 - 1, Repairs: 1<<63 - 1}); err != nil || got != (ledger.Pruned{}) {
		t.Errorf("for as long as can be said: %+v, %v", got, err)
	}
	got, err := b.Prune(ctx, ledger.Retention{Passes: 400 * day})
	if err != nil || got != (ledger.Pruned{Passes: 1, Findings: 1, Failures: 1}) {
		t.Errorf("forgot %+v, %v", got, err)
	}
	ps, err := b.ListPasses(ctx, ledger.Filter{})
	if err != nil || len(ps) != 1 || ps[0].PassID != recent {
		t.Errorf("passes %+v, %v", ps, err)
	}
	if open := b.openIDs(); len(open) != 2 || open[damage("x", 2, reconcile.Missing).FindingID].FirstPassID != old {
		t.Errorf("an open finding was forgotten: %d are open", len(open))
	}
	if rs, err := b.ListRepairs(ctx, ledger.Filter{}); err != nil || len(rs) != 3 {
		t.Errorf("repairs were forgotten: %d, %v", len(rs), err)
	}
	got, err = b.Prune(ctx, ledger.Retention{Repairs: 400 * day})
	if err != nil || got != (ledger.Pruned{Repairs: 2}) {
		t.Errorf("forgot %+v, %v", got, err)
	}
	if rs, err := b.ListRepairs(ctx, ledger.Filter{}); err != nil || len(rs) != 1 || rs[0].RepairID != unsettled.RepairID {
		t.Errorf("repairs %+v, %v", rs, err)
	}
}
