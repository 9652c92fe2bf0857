package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/hook"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/wal"
)

// afterSettings are what a pass does for others when its own work is recorded.
type afterSettings struct {
	hooks []*hook.Hook
	// merge without endpoints merges nothing.
	merge config.MergeWAL
}

// afterOf is what the configuration asks for after this pass. Workers are asked to
// merge by a scheduled pass only, and by none that is only to look: merging is no
// repair, so that repair.mode does not decide, but a --mode off that was typed does.
func afterOf(fs *pflag.FlagSet, cfg *config.Config, s *settings) (afterSettings, error) {
	var a afterSettings
	for _, h := range cfg.AfterRepair {
		c, err := h.Compile()
		if err != nil {
			return a, configError(err)
		}
		a.hooks = append(a.hooks, c)
	}
	onlyLooks := s.repair.dryRun || fs.Changed("mode") && s.mode == modeOff
	if len(cfg.MergeWAL.Endpoints) == 0 || !s.repair.scheduled || onlyLooks {
		return a, nil
	}
	if s.database.Reveal() == "" {
		return a, usageError("merge_wal.endpoints need a ledger, which keeps two passes from merging one target: name one with database: in the configuration or with --database")
	}
	a.merge = cfg.MergeWAL
	return a, nil
}

// after tells other systems of repairs and has pending generations merged. What goes
// wrong with either is warned of, stands in the document, and changes no exit code;
// an interruption does. The pass is recorded before, and its record stays as it is.
func (w *work) after(ctx context.Context, out *pass.Outcome, l *looked) {
	a := w.s.after
	posts, merges := len(a.hooks) > 0 && w.tells(), len(a.merge.Endpoints) > 0 && w.ledger != nil
	if ctx.Err() != nil || !posts && !merges {
		return
	}
	if posts {
		w.tell(ctx)
	}
	if merges {
		w.merge(ctx, out)
	}
	mctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
	defer cancel()
	w.meter.after(mctx, w.doc, w.ledger)
	var interrupt *interruptError
	if errors.As(context.Cause(ctx), &interrupt) {
		l.interrupted = interrupt
		w.doc.Exit = reconcile.Exit{Code: interrupt.exit(), Name: interrupt.exit().Name()}
	}
}

// tells reports whether this pass sends what is owed: one that repairs does, and every
// scheduled one, since what an earlier pass repaired is told of whatever may be repaired
// now. A dry run does nothing.
func (w *work) tells() bool {
	return w.carries() || w.s.repair.scheduled && !w.s.repair.dryRun && w.ledger != nil
}

// merge asks the workers for every target that a merge is due for.
func (w *work) merge(ctx context.Context, out *pass.Outcome) {
	m := w.s.after.merge
	due := wal.Due(w.found.targets, out.Targets, out.Findings, m.MinGenerations)
	if len(due) == 0 {
		return
	}
	w.log.Info("merges begin", "targets", len(due), "workers", len(m.Endpoints))
	var until time.Time
	if d := w.budget().Duration; d > 0 {
		until = w.doc.StartedAt.Add(d)
	}
	merges, err := wal.Merge(ctx, due, wal.Options{
		Endpoints: m.Endpoints, Timeout: m.Timeout.Std(), Ledger: w.ledger, Owner: owner(w.doc.PassID), Began: w.began, Until: until,
		Cooldown: w.s.cooldown, Force: w.s.repair.force, Now: time.Now, Logger: w.log,
	})
	w.doc.Merges = merges
	if err != nil {
		w.log.Warn("merges ended early: the ledger failed", "err", err)
	}
}

// warnPending says which targets have so many pending generations that reads become
// slow, and at some number are refused.
func (w *work) warnPending(targets []reconcile.TargetResult) {
	for _, t := range targets {
		if n := t.PendingGenerations; n != nil && w.s.warnWAL > 0 && *n >= w.s.warnWAL {
			w.log.Warn("many write-ahead generations are pending: nobody merges them, or not fast enough", "target", t.Target, "store", t.Store, "pending", *n, "warn_generations", w.s.warnWAL)
		}
	}
}

