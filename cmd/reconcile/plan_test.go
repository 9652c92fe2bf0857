package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// Contract, the situation table's column "repair asked".
func TestRepairAsked(t *testing.T) {
	t.Parallel()
	drop, restore, none := reconcile.ActionDropFragment, reconcile.ActionRestore, reconcile.ActionNone
	tests := []struct {
		name    string
		mode    string
		state   reconcile.State
		action  reconcile.Action
		blocked []string
		reason  string
		want    reconcile.ExitCode
		after   reconcile.State
	}{
		{"a clean target", "full", reconcile.StateClean, none, nil, "", 0, reconcile.StateClean},
		{"damage that a plan mends", "full", reconcile.StateDiverged, drop, nil, "", 3, reconcile.StateDiverged},
		{"damage without a repair", "full", reconcile.StateDiverged, none, nil, "", 3, reconcile.StateDiverged},
		{"everything missing", "full", reconcile.StateDiverged, drop, []string{"everything_missing"}, "", 5, reconcile.StateRefused},
		{"over a limit", "full", reconcile.StateDiverged, drop, []string{"over_limit"}, "", 5, reconcile.StateRefused},
		{"unknown writer flags", "full", reconcile.StateDiverged, drop, []string{"unknown_writer_flags"}, "", 5, reconcile.StateRefused},
		{"a rung that is open", "full", reconcile.StateDiverged, drop, []string{"rung_open:peer"}, "", 5, reconcile.StateRefused},
		{"a drop beside undecided references", "full", reconcile.StateIncomplete, drop, []string{"incomplete_look"}, "", 5, reconcile.StateIncomplete},
		{"undecided references alone", "full", reconcile.StateIncomplete, none, nil, "", 4, reconcile.StateIncomplete},
		{"a lost deletion file that is only reported", "full", reconcile.StateDiverged, none, []string{"deletion_policy"}, "", 3, reconcile.StateDiverged},
		{"a part of a fragment that is only reported", "full", reconcile.StateDiverged, drop, []string{"partial_columns"}, "", 3, reconcile.StateDiverged},
		{"a restore that an interlock forbids", "restore", reconcile.StateDiverged, restore, []string{"outside_root"}, "", 5, reconcile.StateRefused},
		{"a drop where only restores are asked for", "restore", reconcile.StateDiverged, drop, []string{"everything_missing"}, "", 3, reconcile.StateDiverged},
		{"a half-deleted store", "full", reconcile.StateHalfDeleted, none, nil, "", 5, reconcile.StateHalfDeleted},
		{"a rolled-back table", "full", reconcile.StateRolledBack, none, nil, "", 5, reconcile.StateRolledBack},
		{"a trace of a higher version", "full", reconcile.StateIncomplete, none, nil, "higher_version_trace", 5, reconcile.StateIncomplete},
		{"an unreadable manifest", "full", reconcile.StateUnreadable, none, nil, "", 4, reconcile.StateUnreadable},
		{"a young table", "full", reconcile.StatePending, none, nil, "", 4, reconcile.StatePending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := reconcile.Finding{Target: "x", Store: "s", ProposedAction: tt.action, BlockedBy: tt.blocked}
			if tt.reason != "" {
				f.Reason = &tt.reason
			}
			o := &pass.Outcome{
				Targets:  []reconcile.TargetResult{{Target: "x", Store: "s", State: tt.state}},
				Findings: []reconcile.Finding{f},
				Totals:   reconcile.Totals{TargetsByState: map[reconcile.State]int64{tt.state: 1}},
			}
			if got := repairAsked(o, tt.mode); got != tt.want {
				t.Errorf("exit %d, want %d", got, tt.want)
			}
			if got := o.Targets[0].State; got != tt.after || o.Totals.TargetsByState[tt.after] != 1 {
				t.Errorf("state %s, want %s; counts %v", got, tt.after, o.Totals.TargetsByState)
			}
		})
	}
}

func TestRestoreModePlansNothingThatLosesRows(t *testing.T) {
	t.Parallel()
	all := []reconcile.PlanAction{{Action: reconcile.ActionDropFragment}, {Action: reconcile.ActionRestore}, {Action: reconcile.ActionDropIndex}}
	if got := planned(all, "restore"); len(got) != 1 || got[0].Action != reconcile.ActionRestore {
		t.Errorf("planned %v", got)
	}
	if got := planned(all, "full"); len(got) != 3 {
		t.Errorf("planned %v", got)
	}
}

func testPlan(t *testing.T, id string) (reconcile.Plan, []byte) {
	t.Helper()
	p, err := reconcile.NewPlan(reconcile.PlanSpec{ID: id, CreatedAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return p, data
}

func TestPlansReplacePlansAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out bytes.Buffer
	a := &app{stdout: &out}
	p, data := testPlan(t, "one")
	q, newer := testPlan(t, "two")
	file := filepath.Join(dir, "plan.json")
	check := func(name string, want []byte) {
		t.Helper()
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	write := func(name string, p reconcile.Plan, ok bool) {
		t.Helper()
		if err := a.writePlan(name, p); (err == nil) != ok {
			t.Errorf("write %s: %v", name, err)
		}
	}
	write(file, p, true)
	check(file, data)
	write(file, q, true)
	check(file, newer)

	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write(empty, p, true)
	check(empty, data)

	work := filepath.Join(dir, "work.json")
	if err := os.WriteFile(work, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	write(work, p, false)
	check(work, []byte(`{"a":1}`))

	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	write(link, p, true)
	check(file, data)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}

	write("-", p, true)
	if !bytes.Equal(out.Bytes(), data) {
		t.Errorf("stdout: %s", out.Bytes())
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("files left: %v, %v", entries, err)
	}
}
