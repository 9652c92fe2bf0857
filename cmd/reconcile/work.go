package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/mancache"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// recordGrace is how long the record of a pass may take after the pass was
// interrupted.
const recordGrace = 20 * time.Second

// work is one pass while it runs.
type work struct {
	*app
	s   *settings
	log *slog.Logger
	// set looks; writers is a set of its own, so that the one that looks is never
	// asked for a writer.
	set, writers *factory.Set
	// kept are the manifests of earlier passes; only what looks is given them. nil: none.
	kept *mancache.Cache
	// ledger is nil for a look that has none.
	ledger ledger.Ledger
	found  *foundTargets
	// cooling are the targets whose checks cool down.
	cooling []reconcile.TargetResult
	doc     reconcile.Pass
	meter   *meter
	// began is when the pass did, by the ledger's clock.
	began time.Time
	// codes are exit codes that no target's state tells.
	codes []reconcile.ExitCode
	// handed are the failures that other systems handed in about targets of this pass.
	handed []handedIn
	// known is what the ledger was last told of each target, by URI.
	known map[string]knownTarget
	// peers are those of each configured place, by its canonical URI.
	peers map[string][]reconcile.Peer
	mend  pass.MendOptions
	// pace is verify.max_bytes_per_second.
	pace     *rate.Limiter
	paceOnce sync.Once
	// unrecorded counts repairs that the ledger was lost after.
	unrecorded int
}

// looked is what a pass found and did, with its document.
type looked struct {
	pass    reconcile.Pass
	actions []reconcile.PlanAction
	// interrupted is the cause when the pass was ended early.
	interrupted error
}

// look carries out one pass: it looks, repairs where the settings ask for that, and
// records and reports. judge, when not nil, turns the outcome into the exit code of
// the command before anything is written. The error is about what prevented the
// pass from being made at all, or from being recorded.
func (a *app) look(ctx context.Context, s *settings, p *progress, judge func(*pass.Outcome) reconcile.ExitCode) (*looked, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, failure(fmt.Errorf("make a pass id: %w", err))
	}
	w := &work{app: a, s: s, log: a.withPass(id.String())}
	w.doc = reconcile.Pass{
		PassID: id.String(), Mode: s.mode, ToolVersion: thisBuild().Version, Actor: actor(), Host: host(), StartedAt: time.Now().UTC(),
		Scope: s.scope(), Repairs: []reconcile.RepairOutcome{},
	}
	if s.reason != "" {
		w.doc.Reason = &s.reason
	}
	w.meter = newMeter(ctx, s, w.log)
	defer w.meter.close()
	w.openStores()
	defer w.set.Close()
	defer w.writers.Close()
	defer func() { w.found.closeReferences() }()
	defer w.kept.Close()
	l, err := a.openLedger(ctx, s, w.log)
	if err != nil {
		return nil, err
	}
	if l != nil {
		w.ledger = countingLedger{l, w.meter.cooldownEntered}
		defer func() {
			if err := l.Close(); err != nil {
				w.log.Debug("close ledger", "err", err)
			}
		}()
	}
	return w.run(ctx, p, judge)
}

func (w *work) openStores() {
	w.s.stores.Logger = w.log
	w.s.stores.Observe = w.meter.observer()
	w.set = factory.New(w.s.stores)
	write := w.s.stores
	write.PerPrefix = w.s.writeAs
	w.writers = factory.New(write)
	w.kept = mancache.New(mancache.Options{Dir: cmp.Or(w.s.work.Dir, mancache.DefaultDir(os.Getenv)), Max: int64(w.s.work.Max) / manifestShare, Logger: w.log, Now: time.Now})
}

// manifestShare is the part of work.max that manifests may take: a fleet's are small
// beside the copies that repairs stage.
const manifestShare = 4

