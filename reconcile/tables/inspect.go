package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// maxDeletionFile bounds what is fetched of one deletion file. A bitmap of 2^32
// rows has at most 512 MiB; real ones are a few KiB. Larger ones are looked at by
// size only.
const maxDeletionFile = 64 << 20

// Inspect implements reconcile.Source. At DepthHead it is asked about objects of
// another size than recorded and answers whether a valid footer stands at their
// real end. DepthChecksum is no deeper than DepthFooter: Lance records no checksums of
// any file.
func (t *Table) Inspect(ctx context.Context, ref reconcile.Reference, at objstore.Attrs, depth reconcile.Depth) (reconcile.Verdict, string, error) {
	loc := at.Location
	if loc == (objstore.Location{}) {
		loc = ref.Location
	}
	role := ref.Role
	if role == reconcile.RoleWALGeneration {
		role = roleInGeneration(ref.Path)
	}
	switch role {
	case reconcile.RoleData, reconcile.RoleOverlay, reconcile.RoleIndex:
		if ext := path.Ext(ref.Path); role == reconcile.RoleIndex && ext != ".lance" && ext != ".idx" {
			return unmarked(ref, at)
		}
		tail, err := t.fetch(ctx, ref, loc, objstore.Range{Offset: -lance.FooterLen})
		if err != nil {
			return reconcile.Undecided, "", err
		}
		return verdictOf(lance.CheckLanceFooter(tail, at.Size))
	case reconcile.RoleDeletion:
		if at.Size > maxDeletionFile {
			return reconcile.Present, "", nil
		}
		whole, err := t.fetch(ctx, ref, loc, objstore.Range{})
		if err != nil {
			return reconcile.Undecided, "", err
		}
		return verdictOf(lance.CheckDeletionFile(path.Base(ref.Path), whole))
	}
	return unmarked(ref, at)
}

// unmarked is the answer about a format that carries no mark of its own (row id
// sequences, transactions, blob sidecars): at another size than recorded, nothing tells
// whether it is whole.
func unmarked(ref reconcile.Reference, at objstore.Attrs) (reconcile.Verdict, string, error) {
	if ref.Size > 0 && at.Size != ref.Size {
		return reconcile.Undecided, "", errUnmarked
	}
	return reconcile.Present, "", nil
}

var errUnmarked = errors.New("nothing in the file tells where it ends")

// roleInGeneration is what a file of a generation is to that generation's dataset.
func roleInGeneration(name string) reconcile.Role {
	switch dir := path.Dir(name); {
	case path.Base(dir) == "_deletions":
		return reconcile.RoleDeletion
	case path.Base(dir) == "data":
		return reconcile.RoleData
	case path.Base(dir) == "_pk_index", path.Base(path.Dir(dir)) == "_indices":
		return reconcile.RoleIndex
	case path.Base(path.Dir(dir)) == "data" && path.Ext(name) == ".blob":
		return reconcile.RoleBlobSidecar
	}
	return reconcile.RoleTransaction // or a manifest, or an entry of the log
}

const reasonUnknownFormat = "unknown_format"

func verdictOf(err error) (reconcile.Verdict, string, error) {
	var corrupt *lance.CorruptError
	switch {
	case err == nil:
		return reconcile.Present, "", nil
	case errors.As(err, &corrupt):
		return reconcile.Unreadable, reconcile.ReasonBadFooter, nil
	case errors.Is(err, lance.ErrUnknownFormat):
		return reconcile.Undecided, reasonUnknownFormat, err // it may be whole
	}
	return reconcile.Undecided, "", err
}

func (t *Table) fetch(ctx context.Context, ref reconcile.Reference, loc objstore.Location, rg objstore.Range) ([]byte, error) {
	base := ref.Base
	for _, alt := range ref.Alternates {
		if alt.Location == loc {
			base = alt.Base
		}
	}
	r, err := t.stores.Reader(ctx, base)
	if err != nil {
		return nil, err
	}
	body, _, err := r.Get(ctx, loc, rg)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxDeletionFile))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", loc, err)
	}
	return b, nil
}
