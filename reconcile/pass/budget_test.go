package pass

import (
	"fmt"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// A budget that is spent begins no further target, and what was left says so.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		budget func(looked *int) Budget
		looked int
	}{
		{"no budget", func(*int) Budget { return Budget{} }, 5},
		{"one that was spent before is good for one target", func(*int) Budget { return Budget{Requests: 1, Sent: func() int64 { return 10 }} }, 1},
		{"requests", func(looked *int) Budget { return Budget{Requests: 3, Sent: func() int64 { return int64(*looked) }} }, 3},
		{"time", func(*int) Budget { return Budget{Duration: 2 * time.Second} }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			looked := 0
			var sources []*fakeSource
			for i := range 5 {
				sources = append(sources, &fakeSource{target: reconcile.Target{Name: fmt.Sprint("t", i), Location: at(fmt.Sprint("t", i))}})
			}
			opts, targets, clock := options(newScripted(), sources...)
			opts.TargetConcurrency = 1
			opts.Budget = c.budget(&looked)
			open := opts.Open
			opts.Open = func(target reconcile.Target) reconcile.Source {
				looked++
				clock.now = clock.now.Add(time.Second)
				return open(target)
			}
			out, err := Look(t.Context(), targets, opts)
			if err != nil {
				t.Fatal(err)
			}
			if looked != c.looked || len(out.Targets) != c.looked || len(out.Deferred) != 5-c.looked || out.Totals.Deferred != int64(5-c.looked) || out.Totals.Targets != int64(c.looked) {
				t.Errorf("looked at %d, %d lines, %d deferred", looked, len(out.Targets), len(out.Deferred))
			}
			for i, target := range out.Deferred {
				if target.Name != targets[c.looked+i].Name {
					t.Errorf("deferred %v", out.Deferred)
				}
			}
		})
	}
}
