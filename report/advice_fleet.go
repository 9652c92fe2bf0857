package report

import "github.com/rocketkeep/reconcile/reconcile"

// forFleet is the advice for damage that the fleet's registries keep from being
// repaired; ok is false for any other.
func (a adviser) forFleet(s subject) (_ advice, ok bool) {
	if s.blocked && s.stateReason == reconcile.ReasonRegistryUnread {
		return advice{text: "Its registry could not be read, so nothing of it is dropped: it may be being removed. Bring the registry back, or say discover: list, which asks none. Then check again.", commands: a.check(s)}, true
	}
	if s.withoutRow {
		return advice{text: "It has no row in the registry: it is being made or removed, or it is a left-over, so that nothing of it is dropped on its own account. Register it, or repair it by name:",
			commands: []string{a.command.line("repair", s)}}, true
	}
	return advice{}, false
}
