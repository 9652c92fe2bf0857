package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// nameAsPlanned gives targets the names of the plan: found by their own URIs, they
// would all seem to lie directly below their roots.
func (w *work) nameAsPlanned() {
	names := map[string]string{}
	for _, a := range w.s.repair.plan.Actions() {
		names[a.URI] = a.Target
	}
	for i := range w.found.targets {
		t := &w.found.targets[i]
		name, ok := names[t.Location.String()]
		if !ok || name == t.Name {
			continue
		}
		t.Name = name
		if rel, table := strings.CutPrefix(name, "table:"); table {
			if key, below := strings.CutSuffix(t.Location.Key, "/"+rel+".lance"); below {
				t.Root.Key = key
			}
		}
	}
}

// asPlanned are the actions of the plan that two new looks have proven again, cut
// down to them. The others are refused.
func (w *work) asPlanned(ctx context.Context, out *pass.Outcome) ([]reconcile.PlanAction, error) {
	var still []reconcile.PlanAction
	for _, a := range planned(w.s.repair.plan.Actions(), w.s.mode) {
		if ctx.Err() != nil || w.s.mode == modeOff || !w.chosen(a) {
			continue
		}
		act, refusal := holds(out, a)
		if refusal == nil {
			still = append(still, act)
			continue
		}
		if err := w.refuse(ctx, out, a, refusal); err != nil {
			return nil, err
		}
	}
	return still, nil
}

// chosen reports whether the command line leaves the action's target in.
func (w *work) chosen(a reconcile.PlanAction) bool {
	return slices.ContainsFunc(w.found.targets, func(t reconcile.Target) bool { return t.Location.String() == a.URI }) || len(w.s.filter.Include)+len(w.s.filter.Exclude) == 0
}

// holds cuts a planned action down to what was seen damaged again. A part that is
// not as planned, or not damaged any more, refuses the whole.
func holds(out *pass.Outcome, a reconcile.PlanAction) (reconcile.PlanAction, *reconcile.Refusal) {
	fresh := slices.IndexFunc(out.Actions, func(f reconcile.PlanAction) bool {
		return f.URI == a.URI && f.Action == a.Action && (a.IndexUUID == nil || f.IndexUUID != nil && *f.IndexUUID == *a.IndexUUID)
	})
	if !a.Action.Destructive() {
		return holdsCopies(out, a, fresh)
	}
	if a.Action == reconcile.ActionDropIndex {
		if fresh < 0 {
			return a, whyNot(out, a, func(f reconcile.Finding) bool { return f.Ref.IndexUUID == *a.IndexUUID })
		}
		a.Files = common(a.Files, out.Actions[fresh].Files)
		if len(a.Files) == 0 {
			return a, &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "other files of the index are damaged than were planned for"}
		}
		return a, nil
	}
	a.Fragments = slices.Clone(a.Fragments)
	for i := range a.Fragments {
		want := &a.Fragments[i]
		var got *reconcile.PlanFragment
		if fresh >= 0 {
			if j := slices.IndexFunc(out.Actions[fresh].Fragments, func(f reconcile.PlanFragment) bool { return f.ID == want.ID }); j >= 0 {
				got = &out.Actions[fresh].Fragments[j]
			}
		}
		switch {
		case got == nil:
			return a, whyNot(out, a, func(f reconcile.Finding) bool { return f.FragmentID != nil && *f.FragmentID == want.ID })
		case got.MessageSHA256 != want.MessageSHA256:
			return a, &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: fmt.Sprintf("fragment %d is not as it was in version %d", want.ID, a.ReadVersion)}
		}
		if want.Files = common(want.Files, got.Files); len(want.Files) == 0 {
			return a, &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: fmt.Sprintf("other files of fragment %d are damaged than were planned for", want.ID)}
		}
	}
	return a, nil
}

// holdsCopies cuts an action that brings objects back down to those that are still to be
// brought back, and of which the same is recorded as when the plan was made. fresh is the
// place of the action that the new looks gave, below 0 when they gave none.
func holdsCopies(out *pass.Outcome, a reconcile.PlanAction, fresh int) (reconcile.PlanAction, *reconcile.Refusal) {
	now := map[string]string{}
	if fresh >= 0 {
		for i, file := range out.Actions[fresh].Files {
			now[file] = out.Actions[fresh].Recorded[i]
		}
	}
	all := a
	a.Files, a.Recorded = nil, nil
	changed := ""
	for i, file := range all.Files {
		recorded, due := now[file]
		switch {
		case !due:
		case i < len(all.Recorded) && all.Recorded[i] != recorded:
			changed = file
		default:
			a.Files, a.Recorded = append(a.Files, file), append(a.Recorded, recorded)
		}
	}
	switch {
	case len(a.Files) > 0:
		return a, nil
	case changed != "":
		return all, &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "another object is recorded as " + changed + " than was planned for"}
	}
	return all, whyNot(out, all, func(f reconcile.Finding) bool { return slices.Contains(all.Files, f.Path) })
}

