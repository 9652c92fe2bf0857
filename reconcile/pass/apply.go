package pass

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Ledger is what repairs need of a ledger.
type Ledger interface {
	ledger.Repairs
	ledger.Locks
	ledger.Cooldowns
	ledger.Probes
	ledger.Refetches
}

// ApplyOptions say how a plan is carried out. Every field must be set, except where
// noted.
type ApplyOptions struct {
	// Options are those of the look that the plan was made from.
	Options
	Ledger Ledger
	// Repairer makes the repairer of a target whose repairs end in a commit, nil for
	// others; it does not touch the network.
	Repairer func(reconcile.Target) reconcile.Repairer
	// Writer opens a store root for the conditional-write test.
	Writer func(ctx context.Context, root objstore.Location) (objstore.Writer, error)
	PassID string
	// Owner names this process in locks.
	Owner       string
	Actor, Host string
	// Reason may be nil.
	Reason *string
	// Trigger is schedule, manual or failure; TriggerError goes with failure.
	Trigger      string
	TriggerError func(reconcile.Target) *string
	// Strict refuses an action whose fragments are not all as planned.
	Strict bool
	// Cooldown is the policy for failed repairs.
	Cooldown ledger.CooldownPolicy
	// Mend says how bytes are brought back; without a Mender none are.
	Mend MendOptions
	// Lost is called with the whole record when the ledger was lost after an effect.
	Lost func(r ledger.Repair, o ledger.Outcome, err error)
}

// commitTries bounds how often a conflict is planned again, as the Lance library
// bounds its own.
const commitTries = 20

// settleGrace is how long a record may take after the context ended.
const settleGrace = 20 * time.Second

// Apply carries out the actions, which must be of targets that the outcome has
// findings of, each under its target's lock and recorded before its first effect.
// It writes what became of them into the outcome: Repairs, the targets' states, and
// through those the exit code. The error is non-nil only when the ledger could not
// be reached before anything was done.
//
// When ctx ends, no further action begins; one that was sent is awaited, read back
// and recorded.
func Apply(ctx context.Context, out *Outcome, actions []reconcile.PlanAction, opts ApplyOptions) error {
	a := &applier{engine: &engine{opts: opts.Options, slots: make(chan struct{}, max(opts.Concurrency, 1))}, opts: opts, out: out, probed: map[objstore.Location]error{}}
	byTarget := map[string][]reconcile.PlanAction{}
	var order []string
	for _, act := range actions {
		if !act.Action.Destructive() && opts.Mend.Mender == nil {
			continue
		}
		if byTarget[act.URI] == nil {
			order = append(order, act.URI)
		}
		byTarget[act.URI] = append(byTarget[act.URI], act)
	}
	for _, uri := range order {
		if ctx.Err() != nil {
			break
		}
		t, ok := out.targetAt(uri)
		if !ok {
			continue
		}
		if err := a.target(ctx, t, byTarget[uri]); err != nil {
			return err
		}
	}
	if n := out.Totals.RefetchDeferred; n > 0 {
		o := opts.Mend
		opts.Logger.Warn("the budget for bringing objects back is spent", "left_for_the_next_pass", n, "refetch_objects", o.MaxObjects, "refetch_bytes", o.MaxBytes)
	}
	if ctx.Err() != nil && out.Interrupted == nil {
		out.Interrupted = context.Cause(ctx)
	}
	return nil
}

func (o *Outcome) targetAt(uri string) (reconcile.Target, bool) {
	for _, t := range o.targets {
		if t.Location.String() == uri {
			return t, true
		}
	}
	return reconcile.Target{}, false
}

// result is the outcome's line of a target.
func (o *Outcome) result(t reconcile.Target) *reconcile.TargetResult {
	i := slices.IndexFunc(o.Targets, func(r reconcile.TargetResult) bool { return r.URI == t.Location.String() && r.Target == t.Name })
	if i < 0 {
		return nil
	}
	return &o.Targets[i]
}

type applier struct {
	*engine
	opts   ApplyOptions
	out    *Outcome
	mended mended
	probed map[objstore.Location]error
}

// lockPoll is how often a lock that is held is asked for again.
const lockPoll = 2 * time.Second

