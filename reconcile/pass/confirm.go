package pass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// confirmAll takes the second look at every suspect: once per pass, after
// ConfirmAfter.
func (p *engine) confirmAll(ctx context.Context) error {
	if len(p.looks) == 0 {
		return nil
	}
	if p.opts.ConfirmAfter > 0 && ctx.Err() == nil {
		if p.opts.Progress != nil {
			p.opts.Progress(Progress{Phase: "wait", Targets: p.total, TargetsDone: int(p.done.Load()), References: p.refs.Load(),
				Checked: p.checked.Load(), SuspectsNow: p.suspect.Load(), WaitUntil: p.opts.Clock.Now().Add(p.opts.ConfirmAfter)})
		}
		p.opts.Logger.Info("second look after a wait", "suspects", p.suspect.Load(), "targets", len(p.looks), "wait", p.opts.ConfirmAfter)
		if err := p.opts.Clock.Sleep(ctx, p.opts.ConfirmAfter); err != nil {
			p.opts.Logger.Warn("interrupted before the second look", "suspects", p.suspect.Load())
		}
	}
	g := new(errgroup.Group)
	g.SetLimit(p.opts.TargetConcurrency)
	for _, l := range p.looks {
		g.Go(func() error {
			tctx, cancel := context.WithTimeoutCause(ctx, p.opts.TargetTimeout, errTargetTimeout)
			defer cancel()
			err := p.confirm(tctx, l)
			l.cut = l.cut || ctx.Err() != nil
			p.progress("confirm")
			return err
		})
	}
	return g.Wait()
}

// confirm decides every suspect of one target. Whatever keeps it from looking
// leaves the suspects undecided.
func (p *engine) confirm(ctx context.Context, l *look) error {
	if ctx.Err() != nil {
		p.undecideAll(ctx, l, context.Cause(ctx)) // nothing is asked for any more
		return nil
	}
	if l.facts.Settled && l.suspects.n == 0 {
		p.confirmMetadata(ctx, l)
		return nil
	}
	refs := l.suspects.refs()
	rev, err := l.src.Revisit(ctx, refs)
	if err != nil {
		p.undecideAll(ctx, l, err)
		return nil
	}
	l.facts.Findings = stillThere(l.facts.Findings, rev.Metadata, p.opts.Clock.Now())
	if rev.RolledBack {
		l.facts.State = reconcile.StateRolledBack
		if l.facts.Reason == "" && l.facts.Version != nil {
			l.facts.Reason = fmt.Sprintf("the newest version fell from %d to %d between the looks", *l.facts.Version, rev.Version)
		}
		l.facts.Blocks = append(l.facts.Blocks, reconcile.BlockedRolledBack)
	}
	old := ages{suspects: &l.suspects, refs: refs, named: rev.Named}
	return p.inBatches(l, func(batch []suspect) error {
		var open []*suspect
		for i := range batch {
			s := &batch[i]
			if !rev.Named[s.at] {
				status := statusOf(s.first.err)
				s.second = answer{verdict: reconcile.Superseded}
				setAnswer(&s.find, s.second)
				s.find.HTTPStatus = status
				continue
			}
			open = append(open, s)
		}
		p.confirmOpen(ctx, l, open)
		err := p.protectYoung(ctx, l, open, &old)
		old.refs = nil // mostly asked by now
		if err != nil {
			return err
		}
		return p.askPeers(ctx, l, open)
	})
}

// inBatches makes suspects of what the first look left, some at a time, and keeps the
// findings that decide makes of them.
func (p *engine) inBatches(l *look, decide func(batch []suspect) error) error {
	l.found = make([]reconcile.Finding, 0, l.suspects.n)
	batch := make([]suspect, 0, min(confirmBatch, l.suspects.n))
	for b, firsts := range l.suspects.batches {
		batch = batch[:0]
		for i := range firsts {
			f := &firsts[i]
			s := suspect{ref: f.ref, at: b*confirmBatch + i, first: f.answer(), find: reconcile.NewFinding(l.target, f.ref, f.at)}
			setAnswer(&s.find, s.first)
			batch = append(batch, s)
		}
		if err := decide(batch); err != nil {
			return err
		}
		for i := range batch {
			s := &batch[i]
			if s.drop {
				continue
			}
			shareText(&s.find)
			l.found = append(l.found, s.find)
			if errors.Is(s.second.err, objstore.ErrThrottled) || s.second.reason == reasonSeenOnce && errors.Is(s.first.err, objstore.ErrThrottled) {
				if l.unanswered == nil {
					l.unanswered = map[string]bool{}
				}
				l.unanswered[s.find.FindingID] = true
			}
		}
		l.suspects.batches[b] = nil
	}
	l.suspects = suspects{}
	return nil
}

