package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// BeginPass implements ledger.Passes.
func (l *Ledger) BeginPass(ctx context.Context, p reconcile.Pass) (time.Time, error) {
	if p.PassID == "" {
		return time.Time{}, errors.New("begin pass: no identity")
	}
	var at time.Time
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		roles := make([]string, 0, len(p.Scope.Roles))
		for _, r := range p.Scope.Roles {
			roles = append(roles, r.String())
		}
		sql, args := insert("reconcile.passes", []col{
			{"pass_id", text(p.PassID)}, {"mode", text(p.Mode)}, {"tool_version", text(p.ToolVersion)},
			{"actor", text(p.Actor)}, {"host", text(p.Host)}, {"reason", textPtr(p.Reason)}, {"started_at", now},
			{"scope_versions", p.Scope.Versions.String()}, {"scope_depth", p.Scope.Depth.String()},
			{"scope_roles", roles}, {"scope_targets_filter", list(p.Scope.TargetsFilter)},
		}, "ON CONFLICT (pass_id) DO NOTHING")
		if _, err := c.Exec(ctx, sql, args...); err != nil {
			return err
		}
		// Begun before means that the answer to the first call was lost.
		_, err := one(ctx, c, "SELECT started_at FROM reconcile.passes WHERE pass_id = $1", []any{text(p.PassID)}, &at)
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("begin pass: %w", err)
	}
	return at.UTC(), nil
}

// FinishPass implements ledger.Passes.
func (l *Ledger) FinishPass(ctx context.Context, p reconcile.Pass) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		cols := append(totals(p.Totals),
			col{"finished_at", now}, col{"exit_code", int64(p.Exit.Code)}, col{"exit_name", text(p.Exit.Name)},
			col{"coverage_references", p.Coverage.References}, col{"coverage_checked", p.Coverage.Checked},
			col{"coverage_ratio", p.Coverage.Ratio}, col{"report_uri", textPtr(p.ReportURI)},
			// An option may have narrowed these after the beginning.
			col{"reason", textPtr(p.Reason)})
		sql, args := update("reconcile.passes", cols, "pass_id = $1", text(p.PassID))
		n, err := c.Exec(ctx, sql, args...)
		if err == nil && n == 0 {
			return fmt.Errorf("%w: pass %s", ledger.ErrNotFound, p.PassID)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("finish pass: %w", err)
	}
	return nil
}

// totals are the columns of a pass's sums.
func totals(t reconcile.Totals) []col {
	cols := []col{
		{"targets", t.Targets}, {"references_found", t.References}, {"checked", t.Checked}, {"flapped", t.Flapped},
		{"findings_carried", t.Carried}, {"rows_at_risk", t.RowsAtRisk}, {"rows_dropped", t.RowsDropped}, {"bytes_restored", t.BytesRestored},
		{"requests_head", t.Requests.Head}, {"requests_get", t.Requests.Get}, {"requests_list", t.Requests.List},
		{"requests_put", t.Requests.Put}, {"requests_throttled", t.Requests.Throttled}, {"requests_retried", t.Requests.Retried},
	}
	for _, s := range reconcile.States() {
		cols = append(cols, col{"targets_" + s.String(), t.TargetsByState[s]})
	}
	for _, v := range reconcile.Verdicts() {
		cols = append(cols, col{"verdicts_" + v.String(), t.Verdicts[v]})
	}
	return cols
}

// Prune implements ledger.Passes. It goes in small transactions, so that it neither
// holds others up nor runs into a timeout.
func (l *Ledger) Prune(ctx context.Context, keep ledger.Retention) (ledger.Pruned, error) {
	var out ledger.Pruned
	var checkpoints int64
	steps := []struct {
		count *int64
		keep  time.Duration
		batch int64
		sql   string
	}{
		// What a pass said goes with it, which may be a hundred thousand rows.
		{&out.Passes, keep.Passes, 10, "DELETE FROM reconcile.passes WHERE pass_id IN (SELECT pass_id FROM reconcile.passes WHERE started_at < $1 ORDER BY started_at LIMIT $2)"},
		{&out.Findings, keep.Passes, 1000, "DELETE FROM reconcile.findings WHERE finding_id IN (SELECT finding_id FROM reconcile.findings WHERE resolved_at < $1 LIMIT $2)"},
		{&out.Failures, keep.Passes, 1000, "DELETE FROM reconcile.task_failures WHERE failure_id IN (SELECT failure_id FROM reconcile.task_failures WHERE handled_at < $1 LIMIT $2)"},
		{&out.Repairs, keep.Repairs, 100, "DELETE FROM reconcile.repairs WHERE repair_id IN (SELECT repair_id FROM reconcile.repairs WHERE settled_at < $1 OR state = 'planned' AND created_at < $1 LIMIT $2)"},
		{&checkpoints, ledger.CheckpointLifetime, 100, "DELETE FROM reconcile.look_checkpoints WHERE target_uri IN (SELECT target_uri FROM reconcile.look_checkpoints WHERE updated_at < $1 LIMIT $2)"},
	}
	for _, s := range steps {
		if s.keep <= 0 {
			continue
		}
		for {
			var n int64
			err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) (err error) {
				n, err = c.Exec(ctx, s.sql, now.Add(-s.keep), s.batch)
				return err
			})
			if err != nil {
				return out, fmt.Errorf("prune ledger: %w", err)
			}
			*s.count += n
			if n < s.batch {
				break
			}
		}
	}
	return out, nil
}
