package sqlledger

import (
	"context"
	"fmt"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/sql/migrations"
)

// Schema is a database whose schema can be changed.
type Schema interface {
	// Exclusive runs fn in a transaction beside which no other runs here. It commits
	// what fn did, schema included.
	Exclusive(ctx context.Context, fn func(ctx context.Context, c SchemaConn) error) error
	// Peek runs fn in a transaction that only reads and waits for nobody.
	Peek(ctx context.Context, fn func(ctx context.Context, c SchemaConn) error) error
}

// SchemaConn is the transaction of Schema.Exclusive.
type SchemaConn interface {
	Conn
	// Script runs a text of several statements without parameters.
	Script(ctx context.Context, sql string) error
	// HasSchema reports whether the table schema_migrations is there.
	HasSchema(ctx context.Context) (bool, error)
}

type applied struct {
	version  int64
	checksum string
	ledger.Migration
}

func readApplied(ctx context.Context, c SchemaConn) ([]applied, error) {
	there, err := c.HasSchema(ctx)
	if err != nil || !there {
		return nil, err
	}
	var out []applied
	err = each(ctx, c, "SELECT version, name, checksum, tool_version, applied_at FROM reconcile.schema_migrations ORDER BY version", nil, func(scan func(...any) error) error {
		var a applied
		if err := scan(&a.version, &a.Name, &a.checksum, &a.ToolVersion, &a.AppliedAt); err != nil {
			return err
		}
		a.Name = stepName(int(a.version), a.Name)
		out = append(out, a)
		return nil
	})
	return out, err
}

func stepName(version int, name string) string { return fmt.Sprintf("%03d_%s", version, name) }

// compare tells what is applied of the steps and what is not. An applied step whose
// text is not that of the step is an error: nobody knows then what the schema is.
func compare(steps []migrations.Step, done []applied) (ledger.MigrationStatus, error) {
	st := ledger.MigrationStatus{Applied: []ledger.Migration{}, Pending: []string{}, Unknown: []string{}, Notices: []string{}}
	for i, a := range done {
		switch {
		case int(a.version) > len(steps):
			st.Unknown = append(st.Unknown, a.Name)
		case int(a.version) != i+1 || a.checksum != steps[i].Checksum:
			return st, fmt.Errorf("migration %s was applied with another text by version %s", a.Name, a.ToolVersion)
		default:
			st.Applied = append(st.Applied, a.Migration)
		}
	}
	for _, s := range steps[min(len(done), len(steps)):] {
		st.Pending = append(st.Pending, stepName(s.Version, s.Name))
	}
	return st, nil
}

// Status says which steps are applied. It changes nothing.
func Status(ctx context.Context, db Schema, steps []migrations.Step) (ledger.MigrationStatus, error) {
	var st ledger.MigrationStatus
	err := db.Peek(ctx, func(ctx context.Context, c SchemaConn) error {
		done, err := readApplied(ctx, c)
		if err == nil {
			st, err = compare(steps, done)
		}
		return err
	})
	if err != nil {
		return st, fmt.Errorf("read schema: %w", err)
	}
	return st, nil
}

// Up applies the missing steps, each in a transaction of its own, in which it is
// looked up again: two that come at once take turns and apply each step once.
func Up(ctx context.Context, db Schema, steps []migrations.Step, toolVersion string) (ledger.MigrationStatus, error) {
	isNew := map[string]bool{}
	for {
		var st ledger.MigrationStatus
		err := db.Exclusive(ctx, func(ctx context.Context, c SchemaConn) error {
			done, err := readApplied(ctx, c)
			if err != nil {
				return err
			}
			if st, err = compare(steps, done); err != nil || len(st.Pending) == 0 {
				return err
			}
			s := steps[len(done)]
			if err := c.Script(ctx, s.Up); err != nil {
				return fmt.Errorf("apply %s: %w", st.Pending[0], err)
			}
			_, err = c.Exec(ctx, "INSERT INTO reconcile.schema_migrations (version, name, checksum, tool_version, applied_at) VALUES ($1, $2, $3, $4, reconcile.now())",
				int64(s.Version), s.Name, s.Checksum, text(toolVersion))
			return err
		})
		if err != nil {
			return st, fmt.Errorf("migrate ledger: %w", err)
		}
		if len(st.Pending) > 0 {
			isNew[st.Pending[0]] = true
			continue
		}
		for i := range st.Applied {
			st.Applied[i].New = isNew[st.Applied[i].Name]
		}
		return st, nil
	}
}

// Down takes steps back until version to is the last; 0 takes back everything, and
// with it everything that was remembered. It is for tests of the steps.
func Down(ctx context.Context, db Schema, steps []migrations.Step, to int) error {
	for i := len(steps); i > to; i-- {
		s := steps[i-1]
		err := db.Exclusive(ctx, func(ctx context.Context, c SchemaConn) error {
			done, err := readApplied(ctx, c)
			if err != nil || len(done) < s.Version {
				return err
			}
			if _, err := c.Exec(ctx, "DELETE FROM reconcile.schema_migrations WHERE version = $1", int64(s.Version)); err != nil {
				return err
			}
			return c.Script(ctx, s.Down)
		})
		if err != nil {
			return fmt.Errorf("take back migration %d: %w", s.Version, err)
		}
	}
	return nil
}
