package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// verifyAfter is the least time between the two looks at a repaired target. The
// commit itself was read back already; this look is for what is left.
const verifyAfter = time.Second

// settledRepairs are repairs of earlier passes that this one found the outcome of.
type settledRepairs struct {
	repairs []reconcile.RepairOutcome
	codes   []reconcile.ExitCode
	// locked are the targets, by URI, whose repairs are still open.
	locked map[string]bool
}

// carries reports whether this pass may write to tables.
func (w *work) carries() bool {
	r := w.s.repair
	return r.carry && !r.dryRun && w.s.mode != modeOff && w.ledger != nil
}

func (w *work) applyOptions() pass.ApplyOptions {
	r := w.s.repair
	trigger := ledger.TriggerManual
	if r.scheduled {
		trigger = ledger.TriggerSchedule
	}
	return pass.ApplyOptions{
		Options: w.options(), Ledger: w.ledger, Mend: w.mend,
		Repairer: func(t reconcile.Target) reconcile.Repairer {
			if t.Kind == blobs.Kind {
				return nil
			}
			return tables.NewRepairer(t, w.writers, tables.RepairOptions{Options: w.found.tableOptions(t, w.s, w.log), Roots: w.found.roots, Quiet: r.quiet, Now: time.Now})
		},
		Writer: w.writers.Writer, PassID: w.doc.PassID, Owner: owner(w.doc.PassID), Actor: w.doc.Actor, Host: w.doc.Host, Reason: w.doc.Reason,
		Trigger: trigger, TriggerError: w.triggerOf, Strict: r.plan != nil, Cooldown: w.s.cooldown, Lost: w.lost,
	}
}

// lost is the last resort for a repair that was made and that the ledger was lost
// after: the whole record on stderr, whatever the log's level and form.
func (w *work) lost(r ledger.Repair, o ledger.Outcome, err error) {
	w.unrecorded++
	r.CommittedVersion, r.RowsDropped, r.Error = o.CommittedVersion, o.RowsDropped, o.Error
	what := "a repair was made and is not in the ledger"
	if o.State != ledger.StateApplied {
		what = "a repair was tried and what became of it is not in the ledger"
	}
	slog.New(slog.NewJSONHandler(w.stderr, nil)).Warn(what+"; the next pass settles it", "pass_id", w.doc.PassID, "err", err.Error(), "repair", r)
}

// settle finds out what became of the repairs that earlier passes left open, before
// anything else is done. A lock on such a target is that of a process that died or
// of one that is at work: the first is over within a lease, so that long is waited.
func (w *work) settle(ctx context.Context) (*settledRepairs, error) {
	s := &settledRepairs{locked: map[string]bool{}}
	if !w.carries() {
		return s, nil
	}
	locked, err := w.settleOnce(ctx, w.found.targets, s)
	if err == nil && len(locked) > 0 && ctx.Err() == nil {
		w.log.Warn("repairs of an earlier pass are open and their targets locked; waiting for the locks to run out", "targets", len(locked), "at_most", ledger.DefaultLease)
		if (pass.SystemClock{}).Sleep(ctx, ledger.DefaultLease+time.Second) == nil {
			locked, err = w.settleOnce(ctx, locked, s)
		}
	}
	for _, t := range locked {
		s.locked[t.Location.String()] = true
	}
	if ctx.Err() != nil {
		return s, nil // the look says that it was interrupted
	}
	return s, err
}

// settleOnce settles what it can and names the targets that are locked.
func (w *work) settleOnce(ctx context.Context, targets []reconcile.Target, s *settledRepairs) (locked []reconcile.Target, err error) {
	out := &pass.Outcome{Totals: reconcile.Totals{TargetsByState: map[reconcile.State]int64{}}}
	for _, t := range targets {
		out.Targets = append(out.Targets, reconcile.TargetResult{Target: t.Name, Store: t.Store, URI: t.Location.String(), State: reconcile.StateClean})
	}
	err = pass.Settle(ctx, out, targets, w.applyOptions())
	s.repairs = append(s.repairs, out.Repairs...)
	for i, t := range out.Targets {
		switch t.State {
		case reconcile.StateFailed:
			s.codes = append(s.codes, reconcile.ExitCommitFailed)
		case reconcile.StateLocked:
			locked = append(locked, targets[i])
		}
	}
	return locked, err
}

