package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// SQLSTATEs, https://www.postgresql.org/docs/current/errcodes-appendix.html
var (
	// The schema or what should be in it is not there.
	notMigrated = []string{"3F000", "42P01", "42883"}
	// The server goes, comes, is full, or is a standby that takes no writes.
	unreachable = []string{"57P01", "57P02", "57P03", "53300", "25006"}
	// A prepared statement is not there or there already: the session is not ours.
	swapped = []string{"26000", "42P05"}
	// The transaction was given up for another; it may be tried again.
	givenUp = []string{"40001", "40P01", "55P03"}
)

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func retryable(err error) bool { return slices.Contains(givenUp, sqlState(err)) }

// wrap gives an error of a connection its sentinel, once. conn is nil when there is
// none yet.
func wrap(ctx context.Context, conn *pgx.Conn, err error) error {
	switch {
	case err == nil, errors.Is(err, ledger.ErrUnreachable), errors.Is(err, ledger.ErrNotMigrated), errors.Is(err, ledger.ErrPooler):
		return err
	}
	code := sqlState(err) // 57014: a time-out of the server's, or the caller's cancelling
	var connect *pgconn.ConnectError
	switch {
	case slices.Contains(notMigrated, code):
		return fmt.Errorf("%w: %w", ledger.ErrNotMigrated, err)
	case slices.Contains(swapped, code):
		return fmt.Errorf("%w: %w", ledger.ErrPooler, err)
	case slices.Contains(unreachable, code), strings.HasPrefix(code, "08"):
		return fmt.Errorf("%w: %w", ledger.ErrUnreachable, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case code == "57014", errors.As(err, &connect), errors.Is(err, context.DeadlineExceeded), code == "" && conn != nil && conn.IsClosed():
		return fmt.Errorf("%w: %w", ledger.ErrUnreachable, err)
	}
	return err
}