// shareText lets the names of one object share one text: its URL mostly ends in its
// key, and that in its path.
func shareText(f *reconcile.Finding) {
	share := func(whole string, part *string) {
		if strings.HasSuffix(whole, *part) {
			*part = whole[len(whole)-len(*part):]
		}
	}
	share(f.URL, &f.Ref.Location.Key)
	share(f.Ref.Location.Key, &f.Ref.Path)
	share(f.Ref.Location.Key, &f.Path)
}

// confirmMetadata looks again at a target that its metadata alone decided, since
// a manifest half written or a listing out of date heals by itself.
func (p *engine) confirmMetadata(ctx context.Context, l *look) {
	src := p.opts.Open(l.target)
	again, err := src.Open(ctx)
	if err != nil || again.Settled && again.State != l.facts.State {
		// Nobody knows whether it is as before: the first word stands, seen once.
		l.throttled = err != nil && errors.Is(err, objstore.ErrThrottled) || err == nil && again.Reason == reconcile.ReasonThrottled
		return
	}
	if again.Settled {
		// As bad as before.
		for i := range l.facts.Findings {
			if f := &l.facts.Findings[i]; !f.Verdict.Open() {
				f.ConfirmedAt = reconcile.Ptr(p.opts.Clock.Now())
			}
		}
		return
	}
	// Readable now: take the look that could not be taken before. What it does not
	// find present has had one look only, and stays open.
	l.src, l.facts = src, again
	l.counts(again)
	if again.Control != (objstore.Location{}) {
		l.base(l.target.Location).addControl(again.Control)
	}
	if err := p.headAll(ctx, l); err != nil {
		l.brokenOff = p.brokenOff(ctx, ctx, err)
		l.facts.NotChecked = append(l.facts.NotChecked, notReached(l)...)
	}
	l.facts.NotChecked = append(l.facts.NotChecked, l.src.Unread()...)
	_ = p.inBatches(l, func(batch []suspect) error {
		for i := range batch {
			s := &batch[i]
			if !s.first.verdict.Open() {
				s.second = answer{reason: reasonSeenOnce, err: s.first.err}
				setAnswer(&s.find, s.second)
			}
		}
		return nil
	})
}

// reasonSeenOnce: only one of the two looks saw it so.
const reasonSeenOnce = "seen_missing_once"

// stillThere keeps the metadata findings of the first look that the second look
// makes as well, in the words of the second, and those that only the second makes.
func stillThere(first, second []reconcile.Finding, now time.Time) []reconcile.Finding {
	seenFirst := map[string]reconcile.Finding{}
	for _, f := range first {
		seenFirst[f.FindingID] = f
	}
	var out []reconcile.Finding
	for _, f := range second {
		if old, ok := seenFirst[f.FindingID]; ok {
			f.FirstObservedAt = old.FirstObservedAt
			if !f.Verdict.Open() {
				f.ConfirmedAt = &now
			}
		} else if f.Reason != nil && *f.Reason == reconcile.ReasonHigherVersionTrace {
			continue // seen once only: a writer in the middle of a commit looks like this
		} else {
			f.FirstObservedAt = now
		}
		out = append(out, f)
	}
	return out
}

func (p *engine) undecideAll(ctx context.Context, l *look, err error) {
	_, reason := reconcile.JudgeLook(err)
	a := answer{reason: reason, err: err}
	if context.Cause(ctx) != nil && !errors.Is(context.Cause(ctx), errTargetTimeout) {
		a.reason = reasonInterrupted
	}
	_ = p.inBatches(l, func(batch []suspect) error {
		for i := range batch {
			s := &batch[i]
			if s.second = s.first; !s.first.verdict.Open() {
				s.second = a
				setAnswer(&s.find, a)
			}
		}
		return nil
	})
}

