package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DefaultLease is how long a lock outlives a holder that died without a word.
const DefaultLease = 60 * time.Second

// Lease is a lock that is held: the right to write for a target, as long as nobody
// else took the lock. It is a value; a renewed lease is a new one with the same epoch.
type Lease struct {
	Target string // canonical URI
	Owner  string
	// Epoch rises with every holder. Every write for the target carries it.
	Epoch int64
	// Until is when others may take the lock, by the ledger's clock.
	Until time.Time
}

// Keep renews a lease three times in its length until the returned stop is called or
// ctx ends. The returned context ends, with ErrFenced as its cause, when the lock was
// lost or could not be renewed in time: whoever works under it begins no further
// write. stop waits for the last renewal and does not release the lock.
//
// The time in which a lease must be renewed is measured on this machine from before
// the renewal was asked for, so it ends before the ledger's does, whatever the clocks.
// For the first one that is the call of Keep: it follows Acquire at once.
func Keep(ctx context.Context, locks Locks, l Lease, length time.Duration) (held context.Context, stop func()) {
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		keep(held, cancel, locks, l, length)
	}()
	return held, func() {
		cancel(context.Canceled)
		<-done
	}
}

func keep(ctx context.Context, cancel context.CancelCauseFunc, locks Locks, l Lease, length time.Duration) {
	// On its own, whatever a renewal is busy with.
	expiry := time.AfterFunc(length, func() { cancel(fmt.Errorf("%w: not renewed within %s", ErrFenced, length)) })
	defer expiry.Stop()
	tick := time.NewTicker(length / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		// One that hangs leaves time for another.
		try, end := context.WithTimeout(ctx, length/3)
		next, err := locks.Renew(try, l, length)
		end()
		switch {
		case err == nil:
			l = next
			expiry.Reset(length - time.Since(asked))
		case errors.Is(err, ErrFenced):
			cancel(err)
			return
		}
		// Anything else may pass; the expiry decides.
	}
}
