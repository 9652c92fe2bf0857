package sqlledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// RecordTarget implements ledger.Findings.
func (l *Ledger) RecordTarget(ctx context.Context, r ledger.TargetRecord) (ledger.TargetSummary, error) {
	var sum ledger.TargetSummary
	findings, answers, err := sortOut(r)
	if err == nil {
		err = l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) (err error) {
			sum, err = record(ctx, c, now, r, findings, answers)
			return err
		})
	}
	if err != nil {
		return ledger.TargetSummary{}, fmt.Errorf("record target %s: %w", r.Target.Name, err)
	}
	return sum, nil
}

// sortOut tells the findings that are open from those that are answered. They are the
// caller's own, since there may be very many.
func sortOut(r ledger.TargetRecord) ([]*reconcile.Finding, map[string]ledger.Answer, error) {
	if r.PassID == "" || r.Target.URI == "" {
		return nil, nil, errors.New("no pass or no target")
	}
	answers := make(map[string]ledger.Answer, len(r.Answers))
	for id, a := range r.Answers {
		if a != ledger.Unknown {
			answers[id] = a
		}
	}
	findings := make([]*reconcile.Finding, 0, len(r.Findings))
	seen := make(map[string]bool, len(r.Findings))
	for i := range r.Findings {
		f := &r.Findings[i]
		switch f.Verdict {
		case reconcile.Present:
			return nil, nil, fmt.Errorf("finding %s is present", f.FindingID)
		case reconcile.Superseded:
			answers[f.FindingID] = ledger.NotNamed
			continue
		}
		if seen[f.FindingID] {
			return nil, nil, fmt.Errorf("finding %s stands twice", f.FindingID)
		}
		seen[f.FindingID] = true
		findings = append(findings, f)
	}
	for id := range seen {
		delete(answers, id) // what was found again is not resolved
	}
	return findings, answers, nil
}

func record(ctx context.Context, c Conn, now time.Time, r ledger.TargetRecord, findings []*reconcile.Finding, answers map[string]ledger.Answer) (ledger.TargetSummary, error) {
	var sum ledger.TargetSummary
	var began time.Time
	found, err := one(ctx, c, "SELECT started_at FROM reconcile.passes WHERE pass_id = $1", []any{text(r.PassID)}, &began)
	if err != nil {
		return sum, err
	}
	if !found {
		return sum, fmt.Errorf("%w: pass %s", ledger.ErrNotFound, r.PassID)
	}
	if r.Lease != nil {
		if err := hold(ctx, c, *r.Lease, false); err != nil {
			return sum, err
		}
	}
	// The target's row first: two that record the same target take turns on it.
	if err := meetTarget(ctx, c, now, r.Target, r.PassID, looked(r.Result), r.Result.Version); err != nil {
		return sum, err
	}
	if err := recordResult(ctx, c, now, r); err != nil {
		return sum, err
	}
	if r.CheckSucceeded {
		// One transaction less for each of ten thousand targets.
		if err := succeed(ctx, c, now, ledger.KindCheck, text(r.Target.URI)); err != nil {
			return sum, err
		}
	}
	fresh, err := withoutStale(ctx, c, r, began, findings)
	if err != nil {
		return sum, err
	}
	sum.Stale = int64(len(findings) - len(fresh))
	if err := recordFindings(ctx, c, now, r, fresh, &sum); err != nil {
		return sum, err
	}
	if sum.Resolved, err = resolve(ctx, c, now, r, began, answers); err != nil {
		return sum, err
	}
	_, err = one(ctx, c, "SELECT count(*) FROM reconcile.findings WHERE target_uri = $1 AND resolved_at IS NULL AND last_pass_id <> $2",
		[]any{r.Target.URI, text(r.PassID)}, &sum.Carried)
	return sum, err
}

// looked reports whether a pass looked at the target: finding it locked, cooled down
// or failing before the first look is not one.
func looked(t reconcile.TargetResult) bool {
	switch t.State {
	case reconcile.StateLocked:
		return false
	case reconcile.StateCoolingDown, reconcile.StateFailed:
		return t.Checked > 0 || t.Version != nil
	}
	return true
}

