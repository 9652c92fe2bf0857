package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// copies is what is known of copies of a damaged object that may be put in its place.
type copies uint8

const (
	// copiesUnknown: nobody was asked, or all said no.
	copiesUnknown copies = iota
	// copyAtPeer: a peer has one, and fetching it is what a repair would do.
	copyAtPeer
	// peerSilent: a peer gave no answer, so that nothing may be dropped.
	peerSilent
	// copyUnproven: nothing proves that a copy is better than what is there.
	copyUnproven
	// copyLosesBytes: putting a copy there would lose what is there.
	copyLosesBytes
	// copyWaits: an attempt to bring the object back failed, and the next is not due.
	copyWaits
)

func copiesOf(f *reconcile.Finding) copies {
	switch {
	case slices.Contains(f.BlockedBy, reconcile.BlockedReplaceUnproven):
		return copyUnproven
	case slices.Contains(f.BlockedBy, reconcile.BlockedReplaceWouldLose):
		return copyLosesBytes
	case waits(f):
		return copyWaits
	case f.ProposedAction == reconcile.ActionRefetch:
		return copyAtPeer
	case f.ProposedAction != reconcile.ActionRestore && len(silent(f)) > 0:
		return peerSilent
	}
	return copiesUnknown
}

// waits reports whether the object's own next attempt is not due. A drop that is blocked
// by cooling_down waits with its target.
func waits(f *reconcile.Finding) bool {
	return !f.ProposedAction.Destructive() && slices.Contains(f.BlockedBy, reconcile.BlockedCoolingDown)
}

// silent are the peers that gave no answer about an object.
func silent(f *reconcile.Finding) []string {
	var names []string
	for _, b := range f.BlockedBy {
		if name, ok := strings.CutPrefix(b, reconcile.BlockedRungOpen); ok {
			names = append(names, name)
		}
	}
	return names
}

// peers are those that the group's advice speaks of: who has a copy, who is silent, or
// who was asked.
func (g *group) peers() []string {
	var names []string
	for _, f := range g.findings {
		from := f.PeersAsked
		switch g.key.copies {
		case copyAtPeer:
			from = f.PeersHaving
		case peerSilent:
			from = silent(f)
		}
		for _, n := range from {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// peerWords say what peers said of a finding.
func peerWords(f *reconcile.Finding) []string {
	open := silent(f)
	no := slices.DeleteFunc(slices.Clone(f.PeersAsked), func(n string) bool { return slices.Contains(f.PeersHaving, n) || slices.Contains(open, n) })
	var d []string
	switch {
	case len(f.PeersHaving) == 1:
		d = append(d, "a peer has a copy: "+names(f.PeersHaving))
	case len(f.PeersHaving) > 1:
		d = append(d, "peers have copies: "+names(f.PeersHaving))
	case len(no) > 0 && len(open) == 0:
		d = append(d, "no peer has it: asked "+names(no))
	case len(no) > 0:
		d = append(d, "not at "+names(no))
	}
	if len(open) > 0 {
		d = append(d, "no answer from "+names(open))
	}
	return d
}

// maxNames of peers, or of files, stand in a sentence.
const maxNames = 3

// names lists peers, or files, made for wrap.
func names(all []string) string {
	shown := all[:min(len(all), maxNames)]
	quoted := make([]string, len(shown))
	for i, p := range shown {
		quoted[i] = printable(p)
	}
	text := strings.Join(quoted, ", ")
	if left := len(all) - len(shown); left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text
}

// broughtBack counts the objects that the pass brought back, and their bytes.
func broughtBack(p reconcile.Pass) (objects, bytes int64) {
	for _, r := range p.Repairs {
		if mended(r) {
			objects++
			bytes += *r.BytesRestored
		}
	}
	return objects, bytes
}

// mends reports whether a repair is about bringing one object back. An undo is a
// restore as well, and a commit.
func mends(r reconcile.RepairOutcome) bool {
	return (r.Action == reconcile.ActionRestore || r.Action == reconcile.ActionRefetch) && r.CommittedVersion == nil && r.TransactionUUID == nil
}

// mended reports whether it did.
func mended(r reconcile.RepairOutcome) bool {
	return mends(r) && r.State == "applied" && r.BytesRestored != nil
}

// mendKey is what objects that were brought back have in common: they make one line.
type mendKey struct {
	store, target, source, proof string
	action                       reconcile.Action
}

func keyOfMend(r reconcile.RepairOutcome) mendKey {
	k := mendKey{store: r.Store, target: r.Target, action: r.Action}
	if r.Source != nil {
		k.source = *r.Source
		if r.Action == reconcile.ActionRestore {
			k.source, _, _ = strings.Cut(k.source, " ") // "version abc": each object has its own
		}
	}
	if r.Proof != nil {
		k.proof = *r.Proof
	}
	return k
}

// mendLines are the repairs as lines: what was brought back in one way is summed up,
// everything else stands alone, in the order in which each first happened.
func (t *texter) mendLines() []string {
	type sum struct {
		at             int
		objects, bytes int64
		source         string
		files          []string
	}
	var lines []string
	sums := map[mendKey]*sum{}
	for _, r := range t.pass.Repairs {
		if !mended(r) {
			lines = append(lines, t.repairLine(r))
			continue
		}
		k := keyOfMend(r)
		s := sums[k]
		if s == nil {
			s = &sum{at: len(lines)}
			if r.Source != nil {
				s.source = *r.Source
			}
			sums[k] = s
			lines = append(lines, "")
		}
		s.objects, s.bytes, s.files = s.objects+1, s.bytes+*r.BytesRestored, append(s.files, r.Files...)
		line := fmt.Sprintf("%s: %s applied, %s, %s brought back", t.name(r.Store, r.Target), r.Action, count(s.objects, "object"), size(s.bytes))
		switch {
		case s.source == "":
		case s.objects == 1 || k.action != reconcile.ActionRestore:
			line += " from " + printable(s.source)
		default:
			line += " from older versions"
		}
		if k.proof != "" {
			line += ", proven by " + printable(k.proof)
		}
		if len(s.files) > 0 {
			line += ": " + names(s.files)
		}
		lines[s.at] = line
	}
	return lines
}
