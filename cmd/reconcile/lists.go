package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// lists are the commands that show rows of the ledger.
func lists() []list {
	var verdicts, states, exits []string
	for _, v := range reconcile.Verdicts() {
		if v != reconcile.Present {
			verdicts = append(verdicts, v.String())
		}
	}
	for _, s := range reconcile.States() {
		states = append(states, s.String())
	}
	for _, d := range reconcile.ExitDocs() {
		if len(exits) == 0 || exits[len(exits)-1] != d.Name {
			exits = append(exits, d.Name)
		}
	}
	return []list{
		{name: "findings", short: "List what is damaged, by the ledger",
			long:    "findings lists the references that are not present, as the last look at each saw it.\nWithout --state it lists those that are open; all asks for all.",
			example: "  reconcile findings\n  reconcile findings --target 'exp-*' --state missing\n  reconcile findings --state lost\n  reconcile findings --state resolved --since 7d --output json",
			states:  append([]string{"open", "resolved", "acknowledged", stateAll}, verdicts...), usual: []string{"open"}, show: showFindings},
		{name: "repairs", short: "List repairs, by the ledger",
			long:    "repairs lists every repair that was tried or refused, with what became of it:\nwhy it failed, or which objects were brought back, from where, and what proved\nthe copy.",
			example: "  reconcile repairs --since 24h\n  reconcile repairs --state uncertain\n  reconcile repairs --target exp-1 --output json",
			states:  []string{ledger.StateIntended, ledger.StateApplied, ledger.StateConflict, ledger.StateRefused, ledger.StateFailed, ledger.StateUncertain, ledger.StatePlanned}, show: showRepairs},
		{name: "cooldowns", short: "List work that is left alone for a while",
			long:    "cooldowns lists the work that kept failing and is left alone until a time. Without\n--state it lists what cools down now; all shows every count.",
			example: "  reconcile cooldowns\n  reconcile cooldowns --state all --output json",
			states:  []string{"active", "inactive", stateAll}, usual: []string{"active"}, show: showCooldowns},
		{name: "passes", short: "List passes, by the ledger",
			long:    "passes lists the passes, the newest first.",
			example: "  reconcile passes --limit 10\n  reconcile passes --state refused --since 30d",
			states:  append([]string{"running", exitRepaired}, exits...), show: showPasses},
		{name: "targets", short: "List targets and how they stand, by the ledger",
			long:    "targets lists every target that a pass ever met, with its last state.",
			example: "  reconcile targets --state diverged\n  reconcile targets --target 'generic:*' --output json",
			states:  states, show: showTargets},
	}
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func clockOr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return clock(*t)
}

func num[T int | int64 | uint64](n *T) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func plain(n int64) string { return strconv.FormatInt(n, 10) }

func showFindings(ctx context.Context, a *app, l ledger.Ledger, f ledger.Filter, asJSON bool) error {
	fs, err := l.ListFindings(ctx, f)
	if err != nil || asJSON {
		return orJSON(a, fs, err)
	}
	return columns(a.stdout, findingHead, findingRows(fs))
}

// findingHead are the headings of findingRows.
const findingHead = "FINDING TARGET ROLE VERDICT ROWS SINCE STATE RECORD COPIES PATH"

func findingRows(fs []ledger.Finding) [][]string {
	rows := make([][]string, len(fs))
	for i, x := range fs {
		state := "open"
		switch {
		case x.ResolvedAt != nil:
			state = "resolved"
		case x.Acknowledged:
			state = "acknowledged"
		}
		rows[i] = []string{short(x.Finding.FindingID), x.Finding.Target, x.Finding.Role.String(), x.Finding.Verdict.String(), num(x.Finding.RowsAtRisk), clock(x.FirstSeenAt), state, deref(x.Finding.Record), copiesOf(x.Finding), x.Finding.Path}
	}
	return rows
}

// copiesOf says who has a copy of a damaged object, or who was asked for one.
func copiesOf(f reconcile.Finding) string {
	switch {
	case len(f.PeersHaving) > 0:
		return "at " + strings.Join(f.PeersHaving, " ")
	case f.Verdict == reconcile.Lost && len(f.PeersAsked) > 0:
		return "none: asked " + strings.Join(f.PeersAsked, " ")
	case len(f.PeersAsked) > 0:
		return "asked " + strings.Join(f.PeersAsked, " ")
	}
	return ""
}

// short is a part of an id that is enough to name it.
func short(id string) string { return id[:min(len(id), 12)] }

func orJSON(a *app, v any, err error) error {
	if err != nil {
		return err
	}
	return a.printJSON(v)
}

func showRepairs(ctx context.Context, a *app, l ledger.Ledger, f ledger.Filter, asJSON bool) error {
	rs, err := l.ListRepairs(ctx, f)
	if err != nil || asJSON {
		return orJSON(a, rs, err)
	}
	rows := make([][]string, len(rs))
	for i, r := range rs {
		rows[i] = []string{r.RepairID, clock(r.CreatedAt), r.Target, r.Action.String(), r.State, num(r.ReadVersion), num(r.CommittedVersion), num(r.RowsDropped), num(r.BytesRestored), r.Trigger, outcomeOf(r)}
	}
	return columns(a.stdout, "REPAIR AT TARGET ACTION STATE FROM MADE ROWS BYTES TRIGGER OUTCOME", rows)
}

