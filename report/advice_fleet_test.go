package report

import (
	"cmp"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// What the registries forbid is told instead of a plan that would hold nothing.
func TestAdviceWhereRegistriesForbidARepair(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		s    subject
		want string
	}{
		{"the registry could not be read", subject{state: reconcile.StateRefused, stateReason: reconcile.ReasonRegistryUnread, verdict: reconcile.Missing, role: reconcile.RoleData, blocked: true}, "Its registry could not be read"},
		{"no row names it", subject{state: reconcile.StateRefused, verdict: reconcile.Missing, role: reconcile.RoleData, blocked: true, withoutRow: true}, "It has no row in the registry"},
		{"a registry that lost rows", subject{target: "system:_registry.rollout", state: reconcile.StateDiverged, verdict: reconcile.Missing, role: reconcile.RoleData}, "its rows are stores"},
	} {
		c.s.finding, c.s.target, c.s.uri = true, cmp.Or(c.s.target, "exp-1"), "s3://rk/exp-1.rollout.lance"
		a := adviser{command: Command{Program: "reconcile"}, canRepair: true}.next(c.s)
		if !strings.Contains(a.text, c.want) {
			t.Errorf("%s: %q, want %q", c.name, a.text, c.want)
		}
		for _, cmd := range a.commands {
			if strings.Contains(cmd, " apply ") {
				t.Errorf("%s: %s", c.name, cmd)
			}
		}
	}
}

// How much of a report was to be shown is no part of the next look.
func TestSuggestedCommandsShowWhatTheyShow(t *testing.T) {
	t.Parallel()
	got := Command{Flags: []string{"--verbose=true", "--depth=footer"}}.line("check", subject{uri: "s3://b/x.lance"})
	if want := "reconcile check s3://b/x.lance --depth=footer"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