// carry repairs what was found, looks at the repaired targets again and writes into
// the outcome what became of them. Its error means that the ledger could not be
// reached.
func (w *work) carry(ctx context.Context, out *pass.Outcome, settled *settledRepairs) error {
	w.remembered(out)
	for i := range out.Targets {
		if t := &out.Targets[i]; settled.locked[t.URI] {
			moveState(out, t, reconcile.StateLocked, reconcile.Ptr("unsettled_repair"))
		}
	}
	if w.s.mode != modeOff && (!w.s.repair.carry || w.s.repair.plan != nil) {
		bindRecords(out)
	}
	actions := planned(out.Actions, w.s.mode)
	if w.s.repair.plan != nil {
		var err error
		if actions, err = w.asPlanned(ctx, out); err != nil {
			return err
		}
	}
	if w.s.repair.dryRun {
		return w.showPlanned(out, actions)
	}
	if !w.carries() || ctx.Err() != nil {
		return nil
	}
	if err := w.accept(ctx, out); err != nil {
		return err
	}
	var err error
	if w.mend, err = w.mendOptions(); err != nil {
		return err
	}
	w.keepKnown(actions)
	if actions, err = w.healNodes(ctx, out, actions); err != nil {
		return err
	}
	if err := pass.Apply(ctx, out, actions, w.applyOptions()); err != nil {
		if ctx.Err() != nil {
			out.Interrupted = context.Cause(ctx)
			return nil
		}
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	return w.verify(ctx, out)
}

// showPlanned lists what would be done.
func (w *work) showPlanned(out *pass.Outcome, actions []reconcile.PlanAction) error {
	for _, a := range actions {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a repair id: %w", err)
		}
		r := w.outcomeOf(out, id.String(), a)
		r.State = ledger.StatePlanned
		out.Repairs = append(out.Repairs, r)
	}
	return nil
}

// outcomeOf is an action as the document lists repairs.
func (w *work) outcomeOf(out *pass.Outcome, id string, a reconcile.PlanAction) reconcile.RepairOutcome {
	r := reconcile.RepairOutcome{RepairID: id, Target: a.Target, Action: a.Action, Trigger: w.applyOptions().Trigger, ReadVersion: &a.ReadVersion,
		Fragments: []reconcile.RepairFragment{}, Files: a.Files, Source: a.Source}
	if t := resultAt(out, a.URI); t != nil {
		r.Store = t.Store
	}
	if i := slices.IndexFunc(w.found.targets, func(t reconcile.Target) bool { return t.Location.String() == a.URI }); i >= 0 {
		if text := w.triggerOf(w.found.targets[i]); text != nil {
			r.Trigger, r.TriggerError = ledger.TriggerFailure, text
		}
	}
	for _, f := range a.Fragments {
		r.Fragments = append(r.Fragments, reconcile.RepairFragment{ID: f.ID, PhysicalRows: f.PhysicalRows, LiveRows: f.LiveRows, MissingFiles: f.Files})
	}
	return r
}

func resultAt(out *pass.Outcome, uri string) *reconcile.TargetResult {
	i := slices.IndexFunc(out.Targets, func(t reconcile.TargetResult) bool { return t.URI == uri })
	if i < 0 {
		return nil
	}
	return &out.Targets[i]
}

// accept records that a user takes a lower version for the newest.
func (w *work) accept(ctx context.Context, out *pass.Outcome) error {
	v := w.s.repair.acceptVersion
	if v == nil || len(w.found.targets) != 1 {
		return nil
	}
	t := w.found.targets[0]
	r := resultAt(out, t.Location.String())
	if r == nil || r.Version == nil || *r.Version != *v {
		return nil
	}
	return w.ledger.AcceptVersion(ctx, ledger.TargetOf(t), *v, w.doc.Actor, w.s.reason)
}

// verify looks at the targets again whose repairs landed, or found that nothing was
// left to repair, and says whether anything damaged is left.
func (w *work) verify(ctx context.Context, out *pass.Outcome) error {
	applied, stale := map[string]bool{}, map[string]bool{}
	for _, r := range out.Repairs {
		for _, t := range w.found.targets {
			if t.Name != r.Target || t.Store != r.Store {
				continue
			}
			switch {
			case r.State == ledger.StateApplied:
				applied[t.Location.Canonical()] = true
			case r.State == ledger.StateRefused && w.s.repair.plan == nil && stalled(out, t):
				stale[t.Location.Canonical()] = true
			}
		}
	}
	again := slices.DeleteFunc(slices.Clone(w.found.targets), func(t reconcile.Target) bool {
		return !applied[t.Location.Canonical()] && !stale[t.Location.Canonical()]
	})
	if len(again) == 0 {
		return nil
	}
	second, err := pass.Look(ctx, again, w.verifyOptions(out, again, applied))
	if err != nil || second.Interrupted != nil {
		return err
	}
	for _, t := range again {
		w.take(out, second, t, applied[t.Location.Canonical()])
	}
	return nil
}

// stalled reports whether the target's repair was refused because there was nothing
// to repair any more.
func stalled(out *pass.Outcome, t reconcile.Target) bool {
	r := resultAt(out, t.Location.String())
	return r != nil && r.State == reconcile.StateRefused && r.Reason != nil && *r.Reason == reconcile.RefusedPlanStale
}