// confirmOpen asks again about every suspect that is still named, between two
// rounds of controls for each base.
func (p *engine) confirmOpen(ctx context.Context, l *look, open []*suspect) {
	before := p.controls(ctx, l, open)
	g := new(errgroup.Group)
	if l.lane == nil {
		l.lane = newLane(p.opts.Concurrency, len(p.looks)) // that a store hangs is true of the next batch too
	}
	lane := l.lane
	for _, s := range open {
		if err := p.enter(ctx, lane); err != nil {
			s.second = answer{reason: reasonInterrupted, err: err}
			if errors.Is(err, errTargetTimeout) {
				s.second.reason = reconcile.ReasonTargetTimeout
			}
			continue
		}
		g.Go(func() error {
			defer p.leave(lane)
			s.second = p.inspect(ctx, l.src, s.ref, p.ask(ctx, s.ref, restatAsker))
			lane.note(s.second)
			return nil
		})
	}
	g.Wait()
	after := p.controls(ctx, l, open)
	for _, s := range open {
		p.decide(l, s, before[s.ref.Base], after[s.ref.Base])
	}
	for _, s := range open {
		if s.drop || !s.find.Verdict.Damaged() || s.find.Verdict == reconcile.Archived {
			continue
		}
		if p.enter(ctx, lane) != nil {
			s.find.BlockedBy = append(s.find.BlockedBy, reconcile.BlockedVersionsUnknown)
			continue
		}
		g.Go(func() error {
			defer p.leave(lane)
			p.askVersions(ctx, s)
			return nil
		})
	}
	g.Wait()
}

// controls proves every base that an absence was seen under.
func (p *engine) controls(ctx context.Context, l *look, open []*suspect) map[objstore.Location]*answer {
	failed := map[objstore.Location]*answer{}
	proven := map[objstore.Location]bool{}
	for _, s := range open {
		b := s.ref.Base
		if !s.first.absent() && !s.second.absent() || proven[b] || failed[b] != nil {
			continue
		}
		if f := p.control(ctx, b, l.base(b), s.ref.Location); f != nil {
			failed[b] = f
			continue
		}
		proven[b] = true
	}
	return failed
}

// decide joins the two looks at a suspect into its verdict.
func (p *engine) decide(l *look, s *suspect, before, after *answer) {
	final := s.second
	switch {
	case final.verdict == reconcile.Present:
		s.drop = true
		l.verdicts[reconcile.Present]++
		l.answer(s.ref, ledger.Present)
		if s.first.absent() {
			l.flapped++
		}
		return
	case final.absent() && !s.first.absent():
		// Only one of the two looks was told that there is no such object.
		final = answer{reason: reasonSeenOnce, err: final.err, attrs: final.attrs}
	case final.absent() && before != nil:
		final = *before
	case final.absent() && after != nil:
		final = *after
	}
	s.second = final
	setAnswer(&s.find, final)
	if !final.verdict.Open() {
		s.find.ConfirmedAt = reconcile.Ptr(p.opts.Clock.Now())
	}
}

// listed reports whether a listing shows an object that HEAD and GET do not: it may
// prove presence, never absence, so that a listing that fails tells nothing.
func (p *engine) listed(ctx context.Context, r objstore.Reader, loc objstore.Location) bool {
	if loc.Scheme == "file" {
		return false // a folder's entries are what stat looked at, and cost a read of all of them
	}
	for at, err := range r.List(ctx, loc, "") {
		if err != nil {
			return false
		}
		if at.Location.Key >= loc.Key {
			return at.Location.Key == loc.Key // listings are in order
		}
	}
	return false
}

// contradict takes back a verdict that the store itself gainsays.
func (p *engine) contradict(s *suspect) {
	s.second = answer{reason: reconcile.ReasonContradiction, err: s.second.err}
	setAnswer(&s.find, s.second)
	s.find.ConfirmedAt = nil
}

// restorable reports whether a version of an object is one to bring back: not the
// damaged bytes that are there now, and of the recorded size where one is recorded.
// Its content is proven when it is restored, not here.
func restorable(ref reconcile.Reference, v, current objstore.Attrs) bool {
	switch {
	case v.DeleteMarker || v.IsLatest || current.VersionID != "" && v.VersionID == current.VersionID:
		return false
	case ref.Size > 0 && v.Size >= 0:
		return v.Size == ref.Size
	}
	return v.Size < 0 || v.Size >= ref.MinSize
}

