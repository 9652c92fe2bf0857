// Package wal has workers merge pending MemWAL generations into their tables, for
// deployments in which nothing else schedules that.
//
// A generation is a small dataset of rows that were acknowledged and are not in the
// base table yet; only the worker whose shard it is of can merge it. Every worker is
// asked, one after another: two merges of one table at once would spoil each other's
// commits. That holds for the users of one ledger, through the target's lock.
package wal

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Target is a target that a merge is due for.
type Target struct {
	reconcile.Target
	// Pending generations, as the pass counted them.
	Pending int64
}

// Due picks the targets with at least least pending generations, most pending first,
// out of what a pass found. It touches nothing.
//
// Only targets that the pass found clean, or repaired and verified, are due: a merge
// over anything that is damaged or was not judged fails, and so fails for ever. That
// somebody acknowledged the damage mends nothing. Of a write-ahead log everything must
// have been looked at and be whole.
func Due(targets []reconcile.Target, results []reconcile.TargetResult, findings []reconcile.Finding, least int64) []Target {
	type name struct{ store, target string }
	damaged, repaired := map[name]bool{}, map[name]bool{}
	for _, r := range results {
		repaired[name{r.Store, r.Target}] = r.State == reconcile.StateRepaired
	}
	for _, f := range findings {
		k := name{f.Store, f.Target}
		switch {
		case f.Ref.Harmless, f.Verdict == reconcile.Present, f.Verdict == reconcile.Superseded:
		case ofWAL(f.Role), !repaired[k]: // the findings of what was repaired are those of before
			damaged[k] = true
		}
	}
	byURI := map[string]reconcile.TargetResult{}
	for _, r := range results {
		byURI[r.URI] = r
	}
	var out []Target
	for _, t := range targets {
		r, met := byURI[t.Location.String()]
		if !met || r.PendingGenerations == nil || *r.PendingGenerations < least || mustRest(r) || damaged[name{r.Store, r.Target}] {
			continue
		}
		if _, ok := Address("http://worker", t); ok {
			out = append(out, Target{Target: t, Pending: *r.PendingGenerations})
		}
	}
	slices.SortStableFunc(out, func(a, b Target) int { return cmp.Compare(b.Pending, a.Pending) })
	return out
}

func ofWAL(r reconcile.Role) bool {
	return r == reconcile.RoleWALManifest || r == reconcile.RoleWALGeneration
}

// mustRest reports whether the table is not to be merged into now.
func mustRest(r reconcile.TargetResult) bool {
	if r.State != reconcile.StateClean && r.State != reconcile.StateRepaired {
		return true
	}
	return slices.ContainsFunc(r.NotChecked, func(n reconcile.NotChecked) bool { return ofWAL(n.Role) })
}

// Address is where a worker is asked to merge a target's generations; ok is false
// for kinds of targets that have none.
func Address(endpoint string, t reconcile.Target) (address string, ok bool) {
	base := strings.TrimRight(endpoint, "/") + "/api/v1/"
	name := t.Name
	switch t.Kind {
	case "rollout":
	case "generic":
		name, ok = strings.CutPrefix(name, "generic:")
		if !ok {
			return "", false
		}
	default:
		return "", false
	}
	if name == "" || name == "." || name == ".." { // no segment of a path
		return "", false
	}
	if t.Kind == "generic" {
		return base + "generic/" + url.PathEscape(name) + "/merge-wal", true
	}
	return base + "internal/merge-wal/" + url.PathEscape(name), true
}
