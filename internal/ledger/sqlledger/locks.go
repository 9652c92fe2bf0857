package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// Acquire implements ledger.Locks.
func (l *Ledger) Acquire(ctx context.Context, uri, owner string, length time.Duration) (ledger.Lease, error) {
	if uri == "" || owner == "" || length <= 0 {
		return ledger.Lease{}, errors.New("lock target: no target, owner or length")
	}
	lease := ledger.Lease{Target: text(uri), Owner: text(owner)}
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		lease.Until = now.Add(length)
		// One statement takes it or does not: of two that come at once, the second waits
		// for the first and then finds its lease.
		sql, args := insert("reconcile.locks AS l", []col{
			{"target_uri", lease.Target}, {"epoch", int64(1)}, {"owner", lease.Owner},
			{"acquired_at", now}, {"renewed_at", now}, {"lease_until", lease.Until},
		}, `ON CONFLICT (target_uri) DO UPDATE SET epoch = l.epoch + 1, owner = excluded.owner, acquired_at = excluded.acquired_at,
			renewed_at = excluded.renewed_at, lease_until = excluded.lease_until, released_at = NULL
			WHERE l.lease_until <= reconcile.now() RETURNING epoch`)
		taken, err := one(ctx, c, sql, args, &lease.Epoch)
		if err != nil || taken {
			return err
		}
		held := &ledger.LockedError{URI: lease.Target}
		if _, err := one(ctx, c, "SELECT owner, lease_until FROM reconcile.locks WHERE target_uri = $1", []any{lease.Target}, &held.Owner, &held.Until); err != nil {
			return err
		}
		return held
	})
	if err != nil {
		return ledger.Lease{}, fmt.Errorf("lock target: %w", err)
	}
	return lease, nil
}

// Renew implements ledger.Locks.
func (l *Ledger) Renew(ctx context.Context, lease ledger.Lease, length time.Duration) (ledger.Lease, error) {
	if length <= 0 {
		return ledger.Lease{}, errors.New("renew lock: no length")
	}
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		lease.Until = now.Add(length)
		n, err := c.Exec(ctx, "UPDATE reconcile.locks SET renewed_at = $3, lease_until = $4 WHERE target_uri = $1 AND epoch = $2 AND released_at IS NULL",
			lease.Target, lease.Epoch, now, lease.Until)
		if err == nil && n == 0 {
			return fenced(lease)
		}
		return err
	})
	if err != nil {
		return ledger.Lease{}, fmt.Errorf("renew lock: %w", err)
	}
	return lease, nil
}

// Release implements ledger.Locks.
func (l *Ledger) Release(ctx context.Context, lease ledger.Lease) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		n, err := c.Exec(ctx, "UPDATE reconcile.locks SET lease_until = $3, released_at = coalesce(released_at, $3) WHERE target_uri = $1 AND epoch = $2",
			lease.Target, lease.Epoch, now)
		if err == nil && n == 0 {
			return fenced(lease)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}

func fenced(l ledger.Lease) error {
	return fmt.Errorf("%w: target %s, epoch %d", ledger.ErrFenced, l.Target, l.Epoch)
}

// hold makes the rest of the transaction the lease's: nobody takes the lock before it
// ends. It fails with ErrFenced when somebody has, and, when a new effect is to follow
// (alive), also when the lease has run out or was released.
func hold(ctx context.Context, c Conn, l ledger.Lease, alive bool) error {
	var epoch int64
	var live bool
	found, err := one(ctx, c, "SELECT epoch, lease_until > reconcile.now() AND released_at IS NULL FROM reconcile.locks WHERE target_uri = $1 FOR UPDATE",
		[]any{l.Target}, &epoch, &live)
	if err != nil {
		return err
	}
	if !found || epoch != l.Epoch || alive && !live {
		return fenced(l)
	}
	return nil
}
