package pass

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// defaultTargets keeps a few targets open at once: enough to hide the latency of
// their metadata, few enough that their manifests fit in memory together.
const defaultTargets = 8

// engine is one running pass.
type engine struct {
	opts Options
	// slots bounds the requests in flight over all targets.
	slots chan struct{}

	mu    sync.Mutex // guards out, looks, absent
	out   Outcome
	looks []*look
	// absent are targets that a registry row names and that nothing is there of.
	absent  []*look
	sinkMu  sync.Mutex
	refs    atomic.Int64
	checked atomic.Int64
	suspect atomic.Int64
	done    atomic.Int64
	total   int
}

// look is what is known of one target while the pass runs. A clean target's look
// is dropped at once, with its source.
type look struct {
	target reconcile.Target
	src    reconcile.Source
	facts  reconcile.Facts
	result reconcile.TargetResult

	mu       sync.Mutex
	verdicts map[reconcile.Verdict]int64
	// suspects are what the first look did not find present. The second look makes
	// findings of them, in found.
	suspects suspects
	found    []reconcile.Finding
	// unanswered are the ids of those of which the store said, in place of an answer, to
	// slow down.
	unanswered map[string]bool
	bases      map[objstore.Location]*base
	flapped    int64
	// known are the findings that are open in the ledger, answers what this look says of
	// them; both by finding id.
	known   map[string]*peersWord
	answers map[string]ledger.Answer
	// asked are the findings that peers were asked for in this look, with those peers
	// that cannot hold the object.
	asked map[string][]string
	// resumed: the walk began where an earlier pass stopped.
	resumed bool
	// brokenOff says why the first look did not reach every reference.
	brokenOff string
	// lane is that of the second look.
	lane *lane
	// cut: the pass ended before both looks did, so that what is not known of the target
	// says nothing about it.
	cut bool
	// throttled: the second look at what the metadata alone decided was.
	throttled bool
}

// suspects are references that the first look did not find present, with what it saw.
// They are small, and kept in batches that are let go of one by one, because all of a
// table may be gone.
type suspects struct {
	batches [][]first
	n       int
}

// confirmBatch is how many suspects the second look takes at once: enough that the pool
// has work while a batch runs out, few enough that their answers take no room to speak
// of. Each batch has controls of its own.
const confirmBatch = 4096

func (s *suspects) add(f first) {
	if s.n%confirmBatch == 0 {
		s.batches = append(s.batches, nil)
	}
	last := &s.batches[len(s.batches)-1]
	*last = append(*last, f)
	s.n++
}

// from yields the suspects that are left, of a batch and those after it, by their place.
func (s *suspects) from(batch int) iter.Seq2[int, *first] {
	return func(yield func(int, *first) bool) {
		for b := batch; b < len(s.batches); b++ {
			for i := range s.batches[b] {
				if !yield(b*confirmBatch+i, &s.batches[b][i]) {
					return
				}
			}
		}
	}
}

// refs are all of them. They are a copy, for a question about all at once.
func (s *suspects) refs() []reconcile.Reference {
	out := make([]reconcile.Reference, 0, s.n)
	for _, f := range s.from(0) {
		out = append(out, f.ref)
	}
	return out
}

// first is a reference that the first look did not find present and what it saw: an
// answer without the chain of errors that led to it.
type first struct {
	ref     reconcile.Reference
	at      time.Time
	verdict reconcile.Verdict
	reason  string
	// attrs are nil when the store told none.
	attrs *objstore.Attrs
	// failed: there was an error, which told these.
	failed          bool
	throttled       bool
	status          int
	code, requestID string
}

// suspect is a reference that the first look did not find present, while the second
// look is taken at it.
type suspect struct {
	ref    reconcile.Reference
	first  answer
	second answer
	find   reconcile.Finding
	drop   bool // flapped: no finding
	at     int  // its place among the look's suspects
}

