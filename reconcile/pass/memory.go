package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Memory is what a look asks of earlier passes, and tells later ones. It may be
// nil: then every pass is the first.
type Memory interface {
	ledger.Findings
	ledger.Cooldowns
	ledger.Refetches
	ledger.Checkpoints
	Now(ctx context.Context) (time.Time, error)
}

// Recall says how a look uses its memory.
type Recall struct {
	Memory Memory
	PassID string
	Look   ledger.Look
	// Scheduled: the work was not asked for by name; then drops wait for DropAfter
	// and cooled-down work is left alone.
	Scheduled bool
	DropAfter time.Duration
	// Force ignores cooldowns (and still counts).
	Force bool
	// AskAgain asks peers for objects that they were asked for a short time ago.
	AskAgain bool
	// AcceptVersion is the version that a user accepts for a target that was rolled
	// back; nil accepts none.
	AcceptVersion *uint64
	Cooldown      ledger.CooldownPolicy
}

var errMemory = errors.New("ledger")

// remembers reports whether there is a memory at all.
func (p *engine) remembers() bool { return p.opts.Recall.Memory != nil }

// recall reads what the ledger knows of a target before it is looked at, and holds
// its newest version to the highest that was ever seen.
func (p *engine) recall(ctx context.Context, l *look) error {
	if !p.remembers() || l.facts.Absent {
		return nil
	}
	m, uri := p.opts.Recall.Memory, l.target.Location.Canonical()
	l.known = map[string]*peersWord{}
	if err := m.EachOpenFinding(ctx, uri, func(f ledger.Finding) { l.known[f.Finding.FindingID] = wordOf(&f.Finding) }); err != nil {
		return fmt.Errorf("%w: open findings of %s: %w", errMemory, l.target.Name, err)
	}
	if l.facts.Version == nil || l.facts.Settled {
		return nil
	}
	highest, err := m.HighestVersion(ctx, uri)
	if err != nil {
		return fmt.Errorf("%w: highest version of %s: %w", errMemory, l.target.Name, err)
	}
	if highest == nil || *l.facts.Version >= *highest {
		return nil
	}
	if a := p.opts.Recall.AcceptVersion; a != nil && *a == *l.facts.Version {
		return nil
	}
	l.facts.State = reconcile.StateRolledBack
	l.facts.Reason = fmt.Sprintf("version %d was seen before, the newest manifest is %d", *highest, *l.facts.Version)
	if !slices.Contains(l.facts.Blocks, reconcile.BlockedRolledBack) {
		l.facts.Blocks = append(l.facts.Blocks, reconcile.BlockedRolledBack)
	}
	return nil
}

// peersWord is what the last look was told by peers about an object. Nothing else of an
// open finding is kept while a look runs; nil is a finding that no peer said anything of.
type peersWord struct{ having, blockedBy []string }

func wordOf(f *reconcile.Finding) *peersWord {
	if len(f.PeersHaving) == 0 && !slices.ContainsFunc(f.BlockedBy, func(b string) bool { return strings.HasPrefix(b, reconcile.BlockedRungOpen) }) {
		return nil
	}
	return &peersWord{having: f.PeersHaving, blockedBy: f.BlockedBy}
}

// finding is a finding that says as much.
func (w *peersWord) finding() reconcile.Finding {
	if w == nil {
		return reconcile.Finding{}
	}
	return reconcile.Finding{PeersHaving: w.having, BlockedBy: w.blockedBy}
}

// answer notes what the look says of a finding that is open in the ledger. The
// caller holds l.mu.
func (l *look) answer(ref reconcile.Reference, a ledger.Answer) {
	if len(l.known) == 0 {
		return
	}
	id := reconcile.FindingIDOf(l.target, ref)
	if _, open := l.known[id]; open {
		l.answers[id] = a
	}
}

// answers completes what was noted: after a whole walk, an open finding that
// nothing named is not named any more.
func (l *look) closeAnswers() map[string]ledger.Answer {
	out := map[string]ledger.Answer{}
	for id, a := range l.answers {
		out[id] = a
	}
	if l.brokenOff == "" && !l.facts.Settled && !l.resumed {
		for id := range l.known {
			if _, met := out[id]; !met {
				out[id] = ledger.NotNamed
			}
		}
	}
	for id, a := range out {
		if a == ledger.Unknown {
			delete(out, id)
		}
	}
	return out
}

// sightings asks what earlier passes saw of these findings.
func (p *engine) sightings(ctx context.Context, ids []string) (map[string]ledger.Sighting, time.Time, error) {
	if !p.remembers() || len(ids) == 0 {
		return nil, time.Time{}, nil
	}
	now, err := p.opts.Recall.Memory.Now(ctx)
	if err != nil {
		return nil, now, fmt.Errorf("%w: clock: %w", errMemory, err)
	}
	seen, err := p.opts.Recall.Memory.Sightings(ctx, ids)
	if err != nil {
		return nil, now, fmt.Errorf("%w: earlier sightings: %w", errMemory, err)
	}
	return seen, now, nil
}

