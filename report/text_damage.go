package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// block is one target in the text: its own state and its findings in groups.
type block struct {
	result reconcile.TargetResult
	groups []*group
	// more are targets that the same is to be said of, beside result.
	more []reconcile.TargetResult
}

// group is findings of one target that ask for the same next step.
type group struct {
	key      groupKey
	findings []*reconcile.Finding
}

type groupKey struct {
	verdict  reconcile.Verdict
	role     reconcile.Role
	reason   string
	harmless bool
	// everything: blocked by everything_missing.
	everything bool
	copies     copies
	// mended: a repair of this pass took care of it.
	mended bool
	// byHand: an older version can be brought back, and no repair does it.
	byHand bool
}

func keyOf(f *reconcile.Finding) groupKey {
	k := groupKey{verdict: f.Verdict, role: f.Role,
		everything: slices.Contains(f.BlockedBy, reconcile.BlockedEverythingMissing)}
	if f.Reason != nil {
		k.reason = *f.Reason
	}
	if !k.everything {
		k.copies = copiesOf(f)
	}
	k.byHand = f.Restorable && f.ProposedAction == reconcile.ActionNone && f.Role == reconcile.RoleWALGeneration
	k.harmless = f.Ref.Harmless || f.Role == reconcile.RoleTransaction || k.reason == reconcile.ReasonDeadFile
	return k
}

// blocks are the targets that need a word: those that are not clean, then clean
// ones with findings. Groups stand in the order of reconcile.Verdicts, then of roles.
func (t *texter) blocks() []block {
	type id struct{ store, target string }
	byTarget := map[id][]*reconcile.Finding{}
	var order []id
	for i := range t.pass.Findings {
		f := &t.pass.Findings[i]
		k := id{f.Store, f.Target}
		if byTarget[k] == nil {
			order = append(order, k)
		}
		byTarget[k] = append(byTarget[k], f)
	}
	mended := mendedPaths(t.pass.Repairs)
	var wrong, clean []block
	for _, r := range t.pass.Targets {
		k := id{r.Store, r.Target}
		b := block{result: r, groups: groupsOf(byTarget[k], mended)}
		delete(byTarget, k)
		switch {
		case r.State != reconcile.StateClean, offRegistry(r):
			wrong = append(wrong, b)
		case len(b.groups) > 0:
			clean = append(clean, b)
		}
	}
	for _, k := range order {
		// A target that broke off before its result was made still shows its findings.
		if fs := byTarget[k]; fs != nil {
			wrong = append(wrong, block{result: reconcile.TargetResult{Target: k.target, Store: k.store, Findings: int64(len(fs))}, groups: groupsOf(fs, mended)})
		}
	}
	return append(join(wrong), clean...)
}

// object names an object of a target.
type object struct{ store, target, path string }

// mendedPaths are the objects that applied repairs brought back, or whose fragment or
// index entry they dropped.
func mendedPaths(repairs []reconcile.RepairOutcome) map[object]bool {
	out := map[object]bool{}
	for _, r := range repairs {
		if r.State != "applied" {
			continue
		}
		for _, f := range r.Files {
			out[object{r.Store, r.Target, f}] = true
		}
		for _, frag := range r.Fragments {
			for _, f := range frag.MissingFiles {
				out[object{r.Store, r.Target, f}] = true
			}
		}
	}
	return out
}

func groupsOf(findings []*reconcile.Finding, mended map[object]bool) []*group {
	var gs []*group
	byKey := map[groupKey]*group{}
	for _, f := range findings {
		k := keyOf(f)
		k.mended = mended[object{f.Store, f.Target, f.Path}]
		g := byKey[k]
		if g == nil {
			g = &group{key: k}
			byKey[k] = g
			gs = append(gs, g)
		}
		g.findings = append(g.findings, f)
	}
	rank := map[reconcile.Verdict]int{}
	for i, v := range reconcile.Verdicts() {
		rank[v] = i
	}
	slices.SortStableFunc(gs, func(a, b *group) int {
		return cmp.Or(rank[a.key.verdict]-rank[b.key.verdict], int(a.key.role)-int(b.key.role))
	})
	return gs
}

func (t *texter) damage(blocks []block) {
	left := 0
	if !t.opts.Verbose && len(blocks) > maxBlocks {
		left, blocks = len(blocks)-maxBlocks, blocks[:maxBlocks]
	}
	for _, b := range blocks {
		t.line("")
		t.block(b)
	}
	if left > 0 {
		t.line("")
		t.para(fmt.Sprintf("… and %s more (%s)", count(int64(left), "target"), t.listsAll()), "", "  ")
	}
}

// listsAll says where everything stands that the text leaves out.
func (t *texter) listsAll() string {
	if t.pass.ReportURI != nil {
		return "the report below lists all"
	}
	return "--report URI or --output json lists all"
}

