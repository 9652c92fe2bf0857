package tables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/lance/datafile"
	"github.com/rocketkeep/reconcile/reconcile"
)

// reasonDeletedRows: nothing reads the sidecar any more.
const reasonDeletedRows = "only_deleted_rows_left"

// maxKeptSidecars bounds what is kept of a version's sidecars: several walks over one
// look ask for them, and each walk reads the blob columns anew otherwise.
const maxKeptSidecars = 50_000

// sidecarReferences streams the objects beside data files that hold blob values. Only
// the descriptors in the columns name them.
func (t *Table) sidecarReferences(ctx context.Context, m *lance.Manifest, v *view) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		if v.sidecars != nil {
			for _, ref := range v.sidecars {
				if !yield(ref, nil) {
					return
				}
			}
			return
		}
		kept := []reconcile.Reference{}
		for s, err := range m.Sidecars(ctx, v.store, lance.ScanOptions{Bases: t.openBase}) {
			var ref reconcile.Reference
			var unread *lance.SidecarError
			switch {
			case err == nil:
				ref = t.sidecarReference(m, v, s)
			case ctx.Err() != nil:
				yield(reconcile.Reference{}, context.Cause(ctx))
				return
			case errors.As(err, &unread):
				unanswered := false
				if ref, unanswered = t.sidecarsUnknown(v, unread); !unanswered {
					continue
				}
			default:
				yield(reconcile.Reference{}, err)
				return
			}
			if kept = append(kept, ref); len(kept) > maxKeptSidecars {
				kept = nil
			}
			if !yield(ref, nil) {
				return
			}
		}
		v.sidecars = kept
	}
}

// openBase gives package lance the store of a base path.
func (t *Table) openBase(ctx context.Context, b lance.BasePath) (lance.Store, error) {
	at, err := t.stores.Locate(b.Path)
	if err != nil {
		return nil, err
	}
	at.Key = strings.TrimRight(at.Key, "/")
	r, err := t.stores.Reader(ctx, at)
	if err != nil {
		return nil, err
	}
	return newRooted(r, at), nil
}

func (t *Table) sidecarReference(m *lance.Manifest, v *view, s lance.Sidecar) reconcile.Reference {
	ref := reconcile.Reference{Role: reconcile.RoleBlobSidecar, Path: s.Path, Base: v.store.root, Version: v.entry.Version,
		FragmentID: s.FragmentID, HasFragment: true, MinSize: s.MinSize, Size: s.Size, PhysicalRows: s.Rows, LiveRows: s.LiveRows}
	if s.Harmless() {
		ref.Harmless, ref.Reason = true, reasonDeletedRows
	}
	if s.HasBase {
		at, _ := t.base(m, s.BaseID)
		if at.err != nil {
			ref.Base, ref.Reason = objstore.Location{}, reconcile.ReasonUnknownBase
			return ref
		}
		ref.Base = at.loc
	}
	ref.Location = ref.Base.Join(s.Path)
	return ref
}

// sidecarsUnknown notes that the sidecars of a data file cannot be named. Where the
// file itself is damaged its own finding moves the state; where there was no answer
// (unanswered) the reference stays open, so that the look is not complete.
func (t *Table) sidecarsUnknown(v *view, e *lance.SidecarError) (ref reconcile.Reference, unanswered bool) {
	var corrupt *datafile.CorruptError
	var corruptMeta *lance.CorruptError
	var unsupported *datafile.UnsupportedError
	t.opts.Logger.Warn("blob sidecars cannot be named", "target", t.target.Name, "file", e.File, "err", e.Err)
	if errors.Is(e, fs.ErrNotExist) || errors.As(e, &corrupt) || errors.As(e, &corruptMeta) || errors.As(e, &unsupported) || errors.Is(e, datafile.ErrLegacy) {
		if t.noSidecars == nil {
			t.noSidecars = map[string]string{}
		}
		t.noSidecars[v.store.root.Join(e.File).String()] = e.Error()
		return ref, false
	}
	_, reason := reconcile.JudgeLook(e.Err)
	return reconcile.Reference{Role: reconcile.RoleBlobSidecar, Path: strings.TrimSuffix(e.File, ".lance") + "/", Base: v.store.root, Version: v.entry.Version,
		PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows, Reason: reason}, true
}

// Unread implements reconcile.Source.
func (t *Table) Unread() []reconcile.NotChecked {
	if len(t.noSidecars) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(t.noSidecars)))
	return []reconcile.NotChecked{{Role: reconcile.RoleBlobSidecar,
		Reason: fmt.Sprintf("the blob columns of %d data files, which name them, could not be read: %s", len(t.noSidecars), t.noSidecars[first])}}
}
