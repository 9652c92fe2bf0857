package pass

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
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

// What a budget of objects or bytes leaves over all targets is counted, and one WARN
// line tells of it; of a budget that suffices there is nothing to say.
func TestWhatABudgetOfCopiesLeavesIsTold(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "b", "c", "d", "e"}
	for _, c := range []struct {
		name           string
		objects, bytes int64
		left           int64
	}{
		{"no budget", 0, 0, 0},
		{"as many objects as there are", 5, 0, 0},
		{"objects", 2, 0, 3},
		{"bytes", 0, 1, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, false, keys...)
			p.gone(keys...)
			x := newPeer("x")
			for _, k := range keys {
				x.has[k] = content(k)
			}
			p.peers = []reconcile.Peer{x}
			p.mend.MaxObjects, p.mend.MaxBytes = c.objects, c.bytes
			var log bytes.Buffer
			p.opts = func(o *Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			}
			out := p.pass()
			if n := out.Totals.RefetchDeferred; n != c.left || len(p.states(out)) != len(keys)-int(c.left) {
				t.Errorf("%d left and %d brought back, want %d left", n, len(p.states(out)), c.left)
			}
			told := strings.Count(log.String(), "level=WARN msg=\"the budget for bringing objects back is spent\" left_for_the_next_pass="+fmt.Sprint(c.left)+" ")
			if want := min(int(c.left), 1); told != want {
				t.Errorf("told %d times, want %d:\n%s", told, want, log.String())
			}
			// The next pass goes on with them.
			if c.left == 0 {
				return
			}
			p.mend.MaxObjects, p.mend.MaxBytes = 0, 0
			if out := p.pass(); int64(len(p.states(out))) != c.left || out.Totals.RefetchDeferred != 0 {
				t.Errorf("the next pass brought back %d and left %d, want %d and none", len(p.states(out)), out.Totals.RefetchDeferred, c.left)
			}
		})
	}
}