func (t *texter) block(b block) {
	if len(b.more) > 0 {
		t.joined(b)
		return
	}
	r := b.result
	head := t.name(r.Store, r.Target) + ": " + r.State.String()
	if r.Reason != nil {
		head += " (" + printable(*r.Reason) + ")"
	}
	if r.Version != nil {
		head += fmt.Sprintf(", version %d", *r.Version)
	}
	if offRegistry(r) && (r.Reason == nil || *r.Reason != *r.Registry) {
		head += ", registry " + printable(*r.Registry)
	}
	lines := wrap(head, "", "  ", t.opts.Width)
	lines[0] = t.paint(bold, lines[0])
	for _, l := range lines {
		t.line(l)
	}
	if r.URI != "" {
		t.line("  " + printable(r.URI))
	}
	s := t.subject(r)
	if len(b.groups) == 0 {
		t.advise(t.next(s))
		return
	}
	for i, g := range b.groups {
		t.group(r, g)
		// One step for neighbouring groups is said once, after the last of them.
		a := t.next(g.subject(s, t.pass.Mode))
		if i+1 == len(b.groups) || !equalAdvice(a, t.next(b.groups[i+1].subject(s, t.pass.Mode))) {
			t.advise(a)
		}
	}
}

func (t *texter) subject(r reconcile.TargetResult) subject {
	s := subject{target: r.Target, kind: r.Kind, uri: r.URI, state: r.State}
	if r.Reason != nil {
		s.reason, s.stateReason = *r.Reason, *r.Reason
	}
	if r.Version != nil {
		s.version = fmt.Sprint(*r.Version)
	}
	if r.Registry != nil {
		s.registry = *r.Registry
	}
	s.since = overdueSince(r)
	return s
}

// subject narrows the target's to the group's findings, of a pass in a mode.
func (g *group) subject(s subject, mode string) subject {
	s.finding, s.verdict, s.reason = true, g.key.verdict, g.key.reason
	s.harmless, s.everything = g.key.harmless, g.key.everything
	_, s.blocked = g.blockedBy()
	s.planned, s.onlyFull = g.planned(mode)
	s.mode, s.busy = mode, slices.ContainsFunc(g.findings, func(f *reconcile.Finding) bool { return slices.Contains(f.BlockedBy, reconcile.BlockedBusy) })
	s.withoutRow = slices.ContainsFunc(g.findings, func(f *reconcile.Finding) bool { return slices.Contains(f.BlockedBy, reconcile.BlockedHalfDeleted) })
	s.role, s.url, s.answer = g.key.role, g.findings[0].URL, answerOf(g.findings[0])
	s.copies, s.peers = g.key.copies, g.peers()
	s.mended = g.key.mended
	s.byHand, s.copyBack = g.key.byHand, g.copyBack()
	for _, f := range g.findings {
		if u := f.RecoverableUntil; u != nil && (s.until == nil || u.Before(*s.until)) {
			s.until = u
		}
		if at := f.RetryAt; at != nil && (s.retryAt == nil || at.Before(*s.retryAt)) {
			s.retryAt = at
		}
	}
	return s
}

func equalAdvice(a, b advice) bool {
	return a.text == b.text && slices.Equal(a.verbatim, b.verbatim) && slices.Equal(a.commands, b.commands)
}

func (t *texter) advise(a advice) {
	if a.text == "" {
		return
	}
	t.para("Next: "+a.text, "  ", "    ")
	for _, l := range slices.Concat(a.verbatim, a.commands) {
		t.line("      " + l)
	}
}

// group prints one group: its head, its first findings, and what is left out.
func (t *texter) group(r reconcile.TargetResult, g *group) {
	head := g.key.verdict.String()
	if g.key.reason != "" {
		head += " (" + printable(g.key.reason) + ")"
	}
	head += ": " + count(int64(len(g.findings)), roleNoun(g.key.role))
	if rows, known := g.rowsAtRisk(); known {
		head += ", " + count(rows, "row") + " at risk"
	}
	lines := wrap(head, "  ", "    ", t.opts.Width)
	lines[0] = strings.Replace(lines[0], g.key.verdict.String(), t.paint(verdictColor(g.key), g.key.verdict.String()), 1)
	for _, l := range lines {
		t.line(l)
	}
	shown := g.findings
	if !t.opts.Verbose && len(shown) > maxPerGroup {
		shown = shown[:maxPerGroup]
	}
	for _, f := range shown {
		t.finding(r, f)
	}
	if left := len(g.findings) - len(shown); left > 0 {
		t.line(fmt.Sprintf("    … and %s more (%s)", number(int64(left)), t.listsAll()))
	}
	if b, _ := g.blockedBy(); len(b) > 0 {
		t.para("blocked by "+strings.Join(b, ", "), "    ", "      ")
	}
}

