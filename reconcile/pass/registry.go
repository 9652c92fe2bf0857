package pass

import (
	"context"
	"time"

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
			}
		}
		if err := p.finish(ctx, l, nil); err != nil {
			return err
		}
	}
	return nil
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
		return nil, reconcile.ReasonRegistryUnread
	}
	return words, ""
}

// registryReason is the reason of a target that the registry alone speaks against.
func registryReason(t reconcile.Target) *string {
	switch t.Registry {
	case reconcile.RegistryUnregistered:
		return reconcile.Ptr(reconcile.RegistryUnregistered)
	case reconcile.RegistryURIDiffers:
		return reconcile.Ptr("the registry names " + t.RegistryURI)
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
		return &reconcile.Refusal{Reason: reconcile.BlockedHalfDeleted, Detail: "the registry has no row of it any more: the store is being removed"}
	case words[0] != reconcile.RegistryOK:
		return &reconcile.Refusal{Reason: reconcile.BlockedOutsideRoot, Detail: "the registry names another place"}
	}
	return nil
}
