package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Ledger is what merges need of a ledger.
type Ledger interface {
	ledger.Locks
	ledger.Cooldowns
	ListCooldowns(ctx context.Context, f ledger.Filter) ([]ledger.Cooldown, error)
}

// Options say how to merge. Every field must be set, except where noted.
type Options struct {
	// Endpoints of the workers, in the order in which they are asked.
	Endpoints []string
	// Timeout is how long one worker may take for one target.
	Timeout time.Duration
	Ledger  Ledger
	// Owner names this process in locks.
	Owner string
	// Began is when the pass began, by the ledger's clock: what another pass merged or
	// tried since is not done twice.
	Began    time.Time
	Cooldown ledger.CooldownPolicy
	// Until is when no further target is begun; zero is never. One target is begun in
	// any case, so that a pass whose time is always up merges a little.
	Until time.Time
	// Force merges although merges cool down; they still count.
	Force bool
	// Transport may be nil: one of this package's own.
	Transport http.RoundTripper
	Now       func() time.Time
	Logger    *slog.Logger
	// Lease of a target's lock; 0 is ledger.DefaultLease.
	Lease time.Duration
	// Grace is how long an answer is awaited when ctx has ended; 0 is 20 s. It must be
	// below two thirds of Lease: locks are not renewed in it.
	Grace time.Duration
}

const (
	defaultGrace = 20 * time.Second
	// recordTime is how long a record may take after ctx ended.
	recordTime = 20 * time.Second
	// silences is after how many targets in a row without an answer a worker is not
	// asked again by this pass: with hundreds of targets, each would wait.
	silences = 3
)

// Merge asks every worker for every target, one request after another. It returns
// what was answered, in order. The error is non-nil when the ledger could not be
// asked; what was done before stands in the outcomes.
//
// A target that is locked or cools down is skipped. A worker that answers badly, or
// cannot be reached, does not keep the others from being asked; one that gives no
// answer may still be merging, so it is the last that is asked for that target, whose
// lock is then left to run out. Any of these counts as one failure of kind merge_wal;
// good answers of all workers end that kind's count, and no other.
//
// When ctx ends, no further request begins; the answer to one that was sent is
// awaited for Grace.
func Merge(ctx context.Context, targets []Target, opts Options) ([]reconcile.MergeOutcome, error) {
	m := &merger{Options: opts, silent: map[string]int{}}
	if m.Lease <= 0 {
		m.Lease = ledger.DefaultLease
	}
	if m.Grace <= 0 {
		m.Grace = defaultGrace
	}
	if m.Transport == nil {
		t := newTransport()
		defer t.CloseIdleConnections()
		m.Transport = t
	}
	cooling, err := m.cooling(ctx, targets)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if ctx.Err() != nil {
			m.Logger.Warn("merges end early; what is left is due in the next pass", "cause", context.Cause(ctx))
			break
		}
		if cd, cold := cooling[t.Location.Canonical()]; cold {
			m.Logger.Info("merges of target cool down", "target", t.Name, "until", cd.CooldownUntil, "failures", cd.ConsecutiveFailures)
			continue
		}
		if !m.Until.IsZero() && len(m.out) > 0 && !m.Now().Before(m.Until) {
			m.Logger.Warn("the time of the pass is up; what is left to merge is due in the next")
			break
		}
		if err := m.target(ctx, t); err != nil && ctx.Err() == nil {
			return m.out, err
		}
	}
	return m.out, nil
}

type merger struct {
	Options
	out []reconcile.MergeOutcome
	// silent counts, by endpoint, targets in a row without an answer.
	silent map[string]int
}

func (m *merger) cooling(ctx context.Context, targets []Target) (map[string]ledger.Cooldown, error) {
	if m.Force || len(targets) == 0 {
		return nil, nil
	}
	uris := make([]string, len(targets))
	for i, t := range targets {
		uris[i] = t.Location.Canonical()
	}
	_, cooling, err := m.Ledger.Due(ctx, ledger.KindMergeWAL, uris)
	return cooling, err
}

