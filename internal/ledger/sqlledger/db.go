// Package sqlledger is the ledger written once, in the SQL that Postgres and SQLite
// have in common. What differs between them is behind [DB]; the packages postgres and
// sqlite implement it.
//
// Statements are in the words of Postgres: tables carry the schema's name, parameters
// are $1, the clock is reconcile.now(). Values are strings, integers, float64, bool,
// []byte, [time.Time], [][string], and pointers to them for NULL; [][string] are
// never NULL.
package sqlledger

import (
	"context"
	"errors"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// DB is a database with the ledger's schema. It is safe for concurrent use. Its errors
// carry the sentinels of package ledger.
type DB interface {
	// Write runs fn in a read-write transaction and commits it, durably. fn gets the
	// database's clock at the beginning. It is run again from the start when the
	// database gives the transaction up for another; nothing else than c may be
	// changed by it.
	Write(ctx context.Context, fn func(ctx context.Context, c Conn, now time.Time) error) error
	// Read runs fn on one snapshot.
	Read(ctx context.Context, fn func(ctx context.Context, c Conn, now time.Time) error) error
	// Each is a FROM item named e with one text column, value: the elements of the list
	// parameter (such as "$2", bound to a []string).
	Each(param string) string
	Location() string
	Close() error
}

// Conn is a transaction.
type Conn interface {
	Exec(ctx context.Context, sql string, args ...any) (rows int64, err error)
	Query(ctx context.Context, sql string, args ...any) (Rows, error)
	// Stage fills the temporary table of that name, empty before and gone after the
	// transaction, with rows of text, integer and other values as columns say
	// ("name type" with the types of Postgres).
	Stage(ctx context.Context, table string, columns []string, rows [][]any) error
	// Copy inserts rows into a table.
	Copy(ctx context.Context, table string, columns []string, rows [][]any) error
}

// Rows is what database/sql and pgx have in common.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// Ledger implements [ledger.Ledger] over a DB.
type Ledger struct{ db DB }

var _ ledger.Ledger = (*Ledger)(nil)

// New makes the ledger of a database.
func New(db DB) *Ledger { return &Ledger{db: db} }

// Location implements ledger.Ledger.
func (l *Ledger) Location() string { return l.db.Location() }

// Close implements ledger.Ledger.
func (l *Ledger) Close() error { return l.db.Close() }

// Now implements ledger.Ledger.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := l.db.Read(ctx, func(_ context.Context, _ Conn, now time.Time) error {
		at = now
		return nil
	})
	return at, err
}

// one scans the only row of a query; found is false when there is none.
func one(ctx context.Context, c Conn, sql string, args []any, dest ...any) (found bool, err error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	if !rows.Next() {
		return false, rows.Err()
	}
	if err := rows.Scan(dest...); err != nil {
		return false, err
	}
	rows.Close()
	return true, rows.Err()
}

// errStop ends each early.
var errStop = errors.New("stop")

// each calls fn for every row; fn returns errStop for enough.
func each(ctx context.Context, c Conn, sql string, args []any, fn func(scan func(dest ...any) error) error) error {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		switch err := fn(rows.Scan); {
		case errors.Is(err, errStop):
			return nil
		case err != nil:
			return err
		}
	}
	return rows.Err()
}
