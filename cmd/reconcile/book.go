package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/open"
	"github.com/rocketkeep/reconcile/reconcile"
)

// ledgerURL is the ledger that a command works with: the one that was named, else
// the file of this user.
func (s *settings) ledgerURL() (url string, named bool, err error) {
	if u := s.database.Reveal(); u != "" {
		return u, true, nil
	}
	url, err = open.DefaultURL(os.Getenv)
	return url, false, err
}

// openLedger opens the ledger. A look that named none goes on without one, with a
// warning: then it is nil.
func (a *app) openLedger(ctx context.Context, s *settings, log *slog.Logger) (ledger.Ledger, error) {
	url, named, err := s.ledgerURL()
	var l ledger.Ledger
	if err == nil {
		l, err = open.Ledger(ctx, url, thisBuild().Version)
	}
	switch {
	case err != nil && (named || s.repair.needsLedger):
		return nil, ledgerError(err)
	case err != nil:
		log.Warn("this look remembers nothing: the ledger cannot be opened", "err", err)
		return nil, nil
	case !named && !s.repair.needsLedger:
		return &optionalLedger{Ledger: l, log: log}, nil
	}
	return l, nil
}

// ledgerError is the exit of a command that cannot go on without its ledger. What
// names no ledger is a usage error.
func ledgerError(err error) error {
	if errors.Is(err, open.ErrURL) {
		return usageError("--database: %w", err)
	}
	return failure(err)
}

// optionalLedger is a ledger that nobody named: when it fails, the look goes on as
// if it had none. What a look proves does not rest on it.
type optionalLedger struct {
	ledger.Ledger
	log  *slog.Logger
	once sync.Once
}

// keepOn takes an error and says so, once.
func (o *optionalLedger) keepOn(err error) {
	o.once.Do(func() { o.log.Warn("this look is not remembered: the ledger failed", "err", err) })
}

// BeginPass implements ledger.Passes.
func (o *optionalLedger) BeginPass(ctx context.Context, p reconcile.Pass) (time.Time, error) {
	at, err := o.Ledger.BeginPass(ctx, p)
	if err != nil {
		o.keepOn(err)
	}
	return at, nil
}

// FinishPass implements ledger.Passes.
func (o *optionalLedger) FinishPass(ctx context.Context, p reconcile.Pass) error {
	if err := o.Ledger.FinishPass(ctx, p); err != nil {
		o.keepOn(err)
	}
	return nil
}

// RecordTarget implements ledger.Findings.
func (o *optionalLedger) RecordTarget(ctx context.Context, r ledger.TargetRecord) (ledger.TargetSummary, error) {
	sum, err := o.Ledger.RecordTarget(ctx, r)
	if err != nil {
		o.keepOn(err)
	}
	return sum, nil
}

// OpenFindings implements ledger.Findings.
func (o *optionalLedger) OpenFindings(ctx context.Context, uri string) ([]ledger.Finding, error) {
	fs, err := o.Ledger.OpenFindings(ctx, uri)
	if err != nil {
		o.keepOn(err)
	}
	return fs, nil
}

// EachOpenFinding implements ledger.Findings.
func (o *optionalLedger) EachOpenFinding(ctx context.Context, uri string, take func(ledger.Finding)) error {
	if err := o.Ledger.EachOpenFinding(ctx, uri, take); err != nil {
		o.keepOn(err)
	}
	return nil
}

// Sightings implements ledger.Findings.
func (o *optionalLedger) Sightings(ctx context.Context, ids []string) (map[string]ledger.Sighting, error) {
	seen, err := o.Ledger.Sightings(ctx, ids)
	if err != nil {
		o.keepOn(err)
	}
	return seen, nil
}

// HighestVersion implements ledger.Findings.
func (o *optionalLedger) HighestVersion(ctx context.Context, uri string) (*uint64, error) {
	v, err := o.Ledger.HighestVersion(ctx, uri)
	if err != nil {
		o.keepOn(err)
	}
	return v, nil
}

// Fail implements ledger.Cooldowns.
func (o *optionalLedger) Fail(ctx context.Context, p ledger.CooldownPolicy, f ledger.Failure) (ledger.Cooldown, error) {
	cd, err := o.Ledger.Fail(ctx, p, f)
	if err != nil {
		o.keepOn(err)
	}
	return cd, nil
}

// Succeed implements ledger.Cooldowns.
func (o *optionalLedger) Succeed(ctx context.Context, k ledger.Kind, uri string) error {
	if err := o.Ledger.Succeed(ctx, k, uri); err != nil {
		o.keepOn(err)
	}
	return nil
}

// Due implements ledger.Cooldowns. Without the ledger's word everything is due.
func (o *optionalLedger) Due(ctx context.Context, k ledger.Kind, uris []string) ([]string, map[string]ledger.Cooldown, error) {
	due, cooling, err := o.Ledger.Due(ctx, k, uris)
	if err != nil {
		o.keepOn(err)
		return uris, nil, nil
	}
	return due, cooling, nil
}

