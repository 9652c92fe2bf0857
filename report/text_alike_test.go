package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// What one cause did to thousands of targets is said once.
func TestTargetsThatAreAlikeAreToldOfOnce(t *testing.T) {
	t.Parallel()
	const n = 5000
	p := reconcile.Pass{Exit: reconcile.Exit{Code: reconcile.ExitIncomplete, Name: "incomplete"}}
	add := func(name, reason string, state reconcile.State, registry *string, not ...reconcile.NotChecked) {
		p.Targets = append(p.Targets, reconcile.TargetResult{Target: name, Store: "rk", Kind: "rollout", URI: "s3://b/" + name + ".rollout.lance", State: state, Reason: &reason, Registry: registry, NotChecked: not})
	}
	for i := range n {
		add(fmt.Sprintf("late-%04d", i), reconcile.ReasonOverdue, reconcile.StateIncomplete, nil,
			reconcile.NotChecked{Role: reconcile.RoleData, Reason: fmt.Sprintf("not looked at since 2026-05-%02dT00:00:00Z", 28-i%20)})
	}
	for i := range n {
		add(fmt.Sprintf("gone-%04d", i), reconcile.ReasonEverythingMissing, reconcile.StateDiverged, reconcile.Ptr(reconcile.RegistryNoStore))
	}
	add("other", "throttled", reconcile.StateIncomplete, nil)
	p.Totals.Targets = 2*n + 1
	p.Totals.TargetsByState = map[reconcile.State]int64{reconcile.StateIncomplete: n + 1, reconcile.StateDiverged: n}
	var b bytes.Buffer
	if err := Text(&b, p, TextOptions{CanRepair: true, Verbose: false}); err != nil {
		t.Fatal(err)
	}
	// The table of targets comes first; what is said of them after it.
	_, after, _ := strings.Cut(b.String(), "late-0039")
	text := strings.Join(strings.Fields(after), " ")
	for _, once := range []string{
		"5,000 targets: incomplete (overdue): late-0000, late-0001, late-0002 and 4,997 more", "Nobody looked at them since 2026-05-09T00:00:00Z: the budget is too small for budget.full_cycle",
		"5,000 targets: diverged (everything_missing): gone-0000", "None of the stores that the registry names is there", "other: incomplete (throttled)",
		"data: an unknown number of objects in 5,000 targets: overdue",
	} {
		if got := strings.Count(text, once); got != 1 {
			t.Errorf("%d times %q in\n%s", got, once, after)
		}
	}
	for _, never := range []string{"remove the row", "no trustworthy answer", "not looked at since"} {
		if strings.Contains(text, never) {
			t.Errorf("%q in\n%s", never, after)
		}
	}
}
