package blobs

import (
	"context"
	"errors"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// absentRoot is the answer when the collection's bucket or root folder is not there: the
// place is wrong or away as a whole, and nothing is said about any blob. It is nil for a
// root that is there or of which that is not known; then each blob's own answer counts.
//
// It asks for one key with a GET of a byte: a HEAD has no body, so that an absent bucket
// looks like an absent object, and a listing of a folder reads all of it.
func (c *Collection) absentRoot(ctx context.Context) *reconcile.Facts {
	if c.opts.Nodes {
		return nil // nodes have no root; whether they answer is asked of each
	}
	r, err := c.opts.Stores.Reader(ctx, c.opts.Root)
	if err == nil {
		_, err = r.Probe(ctx, c.opts.Root.Join(rootProbe))
	}
	if !errors.Is(err, objstore.ErrNoSuchBucket) {
		return nil
	}
	c.opts.Logger.Error("the collection's root is absent", "target", c.target.Name, "uri", c.opts.Root.String(), "err", err)
	verdict, reason := reconcile.JudgeLook(err)
	ref := reconcile.Reference{Role: reconcile.RoleBlob, Location: c.opts.Root, Base: c.opts.Root, PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}
	f := reconcile.NewFinding(c.target, ref, time.Time{}) // the engine dates it
	f.Verdict, f.Reason = verdict, &reason
	f.SetEvidence(err)
	return &reconcile.Facts{Settled: true, State: reconcile.StateFailed, Reason: reason, Findings: []reconcile.Finding{f},
		NotChecked: []reconcile.NotChecked{{Role: reconcile.RoleBlob, Reason: "not looked at: " + reason}}}
}

// rootProbe is the key that is asked for; whether there is such a blob does not matter.
const rootProbe = ".reconcile-root"
