package report

import "github.com/rocketkeep/reconcile/reconcile"

// forState is the advice for a target as such.
func (a adviser) forState(s subject) advice {
	switch s.state {
	case reconcile.StateClean:
		a, _ := a.offRegistry(s)
		return a
	case reconcile.StateDiverged:
		return a.forDiverged(s)
	case reconcile.StateRepaired:
		return advice{text: "Repaired and verified. To see it for yourself:", commands: a.check(s)}
	case reconcile.StateRefused:
		return advice{text: "A repair was due and an interlock refused it: blocked_by names which. A plan says what would be done without it:", commands: a.plan(s)}
	case reconcile.StateUnreadable:
		return a.forUnreadableTarget(s)
	case reconcile.StatePending:
		return advice{text: "Too young to be judged. Check again once it is older than --min-manifest-age (15m unless given).", commands: a.check(s)}
	case reconcile.StateCoolingDown:
		return advice{text: "Put off after repeated failures. A check that names the target does not wait:", commands: a.check(s)}
	case reconcile.StateHalfDeleted:
		if s.reason == reconcile.ReasonNothingThere {
			return advice{text: "It was there before and nothing is left but its folder. If it was meant to go, remove the folder; if not, bring it back from bucket versions or a backup. Nothing is repaired here.",
				commands: a.check(s, a.command.later()...)}
		}
		return advice{text: "Objects and no manifest: a delete that is under way or broke off, or a lost _versions folder. If it was meant to go, finish that with the tool that began it; " +
			"if not, bring _versions back from bucket versions or a backup. Nothing is repaired here.", commands: a.check(s, a.command.later()...)}
	case reconcile.StateRolledBack:
		return a.forRolledBack(s)
	case reconcile.StateLocked:
		return advice{text: "Another pass is at work on it. Check again when that has ended.", commands: a.check(s)}
	case reconcile.StateFailed:
		if s.reason == reconcile.ReasonNoSuchBucket {
			return a.forOpen(s)
		}
		return advice{text: "The work on this target broke off; the log says why.", commands: a.check(s, "--log-level=debug")}
	default:
		if s.reason == reconcile.ReasonOverdue {
			return a.forOverdue(s)
		}
		return a.forOpen(s)
	}
}

func (a adviser) forDiverged(s subject) advice {
	if a, ok := a.offRegistry(s); ok {
		return a
	}
	switch s.reason {
	case reconcile.ReasonEverythingMissing:
		s.everything = true
		return a.forMissing(s)
	}
	return a.propose(s, "", seeRepair)
}

// offRegistry is the advice for a target that registry and store disagree about; ok
// is false for any other.
func (a adviser) offRegistry(s subject) (_ advice, ok bool) {
	switch s.registry {
	case reconcile.RegistryNoStore:
		if s.reason == reconcile.ReasonEverythingMissing {
			return a.forEmptyRoot(s), true
		}
		return advice{text: "The registry has a row for it and the store holds no object of it. If it was deleted on purpose, remove the row; if not, bring the folder back. Then check again.", commands: a.check(s)}, true
	case reconcile.RegistryUnregistered:
		return advice{text: "The store holds it and the registry has no row for it: engines that go by the registry do not see it. Register it, then check again.", commands: a.check(s)}, true
	case reconcile.RegistryURIDiffers:
		return advice{text: "The registry names another place for it: engines may read another copy. Correct the row, then check again.", commands: a.check(s)}, true
	}
	return advice{}, false
}

// forRegistry is the advice for registries that could not be read, and for targets
// that hang on them; ok is false for any other reason.
func (a adviser) forRegistry(s subject) (_ advice, ok bool) {
	switch s.reason {
	case reconcile.ReasonNoRegistry:
		return advice{text: "The configuration finds stores by their registry (discover), and this root has none. Correct the root; or say discover: list. A look at all that lies there:", commands: a.check(s)}, true
	case reconcile.ReasonBadRegistry:
		return advice{text: "The registry is there and cannot be read whole, so the stores that it names are not known. What is wrong with it as a table:", commands: a.check(s)}, true
	case reconcile.ReasonInvalidNames:
		return advice{text: "The registry has rows whose names no store can have; the log shows some. Nothing was looked at on their account. Remove those rows, then check again."}, true
	case reconcile.ReasonRegistryUnread:
		return advice{text: "Nothing is there of it, and the registry could not be read again to see whether it still has a row for it. Check again:", commands: a.check(s, a.command.later()...)}, true
	}
	return advice{}, false
}

func (a adviser) forUnreadableTarget(s subject) advice {
	switch s.reason {
	case reconcile.ReasonUnknownReaderFlags:
		return a.forUnknownFlags(s)
	case reconcile.ReasonMixedNaming:
		return advice{text: "Manifests of two naming schemes stand side by side, so the newest cannot be told. Keep writers away, find out which release wrote last, then look at all:",
			commands: a.check(s, "--versions=all")}
	}
	return advice{text: "The newest manifest cannot be read, so nothing under it was judged, and manifests are never written by a repair. Keep writers away and bring it back from a bucket version or a backup, then check again.",
		commands: a.check(s)}
}

func (a adviser) forRolledBack(s subject) advice {
	text := "The newest version is lower than one that was known: newest manifests were deleted or an old copy was put back. Keep writers away: they would reuse version numbers. " +
		"Bring the manifests back from bucket versions, or look at what is left:"
	cmds := a.check(s, "--versions=all")
	if a.canRepair && s.version != "" {
		text += " If it is meant to be so, the last command accepts it."
		cmds = append(cmds, a.plan(s, "--accept-version="+s.version)...)
	}
	return advice{text: text, commands: cmds}
}

func (a adviser) forUnknownFlags(s subject) advice {
	return advice{text: "The table uses features that this version does not know, so nothing under it was judged. A newer reconcile may know them; with it:", commands: a.check(s)}
}