// outcomeOf says which objects a repair is about, and why it did not end well, or where
// they were brought back from, and what proved it.
func outcomeOf(r ledger.Repair) string {
	files := strings.Join(r.Files, " ")
	if r.Error != nil || r.BytesRestored == nil || r.Source == nil {
		if files == "" || r.Error == nil {
			return files + deref(r.Error)
		}
		return files + ": " + *r.Error
	}
	text := files + " brought back from " + *r.Source
	if r.Proof != nil {
		text += ", " + *r.Proof
	}
	return strings.TrimSpace(text)
}

func showCooldowns(ctx context.Context, a *app, l ledger.Ledger, f ledger.Filter, asJSON bool) error {
	cs, err := l.ListCooldowns(ctx, f)
	if err != nil || asJSON {
		return orJSON(a, cs, err)
	}
	rows := make([][]string, len(cs))
	for i, c := range cs {
		name := c.TargetURI
		if c.Target != nil {
			name = *c.Target
		}
		rows[i] = []string{string(c.Kind), name, plain(c.ConsecutiveFailures), clockOr(c.CooldownUntil), clockOr(c.LastFailedAt), deref(c.LastErrorClass), deref(c.LastError)}
	}
	return columns(a.stdout, "KIND TARGET FAILURES UNTIL FAILED CLASS ERROR", rows)
}

func showPasses(ctx context.Context, a *app, l ledger.Ledger, f ledger.Filter, asJSON bool) error {
	ps, err := l.ListPasses(ctx, f)
	if err != nil || asJSON {
		return orJSON(a, ps, err)
	}
	rows := make([][]string, len(ps))
	for i, p := range ps {
		exit := "running"
		if p.ExitName != nil {
			exit = num(p.ExitCode) + " " + *p.ExitName
		}
		rows[i] = []string{p.PassID, clock(p.StartedAt), p.Mode, exit, num(p.Targets), num(p.Checked), plain(p.FindingsSeen), plain(p.RepairsApplied), num(p.RowsDropped), p.Actor + "@" + p.Host}
	}
	return columns(a.stdout, "PASS STARTED MODE EXIT TARGETS CHECKED FINDINGS REPAIRED DROPPED BY", rows)
}

func showTargets(ctx context.Context, a *app, l ledger.Ledger, f ledger.Filter, asJSON bool) error {
	ts, err := l.ListTargets(ctx, f)
	if err != nil || asJSON {
		return orJSON(a, ts, err)
	}
	rows := make([][]string, len(ts))
	for i, t := range ts {
		rows[i] = []string{t.Name, t.Store, deref(t.State), num(t.Version), plain(t.OpenFindings), num(t.RowsAtRisk), clockOr(t.LastCheckedAt), clockOr(t.LastRepairedAt)}
	}
	return columns(a.stdout, "TARGET STORE STATE VERSION FINDINGS ROWS CHECKED REPAIRED", rows)
}

func (a *app) printStatus(st ledger.Status, where string) error {
	var b strings.Builder
	row := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", label, printable(fmt.Sprintf(format, args...)))
	}
	row("ledger", "%s, %s", where, clock(st.Now))
	row("targets", "%d, %d of them damaged: %d objects, %d rows at risk", st.Targets, st.DamagedTargets, st.DamagedObjects, st.RowsAtRisk)
	var open []string
	for _, v := range reconcile.Verdicts() {
		if n := st.OpenByVerdict[v]; n > 0 {
			open = append(open, fmt.Sprintf("%s %d", v, n))
		}
	}
	row("open", "%s", cmp.Or(strings.Join(open, ", "), "nothing")+fmt.Sprintf("; %d acknowledged", st.Acknowledged))
	row("unsettled", "%s whose effect is not known; the next pass settles them", count(int(st.Unsettled), "repair"))
	var cool []string
	for _, k := range ledger.Kinds() {
		if n := st.ActiveCooldowns[k]; n > 0 {
			cool = append(cool, fmt.Sprintf("%s %d", k, n))
		}
	}
	row("cooling down", "%s", cmp.Or(strings.Join(cool, ", "), "nothing"))
	row("handed in", "%s open", count(int(st.PendingFailures), "failure"))
	row("posts", "%s to be sent, %d not taken in the last 7 days", count(int(st.OpenPosts), "post"), st.FailedPosts)
	for _, l := range st.Locked {
		row("locked", "%s by %s until %s", l.TargetURI, l.Owner, clock(l.LeaseUntil))
	}
	if p := st.LastPass; p != nil {
		row("last pass", "%s, begun %s, %s", p.PassID, clock(p.StartedAt), cmp.Or(deref(p.ExitName), "running"))
	}
	if p := st.LastClean; p != nil {
		row("last clean", "%s, begun %s", p.PassID, clock(p.StartedAt))
	} else {
		row("last clean", "none yet")
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}
