package sqlledger

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// AddFailure implements ledger.Intake: it does what everybody else does.
func (l *Ledger) AddFailure(ctx context.Context, kind, target, failure string) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, _ time.Time) error {
		_, err := c.Exec(ctx, "INSERT INTO reconcile.task_failures (kind, target, error) VALUES ($1, $2, $3)", text(kind), text(target), text(failure))
		return err
	})
	if err != nil {
		return fmt.Errorf("hand in failure: %w", err)
	}
	return nil
}

// failures reads handed-in failures; cond is what follows WHERE.
func failures(ctx context.Context, c Conn, cond string, args []any, limit int, keep func(ledger.TaskFailure) bool) ([]ledger.TaskFailure, error) {
	out := []ledger.TaskFailure{}
	err := each(ctx, c, `SELECT failure_id, kind, target, error, state, seen_count, first_seen_at, last_seen_at, handled_at, handled_pass_id, handled_repair_id, handled_note
		FROM reconcile.failure_history WHERE `+cond, args, func(scan func(...any) error) error {
		var f ledger.TaskFailure
		if err := scan(&f.ID, &f.Kind, &f.Target, &f.Error, &f.State, &f.SeenCount, &f.FirstSeenAt, &f.LastSeenAt, &f.HandledAt, &f.HandledPassID, &f.HandledRepairID, &f.HandledNote); err != nil {
			return err
		}
		if keep == nil || keep(f) {
			out = append(out, f)
		}
		if limit > 0 && len(out) == limit {
			return errStop
		}
		return nil
	})
	return out, err
}

// PendingFailures implements ledger.Intake.
func (l *Ledger) PendingFailures(ctx context.Context, limit int) (out []ledger.TaskFailure, err error) {
	err = l.db.Read(ctx, func(ctx context.Context, c Conn, _ time.Time) error {
		if limit <= 0 {
			limit = math.MaxInt32
		}
		out, err = failures(ctx, c, `failure_id IN (SELECT failure_id FROM reconcile.task_failures WHERE handled_at IS NULL ORDER BY last_seen_at DESC, failure_id DESC LIMIT $1)
			ORDER BY failure_id`, []any{int64(limit)}, 0, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read handed-in failures: %w", err)
	}
	return out, nil
}

// ListFailures implements ledger.Reader.
func (l *Ledger) ListFailures(ctx context.Context, f ledger.Filter) (out []ledger.TaskFailure, err error) {
	err = l.list(ctx, "handed-in failures", f, func(ctx context.Context, c Conn, _ time.Time) error {
		// A failure was last touched when it was last seen or handled, the later.
		const touched = "coalesce(handled_at, last_seen_at)"
		cond, args := since(touched, f.Since)
		cond = where(cond)
		// Those that were handled are many: a list of the open ones does not read them.
		if len(f.States) == 1 && f.States[0] == ledger.FailureOpen {
			cond += " AND handled_at IS NULL"
		}
		out, err = failures(ctx, c, cond+" ORDER BY "+touched+" DESC, failure_id DESC", args, f.Limit, func(r ledger.TaskFailure) bool {
			return f.Matches(ledger.Target{Name: r.Target}) && chosen(f, r.State)
		})
		return err
	})
	return out, err
}

// HandleFailure implements ledger.Intake.
func (l *Ledger) HandleFailure(ctx context.Context, f ledger.TaskFailure, h ledger.Handling) (bool, error) {
	var n int64
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) (err error) {
		sql, args := update("reconcile.task_failures", []col{{"handled_at", now}, {"handled_pass_id", filled(h.PassID)}, {"handled_repair_id", filled(h.RepairID)}, {"handled_note", filled(h.Note)}},
			"failure_id = $1 AND seen_count = $2 AND handled_at IS NULL", f.ID, f.SeenCount)
		if n, err = c.Exec(ctx, sql, args...); err != nil || n > 0 {
			return err
		}
		// Handled by the same call whose answer was lost?
		_, err = one(ctx, c, "SELECT count(*) FROM reconcile.task_failures WHERE failure_id = $1 AND seen_count = $2 AND handled_at IS NOT NULL",
			[]any{f.ID, f.SeenCount}, &n)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("close handed-in failure: %w", err)
	}
	return n > 0, nil
}

// PutProbe implements ledger.Probes.
func (l *Ledger) PutProbe(ctx context.Context, p ledger.Probe) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		sql, args := insert("reconcile.store_probes", []col{
			{"root_uri", text(p.RootURI)}, {"probe", text(p.Name)}, {"passed", p.Passed}, {"detail", filled(p.Detail)},
			{"host", text(p.Host)}, {"tool_version", text(p.ToolVersion)}, {"probed_at", now},
		}, "ON CONFLICT (root_uri, probe) DO UPDATE SET "+excluded("passed", "detail", "host", "tool_version", "probed_at"))
		_, err := c.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("record probe: %w", err)
	}
	return nil
}

// GetProbe implements ledger.Probes.
func (l *Ledger) GetProbe(ctx context.Context, rootURI, name string, maxAge time.Duration) (*ledger.Probe, error) {
	var out *ledger.Probe
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		p := ledger.Probe{RootURI: rootURI, Name: name}
		found, err := one(ctx, c, "SELECT passed, coalesce(detail, ''), host, tool_version, probed_at FROM reconcile.store_probes WHERE root_uri = $1 AND probe = $2",
			[]any{text(rootURI), text(name)}, &p.Passed, &p.Detail, &p.Host, &p.ToolVersion, &p.ProbedAt)
		out = nil
		if found && now.Sub(p.ProbedAt) <= maxAge {
			out = &p
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read probe: %w", err)
	}
	return out, nil
}
