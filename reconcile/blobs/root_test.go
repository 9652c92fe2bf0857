package blobs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
)

// answering is a place whose probe has one answer, or whose store does not open.
type answering struct {
	stores
	probe, open error
}

func (a answering) Reader(context.Context, objstore.Location) (objstore.Reader, error) {
	return probed{a.Store, a.probe}, a.open
}

type probed struct {
	objstore.Reader
	err error
}

func (p probed) Probe(context.Context, objstore.Location) (objstore.Attrs, error) {
	return objstore.Attrs{}, p.err
}

// Only an absent root settles the collection; whatever else comes back says nothing of
// the blobs, which are asked for one by one.
func TestOnlyAnAbsentRootSettlesACollection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		probe, open error
		nodes       bool
		want        bool
	}{
		{"no such bucket", objstore.ErrNoSuchBucket, nil, false, true},
		{"a store that cannot be opened for want of its root", nil, objstore.ErrNoSuchBucket, false, true},
		{"no such object", objstore.ErrNotExist, nil, false, false},
		{"a blob of that name", nil, nil, false, false},
		{"403", objstore.ErrDenied, nil, false, false},
		{"a store that cannot be opened", nil, errors.New("no network"), false, false},
		{"nodes have no root", objstore.ErrNoSuchBucket, nil, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := collection(recs(3), func(o *blobs.Options) {
				o.Stores, o.Nodes = answering{stores{memstore.New(memstore.Options{})}, tt.probe, tt.open}, tt.nodes
			})
			facts, err := c.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if facts.Settled != tt.want {
				t.Fatalf("settled %v, want %v: %+v", facts.Settled, tt.want, facts)
			}
			if !tt.want {
				return
			}
			f := facts.Findings[0]
			if facts.State != reconcile.StateFailed || facts.Reason != reconcile.ReasonNoSuchBucket || f.Verdict != reconcile.Undecided || *f.Reason != reconcile.ReasonNoSuchBucket || len(facts.NotChecked) != 1 {
				t.Errorf("facts %+v", facts)
			}
		})
	}
}