func (w *work) verifyOptions(out *pass.Outcome, again []reconcile.Target, applied map[string]bool) pass.Options {
	opts := w.options()
	opts.ConfirmAfter = verifyAfter
	opts.Recall.Memory = restating{w.ledger, applied}
	if len(again) != 1 || w.s.repair.acceptVersion == nil {
		return opts
	}
	// The version that was accepted is now the one that the repair made.
	if r := resultAt(out, again[0].Location.String()); r != nil && r.Version != nil {
		opts.Recall.AcceptVersion = r.Version
		s := *w.s
		s.repair.acceptVersion = r.Version
		stores := w.found.stores(w.set, w.kept)
		plain := opts.Open
		opts.Open = func(t reconcile.Target) reconcile.Source {
			if t.Kind == blobs.Kind {
				return plain(t)
			}
			return tables.New(t, stores, w.found.tableOptions(t, &s, w.log))
		}
	}
	return opts
}

// take puts what the second look saw of a target into the outcome. A failure or a
// refusal of the repair keeps its word.
func (w *work) take(out, second *pass.Outcome, t reconcile.Target, applied bool) {
	uri := t.Location.String()
	was, now := resultAt(out, uri), resultAt(second, uri)
	if was == nil || now == nil {
		return
	}
	state := now.State
	if applied && state == reconcile.StateClean {
		state = reconcile.StateRepaired
	}
	w.known[uri] = knownTarget{state: state, findings: findingsOf(second, *now)}
	if was.RowsAtRisk != nil && now.RowsAtRisk != nil {
		out.Totals.RowsAtRisk += *now.RowsAtRisk - *was.RowsAtRisk
	}
	was.Version, was.RowsAtRisk, was.LiveRows, was.Fragments = now.Version, now.RowsAtRisk, now.LiveRows, now.Fragments
	if was.State == reconcile.StateFailed || was.State == reconcile.StateLocked || was.State == reconcile.StateRefused && !stalled(out, t) {
		return
	}
	moveState(out, was, state, now.Reason)
}

func moveState(out *pass.Outcome, t *reconcile.TargetResult, to reconcile.State, reason *string) {
	out.Totals.TargetsByState[t.State]--
	out.Totals.TargetsByState[to]++
	t.State, t.Reason = to, reason
}

// knownTarget is what the ledger was last told of a target.
type knownTarget struct {
	state    reconcile.State
	findings []reconcile.Finding
}

func findingsOf(out *pass.Outcome, t reconcile.TargetResult) []reconcile.Finding {
	var fs []reconcile.Finding
	for _, f := range out.Findings {
		if f.Target == t.Target && f.Store == t.Store {
			fs = append(fs, f)
		}
	}
	return fs
}

// remembered notes what the look told the ledger.
func (w *work) remembered(out *pass.Outcome) {
	w.known = map[string]knownTarget{}
	for _, t := range out.Targets {
		w.known[t.URI] = knownTarget{state: t.State}
	}
	by := map[[2]string]string{}
	for _, t := range out.Targets {
		by[[2]string{t.Store, t.Target}] = t.URI
	}
	// Those of a target lie side by side, and are shared as long as nothing is done to them.
	for rest := out.Findings; len(rest) > 0; {
		name := [2]string{rest[0].Store, rest[0].Target}
		n := 1
		for n < len(rest) && rest[n].Store == name[0] && rest[n].Target == name[1] {
			n++
		}
		k := w.known[by[name]]
		if k.findings == nil {
			k.findings = rest[:n:n]
		} else {
			k.findings = append(k.findings, rest[:n]...)
		}
		w.known[by[name]], rest = k, rest[n:]
	}
}

// keepKnown makes what the ledger was told of the targets of actions independent of the
// outcome, where repairs write.
func (w *work) keepKnown(actions []reconcile.PlanAction) {
	kept := map[string]bool{}
	for _, a := range actions {
		if k, ok := w.known[a.URI]; ok && !kept[a.URI] {
			kept[a.URI] = true
			w.known[a.URI] = knownTarget{state: k.state, findings: slices.Clone(k.findings)}
		}
	}
}

// restate tells the ledger of the targets that the command judged otherwise than the
// look did.
func (w *work) restate(ctx context.Context, out *pass.Outcome) error {
	if w.ledger == nil {
		return nil
	}
	byURI := map[string]reconcile.Target{}
	for _, t := range w.found.targets {
		byURI[t.Location.String()] = t
	}
	results := make(map[string]*reconcile.TargetResult, len(out.Targets))
	for i := range slices.Backward(out.Targets) {
		results[out.Targets[i].URI] = &out.Targets[i] // of several the first, as resultAt
	}
	var errs []error
	for _, uri := range slices.Sorted(maps.Keys(w.known)) {
		r, k := results[uri], w.known[uri]
		t, ours := byURI[uri]
		if !ours || r == nil || r.State == k.state {
			continue
		}
		_, err := w.ledger.RecordTarget(ctx, ledger.TargetRecord{PassID: w.doc.PassID, Target: ledger.TargetOf(t), Result: *r, Look: w.lookOf(), Findings: k.findings})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
