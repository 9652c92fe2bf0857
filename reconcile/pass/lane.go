package pass

import (
	"context"
	"sync/atomic"
)

// lane bounds what one target may hold of the shared pool, so that a target whose
// store hangs never starves the others: it may use a share of the slots while it
// answers, and only two of them while it does not.
type lane struct {
	share chan struct{}
	// streak counts answers in a row that were none (time-outs, 5xx).
	streak atomic.Int32
}

const (
	// sickAfter answers in a row that were none make a target sick. Eight is more
	// than a healthy store shows in a row after the retries below us.
	sickAfter = 8
	sickSlots = 2
)

func newLane(concurrency, targets int) *lane {
	share := concurrency
	if targets > 1 {
		share = max(concurrency/4, 1)
	}
	return &lane{share: make(chan struct{}, share)}
}

// note takes account of one answer.
func (l *lane) note(a answer) {
	if a.verdict.Open() && a.err != nil {
		l.streak.Add(1)
	} else {
		l.streak.Store(0)
	}
}

// enter waits for the target's lane and then for a slot of the pool. It returns
// the context's cause when that ends first.
func (p *engine) enter(ctx context.Context, l *lane) error {
	if l.streak.Load() >= sickAfter {
		// Wait until the requests in flight are nearly drained.
		for range cap(l.share) - min(sickSlots, cap(l.share)) {
			if err := acquire(ctx, l.share); err != nil {
				return err
			}
			defer release(l.share)
		}
	}
	if err := acquire(ctx, l.share); err != nil {
		return err
	}
	if err := acquire(ctx, p.slots); err != nil {
		release(l.share)
		return err
	}
	return nil
}

func (p *engine) leave(l *lane) {
	release(p.slots)
	release(l.share)
}

func acquire(ctx context.Context, c chan struct{}) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func release(c chan struct{}) { <-c }
