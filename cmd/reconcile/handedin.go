package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/explain"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// A failure that another system handed in says where to look first. It proves
// nothing: what is repaired is what the looks of the pass proved.
//
//	open      no pass has answered it
//	handled   a repair of its target was applied and verified after it was last
//	          handed in, and the object that it names is not damaged any more; or a
//	          later, complete look saw its target clean
//
// One that is handed in again while a pass is at work stays open for the next.

// maxHandedIn bounds how many open failures a pass reads: those that were handed in
// last.
const maxHandedIn = 10_000

// maxTriggerText is how much of a text becomes a repair's trigger, in bytes.
const maxTriggerText = 4096

// handedIn is an open failure and what it may be about.
type handedIn struct {
	ledger.TaskFailure
	hint explain.Explanation
	// uris are the targets of this pass that it may mean, by canonical URI: more than
	// one when stores have targets of that name.
	uris []string
	// sure tells that it names the place, and not only a name.
	sure bool
}

// urgency puts what names damage first, then what may be damage. A store that asked
// to slow down, refused access or let another writer win says nothing about an object.
func (h handedIn) urgency() int {
	switch h.hint.Damage {
	case explain.DamageMissing, explain.DamageTruncated:
		return 0
	case explain.DamageUnknown:
		return 1
	}
	return notUrgent
}

const notUrgent = 2

// readHandedIn reads the open failures and puts the targets that they are about
// first; among equals the order stays.
func (w *work) readHandedIn(ctx context.Context) error {
	if w.ledger == nil {
		return nil
	}
	open, err := w.ledger.PendingFailures(ctx, maxHandedIn)
	if err != nil || len(open) == 0 {
		return err
	}
	checked, err := w.checkedAt(ctx)
	if err != nil {
		return err
	}
	if len(open) == maxHandedIn {
		w.log.Warn("more failures are open than a pass reads; those that were handed in last are looked at", "read", len(open))
	}
	m, texts := w.newMatcher(), explanations{}
	urgency := map[string]int{}
	strangers := 0
	for _, f := range open {
		h := handedIn{TaskFailure: f, hint: texts.of(f.Error)}
		if h.uris, h.sure = m.match(f.Target, h.hint); len(h.uris) == 0 {
			strangers++
			continue
		}
		w.handed = append(w.handed, h)
		for _, uri := range h.uris {
			if u, ok := urgency[uri]; (!ok || h.urgency() < u) && !checked[uri].After(h.LastSeenAt) {
				urgency[uri] = h.urgency()
			}
		}
	}
	if strangers > 0 {
		w.log.Info("handed-in failures name no target of this pass and stay open", "failures", strangers)
	}
	var first []string
	rank := func(t reconcile.Target) int {
		if u, ok := urgency[t.Location.Canonical()]; ok {
			return u
		}
		return notUrgent
	}
	slices.SortStableFunc(w.found.targets, func(a, b reconcile.Target) int { return cmp.Compare(rank(a), rank(b)) })
	for _, t := range w.found.targets {
		if rank(t) < notUrgent {
			first = append(first, t.Name)
		}
	}
	if len(first) > 0 {
		w.log.Info("targets of handed-in failures come first", "targets", len(first), "names", first[:min(len(first), 10)])
	}
	return nil
}

// explanations are those of texts that many failures share.
type explanations map[string]explain.Explanation

func (x explanations) of(text string) explain.Explanation {
	e, ok := x[text]
	if !ok {
		e = explain.Classify(text)
		x[text] = e
	}
	return e
}

// checkedAt tells when targets were last looked at, where a budget makes that matter:
// a failure that a pass looked at and could not answer must not put its target first
// for ever, at the cost of others. Without a budget it is empty.
func (w *work) checkedAt(ctx context.Context) (map[string]time.Time, error) {
	at := map[string]time.Time{}
	if b := w.budget(); b.Duration == 0 && b.Requests == 0 {
		return at, nil
	}
	ts, err := w.ledger.ListTargets(ctx, ledger.Filter{})
	for _, t := range ts {
		if t.LastCheckedAt != nil {
			at[t.URI] = *t.LastCheckedAt
		}
	}
	return at, err
}

// clip cuts a text to so many bytes of whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}

// matcher finds the targets that a failure may be about.
type matcher struct {
	w *work
	// byName holds targets by name and by name behind the store, byURI by canonical URI.
	byName map[string][]reconcile.Target
	byURI  map[string]reconcile.Target
}