func verdictColor(k groupKey) string {
	if k.verdict.Damaged() && !k.harmless {
		return red
	}
	return yellow
}

func roleNoun(r reconcile.Role) string {
	switch r {
	case reconcile.NoRole:
		return "object"
	case reconcile.RoleManifest, reconcile.RoleBlob:
		return r.String()
	case reconcile.RoleRowIDs:
		return "row id file"
	case reconcile.RoleBlobSidecar:
		return "blob sidecar"
	case reconcile.RoleWALManifest:
		return "WAL manifest"
	case reconcile.RoleWALGeneration:
		return "WAL generation file"
	}
	return r.String() + " file"
}

// rowsAtRisk counts each fragment once; known is false when no finding tells rows, or
// none is known to be damaged: what is pending, or got no answer, puts no row at risk in
// targets and totals either.
func (g *group) rowsAtRisk() (rows int64, known bool) {
	seen := map[string]bool{}
	for _, f := range g.findings {
		if f.RowsAtRisk == nil || !f.Verdict.Damaged() {
			continue
		}
		known = true
		if seen[f.RowsKey()] {
			continue
		}
		seen[f.RowsKey()] = true
		rows += *f.RowsAtRisk
	}
	return rows, known
}

// blockedBy lists what blocks the group's actions, with a count where it does not
// block all of them. all reports that no finding of the group is free.
func (g *group) blockedBy() (blocks []string, all bool) {
	n := map[string]int{}
	var order []string
	all = true
	for _, f := range g.findings {
		all = all && len(f.BlockedBy) > 0
		for _, b := range f.BlockedBy {
			if n[b] == 0 {
				order = append(order, b)
			}
			n[b]++
		}
	}
	for _, b := range order {
		s := printable(b)
		if n[b] < len(g.findings) {
			s += fmt.Sprintf(" (%d of %d)", n[b], len(g.findings))
		}
		blocks = append(blocks, s)
	}
	return blocks, all
}

// finding prints one finding: its path whole on a line of its own, then what is
// known of it.
func (t *texter) finding(r reconcile.TargetResult, f *reconcile.Finding) {
	elsewhere := r.URI == "" || !strings.HasPrefix(f.URL, strings.TrimSuffix(r.URI, "/")+"/")
	if f.Path == "" {
		t.line("    " + printable(f.URL)) // the root itself
	} else {
		t.line("    " + printable(f.Path))
		if f.URL != "" && (elsewhere || copyBack(f)) {
			t.line("      " + printable(f.URL))
		}
	}
	t.para(strings.Join(details(f), ", "), "      ", "      ")
}

// copyBack: the next step may be to put a copy there by hand, which needs the whole URL.
func copyBack(f *reconcile.Finding) bool {
	return f.Verdict == reconcile.Lost || metadataRole(f.Role) || neverDropped(f.Role)
}

// details are what is known of a finding, made for wrap.
func details(f *reconcile.Finding) []string {
	d := []string{roleNoun(f.Role)}
	if f.Record != nil {
		d = append(d, "record "+printable(shorten(*f.Record, maxRecord)))
	}
	if f.FragmentID != nil {
		d = append(d, fmt.Sprintf("fragment %d", *f.FragmentID))
	}
	if f.RowsAtRisk != nil && f.Verdict.Damaged() {
		d = append(d, count(*f.RowsAtRisk, "row")+" at risk")
	}
	if !slices.Equal(f.Scopes, []string{"latest"}) && len(f.Scopes) > 0 {
		d = append(d, "named by "+printable(strings.Join(f.Scopes, " ")))
	}
	if f.ExpectedSize != nil {
		d = append(d, "recorded "+size(*f.ExpectedSize))
	}
	if f.ObservedSize != nil {
		d = append(d, "found "+size(*f.ObservedSize))
	}
	// A file that holds every column of its fragment needs no list of them.
	if len(f.ColumnsKept) > 0 {
		d = append(d, "columns lost: "+printable(strings.Join(f.ColumnsLost, " ")))
		d = append(d, "columns kept: "+printable(strings.Join(f.ColumnsKept, " ")))
	}
	if answer := answerOf(f); answer != "" {
		d = append(d, answer)
	}
	if f.RequestID != nil {
		d = append(d, "request "+printable(*f.RequestID))
	}
	if f.RecoverableUntil != nil {
		d = append(d, "recoverable until "+moment(*f.RecoverableUntil))
	}
	return append(d, peerWords(f)...)
}

// maxRecord bounds what is shown of the records that refer to a blob: a thousand may.
const maxRecord = 200
