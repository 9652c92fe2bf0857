package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

// Two passes started at once over one root: every damaged target is repaired by one of
// them, and by one alone.
func TestTwoPassesAtOnceRepairEachTargetOnce(t *testing.T) {
	long(t)
	t.Parallel()
	const tables = 12
	for name, url := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, url(t), "repair: {mode: full, drop_after: 0s, quiet: 0s, max_pass_targets: 100, max_pass_fragments: 100}\n")
			b := fourFragments()
			for i := range tables {
				put(t, x.s, fmt.Sprintf("r/t%02d.lance", i), b, lancetest.Missing(b.DataName(1, 0)))
			}
			put(t, x.s, "r/whole.lance", b)
			x.run("migrate", "up") // two that make the tables at once are another matter
			applied := map[string]int{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					r := x.run("run", "--output", "json", "--request-timeout", "5s")
					d := r.pass()
					mu.Lock()
					defer mu.Unlock()
					for _, rep := range d.Repairs {
						switch rep["state"] {
						case "applied":
							applied[rep["target"].(string)]++
						case "refused", "conflict":
						default:
							t.Errorf("repair %v of %v: %v", rep["state"], rep["target"], rep["error"])
						}
					}
					if r.code != 0 && r.code != 4 && r.code != 5 && r.code != 10 {
						t.Errorf("exit %d\n%s", r.code, clip(r.stderr))
					}
				})
			}
			wg.Wait()
			// What one of them left locked is repaired by now: a third finds nothing.
			d := x.pass(0)
			if len(d.Findings)+len(d.Repairs) > 0 {
				t.Errorf("afterwards: %v %v", d.brief(), d.Repairs)
			}
			if len(applied) != tables {
				t.Errorf("%d of %d targets repaired: %v", len(applied), tables, applied)
			}
			for target, n := range applied {
				if n != 1 {
					t.Errorf("%s was repaired %d times", target, n)
				}
			}
			for _, target := range d.Targets {
				want := uint64(4)
				if target.Target == "table:whole" {
					want = 3
				}
				if target.Version == nil || *target.Version != want {
					t.Errorf("%s is at version %d, want %d", target.Target, *target.Version, want)
				}
			}
		})
	}
}