// acquire takes a target's lock. A holder that died leaves it until its lease has
// run out, and one that is at work renews it; a repair that was asked for by name
// waits until it knows which. A scheduled one comes again.
func (a *applier) acquire(ctx context.Context, uri string) (ledger.Lease, error) {
	var until time.Time
	for waited := time.Duration(0); ; waited += lockPoll {
		lease, err := a.opts.Ledger.Acquire(ctx, uri, a.opts.Owner, ledger.DefaultLease)
		var held *ledger.LockedError
		if !errors.As(err, &held) || a.opts.Trigger == ledger.TriggerSchedule || waited > ledger.DefaultLease {
			return lease, err
		}
		if !until.IsZero() && held.Until.After(until) {
			return lease, err // renewed: somebody is at work
		}
		if until.IsZero() {
			a.opts.Logger.Warn("target is locked; waiting to see whether its holder lives", "until", held.Until, "err", err)
		}
		until = held.Until
		if serr := a.opts.Clock.Sleep(ctx, lockPoll); serr != nil {
			return lease, err
		}
	}
}

// target carries out one target's actions under its lock.
func (a *applier) target(ctx context.Context, t reconcile.Target, actions []reconcile.PlanAction) error {
	uri := t.Location.Canonical()
	lease, err := a.acquire(ctx, uri)
	switch {
	case errors.Is(err, ledger.ErrLocked):
		a.opts.Logger.Warn("target is locked", "target", t.Name, "err", err)
		a.setState(t, reconcile.StateLocked, "locked")
		return nil
	case err != nil:
		return fmt.Errorf("lock %s: %w", t.Name, err)
	}
	held, stop := ledger.Keep(ctx, a.opts.Ledger, lease, ledger.DefaultLease)
	defer func() {
		stop()
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleGrace)
		defer cancel()
		if err := a.opts.Ledger.Release(rctx, lease); err != nil && !errors.Is(err, ledger.ErrFenced) {
			a.opts.Logger.Warn("release lock", "target", t.Name, "err", err)
		}
	}()
	r := a.opts.Repairer(t)
	if err := a.settleOpen(held, t, r, lease); err != nil {
		if errors.Is(err, ledger.ErrUnreachable) {
			return err
		}
		a.opts.Logger.Error("an earlier repair is not settled", "target", t.Name, "err", err)
		a.setState(t, reconcile.StateFailed, "unsettled_repair")
		a.out.codes = append(a.out.codes, reconcile.ExitCommitFailed)
		return nil
	}
	if len(actions) == 0 {
		return nil
	}
	if refused := a.conditionalWrites(held, t); refused != nil {
		for _, act := range actions {
			if err := a.note(ctx, t, act, ledger.StateRefused, refused); err != nil {
				return err
			}
		}
		return nil
	}
	mends := slices.DeleteFunc(slices.Clone(actions), func(act reconcile.PlanAction) bool { return act.Action.Destructive() })
	if len(mends) > 0 {
		if err := a.mendAll(held, t, lease, mends); err != nil {
			return err
		}
	}
	for _, act := range actions {
		if held.Err() != nil {
			return nil
		}
		if r == nil || !act.Action.Destructive() {
			continue
		}
		if err := a.action(held, r, lease, act); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) setState(t reconcile.Target, s reconcile.State, reason string) {
	r := a.out.result(t)
	if r == nil {
		return
	}
	a.out.Totals.TargetsByState[r.State]--
	a.out.Totals.TargetsByState[s]++
	if s == reconcile.StateFailed {
		if a.out.failedRepairs == nil {
			a.out.failedRepairs = map[string]bool{}
		}
		a.out.failedRepairs[r.URI] = true
	}
	r.State, r.Reason = s, nil
	if reason != "" {
		r.Reason = &reason
	}
}

// action prepares and commits one action, again after each conflict.
func (a *applier) action(ctx context.Context, r reconcile.Repairer, lease ledger.Lease, act reconcile.PlanAction) error {
	t := r.Target()
	for try := 1; ; try++ {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a repair id: %w", err)
		}
		c, err := r.Prepare(ctx, act, reconcile.Preparation{
			RepairID: id.String(), TransactionUUID: uuid.NewString(), Strict: a.opts.Strict && try == 1, Scheduled: a.opts.Trigger == ledger.TriggerSchedule,
			AllowEmptyTable: a.opts.Policy.AllowEmptyTable, StillBroken: a.stillBroken(t),
		})
		if err == nil {
			err = a.stillRegistered(ctx, t)
		}
		var refusal *reconcile.Refusal
		switch {
		case errors.As(err, &refusal):
			return a.note(ctx, t, act, ledger.StateRefused, refusal)
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return a.noteFailed(ctx, t, act, err)
		}
		again, err := a.commit(ctx, r, lease, id.String(), act, c, try)
		if err != nil || !again {
			return err
		}
		// A rival has just committed; let it finish before looking again.
		if a.opts.Clock.Sleep(ctx, time.Duration(try)*20*time.Millisecond) != nil {
			return nil
		}
	}
}

