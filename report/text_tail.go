package report

import (
	"fmt"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// repairs lists what was done or planned, one line each; objects that were brought back
// from the same place by the same proof share one.
func (t *texter) repairs() {
	if len(t.pass.Repairs) == 0 {
		return
	}
	t.line("")
	t.line(t.paint(bold, "Repairs"))
	lines := t.mendLines()
	for i, l := range lines {
		if !t.opts.Verbose && i == maxTargets {
			t.line(fmt.Sprintf("  … and %s more (%s)", number(int64(len(lines)-i)), t.listsAll()))
			return
		}
		t.para(l, "  ", "    ")
	}
}

func (t *texter) repairLine(r reconcile.RepairOutcome) string {
	parts := []string{fmt.Sprintf("%s: %s %s", t.name(r.Store, r.Target), r.Action, printable(r.State))}
	if len(r.Files) > 0 {
		parts = append(parts, names(r.Files))
	}
	if len(r.Fragments) > 0 {
		parts = append(parts, count(int64(len(r.Fragments)), "fragment"))
	}
	if r.RowsDropped != nil {
		parts = append(parts, count(*r.RowsDropped, "row")+" dropped")
	}
	if r.BytesRestored != nil {
		parts = append(parts, size(*r.BytesRestored)+" brought back")
	}
	switch {
	case mends(r) && r.Source != nil:
		parts = append(parts, "source "+printable(*r.Source))
	case !mends(r) && r.ReadVersion != nil:
		parts = append(parts, fmt.Sprintf("from version %d", *r.ReadVersion))
	}
	if r.CommittedVersion != nil {
		parts = append(parts, fmt.Sprintf("made version %d", *r.CommittedVersion))
	}
	if r.Proof != nil {
		parts = append(parts, "proven by "+printable(*r.Proof))
	}
	if r.Error != nil {
		parts = append(parts, "error: "+printable(*r.Error))
	}
	return strings.Join(parts, ", ")
}

// forOthers says what came of posts and merges: a sum, and each that failed.
func (t *texter) forOthers() {
	if len(t.pass.Posts)+len(t.pass.Merges) == 0 {
		return
	}
	var failed []string
	var delivered, merged, reclaimed int64
	for _, p := range t.pass.Posts {
		if p.Error == nil {
			delivered++
			continue
		}
		failed = append(failed, fmt.Sprintf("%s: post to %s %s: %s", t.name(p.Store, p.Target), printable(p.URL), printable(p.State), printable(*p.Error)))
	}
	for _, m := range t.pass.Merges {
		if m.Error == nil {
			merged++
		} else {
			failed = append(failed, fmt.Sprintf("%s: merge by %s: %s", t.name(m.Store, m.Target), printable(m.Endpoint), printable(*m.Error)))
		}
		if m.Reclaimed != nil {
			reclaimed += *m.Reclaimed
		}
	}
	t.line("")
	t.line(t.paint(bold, "For others"))
	if n := int64(len(t.pass.Posts)); n > 0 {
		t.para(fmt.Sprintf("%s of %s after repairs delivered", number(delivered), count(n, "post")), "  ", "    ")
	}
	if n := int64(len(t.pass.Merges)); n > 0 {
		t.para(fmt.Sprintf("%s of %s to merge answered well, %s reclaimed", number(merged), count(n, "request"), count(reclaimed, "generation")), "  ", "    ")
	}
	for i, f := range failed {
		if !t.opts.Verbose && i == maxTargets {
			t.line(fmt.Sprintf("  … and %s more (%s)", number(int64(len(failed)-i)), t.listsAll()))
			return
		}
		t.para(f, "  ", "    ")
	}
}

// notChecked says what the pass did not look at: by scope, and role by role.
func (t *texter) notChecked() {
	t.line("")
	t.line(t.paint(bold, "Not looked at"))
	if len(t.pass.Scope.TargetsFilter) > 0 {
		t.para("targets other than "+printable(strings.Join(t.pass.Scope.TargetsFilter, " ")), "  ", "    ")
	}
	switch t.pass.Scope.Versions {
	case reconcile.VersionsCurrent:
		t.para("tags, branches and older versions (--versions=retained, --versions=all)", "  ", "    ")
	case reconcile.VersionsRetained:
		t.para("versions without tag or branch that are not the newest (--versions=all)", "  ", "    ")
	}
	switch t.pass.Scope.Depth {
	case reconcile.DepthHead:
		t.para("the inside of objects: existence and size only (--depth=footer, --depth=checksum)", "  ", "    ")
	case reconcile.DepthFooter:
		t.para("bytes against recorded checksums (--depth=checksum)", "  ", "    ")
	}
	for _, n := range t.notCheckedSums() {
		what := count(n.known, "object")
		switch {
		case n.unknown && n.known > 0:
			what += " and an unknown number more"
		case n.unknown:
			what = "an unknown number of objects"
		}
		t.para(fmt.Sprintf("%s: %s in %s: %s", n.role, what, count(n.targets, "target"), printable(n.reason)), "  ", "    ")
	}
	if c := t.pass.Coverage; c.Checked < c.References {
		t.para(fmt.Sprintf("%s that got no answer", count(c.References-c.Checked, "reference")), "  ", "    ")
	}
}

type notCheckedSum struct {
	role           reconcile.Role
	reason         string
	known, targets int64
	unknown        bool
}

func (t *texter) notCheckedSums() []*notCheckedSum {
	type key struct {
		role   reconcile.Role
		reason string
	}
	var sums []*notCheckedSum
	byKey := map[key]*notCheckedSum{}
	for _, r := range t.pass.Targets {
		for _, n := range r.NotChecked {
			k := key{n.Role, sharedReason(n.Reason)}
			s := byKey[k]
			if s == nil {
				s = &notCheckedSum{role: n.Role, reason: k.reason}
				byKey[k] = s
				sums = append(sums, s)
			}
			s.targets++
			if n.Count == nil {
				s.unknown = true
			} else {
				s.known += *n.Count
			}
		}
	}
	return sums
}

// totals are the sums of the pass.
func (t *texter) totals() {
	p, tot := t.pass, t.pass.Totals
	t.line("")
	t.line(t.paint(bold, "Totals"))
	row := func(label, text string) {
		t.para(text, "  "+padRight(label, 12), strings.Repeat(" ", 14))
	}
	coverage := "nothing to check"
	if p.Coverage.References > 0 {
		coverage = percent(p.Coverage.Checked, p.Coverage.References)
	}
	row("references", fmt.Sprintf("%s, checked %s (%s)", number(tot.References), number(tot.Checked), coverage))
	var verdicts []string
	for _, v := range reconcile.Verdicts() {
		if n := tot.Verdicts[v]; n > 0 {
			verdicts = append(verdicts, v.String()+" "+number(n))
		}
	}
	if len(verdicts) > 0 {
		row("verdicts", strings.Join(verdicts, ", "))
	}
	row("rows", fmt.Sprintf("at risk %s, dropped %s", number(tot.RowsAtRisk), number(tot.RowsDropped)))
	if objects, bytes := broughtBack(p); objects > 0 {
		row("restored", fmt.Sprintf("brought back %s, %s", count(objects, "object"), size(bytes)))
	}
	row("flapped", fmt.Sprintf("%s (missing at the first look, there at the second)", number(tot.Flapped)))
	if text := writeAhead(p.Targets); text != "" {
		row("write-ahead", text)
	}
	if tot.Deferred > 0 {
		row("deferred", count(tot.Deferred, "target")+" left for the next pass by the budget, not looked at")
	}
	if tot.RefetchDeferred > 0 {
		row("copies", count(tot.RefetchDeferred, "object")+" left for the next pass by the budget")
	}
	if tot.Carried > 0 {
		row("carried", fmt.Sprintf("%s of earlier passes, not looked at by this one", count(tot.Carried, "finding")))
	}
	q := tot.Requests
	row("requests", fmt.Sprintf("head %s, get %s, list %s, put %s; throttled %s, retried %s",
		number(q.Head), number(q.Get), number(q.List), number(q.Put), number(q.Throttled), number(q.Retried)))
	row("took", duration(p.FinishedAt.Sub(p.StartedAt)))
	row("pass", printable(p.PassID))
}

// writeAhead sums up what waits to be merged into base tables, and what merges left
// behind; empty when there is neither.
func writeAhead(targets []reconcile.TargetResult) string {
	var pending, pendingIn, leaked, leakedIn, bytes int64
	for _, t := range targets {
		if t.PendingGenerations != nil && *t.PendingGenerations > 0 {
			pending, pendingIn = pending+*t.PendingGenerations, pendingIn+1
		}
		if t.LeakedGenerations == nil || *t.LeakedGenerations == 0 {
			continue
		}
		leaked, leakedIn = leaked+*t.LeakedGenerations, leakedIn+1
		if t.LeakedBytes == nil || bytes < 0 {
			bytes = -1
		} else {
			bytes += *t.LeakedBytes
		}
	}
	var parts []string
	if pending > 0 {
		parts = append(parts, fmt.Sprintf("%s pending in %s", count(pending, "generation"), count(pendingIn, "target")))
	}
	if leaked > 0 {
		text := fmt.Sprintf("%s left behind by merges in %s", number(leaked), count(leakedIn, "target"))
		if bytes >= 0 {
			text += ", " + size(bytes)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// pointers say where to read on.
func (t *texter) pointers(blocks []block) {
	if t.pass.ReportURI != nil {
		t.line("")
		t.line("Report with every finding:")
		t.line("  " + printable(*t.pass.ReportURI))
	} else if t.pass.FindingsTruncated {
		t.line("")
		t.para(fmt.Sprintf("Only the first %s were kept: --report URI keeps all.", count(int64(len(t.pass.Findings)), "finding")), "", "")
	}
	for _, b := range blocks {
		if b.result.State != reconcile.StateClean {
			t.line("")
			t.para("An engine's message names a file? This tells which damage it speaks of:", "", "")
			t.line("  " + ShellQuote(t.opts.Command.program()) + " explain 'ERROR TEXT'")
			return
		}
	}
}
