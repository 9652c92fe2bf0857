package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

func (a *app) undoCommand() *cobra.Command {
	var f lookFlags
	var dryRun, stopped bool
	var reason string
	cmd := &cobra.Command{
		Use: "undo REPAIR [flags]", Short: "Put dropped fragments back whose files are there again",
		Long: `undo takes a drop of fragments back. The ledger keeps the fragments as they stood in
the manifest; when every file of theirs is there again, with its recorded size and a
valid footer, and the table was neither overwritten nor restored since, they are put
back in an Append commit, recorded like any repair. A repair is named by its id or by
the beginning of it that no other has.`,
		Example: "  reconcile undo 01a227b7-b41b\n  reconcile undo 01a227b7-b41b --dry-run --output json",
		Args:    oneArgument("a repair; reconcile repairs lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u := &undoing{app: a, dryRun: dryRun}
			return u.run(cmd, &f, args[0], reason, stopped)
		},
	}
	f.add(cmd.Flags())
	for _, ofLook := range []string{"report", "target", "exclude", "versions", "depth", "confirm-after", "min-manifest-age", "concurrency", "progress", "verbose"} {
		cmd.Flags().Lookup(ofLook).Hidden = true
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "prove that it can be done, and do nothing")
	cmd.Flags().BoolVar(&stopped, "writers-stopped", false, "no writer is running that commits without a condition")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that stands in the ledger")
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage, reconcile.ExitRefused, reconcile.ExitCommitFailed, reconcile.ExitLocked, reconcile.ExitInterrupted, reconcile.ExitTerminated)
	return cmd
}

// undoing is one undo while it runs.
type undoing struct {
	*app
	dryRun  bool
	s       *settings
	ledger  ledger.Ledger
	drop    ledger.Repair
	target  reconcile.Target
	doc     reconcile.Pass
	writers *factory.Set
}

func (u *undoing) run(cmd *cobra.Command, f *lookFlags, begin, reason string, stopped bool) error {
	ctx := cmd.Context()
	lf := ledgerFlags{config: f.config, database: f.database}
	return lf.read(ctx, func(l ledger.Ledger) error {
		u.ledger = l
		if err := u.find(ctx, begin); err != nil {
			return err
		}
		uri := placeOf(u.drop.Where.URI)
		s, err := f.settings(cmd, []string{uri})
		if err != nil {
			return err
		}
		u.s, s.reason, s.writersStopped = s, reason, stopped
		if u.dryRun {
			s.reason = strings.TrimSpace(reason + " (dry run)")
		}
		if err := u.open(ctx, uri); err != nil {
			return err
		}
		defer u.writers.Close()
		out, code, err := u.record(ctx)
		if err != nil {
			return failure(err)
		}
		if f.output == "json" {
			err = u.printJSON(out)
		} else {
			err = u.print(out)
		}
		return cmpErr(failure(err), exitWith(code))
	})
}

// find reads the drop that is meant.
func (u *undoing) find(ctx context.Context, begin string) error {
	rs, err := u.ledger.ListRepairs(ctx, ledger.Filter{})
	if err != nil {
		return failure(err)
	}
	ids := make([]string, len(rs))
	for i, r := range rs {
		ids[i] = r.RepairID
	}
	id, err := unique("repair", begin, ids)
	if err != nil {
		return err
	}
	if u.drop, err = u.ledger.UndoData(ctx, id); err != nil {
		return failure(err)
	}
	switch {
	case u.drop.Action == reconcile.ActionDropIndex:
		return usageError("repair %s is no drop of fragments but %s: an index is built again, not put back", id, u.drop.Action)
	case u.drop.Action != reconcile.ActionDropFragment:
		return usageError("repair %s is no drop of fragments but %s: it gave nothing up, so that there is nothing to put back; an object that took another's place is replaced by hand, from a bucket version or from repair.quarantine", id, u.drop.Action)
	case u.drop.State != ledger.StateApplied || u.drop.CommittedVersion == nil:
		return usageError("repair %s was not applied (%s): there is nothing to undo", id, u.drop.State)
	case u.drop.Manifest == nil || u.drop.Manifest.Bytes == nil || len(u.drop.Messages) == 0:
		return usageError("the ledger does not keep the manifest of repair %s (above 16 MiB): restore version %s with the library", id, num(u.drop.ReadVersion))
	}
	return nil
}

