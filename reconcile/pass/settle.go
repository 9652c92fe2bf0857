package pass

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// settleAll plans for every target that kept findings, counts the pass's limits
// over all of them, and reports.
func (p *engine) settleAll(ctx context.Context) error {
	// Planning may read a little more metadata; an interrupted pass plans nothing.
	actions := make([][]reconcile.PlanAction, len(p.looks))
	found := make([][]reconcile.Finding, len(p.looks))
	for i, l := range p.looks {
		found[i], l.found = dedupe(l.found), nil
	}
	cooling, err := p.cooled(ctx, p.looks)
	if err != nil && ctx.Err() == nil {
		return err
	}
	for i, l := range p.looks {
		if len(found[i]) == 0 || ctx.Err() != nil {
			continue
		}
		if err := p.weigh(ctx, found[i]); err != nil && ctx.Err() == nil {
			return err
		}
		if _, cold := cooling[l.target.Location.Canonical()]; cold {
			l.facts.Blocks = append(l.facts.Blocks, reconcile.BlockedCoolingDown)
		}
		if !whole(l, found[i]) {
			l.facts.Blocks = append(l.facts.Blocks, reconcile.BlockedIncompleteLook)
		}
		addBlocks(found[i], l.facts.Blocks)
		acts, err := l.src.Propose(ctx, found[i], p.opts.Policy)
		if err != nil {
			if ctx.Err() == nil {
				p.opts.Logger.Warn("plan for target", "target", l.target.Name, "err", err)
			}
			for j := range found[i] {
				found[i][j].ProposedAction = reconcile.ActionNone
				found[i][j].BlockedBy = append(found[i][j].BlockedBy, reconcile.BlockedIncompleteLook)
			}
			continue
		}
		actions[i] = acts
	}
	p.passLimits(actions, found)
	for i, l := range p.looks {
		p.out.Actions = append(p.out.Actions, actions[i]...)
		if err := p.rememberPeers(ctx, l, found[i]); err != nil && ctx.Err() == nil {
			return err
		}
		if err := p.finish(ctx, l, found[i]); err != nil {
			return err
		}
		// What is done with makes room for the next target.
		found[i], p.looks[i] = nil, nil
	}
	return nil
}

// whole reports whether nothing of the target stayed open: an incomplete look
// never repairs.
func whole(l *look, found []reconcile.Finding) bool {
	open := func(fs []reconcile.Finding) bool {
		for i := range fs {
			if fs[i].Verdict.Open() && !fs[i].Ref.Harmless {
				return true
			}
		}
		return false
	}
	unread := func(n reconcile.NotChecked) bool { return slices.Contains(mustLook, n.Role) }
	return l.brokenOff == "" && !open(found) && !open(l.facts.Findings) && !slices.ContainsFunc(l.facts.NotChecked, unread)
}

// addBlocks puts what forbids every destructive action of the target on each of
// its findings; Propose takes it off where no destructive action is at stake.
func addBlocks(fs []reconcile.Finding, blocks []string) {
	for i := range fs {
		for _, b := range blocks {
			if !slices.Contains(fs[i].BlockedBy, b) {
				fs[i].BlockedBy = append(fs[i].BlockedBy, b)
			}
		}
	}
}

func dedupe(fs []reconcile.Finding) []reconcile.Finding {
	seen := make(map[string]bool, len(fs))
	return slices.DeleteFunc(fs, func(f reconcile.Finding) bool {
		dup := seen[f.FindingID]
		seen[f.FindingID] = true
		return dup
	})
}

// passLimits takes every drop out of the plan when damage is so wide that its
// cause must be common, or when the sums pass the limits.
func (p *engine) passLimits(actions [][]reconcile.PlanAction, found [][]reconcile.Finding) {
	var targets, fragments, rows int64
	for _, acts := range actions {
		hit := false
		for _, a := range acts {
			if a.Action != reconcile.ActionDropFragment {
				continue
			}
			hit = true
			fragments += int64(len(a.Fragments))
			for _, f := range a.Fragments {
				if f.LiveRows != nil {
					rows += *f.LiveRows
				}
			}
		}
		if hit {
			targets++
		}
	}
	lim := p.opts.Policy.Limits
	if targets <= lim.MaxPassTargets && fragments <= lim.MaxPassFragments && rows <= lim.MaxPassRows {
		return
	}
	p.opts.Logger.Warn("damage over the limits of a pass: nothing is dropped", "targets", targets, "fragments", fragments, "rows", rows)
	for i := range actions {
		actions[i] = slices.DeleteFunc(actions[i], func(a reconcile.PlanAction) bool { return a.Action == reconcile.ActionDropFragment })
		for j := range found[i] {
			f := &found[i][j]
			if f.ProposedAction == reconcile.ActionDropFragment && !slices.Contains(f.BlockedBy, reconcile.BlockedOverLimit) {
				f.BlockedBy = append(f.BlockedBy, reconcile.BlockedOverLimit)
			}
		}
	}
}