// bindRecords notes in the actions that bring objects back what is recorded of each, so
// that a plan does not outlive a record that changes.
func bindRecords(out *pass.Outcome) {
	type object struct {
		uri, path string
		action    reconcile.Action
	}
	uris := map[[2]string]string{}
	for _, t := range out.Targets {
		uris[[2]string{t.Store, t.Target}] = t.URI
	}
	recorded := map[object]string{}
	for i := range out.Findings {
		if f := &out.Findings[i]; f.ProposedAction != reconcile.ActionNone && !f.ProposedAction.Destructive() && len(f.BlockedBy) == 0 {
			recorded[object{uris[[2]string{f.Store, f.Target}], f.Path, f.ProposedAction}] = f.Ref.RecordedText()
		}
	}
	for i := range out.Actions {
		a := &out.Actions[i]
		if a.Action.Destructive() {
			continue
		}
		a.Recorded = make([]string, len(a.Files))
		for j, file := range a.Files {
			a.Recorded[j] = recorded[object{a.URI, file, a.Action}]
		}
	}
}

func common(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// whyNot says why the new looks gave no action: what blocks it now, or that the
// damage is gone.
func whyNot(out *pass.Outcome, a reconcile.PlanAction, mine func(reconcile.Finding) bool) *reconcile.Refusal {
	t := resultAt(out, a.URI)
	if t == nil {
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "nothing is there"}
	}
	switch t.State {
	case reconcile.StateHalfDeleted:
		return &reconcile.Refusal{Reason: reconcile.BlockedHalfDeleted, Detail: deref(t.Reason)}
	case reconcile.StateFailed:
		if deref(t.Reason) == reconcile.ReasonNoSuchBucket {
			return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "nothing is there"}
		}
		return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: deref(t.Reason)}
	case reconcile.StateUnreadable:
		return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: "the newest manifest cannot be read"}
	}
	for _, f := range out.Findings {
		if f.Target != t.Target || f.Store != t.Store || !mine(f) {
			continue
		}
		switch {
		case len(f.BlockedBy) > 0:
			return &reconcile.Refusal{Reason: f.BlockedBy[0], Detail: f.Path}
		case !f.Verdict.Damaged():
			return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: f.Path + " is " + f.Verdict.String()}
		case f.ProposedAction == reconcile.ActionNone:
			return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: f.Path + " is still damaged, and no repair of it is planned any more"}
		case f.ProposedAction != a.Action:
			return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: fmt.Sprintf("%s would now be mended otherwise: %s", f.Path, f.ProposedAction)}
		}
	}
	if t.State == reconcile.StateIncomplete {
		return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: deref(t.Reason)}
	}
	return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "what was to be repaired is not damaged any more"}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// refuse records that an action of the plan is not carried out, and why.
func (w *work) refuse(ctx context.Context, out *pass.Outcome, a reconcile.PlanAction, why *reconcile.Refusal) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make a repair id: %w", err)
	}
	r := w.outcomeOf(out, id.String(), a)
	r.State, r.Error = ledger.StateRefused, reconcile.Ptr(why.Error())
	w.log.Warn("a repair was refused", "target", a.Target, "action", a.Action.String(), "err", why)
	if w.carries() {
		rec := ledger.Repair{RepairOutcome: r, PassID: w.doc.PassID, Actor: w.doc.Actor, Host: w.doc.Host, Reason: w.doc.Reason, IndexUUID: a.IndexUUID}
		for _, t := range w.found.targets {
			if t.Location.String() == a.URI {
				rec.Where = ledger.TargetOf(t)
				rec.Store = t.Store
			}
		}
		if rec.Where.URI != "" {
			if err := w.ledger.Note(ctx, rec); err != nil {
				return fmt.Errorf("record a refused repair of %s: %w", a.Target, err)
			}
		}
	}
	out.Repairs = append(out.Repairs, r)
	w.codes = append(w.codes, reconcile.ExitRefused)
	if t := resultAt(out, a.URI); t != nil && (t.State == reconcile.StateDiverged || t.State == reconcile.StateClean) {
		moveState(out, t, reconcile.StateRefused, &why.Reason)
	}
	return nil
}
