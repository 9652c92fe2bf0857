package report

import "github.com/rocketkeep/reconcile/reconcile"

// seeRepair is how advice to make a plan ends.
const seeRepair = "See what a repair would do; nothing but the plan file is written."

// propose is the advice to let a repair do it: lead says what is known, how ends in the
// plan to make. Where the command has just made one, that plan takes its place.
func (a adviser) propose(s subject, lead, how string) advice {
	if a.command.Plan == "" {
		return advice{text: lead + how, commands: a.planAndApply(s)}
	}
	return a.afterPlan(s, lead)
}

// afterPlan is the advice where a plan was just written.
func (a adviser) afterPlan(s subject, lead string) advice {
	switch {
	case s.planned && a.canRepair:
		return advice{text: lead + "The plan that was written holds the step. To carry out all of it:", commands: []string{a.apply()}}
	case s.planned:
		return advice{text: lead + "The plan that was written holds the step.", commands: a.check(s)}
	case s.blocked:
		return advice{text: lead + "The plan that was written holds no step for it: what blocks it stands above. Plan again once that is settled:", commands: a.plan(s)}
	case s.onlyFull:
		return advice{text: lead + "The plan that was written holds no step for it: only --mode=full gives something up.", commands: a.plan(s, "--mode=full")}
	}
	return advice{text: lead + "The plan that was written holds no step for it. Once something has changed:", commands: a.plan(s)}
}

func (a adviser) plan(s subject, extra ...string) []string {
	return []string{a.command.line("plan", s, extra...) + " -o " + ShellQuote(a.command.newPlanFile())}
}

// planAndApply ends in the command that carries the plan out, where that exists.
func (a adviser) planAndApply(s subject) []string {
	cmds := a.plan(s)
	if a.canRepair && !s.blocked {
		cmds = append(cmds, a.apply())
	}
	return cmds
}

// apply is the command that carries out the plan file.
func (a adviser) apply() string {
	return a.command.words("apply", []string{a.command.planFile()})
}

// forBusy: only scheduled passes wait for writers, and waiting is all there is to do.
func (a adviser) forBusy(s subject) advice {
	var extra []string
	if s.mode != "" {
		extra = append(extra, "--mode="+s.mode)
	}
	return advice{text: "A writer has just committed to it, and its repair waits until none has for repair.quiet (2m unless configured). Nothing has to be done: the next pass after that repairs it. Or run one for it then:",
		commands: []string{a.command.words("run", []string{"--target=" + globQuote(s.target)}, extra...)}}
}

// planned reports whether a plan of the pass's mode holds a step for one of the group's
// findings; onlyFull that one of mode full would.
func (g *group) planned(mode string) (planned, onlyFull bool) {
	for _, f := range g.findings {
		if f.ProposedAction == reconcile.ActionNone || len(f.BlockedBy) > 0 {
			continue
		}
		if mode == "full" || mode == "restore" && !f.ProposedAction.Destructive() {
			planned = true
		} else {
			onlyFull = true
		}
	}
	return planned, onlyFull && !planned
}