// Look carries out one pass over the targets and proves what it says. The error
// is non-nil only when the sink failed; everything that storage did is in the
// Outcome. When ctx ends early the Outcome holds what was decided until then and
// Interrupted says why; suspects without a second look are undecided.
func Look(ctx context.Context, targets []reconcile.Target, opts Options) (*Outcome, error) {
	if opts.Concurrency < 1 {
		opts.Concurrency = 1
	}
	if opts.TargetConcurrency < 1 {
		opts.TargetConcurrency = defaultTargets
	}
	p := &engine{opts: opts, slots: make(chan struct{}, opts.Concurrency), total: len(targets)}
	p.out.Totals.Verdicts = map[reconcile.Verdict]int64{}
	p.out.Totals.TargetsByState = map[reconcile.State]int64{}

	if err := p.publishProblems(ctx); err != nil {
		return nil, err
	}
	if err := p.lookAll(ctx, targets); err != nil {
		return nil, err
	}
	if err := p.confirmAll(ctx); err != nil {
		return nil, err
	}
	if err := p.settleAbsent(ctx); err != nil {
		return nil, err
	}
	if err := p.settleAll(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		p.out.Interrupted = context.Cause(ctx)
	}
	p.total = len(p.out.Targets)
	sortOutcome(&p.out)
	return &p.out, nil
}

// lookAll takes the first look at every target.
func (p *engine) lookAll(ctx context.Context, targets []reconcile.Target) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(p.opts.TargetConcurrency)
	began := p.opts.Clock.Now()
	for i, t := range targets {
		g.Go(func() error {
			if i > 0 && gctx.Err() == nil && p.spent(began) {
				p.postpone(t)
				return nil
			}
			return p.lookOne(gctx, t)
		})
	}
	err := g.Wait()
	if err != nil && ctx.Err() != nil {
		return nil // interrupted: Look says so
	}
	return err
}

// spent reports whether the budget of a look that began then is used up.
func (p *engine) spent(began time.Time) bool {
	b := p.opts.Budget
	return b.Duration > 0 && p.opts.Clock.Now().Sub(began) >= b.Duration || b.Requests > 0 && b.Sent() >= b.Requests
}

func (p *engine) postpone(t reconcile.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Deferred = append(p.out.Deferred, t)
	p.out.Totals.Deferred++
}

func (p *engine) lookOne(ctx context.Context, t reconcile.Target) error {
	l := &look{target: t, src: p.opts.Open(t), verdicts: map[reconcile.Verdict]int64{}, bases: map[objstore.Location]*base{}, answers: map[string]ledger.Answer{}, asked: map[string][]string{}}
	l.result = reconcile.TargetResult{Target: t.Name, Store: t.Store, Kind: t.Kind, URI: t.Location.String(), NotChecked: []reconcile.NotChecked{}}
	if t.Registry != "" {
		l.result.Registry = reconcile.Ptr(t.Registry)
	}
	defer p.done.Add(1)
	if ctx.Err() != nil {
		l.brokenOff, l.cut = reasonInterrupted, true
		return p.keepOrFinish(ctx, l)
	}
	tctx, cancel := context.WithTimeoutCause(ctx, p.opts.TargetTimeout, errTargetTimeout)
	defer cancel()

	facts, err := l.src.Open(tctx)
	switch {
	case err != nil:
		l.brokenOff, l.cut = p.brokenOff(ctx, tctx, err), ctx.Err() != nil
	case facts.Absent && t.Row:
		p.mu.Lock()
		p.absent = append(p.absent, l)
		p.mu.Unlock()
		return nil
	case nothingThere(t, facts):
		known, err := p.wasThere(ctx, t)
		if err != nil {
			return err
		}
		if !known {
			p.leaveOut(t, facts)
			return nil
		}
		if facts.Absent {
			facts = reconcile.Facts{Settled: true, State: reconcile.StateHalfDeleted, Reason: reconcile.ReasonNothingThere}
		}
	}
	facts.Blocks = append(facts.Blocks, p.registryBlocks(t)...)
	for i := range facts.Findings {
		facts.Findings[i].FirstObservedAt = p.opts.Clock.Now()
	}
	l.facts = facts
	l.counts(facts)
	if err := p.recall(ctx, l); err != nil {
		return err
	}
	if facts.Control != (objstore.Location{}) {
		l.base(t.Location).addControl(facts.Control)
	}
	if err == nil && !facts.Settled {
		if err := p.headAll(tctx, l); err != nil {
			if errors.Is(err, errSink) {
				return err
			}
			l.brokenOff, l.cut = p.brokenOff(ctx, tctx, err), ctx.Err() != nil
		}
	}
	l.facts.NotChecked = slices.Concat(l.facts.NotChecked, l.src.Unread(), notReached(l))
	return p.keepOrFinish(ctx, l)
}