// run is the pass itself.
func (w *work) run(ctx context.Context, p *progress, judge func(*pass.Outcome) reconcile.ExitCode) (*looked, error) {
	if err := w.discover(ctx); err != nil {
		return nil, failure(err)
	}
	rw, err := w.s.openReport(ctx, w.doc, w.log)
	if err != nil {
		return nil, failure(err)
	}
	sink := &reportSink{w: rw, references: w.s.references, meter: w.meter}
	defer sink.abort()
	if w.ledger != nil {
		if w.began, err = w.ledger.BeginPass(ctx, w.doc); err != nil {
			return nil, failure(err)
		}
	}
	settled, err := w.settle(ctx)
	if err != nil {
		return nil, failure(err)
	}
	if err := w.leaveCooling(ctx); err != nil {
		return nil, failure(err)
	}
	if err := w.readHandedIn(ctx); err != nil {
		return nil, failure(err)
	}
	w.log.Info("look begins", "targets", len(w.found.targets))
	opts := w.options()
	opts.Sink, opts.Progress, opts.Budget = sink, thrifty(p.show), w.budget()
	opts.Problems, opts.ProblemFindings = append(w.found.problems, w.cooling...), w.found.findings
	out, err := pass.Look(ctx, w.found.targets, opts)
	p.done()
	if err != nil {
		return nil, failure(err)
	}
	w.sayNowhere(out)
	carried := errors.Join(w.putOff(ctx, out, sink), w.carry(ctx, out, settled))
	code := out.Exit()
	if judge != nil {
		code = judge(out)
	}
	carried = errors.Join(carried, w.restate(context.WithoutCancel(ctx), out), w.answerHandedIn(ctx, out))
	code = w.worst(code, out, settled, carried)
	l := &looked{actions: out.Actions, interrupted: out.Interrupted}
	w.complete(out, settled, code)
	w.warnPending(out.Targets)
	err = w.finish(ctx, out, sink)
	w.after(ctx, out, l)
	l.pass = w.doc
	w.log.Info("look ended", "exit", l.pass.Exit.Code, "targets", l.pass.Totals.Targets, "references", l.pass.Totals.References, "checked", l.pass.Totals.Checked, "findings", len(l.pass.Findings))
	return l, failure(errors.Join(carried, err))
}

// discover finds the targets and says so when there are none.
func (w *work) discover(ctx context.Context) error {
	found, err := discover(ctx, w.set, w.s, w.log)
	if err != nil {
		return err
	}
	w.found = found
	if err := w.openPeers(ctx); err != nil {
		return err
	}
	if err := w.openNodes(); err != nil {
		return err
	}
	if err := found.openReferences(ctx, w.set); err != nil {
		return err
	}
	if w.s.repair.plan != nil {
		w.nameAsPlanned()
	}
	if w.s.repair.one && len(found.targets) > 1 {
		return usageError("%d targets are meant, %s and %s among them; name one", len(found.targets), found.targets[0].Name, found.targets[1].Name)
	}
	if len(found.targets)+len(found.problems) == 0 && (w.s.repair.plan == nil || w.s.repair.plan.Len() > 0) {
		w.sayNoTargets(w.s, found)
		w.doc.Reason = cmp.Or(w.doc.Reason, reconcile.Ptr(reconcile.ReasonNoTargets))
	}
	return nil
}

// options are those of a look without a place to report to.
func (w *work) options() pass.Options {
	stores := w.found.stores(w.set, w.kept)
	o := pass.Options{
		Open: w.open(stores), Peers: w.peersOf, PendingMaxAge: w.s.verify.PendingMaxAge.Std(),
		Stores: stores, Depth: w.s.depth, ConfirmAfter: w.s.confirmAfter, MinManifestAge: w.s.minManifestAge,
		TargetTimeout: w.s.targetTimeout, Concurrency: w.s.concurrency, Policy: w.s.policy, Clock: pass.SystemClock{}, Logger: w.log,
		Registered: func(ctx context.Context, ts []reconcile.Target) ([]string, error) {
			return fleet.Registered(ctx, w.set, ts)
		},
	}
	if w.ledger != nil {
		r := w.s.repair
		o.Recall = pass.Recall{Memory: w.ledger, PassID: w.doc.PassID, Look: w.lookOf(), Scheduled: r.scheduled, DropAfter: r.dropAfter,
			Force: r.force, AskAgain: r.force || r.carry && !r.scheduled, AcceptVersion: r.acceptVersion, Cooldown: w.s.cooldown}
	}
	return o
}

func (w *work) lookOf() ledger.Look {
	return ledger.Look{Depth: w.s.depth, Versions: w.doc.Scope.Versions}
}

// leaveCooling takes the targets out whose checks cool down, of those that nobody
// asked for by name; the others are put in the order in which they are due.
func (w *work) leaveCooling(ctx context.Context) error {
	if w.ledger == nil || !w.s.repair.scheduled || w.s.repair.force {
		return nil
	}
	byURI := map[string]reconcile.Target{}
	uris := make([]string, len(w.found.targets))
	for i, t := range w.found.targets {
		uris[i] = t.Location.Canonical()
		byURI[uris[i]] = t
	}
	due, cooling, err := w.ledger.Due(ctx, ledger.KindCheck, uris)
	if err != nil {
		return err
	}
	w.found.targets = w.found.targets[:0:0]
	for _, uri := range due {
		w.found.targets = append(w.found.targets, byURI[uri])
	}
	for _, uri := range uris {
		cd, cold := cooling[uri]
		if !cold {
			continue
		}
		t := byURI[uri]
		w.log.Info("check of target cools down", "target", t.Name, "until", cd.CooldownUntil, "failures", cd.ConsecutiveFailures)
		r := reconcile.TargetResult{Target: t.Name, Store: t.Store, Kind: t.Kind, URI: t.Location.String(), State: reconcile.StateCoolingDown,
			Reason: reconcile.Ptr(reasonCheckCools), NotChecked: []reconcile.NotChecked{{Role: reconcile.RoleData, Reason: "cooling_down"}}}
		if t.Registry != "" {
			r.Registry = reconcile.Ptr(t.Registry)
		}
		if _, err := w.ledger.RecordTarget(ctx, ledger.TargetRecord{PassID: w.doc.PassID, Target: ledger.TargetOf(t), Result: r, Look: w.lookOf()}); err != nil {
			return err
		}
		w.cooling = append(w.cooling, r)
	}
	return nil
}

