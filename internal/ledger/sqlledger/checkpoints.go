package sqlledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// Checkpoint implements ledger.Checkpoints.
func (l *Ledger) Checkpoint(ctx context.Context, uri string) (*ledger.Checkpoint, error) {
	var out *ledger.Checkpoint
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		var cp ledger.Checkpoint
		out = nil
		found, err := one(ctx, c, `SELECT pass_id, position, source_id, references_found, checked, present, suspects, updated_at
			FROM reconcile.look_checkpoints WHERE target_uri = $1 AND updated_at >= $2`, []any{text(uri), now.Add(-ledger.CheckpointLifetime)},
			&cp.PassID, &cp.Position, &cp.SourceID, &cp.References, &cp.Checked, &cp.Present, &cp.Suspects, &cp.SavedAt)
		if err != nil || !found {
			return err
		}
		if err := fromExact(append(pointers(cp.Suspects), &cp.Position, &cp.SourceID)); err != nil {
			return err
		}
		cp.SavedAt = cp.SavedAt.UTC()
		out = &cp
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	return out, nil
}

// SaveCheckpoint implements ledger.Checkpoints.
func (l *Ledger) SaveCheckpoint(ctx context.Context, passID, uri string, cp ledger.Checkpoint) error {
	err := cp.Check()
	if err == nil && (passID == "" || uri == "") {
		err = fmt.Errorf("%w: no pass or no target", ledger.ErrCheckpoint)
	}
	if err == nil {
		err = l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
			suspects := make([]string, len(cp.Suspects))
			for i, s := range cp.Suspects {
				suspects[i] = exact(s)
			}
			cols := []col{
				{"target_uri", text(uri)}, {"pass_id", text(passID)}, {"position", exact(cp.Position)}, {"source_id", exact(cp.SourceID)},
				{"references_found", cp.References}, {"checked", cp.Checked}, {"present", cp.Present}, {"suspects", suspects}, {"updated_at", now},
			}
			var names []string
			for _, c := range cols[1:] {
				names = append(names, c.name)
			}
			sql, args := insert("reconcile.look_checkpoints", cols, "ON CONFLICT (target_uri) DO UPDATE SET "+excluded(names...))
			_, err := c.Exec(ctx, sql, args...)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// DropCheckpoint implements ledger.Checkpoints.
func (l *Ledger) DropCheckpoint(ctx context.Context, uri string) error {
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, _ time.Time) error {
		_, err := c.Exec(ctx, "DELETE FROM reconcile.look_checkpoints WHERE target_uri = $1", text(uri))
		return err
	})
	if err != nil {
		return fmt.Errorf("drop checkpoint: %w", err)
	}
	return nil
}

// hexMark stands before the hex digits of what a text column cannot hold.
const hexMark = `\x`

// exact is s as both databases can hold it, such that fromExact gives it back byte for
// byte: a key that came back otherwise would be another key.
func exact(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) && !strings.HasPrefix(s, hexMark) {
		return s
	}
	return hexMark + hex.EncodeToString([]byte(s))
}

func pointers(ss []string) []*string {
	out := make([]*string, len(ss), len(ss)+2)
	for i := range ss {
		out[i] = &ss[i]
	}
	return out
}

// fromExact turns texts back, in place.
func fromExact(texts []*string) error {
	for _, s := range texts {
		digits, marked := strings.CutPrefix(*s, hexMark)
		if !marked {
			continue
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			return errors.New("a text of the ledger begins as hex digits and is none")
		}
		*s = string(b)
	}
	return nil
}
