package tables

import (
	"slices"

	"github.com/rocketkeep/reconcile/reconcile"
)

// spareRegistry takes every drop out of the plan for a registry that nobody named: its
// rows are stores that live.
func (p *proposal) spareRegistry() {
	if !p.t.target.IsRegistry() || p.policy.NamedTarget {
		return
	}
	for i := range p.findings {
		if f := &p.findings[i]; f.ProposedAction.Destructive() {
			f.ProposedAction = reconcile.ActionNone
			// That all is gone says something whatever is proposed.
			f.BlockedBy = slices.DeleteFunc(f.BlockedBy, func(b string) bool { return b != reconcile.BlockedEverythingMissing })
		}
	}
	for _, d := range p.fragments {
		d.drop = false
	}
}
