package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// repairCols are the columns of a repair that its writer knows.
func repairCols(r ledger.Repair) []col {
	cols := []col{
		{"repair_id", text(r.RepairID)}, {"pass_id", text(r.PassID)}, {"target_uri", text(r.Where.URI)},
		{"target", text(r.Where.Name)}, {"store", text(r.Where.Store)},
		{"action", r.Action.String()}, {"trigger", text(r.Trigger)}, {"trigger_error", textPtr(r.TriggerError)},
		{"actor", text(r.Actor)}, {"host", text(r.Host)}, {"reason", textPtr(r.Reason)},
		{"read_version", version(r.ReadVersion)}, {"transaction_uuid", textPtr(r.TransactionUUID)},
		{"index_uuid", textPtr(r.IndexUUID)}, {"index_message", blob(r.IndexMessage)},
		{"files", list(r.Files)}, {"fragments", int64(len(r.Fragments))}, {"source", textPtr(r.Source)},
		{"proof", textPtr(r.Proof)}, {"duration_ms", r.DurationMS},
	}
	if m := r.Manifest; m != nil {
		cols = append(cols, col{"manifest_name", text(m.Name)}, col{"manifest_size", m.Size}, col{"manifest_sha256", text(m.SHA256)}, col{"manifest_bytes", blob(m.Bytes)})
	}
	return cols
}

// blob is b, NULL when there is none.
func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// writeRepair inserts the row, or completes one that was only noted. changed is false
// when the row is there and has gone further.
func writeRepair(ctx context.Context, c Conn, r ledger.Repair, now time.Time, cols []col, replaces string) (changed bool, err error) {
	cols = append(repairCols(r), cols...)
	var take []string
	for _, c := range cols[1:] {
		take = append(take, c.name)
	}
	sql, args := insert("reconcile.repairs AS r", append(cols, col{"created_at", now}),
		"ON CONFLICT (repair_id) DO UPDATE SET "+excluded(take...)+" WHERE "+replaces)
	n, err := c.Exec(ctx, sql, args...)
	if err != nil || n == 0 {
		return false, err
	}
	if _, err := c.Exec(ctx, "DELETE FROM reconcile.repair_fragments WHERE repair_id = $1", text(r.RepairID)); err != nil {
		return false, err
	}
	rows := make([][]any, 0, len(r.Fragments))
	for _, f := range r.Fragments {
		id := signed(&f.ID)
		if id == nil {
			return false, fmt.Errorf("%w: fragment id %d is out of range", ledger.ErrIncomplete, f.ID)
		}
		rows = append(rows, []any{text(r.RepairID), *id, blob(r.Messages[f.ID]), f.PhysicalRows, f.LiveRows, list(f.MissingFiles)})
	}
	err = c.Copy(ctx, "reconcile.repair_fragments", []string{"repair_id", "fragment_id", "message", "physical_rows", "live_rows", "missing_files"}, rows)
	return true, err
}

// Note implements ledger.Repairs.
func (l *Ledger) Note(ctx context.Context, r ledger.Repair) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		var settled *time.Time
		switch r.State {
		case ledger.StatePlanned:
		case ledger.StateRefused, ledger.StateFailed:
			settled = &now
		default:
			return fmt.Errorf("state %q says that something was intended", r.State)
		}
		if err := meetTarget(ctx, c, now, r.Where, "", false, nil); err != nil {
			return err
		}
		changed, err := writeRepair(ctx, c, r, now, []col{{"state", r.State}, {"error", textPtr(r.Error)}, {"settled_at", settled}},
			"r.state = 'planned' OR r.state = excluded.state AND r.intended_at IS NULL")
		if err == nil && !changed {
			return ledger.ErrSettled
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note repair %s: %w", r.RepairID, err)
	}
	return nil
}

// Intend implements ledger.Repairs.
func (l *Ledger) Intend(ctx context.Context, lease ledger.Lease, r ledger.Repair) error {
	err := r.CheckIntended()
	if err == nil && text(r.Where.URI) != lease.Target {
		err = errors.New("the lease is of another target")
	}
	if err == nil {
		err = l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error { return intend(ctx, c, now, lease, r) })
	}
	if err != nil {
		return fmt.Errorf("intend repair %s: %w", r.RepairID, err)
	}
	return nil
}

