package pass

import (
	"context"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// settleOpen finds out what became of the target's repairs that were intended and
// never settled: their process died, or the store gave no answer.
func (a *applier) settleOpen(ctx context.Context, t reconcile.Target, r reconcile.Repairer, lease ledger.Lease) error {
	open, err := a.opts.Ledger.Unsettled(ctx, t.Location.Canonical())
	if err != nil {
		return fmt.Errorf("list unsettled repairs of %s: %w", t.Name, err)
	}
	for _, rec := range open {
		// An undo is a restore too, and ends in a commit.
		if !ledger.Commits(rec.Action) && rec.TransactionUUID == nil {
			o := settleMend(rec)
			if err := a.opts.Ledger.Settle(ctx, lease, rec.RepairID, o); err != nil {
				return fmt.Errorf("settle repair %s: %w", rec.RepairID, err)
			}
			a.report(rec, o)
			continue
		}
		if r == nil || rec.TransactionUUID == nil || rec.ReadVersion == nil {
			return fmt.Errorf("repair %s has no transaction to find it by", rec.RepairID)
		}
		version, found, err := r.Settle(ctx, *rec.TransactionUUID, *rec.ReadVersion)
		if err != nil {
			return fmt.Errorf("settle repair %s: %w", rec.RepairID, err)
		}
		o := ledger.Outcome{State: ledger.StateApplied, CommittedVersion: &version}
		if !found {
			if wait := a.stillOnItsWay(rec); wait > 0 {
				if err := a.opts.Clock.Sleep(ctx, wait); err != nil {
					return err
				}
				if version, found, err = r.Settle(ctx, *rec.TransactionUUID, *rec.ReadVersion); err != nil {
					return fmt.Errorf("settle repair %s: %w", rec.RepairID, err)
				}
				o.CommittedVersion = &version
			}
		}
		if !found {
			text := "the commit did not land: no version carries its transaction"
			o = ledger.Outcome{State: ledger.StateFailed, Error: &text}
		}
		if err := a.opts.Ledger.Settle(ctx, lease, rec.RepairID, o); err != nil {
			return fmt.Errorf("settle repair %s: %w", rec.RepairID, err)
		}
		a.opts.Logger.Warn("settled a repair of an earlier pass", "target", t.Name, "repair_id", rec.RepairID, "state", o.State, "committed", found, "version", version)
		a.report(rec, o)
	}
	return nil
}

// inFlight is how long a request of a process that died may still reach the store.
const inFlight = 30 * time.Second

// stillOnItsWay is how long to wait before the absence of a commit is believed.
func (a *applier) stillOnItsWay(rec ledger.Repair) time.Duration {
	// The last that was heard of the process: it intended, or it gave up waiting.
	var last time.Time
	for _, at := range []*time.Time{rec.IntendedAt, rec.SettledAt} {
		if at != nil && at.After(last) {
			last = *at
		}
	}
	if last.IsZero() {
		return 0
	}
	return max(inFlight-a.opts.Clock.Now().Sub(last), 0)
}

// Settle settles what earlier passes left open on the targets, before anything
// else is done. Targets that cannot be settled get no new repair by the ledger's
// own rule.
func Settle(ctx context.Context, out *Outcome, targets []reconcile.Target, opts ApplyOptions) error {
	open, err := opts.Ledger.Unsettled(ctx, "")
	if err != nil {
		return fmt.Errorf("list unsettled repairs: %w", err)
	}
	if len(open) == 0 {
		return nil
	}
	byURI := map[string]reconcile.Target{}
	for _, t := range targets {
		byURI[t.Location.Canonical()] = t
	}
	a := &applier{engine: &engine{opts: opts.Options}, opts: opts, out: out}
	done := map[string]bool{}
	for _, rec := range open {
		t, ok := byURI[rec.Where.URI]
		if !ok || done[rec.Where.URI] {
			continue
		}
		done[rec.Where.URI] = true
		if err := a.target(ctx, t, nil); err != nil {
			return err
		}
	}
	return nil
}