// target merges one target under its lock.
func (m *merger) target(ctx context.Context, t Target) error {
	uri := t.Location.Canonical()
	lease, err := m.Ledger.Acquire(ctx, uri, m.Owner, m.Lease)
	switch {
	case errors.Is(err, ledger.ErrLocked):
		m.Logger.Info("target is locked; its merge is left to the next pass", "target", t.Name, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("lock %s: %w", t.Name, err)
	}
	held, stop := ledger.Keep(ctx, m.Ledger, lease, m.Lease)
	free := true
	defer func() {
		stop()
		if !free {
			return
		}
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer cancel()
		if err := m.Ledger.Release(rctx, lease); err != nil && !errors.Is(err, ledger.ErrFenced) {
			m.Logger.Warn("release lock", "target", t.Name, "err", err)
		}
	}()
	since, err := m.triedSince(held, uri)
	if err != nil {
		return fmt.Errorf("read the cooldown of %s: %w", t.Name, err)
	}
	if since {
		m.Logger.Info("another pass merged the target, or tried to, since this one began", "target", t.Name)
		return nil
	}
	r := m.round(held, t)
	free = r.settled
	return m.record(ctx, t, r)
}

// triedSince reports, under the lock, whether another pass has dealt with the target
// since this one counted its generations.
func (m *merger) triedSince(ctx context.Context, uri string) (bool, error) {
	cs, err := m.Ledger.ListCooldowns(ctx, ledger.Filter{Targets: []string{exactly(uri)}, States: []string{string(ledger.KindMergeWAL)}})
	if err != nil {
		return false, err
	}
	for _, c := range cs {
		if c.TargetURI != uri || c.Kind != ledger.KindMergeWAL {
			continue
		}
		for _, at := range []*time.Time{c.LastFailedAt, c.LastSucceededAt} {
			if at != nil && !at.Before(m.Began) {
				return true, nil
			}
		}
	}
	return false, nil
}

// round is what became of one target.
type round struct {
	// asked counts the workers that were asked, skipped those that were not because
	// they gave no answer before.
	asked, skipped int
	// failed says the first thing that went wrong; empty when nothing did.
	failed, class string
	// interrupted: not every worker was asked, for no fault of theirs.
	interrupted bool
	// settled: nobody can be merging the target on our behalf any more.
	settled bool
}

// round asks one worker after another. ctx ends with the lock.
func (m *merger) round(ctx context.Context, t Target) round {
	r := round{settled: true}
	for _, endpoint := range m.Endpoints {
		if ctx.Err() != nil {
			r.interrupted = true
			return r
		}
		if m.silent[endpoint] >= silences {
			r.skipped++
			continue
		}
		address, ok := Address(endpoint, t.Target)
		if !ok {
			continue // Due left it out
		}
		a := m.post(ctx, address)
		r.asked++
		m.note(t, endpoint, a)
		if a.err != nil && a.class == classInterrupted {
			r.interrupted, r.settled = true, false
			return r
		}
		if a.silent() {
			m.silent[endpoint]++
		} else {
			m.silent[endpoint] = 0
		}
		if a.err != nil && r.failed == "" {
			r.failed, r.class = fmt.Sprintf("%s: %v", endpoint, a.err), a.class
		}
		if a.unknown {
			r.settled = false
			return r
		}
	}
	return r
}

// note logs and keeps what one worker answered.
func (m *merger) note(t Target, endpoint string, a answer) {
	o := reconcile.MergeOutcome{Target: t.Name, Store: t.Store, Endpoint: endpoint, DurationMS: a.took.Milliseconds()}
	if a.status != 0 {
		o.Status = reconcile.Ptr(int64(a.status))
	}
	if a.err == nil {
		o.Reclaimed = &a.reclaimed
		m.Logger.Info("worker merged", "target", t.Name, "endpoint", endpoint, "reclaimed", a.reclaimed, "status", a.status, "duration_ms", o.DurationMS)
	} else {
		o.Error = reconcile.Ptr(a.err.Error())
		m.Logger.Warn("worker did not merge", "target", t.Name, "endpoint", endpoint, "err", a.err, "duration_ms", o.DurationMS)
	}
	m.out = append(m.out, o)
	if m.silent[endpoint] == silences-1 && a.silent() {
		m.Logger.Warn("worker is not asked again by this pass: it gave no answer for several targets in a row", "endpoint", endpoint, "targets", silences)
	}
}

// record counts a failure or ends the count; an interrupted round is neither.
func (m *merger) record(ctx context.Context, t Target, r round) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	uri := t.Location.Canonical()
	switch {
	case r.failed != "":
		cd, err := m.Ledger.Fail(ctx, m.Cooldown, ledger.Failure{Kind: ledger.KindMergeWAL, Target: uri, Class: r.class, Text: r.failed})
		if err != nil {
			return fmt.Errorf("count the failed merge of %s: %w", t.Name, err)
		}
		if cd.Entered {
			m.Logger.Warn("work on target cools down", "target", t.Name, "kind", string(cd.Kind), "failures", cd.ConsecutiveFailures, "until", cd.CooldownUntil, "last_error", r.failed)
		}
	case r.interrupted || r.skipped > 0 || r.asked == 0:
	default:
		if err := m.Ledger.Succeed(ctx, ledger.KindMergeWAL, uri); err != nil {
			return fmt.Errorf("record the merge of %s: %w", t.Name, err)
		}
	}
	return nil
}
