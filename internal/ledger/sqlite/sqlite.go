// Package sqlite is the ledger in one file, for one host: what runs on demand and
// demos need, without a server.
//
// The file is in WAL mode with synchronous FULL: what was committed survives a crash
// of the machine. Several processes of the host may use it at once; the disk must be
// local, because locks and shared memory do not work over a network.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlledger"
	"github.com/rocketkeep/reconcile/sql/migrations"
)

const (
	// busyWait is how long one writer waits for another. Recording a hundred thousand
	// findings takes seconds.
	busyWait = time.Minute
	// maxConns: writers take turns, but readers need not wait for them.
	maxConns = 4
)

// Open opens a ledger file, makes it when it is not there, and brings its schema up to
// date: nobody else depends on it. file is a path.
func Open(ctx context.Context, file, toolVersion string) (ledger.Ledger, error) {
	m, err := NewMigrator(ctx, file, toolVersion)
	if err != nil {
		return nil, err
	}
	if _, err := m.Up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), m.Close())
	}
	return sqlledger.New(m.db), nil
}

// NewMigrator opens a file that is or shall become a ledger.
func NewMigrator(ctx context.Context, file, toolVersion string) (*Migrator, error) {
	db, err := open(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Migrator{db: db, toolVersion: toolVersion}, nil
}

type database struct {
	pool *sql.DB
	file string
}

var _ sqlledger.DB = (*database)(nil)

func open(ctx context.Context, file string) (*database, error) {
	if file == "" || strings.ContainsRune(file, 0) {
		return nil, errors.New("no file is named")
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := create(abs); err != nil {
		return nil, fmt.Errorf("%w: %w", ledger.ErrUnreachable, err)
	}
	via, err := newConnector(source(abs))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ledger.ErrUnreachable, err)
	}
	pool := sql.OpenDB(via)
	pool.SetMaxOpenConns(maxConns)
	pool.SetMaxIdleConns(maxConns) // one that is closed takes what it prepared with it
	db := &database{pool: pool, file: abs}
	if err := db.check(ctx); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return db, nil
}

// source is the address of a file with the settings of its connections.
func source(abs string) string {
	q := url.Values{}
	q.Set("_busy_timeout", strconv.FormatInt(busyWait.Milliseconds(), 10))
	q.Set("_journal_mode", "WAL")
	q.Set("_synchronous", "FULL")
	q.Set("_foreign_keys", "on")
	q.Add("_pragma", "temp_store(MEMORY)")
	// A writer must not begin as a reader: it would be refused when another wrote
	// meanwhile. Those that only read say so to the connection instead.
	q.Set("_txlock", "immediate")
	q.Set("_dqs", "0")
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs), RawQuery: q.Encode()}).String()
}

// create makes the file, for its owner alone: it tells what a company stores and
// where. The folder is made durable, so that the file is still there after a crash.
func create(abs string) error {
	dir := filepath.Dir(abs)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkDisk(dir); err != nil {
		return err
	}
	f, err := os.OpenFile(abs, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// check opens the file and makes sure that what was asked for is so.
func (db *database) check(ctx context.Context) error {
	var mode string
	var synchronous, keys int
	if err := db.pool.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return wrap(ctx, err)
	}
	if err := db.pool.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return wrap(ctx, err)
	}
	if err := db.pool.QueryRowContext(ctx, "PRAGMA foreign_keys").Scan(&keys); err != nil {
		return wrap(ctx, err)
	}
	if mode != "wal" || synchronous < 2 || keys != 1 {
		return fmt.Errorf("the file cannot be used durably (journal mode %s, synchronous %d)", mode, synchronous)
	}
	return nil
}

// Location implements sqlledger.DB.
func (db *database) Location() string { return "sqlite:" + db.file }

// Close implements sqlledger.DB.
func (db *database) Close() error {
	if err := db.pool.Close(); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Each implements sqlledger.DB.
func (db *database) Each(param string) string { return "json_each(" + param + ") AS e" }

// Migrator implements ledger.Migrator.
type Migrator struct {
	db          *database
	toolVersion string
}

var _ ledger.Migrator = (*Migrator)(nil)

// Location implements ledger.Migrator.
func (m *Migrator) Location() string { return m.db.Location() }

// Close implements ledger.Migrator.
func (m *Migrator) Close() error { return m.db.Close() }

// Status implements ledger.Migrator.
func (m *Migrator) Status(ctx context.Context) (ledger.MigrationStatus, error) {
	steps, err := migrations.Steps(migrations.SQLite)
	if err != nil {
		return ledger.MigrationStatus{}, err
	}
	return sqlledger.Status(ctx, m.db, steps)
}

// Up implements ledger.Migrator.
func (m *Migrator) Up(ctx context.Context) (ledger.MigrationStatus, error) {
	// Most of the time nothing is to be done, and then nobody need wait for a lock.
	st, err := m.Status(ctx)
	if err != nil || len(st.Pending) == 0 {
		return st, err
	}
	steps, err := migrations.Steps(migrations.SQLite)
	if err != nil {
		return st, err
	}
	return sqlledger.Up(ctx, m.db, steps, m.toolVersion)
}

// Down takes back the steps above version to; 0 forgets everything. It is for tests.
func (m *Migrator) Down(ctx context.Context, to int) error {
	steps, err := migrations.Steps(migrations.SQLite)
	if err != nil {
		return err
	}
	return sqlledger.Down(ctx, m.db, steps, to)
}