// reasonCheckCools is the reason of a target that was not looked at because its
// checks kept failing.
const reasonCheckCools = "check"

// worst is the exit code of the pass: what the outcome says, and what it cannot know.
func (w *work) worst(code reconcile.ExitCode, out *pass.Outcome, s *settledRepairs, carried error) reconcile.ExitCode {
	codes := slices.Concat([]reconcile.ExitCode{code}, s.codes, w.codes)
	if len(w.cooling) > 0 {
		codes = append(codes, reconcile.ExitIncomplete)
	}
	if w.s.repair.plan != nil && w.s.repair.plan.Len() == 0 {
		codes = []reconcile.ExitCode{reconcile.ExitClean} // nothing was to be done, and nothing was looked at
	}
	if carried != nil {
		codes = append(codes, reconcile.ExitFailed)
	}
	worst := reconcile.WorstExit(codes...)
	if w.unrecorded > 0 && worst == reconcile.ExitFailed {
		worst = reconcile.ExitCommitFailed // the ledger was lost after an effect
	}
	var interrupt *interruptError
	if errors.As(out.Interrupted, &interrupt) {
		worst = interrupt.exit()
	}
	return worst
}

// complete fills the document with what the pass found and did.
func (w *work) complete(out *pass.Outcome, settled *settledRepairs, code reconcile.ExitCode) {
	d := &w.doc
	d.FinishedAt = time.Now().UTC()
	d.Targets, d.Findings, d.Totals = out.Targets, out.Findings, out.Totals
	d.Repairs = append(append(d.Repairs, settled.repairs...), out.Repairs...)
	for _, r := range settled.repairs {
		if r.RowsDropped != nil {
			d.Totals.RowsDropped += *r.RowsDropped
		}
	}
	c, cw := w.set.Counters(), w.writers.Counters()
	d.Totals.Requests = reconcile.Requests{Head: c.Head + cw.Head, Get: c.Get + cw.Get, List: c.List + cw.List, Put: c.Put + cw.Put,
		Throttled: c.Throttled + cw.Throttled, Retried: c.Retried + cw.Retried}
	d.Coverage = reconcile.Coverage{References: d.Totals.References, Checked: d.Totals.Checked}
	if d.Coverage.References > 0 {
		d.Coverage.Ratio = reconcile.Ptr(float64(d.Coverage.Checked) / float64(d.Coverage.References))
	}
	d.Exit = reconcile.Exit{Code: code, Name: code.Name()}
	if code == reconcile.ExitClean && d.Totals.TargetsByState[reconcile.StateRepaired] > 0 {
		d.Exit.Name = exitRepaired
	}
}

// exitRepaired is the name of exit code 0 after a repair.
const exitRepaired = "repaired"

// finish writes the reports and the end of the pass: the reports, the ledger's row,
// and then that the reports are complete. Of an interrupted pass there is no report,
// and the row all the same.
func (w *work) finish(ctx context.Context, out *pass.Outcome, sink *reportSink) error {
	err := sink.upload(ctx, &w.doc)
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
	defer cancel()
	if w.ledger != nil {
		if lerr := w.ledger.FinishPass(rctx, w.doc); lerr != nil {
			w.fail()
			err = errors.Join(err, lerr)
		}
	}
	if err == nil {
		err = sink.succeed(ctx, &w.doc)
	}
	if w.ledger != nil && w.s.repair.retention != (ledger.Retention{}) && err == nil && ctx.Err() == nil {
		if gone, perr := w.ledger.Prune(ctx, w.s.repair.retention); perr != nil {
			w.log.Warn("old records stay", "err", perr)
		} else if gone != (ledger.Pruned{}) {
			w.log.Info("old records are forgotten", "passes", gone.Passes, "findings", gone.Findings, "repairs", gone.Repairs)
		}
	}
	w.meter.pass(rctx, w.doc, w.ledger)
	return err
}

// fail marks the pass as one that could not be recorded; what it did unrecorded
// says more.
func (w *work) fail() {
	code := reconcile.WorstExit(w.doc.Exit.Code, reconcile.ExitFailed)
	if w.unrecorded > 0 && code == reconcile.ExitFailed {
		code = reconcile.ExitCommitFailed
	}
	w.doc.Exit = reconcile.Exit{Code: code, Name: code.Name()}
}