// meetTarget writes the target's row. What the caller does not know of it (passID,
// names) is empty and stays as it was.
func meetTarget(ctx context.Context, c Conn, now time.Time, t ledger.Target, passID string, looked bool, seen *uint64) error {
	cols := []col{
		{"target_uri", text(t.URI)}, {"target", text(t.Name)}, {"store", text(t.Store)}, {"kind", text(t.Kind)},
		{"first_seen_at", now}, {"last_seen_at", now}, {"highest_version", version(seen)},
	}
	take := []string{"last_seen_at"}
	if passID != "" {
		cols, take = append(cols, col{"last_pass_id", text(passID)}), append(take, "last_pass_id")
	}
	if looked {
		cols, take = append(cols, col{"last_checked_at", now}), append(take, "last_checked_at")
	}
	sql, args := insert("reconcile.targets AS t", cols, "ON CONFLICT (target_uri) DO UPDATE SET "+excluded(take...)+`,
		target = CASE WHEN excluded.target = '' THEN t.target ELSE excluded.target END,
		store = CASE WHEN excluded.store = '' THEN t.store ELSE excluded.store END,
		kind = CASE WHEN excluded.kind = '' THEN t.kind ELSE excluded.kind END,
		highest_version = CASE WHEN t.highest_version IS NULL OR excluded.highest_version > t.highest_version THEN excluded.highest_version ELSE t.highest_version END`)
	_, err := c.Exec(ctx, sql, args...)
	return err
}

func recordResult(ctx context.Context, c Conn, now time.Time, r ledger.TargetRecord) error {
	t := r.Result
	notChecked := t.NotChecked
	if notChecked == nil {
		notChecked = []reconcile.NotChecked{}
	}
	roles, err := json.Marshal(notChecked)
	if err != nil {
		return fmt.Errorf("encode roles: %w", err)
	}
	cols := []col{
		{"pass_id", text(r.PassID)}, {"target_uri", text(r.Target.URI)}, {"target", text(r.Target.Name)}, {"store", text(r.Target.Store)}, {"kind", text(r.Target.Kind)},
		{"version", version(t.Version)}, {"state", t.State.String()}, {"reason", textPtr(t.Reason)},
		{"references_found", t.References}, {"checked", t.Checked}, {"findings", t.Findings}, {"rows_at_risk", t.RowsAtRisk},
		{"live_rows", t.LiveRows}, {"fragments", t.Fragments}, {"pending_generations", t.PendingGenerations}, {"registry", textPtr(t.Registry)},
		{"not_checked", string(roles)}, {"recorded_at", now},
	}
	var names []string
	for _, c := range cols[2:] {
		names = append(names, c.name)
	}
	sql, args := insert("reconcile.pass_targets", cols, "ON CONFLICT (pass_id, target_uri) DO UPDATE SET "+excluded(names...))
	_, err = c.Exec(ctx, sql, args...)
	return err
}

// The columns of a finding, with the types in which they are staged. The history
// columns after them are worked out by the upsert.
var findingColumns = []string{
	"finding_id text", "target_uri text", "target text", "store text", "role text", "path text", "url text", "version bigint", "scopes text[]",
	"fragment_id bigint", "verdict text", "reason text", "expected_size bigint", "observed_size bigint", "expected_checksum text", "observed_checksum text",
	"physical_rows bigint", "rows_at_risk bigint", "columns_lost text[]", "columns_kept text[]", "http_status bigint", "error_code text", "request_id text",
	"first_observed_at timestamptz", "confirmed_at timestamptz", "recoverable_until timestamptz", "peers_asked text[]", "peers_having text[]",
	"proposed_action text", "blocked_by text[]", "record text", "harmless boolean", "depth text", "versions text",
}

// What the upsert needs besides.
var sightingColumns = []string{"seen_at timestamptz", "pass_id text", "damaged boolean"}

func columnNames(columns []string) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i], _, _ = strings.Cut(c, " ")
	}
	return names
}