// PendingFailures implements ledger.Intake. Without the ledger's word none is open.
func (o *optionalLedger) PendingFailures(ctx context.Context, limit int) ([]ledger.TaskFailure, error) {
	fs, err := o.Ledger.PendingFailures(ctx, limit)
	if err != nil {
		o.keepOn(err)
	}
	return fs, nil
}

// HandleFailure implements ledger.Intake.
func (o *optionalLedger) HandleFailure(ctx context.Context, f ledger.TaskFailure, h ledger.Handling) (bool, error) {
	done, err := o.Ledger.HandleFailure(ctx, f, h)
	if err != nil {
		o.keepOn(err)
	}
	return done, nil
}

// ListTargets implements ledger.Reader.
func (o *optionalLedger) ListTargets(ctx context.Context, f ledger.Filter) ([]ledger.TargetHealth, error) {
	ts, err := o.Ledger.ListTargets(ctx, f)
	if err != nil {
		o.keepOn(err)
	}
	return ts, nil
}

// ListRepairs implements ledger.Reader.
func (o *optionalLedger) ListRepairs(ctx context.Context, f ledger.Filter) ([]ledger.Repair, error) {
	rs, err := o.Ledger.ListRepairs(ctx, f)
	if err != nil {
		o.keepOn(err)
	}
	return rs, nil
}

// RefetchFailed implements ledger.Refetches.
func (o *optionalLedger) RefetchFailed(ctx context.Context, p ledger.CooldownPolicy, f ledger.RefetchFailure) (ledger.Refetch, error) {
	r, err := o.Ledger.RefetchFailed(ctx, p, f)
	if err != nil {
		o.keepOn(err)
	}
	return r, nil
}

// RefetchDone implements ledger.Refetches.
func (o *optionalLedger) RefetchDone(ctx context.Context, id string) error {
	if err := o.Ledger.RefetchDone(ctx, id); err != nil {
		o.keepOn(err)
	}
	return nil
}

// RefetchState implements ledger.Refetches. Without the ledger's word every attempt is
// due.
func (o *optionalLedger) RefetchState(ctx context.Context, ids []string) (map[string]ledger.Refetch, error) {
	past, err := o.Ledger.RefetchState(ctx, ids)
	if err != nil {
		o.keepOn(err)
	}
	return past, nil
}

// Checkpoint implements ledger.Checkpoints. Without the ledger's word every look begins
// at the start.
func (o *optionalLedger) Checkpoint(ctx context.Context, uri string) (*ledger.Checkpoint, error) {
	cp, err := o.Ledger.Checkpoint(ctx, uri)
	if err != nil {
		o.keepOn(err)
	}
	return cp, nil
}

// SaveCheckpoint implements ledger.Checkpoints. That a checkpoint is not whole is no
// failure of the ledger.
func (o *optionalLedger) SaveCheckpoint(ctx context.Context, passID, uri string, cp ledger.Checkpoint) error {
	err := o.Ledger.SaveCheckpoint(ctx, passID, uri, cp)
	if err != nil && !errors.Is(err, ledger.ErrCheckpoint) {
		o.keepOn(err)
		return nil
	}
	return err
}

// DropCheckpoint implements ledger.Checkpoints.
func (o *optionalLedger) DropCheckpoint(ctx context.Context, uri string) error {
	if err := o.Ledger.DropCheckpoint(ctx, uri); err != nil {
		o.keepOn(err)
	}
	return nil
}

// Now implements ledger.Ledger.
func (o *optionalLedger) Now(ctx context.Context) (time.Time, error) {
	at, err := o.Ledger.Now(ctx)
	if err != nil {
		o.keepOn(err)
		return time.Now().UTC(), nil
	}
	return at, nil
}

// countingLedger tells of each cooldown that is entered.
type countingLedger struct {
	ledger.Ledger
	entered func(ledger.Kind)
}

// Fail implements ledger.Cooldowns.
func (c countingLedger) Fail(ctx context.Context, p ledger.CooldownPolicy, f ledger.Failure) (ledger.Cooldown, error) {
	cd, err := c.Ledger.Fail(ctx, p, f)
	if err == nil && cd.Entered {
		c.entered(f.Kind)
	}
	return cd, err
}

// restating is a ledger that takes the words of a second look at a repaired target
// for what they mean: nothing damaged is left because of the repair.
type restating struct {
	ledger.Ledger
	repaired map[string]bool // by canonical URI
}

// RecordTarget implements ledger.Findings.
func (r restating) RecordTarget(ctx context.Context, t ledger.TargetRecord) (ledger.TargetSummary, error) {
	if r.repaired[t.Target.URI] && t.Result.State == reconcile.StateClean {
		t.Result.State = reconcile.StateRepaired
	}
	return r.Ledger.RecordTarget(ctx, t)
}

// owner names this process in locks.
func owner(passID string) string {
	return fmt.Sprintf("%s pid %d pass %s", host(), os.Getpid(), passID)
}
