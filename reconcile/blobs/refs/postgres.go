package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// pgBatch is how many rows a FETCH brings.
	pgBatch = 10_000
	// pgLasts bounds a transaction: an old one keeps the server from cleaning up.
	pgLasts = 5 * time.Minute
	// pgTries is how often in a row reading is begun again behind the same record.
	pgTries = 5
	pgPause = time.Second
	// pgKeys is how many keys one statement of Confirm asks for.
	pgKeys = 1000
)

// Postgres reads the rows of a query, which must yield a text column key, unique and
// never null, and may yield size, checksum and record_id; others are ignored. It is used
// as a subquery,
//
//	SELECT … FROM (query) q WHERE key COLLATE "C" > … ORDER BY key COLLATE "C"
//
// which an index on (key COLLATE "C") serves; without one the server sorts all rows,
// and anew whenever a transaction begins. Rows come through a cursor in read-only
// transactions of five minutes at the most, each of which goes on behind the last key:
// the walk sees each row as one of them saw it, and all rows together are no snapshot.
// A transaction stays on one server session, so that poolers that hand sessions out by
// transaction do; those that do so by statement do not.
//
// A lost connection is made again, up to five times in a row. Keys that are null or
// empty are told at the end of a walk. Positions are keys: they never go.
//
// Nothing is asked of the network here. databaseURL is a secret; no error holds it.
func Postgres(databaseURL, query string, opts Options) (Reader, error) {
	if err := checkQuery(query); err != nil {
		return nil, err
	}
	cfg, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		// The error quotes the URL, and what is wrong with it may be the password.
		return nil, errors.New("the URL of the references' database cannot be read; it looks like postgres://user:password@host:5432/name, with special characters of the password percent-encoded")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = pgConnectTimeout
	}
	// A server that is gone without a word is noticed in a minute.
	cfg.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}).DialContext
	if opts.batch <= 0 {
		opts.batch = pgBatch
	}
	if opts.lasts <= 0 {
		opts.lasts = pgLasts
	}
	if opts.pause <= 0 {
		opts.pause = pgPause
	}
	return &postgres{config: cfg, query: query, opts: opts}, nil
}

type postgres struct {
	config *pgconn.Config
	query  string
	opts   Options

	mu     sync.Mutex
	counts Counts
}

var (
	_ Reader  = (*postgres)(nil)
	_ Counter = (*postgres)(nil)
)

// Resumable implements Reader.
func (p *postgres) Resumable() bool { return true }

// Close implements Reader. Each call has a connection of its own.
func (p *postgres) Close() error { return nil }

// NamedSince implements Reader: a query does not tell.
func (p *postgres) NamedSince(context.Context) (time.Time, error) { return time.Time{}, nil }

// Counts implements Counter.
func (p *postgres) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// pgColumns are the columns of the query that are read: size, checksum, record_id as
// SQL, or a null.
type pgColumns struct {
	list   string
	record bool
}

// from is the query as what other statements read from. Its end stands on a line of
// its own: what could hide it is not in there.
func (p *postgres) from() string { return "FROM (\n" + p.query + "\n) q " }

// columns asks the server what the query yields.
func (p *postgres) columns(ctx context.Context, tx *pgTx) (c pgColumns, err error) {
	fields, err := tx.rows(ctx, "SELECT * "+p.from()+"LIMIT 0", nil)
	if err != nil {
		return c, pgError(ctx, "describe the query", err)
	}
	has := map[string]int{}
	var names []string
	var key uint32
	for _, f := range fields {
		has[f.Name]++
		names = append(names, f.Name)
		if f.Name == "key" {
			key = f.DataTypeOID
		}
	}
	switch {
	case has["key"] == 0:
		return c, badQuery("it yields no column key; its columns are %s", short(strings.Join(names, ", ")))
	case key != oidText && key != oidVarchar:
		return c, badQuery("its column key is not of type text; say (…)::text AS key")
	}
	c.list = "key::text"
	for _, name := range []string{"size", "checksum", "record_id"} {
		if has[name] > 0 {
			c.list += ", " + name + "::text"
		} else {
			c.list += ", NULL"
		}
	}
	for _, name := range []string{"key", "size", "checksum", "record_id"} {
		if has[name] > 1 {
			return c, badQuery("it yields %d columns %s", has[name], name)
		}
	}
	c.record = has["record_id"] == 1
	return c, nil
}

// pgRow takes one row over.
func pgRow(v [][]byte, r *row) {
	r.reset(0)
	r.rec.Key = string(v[0])
	r.setSize(string(v[1]))
	r.setChecksum(string(v[2]))
	r.rec.Record = string(v[3])
}

// Records implements Reader.
func (p *postgres) Records(ctx context.Context, after string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		w := &pgWalk{p: p, last: after, yield: yield, batch: make([]row, 0, p.opts.batch)}
		w.publish()
		err := w.run(ctx)
		w.publish()
		if err != nil && !w.stopped {
			yield(Record{}, err)
		}
	}
}

// Confirm implements Reader.
func (p *postgres) Confirm(ctx context.Context, keys []string) (map[string]Record, error) {
	groups := make(map[string]*group, len(keys))
	asked := make([]string, 0, len(keys))
	for _, k := range keys {
		if _, again := groups[k]; again || k == "" || strings.ContainsRune(k, 0) || !utf8.ValidString(k) {
			continue // no text of the database is like that
		}
		groups[k] = nil
		asked = append(asked, k)
	}
	found := map[string]Record{}
	if len(asked) == 0 {
		return found, nil
	}
	tx, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.close(ctx)
	cols, err := p.columns(ctx, tx)
	if err != nil {
		return nil, err
	}
	var r row
	for chunk := range slices.Chunk(asked, pgKeys) {
		_, err := tx.typed(ctx, "SELECT "+cols.list+" "+p.from()+"WHERE key = ANY($1)", []uint32{oidTextArray}, func(v [][]byte) {
			pgRow(v, &r)
			// A collation may hold more to be equal than is.
			if g, wanted := groups[r.rec.Key]; wanted && g == nil {
				groups[r.rec.Key] = &group{rec: r.rec}
			} else if wanted {
				g.add(&r.rec)
			}
		}, textArray(chunk))
		if err != nil {
			return nil, pgError(ctx, fmt.Sprintf("confirm %d keys", len(chunk)), err)
		}
	}
	for k, g := range groups {
		if g != nil {
			found[k] = g.rec
		}
	}
	return found, nil
}