func intend(ctx context.Context, c Conn, now time.Time, lease ledger.Lease, r ledger.Repair) error {
	if err := hold(ctx, c, lease, true); err != nil {
		return err
	}
	// The same again is the answer to a call whose answer was lost. Anything else is
	// another repair with the same name.
	var state string
	var epoch *int64
	var transaction *string
	found, err := one(ctx, c, "SELECT state, epoch, transaction_uuid FROM reconcile.repairs WHERE repair_id = $1", []any{text(r.RepairID)}, &state, &epoch, &transaction)
	switch {
	case err != nil:
		return err
	case found && state == ledger.StateIntended && epoch != nil && *epoch == lease.Epoch && equal(transaction, textPtr(r.TransactionUUID)):
		return nil
	case found && state != ledger.StatePlanned:
		return fmt.Errorf("%w: it is %s", ledger.ErrSettled, state)
	}
	// What an earlier holder left must be settled before anything new is begun, and so
	// must a commit of this holder, and what nobody knows the effect of.
	var other string
	found, err = one(ctx, c, `SELECT repair_id FROM reconcile.repairs WHERE target_uri = $1 AND repair_id <> $3 AND (state = 'uncertain' OR state = 'intended' AND
		(epoch <> $2 OR action IN ('drop_fragment', 'drop_index'))) ORDER BY created_at LIMIT 1`, []any{lease.Target, lease.Epoch, text(r.RepairID)}, &other)
	if err != nil {
		return err
	}
	if found {
		return fmt.Errorf("%w: %s", ledger.ErrUnsettled, other)
	}
	if err := meetTarget(ctx, c, now, r.Where, "", false, nil); err != nil {
		return err
	}
	_, err = writeRepair(ctx, c, r, now, []col{{"state", ledger.StateIntended}, {"epoch", lease.Epoch}, {"intended_at", now}}, "r.state = 'planned'")
	return err
}

func equal(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Settle implements ledger.Repairs.
func (l *Ledger) Settle(ctx context.Context, lease ledger.Lease, id string, o ledger.Outcome) error {
	err := o.CheckOutcome()
	if err == nil {
		err = l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error { return settle(ctx, c, now, lease, text(id), o) })
	}
	if err != nil {
		return fmt.Errorf("settle repair %s: %w", id, err)
	}
	return nil
}

func settle(ctx context.Context, c Conn, now time.Time, lease ledger.Lease, id string, o ledger.Outcome) error {
	// The lease may have run out: as long as nobody took the lock, the record is mine
	// to complete.
	if err := hold(ctx, c, lease, false); err != nil {
		return err
	}
	var state, action string
	var committed *int64
	found, err := one(ctx, c, "SELECT state, action, committed_version FROM reconcile.repairs WHERE repair_id = $1 AND target_uri = $2",
		[]any{id, lease.Target}, &state, &action, &committed)
	switch {
	case err != nil:
		return err
	case !found:
		return ledger.ErrNotFound
	case state == o.State && state != ledger.StateUncertain && equalVersion(committed, version(o.CommittedVersion)):
		return nil // the answer to the first call was lost
	case state != ledger.StateIntended && state != ledger.StateUncertain:
		return fmt.Errorf("%w: it is %s", ledger.ErrSettled, state)
	}
	cols := []col{
		{"state", o.State}, {"error", textPtr(o.Error)}, {"committed_version", version(o.CommittedVersion)},
		{"rows_dropped", o.RowsDropped}, {"bytes_restored", o.BytesRestored},
	}
	if o.State != ledger.StateUncertain {
		cols = append(cols, col{"settled_at", now}, col{"settled_epoch", lease.Epoch})
	}
	if o.Source != nil {
		cols = append(cols, col{"source", textPtr(o.Source)})
	}
	if o.Proof != nil {
		cols = append(cols, col{"proof", textPtr(o.Proof)})
	}
	if o.DurationMS != nil {
		cols = append(cols, col{"duration_ms", o.DurationMS})
	}
	sql, args := update("reconcile.repairs", cols, "repair_id = $1", id)
	if _, err := c.Exec(ctx, sql, args...); err != nil {
		return err
	}
	if o.State != ledger.StateApplied {
		return nil
	}
	if o.RowsDropped == nil && action == reconcile.ActionDropFragment.String() {
		// A fragment whose rows are unknown makes the sum unknown.
		if _, err := c.Exec(ctx, `UPDATE reconcile.repairs SET rows_dropped = (SELECT CASE WHEN count(*) = count(live_rows) THEN CAST(sum(live_rows) AS bigint) END
			FROM reconcile.repair_fragments WHERE repair_id = $1) WHERE repair_id = $1`, id); err != nil {
			return err
		}
	}
	_, err = c.Exec(ctx, `UPDATE reconcile.targets SET highest_version = $2 WHERE target_uri = $1 AND (highest_version IS NULL OR highest_version < $2)`,
		lease.Target, version(o.CommittedVersion))
	return err
}

func equalVersion(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Verified implements ledger.Repairs.
func (l *Ledger) Verified(ctx context.Context, lease ledger.Lease, id string) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		if err := hold(ctx, c, lease, false); err != nil {
			return err
		}
		n, err := c.Exec(ctx, "UPDATE reconcile.repairs SET verified_at = coalesce(verified_at, $3) WHERE repair_id = $1 AND target_uri = $2 AND state = 'applied'",
			text(id), lease.Target, now)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: no applied repair", ledger.ErrNotFound)
		}
		return succeed(ctx, c, now, ledger.KindRepair, lease.Target)
	})
	if err != nil {
		return fmt.Errorf("verify repair %s: %w", id, err)
	}
	return nil
}
