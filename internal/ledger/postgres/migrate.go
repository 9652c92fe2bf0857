package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlledger"
	"github.com/rocketkeep/reconcile/sql/migrations"
)

// migrationLock is the key of the advisory lock under which schemas change.
const migrationLock = 0x7265636f6e63696c // "reconcil"

// Migrator implements ledger.Migrator.
type Migrator struct {
	db          *database
	toolVersion string
}

var _ ledger.Migrator = (*Migrator)(nil)

// Location implements ledger.Migrator.
func (m *Migrator) Location() string { return m.db.location }

// Close implements ledger.Migrator.
func (m *Migrator) Close() error { return m.db.Close() }

// Status implements ledger.Migrator.
func (m *Migrator) Status(ctx context.Context) (ledger.MigrationStatus, error) {
	steps, err := migrations.Steps(migrations.Postgres)
	if err != nil {
		return ledger.MigrationStatus{}, err
	}
	return sqlledger.Status(ctx, m.db, steps)
}

// Up implements ledger.Migrator. After the steps it makes the roles, as far as the
// user may, and grants them their rights.
func (m *Migrator) Up(ctx context.Context) (ledger.MigrationStatus, error) {
	steps, err := migrations.Steps(migrations.Postgres)
	if err != nil {
		return ledger.MigrationStatus{}, err
	}
	st, err := sqlledger.Up(ctx, m.db, steps, m.toolVersion)
	if err != nil {
		return st, err
	}
	roles, err := migrations.Roles()
	if err != nil {
		return st, err
	}
	var notices []string
	err = m.db.Exclusive(ctx, func(ctx context.Context, c sqlledger.SchemaConn) error {
		notices = nil
		t, ok := c.(*schemaTransaction)
		if !ok {
			return fmt.Errorf("transaction is a %T", c)
		}
		t.warned = func(text string) { notices = append(notices, text) }
		return c.Script(ctx, roles)
	})
	if err != nil {
		return st, fmt.Errorf("grant roles: %w", err)
	}
	st.Notices = append(st.Notices, notices...)
	return st, nil
}

// Down takes back the steps above version to; 0 forgets everything. It is for tests.
func (m *Migrator) Down(ctx context.Context, to int) error {
	steps, err := migrations.Steps(migrations.Postgres)
	if err != nil {
		return err
	}
	return sqlledger.Down(ctx, m.db, steps, to)
}

// Exclusive implements sqlledger.Schema.
func (db *database) Exclusive(ctx context.Context, fn func(context.Context, sqlledger.SchemaConn) error) error {
	return db.schema(ctx, func(ctx context.Context, t *schemaTransaction) error {
		// A lock of the transaction: it cannot outlive it, whatever stands between.
		if _, err := t.Exec(ctx, "SELECT set_config('lock_timeout', '5min', true), set_config('statement_timeout', '0', true), pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		return fn(ctx, t)
	})
}

// Peek implements sqlledger.Schema.
func (db *database) Peek(ctx context.Context, fn func(context.Context, sqlledger.SchemaConn) error) error {
	return db.schema(ctx, func(ctx context.Context, t *schemaTransaction) error { return fn(ctx, t) })
}

func (db *database) schema(ctx context.Context, fn func(context.Context, *schemaTransaction) error) error {
	pooled, err := db.pool.Acquire(ctx)
	if err != nil {
		return wrap(ctx, nil, err)
	}
	defer pooled.Release()
	conn := pooled.Conn()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return wrap(ctx, conn, err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), silence)
		defer cancel()
		_ = tx.Rollback(end) // after a commit it does nothing
	}()
	if err := fn(ctx, &schemaTransaction{transaction: transaction{conn: conn, tx: tx, patience: bulkPatience}}); err != nil {
		return wrap(ctx, conn, err)
	}
	return wrap(ctx, conn, tx.Commit(ctx))
}

// schemaTransaction implements sqlledger.SchemaConn.
type schemaTransaction struct {
	transaction
	warned func(text string)
}

// HasSchema implements sqlledger.SchemaConn.
func (t *schemaTransaction) HasSchema(ctx context.Context) (bool, error) {
	var there bool
	err := t.tx.QueryRow(ctx, "SELECT to_regclass('reconcile.schema_migrations') IS NOT NULL").Scan(&there)
	return there, wrap(ctx, t.conn, err)
}

// Script implements sqlledger.SchemaConn.
func (t *schemaTransaction) Script(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, bulkPatience)
	defer cancel()
	notices := noticesOf(t.conn)
	*notices = nil
	_, err := t.tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if t.warned != nil {
		for _, n := range *notices {
			t.warned(n)
		}
	}
	return wrap(ctx, t.conn, err)
}

const noticesKey = "reconcile.notices"

// noticesOf is where a connection's warnings are kept.
func noticesOf(conn *pgx.Conn) *[]string {
	data := conn.PgConn().CustomData()
	if list, ok := data[noticesKey].(*[]string); ok {
		return list
	}
	list := new([]string)
	data[noticesKey] = list
	return list
}

// onNotice keeps warnings; notices that something is there already are noise.
func onNotice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized != "WARNING" {
		return
	}
	if list, ok := conn.CustomData()[noticesKey].(*[]string); ok {
		*list = append(*list, n.Message)
	}
}
