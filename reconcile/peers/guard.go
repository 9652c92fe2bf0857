package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Limits of a guarded peer. Zero fields have the defaults.
type Limits struct {
	// Failures without an answer, one after the other, open the breaker; 5.
	Failures int
	// Probe is how long an open breaker waits before it lets one request through to
	// see; a minute.
	Probe time.Duration
	// Concurrent requests, bodies that are still read included; 8. Who holds that many
	// bodies open and asks for more waits for itself.
	Concurrent int
}

// The kinds of requests. They are counted apart: a peer that answers every question
// and breaks off every body is not healthy.
type kind int

const (
	asks kind = iota
	fetches
	kinds
)

// Guarded is a peer with a breaker and a bound on its requests, made anew for each
// pass. It is safe for concurrent use.
type Guarded struct {
	inner  reconcile.Peer
	limits Limits
	now    func() time.Time
	slots  chan struct{}

	mu      sync.Mutex
	failed  [kinds]int // one after the other
	open    bool
	last    string    // why the breaker is open
	since   time.Time // when it opened, or when the last try failed
	probing bool      // a try is under way
}

var _ reconcile.Peer = (*Guarded)(nil)

// Guard puts a breaker before a peer: after some requests of one kind without an
// answer, all further ones are answered at once with an error whose [Reason] is
// [ReasonBreakerOpen], which is no answer either, except for one try from time to
// time. An explicit no is an answer, and so is an archived object; a request that the
// caller gave up says nothing.
func Guard(inner reconcile.Peer, now func() time.Time, limits Limits) *Guarded {
	if limits.Failures <= 0 {
		limits.Failures = 5
	}
	if limits.Probe <= 0 {
		limits.Probe = time.Minute
	}
	if limits.Concurrent <= 0 {
		limits.Concurrent = 8
	}
	return &Guarded{inner: inner, limits: limits, now: now, slots: make(chan struct{}, limits.Concurrent)}
}

// Name implements [reconcile.Peer].
func (g *Guarded) Name() string { return g.inner.Name() }

// Ask implements [reconcile.Peer].
func (g *Guarded) Ask(ctx context.Context, ref reconcile.Reference) (objstore.Attrs, error) {
	p, err := g.enter(ctx, asks)
	if err != nil {
		return objstore.Attrs{}, err
	}
	a, err := g.inner.Ask(ctx, ref)
	p.leave(ctx, err)
	return a, err
}

// Fetch implements [reconcile.Peer]. The request lasts until its body is closed; a
// body that fails is no answer.
func (g *Guarded) Fetch(ctx context.Context, ref reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	p, err := g.enter(ctx, fetches)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	rc, a, err := g.inner.Fetch(ctx, ref)
	if err != nil {
		p.leave(ctx, err)
		return nil, objstore.Attrs{}, err
	}
	return &guardedBody{ReadCloser: rc, ctx: ctx, permit: p, err: errUnread}, a, nil
}

// permit is one request's place.
type permit struct {
	g     *Guarded
	kind  kind
	probe bool
	once  sync.Once
}

// enter waits for a place, unless the breaker is open.
func (g *Guarded) enter(ctx context.Context, k kind) (*permit, error) {
	if err := g.closed(); err != nil {
		return nil, err // without waiting for requests that hang
	}
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, &Error{Peer: g.Name(), Reason: ReasonInterrupted, Err: context.Cause(ctx)}
	}
	p := &permit{g: g, kind: k}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		if g.resting() {
			<-g.slots
			return nil, g.refusal()
		}
		g.probing, p.probe = true, true
	}
	return p, nil
}

// closed is nil unless the breaker is open and it is not time for a try.
func (g *Guarded) closed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open && g.resting() {
		return g.refusal()
	}
	return nil
}

// resting and refusal are of an open breaker; the caller holds mu.
func (g *Guarded) resting() bool { return g.probing || g.now().Sub(g.since) < g.limits.Probe }

func (g *Guarded) refusal() error {
	return &Error{Peer: g.Name(), Reason: ReasonBreakerOpen, Err: fmt.Errorf("not asked: no answer %d times (%s)", g.limits.Failures, g.last)}
}

// errUnread: the caller closed a body before its end.
var errUnread = errors.New("not read to its end")

// leave gives the place back and counts how the request went.
func (p *permit) leave(ctx context.Context, err error) {
	p.once.Do(func() {
		g := p.g
		defer func() { <-g.slots }()
		g.mu.Lock()
		defer g.mu.Unlock()
		if p.probe {
			g.probing = false
		}
		switch reason := Reason(err); {
		case err == nil || reason == ReasonNoSuchObject || reason == ReasonArchived:
			g.failed[p.kind] = 0
			g.open = false
		case errors.Is(err, errUnread) || reason == ReasonOutside || reason == ReasonInterrupted || ctx.Err() != nil:
		default:
			g.failed[p.kind]++
			if p.probe || !g.open && g.failed[p.kind] >= g.limits.Failures {
				g.open, g.last, g.since = true, reason, g.now()
			}
		}
	})
}

// guardedBody keeps its place until it is closed.
type guardedBody struct {
	io.ReadCloser
	ctx    context.Context
	permit *permit
	err    error // how it went so far
}

// Read implements [io.Reader].
func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.err = nil
	case err != nil && errors.Is(b.err, errUnread):
		b.err = err
	}
	return n, err
}

// Close implements [io.Closer].
func (b *guardedBody) Close() error {
	err := b.ReadCloser.Close()
	b.permit.leave(b.ctx, b.err)
	return err
}