// finish fixes the target's line and hands it and its findings on, which are the
// caller's no more.
func (p *engine) finish(ctx context.Context, l *look, findings []reconcile.Finding) error {
	findings = dedupe(slices.Insert(findings, 0, l.facts.Findings...))
	r := &l.result
	r.Findings = int64(len(findings))
	countMetadata(r, l.facts.Findings, findings)
	r.NotChecked = append(r.NotChecked, l.facts.NotChecked...)
	r.State, r.Reason = stateOf(l, findings)
	if r.Reason == nil && (r.State != reconcile.StateClean || !l.target.RegistryUnread) {
		r.Reason = registryReason(l.target)
	}
	if rows, ok := rowsAtRisk(findings); ok && l.target.Kind != kindBlobs {
		r.RowsAtRisk = &rows
	}
	for i := range findings {
		f := &findings[i]
		l.verdicts[f.Verdict]++
		if f.RowsAtRisk != nil && (f.Verdict == reconcile.Pending || f.Verdict == reconcile.Superseded) {
			f.RowsAtRisk = reconcile.Ptr(int64(0)) // as its target and the totals say
		}
		if f.Verdict == reconcile.Missing && deref(f.Reason) == reasonLogEntry {
			p.opts.Logger.Warn("an entry of the write-ahead log is gone that no generation holds yet: acknowledged rows may be lost", "target", l.target.Name, "path", f.Path)
		}
	}
	if len(findings) > 0 {
		p.mu.Lock()
		if p.out.targets == nil {
			p.out.targets, p.out.bases = map[string]reconcile.Target{}, map[string]map[objstore.Location]*base{}
		}
		key := l.target.Location.Canonical()
		p.out.targets[key], p.out.bases[key] = l.target, l.bases
		p.mu.Unlock()
	}
	if err := p.remember(ctx, l, findings); err != nil {
		return err
	}
	return p.publish(ctx, *r, findings, l.verdicts, l.flapped)
}

// kindBlobs is the kind of targets that hold no rows.
const kindBlobs = "blobs"

// countMetadata makes coverage tell the truth: metadata objects with a finding are
// references too, and only what got a trustworthy answer counts as checked.
func countMetadata(r *reconcile.TargetResult, metadata, all []reconcile.Finding) {
	r.References += int64(len(metadata))
	r.Checked += int64(len(metadata))
	for _, f := range all {
		if f.Verdict.Open() {
			r.Checked--
		}
	}
}

// publish adds one target's line and findings to the outcome and the sink.
func (p *engine) publish(ctx context.Context, r reconcile.TargetResult, findings []reconcile.Finding, verdicts map[reconcile.Verdict]int64, flapped int64) error {
	p.mu.Lock()
	p.out.Targets = append(p.out.Targets, r)
	if len(p.out.Findings) == 0 {
		p.out.Findings = findings // those of one broken table are not held twice
	} else {
		p.out.Findings = append(p.out.Findings, findings...)
	}
	t := &p.out.Totals
	t.Targets++
	t.TargetsByState[r.State]++
	t.References += r.References
	t.Checked += r.Checked
	t.Flapped += flapped
	if r.RowsAtRisk != nil {
		t.RowsAtRisk += *r.RowsAtRisk
	}
	for v, n := range verdicts {
		t.Verdicts[v] += n
	}
	p.mu.Unlock()
	if p.opts.Sink == nil {
		return nil
	}
	p.sinkMu.Lock()
	defer p.sinkMu.Unlock()
	ctx = context.WithoutCancel(ctx) // an interrupted pass still says what it saw
	if len(findings) > 0 {
		if err := p.opts.Sink.Findings(ctx, findings); err != nil {
			return errors.Join(errSink, err)
		}
	}
	if err := p.opts.Sink.Target(ctx, r); err != nil {
		return errors.Join(errSink, err)
	}
	return nil
}

// publishProblems reports the places that discovery could not list.
func (p *engine) publishProblems(ctx context.Context) error {
	for i, r := range p.opts.Problems {
		var fs []reconcile.Finding
		verdicts := map[reconcile.Verdict]int64{}
		for _, f := range p.opts.ProblemFindings {
			if f.Target == r.Target && f.URL == p.opts.Problems[i].URI {
				f.FirstObservedAt = p.opts.Clock.Now()
				fs = append(fs, f)
				verdicts[f.Verdict]++
			}
		}
		r.Findings = int64(len(fs))
		countMetadata(&r, fs, fs)
		if err := p.publish(ctx, r, fs, verdicts, 0); err != nil {
			return err
		}
	}
	return nil
}

