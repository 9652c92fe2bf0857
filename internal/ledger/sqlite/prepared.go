package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxPrepared is how many statements a connection keeps. The ledger has about a hundred
// texts, and a pass uses the same few for each target; lists bound by a filter add some.
const maxPrepared = 64

// connector opens connections that keep what they have prepared: to parse a statement
// takes longer than to run it on one target.
type connector struct{ driver.Connector }

func newConnector(source string) (driver.Connector, error) {
	plain, err := sqlite.NewConnector(source)
	if err != nil {
		return nil, err
	}
	return connector{plain}, nil
}

func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// native is what the driver's connections can do and database/sql asks for.
type native interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// statement is what its statements can do.
type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// Connect implements driver.Connector. A new file is switched to its journal by the
// first that opens it, and the switch itself waits for nobody: so this does.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	plain, err := c.Connector.Connect(ctx)
	for end := time.Now().Add(busyWait); err != nil && isBusy(err) && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
		plain, err = c.Connector.Connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	n, ok := plain.(native)
	if !ok {
		return nil, errors.Join(errors.New("the driver's connections are not those that this program knows"), plain.Close())
	}
	return &conn{native: n, kept: map[string]*prepared{}}, nil
}

// conn is a connection with its statements. database/sql lets one goroutine use it at
// a time.
type conn struct {
	native
	kept map[string]*prepared
	used int64 // counts uses, so that the one unused for the longest time is known
}

type prepared struct {
	statement
	last int64
	busy bool // rows of it are still read
}

// get returns the statement of a text; nil when it is to be run without keeping it: a
// script of several, or one whose rows are still read.
func (c *conn) get(ctx context.Context, text string) (*prepared, error) {
	if p := c.kept[text]; p != nil {
		if p.busy {
			return nil, nil
		}
		c.used++
		p.last = c.used
		return p, nil
	}
	if strings.Contains(text, ";") {
		return nil, nil
	}
	if len(c.kept) >= maxPrepared && !c.evict() {
		return nil, nil
	}
	made, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	s, ok := made.(statement)
	if !ok {
		return nil, made.Close()
	}
	c.used++
	p := &prepared{statement: s, last: c.used}
	c.kept[text] = p
	return p, nil
}

// evict gives the statement up that was unused for the longest time; false when all are
// in use.
func (c *conn) evict() bool {
	oldest := ""
	for text, p := range c.kept {
		if !p.busy && (oldest == "" || p.last < c.kept[oldest].last) {
			oldest = text
		}
	}
	if oldest == "" {
		return false
	}
	_ = c.kept[oldest].Close() // what it did was told when it was run
	delete(c.kept, oldest)
	return true
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	p, err := c.get(ctx, text)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return c.native.ExecContext(ctx, text, args)
	}
	return p.ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	p, err := c.get(ctx, text)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return c.native.QueryContext(ctx, text, args)
	}
	rows, err := p.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	p.busy = true
	return &keptRows{Rows: rows, of: p}, nil
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	for text, p := range c.kept {
		_ = p.Close() // the connection goes as a whole
		delete(c.kept, text)
	}
	return c.native.Close()
}

// keptRows sets their statement free once they are closed.
type keptRows struct {
	driver.Rows
	of *prepared
}

// Close implements driver.Rows.
func (r *keptRows) Close() error {
	err := r.Rows.Close()
	r.of.busy = false
	return err
}
