package sqlledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// list reads through fn after the filter was found readable.
func (l *Ledger) list(ctx context.Context, what string, f ledger.Filter, fn func(ctx context.Context, c Conn, now time.Time) error) error {
	err := f.Validate()
	if err == nil {
		err = l.db.Read(ctx, fn)
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// since is a condition on a time column; the zero time is none.
func since(column string, t time.Time) (string, []any) {
	if t.IsZero() {
		return "", nil
	}
	return column + " >= $1", []any{t.UTC()}
}

func where(cond string) string {
	if cond == "" {
		return "true"
	}
	return cond
}

// ListFindings implements ledger.Reader.
func (l *Ledger) ListFindings(ctx context.Context, f ledger.Filter) (out []ledger.Finding, err error) {
	err = l.list(ctx, "findings", f, func(ctx context.Context, c Conn, now time.Time) (err error) {
		// A finding was last touched when it was last seen or resolved, the later.
		cond, args := since("coalesce(f.resolved_at, f.last_seen_at)", f.Since)
		out, err = findings(ctx, c, now, where(cond)+" ORDER BY coalesce(f.resolved_at, f.last_seen_at) DESC, f.finding_id"+limit(f), args, f.Limit, func(r ledger.Finding) bool {
			if !f.Matches(ledger.Target{URI: r.TargetURI, Name: r.Finding.Target, Store: r.Finding.Store}) {
				return false
			}
			return chosen(f, r.Finding.Verdict.String(), either(r.ResolvedAt != nil, "resolved", "open"), either(r.Acknowledged && r.ResolvedAt == nil, "acknowledged", ""))
		})
		return err
	})
	return out, err
}

func either(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

// chosen reports whether a row with these states passes the filter.
func chosen(f ledger.Filter, states ...string) bool {
	return len(f.States) == 0 || slices.ContainsFunc(states, func(s string) bool { return s != "" && slices.Contains(f.States, s) })
}

// limit is left to the database where nothing is chosen after it; else it would send
// rows that nobody reads.
func limit(f ledger.Filter) string {
	if f.Limit <= 0 || len(f.Targets) > 0 || len(f.States) > 0 {
		return ""
	}
	return fmt.Sprintf(" LIMIT %d", f.Limit)
}

// ListRepairs implements ledger.Reader.
func (l *Ledger) ListRepairs(ctx context.Context, f ledger.Filter) (out []ledger.Repair, err error) {
	err = l.list(ctx, "repairs", f, func(ctx context.Context, c Conn, _ time.Time) (err error) {
		cond, args := since("coalesce(r.settled_at, r.created_at)", f.Since)
		out, err = l.repairs(ctx, c, where(cond)+" ORDER BY r.created_at DESC, r.repair_id DESC"+limit(f), args, f.Limit, func(r ledger.Repair) bool {
			return f.Matches(r.Where) && chosen(f, r.State)
		})
		return err
	})
	return out, err
}

// ListCooldowns implements ledger.Reader.
func (l *Ledger) ListCooldowns(ctx context.Context, f ledger.Filter) (out []ledger.Cooldown, err error) {
	err = l.list(ctx, "cooldowns", f, func(ctx context.Context, c Conn, now time.Time) (err error) {
		cond, args := since("c.last_failed_at", f.Since)
		out, err = cooldowns(ctx, c, now, where(cond)+" ORDER BY c.last_failed_at DESC NULLS LAST, c.kind, c.target_uri", args, f.Limit, func(r ledger.Cooldown) bool {
			t := ledger.Target{URI: r.TargetURI}
			if r.Target != nil && r.Store != nil {
				t.Name, t.Store = *r.Target, *r.Store
			}
			return f.Matches(t) && chosen(f, either(r.Active, "active", "inactive"), string(r.Kind))
		})
		return err
	})
	return out, err
}

const selectPasses = `SELECT p.pass_id, p.mode, p.tool_version, p.actor, p.host, p.reason, p.started_at, p.finished_at, p.exit_code, p.exit_name,
	p.scope_versions, p.scope_depth, p.coverage_ratio, p.targets, p.checked, p.rows_at_risk, p.rows_dropped,
	p.findings_seen, p.findings_resolved, p.repairs, p.repairs_applied, p.report_uri FROM reconcile.pass_summary p`

func passes(ctx context.Context, c Conn, where string, args []any, limit int, keep func(ledger.PassRow) bool) ([]ledger.PassRow, error) {
	out := []ledger.PassRow{}
	err := each(ctx, c, selectPasses+" WHERE "+where, args, func(scan func(...any) error) error {
		var p ledger.PassRow
		if err := scan(&p.PassID, &p.Mode, &p.ToolVersion, &p.Actor, &p.Host, &p.Reason, &p.StartedAt, &p.FinishedAt, &p.ExitCode, &p.ExitName,
			&p.ScopeVersions, &p.ScopeDepth, &p.CoverageRatio, &p.Targets, &p.Checked, &p.RowsAtRisk, &p.RowsDropped,
			&p.FindingsSeen, &p.FindingsResolved, &p.Repairs, &p.RepairsApplied, &p.ReportURI); err != nil {
			return err
		}
		if keep == nil || keep(p) {
			out = append(out, p)
		}
		if limit > 0 && len(out) == limit {
			return errStop
		}
		return nil
	})
	return out, err
}

// ListPasses implements ledger.Reader. With patterns it lists the passes that met one
// of the targets.
func (l *Ledger) ListPasses(ctx context.Context, f ledger.Filter) (out []ledger.PassRow, err error) {
	err = l.list(ctx, "passes", f, func(ctx context.Context, c Conn, _ time.Time) error {
		met, err := l.passesOf(ctx, c, f)
		if err != nil {
			return err
		}
		cond, args := since("p.started_at", f.Since)
		out, err = passes(ctx, c, where(cond)+" ORDER BY p.started_at DESC, p.pass_id DESC"+limit(f), args, f.Limit, func(p ledger.PassRow) bool {
			state := "running"
			if p.ExitName != nil {
				state = *p.ExitName
			}
			return (met == nil || met[p.PassID]) && chosen(f, state)
		})
		return err
	})
	return out, err
}

// passesOf are the passes that met a target of the filter; nil when it names none.
func (l *Ledger) passesOf(ctx context.Context, c Conn, f ledger.Filter) (map[string]bool, error) {
	if len(f.Targets) == 0 {
		return nil, nil
	}
	uris := []string{}
	err := each(ctx, c, "SELECT target_uri, target, store FROM reconcile.targets", nil, func(scan func(...any) error) error {
		var t ledger.Target
		err := scan(&t.URI, &t.Name, &t.Store)
		if err == nil && f.Matches(t) {
			uris = append(uris, t.URI)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	met := map[string]bool{}
	err = each(ctx, c, "SELECT DISTINCT p.pass_id FROM "+l.db.Each("$1")+" JOIN reconcile.pass_targets p ON p.target_uri = e.value", []any{uris}, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		met[id] = true
		return err
	})
	return met, err
}

// ListTargets implements ledger.Reader.
func (l *Ledger) ListTargets(ctx context.Context, f ledger.Filter) (out []ledger.TargetHealth, err error) {
	err = l.list(ctx, "targets", f, func(ctx context.Context, c Conn, _ time.Time) error {
		out = []ledger.TargetHealth{}
		cond, args := since("h.last_seen_at", f.Since)
		return each(ctx, c, `SELECT h.target, h.store, h.kind, h.target_uri, h.state, h.reason, h.version, h.highest_version, h.last_seen_at, h.last_checked_at,
			h.open_findings, h.damaged_objects, h.acknowledged, h.rows_at_risk, h.damaged_since, h.check_cooldown_until, h.repair_cooldown_until,
			h.unsettled_repairs, h.last_repaired_at, h.rows_dropped
			FROM reconcile.target_health h WHERE `+where(cond)+` ORDER BY h.last_seen_at DESC, h.store, h.target`, args, func(scan func(...any) error) error {
			var h ledger.TargetHealth
			if err := scan(&h.Name, &h.Store, &h.Kind, &h.URI, &h.State, &h.Reason, &h.Version, &h.HighestVersion, &h.LastSeenAt, &h.LastCheckedAt,
				&h.OpenFindings, &h.DamagedObjects, &h.Acknowledged, &h.RowsAtRisk, &h.DamagedSince, &h.CheckCooldownUntil, &h.RepairCooldownUntil,
				&h.UnsettledRepairs, &h.LastRepairedAt, &h.RowsDropped); err != nil {
				return err
			}
			state := ""
			if h.State != nil {
				state = *h.State
			}
			if f.Matches(h.Target) && chosen(f, state) {
				out = append(out, h)
			}
			if f.Limit > 0 && len(out) == f.Limit {
				return errStop
			}
			return nil
		})
	})
	return out, err
}