func findingValues(r ledger.TargetRecord, f *reconcile.Finding) []any {
	return []any{
		text(f.FindingID), text(r.Target.URI), text(r.Target.Name), text(r.Target.Store), f.Role.String(), text(f.Path), text(f.URL), version(&f.Version), list(f.Scopes),
		signed(f.FragmentID), f.Verdict.String(), textPtr(f.Reason), f.ExpectedSize, f.ObservedSize, textPtr(f.ExpectedChecksum), textPtr(f.ObservedChecksum),
		f.PhysicalRows, f.RowsAtRisk, list(f.ColumnsLost), list(f.ColumnsKept), wide(f.HTTPStatus), textPtr(f.ErrorCode), textPtr(f.RequestID),
		f.FirstObservedAt, f.ConfirmedAt, f.RecoverableUntil, list(f.PeersAsked), list(f.PeersHaving),
		f.ProposedAction.String(), list(f.BlockedBy), textPtr(f.Record), f.Ref.Harmless, r.Look.Depth.String(), r.Look.Versions.String(),
	}
}

// recordFindings takes findings in and counts those that are new or open again.
func recordFindings(ctx context.Context, c Conn, now time.Time, r ledger.TargetRecord, findings []*reconcile.Finding, sum *ledger.TargetSummary) error {
	// In the order of inOrder over all parts.
	slices.SortFunc(findings, func(a, b *reconcile.Finding) int { return strings.Compare(a.FindingID, b.FindingID) })
	first := true
	for part := range slices.Chunk(findings, stagedAtOnce) {
		if !first {
			// Not every database empties the table before the transaction ends.
			if _, err := c.Exec(ctx, "DELETE FROM incoming_findings"); err != nil {
				return err
			}
		}
		first = false
		rows := make([][]any, len(part))
		for i, f := range part {
			rows[i] = append(findingValues(r, f), now, text(r.PassID), ledger.CountsAsDamage(f.Verdict) && !f.Ref.Harmless)
		}
		if err := c.Stage(ctx, "incoming_findings", slices.Concat(findingColumns, sightingColumns), rows); err != nil {
			return err
		}
		var fresh, again int64
		_, err := one(ctx, c, `SELECT count(*) FILTER (WHERE f.finding_id IS NULL), count(*) FILTER (WHERE f.resolved_at IS NOT NULL)
			FROM incoming_findings i LEFT JOIN reconcile.findings f ON f.finding_id = i.finding_id`, nil, &fresh, &again)
		if err != nil {
			return err
		}
		sum.New, sum.Reopened = sum.New+fresh, sum.Reopened+again
		if _, err := c.Exec(ctx, upsertFindings); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, upsertSightings); err != nil {
			return err
		}
	}
	return nil
}

// stagedAtOnce bounds the rows on their way: a row takes more room than its finding, and
// the database that keeps staged ones in this process's memory keeps as many.
const stagedAtOnce = 4096

// inOrder sorts rows by their first column, the key of a finding, which is a digest: in
// the order of the index each of its pages is met once, and two that write the same
// findings meet them in the same order.
func inOrder(rows [][]any) {
	slices.SortFunc(rows, func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) })
}

// upsertFindings takes the staged findings in. Of a finding that is open it keeps what
// was seen before: the deepest and widest look, since when it is damaged, that it is
// acknowledged. One that was resolved begins anew. Who waited for another record, or
// whose clock was set back, does not move the last sight back.
var upsertFindings = func() string {
	names := columnNames(findingColumns)
	taken := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "finding_id" || n == "depth" || n == "versions" })
	open := "f.resolved_at IS NULL"
	keep := func(column, rank, incoming string) string {
		return fmt.Sprintf("%s = CASE WHEN %s AND %s > %s THEN f.%s ELSE excluded.%s END", column, open, rank, incoming, column, column)
	}
	return `INSERT INTO reconcile.findings AS f (` + strings.Join(names, ", ") + `, first_seen_at, last_seen_at, damaged_since, seen_count, first_pass_id, last_pass_id)
SELECT ` + strings.Join(names, ", ") + `, seen_at, seen_at, CASE WHEN damaged THEN seen_at END, 1, pass_id, pass_id FROM incoming_findings WHERE true
ON CONFLICT (finding_id) DO UPDATE SET ` + excluded(taken...) + `,
	` + keep("depth", depthRank("f.depth"), depthRank("excluded.depth")) + `,
	` + keep("versions", versionsRank("f.versions"), versionsRank("excluded.versions")) + `,
	last_seen_at = CASE WHEN excluded.last_seen_at > f.last_seen_at THEN excluded.last_seen_at ELSE f.last_seen_at END,
	damaged_since = CASE WHEN ` + open + ` THEN coalesce(f.damaged_since, excluded.damaged_since) ELSE excluded.damaged_since END,
	seen_count = f.seen_count + CASE WHEN f.last_pass_id = excluded.last_pass_id THEN 0 ELSE 1 END,
	last_pass_id = excluded.last_pass_id,
	resolved_at = NULL, resolution = NULL, resolved_pass_id = NULL,
	acknowledged_until = CASE WHEN ` + open + ` THEN f.acknowledged_until END,
	acknowledged_at = CASE WHEN ` + open + ` THEN f.acknowledged_at END,
	ack_reason = CASE WHEN ` + open + ` THEN f.ack_reason END,
	ack_actor = CASE WHEN ` + open + ` THEN f.ack_actor END`
}()