const (
	// postAge is for how long a post that nobody takes is tried, and how old a repair
	// may be that is told of; postPasses by how many passes.
	postAge    = 24 * time.Hour
	postPasses = 24
	// postTotal bounds all attempts of one post in one pass, postEach one of them.
	postTotal    = 30 * time.Second
	postEach     = 10 * time.Second
	postAttempts = 4
	postBackoff  = 500 * time.Millisecond
	// postClaim is how long other passes leave a post alone that this one sends.
	postClaim = 2 * postTotal
	// After postFailures in a row of one hook each of its others is tried once only, and
	// none is begun any more when the hook has had postHook: those that were tried least
	// come first in the next pass.
	postFailures = 2
	postHook     = 2 * time.Minute
)

// tell sends what is owed to other systems, of this pass's repairs and of those that
// an earlier one could not tell of.
func (w *work) tell(ctx context.Context) {
	w.doc.Posts = []reconcile.PostOutcome{}
	byKey := map[string]*hook.Hook{}
	var hooks []ledger.PostHook
	for _, h := range w.s.after.hooks {
		byKey[h.Key()] = h
		hooks = append(hooks, ledger.PostHook{Key: h.Key(), URL: h.Shown()})
	}
	uris := make([]string, len(w.found.targets))
	for i, t := range w.found.targets {
		uris[i] = t.Location.Canonical()
	}
	if _, err := w.ledger.OpenPosts(ctx, hooks, uris, postAge); err != nil {
		w.log.Warn("nobody is told of repairs: the ledger failed; the next pass does it", "err", err)
		return
	}
	due, givenUp, err := w.ledger.DuePosts(ctx, hooks, uris, postAge, postPasses)
	if err != nil {
		w.log.Warn("nobody is told of repairs: the ledger failed; the next pass does it", "err", err)
		return
	}
	for _, p := range givenUp {
		w.posted(p, addressOf(byKey[p.Hook], p), ledger.PostResult{State: ledger.PostGivenUp, Status: p.Status, Error: p.Error})
	}
	for i, r := range w.sendAll(ctx, byKey, due) {
		if r != nil {
			w.posted(due[i], cmp.Or(r.URL, addressOf(byKey[due[i].Hook], due[i])), *r)
		}
	}
	if ctx.Err() != nil {
		w.log.Warn("posts after repairs end early; the next pass goes on", "cause", context.Cause(ctx))
	}
}

// sendAll sends the posts that are due, each hook's by itself, so that an endpoint that
// is away holds up its own only. It says of each how it ended; nil is not sent.
func (w *work) sendAll(ctx context.Context, hooks map[string]*hook.Hook, due []ledger.Post) []*ledger.PostResult {
	out := make([]*ledger.PostResult, len(due))
	byHook := map[string][]int{}
	for i, p := range due {
		byHook[p.Hook] = append(byHook[p.Hook], i)
	}
	var all sync.WaitGroup
	for key, posts := range byHook {
		all.Go(func() {
			q := postQueue{until: time.Now().Add(postHook), now: time.Now}
			for _, i := range posts {
				if ctx.Err() != nil {
					return
				}
				tries := q.tries()
				if tries == 0 {
					out[i] = &ledger.PostResult{State: ledger.PostOpen, Error: reconcile.Ptr("not sent: the posts before it took all the time that one address is given in a pass; it comes first in the next")}
					continue
				}
				sender := &hook.Sender{Attempts: tries, Each: postEach, Total: postTotal, Backoff: postBackoff, Now: time.Now, Sleep: pass.SystemClock{}.Sleep}
				out[i] = w.post(ctx, sender, hooks[key], due[i])
				q.note(out[i])
			}
		})
	}
	all.Wait()
	return out
}

// postQueue decides how often each post of one hook is tried.
type postQueue struct {
	failures int
	until    time.Time
	now      func() time.Time
}

