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

// forOverdue is the advice for what budgets never came to.
func (a adviser) forOverdue(s subject) advice {
	text := "Nobody looked at it"
	if s.others > 0 {
		text = "Nobody looked at them"
	}
	if s.since != "" {
		text += " since " + s.since
	}
	text += ": the budget is too small for budget.full_cycle. Raise budget.duration or budget.requests, or run more often. "
	if s.others > 0 {
		return advice{text: text + "A check looks at everything that it is given, without a budget."}
	}
	return advice{text: text + "A check has no budget:", commands: a.check(s)}
}

// forEmptyRoot is the advice for a registry of whose stores none is there.
func (a adviser) forEmptyRoot(s subject) advice {
	text := "None of the stores that the registry names is there: then the root is likelier wrong than the registry. Compare the store's uri with the places that the rows name, and remove no row before."
	if s.others > 0 {
		return advice{text: text}
	}
	return advice{text: text, commands: a.check(s)}
}
