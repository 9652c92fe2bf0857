package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/rocketkeep/reconcile/reconcile"
)

// MaxJSONFindings is how many findings the JSON document holds at most; the Parquet
// report always holds all of them.
const MaxJSONFindings = 10_000

// JSON writes the pass as one document (contract: JSON): times in UTC, unknown as
// null, arrays never null. Beyond [MaxJSONFindings] findings it sets
// findings_truncated. The caller's pass is not changed.
func JSON(w io.Writer, pass reconcile.Pass) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // paths and error texts hold & and <
	enc.SetIndent("", "  ")
	if err := enc.Encode(document(pass)); err != nil {
		return fmt.Errorf("write json report: %w", err)
	}
	return nil
}

// document is a copy of pass that marshals as the contract says.
func document(p reconcile.Pass) reconcile.Pass {
	p.StartedAt, p.FinishedAt = p.StartedAt.UTC(), p.FinishedAt.UTC()
	p.Scope.Roles = list(p.Scope.Roles)
	p.Scope.TargetsFilter = list(p.Scope.TargetsFilter)
	p.Targets = slices.Clone(list(p.Targets))
	for i := range p.Targets {
		p.Targets[i].NotChecked = list(p.Targets[i].NotChecked)
	}
	if len(p.Findings) > MaxJSONFindings {
		p.Findings, p.FindingsTruncated = p.Findings[:MaxJSONFindings], true
	}
	p.Findings = slices.Clone(list(p.Findings))
	for i := range p.Findings {
		f := &p.Findings[i]
		f.Scopes, f.ColumnsLost, f.ColumnsKept = list(f.Scopes), list(f.ColumnsLost), list(f.ColumnsKept)
		f.PeersAsked, f.PeersHaving, f.BlockedBy = list(f.PeersAsked), list(f.PeersHaving), list(f.BlockedBy)
		f.FirstObservedAt, f.ConfirmedAt, f.RecoverableUntil = f.FirstObservedAt.UTC(), utc(f.ConfirmedAt), utc(f.RecoverableUntil)
	}
	p.Repairs = slices.Clone(list(p.Repairs))
	for i := range p.Repairs {
		r := &p.Repairs[i]
		r.Fragments = slices.Clone(list(r.Fragments))
		for j := range r.Fragments {
			r.Fragments[j].MissingFiles = list(r.Fragments[j].MissingFiles)
		}
	}
	p.Posts, p.Merges = list(p.Posts), list(p.Merges)
	return p
}

// list is s, never nil.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