// commit records, sends and settles one prepared commit. again asks for another
// try after a conflict.
func (a *applier) commit(ctx context.Context, r reconcile.Repairer, lease ledger.Lease, id string, act reconcile.PlanAction, c reconcile.Commit, try int) (again bool, err error) {
	t := r.Target()
	rec := a.record(t, id, act, c.Effect())
	if err := a.opts.Ledger.Intend(ctx, lease, rec); err != nil {
		switch {
		case errors.Is(err, ledger.ErrFenced):
			a.setState(t, reconcile.StateLocked, "lock_lost")
			return false, nil
		case errors.Is(err, ledger.ErrUnsettled):
			a.setState(t, reconcile.StateFailed, "unsettled_repair")
			a.out.codes = append(a.out.codes, reconcile.ExitCommitFailed)
			return false, nil
		}
		return false, fmt.Errorf("record the repair of %s before it is made: %w", t.Name, err)
	}
	state, version, cerr := c.Commit(ctx)
	o := outcomeOf(state, version, c.Effect(), cerr)
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleGrace)
	defer cancel()
	if err := a.opts.Ledger.Settle(sctx, lease, id, o); err != nil {
		if errors.Is(err, ledger.ErrFenced) && (state == reconcile.CommitConflict || state == reconcile.CommitFailed) {
			// Nothing landed, and whoever took the lock finds that out by itself.
			a.opts.Logger.Warn("the lock was lost while a repair was tried; nothing of it is in the table", "target", t.Name, "repair_id", id, "outcome", o.State, "err", err)
			a.report(rec, o)
			a.setState(t, reconcile.StateLocked, "lock_lost")
			return false, nil
		}
		a.lost(t, rec, o, err)
		return false, nil
	}
	rec.State = o.State
	if state == reconcile.CommitConflict && try < commitTries && ctx.Err() == nil {
		a.opts.Logger.Info("another writer was first; planning again", "target", t.Name, "try", try, "err", cerr)
		return true, nil
	}
	a.report(rec, o)
	if state == reconcile.CommitApplied {
		a.applied(sctx, r, lease, rec, c.Effect(), version)
		return false, nil
	}
	a.out.codes = append(a.out.codes, reconcile.ExitCommitFailed)
	a.setState(t, reconcile.StateFailed, o.State)
	// What the end of the pass, or of the lock, kept from landing failed by nothing of the
	// target's.
	if ctx.Err() == nil || state == reconcile.CommitUncertain {
		a.failed(sctx, t, o.State, cerr)
	}
	return false, nil
}

func outcomeOf(state reconcile.CommitState, version uint64, e reconcile.Effect, err error) ledger.Outcome {
	o := ledger.Outcome{}
	switch state {
	case reconcile.CommitApplied:
		o.State, o.CommittedVersion, o.RowsDropped = ledger.StateApplied, &version, e.RowsDropped
		return o
	case reconcile.CommitConflict:
		o.State = ledger.StateConflict
	case reconcile.CommitFailed:
		o.State = ledger.StateFailed
	default:
		o.State = ledger.StateUncertain
	}
	text := "no reason was given"
	if err != nil {
		text = err.Error()
	}
	o.Error = &text
	return o
}