// askVersions asks the store whether an older version of a damaged object can be
// brought back. Only a list read to its end that holds none is an explicit no.
func (p *engine) askVersions(ctx context.Context, s *suspect) {
	r, err := p.opts.Stores.Reader(ctx, s.ref.Base)
	if err == nil && s.find.Verdict == reconcile.Missing && p.listed(ctx, r, s.ref.Location) {
		p.contradict(s)
		return
	}
	if err == nil {
		for v, verr := range r.Versions(ctx, s.ref.Location) {
			if verr != nil {
				err = verr
				break
			}
			if s.find.Verdict == reconcile.Missing && v.IsLatest && !v.DeleteMarker {
				p.contradict(s)
				return
			}
			if restorable(s.ref, v, s.second.attrs) {
				s.find.Restorable, s.find.RestorableVersion = true, v.VersionID
				if s.find.Verdict == reconcile.Missing {
					s.find.Verdict = reconcile.Recoverable
				}
				return
			}
		}
	}
	if err != nil {
		s.find.BlockedBy = append(s.find.BlockedBy, reconcile.BlockedVersionsUnknown)
		if errors.Is(err, objstore.ErrUnsupported) {
			return
		}
		p.opts.Logger.Debug("versions of a missing object are unknown", "url", s.ref.Location.String(), "err", err)
	}
}

// ages asks once, and only when something of a target is damaged, which of its suspects
// are named long enough.
type ages struct {
	suspects *suspects
	// refs are those of all suspects, while the caller has them; they are used up.
	refs  []reconcile.Reference
	named []bool
	asked bool
	// older is by the suspects' places; nil when nothing can be shown.
	older []bool
}

// of is the answer for all that are still named and whose loss breaks something, from
// the batch of the suspect at a place on.
func (a *ages) of(ctx context.Context, src reconcile.Source, place int, minAge time.Duration) []bool {
	if a.asked {
		return a.older
	}
	a.asked = true
	refs, at := a.refs[:0], make([]int, 0, len(a.named))
	for i, f := range a.suspects.from(place / confirmBatch) {
		if a.named[i] && !f.ref.Harmless {
			refs, at = append(refs, f.ref), append(at, i)
		}
	}
	older, err := src.Older(ctx, refs, minAge)
	if err != nil {
		return nil
	}
	a.older = make([]bool, len(a.named))
	for i, j := range at {
		a.older[j] = older[i]
	}
	return a.older
}

// protectYoung turns damage that no version old enough names into pending: the
// writer may still deliver it. An earlier pass that saw the path named that long
// ago, by the ledger's clock, shows as much as an old version does.
func (p *engine) protectYoung(ctx context.Context, l *look, open []*suspect, old *ages) error {
	var damaged []*suspect
	for _, s := range open {
		switch s.find.Verdict {
		case reconcile.Missing, reconcile.SizeMismatch, reconcile.Unreadable, reconcile.ChecksumMismatch:
			if !s.drop && !s.ref.Harmless {
				damaged = append(damaged, s)
			}
		}
	}
	if len(damaged) == 0 {
		return nil
	}
	minAge := p.opts.MinManifestAge
	if damaged[0].ref.Role == reconcile.RoleBlob { // a target has blobs only, or none
		minAge = p.opts.PendingMaxAge
	}
	older := old.of(ctx, l.src, damaged[0].at, minAge)
	var young []*suspect
	var ids []string
	for _, s := range damaged {
		if older == nil || !older[s.at] {
			young, ids = append(young, s), append(ids, s.find.FindingID)
		}
	}
	seen, now, err := p.sightings(ctx, ids)
	if err != nil && ctx.Err() == nil {
		return err
	}
	for _, s := range young {
		if before, ok := seen[s.find.FindingID]; ok && before.SeenNamedFor(minAge, now) {
			continue
		}
		s.find.Verdict = reconcile.Pending
		s.find.ConfirmedAt = nil
	}
	return nil
}

func statusOf(err error) *int {
	var se *objstore.Error
	if errors.As(err, &se) && se.Status != 0 {
		return reconcile.Ptr(se.Status)
	}
	return nil
}