// counts puts what the metadata counts on the target's line.
func (l *look) counts(f reconcile.Facts) {
	r := &l.result
	r.Version, r.Fragments, r.LiveRows = f.Version, f.Fragments, f.LiveRows
	r.PendingGenerations, r.LeakedGenerations, r.LeakedBytes = f.PendingGenerations, f.LeakedGenerations, f.LeakedBytes
}

var (
	errTargetTimeout = errors.New("target timeout")
	errSink          = errors.New("write report")
)

const reasonInterrupted = "interrupted"

// brokenOff names why a look at a target ended early.
func (p *engine) brokenOff(ctx, tctx context.Context, err error) string {
	switch {
	case ctx.Err() != nil:
		return reasonInterrupted
	case errors.Is(context.Cause(tctx), errTargetTimeout):
		return reconcile.ReasonTargetTimeout
	}
	p.opts.Logger.Warn("look at target broken off", "err", err)
	// "No such object" is a statement about an object; that a walk ended in it is none.
	_, reason := reconcile.JudgeLook(err)
	return reason
}

// notReached says which references a broken-off look did not come to.
func notReached(l *look) []reconcile.NotChecked {
	if l.brokenOff == "" {
		return nil
	}
	role := reconcile.RoleData
	if l.target.Kind == kindBlobs {
		role = reconcile.RoleBlob
	}
	return []reconcile.NotChecked{{Role: role, Reason: l.brokenOff}}
}

// keepOrFinish keeps a look that needs a second one, and reports the others.
func (p *engine) keepOrFinish(ctx context.Context, l *look) error {
	if l.suspects.n > 0 || len(l.facts.Findings) > 0 {
		p.mu.Lock()
		p.looks = append(p.looks, l)
		p.mu.Unlock()
		return nil
	}
	return p.finish(ctx, l, nil)
}

