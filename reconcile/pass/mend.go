package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/mend"
)

// MendOptions say how lost bytes are brought back. Every field must be set, except
// where noted.
type MendOptions struct {
	Mender *mend.Mender
	// MaxBytes and MaxObjects bound a pass; 0 is no bound.
	MaxBytes, MaxObjects int64
}

// mendsAtOnce is how many copies of a target are fetched and proven at once.
const mendsAtOnce = 4

// mending is the work on one target.
type mending struct {
	*applier
	t     reconcile.Target
	lease ledger.Lease
	src   reconcile.Source
	// one writes at a time, so that no more than one effect is ever open.
	write sync.Mutex
	// ask guards src, whose metadata is asked from one goroutine at a time.
	ask sync.Mutex
	// done ends the work on the target: its record cannot be kept any more.
	done atomic.Bool
	// err is for the caller (guarded by write): the ledger is out of reach.
	err error
	// unknown are attempts of which nobody knows whether they wrote (guarded by write).
	unknown []unknown
}

// unknown is an attempt whose outcome is recorded last: from then on the ledger lets
// nothing more be intended for the target, and one object must hold up no other.
type unknown struct {
	f   *reconcile.Finding
	r   mend.Result
	rec ledger.Repair
}

// mendAll brings back what the actions name, under the target's lock. One object
// that cannot be had holds up no other.
func (a *applier) mendAll(ctx context.Context, t reconcile.Target, lease ledger.Lease, actions []reconcile.PlanAction) error {
	src := a.opts.Open(t)
	facts, err := src.Open(ctx)
	prover, ok := src.(reconcile.Prover)
	if err != nil || facts.Settled || facts.Absent || !ok {
		a.opts.Logger.Warn("nothing is brought back: the target cannot be read", "target", t.Name, "err", err)
		return nil
	}
	m := &mending{applier: a, t: t, lease: lease, src: src}
	g := new(errgroup.Group)
	g.SetLimit(mendsAtOnce)
	due := a.findingsOf(t, actions)
	for n, i := range due {
		if ctx.Err() != nil || m.done.Load() {
			break
		}
		f := &a.out.Findings[i]
		if !a.mayMend(f.Ref.Size) {
			a.out.Totals.RefetchDeferred += int64(len(due) - n)
			break
		}
		g.Go(func() error {
			a.mended.bytes.Add(m.one(ctx, f, prover) - f.Ref.Size)
			return nil
		})
	}
	_ = g.Wait()
	m.write.Lock()
	defer m.write.Unlock()
	for _, u := range m.unknown {
		m.settled(ctx, u.f, u.r, u.rec, false)
	}
	return m.err
}

// findingsOf are the findings that the actions are about, by their place in the
// outcome.
func (a *applier) findingsOf(t reconcile.Target, actions []reconcile.PlanAction) []int {
	type step struct {
		action reconcile.Action
		file   string
	}
	planned := map[step]bool{}
	for _, act := range actions {
		for _, file := range act.Files {
			planned[step{act.Action, file}] = true
		}
	}
	var out []int
	for i := range a.out.Findings {
		f := &a.out.Findings[i]
		if f.Target == t.Name && f.Store == t.Store && len(f.BlockedBy) == 0 && planned[step{f.ProposedAction, f.Path}] {
			out = append(out, i)
		}
	}
	return out
}

// mayMend takes one object of so many recorded bytes (0: not recorded) from the pass's
// budget, unless that is spent. What is under way counts as if it were back; the first
// object may be larger than the whole budget.
func (a *applier) mayMend(size int64) bool {
	o, m := a.opts.Mend, &a.mended
	taken := m.bytes.Load()
	if o.MaxObjects > 0 && m.objects.Load() >= o.MaxObjects || o.MaxBytes > 0 && taken > 0 && taken+max(size, 1) > o.MaxBytes {
		return false
	}
	m.objects.Add(1)
	m.bytes.Add(size)
	return true
}

