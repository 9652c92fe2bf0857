package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

var historyColumns = []string{
	"first_seen_at", "last_seen_at", "damaged_since", "seen_count", "first_pass_id", "last_pass_id",
	"resolved_at", "resolution", "resolved_pass_id", "acknowledged_until", "ack_reason", "ack_actor",
}

// selectFindings reads findings as scanFinding takes them; f is the table's name.
var selectFindings = func() string {
	names := append(columnNames(findingColumns), historyColumns...)
	return "SELECT f." + strings.Join(names, ", f.") + " FROM reconcile.findings f"
}()

func scanFinding(scan func(...any) error, now time.Time) (ledger.Finding, error) {
	var out ledger.Finding
	f, h := &out.Finding, &out.History
	var role, verdict, action, depth, versions string
	var newest, fragment, status *int64
	err := scan(&f.FindingID, &h.TargetURI, &f.Target, &f.Store, &role, &f.Path, &f.URL, &newest, &f.Scopes,
		&fragment, &verdict, &f.Reason, &f.ExpectedSize, &f.ObservedSize, &f.ExpectedChecksum, &f.ObservedChecksum,
		&f.PhysicalRows, &f.RowsAtRisk, &f.ColumnsLost, &f.ColumnsKept, &status, &f.ErrorCode, &f.RequestID,
		&f.FirstObservedAt, &f.ConfirmedAt, &f.RecoverableUntil, &f.PeersAsked, &f.PeersHaving,
		&action, &f.BlockedBy, &f.Record, &h.Harmless, &depth, &versions,
		&h.FirstSeenAt, &h.LastSeenAt, &h.DamagedSince, &h.SeenCount, &h.FirstPassID, &h.LastPassID,
		&h.ResolvedAt, &h.Resolution, &h.ResolvedPassID, &h.AcknowledgedUntil, &h.AckReason, &h.AckActor)
	if err != nil {
		return out, err
	}
	if newest != nil {
		f.Version = uint64(*newest)
	}
	f.FragmentID = unsigned(fragment)
	if status != nil {
		f.HTTPStatus = reconcile.Ptr(int(*status))
	}
	f.Ref.Harmless = h.Harmless
	h.Acknowledged = h.AcknowledgedUntil != nil && h.AcknowledgedUntil.After(now)
	return out, errors.Join(word(role, &f.Role), word(verdict, &f.Verdict), word(action, &f.ProposedAction), word(depth, &h.Depth), word(versions, &h.Versions))
}

// findings reads findings; where follows "WHERE". keep may be nil.
func findings(ctx context.Context, c Conn, now time.Time, where string, args []any, limit int, keep func(ledger.Finding) bool) ([]ledger.Finding, error) {
	out := []ledger.Finding{}
	err := each(ctx, c, selectFindings+" WHERE "+where, args, func(scan func(...any) error) error {
		f, err := scanFinding(scan, now)
		if err != nil {
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

// OpenFindings implements ledger.Findings.
func (l *Ledger) OpenFindings(ctx context.Context, uri string) ([]ledger.Finding, error) {
	var out []ledger.Finding
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) (err error) {
		out, err = findings(ctx, c, now, openOfTarget, []any{text(uri)}, 0, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read open findings: %w", err)
	}
	return out, nil
}

// EachOpenFinding implements ledger.Findings.
func (l *Ledger) EachOpenFinding(ctx context.Context, uri string, take func(ledger.Finding)) error {
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		_, err := findings(ctx, c, now, openOfTarget, []any{text(uri)}, 0, func(f ledger.Finding) bool {
			take(f)
			return false
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read open findings: %w", err)
	}
	return nil
}

const openOfTarget = "f.target_uri = $1 AND f.resolved_at IS NULL ORDER BY f.finding_id"

// Sightings implements ledger.Findings.
func (l *Ledger) Sightings(ctx context.Context, ids []string) (map[string]ledger.Sighting, error) {
	out := map[string]ledger.Sighting{}
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		clear(out)
		return each(ctx, c, `SELECT f.finding_id, f.first_seen_at, CASE WHEN f.resolved_at IS NULL THEN f.damaged_since END,
			CASE WHEN f.resolved_at IS NULL THEN f.acknowledged_until END
			FROM `+l.db.Each("$1")+` JOIN reconcile.findings f ON f.finding_id = e.value`, []any{list(ids)}, func(scan func(...any) error) error {
			var id string
			var s ledger.Sighting
			var until *time.Time
			if err := scan(&id, &s.FirstSeenAt, &s.DamagedSince, &until); err != nil {
				return err
			}
			s.Acknowledged = until != nil && until.After(now)
			out[id] = s
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read sightings: %w", err)
	}
	return out, nil
}

// HighestVersion implements ledger.Findings.
func (l *Ledger) HighestVersion(ctx context.Context, uri string) (*uint64, error) {
	var v *int64
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, _ time.Time) error {
		v = nil
		_, err := one(ctx, c, "SELECT highest_version FROM reconcile.targets WHERE target_uri = $1", []any{text(uri)}, &v)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read highest version: %w", err)
	}
	return unsigned(v), nil
}

// AcceptVersion implements ledger.Findings.
func (l *Ledger) AcceptVersion(ctx context.Context, t ledger.Target, accepted uint64, actor, reason string) error {
	v := version(&accepted)
	if v == nil {
		return fmt.Errorf("accept version: %d is no version", accepted)
	}
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		if err := meetTarget(ctx, c, now, t, "", false, nil); err != nil {
			return err
		}
		sql, args := update("reconcile.targets", []col{
			{"highest_version", v}, {"accepted_version", v}, {"accepted_at", now}, {"accepted_by", text(actor)}, {"accepted_reason", filled(reason)},
		}, "target_uri = $1", text(t.URI))
		_, err := c.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("accept version: %w", err)
	}
	return nil
}

// Acknowledge implements ledger.Findings.
func (l *Ledger) Acknowledge(ctx context.Context, id string, until time.Time, reason, actor string) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		cols := []col{{"acknowledged_until", until.UTC()}, {"acknowledged_at", now}, {"ack_reason", text(reason)}, {"ack_actor", text(actor)}}
		if !until.After(now) {
			for i := range cols {
				cols[i].value = nil
			}
		}
		sql, args := update("reconcile.findings", cols, "finding_id = $1 AND resolved_at IS NULL", text(id))
		n, err := c.Exec(ctx, sql, args...)
		if err == nil && n == 0 {
			return fmt.Errorf("%w: no open finding %s", ledger.ErrNotFound, id)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("acknowledge finding: %w", err)
	}
	return nil
}