// headAll sends the first HEAD for every reference of the target.
func (p *engine) headAll(ctx context.Context, l *look) error {
	g, gctx := errgroup.WithContext(ctx)
	lane := newLane(p.opts.Concurrency, p.total)
	var batch []Seen
	var batchMu sync.Mutex
	wantRefs := p.opts.Sink != nil && p.opts.Sink.WantsReferences()
	flush := func(ctx context.Context, force bool) error {
		batchMu.Lock()
		defer batchMu.Unlock()
		if len(batch) == 0 || (!force && len(batch) < 1024) {
			return nil
		}
		err := p.sinkReferences(ctx, batch)
		batch = batch[:0]
		return err
	}
	var walkErr error
	var flying sync.WaitGroup
	walked := 0
	again, err := p.resume(ctx, l)
	if err != nil {
		return err
	}
	for ref, err := range chain(again, l.src.References(gctx)) {
		if err != nil {
			walkErr = err
			break
		}
		p.refs.Add(1)
		l.result.References++
		if err := p.enter(gctx, lane); err != nil {
			walkErr = err
			break
		}
		flying.Add(1)
		g.Go(func() error {
			defer flying.Done()
			defer p.leave(lane)
			a := p.inspect(gctx, l.src, ref, p.ask(gctx, ref, statAsker))
			if gctx.Err() != nil && a.verdict.Open() {
				return context.Cause(gctx) // not an answer: the look was cut off
			}
			lane.note(a)
			p.record(l, ref, a)
			if wantRefs {
				batchMu.Lock()
				batch = append(batch, seen(l.target, ref, a))
				batchMu.Unlock()
				return flush(gctx, false)
			}
			return nil
		})
		// While an earlier pass's suspects are looked at again, its checkpoint stands: it
		// holds those that are still to come.
		if walked++; walked > len(again) && walked%checkpointEvery == 0 {
			// What is recorded must have been answered.
			flying.Wait()
			if err := p.checkpoint(gctx, l); err != nil {
				walkErr = err
				break
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if wantRefs {
		if err := flush(context.WithoutCancel(ctx), true); err != nil {
			return err
		}
	}
	if walkErr != nil {
		return fmt.Errorf("read references of %s: %w", l.target.Name, walkErr)
	}
	return nil
}

// chain yields what is looked at again, and then the walk.
func chain(again []reconcile.Reference, walk iter.Seq2[reconcile.Reference, error]) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		for _, ref := range again {
			if !yield(ref, nil) {
				return
			}
		}
		walk(yield)
	}
}

func seen(t reconcile.Target, ref reconcile.Reference, a answer) Seen {
	s := Seen{Target: t.Name, Store: t.Store, Ref: ref, Verdict: a.verdict, ObservedSize: objstore.Unknown}
	if a.err == nil && a.verdict != reconcile.Undecided {
		s.ObservedSize = a.attrs.Size
	}
	var se *objstore.Error
	if errors.As(a.err, &se) {
		s.HTTPStatus = se.Status
	}
	return s
}

// record files the first answer about a reference.
func (p *engine) record(l *look, ref reconcile.Reference, a answer) {
	p.checked.Add(1)
	l.mu.Lock()
	l.result.Checked++
	l.addControlOf(ref, a)
	if a.verdict == reconcile.Present {
		l.verdicts[reconcile.Present]++
		l.answer(ref, ledger.Present)
	} else {
		l.answer(ref, ledger.Unknown)
		l.suspect(ref, a, p.opts.Clock.Now())
		p.suspect.Add(1)
	}
	l.mu.Unlock()
	p.progress("look")
}

// suspect keeps a reference for the second look. The caller holds l.mu.
func (l *look) suspect(ref reconcile.Reference, a answer, at time.Time) {
	f := first{ref: ref, at: at, verdict: a.verdict, reason: a.reason, failed: a.err != nil, throttled: errors.Is(a.err, objstore.ErrThrottled)}
	if a.attrs.Location != (objstore.Location{}) || a.attrs.RequestID != "" || a.attrs.Size != 0 {
		f.attrs = &a.attrs
	}
	var se *objstore.Error
	if errors.As(a.err, &se) {
		f.status, f.code, f.requestID = se.Status, se.Code, se.RequestID
	}
	if strings.HasSuffix(ref.Location.Key, ref.Path) {
		f.ref.Path = ref.Location.Key[len(ref.Location.Key)-len(ref.Path):] // one text, not two
	}
	l.suspects.add(f)
}

// answer is what is left of the first answer, which is all that findings say of it.
func (f *first) answer() answer {
	a := answer{verdict: f.verdict, reason: f.reason}
	if f.attrs != nil {
		a.attrs = *f.attrs
	}
	if f.failed {
		e := &objstore.Error{Status: f.status, Code: f.code, RequestID: f.requestID}
		if f.throttled {
			e.Err = objstore.ErrThrottled
		}
		a.err = e
	}
	return a
}

func (p *engine) progress(phase string) {
	if p.opts.Progress == nil {
		return
	}
	p.opts.Progress(Progress{Phase: phase, Targets: p.total, TargetsDone: int(p.done.Load()),
		References: p.refs.Load(), Checked: p.checked.Load(), SuspectsNow: p.suspect.Load()})
}

func (p *engine) sinkReferences(ctx context.Context, batch []Seen) error {
	p.sinkMu.Lock()
	defer p.sinkMu.Unlock()
	if err := p.opts.Sink.References(ctx, batch); err != nil {
		return errors.Join(errSink, err)
	}
	return nil
}
