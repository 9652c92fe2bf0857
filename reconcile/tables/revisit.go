package tables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Revisit implements reconcile.Source: it lists the versions again and, where
// anything changed, reads the manifests in scope again.
func (t *Table) Revisit(ctx context.Context, refs []reconcile.Reference) (reconcile.Revisit, error) {
	again := New(t.target, t.stores, t.opts)
	facts, err := again.Open(ctx)
	if err != nil {
		return reconcile.Revisit{}, err
	}
	if facts.Settled || facts.Absent {
		err := fmt.Errorf("second look at the metadata of %s: %s %s", t.target.Name, facts.State, facts.Reason)
		if facts.State == reconcile.StateIncomplete {
			err = &reconcile.Judged{Verdict: reconcile.Undecided, Reason: facts.Reason, Err: err}
		}
		return reconcile.Revisit{}, err
	}
	rev := reconcile.Revisit{Version: again.version, Named: make([]bool, len(refs)), RolledBack: again.version < t.version || facts.State == reconcile.StateRolledBack, Metadata: facts.Findings}
	if t.sameViews(again) && t.sameShards(again) {
		for i := range rev.Named {
			rev.Named[i] = true
		}
		return rev, nil
	}
	at := make(map[[16]byte]int, len(refs))
	for i, ref := range refs {
		at[key(ref)] = i
	}
	for ref, err := range again.References(ctx) {
		if err != nil {
			return reconcile.Revisit{}, err
		}
		if i, ok := at[key(ref)]; ok {
			rev.Named[i] = true
		}
	}
	return rev, nil
}

// sameViews reports whether the scope is made of the very same manifest objects.
func (t *Table) sameViews(other *Table) bool {
	if len(t.views) != len(other.views) {
		return false
	}
	for i, a := range t.views {
		b := other.views[i]
		if a.store.root != b.store.root || a.entry != b.entry || a.entry.ETag == "" {
			return false
		}
	}
	return true
}

// olderReads is how many further manifests a damaged table's age check may read.
const olderReads = 2

// Older implements reconcile.Source. Only the store's clock counts: a manifest's
// Last-Modified against the Date of the store's newest answer. A manifest whose
// age the store does not tell proves nothing.
func (t *Table) Older(ctx context.Context, refs []reconcile.Reference, minAge time.Duration) ([]bool, error) {
	out := make([]bool, len(refs))
	if minAge <= 0 {
		for i := range out {
			out[i] = true
		}
		return out, nil
	}
	now := t.main.ServerNow()
	if now.IsZero() {
		return out, nil
	}
	oldTime := func(at time.Time) bool { return !at.IsZero() && now.Sub(at) >= minAge }
	old := func(e lance.VersionEntry) bool { return oldTime(e.ModTime) }
	missing := map[[16]byte][]int{}
	for i, ref := range refs {
		if ref.Role != reconcile.RoleWALGeneration && ref.Role != reconcile.RoleWALManifest {
			missing[key(ref)] = append(missing[key(ref)], i)
		}
	}
	if err := t.olderWAL(ctx, refs, oldTime, out); err != nil {
		return out, err
	}
	mark := func(v *view) error {
		for ref, err := range t.viewReferences(ctx, v) {
			if err != nil {
				return err
			}
			for _, i := range missing[key(ref)] {
				out[i] = true
			}
			delete(missing, key(ref))
		}
		return nil
	}
	// Views already in scope cost no further read when their manifest is at hand;
	// a lost manifest is as old as the tag that names it, which no clock tells.
	reads := 0
	for _, v := range t.olderViews() {
		if len(missing) == 0 {
			break
		}
		if !old(v.entry) {
			continue
		}
		if v.manifest == nil {
			if reads == olderReads {
				break
			}
			reads++
		}
		if err := mark(v); err != nil {
			var corrupt *lance.CorruptError
			if errors.As(err, &corrupt) {
				continue
			}
			return out, err
		}
	}
	return out, nil
}

// olderViews are the manifests that may show an object to be old, the likeliest
// first: those in scope, then main's history from the newest down.
func (t *Table) olderViews() []*view {
	views := make([]*view, 0, len(t.views)+len(t.versions.Entries))
	for _, v := range t.views {
		if v.lost == nil {
			views = append(views, v)
		}
	}
	for _, e := range t.versions.Entries[1:] {
		views = append(views, &view{store: t.main, entry: e})
	}
	return views
}
