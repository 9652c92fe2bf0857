package sqlledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// Fail implements ledger.Cooldowns.
func (l *Ledger) Fail(ctx context.Context, p ledger.CooldownPolicy, f ledger.Failure) (ledger.Cooldown, error) {
	var out ledger.Cooldown
	if f.Target == "" || !slices.Contains(ledger.Kinds(), f.Kind) {
		return out, fmt.Errorf("count failure: no target or no kind %q", f.Kind)
	}
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		// Counting locks the row; what follows from the count is worked out under it.
		sql, args := insert("reconcile.cooldowns AS c", []col{
			{"kind", string(f.Kind)}, {"target_uri", text(f.Target)}, {"consecutive_failures", int64(1)},
			{"last_error", errorText(f.Text)}, {"last_error_class", text(f.Class)}, {"last_failed_at", now},
		}, "ON CONFLICT (kind, target_uri) DO UPDATE SET consecutive_failures = c.consecutive_failures + 1, "+excluded("last_error", "last_error_class", "last_failed_at")+
			" RETURNING consecutive_failures, cooldown_until")
		var failures int64
		var before *time.Time
		if _, err := one(ctx, c, sql, args, &failures, &before); err != nil {
			return err
		}
		cooling := before != nil && before.After(now)
		length := p.Length(failures)
		if length > 0 {
			until := now.Add(length)
			// A named run that fails meanwhile prolongs the wait and never shortens it.
			if !cooling || until.After(*before) {
				if _, err := c.Exec(ctx, "UPDATE reconcile.cooldowns SET cooldown_until = $3 WHERE kind = $1 AND target_uri = $2", string(f.Kind), text(f.Target), until); err != nil {
					return err
				}
			}
		}
		cs, err := cooldowns(ctx, c, now, "c.kind = $1 AND c.target_uri = $2", []any{string(f.Kind), text(f.Target)}, 0, nil)
		if err != nil {
			return err
		}
		if len(cs) != 1 {
			return errors.New("the count is not there")
		}
		out = cs[0]
		out.Entered = length > 0 && !cooling
		return nil
	})
	if err != nil {
		return ledger.Cooldown{}, fmt.Errorf("count failure: %w", err)
	}
	return out, nil
}

// Succeed implements ledger.Cooldowns.
func (l *Ledger) Succeed(ctx context.Context, k ledger.Kind, uri string) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error { return succeed(ctx, c, now, k, text(uri)) })
	if err != nil {
		return fmt.Errorf("end cooldown: %w", err)
	}
	return nil
}

// succeed keeps what the last error was: it is still the answer to "what was it?".
func succeed(ctx context.Context, c Conn, now time.Time, k ledger.Kind, uri string) error {
	sql, args := insert("reconcile.cooldowns", []col{
		{"kind", string(k)}, {"target_uri", uri}, {"consecutive_failures", int64(0)}, {"last_succeeded_at", now},
	}, "ON CONFLICT (kind, target_uri) DO UPDATE SET consecutive_failures = 0, cooldown_until = NULL, last_succeeded_at = excluded.last_succeeded_at")
	_, err := c.Exec(ctx, sql, args...)
	return err
}

// Due implements ledger.Cooldowns.
func (l *Ledger) Due(ctx context.Context, k ledger.Kind, uris []string) (due []string, cooling map[string]ledger.Cooldown, err error) {
	// The caller's spelling comes back.
	spelled := make(map[string]string, len(uris))
	for _, u := range uris {
		spelled[text(u)] = u
	}
	err = l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		due, cooling = []string{}, map[string]ledger.Cooldown{}
		picked := map[string]bool{}
		err := each(ctx, c, `SELECT e.value FROM `+l.db.Each("$2")+`
			LEFT JOIN reconcile.targets t ON t.target_uri = e.value
			WHERE NOT EXISTS (SELECT 1 FROM reconcile.cooldowns c WHERE c.kind = $1 AND c.target_uri = e.value AND c.cooldown_until > (SELECT reconcile.now()))
			ORDER BY t.last_checked_at NULLS FIRST, e.value`, []any{string(k), list(uris)}, func(scan func(...any) error) error {
			var uri string
			if err := scan(&uri); err != nil {
				return err
			}
			if u := spelled[uri]; !picked[u] { // else it was asked for twice
				picked[u] = true
				due = append(due, u)
			}
			return nil
		})
		if err != nil {
			return err
		}
		cs, err := cooldowns(ctx, c, now, "c.kind = $1 AND c.cooldown_until IS NOT NULL", []any{string(k)}, 0, func(c ledger.Cooldown) bool {
			u, asked := spelled[c.TargetURI]
			return asked && !picked[u]
		})
		for _, c := range cs {
			cooling[spelled[c.TargetURI]] = c
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("pick work: %w", err)
	}
	return due, cooling, nil
}

func cooldowns(ctx context.Context, c Conn, now time.Time, where string, args []any, limit int, keep func(ledger.Cooldown) bool) ([]ledger.Cooldown, error) {
	out := []ledger.Cooldown{}
	err := each(ctx, c, `SELECT c.kind, c.target_uri, t.target, t.store, c.consecutive_failures, c.cooldown_until, c.last_error, c.last_error_class, c.last_failed_at, c.last_succeeded_at
		FROM reconcile.cooldowns c LEFT JOIN reconcile.targets t ON t.target_uri = c.target_uri WHERE `+where, args, func(scan func(...any) error) error {
		var r ledger.Cooldown
		var kind string
		if err := scan(&kind, &r.TargetURI, &r.Target, &r.Store, &r.ConsecutiveFailures, &r.CooldownUntil, &r.LastError, &r.LastErrorClass, &r.LastFailedAt, &r.LastSucceededAt); err != nil {
			return err
		}
		r.Kind = ledger.Kind(kind)
		r.Active = r.CooldownUntil != nil && r.CooldownUntil.After(now)
		if keep == nil || keep(r) {
			out = append(out, r)
		}
		if limit > 0 && len(out) == limit {
			return errStop
		}
		return nil
	})
	return out, err
}