// one brings back one object. bytes are those that are back, or may be.
func (m *mending) one(ctx context.Context, f *reconcile.Finding, prover reconcile.Prover) (bytes int64) {
	stillNamed := func(ctx context.Context) (bool, error) { return m.stillNamed(ctx, f) }
	p, r := m.opts.Mend.Mender.Prepare(ctx, mend.Job{Target: m.t, Finding: *f, Prover: prover, Peers: m.having(f), StillNamed: stillNamed})
	if p == nil && len(r.Refused) > 0 && ctx.Err() == nil {
		if named, err := stillNamed(ctx); err == nil && !named {
			// The copies were held against a record that has changed since: none of them failed.
			r.Outcome, r.Reason, r.SaidNo, r.Disproved = mend.Refused, mend.ReasonSuperseded, nil, nil
			r.Err = errors.Join(errors.New("the metadata no longer says the same of the object"), r.Err)
		}
	}
	if p != nil {
		defer p.Close()
	}
	m.write.Lock()
	defer m.write.Unlock()
	if ctx.Err() != nil || m.done.Load() {
		return 0
	}
	rec := m.plainMend(f, r)
	if p == nil {
		m.settled(ctx, f, r, rec, true)
		return 0
	}
	switch err := m.opts.Ledger.Intend(ctx, m.lease, rec); {
	case err == nil:
	case errors.Is(err, ledger.ErrFenced):
		m.stop(nil)
		m.setState(m.t, reconcile.StateLocked, "lock_lost")
		return 0
	case errors.Is(err, ledger.ErrUnsettled):
		m.stop(nil)
		m.setState(m.t, reconcile.StateFailed, "unsettled_repair")
		m.out.codes = append(m.out.codes, reconcile.ExitCommitFailed)
		return 0
	default:
		m.stop(fmt.Errorf("record that %s is brought back, before it is: %w", f.Path, err))
		return 0
	}
	if r = p.Write(ctx); r.Outcome == mend.Uncertain {
		m.unknown = append(m.unknown, unknown{f, r, rec})
	} else {
		m.settled(ctx, f, r, rec, false)
	}
	return r.Bytes
}

// stillNamed asks the metadata whether it still says the same of the object.
func (m *mending) stillNamed(ctx context.Context, f *reconcile.Finding) (bool, error) {
	m.ask.Lock()
	defer m.ask.Unlock()
	rev, err := m.src.Revisit(ctx, []reconcile.Reference{f.Ref})
	if err != nil {
		return false, err
	}
	return rev.Named[0], nil
}

// stop ends the work on the target, with an error when that of the whole pass ends.
func (m *mending) stop(err error) {
	m.done.Store(true)
	if m.err == nil {
		m.err = err
	}
}

// having are the peers that said they hold a copy of the object. Of an object with
// older versions none was asked; when none of those is any good, all are tried.
func (m *mending) having(f *reconcile.Finding) []reconcile.Peer {
	if m.opts.Peers == nil {
		return nil
	}
	if f.Restorable {
		return m.opts.Peers(m.t)
	}
	return slices.DeleteFunc(slices.Clone(m.opts.Peers(m.t)), func(p reconcile.Peer) bool { return !slices.Contains(f.PeersHaving, p.Name()) })
}

// plainMend is the record of an attempt, before anything is written.
func (m *mending) plainMend(f *reconcile.Finding, r mend.Result) ledger.Repair {
	action := r.Action
	if action == reconcile.ActionNone {
		action = f.ProposedAction
	}
	rec := m.plain(m.t, newID(), reconcile.PlanAction{Action: action, Files: []string{f.Path}, Fragments: []reconcile.PlanFragment{}})
	if f.Version > 0 {
		rec.ReadVersion = &f.Version
	}
	if r.Source != "" {
		rec.Source = &r.Source
	}
	return rec
}

func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString() // the clock is not needed for an identity
	}
	return id.String()
}

