package main

import (
	"context"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// budget is what a scheduled pass may cost. Without a ledger nobody knows where the
// next one has to go on, so that there is none.
func (w *work) budget() pass.Budget {
	b := w.s.budget
	if !w.s.repair.scheduled || w.ledger == nil || b.Duration == 0 && b.Requests == 0 {
		return pass.Budget{}
	}
	return pass.Budget{Duration: b.Duration.Std(), Requests: b.Requests, Sent: func() int64 {
		c := w.set.Counters()
		return c.Head + c.Get + c.List + c.Put
	}}
}

// putOff notes the targets that the budget left for the next pass. One that nobody
// looked at for a full cycle makes the pass incomplete: its budget is too small.
func (w *work) putOff(ctx context.Context, out *pass.Outcome, sink pass.Sink) error {
	if len(out.Deferred) == 0 || w.ledger == nil {
		return nil
	}
	known := make([]ledger.Target, len(out.Deferred))
	for i, t := range out.Deferred {
		known[i] = ledger.TargetOf(t)
	}
	overdue, err := w.ledger.Postpone(ctx, known, w.s.budget.FullCycle.Std())
	if err != nil {
		return err
	}
	w.log.Info("the budget left targets for the next pass", "targets", len(out.Deferred), "overdue", len(overdue))
	w.warnOverdue(out.Deferred, overdue)
	for _, t := range out.Deferred {
		since, late := overdue[t.Location.Canonical()]
		if !late {
			continue
		}
		r := reconcile.TargetResult{Target: t.Name, Store: t.Store, Kind: t.Kind, URI: t.Location.String(), State: reconcile.StateIncomplete,
			Reason: reconcile.Ptr(reconcile.ReasonOverdue), NotChecked: []reconcile.NotChecked{{Role: reconcile.RoleData, Reason: "not looked at since " + since.UTC().Format(time.RFC3339)}}}
		out.Targets = append(out.Targets, r)
		out.Totals.Targets++
		out.Totals.Deferred--
		out.Totals.TargetsByState[r.State]++
		if err := sink.Target(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// warnOverdue says once what a fleet of targets would say one by one.
func (w *work) warnOverdue(deferred []reconcile.Target, overdue map[string]time.Time) {
	if len(overdue) == 0 {
		return
	}
	const named = 3
	var first []string
	var since time.Time
	for _, t := range deferred {
		at, late := overdue[t.Location.Canonical()]
		if !late {
			continue
		}
		if len(first) < named {
			first = append(first, t.Name)
		}
		if since.IsZero() || at.Before(since) {
			since = at
		}
	}
	w.log.Warn("nobody looked at targets for a full cycle: the budget is too small", "targets", len(overdue), "first", first, "since", since, "full_cycle", w.s.budget.FullCycle.Std())
}