// placeOf is a canonical URI as users write it, without the endpoint.
func placeOf(canonical string) string {
	scheme, rest, ok := strings.Cut(canonical, "://")
	if !ok || scheme == "file" {
		return canonical
	}
	bucket, key, _ := strings.Cut(rest, "/")
	bucket, _, _ = strings.Cut(bucket, "@")
	return scheme + "://" + bucket + "/" + key
}

// open finds the table of the record.
func (u *undoing) open(ctx context.Context, uri string) error {
	opts := u.s.stores
	opts.PerPrefix, opts.Logger = u.s.writeAs, u.log
	u.writers = factory.New(opts)
	found, err := fleet.Discover(ctx, u.writers, []string{uri}, fleet.Filter{}, u.log)
	if err != nil {
		return failure(err)
	}
	if len(found.Targets) != 1 {
		return failure(fmt.Errorf("no table at %s", uri))
	}
	u.target = found.Targets[0]
	u.target.Name, u.target.Store = u.drop.Target, u.drop.Store
	if got := u.target.Location.Canonical(); got != u.drop.Where.URI {
		return failure(fmt.Errorf("the repair is of %s, and this configuration reaches %s", u.drop.Where.URI, got))
	}
	return nil
}

// record carries the undo out within a pass of its own.
func (u *undoing) record(ctx context.Context) (reconcile.RepairOutcome, reconcile.ExitCode, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return reconcile.RepairOutcome{}, 0, fmt.Errorf("make a pass id: %w", err)
	}
	reason := strings.TrimSpace("undo of " + u.drop.RepairID + " " + u.s.reason)
	u.doc = reconcile.Pass{PassID: id.String(), Mode: modeFull, ToolVersion: thisBuild().Version, Actor: actor(), Host: host(), Reason: &reason, StartedAt: time.Now().UTC(),
		Scope: u.s.scope(), Totals: reconcile.Totals{TargetsByState: map[reconcile.State]int64{}, Verdicts: map[reconcile.Verdict]int64{}}}
	if _, err := u.ledger.BeginPass(ctx, u.doc); err != nil {
		return reconcile.RepairOutcome{}, 0, err
	}
	rec, code, err := u.locked(ctx)
	if err != nil {
		code = reconcile.ExitFailed
	}
	u.doc.FinishedAt = time.Now().UTC()
	u.doc.Exit = reconcile.Exit{Code: code, Name: code.Name()}
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
	defer cancel()
	return rec.RepairOutcome, code, errors.Join(err, u.ledger.FinishPass(rctx, u.doc))
}

// locked prepares and commits under the lock of the target.
func (u *undoing) locked(ctx context.Context) (ledger.Repair, reconcile.ExitCode, error) {
	rec := ledger.Repair{Where: ledger.TargetOf(u.target), PassID: u.doc.PassID, Actor: u.doc.Actor, Host: u.doc.Host, Reason: u.doc.Reason}
	rec.RepairOutcome = reconcile.RepairOutcome{Target: u.target.Name, Store: u.target.Store, Action: reconcile.ActionRestore, State: ledger.StateRefused,
		Trigger: ledger.TriggerManual, Fragments: []reconcile.RepairFragment{}, Source: reconcile.Ptr("undo:" + u.drop.RepairID)}
	uri := u.target.Location.Canonical()
	lease, err := u.ledger.Acquire(ctx, uri, owner(u.doc.PassID), ledger.DefaultLease)
	if errors.Is(err, ledger.ErrLocked) {
		rec.RepairOutcome.Error = reconcile.Ptr(err.Error())
		return rec, reconcile.ExitLocked, nil
	}
	if err != nil {
		return rec, 0, err
	}
	held, stop := ledger.Keep(ctx, u.ledger, lease, ledger.DefaultLease)
	defer func() {
		stop()
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
		defer cancel()
		if err := u.ledger.Release(rctx, lease); err != nil {
			u.log.Warn("release lock", "target", u.target.Name, "err", err)
		}
	}()
	if u.target.Location.Scheme != "file" && !u.dryRun {
		w, err := u.writers.Writer(held, u.target.Root)
		if err == nil {
			err = pass.ProbeConditional(held, w, u.target.Root)
		}
		if err != nil {
			return u.refused(held, rec, &reconcile.Refusal{Reason: reconcile.BlockedNoConditionalPut, Detail: err.Error()})
		}
	}
	for try := 1; ; try++ {
		done, code, err := u.once(held, lease, &rec, try)
		if done || err != nil {
			return rec, code, err
		}
	}
}