func (w *work) newMatcher() *matcher {
	m := &matcher{w: w, byName: map[string][]reconcile.Target{}, byURI: map[string]reconcile.Target{}}
	for _, t := range w.found.targets {
		m.byURI[t.Location.Canonical()] = t
		m.byName[t.Name] = append(m.byName[t.Name], t)
		if full := t.Store + "/" + t.Name; full != t.Name {
			m.byName[full] = append(m.byName[full], t)
		}
	}
	return m
}

// match gives the canonical URIs of the targets that a failure may mean. The target
// that was handed in decides; the text decides among several, and when none was
// handed in. sure tells that the place is named.
func (m *matcher) match(target string, e explain.Explanation) (uris []string, sure bool) {
	found, sure := m.named(target)
	if target == "" {
		found = m.byName[e.Target]
	}
	var placed []string
	for _, t := range found {
		uri := t.Location.Canonical()
		uris = append(uris, uri)
		if m.at(t, e.Dataset) {
			placed = append(placed, uri)
		}
	}
	switch {
	case len(placed) > 0:
		return placed, true
	case len(found) > 0:
		return uris, sure
	}
	// A target in words of its own system: only a place in the text tells.
	for _, t := range m.byName[e.Target] {
		if m.at(t, e.Dataset) {
			placed = append(placed, t.Location.Canonical())
		}
	}
	return placed, true
}

// named finds targets by what a system calls them: a URI, a name with or without its
// store, or the name of the folder.
func (m *matcher) named(target string) (found []reconcile.Target, sure bool) {
	target = strings.TrimRight(target, "/")
	if target == "" {
		return nil, false
	}
	if found = m.byName[target]; len(found) > 0 {
		return found, found[0].Name != target
	}
	if strings.Contains(target, "://") || strings.HasPrefix(target, "/") {
		loc, err := m.w.set.Locate(target)
		if err != nil {
			return nil, false // of a system that is not reached from here
		}
		if t, ok := m.byURI[loc.Canonical()]; ok {
			return []reconcile.Target{t}, true
		}
		return nil, false
	}
	if strings.HasSuffix(target, ".lance") {
		name, _ := fleet.Name(target)
		return m.byName[name], false
	}
	return nil, false
}

// at reports whether a text places the dataset where the target is. Engines write
// keys without the bucket and local paths without the first slash.
func (m *matcher) at(t reconcile.Target, dataset string) bool {
	if dataset == "" {
		return false
	}
	key := strings.Trim(t.Location.Key, "/")
	if d := strings.Trim(dataset, "/"); d == key || t.Location.Bucket != "" && d == t.Location.Bucket+"/"+key {
		return true
	}
	if !strings.Contains(dataset, "://") && !strings.HasPrefix(dataset, "/") {
		if t.Location.Scheme != "file" {
			return false
		}
		dataset = "/" + dataset // it may be the way through a link
	}
	loc, err := m.w.set.Locate(dataset)
	return err == nil && loc.Canonical() == t.Location.Canonical()
}

// triggerOf is the text of the failure that asked for a repair of the target: one
// that names damage, best one that names an object which the look found damaged, of
// equals the one that was handed in last. nil when there is none.
func (w *work) triggerOf(t reconcile.Target) *string {
	uri := t.Location.Canonical()
	var best *handedIn
	score := func(h *handedIn) int {
		if namesOne(w.known[t.Location.String()].findings, h.hint.Path) {
			return 1
		}
		return 0
	}
	for i := range w.handed {
		h := &w.handed[i]
		if h.urgency() > 0 || !slices.Contains(h.uris, uri) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(score(h), score(best)), h.LastSeenAt.Compare(best.LastSeenAt)) > 0 {
			best = h
		}
	}
	if best == nil {
		return nil
	}
	return reconcile.Ptr(clip(explain.Redact(best.Error), maxTriggerText))
}

// namesOne reports whether a path of a text is that of a finding, or of a folder
// above or below it.
func namesOne(findings []reconcile.Finding, path string) bool {
	return path != "" && slices.ContainsFunc(findings, func(f reconcile.Finding) bool { return samePath(f.Path, path) })
}

