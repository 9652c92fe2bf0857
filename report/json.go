package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
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
	if err := writeDocument(w, document(pass)); err != nil {
		return fmt.Errorf("write json report: %w", err)
	}
	return nil
}

// writeDocument writes findings one by one: the encoder would hold the text of all of
// them, several times over.
func writeDocument(w io.Writer, p reconcile.Pass) error {
	findings := p.Findings
	p.Findings = findings[:0:0]
	var doc bytes.Buffer
	if err := indented(&doc, "", p); err != nil {
		return err
	}
	// A line break cannot stand inside a JSON string, so this is the member itself.
	const member = "\n  \"findings\": ["
	at := bytes.Index(doc.Bytes(), []byte(member))
	if at < 0 {
		return errors.New("the document has no findings")
	}
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(doc.Next(at + len(member))) // Flush tells
	var one bytes.Buffer
	for i := range findings {
		one.Reset()
		if err := indented(&one, "    ", findings[i]); err != nil {
			return err
		}
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.WriteString("\n    ")
		_, _ = out.Write(bytes.TrimSuffix(one.Bytes(), []byte("\n")))
	}
	if len(findings) > 0 {
		_, _ = out.WriteString("\n  ")
	}
	_, _ = out.Write(doc.Bytes())
	return out.Flush()
}

// indented encodes v with every line but its first behind prefix.
func indented(w io.Writer, prefix string, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // paths and error texts hold & and <
	enc.SetIndent(prefix, "  ")
	return enc.Encode(v)
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
		r.Fragments, r.Files = slices.Clone(list(r.Fragments)), list(r.Files)
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