// mustLook are the roles whose absence from the look makes a target incomplete.
var mustLook = []reconcile.Role{reconcile.RoleData, reconcile.RoleOverlay, reconcile.RoleWALGeneration}

// stateOf is the target's state, the most serious first.
func stateOf(l *look, findings []reconcile.Finding) (reconcile.State, *string) {
	reason := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	if l.facts.Settled {
		return l.facts.State, reason(l.facts.Reason)
	}
	if l.brokenOff != "" {
		return reconcile.StateIncomplete, reason(l.brokenOff)
	}
	if l.cut && slices.ContainsFunc(findings, func(f reconcile.Finding) bool { return f.ConfirmedAt == nil && !f.Ref.Harmless }) {
		return reconcile.StateIncomplete, reason(reasonInterrupted)
	}
	var open, damaged, pending *reconcile.Finding
	for i := range findings {
		f := &findings[i]
		if f.Ref.Harmless || slices.Contains(f.BlockedBy, reconcile.BlockedAcknowledged) {
			continue
		}
		switch {
		case f.Verdict.Open():
			open = f
		case f.Verdict == reconcile.Pending && f.Role == reconcile.RoleBlob:
			// on its way: nothing to do yet
		case f.Verdict == reconcile.Pending:
			pending = f
		case f.Verdict.Damaged():
			damaged = f
		}
	}
	if open != nil {
		if open.Reason != nil {
			return reconcile.StateIncomplete, open.Reason
		}
		return reconcile.StateIncomplete, reason(open.Verdict.String())
	}
	for _, n := range l.facts.NotChecked {
		if slices.Contains(mustLook, n.Role) {
			return reconcile.StateIncomplete, reason("not_checked:" + n.Role.String())
		}
	}
	switch {
	case l.facts.State == reconcile.StateRolledBack:
		return reconcile.StateRolledBack, reason(l.facts.Reason)
	case damaged != nil && slices.Contains(l.facts.Blocks, reconcile.BlockedCoolingDown):
		return reconcile.StateCoolingDown, reason("repair")
	case damaged != nil:
		if slices.Contains(damaged.BlockedBy, reconcile.BlockedEverythingMissing) {
			return reconcile.StateDiverged, reason(reconcile.ReasonEverythingMissing)
		}
		return reconcile.StateDiverged, reason(l.facts.Reason)
	case pending != nil:
		return reconcile.StatePending, nil
	}
	return reconcile.StateClean, reason(l.facts.Reason)
}

// rowsAtRisk sums the live rows of the damaged fragments and generations, each once.
// ok is false when there is damage whose rows nobody knows and none whose rows are
// known.
func rowsAtRisk(findings []reconcile.Finding) (rows int64, ok bool) {
	// Fragments apart from the rest, which has longer names and is rare.
	most, fragments := map[string]int64{}, map[uint64]int64{}
	unknown := false
	for i := range findings {
		f := &findings[i]
		held := f.FragmentID != nil || f.Role == reconcile.RoleWALGeneration || f.Role == reconcile.RoleWALManifest
		switch {
		case f.Role == reconcile.RoleWALManifest && f.Verdict == reconcile.Undecided && f.RowsAtRisk == nil:
			unknown = true // a shard manifest that may be gone hides nobody knows how many
		case !f.Verdict.Damaged() || f.Ref.Harmless || !held:
		case f.RowsAtRisk == nil:
			unknown = true
		case f.FragmentID != nil:
			// A sidecar holds values of some of its fragment's rows, a data file of all.
			fragments[*f.FragmentID] = max(fragments[*f.FragmentID], *f.RowsAtRisk)
		default:
			most[f.RowsKey()] = max(most[f.RowsKey()], *f.RowsAtRisk)
		}
	}
	for _, n := range most {
		rows += n
	}
	for _, n := range fragments {
		rows += n
	}
	return rows, len(most)+len(fragments) > 0 || !unknown
}

// sortOutcome gives targets and findings a stable order whatever finished first.
func sortOutcome(o *Outcome) {
	slices.SortFunc(o.Targets, func(a, b reconcile.TargetResult) int {
		return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Target, b.Target), cmp.Compare(a.URI, b.URI))
	})
	slices.SortFunc(o.Findings, func(a, b reconcile.Finding) int {
		return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Path, b.Path))
	})
	slices.SortFunc(o.Nowhere, func(a, b Nowhere) int {
		return cmp.Compare(a.Target.Location.String(), b.Target.Location.String())
	})
	slices.SortFunc(o.Actions, func(a, b reconcile.PlanAction) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.URI, b.URI), cmp.Compare(a.Action, b.Action))
	})
}