// tries is how often the next post may be sent; 0 leaves it to the next pass.
func (q *postQueue) tries() int {
	switch {
	case q.failures < postFailures:
		return postAttempts
	case q.now().Before(q.until):
		return 1
	}
	return 0
}

// note takes account of how a post ended. One that another pass sends, or that the
// ledger kept from being sent, says nothing of the endpoint.
func (q *postQueue) note(r *ledger.PostResult) {
	switch {
	case r == nil:
	case r.State == ledger.PostOpen:
		q.failures++
	default:
		q.failures = 0
	}
}

// post sends one post and records how that ended; nil when it was not this pass that
// sent it.
func (w *work) post(ctx context.Context, sender *hook.Sender, h *hook.Hook, p ledger.Post) *ledger.PostResult {
	mine, err := w.ledger.ClaimPost(ctx, p.Repair.RepairID, p.Hook, postClaim)
	if err != nil {
		w.log.Warn("a post after a repair is not sent: the ledger failed", "target", p.Repair.Target, "repair_id", p.Repair.RepairID, "err", err)
		return nil
	}
	if !mine {
		return nil // another pass sends it
	}
	r := &ledger.PostResult{State: ledger.PostRefused}
	req, err := h.Render(dataOf(p.Repair))
	if err == nil {
		r.URL = req.Shown
		sent := sender.Send(ctx, req)
		r.Attempts, err = int64(sent.Attempts), sent.Err
		if sent.Status != 0 {
			r.Status = reconcile.Ptr(int64(sent.Status))
		}
		switch {
		case sent.Delivered:
			r.State = ledger.PostDelivered
		case !sent.Final:
			r.State = ledger.PostOpen
		}
	}
	if err != nil {
		r.Error = reconcile.Ptr(err.Error())
	}
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
	defer cancel()
	if err := w.ledger.SettlePost(rctx, p.Repair.RepairID, p.Hook, *r); err != nil {
		w.log.Warn("what became of a post after a repair is not recorded; it may be sent again", "target", p.Repair.Target, "repair_id", p.Repair.RepairID, "err", err)
	}
	return r
}

// addressOf is where a post that was not sent would have gone, without what must not
// be shown. Of a hook that is configured no more there is only what was written.
func addressOf(h *hook.Hook, p ledger.Post) string {
	if h != nil {
		if req, err := h.Render(dataOf(p.Repair)); err == nil {
			return req.Shown
		}
	}
	if strings.Contains(p.URL, "{{") {
		return "template " + p.URL
	}
	return p.URL
}

// posted logs a post and puts it into the document.
func (w *work) posted(p ledger.Post, url string, r ledger.PostResult) {
	w.doc.Posts = append(w.doc.Posts, reconcile.PostOutcome{RepairID: p.Repair.RepairID, Target: p.Repair.Target, Store: p.Repair.Store, URL: url,
		State: r.State, Attempts: r.Attempts, Status: r.Status, Error: r.Error})
	attrs := []any{"target", p.Repair.Target, "repair_id", p.Repair.RepairID, "url", url, "state", r.State, "attempts", r.Attempts}
	if r.State == ledger.PostDelivered {
		w.log.Info("told of a repair", attrs...)
		return
	}
	w.log.Warn("a post after a repair was not taken", append(attrs, "err", deref(r.Error))...)
}

// dataOf is a repair as templates speak of it.
func dataOf(r ledger.Repair) hook.Data {
	d := hook.Data{
		Target: r.Where.Name, Store: r.Where.Store, URI: r.Where.URI, Kind: r.Where.Kind, Action: r.Action.String(), RepairID: r.RepairID, PassID: r.PassID,
		ReadVersion: r.ReadVersion, CommittedVersion: r.CommittedVersion, Fragments: []uint64{}, RowsDropped: r.RowsDropped, Trigger: r.Trigger, TriggerError: r.TriggerError,
	}
	for _, f := range r.Fragments {
		d.Fragments = append(d.Fragments, f.ID)
	}
	return d
}
