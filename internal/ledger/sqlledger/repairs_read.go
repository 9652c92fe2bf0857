package sqlledger

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

const selectRepairs = `SELECT r.repair_id, r.pass_id, r.target_uri, r.target, r.store, coalesce(t.kind, ''), r.action, r.state, r.trigger, r.trigger_error,
	r.actor, r.host, r.reason, r.epoch, r.read_version, r.committed_version, r.transaction_uuid, r.index_uuid, r.files,
	r.rows_dropped, r.bytes_restored, r.source, r.proof, r.duration_ms, r.error, r.manifest_name, r.manifest_size, r.manifest_sha256,
	r.created_at, r.intended_at, r.settled_at, r.verified_at
	FROM reconcile.repairs r LEFT JOIN reconcile.targets t ON t.target_uri = r.target_uri`

func scanRepair(scan func(...any) error) (ledger.Repair, error) {
	var r ledger.Repair
	var action string
	var read, committed, size *int64
	var name, sum *string
	err := scan(&r.RepairID, &r.PassID, &r.Where.URI, &r.Where.Name, &r.Where.Store, &r.Where.Kind, &action, &r.State, &r.Trigger, &r.TriggerError,
		&r.Actor, &r.Host, &r.Reason, &r.Epoch, &read, &committed, &r.TransactionUUID, &r.IndexUUID, &r.Files,
		&r.RowsDropped, &r.BytesRestored, &r.Source, &r.Proof, &r.DurationMS, &r.Error, &name, &size, &sum,
		&r.CreatedAt, &r.IntendedAt, &r.SettledAt, &r.VerifiedAt)
	if err != nil {
		return r, err
	}
	r.Target, r.Store = r.Where.Name, r.Where.Store
	r.ReadVersion, r.CommittedVersion = unsigned(read), unsigned(committed)
	r.Fragments = []reconcile.RepairFragment{}
	if name != nil && size != nil && sum != nil {
		r.Manifest = &ledger.Manifest{Name: *name, Size: *size, SHA256: *sum}
	}
	return r, word(action, &r.Action)
}

// repairs reads repairs with their fragments, without bytes; where follows "WHERE".
func (l *Ledger) repairs(ctx context.Context, c Conn, where string, args []any, limit int, keep func(ledger.Repair) bool) ([]ledger.Repair, error) {
	out := []ledger.Repair{}
	err := each(ctx, c, selectRepairs+" WHERE "+where, args, func(scan func(...any) error) error {
		r, err := scanRepair(scan)
		if err != nil {
			return err
		}
		if keep == nil || keep(r) {
			out = append(out, r)
		}
		if limit > 0 && len(out) == limit {
			return errStop
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, l.readFragments(ctx, c, out, false)
}

// readFragments completes repairs by their fragments, with or without the messages.
func (l *Ledger) readFragments(ctx context.Context, c Conn, rs []ledger.Repair, messages bool) error {
	ids, at := make([]string, len(rs)), make(map[string]*ledger.Repair, len(rs))
	for i := range rs {
		ids[i], at[rs[i].RepairID] = rs[i].RepairID, &rs[i]
	}
	message := "CAST(NULL AS bytea)"
	if messages {
		message = "f.message"
	}
	return each(ctx, c, "SELECT f.repair_id, f.fragment_id, f.physical_rows, f.live_rows, f.missing_files, "+message+" FROM "+l.db.Each("$1")+
		" JOIN reconcile.repair_fragments f ON f.repair_id = e.value ORDER BY f.fragment_id", []any{ids}, func(scan func(...any) error) error {
		var f reconcile.RepairFragment
		var repair string
		var id int64
		var raw []byte
		if err := scan(&repair, &id, &f.PhysicalRows, &f.LiveRows, &f.MissingFiles, &raw); err != nil {
			return err
		}
		r := at[repair]
		f.ID = uint64(id)
		r.Fragments = append(r.Fragments, f)
		if raw != nil {
			if r.Messages == nil {
				r.Messages = map[uint64][]byte{}
			}
			r.Messages[f.ID] = bytes.Clone(raw)
		}
		return nil
	})
}

// Unsettled implements ledger.Repairs.
func (l *Ledger) Unsettled(ctx context.Context, uri string) ([]ledger.Repair, error) {
	var out []ledger.Repair
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, _ time.Time) (err error) {
		out, err = l.repairs(ctx, c, "r.state IN ('intended', 'uncertain') AND ($1 = '' OR r.target_uri = $1) ORDER BY r.created_at, r.repair_id", []any{text(uri)}, 0, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read unsettled repairs: %w", err)
	}
	return out, nil
}

// UndoData implements ledger.Repairs.
func (l *Ledger) UndoData(ctx context.Context, id string) (ledger.Repair, error) {
	var out ledger.Repair
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, _ time.Time) error {
		rs, err := l.repairs(ctx, c, "r.repair_id = $1", []any{text(id)}, 0, nil)
		if err != nil {
			return err
		}
		if len(rs) == 0 {
			return ledger.ErrNotFound
		}
		rs[0].Fragments = rs[0].Fragments[:0]
		if err := l.readFragments(ctx, c, rs[:1], true); err != nil {
			return err
		}
		out = rs[0]
		var manifest []byte
		if _, err := one(ctx, c, "SELECT manifest_bytes, index_message FROM reconcile.repairs WHERE repair_id = $1", []any{text(id)}, &manifest, &out.IndexMessage); err != nil {
			return err
		}
		if out.Manifest != nil {
			out.Manifest.Bytes = manifest
		}
		return nil
	})
	if err != nil {
		return ledger.Repair{}, fmt.Errorf("read repair %s: %w", id, err)
	}
	return out, nil
}