// applied warns of what was dropped, once, and verifies that it holds.
func (a *applier) applied(ctx context.Context, r reconcile.Repairer, lease ledger.Lease, rec ledger.Repair, e reconcile.Effect, version uint64) {
	t := r.Target()
	for _, f := range e.Fragments {
		attrs := []any{"target", t.Name, "fragment", f.ID, "read_version", e.ReadVersion, "committed_version", version, "files", f.MissingFiles, "repair_id", rec.RepairID}
		if f.LiveRows != nil {
			attrs = append(attrs, "rows", *f.LiveRows)
		}
		a.opts.Logger.Warn("dropped a fragment", attrs...)
	}
	if e.IndexUUID != nil {
		a.opts.Logger.Warn("dropped an index entry", "target", t.Name, "index", *e.IndexUUID, "committed_version", version, "repair_id", rec.RepairID)
	}
	if err := r.Verify(ctx, e, version); err != nil {
		a.opts.Logger.Error("a repair that was committed does not hold", "target", t.Name, "version", version, "err", err)
		a.setState(t, reconcile.StateFailed, "not_verified")
		a.out.codes = append(a.out.codes, reconcile.ExitCommitFailed)
		a.failed(ctx, t, "not_verified", err)
		return
	}
	if err := a.opts.Ledger.Verified(ctx, lease, rec.RepairID); err != nil {
		a.opts.Logger.Error("record the verification", "target", t.Name, "err", err)
		a.out.codes = append(a.out.codes, reconcile.ExitCommitFailed)
	}
	if res := a.out.result(t); res != nil {
		res.Version = &version
	}
}

// record is the whole record of a repair, as it is written ahead.
func (a *applier) record(t reconcile.Target, id string, act reconcile.PlanAction, e reconcile.Effect) ledger.Repair {
	rec := a.plain(t, id, act)
	rec.ReadVersion, rec.TransactionUUID = &e.ReadVersion, &e.TransactionUUID
	rec.Fragments = e.Fragments
	rec.RowsDropped = nil // nothing is dropped yet
	rec.Manifest = ledger.ManifestOf(e.ManifestName, e.Manifest)
	rec.Messages, rec.IndexUUID, rec.IndexMessage = e.Messages, e.IndexUUID, e.IndexMessage
	return rec
}

// plain is a record without an effect.
func (a *applier) plain(t reconcile.Target, id string, act reconcile.PlanAction) ledger.Repair {
	rec := ledger.Repair{Where: ledger.TargetOf(t), PassID: a.opts.PassID, Actor: a.opts.Actor, Host: a.opts.Host, Reason: a.opts.Reason, IndexUUID: act.IndexUUID}
	rec.RepairOutcome = reconcile.RepairOutcome{RepairID: id, Target: t.Name, Store: t.Store, Action: act.Action, State: ledger.StateIntended, Trigger: a.opts.Trigger, Fragments: []reconcile.RepairFragment{}, Files: act.Files}
	if a.opts.TriggerError != nil {
		if text := a.opts.TriggerError(t); text != nil {
			rec.Trigger, rec.TriggerError = ledger.TriggerFailure, text
		}
	}
	for _, f := range act.Fragments {
		rec.Fragments = append(rec.Fragments, reconcile.RepairFragment{ID: f.ID, PhysicalRows: f.PhysicalRows, LiveRows: f.LiveRows, MissingFiles: f.Files})
	}
	return rec
}

// note records an action that had no effect because an interlock refused it.
func (a *applier) note(ctx context.Context, t reconcile.Target, act reconcile.PlanAction, state string, cause error) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make a repair id: %w", err)
	}
	rec := a.plain(t, id.String(), act)
	rec.State = state
	text := cause.Error()
	rec.Error = &text
	rec.ReadVersion = &act.ReadVersion
	if err := a.opts.Ledger.Note(ctx, rec); err != nil {
		return fmt.Errorf("record a refused repair of %s: %w", t.Name, err)
	}
	a.out.Repairs = append(a.out.Repairs, rec.RepairOutcome)
	if state == ledger.StateRefused {
		a.opts.Logger.Warn("a repair was refused", "target", t.Name, "action", act.Action.String(), "err", cause)
		a.setState(t, reconcile.StateRefused, reasonOf(cause))
		a.blockFindings(t, act, reasonOf(cause))
	}
	return nil
}

// blockFindings puts the word of a refusal on the findings that the action was for, so
// that they say themselves why nothing became of it.
func (a *applier) blockFindings(t reconcile.Target, act reconcile.PlanAction, reason string) {
	if reason == "" || reason == reconcile.RefusedPlanStale {
		return
	}
	for i := range a.out.Findings {
		f := &a.out.Findings[i]
		meant := f.Target == t.Name && f.Store == t.Store && f.ProposedAction == act.Action
		mine := slices.Contains(act.Files, f.Path) || f.FragmentID != nil && slices.ContainsFunc(act.Fragments, func(p reconcile.PlanFragment) bool { return p.ID == *f.FragmentID })
		if meant && mine && !slices.Contains(f.BlockedBy, reason) {
			f.BlockedBy = append(f.BlockedBy, reason)
		}
	}
}