// weigh puts on confirmed findings what earlier passes and users say of them: an
// acknowledged one leads to nothing, and a scheduled drop waits until the damage
// was seen DropAfter ago.
func (p *engine) weigh(ctx context.Context, fs []reconcile.Finding) error {
	for part := range slices.Chunk(fs, confirmBatch) {
		if err := p.weighPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (p *engine) weighPart(ctx context.Context, fs []reconcile.Finding) error {
	ids := make([]string, len(fs))
	for i := range fs {
		ids[i] = fs[i].FindingID
	}
	seen, now, err := p.sightings(ctx, ids)
	if err != nil {
		return err
	}
	r := p.opts.Recall
	for i := range fs {
		s := seen[fs[i].FindingID]
		if s.Acknowledged {
			fs[i].BlockedBy = append(fs[i].BlockedBy, reconcile.BlockedAcknowledged)
		}
		if r.Scheduled && r.DropAfter > 0 && !s.DamagedFor(r.DropAfter, now) {
			fs[i].BlockedBy = append(fs[i].BlockedBy, reconcile.BlockedDropAfter)
		}
	}
	return nil
}

// cooled is the targets whose repairs cool down, by canonical URI.
func (p *engine) cooled(ctx context.Context, looks []*look) (map[string]ledger.Cooldown, error) {
	if !p.remembers() || p.opts.Recall.Force || !p.opts.Recall.Scheduled || len(looks) == 0 {
		return nil, nil
	}
	uris := make([]string, len(looks))
	for i, l := range looks {
		uris[i] = l.target.Location.Canonical()
	}
	_, cooling, err := p.opts.Recall.Memory.Due(ctx, ledger.KindRepair, uris)
	if err != nil {
		return nil, fmt.Errorf("%w: cooldowns: %w", errMemory, err)
	}
	return cooling, nil
}

// remember records one target's line and findings, and whether the check itself
// went well.
func (p *engine) remember(ctx context.Context, l *look, findings []reconcile.Finding) error {
	if !p.remembers() {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	check := l.howChecked(findings)
	sum, err := p.opts.Recall.Memory.RecordTarget(ctx, ledger.TargetRecord{PassID: p.opts.Recall.PassID, Target: ledger.TargetOf(l.target),
		Result: l.result, Look: p.opts.Recall.Look, Findings: findings, Answers: l.closeAnswers(), CheckSucceeded: check == checkSucceeded})
	if err != nil {
		return fmt.Errorf("%w: record %s: %w", errMemory, l.target.Name, err)
	}
	p.mu.Lock()
	p.out.Totals.Carried += sum.Carried
	p.mu.Unlock()
	if err := p.forgetCheckpoint(ctx, l); err != nil {
		return fmt.Errorf("%w: forget where the look at %s stopped: %w", errMemory, l.target.Name, err)
	}
	if check != checkFailed {
		return nil
	}
	return p.countCheck(ctx, l)
}

// check is how a look at a target went, apart from what it found.
type check uint8

const (
	checkNeither check = iota
	checkSucceeded
	checkFailed
)

// howChecked tells a check that ran and did not end well. What was throttled, or cut off
// with the pass, is not counted, and only a whole look resets the count.
func (l *look) howChecked(findings []reconcile.Finding) check {
	reason := deref(l.result.Reason)
	switch l.result.State {
	case reconcile.StateUnreadable:
		if l.cut || l.throttled {
			return checkNeither
		}
		return checkFailed
	case reconcile.StateIncomplete:
		excused := reason == reconcile.ReasonThrottled || reason == reasonInterrupted
		switch {
		case l.brokenOff != "" && !excused:
			return checkFailed // before the pass ended, if it did
		case l.cut:
			return checkNeither
		case l.facts.Settled && !excused, l.failedOtherwise(findings):
			return checkFailed
		}
		return checkNeither
	case reconcile.StateFailed, reconcile.StateLocked, reconcile.StateCoolingDown, reconcile.StateHalfDeleted, reconcile.StatePending:
		return checkNeither
	}
	if l.cut {
		return checkNeither
	}
	return checkSucceeded
}

// failedOtherwise reports whether anything is open for another reason than throttling.
// The reason that a finding shows may be one that the metadata gave, or that of the
// controls; what the store said counts.
func (l *look) failedOtherwise(findings []reconcile.Finding) bool {
	return slices.ContainsFunc(findings, func(f reconcile.Finding) bool {
		return f.Verdict.Open() && !f.Ref.Harmless && !slices.Contains(f.BlockedBy, reconcile.BlockedAcknowledged) &&
			deref(f.Reason) != reconcile.ReasonThrottled && !l.unanswered[f.FindingID]
	})
}

// countCheck counts a failed check towards the target's cooldown.
func (p *engine) countCheck(ctx context.Context, l *look) error {
	reason := deref(l.result.Reason)
	cd, err := p.opts.Recall.Memory.Fail(ctx, p.opts.Recall.Cooldown, ledger.Failure{Kind: ledger.KindCheck, Target: l.target.Location.Canonical(), Class: l.result.State.String(), Text: l.result.State.String() + ": " + reason})
	if err != nil {
		return fmt.Errorf("%w: count a failed check of %s: %w", errMemory, l.target.Name, err)
	}
	if cd.Entered {
		warnCooldown(p.opts.Logger, l.target, cd)
	}
	return nil
}
