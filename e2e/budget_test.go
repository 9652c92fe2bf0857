package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

// A pass that spent its budget goes on where it stopped, and nothing is looked at
// twice before everything was looked at once.
func TestABudgetIsResumedWhereItStopped(t *testing.T) {
	long(t)
	t.Parallel()
	const tables = 24
	x := newSite(t, "", "budget: {requests: 60}\n")
	b := fourFragments()
	for i := range tables {
		var damage []lancetest.Damage
		if i == tables-1 {
			damage = append(damage, lancetest.Missing(b.DataName(1, 0)))
		}
		put(t, x.s, fmt.Sprintf("r/t%02d.lance", i), b, damage...)
	}
	seen := map[string]int{}
	for pass := 1; len(seen) < tables; pass++ {
		if pass > tables {
			t.Fatalf("after %d passes only %d tables were looked at", pass-1, len(seen))
		}
		r := x.run("run", "--output", "json", "--request-timeout", "1s")
		d := r.pass()
		looked, deferred := 0, int(d.Totals["deferred"].(float64))
		again := ""
		for _, target := range d.Targets {
			looked++
			if seen[target.Target]++; seen[target.Target] > 1 {
				again = target.Target
			}
		}
		if again != "" && len(seen) < tables {
			t.Errorf("pass %d looks at %s again while %d others wait", pass, again, tables-len(seen))
		}
		if looked == 0 || looked+deferred != tables || pass == 1 && deferred == 0 {
			t.Fatalf("pass %d: %d looked at, %d deferred", pass, looked, deferred)
		}
		want := 0
		if len(d.Findings) > 0 {
			want = 3
		}
		if r.code != want {
			t.Errorf("pass %d: exit %d, want %d", pass, r.code, want)
		}
	}
}

// A budget that cannot reach everything within a full cycle says so.
func TestATargetThatTheBudgetNeverReachesIsOverdue(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "budget: {duration: 1ns, full_cycle: 2s}\n")
	for i := range 12 {
		put(t, x.s, fmt.Sprintf("r/t%02d.lance", i), fourFragments())
	}
	d := x.pass(0)
	if d.Totals["deferred"].(float64) == 0 {
		t.Fatal("a budget of no time reached everything")
	}
	time.Sleep(2100 * time.Millisecond)
	overdue := 0
	r := x.run("run", "--output", "json", "--request-timeout", "1s").exit(4)
	if n := strings.Count(r.stderr, "nobody looked at"); n != 1 {
		t.Errorf("%d lines for all that is overdue:\n%s", n, r.stderr)
	}
	for _, target := range r.pass().Targets {
		if target.State == "incomplete" && target.Reason != nil && *target.Reason == "overdue" {
			overdue++
		}
	}
	if overdue == 0 {
		t.Error("nothing is overdue")
	}
}
