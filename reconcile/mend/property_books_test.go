package mend_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// reader reads the records of the model.
type reader struct{ c *chaos }

func (r reader) records() []refs.Record {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	out := []refs.Record{{Key: "~healthy", Size: 7}}
	for _, o := range r.c.all() {
		if !o.blob {
			continue
		}
		rec := refs.Record{Key: o.name, Size: refs.Unknown}
		if o.size {
			rec.Size = int64(len(o.good))
		}
		if o.sum {
			rec.Checksum = sum(o.good)
		}
		out = append(out, rec)
	}
	return out
}

func (r reader) Records(context.Context, string) iter.Seq2[refs.Record, error] {
	return func(yield func(refs.Record, error) bool) {
		for _, rec := range r.records() {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

func (r reader) Confirm(_ context.Context, keys []string) (map[string]refs.Record, error) {
	out := map[string]refs.Record{}
	for _, rec := range r.records() {
		if slices.Contains(keys, rec.Key) {
			out[rec.Key] = rec
		}
	}
	return out, nil
}

func (reader) NamedSince(context.Context) (time.Time, error) { return time.Unix(1, 0), nil }
func (reader) Resumable() bool                               { return false }
func (reader) Close() error                                  { return nil }

// noted is a ledger that keeps what repairs say.
type noted struct {
	ledger.Repairs // panics on what is not used
	ledger.Locks
	ledger.Cooldowns
	ledger.Refetches
	mu   sync.Mutex
	rows map[string]*ledger.Repair
}

func (n *noted) Note(_ context.Context, r ledger.Repair) error {
	if r.State != ledger.StateRefused && r.State != ledger.StateFailed {
		return fmt.Errorf("noted as %s", r.State)
	}
	return nil
}

func (n *noted) Intend(_ context.Context, _ ledger.Lease, r ledger.Repair) error {
	if err := r.CheckIntended(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.rows {
		if o.State == ledger.StateUncertain && o.Where.URI == r.Where.URI {
			return ledger.ErrUnsettled
		}
	}
	r.State = ledger.StateIntended
	n.rows[r.RepairID] = &r
	return nil
}

func (n *noted) Settle(_ context.Context, _ ledger.Lease, id string, o ledger.Outcome) error {
	if err := o.CheckOutcome(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rows[id].State = o.State
	return nil
}

func (n *noted) Verified(context.Context, ledger.Lease, string) error { return nil }
func (n *noted) Unsettled(_ context.Context, uri string) ([]ledger.Repair, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []ledger.Repair
	for _, r := range n.rows {
		if (uri == "" || r.Where.URI == uri) && (r.State == ledger.StateIntended || r.State == ledger.StateUncertain) {
			out = append(out, *r)
		}
	}
	return out, nil
}

func (n *noted) Acquire(context.Context, string, string, time.Duration) (ledger.Lease, error) {
	return ledger.Lease{Epoch: 1}, nil
}
func (n *noted) Renew(_ context.Context, l ledger.Lease, _ time.Duration) (ledger.Lease, error) {
	return l, nil
}
func (n *noted) Release(context.Context, ledger.Lease) error { return nil }
func (n *noted) RefetchFailed(context.Context, ledger.CooldownPolicy, ledger.RefetchFailure) (ledger.Refetch, error) {
	return ledger.Refetch{}, nil
}
func (n *noted) RefetchDone(context.Context, string) error    { return nil }
func (n *noted) PutProbe(context.Context, ledger.Probe) error { return nil }
func (n *noted) GetProbe(context.Context, string, string, time.Duration) (*ledger.Probe, error) {
	return nil, nil
}
