package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// rounds of detectPooler: a pooler of several threads may give a session back a moment
// after its client went on, and then once in a while shows nothing. What all of them
// miss is found out when a transaction begins.
const rounds = 3

// detectPooler returns ErrPooler when two connections turn out to share a server
// session, or one to have several. first is one of the pool's.
func detectPooler(ctx context.Context, pool *pgxpool.Pool, first *pgx.Conn) error {
	other, err := pool.Acquire(ctx)
	if err != nil {
		return wrap(ctx, nil, err)
	}
	defer other.Release()
	second := other.Conn()
	// Each question is a transaction of its own, after which a pooler may take the
	// session away: one that hands out the session used last gives it to second, one
	// that goes round gives first another.
	seen, err := backend(ctx, first)
	if err != nil {
		return err
	}
	for range rounds {
		if err := sameBackend(ctx, first, seen); err != nil {
			return err
		}
		if err := whileBusy(ctx, second, seen, func() error { return sameBackend(ctx, first, seen) }); err != nil {
			return err
		}
	}
	return nil
}

// whileBusy runs fn while a transaction is open on conn, which must not be served by
// the process taken.
func whileBusy(ctx context.Context, conn *pgx.Conn, taken uint32, fn func() error) error {
	if _, err := conn.Exec(ctx, "BEGIN", pgx.QueryExecModeSimpleProtocol); err != nil {
		if sqlState(err) != "" { // no server refuses it; a pooler by the statement does
			return fmt.Errorf("%w: %w", ledger.ErrPooler, err)
		}
		return wrap(ctx, conn, err)
	}
	pid, err := backend(ctx, conn)
	if err == nil && pid == taken {
		err = ledger.ErrPooler
	}
	if err == nil {
		err = fn()
	}
	if _, end := conn.Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol); err == nil {
		err = wrap(ctx, conn, end)
	}
	return err
}

func sameBackend(ctx context.Context, conn *pgx.Conn, want uint32) error {
	pid, err := backend(ctx, conn)
	if err == nil && pid != want {
		return ledger.ErrPooler
	}
	return err
}

// backend is the process that serves a connection at the moment. The simple protocol
// leaves no prepared statement behind in somebody else's session.
func backend(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	var pid int64
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return uint32(pid), wrap(ctx, conn, err)
}