// states of repairs by what became of a mend.
var mendStates = map[mend.Outcome]string{mend.Failed: ledger.StateFailed, mend.Refused: ledger.StateRefused, mend.Restored: ledger.StateApplied,
	mend.Conflict: ledger.StateConflict, mend.Uncertain: ledger.StateUncertain}

// settled records what became of an attempt, and what it means for the next one.
// unwritten: no write was intended. The caller holds m.write.
func (m *mending) settled(ctx context.Context, f *reconcile.Finding, r mend.Result, rec ledger.Repair, unwritten bool) {
	cut := ctx.Err() != nil && r.Outcome == mend.Failed // no copy failed: the pass ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleGrace)
	defer cancel()
	o := mendOutcome(r)
	if r.Outcome == mend.Restored {
		m.out.Totals.BytesRestored += r.Bytes
	}
	told := &rec.RepairOutcome
	told.State, told.Error, told.BytesRestored, told.Proof, told.DurationMS = o.State, o.Error, o.BytesRestored, o.Proof, o.DurationMS
	if unwritten {
		if err := m.opts.Ledger.Note(ctx, rec); err != nil {
			m.stop(fmt.Errorf("record that %s was not brought back: %w", f.Path, err))
			return
		}
	} else if err := m.opts.Ledger.Settle(ctx, m.lease, rec.RepairID, o); err != nil {
		m.unsettled(rec, o, r, err)
		return
	}
	m.noteRefused(ctx, f, r)
	m.out.Repairs = append(m.out.Repairs, *told)
	if !cut {
		m.tell(ctx, f, r, rec)
	}
	if !unwritten && r.Outcome == mend.Failed {
		m.out.codes = append(m.out.codes, reconcile.ExitCommitFailed) // a write was sent and did not land
	}
}

// noteRefused records the copies that were tried in vain before one was good. When none
// was, the attempt's own record says why of each.
func (m *mending) noteRefused(ctx context.Context, f *reconcile.Finding, r mend.Result) {
	if r.Outcome != mend.Restored {
		return
	}
	for _, a := range r.Refused {
		rec := m.plainMend(f, mend.Result{Action: a.Action, Source: a.Source})
		text := a.Err.Error()
		rec.State, rec.Error = ledger.StateRefused, &text
		if err := m.opts.Ledger.Note(ctx, rec); err != nil {
			m.opts.Logger.Error("record a copy that was refused", "path", f.Path, "source", a.Source, "err", err)
			return
		}
		m.out.Repairs = append(m.out.Repairs, rec.RepairOutcome)
	}
}

// mendOutcome is an attempt's outcome as the ledger keeps it.
func mendOutcome(r mend.Result) ledger.Outcome {
	o := ledger.Outcome{State: mendStates[r.Outcome], Proof: nonEmpty(r.Proof), DurationMS: reconcile.Ptr(r.Duration.Milliseconds()), Source: nonEmpty(r.Source)}
	if r.Outcome == mend.Restored {
		o.BytesRestored = &r.Bytes
		return o
	}
	text := "no reason was given"
	if r.Err != nil {
		text = r.Err.Error()
	}
	if r.Reason != "" {
		text = r.Reason + ": " + text
	}
	o.Error = &text
	return o
}

// unsettled handles an attempt that was intended and whose outcome the ledger did not
// take. Nothing more is written to the target.
func (m *mending) unsettled(rec ledger.Repair, o ledger.Outcome, r mend.Result, err error) {
	m.stop(nil)
	if errors.Is(err, ledger.ErrFenced) && r.Outcome != mend.Restored && r.Outcome != mend.Uncertain {
		// Nothing landed, and whoever took the lock finds that out by itself.
		m.opts.Logger.Warn("the lock was lost while an object was brought back; nothing of it was stored", "target", m.t.Name, "repair_id", rec.RepairID, "outcome", o.State, "err", err)
		m.out.Repairs = append(m.out.Repairs, rec.RepairOutcome)
		m.setState(m.t, reconcile.StateLocked, "lock_lost")
		return
	}
	m.lost(m.t, rec, o, err)
}

