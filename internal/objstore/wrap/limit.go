package wrap

import (
	"context"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Limiter bounds the requests under way at once and those begun per second. It may
// be shared by any number of stores and is safe for concurrent use.
type Limiter struct {
	slots chan struct{} // nil: any number
	pace  pacer
}

// NewLimiter makes a limiter; 0 (or less) is no limit of its kind.
func NewLimiter(maxInFlight int, perSecond float64) *Limiter {
	l := &Limiter{}
	if maxInFlight > 0 {
		l.slots = make(chan struct{}, maxInFlight)
	}
	l.pace.set(perSecond)
	return l
}

// NewLimit holds the requests to inner to l. A request that waits longer than its
// context lasts is not made.
func NewLimit(inner objstore.Reader, l *Limiter) objstore.Reader { return around(inner, limiting{l}) }

// NewLimitWriter is NewLimit for a store that can be written.
func NewLimitWriter(inner objstore.Writer, l *Limiter) objstore.Writer {
	return aroundWriter(inner, limiting{l})
}

type limiting struct{ l *Limiter }

func (p limiting) do(ctx context.Context, req request, call func(context.Context) error) error {
	if p.l.slots != nil {
		select {
		case p.l.slots <- struct{}{}:
			defer func() { <-p.l.slots }()
		case <-ctx.Done():
			return req.fail(ctx.Err())
		}
	}
	if err := p.l.pace.wait(ctx); err != nil {
		return req.fail(err)
	}
	return call(ctx)
}

// pacer hands out points in time, evenly spaced.
type pacer struct {
	mu    sync.Mutex
	rate  float64 // per second; 0 is no limit
	next  time.Time
	pause time.Time
}

func (p *pacer) set(rate float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = max(rate, 0)
}

// wait lasts until the caller's turn, or until ctx ends.
func (p *pacer) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	now := time.Now()
	at := now
	if p.pause.After(at) {
		at = p.pause
	}
	if p.rate > 0 {
		if p.next.After(at) {
			at = p.next
		}
		p.next = at.Add(time.Duration(float64(time.Second) / p.rate))
	}
	p.mu.Unlock()
	return sleep(ctx, at.Sub(now))
}

// sleep waits, or answers why ctx ended first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
