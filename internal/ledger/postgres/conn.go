package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlledger"
)

const (
	// silence is how long a peer may say nothing before its connection is given up.
	silence = 60 * time.Second
	// patience bounds one statement of ours; the server's own timeout comes first
	// unless it hangs. bulkPatience is for statements over many rows.
	patience     = 90 * time.Second
	bulkPatience = 15 * time.Minute
	// bulk is from how many rows on a statement counts as one over many.
	bulk = 2000
	// attempts at a transaction that the database gives up for another.
	attempts = 5
)

func dialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 6, Count: 3},
		Control:         giveUpUnsent,
	}
}

// Write implements sqlledger.DB.
func (db *database) Write(ctx context.Context, fn func(context.Context, sqlledger.Conn, time.Time) error) error {
	return db.retry(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, fn)
}

// Read implements sqlledger.DB.
func (db *database) Read(ctx context.Context, fn func(context.Context, sqlledger.Conn, time.Time) error) error {
	return db.retry(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn)
}

func (db *database) retry(ctx context.Context, opts pgx.TxOptions, fn func(context.Context, sqlledger.Conn, time.Time) error) error {
	var err error
	for i := range attempts {
		if i > 0 && !pause(ctx, i) {
			break
		}
		var again bool
		if again, err = db.once(ctx, opts, fn); err == nil || !again {
			break
		}
	}
	return err
}

func pause(ctx context.Context, i int) bool {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(i) * int64(50*time.Millisecond))))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once runs one transaction. again tells that nothing happened and that another try
// may do better: the database gave it up for another, or the pool's connection was
// dead before it began.
func (db *database) once(ctx context.Context, opts pgx.TxOptions, fn func(context.Context, sqlledger.Conn, time.Time) error) (again bool, err error) {
	pooled, err := db.pool.Acquire(ctx)
	if err != nil {
		return false, wrap(ctx, nil, err)
	}
	defer pooled.Release()
	conn := pooled.Conn()
	tx, now, err := begin(ctx, conn, opts)
	if err != nil {
		return conn.IsClosed() && ctx.Err() == nil, wrap(ctx, conn, err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), silence)
		defer cancel()
		_ = tx.Rollback(end) // after a commit it does nothing; else the connection is dropped with it
	}()
	if err := fn(ctx, &transaction{conn: conn, tx: tx, patience: patience}, now); err != nil {
		return retryable(err), wrap(ctx, conn, err)
	}
	end, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := tx.Commit(end); err != nil {
		return retryable(err), wrap(ctx, conn, err)
	}
	return false, nil
}

// begin starts the transaction and makes sure that the session is the one that this
// connection was given: a pooler that swaps sessions is found out here at the latest.
func begin(ctx context.Context, conn *pgx.Conn, opts pgx.TxOptions) (pgx.Tx, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, time.Time{}, err
	}
	var now time.Time
	var token *string
	if err = tx.QueryRow(ctx, "SELECT reconcile.now(), current_setting('reconcile.session', true)").Scan(&now, &token); err == nil {
		if want, _ := conn.PgConn().CustomData()[tokenKey].(string); token == nil || *token != want {
			err = ledger.ErrPooler
		}
	}
	if err != nil {
		_ = tx.Rollback(ctx) // the error tells more
		return nil, time.Time{}, err
	}
	return tx, now.UTC(), nil
}

// transaction implements sqlledger.Conn.
type transaction struct {
	conn     *pgx.Conn
	tx       pgx.Tx
	patience time.Duration
}

// Exec implements sqlledger.Conn.
func (t *transaction) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	tag, err := t.tx.Exec(ctx, sql, args...)
	return tag.RowsAffected(), wrap(ctx, t.conn, err)
}

// Query implements sqlledger.Conn.
func (t *transaction) Query(ctx context.Context, sql string, args ...any) (sqlledger.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	rows, err := t.tx.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return nil, wrap(ctx, t.conn, err)
	}
	return &result{Rows: rows, ctx: ctx, cancel: cancel, conn: t.conn}, nil
}

type result struct {
	pgx.Rows
	ctx    context.Context
	cancel context.CancelFunc
	conn   *pgx.Conn
}

// Close implements sqlledger.Rows.
func (r *result) Close() {
	r.Rows.Close()
	r.cancel()
}

// Err implements sqlledger.Rows.
func (r *result) Err() error { return wrap(r.ctx, r.conn, r.Rows.Err()) }

// manyRows gives the rest of the transaction the time that many rows take.
func (t *transaction) manyRows(ctx context.Context) error {
	t.patience = bulkPatience
	_, err := t.Exec(ctx, "SELECT set_config('statement_timeout', $1, true)", fmt.Sprintf("%ds", int(bulkPatience.Seconds())-30))
	return err
}

// Stage implements sqlledger.Conn. The table is kept for the connection's life and
// emptied at the end of each transaction: one made and dropped for every target would
// bloat the catalog.
func (t *transaction) Stage(ctx context.Context, table string, columns []string, rows [][]any) error {
	if len(rows) >= bulk {
		if err := t.manyRows(ctx); err != nil {
			return err
		}
	}
	if _, err := t.Exec(ctx, "CREATE TEMPORARY TABLE IF NOT EXISTS "+table+" ("+strings.Join(columns, ", ")+") ON COMMIT DELETE ROWS"); err != nil {
		return err
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i], _, _ = strings.Cut(c, " ")
	}
	if err := t.Copy(ctx, table, names, rows); err != nil {
		return err
	}
	if len(rows) < bulk {
		return nil
	}
	// Without figures the planner takes the table for empty and joins it row by row.
	_, err := t.Exec(ctx, "ANALYZE "+table)
	return err
}

// Copy implements sqlledger.Conn.
func (t *transaction) Copy(ctx context.Context, table string, columns []string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(t.patience, patience))
	defer cancel()
	_, err := t.tx.CopyFrom(ctx, strings.Split(table, "."), columns, pgx.CopyFromRows(rows))
	return wrap(ctx, t.conn, err)
}
