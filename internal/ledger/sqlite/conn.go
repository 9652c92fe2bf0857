package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlledger"
)

// timeLayout is how times stand in the file: one width, so that they sort as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// dialect turns the words of Postgres that sqlledger uses into those of SQLite.
var dialect = strings.NewReplacer(
	"(SELECT reconcile.now())", "(SELECT now FROM clock)",
	"reconcile.now()", "(SELECT now FROM clock)",
	"reconcile.", "",
	" FOR UPDATE", "", // a transaction that writes is alone
	" AS bigint)", " AS INTEGER)",
	" AS bytea)", " AS BLOB)",
)

// Write implements sqlledger.DB.
func (db *database) Write(ctx context.Context, fn func(context.Context, sqlledger.Conn, time.Time) error) error {
	return db.run(ctx, func(ctx context.Context, t *transaction) error {
		now, err := t.now(ctx)
		if err != nil {
			return err
		}
		return fn(ctx, t, now)
	}, false)
}

// Read implements sqlledger.DB.
func (db *database) Read(ctx context.Context, fn func(context.Context, sqlledger.Conn, time.Time) error) error {
	return db.run(ctx, func(ctx context.Context, t *transaction) error {
		now, err := t.now(ctx)
		if err != nil {
			return err
		}
		return fn(ctx, t, now)
	}, true)
}

// Exclusive implements sqlledger.Schema.
func (db *database) Exclusive(ctx context.Context, fn func(context.Context, sqlledger.SchemaConn) error) error {
	return db.run(ctx, func(ctx context.Context, t *transaction) error { return fn(ctx, t) }, false)
}

// Peek implements sqlledger.Schema.
func (db *database) Peek(ctx context.Context, fn func(context.Context, sqlledger.SchemaConn) error) error {
	return db.run(ctx, func(ctx context.Context, t *transaction) error { return fn(ctx, t) }, true)
}

func (db *database) run(ctx context.Context, fn func(context.Context, *transaction) error, readOnly bool) error {
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return wrap(ctx, err)
	}
	defer func() { _ = conn.Close() }() // back to the pool; what matters was committed or not
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: readOnly})
	if err != nil {
		return wrap(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(ctx, &transaction{tx: tx}); err != nil {
		return wrap(ctx, err)
	}
	return wrap(ctx, tx.Commit())
}

// transaction implements sqlledger.SchemaConn.
type transaction struct{ tx *sql.Tx }

var _ sqlledger.SchemaConn = (*transaction)(nil)

func (t *transaction) now(ctx context.Context) (time.Time, error) {
	var text string
	if err := t.tx.QueryRowContext(ctx, "SELECT now FROM clock").Scan(&text); err != nil {
		return time.Time{}, wrap(ctx, err)
	}
	return parseTime(text)
}

// Exec implements sqlledger.Conn.
func (t *transaction) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	values, err := toSQLite(args)
	if err != nil {
		return 0, err
	}
	res, err := t.tx.ExecContext(ctx, dialect.Replace(text), values...)
	if err != nil {
		return 0, wrap(ctx, err)
	}
	return res.RowsAffected()
}

// Query implements sqlledger.Conn.
func (t *transaction) Query(ctx context.Context, text string, args ...any) (sqlledger.Rows, error) {
	values, err := toSQLite(args)
	if err != nil {
		return nil, err
	}
	rows, err := t.tx.QueryContext(ctx, dialect.Replace(text), values...)
	if err != nil {
		return nil, wrap(ctx, err)
	}
	return &result{rows: rows, ctx: ctx}, nil
}

// Script implements sqlledger.SchemaConn.
func (t *transaction) Script(ctx context.Context, text string) error {
	_, err := t.tx.ExecContext(ctx, text)
	return wrap(ctx, err)
}

// HasSchema implements sqlledger.SchemaConn.
func (t *transaction) HasSchema(ctx context.Context) (bool, error) {
	var n int
	err := t.tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'").Scan(&n)
	return n == 1, wrap(ctx, err)
}