func reasonOf(err error) string {
	var refusal *reconcile.Refusal
	if errors.As(err, &refusal) {
		return refusal.Reason
	}
	return ""
}

// noteFailed records an attempt that broke off before anything was intended.
func (a *applier) noteFailed(ctx context.Context, t reconcile.Target, act reconcile.PlanAction, cause error) error {
	if err := a.note(ctx, t, act, ledger.StateFailed, cause); err != nil {
		return err
	}
	a.opts.Logger.Error("a repair could not be made", "target", t.Name, "action", act.Action.String(), "err", cause)
	_, reason := reconcile.JudgeLook(cause)
	a.setState(t, reconcile.StateFailed, reason)
	a.out.codes = append(a.out.codes, reconcile.ExitCommitFailed)
	a.failed(ctx, t, ledger.StateFailed, cause)
	return nil
}

// failed counts a failed repair towards the target's cooldown.
func (a *applier) failed(ctx context.Context, t reconcile.Target, class string, cause error) {
	if errors.Is(cause, objstore.ErrThrottled) {
		return
	}
	text := class
	if cause != nil {
		text = cause.Error()
	}
	cd, err := a.opts.Ledger.Fail(ctx, a.opts.Cooldown, ledger.Failure{Kind: ledger.KindRepair, Target: t.Location.Canonical(), Class: class, Text: text})
	if err != nil {
		a.opts.Logger.Error("count a failed repair", "target", t.Name, "err", err)
		return
	}
	if cd.Entered {
		warnCooldown(a.opts.Logger, t, cd)
	}
}

func warnCooldown(log *slog.Logger, t reconcile.Target, cd ledger.Cooldown) {
	log.Warn("work on target cools down", "target", t.Name, "kind", string(cd.Kind), "failures", cd.ConsecutiveFailures, "until", cd.CooldownUntil, "last_error", deref(cd.LastError))
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// report adds a settled repair to the outcome.
func (a *applier) report(rec ledger.Repair, o ledger.Outcome) {
	rec.RepairOutcome.State, rec.RepairOutcome.CommittedVersion, rec.RepairOutcome.Error = o.State, o.CommittedVersion, o.Error
	rec.RepairOutcome.RowsDropped = o.RowsDropped
	a.out.Repairs = append(a.out.Repairs, rec.RepairOutcome)
	if o.State == ledger.StateApplied && o.RowsDropped != nil {
		a.out.Totals.RowsDropped += *o.RowsDropped
	}
}

// lost handles a ledger that went away after the effect: the record goes to the
// caller's last resort and into the outcome.
func (a *applier) lost(t reconcile.Target, rec ledger.Repair, o ledger.Outcome, err error) {
	rec.State = o.State
	a.opts.Lost(rec, o, err)
	a.report(rec, o)
	a.setState(t, reconcile.StateFailed, "not_recorded")
	a.out.codes = append(a.out.codes, reconcile.ExitCommitFailed)
}

// stillBroken looks at damaged objects once more, by the second opinion and
// between controls, and tells which are still not as they must be.
func (a *applier) stillBroken(t reconcile.Target) func(context.Context, []reconcile.Reference) ([]bool, error) {
	return func(ctx context.Context, refs []reconcile.Reference) ([]bool, error) {
		l := &look{target: t, src: a.opts.Open(t), bases: a.out.bases[t.Location.Canonical()], verdicts: map[reconcile.Verdict]int64{}}
		open := make([]*suspect, len(refs))
		for i, ref := range refs {
			// The first look of the pass saw each of these damaged.
			open[i] = &suspect{ref: ref, first: answer{verdict: reconcile.Missing}, find: a.finding(t, ref, answer{})}
		}
		a.confirmOpen(ctx, l, open)
		out := make([]bool, len(refs))
		for i, s := range open {
			switch f := s.find; {
			case s.drop, f.Verdict == reconcile.Archived, f.Verdict == reconcile.Recoverable:
			case f.Verdict.Damaged():
				out[i] = f.Reason == nil || *f.Reason != reconcile.ReasonMetadataSizeWrong
			default:
				return nil, &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: f.Path + " is " + f.Verdict.String() + " just before the commit"}
			}
		}
		return out, nil
	}
}
