package report

import (
	"fmt"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// alike are targets that one cause made what they are: the text says it once.
type alike struct{ store, kind, reason string }

// alikeKey is what a target shares with others; ok is false when it stands for itself.
func alikeKey(b block) (_ alike, ok bool) {
	r := b.result
	switch {
	case len(b.groups) > 0 || r.Reason == nil:
		return alike{}, false
	case *r.Reason == reconcile.ReasonOverdue:
		return alike{store: r.Store, reason: *r.Reason}, true
	case *r.Reason == reconcile.ReasonEverythingMissing && r.Registry != nil && *r.Registry == reconcile.RegistryNoStore:
		return alike{r.Store, r.Kind, *r.Reason}, true
	}
	return alike{}, false
}

// join puts targets that are alike into one block each, where the first of them stands.
func join(blocks []block) []block {
	var out []block
	at := map[alike]int{}
	for _, b := range blocks {
		k, ok := alikeKey(b)
		if i, met := at[k]; ok && met {
			out[i].more = append(out[i].more, b.result)
			continue
		}
		if ok {
			at[k] = len(out)
		}
		out = append(out, b)
	}
	return out
}

// joined prints a block of several targets.
func (t *texter) joined(b block) {
	r := b.result
	const named = 3
	names := []string{t.name(r.Store, r.Target)}
	for _, m := range b.more[:min(len(b.more), named-1)] {
		names = append(names, t.name(m.Store, m.Target))
	}
	n := int64(len(b.more)) + 1
	head := fmt.Sprintf("%s: %s (%s): %s", count(n, "target"), r.State, printable(*r.Reason), strings.Join(names, ", "))
	if left := n - int64(len(names)); left > 0 {
		head += fmt.Sprintf(" and %s more", number(left))
	}
	lines := wrap(head, "", "  ", t.opts.Width)
	lines[0] = t.paint(bold, lines[0])
	for _, l := range lines {
		t.line(l)
	}
	s := t.subject(r)
	s.others = len(b.more)
	for _, m := range b.more {
		s.since = earlier(s.since, overdueSince(m))
	}
	t.advise(t.next(s))
}

// sinceWords stand before the moment in what an overdue target says of itself.
const sinceWords = "not looked at since "

// overdueSince is the moment, in RFC 3339, since which nobody looked at an overdue
// target; empty for any other.
func overdueSince(r reconcile.TargetResult) string {
	if r.Reason == nil || *r.Reason != reconcile.ReasonOverdue {
		return ""
	}
	for _, n := range r.NotChecked {
		if at, ok := strings.CutPrefix(n.Reason, sinceWords); ok {
			return at
		}
	}
	return ""
}

// earlier of two moments in UTC; an empty one is none.
func earlier(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// sharedReason is what many targets say in the same words; for overdue ones without
// their moments.
func sharedReason(reason string) string {
	if strings.HasPrefix(reason, sinceWords) {
		return reconcile.ReasonOverdue + ": left by the budget for a full cycle, and in no coverage"
	}
	return reason
}
