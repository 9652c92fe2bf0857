package tables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Undo is what is known of a drop that shall be taken back.
type Undo struct {
	// Manifest is the one that the drop was made from, Committed the version that it
	// made.
	Manifest  []byte
	Committed uint64
	// Messages are the dropped fragments as they stood in it, by id.
	Messages map[uint64][]byte
}

// PrepareUndo proves that dropped fragments can be put back and builds the commit:
// every file of theirs is there again, with its recorded size and a valid footer, and
// the table was neither overwritten nor restored since, so that ids and columns mean
// what they meant. It reads only; what it refuses is a *reconcile.Refusal.
//
// Effect().Action is ActionRestore, and its Messages are empty: nothing is dropped.
func (r *Repairer) PrepareUndo(ctx context.Context, u Undo, p reconcile.Preparation) (reconcile.Commit, error) {
	s, err := r.store(ctx)
	if err != nil {
		return nil, err
	}
	t := New(r.target, r.writers, r.opts.Options)
	facts, err := t.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.allowed(ctx, t, facts, reconcile.PlanAction{ReadVersion: u.Committed}, p); err != nil {
		return nil, err
	}
	old, err := lance.DecodeManifest(u.Manifest)
	if err != nil {
		return nil, fmt.Errorf("manifest of the record: %w", err)
	}
	if err := t.sameTableSince(ctx, u.Committed); err != nil {
		return nil, err
	}
	if err := t.filesAreBack(ctx, old, u.Messages); err != nil {
		return nil, err
	}
	var intact []string
	for x, err := range old.Indices() {
		if err != nil {
			return nil, fmt.Errorf("manifest of the record: %w", err)
		}
		intact = append(intact, x.UUID)
	}
	info := lance.CommitInfo{UUID: p.TransactionUUID, Naming: t.versions.Naming, Now: r.opts.Now().UTC(), Properties: map[string]string{lance.RepairIDProperty: p.RepairID}}
	c := &commit{repairer: r, store: s, table: t}
	ids := slices.Sorted(maps.Keys(u.Messages))
	raw := make([][]byte, len(ids))
	for i, id := range ids {
		raw[i] = u.Messages[id]
	}
	if c.proposal, err = t.views[0].manifest.ProposeAddFragments(raw, intact, info); err != nil {
		return nil, asRefusal(err)
	}
	c.effect = c.base(reconcile.ActionRestore, info)
	for _, id := range ids {
		c.effect.Fragments = append(c.effect.Fragments, reconcile.RepairFragment{ID: id, MissingFiles: []string{}})
	}
	return c, c.stillThere(ctx)
}

// sameTableSince reads what every version since the drop did. A version that is not
// there any more may have done anything.
func (t *Table) sameTableSince(ctx context.Context, committed uint64) error {
	next := t.version
	for _, e := range t.versions.Entries { // the newest first
		if e.Version <= committed {
			break
		}
		if e.Version != next {
			break
		}
		next--
		m, err := lance.ReadManifest(ctx, t.main, e)
		if err != nil {
			return err
		}
		op, ok, err := m.InlineTransaction()
		if err != nil || !ok {
			return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: fmt.Sprintf("version %d does not say what it did", e.Version)}
		}
		switch op.Operation {
		case lance.OpAppend, lance.OpDelete, lance.OpCreateIndex, lance.OpRewrite, lance.OpReserveFragments, lance.OpUpdate, lance.OpUpdateConfig, lance.OpUpdateMemWALState:
		default:
			return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: fmt.Sprintf("version %d is a %v, after which fragments may mean other rows", e.Version, op.Operation)}
		}
	}
	if next > committed {
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: fmt.Sprintf("version %d is not there any more, so that nobody can tell what was done since", next)}
	}
	return nil
}

// filesAreBack looks at every file of the fragments, inside too.
func (t *Table) filesAreBack(ctx context.Context, old *lance.Manifest, fragments map[uint64][]byte) error {
	before := New(t.target, t.stores, t.opts)
	before.main, before.version = t.main, old.Version
	v := &view{scopes: []string{scopeLatest}, store: t.main, manifest: old}
	before.views = []*view{v}
	seen := map[uint64]bool{}
	for ref, err := range before.viewReferences(ctx, v) {
		if err != nil {
			return err
		}
		if _, ours := fragments[ref.FragmentID]; !ref.HasFragment || !ours || ref.Harmless {
			continue
		}
		seen[ref.FragmentID] = true
		if err := before.isBack(ctx, ref); err != nil {
			return err
		}
	}
	for id := range fragments {
		if !seen[id] {
			return fmt.Errorf("manifest of the record names no file of fragment %d", id)
		}
	}
	return nil
}

func (t *Table) isBack(ctx context.Context, ref reconcile.Reference) error {
	not := func(why string) error {
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: ref.Path + " " + why}
	}
	if ref.Location == (objstore.Location{}) {
		return not("does not resolve")
	}
	r, err := t.stores.Reader(ctx, ref.Base)
	if err != nil {
		return err
	}
	at, err := r.Restat(ctx, ref.Location)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return not("is not there")
	case err != nil:
		return err
	case ref.Size > 0 && at.Size != ref.Size:
		return not(fmt.Sprintf("has %d bytes, recorded are %d", at.Size, ref.Size))
	}
	verdict, reason, err := t.Inspect(ctx, ref, at, reconcile.DepthFooter)
	if err != nil {
		return err
	}
	if verdict != reconcile.Present {
		return not("is " + verdict.String() + " " + reason)
	}
	return nil
}
