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
	err atomic.Pointer[error]
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
	for _, i := range a.findingsOf(t, actions) {
		if ctx.Err() != nil || m.err.Load() != nil {
			break
		}
		if !a.mayMend() {
			a.opts.Logger.Info("the budget for bringing objects back is spent", "target", t.Name)
			break
		}
		g.Go(func() error {
			m.one(ctx, &a.out.Findings[i], prover)
			return nil
		})
	}
	_ = g.Wait()
	if err := m.err.Load(); err != nil {
		return *err
	}
	return nil
}

// findingsOf are the findings that the actions are about, by their place in the
// outcome.
func (a *applier) findingsOf(t reconcile.Target, actions []reconcile.PlanAction) []int {
	var out []int
	for i := range a.out.Findings {
		f := &a.out.Findings[i]
		if f.Target != t.Name || f.Store != t.Store || len(f.BlockedBy) > 0 {
			continue
		}
		if slices.ContainsFunc(actions, func(act reconcile.PlanAction) bool {
			return act.Action == f.ProposedAction && slices.Contains(act.Files, f.Path)
		}) {
			out = append(out, i)
		}
	}
	return out
}

// mayMend reports whether the pass's budget allows another object.
func (a *applier) mayMend() bool {
	o := a.opts.Mend
	return (o.MaxObjects == 0 || a.mended.objects.Load() < o.MaxObjects) && (o.MaxBytes == 0 || a.mended.bytes.Load() < o.MaxBytes)
}

// one brings back one object.
func (m *mending) one(ctx context.Context, f *reconcile.Finding, prover reconcile.Prover) {
	m.mended.objects.Add(1)
	p, r := m.opts.Mend.Mender.Prepare(ctx, mend.Job{Target: m.t, Finding: *f, Prover: prover, Peers: m.having(f), StillNamed: func(ctx context.Context) (bool, error) {
		m.ask.Lock()
		defer m.ask.Unlock()
		rev, err := m.src.Revisit(ctx, []reconcile.Reference{f.Ref})
		if err != nil {
			return false, err
		}
		return rev.Named[0], nil
	}})
	if p == nil {
		if ctx.Err() == nil {
			m.settled(ctx, f, r, m.plainMend(f, r), true)
		}
		return
	}
	defer p.Close()
	m.write.Lock()
	defer m.write.Unlock()
	if ctx.Err() != nil || m.err.Load() != nil {
		return
	}
	rec := m.plainMend(f, r)
	if err := m.opts.Ledger.Intend(ctx, m.lease, rec); err != nil {
		if errors.Is(err, ledger.ErrFenced) {
			m.setState(m.t, reconcile.StateLocked, "lock_lost")
		}
		err = fmt.Errorf("record that %s is brought back, before it is: %w", f.Path, err)
		m.err.CompareAndSwap(nil, &err)
		return
	}
	m.settled(ctx, f, p.Write(ctx), rec, false)
}

// having are the peers that said they hold a copy of the object.
func (m *mending) having(f *reconcile.Finding) []reconcile.Peer {
	if m.opts.Peers == nil {
		return nil
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
// unwritten: no write was intended.
func (m *mending) settled(ctx context.Context, f *reconcile.Finding, r mend.Result, rec ledger.Repair, unwritten bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleGrace)
	defer cancel()
	if unwritten {
		m.write.Lock()
		defer m.write.Unlock()
	}
	o := ledger.Outcome{State: mendStates[r.Outcome], Proof: nonEmpty(r.Proof), DurationMS: reconcile.Ptr(r.Duration.Milliseconds()), Source: nonEmpty(r.Source)}
	if r.Outcome == mend.Restored {
		o.BytesRestored = &r.Bytes
		m.mended.bytes.Add(r.Bytes)
		m.out.Totals.BytesRestored += r.Bytes
	} else {
		text := "no reason was given"
		if r.Err != nil {
			text = r.Err.Error()
		}
		if r.Reason != "" {
			text = r.Reason + ": " + text
		}
		o.Error = &text
	}
	var err error
	if unwritten {
		rec.State, rec.Error = o.State, o.Error
		rec.Proof, rec.DurationMS = o.Proof, o.DurationMS
		err = m.opts.Ledger.Note(ctx, rec)
	} else {
		err = m.opts.Ledger.Settle(ctx, m.lease, rec.RepairID, o)
	}
	if err != nil {
		if r.Outcome == mend.Restored {
			m.lost(m.t, rec, o, err)
		}
		m.err.CompareAndSwap(nil, &err)
		return
	}
	rec.RepairOutcome.State, rec.RepairOutcome.Error, rec.RepairOutcome.BytesRestored = o.State, o.Error, o.BytesRestored
	rec.RepairOutcome.Proof, rec.RepairOutcome.DurationMS = o.Proof, o.DurationMS
	m.out.Repairs = append(m.out.Repairs, rec.RepairOutcome)
	m.tell(ctx, f, r, rec)
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
	if r.Reason == mend.ReasonSuperseded {
		return
	}
	if _, err := m.opts.Ledger.RefetchFailed(ctx, ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: f.FindingID, Target: m.t.Location.Canonical(), PeersSaidNo: r.SaidNo, Text: deref(rec.RepairOutcome.Error)}); err != nil {
		m.opts.Logger.Error("count a failed attempt", "path", f.Path, "err", err)
	}
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// mended counts what a pass brought back.
type mended struct{ objects, bytes atomic.Int64 }

// settleMend is the outcome of an attempt whose process died: writing is harmless to
// repeat, and the look that comes next says what is there.
func settleMend(rec ledger.Repair) ledger.Outcome {
	text := "the process ended before it knew whether the copy was stored; the next look says what is there"
	return ledger.Outcome{State: ledger.StateFailed, Error: &text}
}