// RefetchFailed implements ledger.Refetches.
func (l *Ledger) RefetchFailed(ctx context.Context, p ledger.CooldownPolicy, f ledger.RefetchFailure) (ledger.Refetch, error) {
	var out ledger.Refetch
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		sql, args := insert("reconcile.refetch_attempts AS r", []col{
			{"finding_id", text(f.FindingID)}, {"target_uri", text(f.Target)}, {"attempts", int64(1)}, {"next_attempt_at", now},
			{"peers_said_no", list(f.PeersSaidNo)}, {"last_error", errorText(f.Text)}, {"last_failed_at", now},
		}, "ON CONFLICT (finding_id) DO UPDATE SET attempts = r.attempts + 1, "+excluded("target_uri", "peers_said_no", "last_error", "last_failed_at")+" RETURNING attempts, CAST(disproved AS text)")
		var attempts int64
		var known string
		if _, err := one(ctx, c, sql, args, &attempts, &known); err != nil {
			return err
		}
		// The row is locked, so that what is added meanwhile is not lost.
		disproved, err := disprovedOf(known)
		if err != nil {
			return err
		}
		for peer, copied := range f.Disproved {
			disproved[text(peer)] = text(copied)
		}
		merged, err := json.Marshal(disproved)
		if err != nil {
			return fmt.Errorf("encode copies: %w", err)
		}
		next := now.Add(p.Length(attempts))
		out = ledger.Refetch{FindingID: f.FindingID, Attempts: attempts, NextAttemptAt: next, Due: !next.After(now), PeersSaidNo: list(f.PeersSaidNo), Disproved: disproved, LastError: errorText(f.Text)}
		_, err = c.Exec(ctx, "UPDATE reconcile.refetch_attempts SET next_attempt_at = $2, disproved = $3 WHERE finding_id = $1", text(f.FindingID), next, string(merged))
		return err
	})
	if err != nil {
		return ledger.Refetch{}, fmt.Errorf("count failed fetch: %w", err)
	}
	return out, nil
}

// disprovedOf reads the column.
func disprovedOf(column string) (map[string]string, error) {
	out := map[string]string{}
	if err := json.Unmarshal([]byte(column), &out); err != nil || out == nil {
		return nil, fmt.Errorf("read copies that failed their proof: %w", cmp.Or(err, errNoObject))
	}
	return out, nil
}

var errNoObject = errors.New("no JSON object")

// RefetchDone implements ledger.Refetches.
func (l *Ledger) RefetchDone(ctx context.Context, id string) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, _ time.Time) error {
		_, err := c.Exec(ctx, "DELETE FROM reconcile.refetch_attempts WHERE finding_id = $1", text(id))
		return err
	})
	if err != nil {
		return fmt.Errorf("forget failed fetches: %w", err)
	}
	return nil
}

// RefetchState implements ledger.Refetches.
func (l *Ledger) RefetchState(ctx context.Context, ids []string) (map[string]ledger.Refetch, error) {
	out := map[string]ledger.Refetch{}
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		clear(out)
		return each(ctx, c, `SELECT r.finding_id, r.attempts, r.next_attempt_at, r.peers_said_no, CAST(r.disproved AS text), coalesce(r.last_error, '')
			FROM `+l.db.Each("$1")+` JOIN reconcile.refetch_attempts r ON r.finding_id = e.value`, []any{list(ids)}, func(scan func(...any) error) error {
			var r ledger.Refetch
			var disproved string
			err := scan(&r.FindingID, &r.Attempts, &r.NextAttemptAt, &r.PeersSaidNo, &disproved, &r.LastError)
			if err != nil {
				return err
			}
			if r.Disproved, err = disprovedOf(disproved); err != nil {
				return err
			}
			r.Due = !r.NextAttemptAt.After(now)
			out[r.FindingID] = r
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read failed fetches: %w", err)
	}
	return out, nil
}

// Postpone implements ledger.Cooldowns.
func (l *Ledger) Postpone(ctx context.Context, targets []ledger.Target, cycle time.Duration) (map[string]time.Time, error) {
	overdue := map[string]time.Time{}
	spelled := make(map[string]string, len(targets))
	uris := make([]string, len(targets))
	for i, t := range targets {
		spelled[text(t.URI)], uris[i] = t.URI, t.URI
	}
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		for _, t := range targets {
			if err := meetTarget(ctx, c, now, t, "", false, nil); err != nil {
				return err
			}
		}
		clear(overdue)
		return each(ctx, c, `SELECT t.target_uri, coalesce(t.last_checked_at, t.first_seen_at) FROM `+l.db.Each("$1")+`
			JOIN reconcile.targets t ON t.target_uri = e.value WHERE coalesce(t.last_checked_at, t.first_seen_at) < $2`,
			[]any{list(uris), now.Add(-cycle)}, func(scan func(...any) error) error {
				var uri string
				var at time.Time
				if err := scan(&uri, &at); err != nil {
					return err
				}
				overdue[spelled[uri]] = at
				return nil
			})
	})
	if err != nil {
		return nil, fmt.Errorf("postpone targets: %w", err)
	}
	return overdue, nil
}
