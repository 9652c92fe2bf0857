// Package postgres is the ledger in a Postgres database, in the schema reconcile:
// what production uses and analysts read.
//
// A connection is prepared for the ways in which a client dies: a killed process gives
// its locks up within seconds (client_connection_check_interval), a hung one within a
// minute (idle_in_transaction_session_timeout), a lost node when keepalives fail. None
// of that is trusted: what protects a target is the epoch of its lock.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlledger"
	"github.com/rocketkeep/reconcile/sql/migrations"
)

const (
	// minVersion is the oldest server with client_connection_check_interval.
	minVersion = 140000
	// maxConns: one that records, one that renews locks meanwhile, and two to spare. A
	// fleet of pods shares the server's hundred.
	maxConns = 4
	// connectTimeout bounds a first connection when the URL does not.
	connectTimeout = 10 * time.Second
)

// session is what every connection is set to, unless the URL sets it otherwise.
var session = map[string]string{
	"application_name":                    "reconcile",
	"timezone":                            "UTC",
	"statement_timeout":                   "60s",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "60s",
	"tcp_keepalives_idle":                 "30",
	"tcp_keepalives_interval":             "10",
	"tcp_keepalives_count":                "3",
}

// Open connects to a ledger. It returns ErrUnreachable, ErrPooler or ErrNotMigrated
// when it cannot be used. The URL never stands in an error.
func Open(ctx context.Context, databaseURL string) (ledger.Ledger, error) {
	db, err := open(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if err := db.checkSchema(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), db.Close())
	}
	return sqlledger.New(db), nil
}

// NewMigrator connects to a database that is or shall become a ledger. toolVersion is
// written beside the steps that it applies.
func NewMigrator(ctx context.Context, databaseURL, toolVersion string) (*Migrator, error) {
	db, err := open(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Migrator{db: db, toolVersion: toolVersion}, nil
}

type database struct {
	pool     *pgxpool.Pool
	location string
}

var _ sqlledger.DB = (*database)(nil)

func open(ctx context.Context, databaseURL string) (*database, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		// The error quotes the URL, and what is wrong with it may be the password.
		return nil, errors.New("the database URL cannot be read; it looks like postgres://user:password@host:5432/name, with special characters of the password percent-encoded")
	}
	prepare(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ledger.ErrUnreachable, err)
	}
	db := &database{pool: pool, location: location(cfg.ConnConfig)}
	if err := db.check(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return db, nil
}

// location is the address without the password and without options, which may hold
// one.
func location(c *pgx.ConnConfig) string {
	u := url.URL{Scheme: "postgres", User: url.User(c.User), Path: "/" + c.Database}
	if c.Host != "" && c.Host[0] == '/' { // the folder of a socket
		u.Host = url.PathEscape(c.Host)
		return "postgres://" + url.PathEscape(c.User) + "@" + u.Host + ":" + strconv.Itoa(int(c.Port)) + "/" + url.PathEscape(c.Database)
	}
	u.Host = net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	return u.String()
}

func prepare(cfg *pgxpool.Config) {
	c := cfg.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	c.DialFunc = dialer().DialContext
	c.OnNotice = onNotice
	cfg.MaxConns = max(cfg.MaxConns, maxConns)
	set := maps.Clone(session)
	for name := range c.RuntimeParams {
		delete(set, name)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return prepareConn(ctx, conn, set) }
}

// tokenKey is where a connection keeps the name of its session.
const tokenKey = "reconcile.session"

// prepareConn makes a new connection's session what it must be.
func prepareConn(ctx context.Context, conn *pgx.Conn, set map[string]string) error {
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
	// Set by a statement and not at start-up: session-mode poolers refuse the latter.
	calls, args := []string{}, []any{pgx.QueryExecModeSimpleProtocol}
	for name, value := range set {
		calls = append(calls, fmt.Sprintf("set_config($%d, $%d, false)", len(args), len(args)+1))
		args = append(args, name, value)
	}
	if _, err := conn.Exec(ctx, "SELECT "+strings.Join(calls, ", "), args...); err != nil {
		return fmt.Errorf("prepare session: %w", err)
	}
	// A database may be set to answer a commit before it is on disk. Ours must not;
	// whoever waits for more than the local disk goes on doing so.
	if _, err := conn.Exec(ctx, "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'", pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("set synchronous_commit: %w", err)
	}
	// Not every system can look after a client while it works for it.
	_, err := conn.Exec(ctx, "SELECT set_config('client_connection_check_interval', '2s', false)", pgx.QueryExecModeSimpleProtocol)
	var refused *pgconn.PgError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	token := uuid.NewString() // see begin
	if _, err := conn.Exec(ctx, "SELECT set_config('reconcile.session', $1, false)", pgx.QueryExecModeSimpleProtocol, token); err != nil {
		return fmt.Errorf("name session: %w", err)
	}
	conn.PgConn().CustomData()[tokenKey] = token
	return nil
}

// check connects, and refuses a server that cannot hold a ledger.
func (db *database) check(ctx context.Context) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return wrap(ctx, nil, err)
	}
	defer conn.Release()
	var version int
	var encoding string
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')", pgx.QueryExecModeSimpleProtocol).Scan(&version, &encoding)
	if err != nil {
		return wrap(ctx, conn.Conn(), err)
	}
	if version < minVersion {
		return fmt.Errorf("the server is Postgres %d; %d or newer is needed", version/10000, minVersion/10000)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database is encoded in %s; UTF8 is needed", encoding)
	}
	return detectPooler(ctx, db.pool, conn.Conn())
}

// Location implements sqlledger.DB.
func (db *database) Location() string { return db.location }

// Close implements sqlledger.DB.
func (db *database) Close() error {
	db.pool.Close()
	return nil
}

// Each implements sqlledger.DB.
func (db *database) Each(param string) string { return "unnest(" + param + "::text[]) AS e(value)" }

func (db *database) checkSchema(ctx context.Context) error {
	steps, err := migrations.Steps(migrations.Postgres)
	if err != nil {
		return err
	}
	st, err := sqlledger.Status(ctx, db, steps)
	if err != nil {
		return err
	}
	if len(st.Pending) > 0 {
		return fmt.Errorf("%w (%s and on are missing)", ledger.ErrNotMigrated, st.Pending[0])
	}
	return nil
}
