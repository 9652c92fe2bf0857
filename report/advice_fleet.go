package report

import "github.com/rocketkeep/reconcile/reconcile"

// forFleet is the advice for damage that the fleet's registries keep from being
// repaired; ok is false for any other.
func (a adviser) forFleet(s subject) (_ advice, ok bool) {
	if s.blocked && s.stateReason == reconcile.ReasonRegistryUnread {
		return advice{text: "Its registry could not be read, so nothing of it is dropped: it may be being removed. Bring the registry back, or say discover: list, which asks none. Then check again.", commands: a.check(s)}, true
	}
	if (reconcile.Target{Name: s.target}).IsRegistry() && (s.role == reconcile.RoleData || s.role == reconcile.RoleDeletion) && goneForGood(s.verdict) && !s.everything {
		return a.forLostRegistry(s), true
	}
	if s.withoutRow {
		return advice{text: "It has no row in the registry: it is being made or removed, or it is a left-over, so that nothing of it is dropped on its own account. Register it, or repair it by name:",
			commands: []string{a.command.line("repair", s)}}, true
	}
	return advice{}, false
}

// goneForGood: no copy of the object is known of.
func goneForGood(v reconcile.Verdict) bool {
	return v == reconcile.Missing || v == reconcile.Lost || v == reconcile.Unreadable
}

func (a adviser) forLostRegistry(s subject) advice {
	var extra []string
	if s.role == reconcile.RoleDeletion {
		extra = append(extra, "--deletion-files=drop_fragment")
	}
	return advice{text: "It is part of a registry, and its rows are stores: bring the object back from a bucket version or a backup, or have the stores registered again. Nothing of a registry is dropped on its own account; the last resort gives its rows up:",
		commands: []string{a.command.line("repair", s, extra...)}}
}
