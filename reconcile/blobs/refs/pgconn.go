package refs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// pgSettings hold within a transaction, unless the URL sets them otherwise. The first
// FETCH may have to sort everything. A transaction is closed here after five minutes;
// the server does it where this process hangs.
var pgSettings = [][2]string{
	{"statement_timeout", "10min"},
	{"lock_timeout", "10s"},
	{"idle_in_transaction_session_timeout", "10min"},
	{"client_encoding", "UTF8"},
	{"application_name", "reconcile"},
}

const pgConnectTimeout = 10 * time.Second

// Types of parameters, from the server's catalogue pg_type.
const (
	oidText      = 25
	oidVarchar   = 1043
	oidTextArray = 1009
)

// pgTx is one read-only transaction on a connection of its own. All of its statements
// go to one server session, so that a pooler may hand sessions out by transaction.
type pgTx struct {
	conn *pgconn.PgConn
	open bool
}

func (p *postgres) begin(ctx context.Context) (*pgTx, error) {
	conn, err := pgconn.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return nil, pgError(ctx, "connect", err)
	}
	tx := &pgTx{conn: conn, open: true}
	// Anything stricter than READ COMMITTED could only fail; a cursor sees one state
	// anyway.
	err = tx.exec(ctx, "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY")
	if err == nil {
		var calls []string
		var values [][]byte
		for _, s := range pgSettings {
			if _, given := p.config.RuntimeParams[s[0]]; given || strings.Contains(p.config.RuntimeParams["options"], s[0]) {
				continue
			}
			calls = append(calls, fmt.Sprintf("set_config('%s', $%d, true)", s[0], len(values)+1))
			values = append(values, []byte(s[1]))
		}
		err = tx.exec(ctx, "SELECT "+strings.Join(calls, ", "), values...)
	}
	if err != nil {
		tx.close(ctx)
		return nil, pgError(ctx, "begin", err)
	}
	return tx, nil
}

// rows runs a statement, whose parameters are texts, and gives its fields and each row
// in text form. A value is nil for a null, and good until the next row.
func (tx *pgTx) rows(ctx context.Context, sql string, row func(values [][]byte), values ...[]byte) ([]pgconn.FieldDescription, error) {
	oids := make([]uint32, len(values))
	for i := range oids {
		oids[i] = oidText
	}
	return tx.typed(ctx, sql, oids, row, values...)
}

func (tx *pgTx) typed(ctx context.Context, sql string, oids []uint32, row func(values [][]byte), values ...[]byte) ([]pgconn.FieldDescription, error) {
	// The unnamed statement: nothing is left behind in somebody else's session.
	r := tx.conn.ExecParams(ctx, sql, values, oids, nil, nil)
	fields := slices.Clone(r.FieldDescriptions())
	for r.NextRow() {
		if row != nil {
			row(r.Values())
		}
	}
	_, err := r.Close()
	return fields, err
}

func (tx *pgTx) exec(ctx context.Context, sql string, values ...[]byte) error {
	_, err := tx.rows(ctx, sql, nil, values...)
	return err
}

// close ends the transaction, and so what the server keeps for it.
func (tx *pgTx) close(ctx context.Context) {
	if !tx.open {
		return
	}
	tx.open = false
	// The connection's end would roll back too; saying so spares a pooler a session.
	_ = tx.exec(ctx, "ROLLBACK")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = tx.conn.Close(ctx) // nothing was written
}

// ErrUnreachable: the database could not be asked.
var ErrUnreachable = errors.New("database not reachable")

// pgError says what went wrong in words that hold nothing of the URL but what the
// server itself says.
func pgError(ctx context.Context, doing string, err error) error {
	const what = "read references from Postgres"
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %s: %w", what, doing, context.Cause(ctx))
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		if server.Code == "57014" {
			return fmt.Errorf("%s: %s: %w; an index on (key COLLATE \"C\") spares the sort, and statement_timeout in the URL sets another limit", what, doing, server)
		}
		return fmt.Errorf("%s: %s: %w", what, doing, server)
	}
	return fmt.Errorf("%s: %s: %w: %s", what, doing, ErrUnreachable, outage(err))
}

func outage(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ENOENT):
		return "no such socket"
	case errors.As(err, &dns):
		return "the host name does not resolve"
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &cert):
		return "the server's certificate is not accepted"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	}
	return "the connection broke or was not made"
}

// again reports whether a read may be begun again behind the last record: the
// connection was lost, or the server gave the transaction up for reasons of its own.
func again(err error) bool {
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server):
		return strings.HasPrefix(server.Code, "08") ||
			slices.Contains([]string{"57P01", "57P02", "57P03", "53300", "40001", "40P01", "25P03"}, server.Code)
	}
	return errors.Is(err, ErrUnreachable)
}

// textArray is the text form of an array of texts.
func textArray(texts []string) []byte {
	b := []byte{'{'}
	for i, s := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		for _, c := range []byte(s) {
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
		b = append(b, '"')
	}
	return append(b, '}')
}

// count reads a number that the server wrote.
func count(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64) // it is count(*)
	return n
}
