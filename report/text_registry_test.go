package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// A store that is whole and that the registry does not know is told of as loudly as
// one that is damaged.
func TestAWholeStoreThatTheRegistrySpeaksAgainst(t *testing.T) {
	t.Parallel()
	line := func(name string, s reconcile.State, registry, reason string) reconcile.TargetResult {
		r := reconcile.TargetResult{Target: name, Store: "rk", Kind: "rollout", URI: "s3://b/" + name + ".rollout.lance", State: s, Registry: &registry}
		if reason != "" {
			r.Reason = &reason
		}
		return r
	}
	p := reconcile.Pass{Exit: reconcile.Exit{Code: reconcile.ExitDivergence, Name: "divergence"}, Targets: []reconcile.TargetResult{
		line("fine", reconcile.StateClean, "ok", ""),
		line("loose", reconcile.StateClean, "unregistered", "unregistered"),
		line("moved", reconcile.StateClean, "uri_differs", "the registry names s3://old/moved.rollout.lance"),
		line("gone", reconcile.StateDiverged, "no_store", "no_store"),
	}}
	p.Totals.Targets = 4
	p.Totals.TargetsByState = map[reconcile.State]int64{reconcile.StateClean: 3, reconcile.StateDiverged: 1}
	var b bytes.Buffer
	if err := Text(&b, p, TextOptions{CanRepair: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Damaged (exit 3, divergence): 3 of 4 targets, 0 findings.", "1 target is clean.", "loose   clean, unregistered", "gone    diverged",
		"loose: clean (unregistered)\n", "moved: clean (the registry names s3://old/moved.rollout.lance), registry\n", "Register it, then check again.", "Correct the row", "remove the row",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "fine") {
		t.Errorf("a store that is fine is told of:\n%s", b.String())
	}
}