const upsertSightings = `INSERT INTO reconcile.pass_findings (pass_id, finding_id, event, verdict, rows_at_risk, recorded_at)
SELECT pass_id, finding_id, 'seen', verdict, rows_at_risk, seen_at FROM incoming_findings WHERE true
ON CONFLICT (pass_id, finding_id) DO UPDATE SET event = 'seen', verdict = excluded.verdict, rows_at_risk = excluded.rows_at_risk, recorded_at = excluded.recorded_at`

// withoutStale leaves out what another pass saw resolved after this one began: a pass
// that was held up does not open again what was healed meanwhile.
func withoutStale(ctx context.Context, c Conn, r ledger.TargetRecord, began time.Time, findings []*reconcile.Finding) ([]*reconcile.Finding, error) {
	if len(findings) == 0 {
		return nil, nil
	}
	healed := map[string]bool{}
	err := each(ctx, c, "SELECT finding_id FROM reconcile.findings WHERE target_uri = $1 AND resolved_at > $2 AND resolved_pass_id <> $3",
		[]any{text(r.Target.URI), began, text(r.PassID)}, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			healed[id] = true
			return err
		})
	if err != nil || len(healed) == 0 {
		return findings, err
	}
	return slices.DeleteFunc(slices.Clone(findings), func(f *reconcile.Finding) bool { return healed[text(f.FindingID)] }), nil
}

// resolve ends the open findings that the look answers. A look that began before the
// finding was last seen by another pass does not know better.
func resolve(ctx context.Context, c Conn, now time.Time, r ledger.TargetRecord, began time.Time, answers map[string]ledger.Answer) (int64, error) {
	if len(answers) == 0 {
		return 0, nil
	}
	var rows [][]any
	err := each(ctx, c, "SELECT finding_id, depth, versions, last_pass_id, last_seen_at FROM reconcile.findings WHERE target_uri = $1 AND resolved_at IS NULL",
		[]any{text(r.Target.URI)}, func(scan func(...any) error) error {
			var id, depth, versions, pass string
			var seen time.Time
			if err := scan(&id, &depth, &versions, &pass, &seen); err != nil {
				return err
			}
			var found ledger.Look
			if err := errors.Join(word(depth, &found.Depth), word(versions, &found.Versions)); err != nil {
				return err
			}
			if r.Look.Resolves(found, answers[id]) && (pass == r.PassID || !seen.After(began)) {
				rows = append(rows, []any{id, answers[id].String(), text(r.PassID), now})
			}
			return nil
		})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	inOrder(rows)
	if err := c.Stage(ctx, "incoming_answers", []string{"finding_id text", "answer text", "pass_id text", "answered_at timestamptz"}, rows); err != nil {
		return 0, err
	}
	if _, err := c.Exec(ctx, `INSERT INTO reconcile.pass_findings (pass_id, finding_id, event, verdict, rows_at_risk, recorded_at)
SELECT a.pass_id, f.finding_id, a.answer, f.verdict, f.rows_at_risk, a.answered_at
FROM incoming_answers a JOIN reconcile.findings f ON f.finding_id = a.finding_id WHERE true
ON CONFLICT (pass_id, finding_id) DO UPDATE SET event = excluded.event, verdict = excluded.verdict, rows_at_risk = excluded.rows_at_risk, recorded_at = excluded.recorded_at`); err != nil {
		return 0, err
	}
	return c.Exec(ctx, `UPDATE reconcile.findings AS f SET resolved_at = a.answered_at, resolution = a.answer, resolved_pass_id = a.pass_id
FROM incoming_answers a WHERE f.finding_id = a.finding_id`)
}