// tell logs an attempt, marks the finding, and remembers when to try again.
func (m *mending) tell(ctx context.Context, f *reconcile.Finding, r mend.Result, rec ledger.Repair) {
	switch r.Outcome {
	case mend.Restored:
		m.opts.Logger.Info("brought an object back", "target", m.t.Name, "path", f.Path, "source", r.Source, "bytes", r.Bytes, "proof", r.Proof, "repair_id", rec.RepairID)
		if err := m.opts.Ledger.RefetchDone(ctx, f.FindingID); err != nil {
			m.opts.Logger.Warn("forget earlier attempts", "path", f.Path, "err", err)
		}
		if err := m.opts.Ledger.Verified(ctx, m.lease, rec.RepairID); err != nil {
			m.opts.Logger.Error("record the verification", "target", m.t.Name, "err", err)
		}
		return
	case mend.Uncertain:
		m.out.codes = append(m.out.codes, reconcile.ExitCommitFailed)
	}
	m.opts.Logger.Warn("an object could not be brought back", "target", m.t.Name, "path", f.Path, "outcome", rec.RepairOutcome.State, "err", r.Err)
	if r.Reason == reconcile.BlockedReplaceUnproven || r.Reason == reconcile.BlockedReplaceWouldLose || r.Reason == reconcile.BlockedOutsideRoot {
		f.BlockedBy = append(f.BlockedBy, r.Reason)
	}
	for _, name := range r.Silent {
		f.BlockedBy = append(f.BlockedBy, reconcile.BlockedRungOpen+name)
	}
	if len(r.Silent) > 0 && f.ProposedAction == reconcile.ActionRefetch && !slices.ContainsFunc(f.PeersHaving, func(name string) bool { return !slices.Contains(r.Silent, name) }) {
		f.ProposedAction = reconcile.ActionNone // as if they had not answered when they were asked
	}
	switch {
	case r.Outcome != mend.Refused:
	case r.Reason != mend.ReasonSuperseded:
		m.setState(m.t, reconcile.StateRefused, r.Reason)
	case m.opts.Strict:
		m.setState(m.t, reconcile.StateRefused, reconcile.RefusedPlanStale) // what was planned no longer holds
	}
	if !countsAsFailure(r) {
		return
	}
	saidNo := slices.DeleteFunc(slices.Clone(f.SaidNo), func(n string) bool { return slices.Contains(r.SaidNo, n) })
	failure := ledger.RefetchFailure{FindingID: f.FindingID, Target: m.t.Location.Canonical(), PeersSaidNo: append(saidNo, r.SaidNo...),
		Disproved: map[string]string{}, Text: deref(rec.RepairOutcome.Error)}
	for peer, etag := range r.Disproved {
		failure.Disproved[peer] = disproof(f.Ref, etag)
	}
	if _, err := m.opts.Ledger.RefetchFailed(ctx, ledger.DefaultRefetch(), failure); err != nil {
		m.opts.Logger.Error("count a failed attempt", "path", f.Path, "err", err)
	}
}

// countsAsFailure: a refusal is none, so that the next pass tries again as soon as what
// forbade the write is gone. That no copy is proven says something of the copies, which
// fetching them again at once does not change.
func countsAsFailure(r mend.Result) bool {
	return r.Outcome != mend.Refused || r.Reason == reconcile.BlockedReplaceUnproven
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// mended counts, of a pass, the objects that were tried, and the bytes that are back or
// under way.
type mended struct{ objects, bytes atomic.Int64 }

// settleMend is the outcome of an attempt whose process died: writing is harmless to
// repeat, and the look that comes next says what is there.
func settleMend(rec ledger.Repair) ledger.Outcome {
	text := "the process ended before it knew whether the copy was stored; the next look says what is there"
	return ledger.Outcome{State: ledger.StateFailed, Error: &text}
}