// undoTries bounds how often an undo begins anew because another writer was first.
const undoTries = 20

// once is one try. It is not done when another writer was first.
func (u *undoing) once(ctx context.Context, lease ledger.Lease, rec *ledger.Repair, try int) (done bool, code reconcile.ExitCode, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return true, 0, fmt.Errorf("make a repair id: %w", err)
	}
	rec.RepairID = id.String()
	r := tables.NewRepairer(u.target, u.writers, tables.RepairOptions{Options: tables.Options{WritersStopped: u.s.writersStopped, ExternalCommit: u.s.places[0].external, Logger: u.log},
		Now: time.Now})
	c, err := r.PrepareUndo(ctx, tables.Undo{Manifest: u.drop.Manifest.Bytes, Committed: *u.drop.CommittedVersion, Messages: u.drop.Messages},
		reconcile.Preparation{RepairID: rec.RepairID, TransactionUUID: uuid.NewString()})
	var refusal *reconcile.Refusal
	switch {
	case errors.As(err, &refusal):
		*rec, code, err = u.refused(ctx, *rec, refusal)
		return true, code, err
	case err != nil:
		return true, 0, err
	}
	e := c.Effect()
	rec.ReadVersion, rec.TransactionUUID, rec.Manifest = &e.ReadVersion, &e.TransactionUUID, ledger.ManifestOf(e.ManifestName, e.Manifest)
	rec.Fragments = u.drop.Fragments
	if u.dryRun {
		rec.State = ledger.StatePlanned
		return true, reconcile.ExitClean, nil
	}
	if err := u.ledger.Intend(ctx, lease, *rec); err != nil {
		return true, 0, fmt.Errorf("record the undo before it is made: %w", err)
	}
	state, version, cerr := c.Commit(ctx)
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
	defer cancel()
	o := ledger.Outcome{State: ledger.StateApplied, CommittedVersion: &version}
	if state != reconcile.CommitApplied {
		o = ledger.Outcome{State: map[reconcile.CommitState]string{reconcile.CommitConflict: ledger.StateConflict, reconcile.CommitFailed: ledger.StateFailed, reconcile.CommitUncertain: ledger.StateUncertain}[state],
			Error: reconcile.Ptr(fmt.Sprint(cerr))}
	}
	rec.State, rec.CommittedVersion, rec.RepairOutcome.Error = o.State, o.CommittedVersion, o.Error
	if err := u.ledger.Settle(sctx, lease, rec.RepairID, o); err != nil {
		(&work{app: u.app, doc: u.doc}).lost(*rec, o, err)
		return true, reconcile.ExitCommitFailed, nil
	}
	switch {
	case state == reconcile.CommitConflict && try < undoTries && ctx.Err() == nil:
		return false, 0, nil
	case state != reconcile.CommitApplied:
		return true, reconcile.ExitCommitFailed, nil
	}
	if err := r.Verify(sctx, e, version); err != nil {
		rec.RepairOutcome.Error = reconcile.Ptr(err.Error())
		return true, reconcile.ExitCommitFailed, nil
	}
	return true, reconcile.ExitClean, u.ledger.Verified(sctx, lease, rec.RepairID)
}

// refused records that the undo is not made, and why.
func (u *undoing) refused(ctx context.Context, rec ledger.Repair, why *reconcile.Refusal) (ledger.Repair, reconcile.ExitCode, error) {
	if rec.RepairID == "" {
		rec.RepairID = uuid.Must(uuid.NewV7()).String()
	}
	rec.State, rec.RepairOutcome.Error = ledger.StateRefused, reconcile.Ptr(why.Error())
	if u.dryRun {
		return rec, reconcile.ExitRefused, nil
	}
	return rec, reconcile.ExitRefused, u.ledger.Note(ctx, rec)
}

func (u *undoing) print(r reconcile.RepairOutcome) error {
	text := fmt.Sprintf("undo of %s on %s: %s", u.drop.RepairID, r.Target, r.State)
	if r.CommittedVersion != nil {
		text += fmt.Sprintf(", %s back, made version %d", count(len(r.Fragments), "fragment"), *r.CommittedVersion)
	}
	if r.Error != nil {
		text += ": " + *r.Error
	}
	_, err := fmt.Fprintln(u.stdout, printable(text))
	return err
}
