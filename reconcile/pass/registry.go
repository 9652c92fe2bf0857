package pass

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// rowSettle is how long a row over nothing is given to go as well: a store is
// removed before its row.
const rowSettle = 2 * time.Second

// settleAbsent says of the targets that nothing is there of whether the registry
// still names them: then it is a row without a store, else there is no target.
func (p *engine) settleAbsent(ctx context.Context) error {
	if len(p.absent) == 0 {
		return nil
	}
	targets := make([]reconcile.Target, len(p.absent))
	for i, l := range p.absent {
		targets[i] = l.target
	}
	words, why := p.registered(ctx, targets)
	empty := p.emptied(targets)
	for i, l := range p.absent {
		l.facts = reconcile.Facts{Settled: true, State: reconcile.StateIncomplete, Reason: why}
		if why == "" && words[i] == "" {
			p.opts.Logger.Info("target is gone, and its row of the registry as well", "target", l.target.Name)
			continue
		}
		if why == "" {
			l.facts.State, l.facts.Reason = reconcile.StateDiverged, reconcile.RegistryNoStore
			if t := l.target; t.Registry == reconcile.RegistryURIDiffers {
				l.facts.Reason = *registryReason(t) + ", and nothing is here"
			} else {
				l.result.Registry = reconcile.Ptr(reconcile.RegistryNoStore)
				if empty[registryOf(t)] {
					l.facts.Reason = reconcile.ReasonEverythingMissing
				}
			}
		}
		if err := p.finish(ctx, l, nil); err != nil {
			return err
		}
	}
	return nil
}

// fewestStores is how many stores a registry names at least before their absence
// together says more about the root than about them.
const fewestStores = 3

// registryID is one registry.
type registryID struct {
	root objstore.Location
	kind string
}

func registryOf(t reconcile.Target) registryID { return registryID{t.Root, t.Kind} }

// emptied are the registries that name stores of which nothing is there of any.
func (p *engine) emptied(absent []reconcile.Target) map[registryID]bool {
	n := map[registryID]int{}
	for _, t := range absent {
		n[registryOf(t)]++
	}
	out := map[registryID]bool{}
	for _, t := range absent {
		id := registryOf(t)
		if n[id] < fewestStores || n[id] != t.Rows || out[id] {
			continue
		}
		out[id] = true
		p.opts.Logger.Warn("none of the stores that the registry names is there: the root is likelier wrong than the registry", "root", id.root.String(), "kind", id.kind, "stores", t.Rows)
	}
	return out
}

// registered asks the registries again, a little later. why is not empty when the
// question stays open.
func (p *engine) registered(ctx context.Context, targets []reconcile.Target) (words []string, why string) {
	if p.opts.Registered == nil {
		return nil, reconcile.ReasonRegistryUnread
	}
	if p.opts.Clock.Sleep(ctx, rowSettle) != nil {
		return nil, reasonInterrupted
	}
	words, err := p.opts.Registered(ctx, targets)
	switch {
	case ctx.Err() != nil:
		return nil, reasonInterrupted
	case err != nil:
		p.opts.Logger.Warn("cannot read the registry again", "err", err)
		if errors.Is(err, objstore.ErrThrottled) {
			return nil, reconcile.ReasonThrottled
		}
		return nil, reconcile.ReasonRegistryUnread
	}
	return words, ""
}

// nothingThere reports whether nothing at all is there of a dataset: neither an object,
// nor, of one that a user named, the bucket or folder to look for it in.
func nothingThere(t reconcile.Target, f reconcile.Facts) bool {
	noRoot := f.Settled && f.State == reconcile.StateFailed && f.Reason == reconcile.ReasonNoSuchBucket
	return f.Absent || noRoot && !t.Listed && !t.Row && t.Kind != kindBlobs
}

// wasThere reports whether an earlier pass read the dataset: then its absence is damage,
// and not a name that was mistyped.
func (p *engine) wasThere(ctx context.Context, t reconcile.Target) (bool, error) {
	if !p.remembers() {
		return false, nil
	}
	highest, err := p.opts.Recall.Memory.HighestVersion(ctx, t.Location.Canonical())
	if err != nil {
		return false, fmt.Errorf("%w: highest version of %s: %w", errMemory, t.Name, err)
	}
	return highest != nil, nil
}

// leaveOut takes out of the pass what is no target.
func (p *engine) leaveOut(t reconcile.Target, f reconcile.Facts) {
	if t.Listed {
		p.opts.Logger.Info("an empty folder is no dataset", "target", t.Name, "uri", t.Location.String())
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Nowhere = append(p.out.Nowhere, Nowhere{Target: t, NoRoot: !f.Absent})
}

// registryReason is the reason of a target that the registry alone speaks against.
func registryReason(t reconcile.Target) *string {
	switch t.Registry {
	case reconcile.RegistryUnregistered:
		return reconcile.Ptr(reconcile.RegistryUnregistered)
	case reconcile.RegistryURIDiffers:
		return reconcile.Ptr("the registry names " + t.RegistryURI)
	}
	if t.RegistryUnread {
		return reconcile.Ptr(reconcile.ReasonRegistryUnread)
	}
	return nil
}

// registryBlocks are what the registry forbids of a target.
func (p *engine) registryBlocks(t reconcile.Target) []string {
	switch {
	case t.Registry == reconcile.RegistryURIDiffers:
		return []string{reconcile.BlockedOutsideRoot} // engines may hold another copy for the table
	case t.RegistryUnread:
		return []string{reconcile.BlockedIncompleteLook}
	case (t.NoRow || t.Registry == reconcile.RegistryUnregistered) && !p.opts.Policy.NamedTarget:
		return []string{reconcile.BlockedHalfDeleted} // it is being made or removed, or a left-over
	}
	return nil
}

// stillRegistered is nil unless a registry row named the target and does so no
// more, or cannot be read: a store whose row is gone is being removed.
func (a *applier) stillRegistered(ctx context.Context, t reconcile.Target) error {
	if !t.Row {
		return nil
	}
	if a.opts.Registered == nil {
		return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: "the registry cannot be read again"}
	}
	words, err := a.opts.Registered(ctx, []reconcile.Target{t})
	switch {
	case err != nil:
		a.opts.Logger.Warn("cannot read the registry again", "target", t.Name, "err", err)
		return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: "the registry cannot be read just before the commit: " + err.Error()}
	case words[0] == "":
		return &reconcile.Refusal{Reason: reconcile.BlockedHalfDeleted, Detail: "it has no row in the registry: it is being removed, or was never registered"}
	case words[0] != reconcile.RegistryOK:
		return &reconcile.Refusal{Reason: reconcile.BlockedOutsideRoot, Detail: "the registry names another place"}
	}
	return nil
}