// Stage implements sqlledger.Conn.
func (t *transaction) Stage(ctx context.Context, table string, columns []string, rows [][]any) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i], _, _ = strings.Cut(c, " ")
	}
	// A column without a type keeps values as they come.
	if _, err := t.tx.ExecContext(ctx, "CREATE TEMPORARY TABLE IF NOT EXISTS "+table+" ("+strings.Join(names, ", ")+")"); err != nil {
		return wrap(ctx, err)
	}
	if _, err := t.tx.ExecContext(ctx, "DELETE FROM temp."+table); err != nil {
		return wrap(ctx, err)
	}
	return t.Copy(ctx, "temp."+table, names, rows)
}

// Copy implements sqlledger.Conn.
func (t *transaction) Copy(ctx context.Context, table string, columns []string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	// Many rows a statement: what is done for each statement takes as long as a row.
	marks := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ") + ")"
	into := "INSERT INTO " + dialect.Replace(table) + " (" + strings.Join(columns, ", ") + ") VALUES "
	for rows := range slices.Chunk(rows, copiedAtOnce) {
		n := len(rows)
		if n < copiedAtOnce {
			n = 1 // two texts in all, which stay prepared
		}
		text := into + strings.TrimSuffix(strings.Repeat(marks+", ", n), ", ")
		for some := range slices.Chunk(rows, n) {
			values, err := toSQLite(slices.Concat(some...))
			if err != nil {
				return err
			}
			if _, err := t.tx.ExecContext(ctx, text, values...); err != nil {
				return wrap(ctx, err)
			}
		}
	}
	return nil
}

// copiedAtOnce is how many rows one INSERT takes; a statement has 32,766 parameters at
// most, and a row a few dozen.
const copiedAtOnce = 16

// toSQLite writes values as they stand in the file.
func toSQLite(args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case time.Time:
			out[i] = v.UTC().Format(timeLayout)
		case *time.Time:
			if v != nil {
				out[i] = v.UTC().Format(timeLayout)
			}
		case []string:
			if v == nil {
				v = []string{}
			}
			b, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("encode list: %w", err)
			}
			out[i] = string(b)
		default:
			out[i] = a
		}
	}
	return out, nil
}

type result struct {
	rows *sql.Rows
	ctx  context.Context
	once sync.Once
}

// Next implements sqlledger.Rows.
func (r *result) Next() bool { return r.rows.Next() }

// Err implements sqlledger.Rows.
func (r *result) Err() error { return wrap(r.ctx, r.rows.Err()) }

// Close implements sqlledger.Rows.
func (r *result) Close() { r.once.Do(func() { _ = r.rows.Close() }) } // Err tells

// Scan implements sqlledger.Rows.
func (r *result) Scan(dest ...any) error {
	wrapped := make([]any, len(dest))
	for i, d := range dest {
		switch d := d.(type) {
		case *time.Time, **time.Time, *[]string:
			wrapped[i] = scanner{d}
		default:
			wrapped[i] = d
		}
	}
	return r.rows.Scan(wrapped...)
}

// scanner reads a text into what it stands for.
type scanner struct{ dest any }

var _ sql.Scanner = scanner{}

// Scan implements sql.Scanner.
func (s scanner) Scan(value any) error {
	if value == nil {
		if d, ok := s.dest.(**time.Time); ok {
			*d = nil
			return nil
		}
		return errors.New("NULL where a value must be")
	}
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("%T where a text must be", value)
	}
	switch d := s.dest.(type) {
	case *[]string:
		return json.Unmarshal([]byte(text), d)
	case *time.Time:
		at, err := parseTime(text)
		*d = at
		return err
	case **time.Time:
		at, err := parseTime(text)
		*d = &at
		return err
	}
	return fmt.Errorf("no way to read into %T", s.dest)
}

func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(timeLayout, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time: %w", err)
	}
	return at, nil
}

// wrap gives an error its sentinel, once.
func wrap(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, ledger.ErrUnreachable), errors.Is(err, ledger.ErrNotMigrated):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ledger.ErrUnreachable, err)
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%w: %w", ledger.ErrUnreachable, err)
	}
	if strings.Contains(err.Error(), "no such table") {
		return fmt.Errorf("%w: %w", ledger.ErrNotMigrated, err)
	}
	return err
}