func samePath(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// answerHandedIn closes the failures that this pass answered.
func (w *work) answerHandedIn(ctx context.Context, out *pass.Outcome) error {
	if w.ledger == nil || len(w.handed) == 0 || out.Interrupted != nil {
		return nil
	}
	oldest := w.handed[0].LastSeenAt
	for _, h := range w.handed {
		if h.LastSeenAt.Before(oldest) {
			oldest = h.LastSeenAt
		}
	}
	repairs, err := w.ledger.ListRepairs(ctx, ledger.Filter{States: []string{ledger.StateApplied}, Since: oldest})
	if err != nil {
		return err
	}
	results := map[string]*reconcile.TargetResult{}
	for _, t := range w.found.targets {
		results[t.Location.Canonical()] = resultAt(out, t.Location.String())
	}
	var errs []error
	for _, h := range w.handed {
		answer, ok := w.answer(h, results, repairs)
		if !ok {
			continue
		}
		answer.PassID = w.doc.PassID
		done, err := w.ledger.HandleFailure(ctx, h.TaskFailure, answer)
		if errs = append(errs, err); done {
			w.log.Info("handed-in failure is handled", "failure", h.ID, "kind", h.Kind, "target", h.Target, "repair_id", answer.RepairID, "note", answer.Note)
		}
	}
	return errors.Join(errs...)
}

// What is noted of an answered failure.
const (
	noteRepaired = "repaired"
	noteClean    = "checked clean"
	noteKnown    = "checked; what it names is in the findings and accepted or harmless"
)

// answer tells what answers a failure; not ok when it stays open. It is answered when
// all the targets that it may mean are.
func (w *work) answer(h handedIn, results map[string]*reconcile.TargetResult, repairs []ledger.Repair) (ledger.Handling, bool) {
	var out ledger.Handling
	for _, uri := range h.uris {
		r := results[uri]
		if r == nil {
			return out, false
		}
		left := w.known[r.URI].findings
		whole := (r.State == reconcile.StateClean || r.State == reconcile.StateRepaired) && w.lookedAt(h, r)
		repair := repairFor(h, uri, repairs)
		switch {
		case repair != "" && (whole || judged(r.State) && !namesOne(left, h.hint.Path)):
			out.RepairID, out.Note = repair, noteRepaired
		case !whole || !h.sure && len(w.s.filter.Include) > 0:
			return out, false // a pass over chosen targets does not know whom else a bare name means
		case namesOne(left, h.hint.Path):
			out.Note = cmp.Or(out.Note, noteKnown)
		default:
			out.Note = cmp.Or(out.Note, noteClean)
		}
	}
	return out, true
}

// judged reports whether the look came to an end, so that what it did not find
// damaged is not.
func judged(s reconcile.State) bool {
	return s == reconcile.StateDiverged || s == reconcile.StateRefused
}

// lookedAt reports whether the look at the target saw what the failure speaks of.
func (w *work) lookedAt(h handedIn, r *reconcile.TargetResult) bool {
	if strings.HasPrefix(h.hint.Path, "tree/") && w.doc.Scope.Versions == reconcile.VersionsCurrent {
		return false // a branch
	}
	return !slices.ContainsFunc(r.NotChecked, func(n reconcile.NotChecked) bool { return h.hint.Role != reconcile.NoRole && n.Role == h.hint.Role })
}

// repairFor is the verified repair of a target after the failure was last handed in:
// one that answers the object that it names, else the last; empty when there is none.
func repairFor(h handedIn, uri string, repairs []ledger.Repair) string {
	var best string
	var at time.Time
	names := false
	for _, r := range repairs {
		if r.Where.URI != uri || r.VerifiedAt == nil || r.VerifiedAt.Before(h.LastSeenAt) {
			continue
		}
		n := repairNames(r, h.hint.Path)
		if best == "" || n && !names || n == names && r.VerifiedAt.After(at) {
			best, at, names = r.RepairID, *r.VerifiedAt, n
		}
	}
	return best
}

// repairNames reports whether a repair is about the object.
func repairNames(r ledger.Repair, path string) bool {
	if path == "" {
		return false
	}
	if r.IndexUUID != nil && strings.HasPrefix(path, "_indices/"+*r.IndexUUID+"/") {
		return true
	}
	same := func(file string) bool { return samePath(file, path) }
	return slices.ContainsFunc(r.Files, same) || slices.ContainsFunc(r.Fragments, func(f reconcile.RepairFragment) bool { return slices.ContainsFunc(f.MissingFiles, same) })
}
