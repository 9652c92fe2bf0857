package report

import (
	"fmt"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// outcome is one sentence: what the whole pass amounts to, and its exit code.
func (t *texter) outcome() {
	word, color, rest := t.verdictOfPass()
	exit := fmt.Sprintf("exit %d", t.pass.Exit.Code)
	if t.pass.Exit.Name != "" {
		exit += ", " + printable(t.pass.Exit.Name)
	}
	// The exit stands in front, so that the first line holds it however long the rest is.
	lines := wrap(fmt.Sprintf("%s (%s): %s.", word, exit, rest), "", "  ", t.opts.Width)
	lines[0] = strings.Replace(lines[0], word, t.paint(bold+color, word), 1)
	for _, l := range lines {
		t.line(l)
	}
}

func (t *texter) verdictOfPass() (word, color, rest string) {
	total := t.pass.Totals
	all := count(total.Targets, "target")
	damaged, open := t.damagedAndOpen()
	switch t.pass.Exit.Code {
	case reconcile.ExitClean:
		if t.pass.Exit.Name == "repaired" {
			return "Repaired", green, fmt.Sprintf("%s of %s repaired and verified", number(total.TargetsByState[reconcile.StateRepaired]), all) + t.back()
		}
		return "Clean", green, t.cleanText(all, damaged)
	case reconcile.ExitDivergence:
		rest = fmt.Sprintf("%s of %s, %s", number(damaged), all, count(findingCount(t.pass), "finding"))
		if total.RowsAtRisk > 0 {
			rest += fmt.Sprintf(", %s at risk", count(total.RowsAtRisk, "row"))
		}
		return "Damaged", red, rest + t.back()
	case reconcile.ExitIncomplete:
		if total.Targets == 0 {
			return "Incomplete", yellow, "no target could be looked at; the log says why"
		}
		rest = fmt.Sprintf("%s of %s could not be judged", number(open), all)
		if damaged > 0 {
			rest += fmt.Sprintf(", %s damaged", number(damaged))
		}
		return "Incomplete", yellow, rest
	case reconcile.ExitRefused:
		return "Refused", red, "a repair was due and an interlock refused it"
	case reconcile.ExitCommitFailed:
		return "Commit failed", red, "a commit did not land, or its outcome is unknown or not recorded"
	case reconcile.ExitLocked:
		return "Locked", yellow, "another pass holds every target"
	case reconcile.ExitInterrupted, reconcile.ExitTerminated:
		return "Interrupted", yellow, "what follows was found up to then"
	case reconcile.ExitUsage:
		return "Not run", red, "the command line, configuration or plan is wrong"
	}
	if total.Targets == 0 {
		return "Failed", red, "there was nothing to check; the log says why"
	}
	return "Failed", red, "the pass could not do its work; the log says why"
}

// back says how many objects were brought back; empty when none were.
func (t *texter) back() string {
	n, _ := broughtBack(t.pass)
	if n == 0 {
		return ""
	}
	return ", " + count(n, "object") + " brought back"
}

// cleanText does not claim more than was seen: a clean pass may hold findings that
// break nothing or are acknowledged.
func (t *texter) cleanText(all string, damaged int64) string {
	n := findingCount(t.pass)
	switch {
	case damaged > 0:
		return fmt.Sprintf("nothing new; what is known of %s of %s is acknowledged", number(damaged), all)
	case n > 0:
		return fmt.Sprintf("nothing that %s need is missing; %s without effect", all, count(n, "finding"))
	case t.pass.Totals.References == 0:
		return fmt.Sprintf("%s, and their metadata names no object", all)
	}
	return fmt.Sprintf("all %s of %s are there", count(t.pass.Totals.References, "reference"), all)
}

// damagedAndOpen counts targets that are known to be wrong and targets that could
// not be judged.
func (t *texter) damagedAndOpen() (damaged, open int64) {
	for s, n := range t.pass.Totals.TargetsByState {
		switch s {
		case reconcile.StateClean, reconcile.StateRepaired:
		case reconcile.StateDiverged, reconcile.StateRefused, reconcile.StateRolledBack:
			damaged += n
		default:
			open += n
		}
	}
	for _, r := range t.pass.Targets {
		if offRegistry(r) && whole(r.State) {
			damaged++
		}
	}
	return damaged, open
}

// whole reports whether a state says that nothing of the target's own is wrong.
func whole(s reconcile.State) bool {
	return s == reconcile.StateClean || s == reconcile.StateRepaired
}

// offRegistry reports whether registry and store disagree about a target, which is
// told whatever its own state.
func offRegistry(r reconcile.TargetResult) bool {
	return r.Registry != nil && *r.Registry != reconcile.RegistryOK
}

// findingCount is the number of findings of the pass, also when the document holds
// only the first of them.
func findingCount(p reconcile.Pass) int64 {
	n := int64(len(p.Findings))
	if !p.FindingsTruncated {
		return n
	}
	var sum int64
	for _, r := range p.Targets {
		sum += r.Findings
	}
	return max(n, sum)
}

// targetTable lists the targets that are not clean; the clean ones are counted.
func (t *texter) targetTable() {
	var rows []reconcile.TargetResult
	clean := t.pass.Totals.TargetsByState[reconcile.StateClean]
	for _, r := range t.pass.Targets {
		if r.State == reconcile.StateClean && offRegistry(r) {
			clean--
		}
		if r.State != reconcile.StateClean || offRegistry(r) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	left := 0
	if !t.opts.Verbose && len(rows) > maxTargets {
		left, rows = len(rows)-maxTargets, rows[:maxTargets]
	}
	t.line("")
	t.printTable(rows)
	if left > 0 {
		t.line(fmt.Sprintf("… and %s more that are not clean (--output json lists all)", number(int64(left))))
	}
	if clean == 1 {
		t.line("1 target is clean.")
	} else if clean > 1 {
		t.line(fmt.Sprintf("%s targets are clean.", number(clean)))
	}
}

// stateWord is a target's state, and what the registry says against it.
func stateWord(r reconcile.TargetResult) string {
	if !offRegistry(r) || r.Reason != nil && *r.Reason == *r.Registry && !whole(r.State) {
		return r.State.String()
	}
	return r.State.String() + ", " + printable(*r.Registry)
}

func (t *texter) printTable(rows []reconcile.TargetResult) {
	head := []string{"TARGET", "STATE", "REFERENCES", "FINDINGS", "ROWS AT RISK"}
	cells := [][]string{head}
	for _, r := range rows {
		cells = append(cells, []string{t.name(r.Store, r.Target), stateWord(r), number(r.References), number(r.Findings), numberOr(r.RowsAtRisk, "unknown")})
	}
	widths := make([]int, len(head))
	for _, c := range cells {
		for i, s := range c {
			widths[i] = max(widths[i], runes(s))
		}
	}
	const gap = "  "
	rest := 0
	for _, w := range widths[1:] {
		rest += len(gap) + w
	}
	widths[0] = min(widths[0], max(t.opts.Width-rest, len(head[0])))
	for i, c := range cells {
		var b strings.Builder
		b.WriteString(padRight(shorten(c[0], widths[0]), widths[0]))
		state := padRight(c[1], widths[1])
		if i > 0 {
			color := stateColor(rows[i-1].State)
			if offRegistry(rows[i-1]) && color == green {
				color = red
			}
			state = t.paint(color, state)
		}
		b.WriteString(gap + state)
		for j := 2; j < len(c); j++ {
			b.WriteString(gap + padLeft(c[j], widths[j]))
		}
		t.line(b.String())
	}
}
