package refs

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of readers. The zero value is what users get.
type Options struct {
	// MaxKeys bounds how many keys are remembered in order to notice doubled ones; 0
	// means some six million.
	MaxKeys int
	// chunk is what one request reads.
	chunk int
	// batch, lasts and pause are those of Postgres: rows of a FETCH, how long a
	// transaction may last, and how long is waited before a second try.
	batch        int
	lasts, pause time.Duration
}

// row is what a source makes of one row.
type row struct {
	n   int64 // ascending; RowError.Row
	rec Record
	// unnamed rows name no blob. broken ones have no usable key, for that reason.
	unnamed bool
	broken  string
	detail  string
	// badSize and badSum are what is not understood of size and checksum.
	badSize, badSum string
}

func (r *row) reset(n int64) { *r = row{n: n, rec: Record{Size: Unknown}} }

// setKey takes the key, which must not be empty.
func (r *row) setKey(key string) {
	if key == "" {
		r.broken = ReasonNoKey
	}
	r.rec.Key = key
}

func (r *row) setSize(s string) {
	n, ok := parseSize(s)
	if !ok {
		r.badSize = s
	}
	r.rec.Size = n
}

func (r *row) setChecksum(s string) {
	sum, ok := parseChecksum(s)
	if !ok {
		r.badSum = s
	}
	r.rec.Checksum = sum
}

// source opens one state of unsorted rows. tag is the state that a position was made
// in, empty for the newest.
type source interface {
	open(ctx context.Context, tag string) (opened, error)
	namedSince(ctx context.Context) (time.Time, error)
}

// opened is one state of a source. each calls yield for every row, which it may reuse,
// until that returns false.
type opened interface {
	tag() string
	each(yield func(*row) bool) error
	close()
}

// unsorted is a Reader of rows in the order in which they lie there. A walk that goes
// on reads the rows before its position too, which costs little beside asking for the
// blobs: only so are keys noticed that come again behind it.
type unsorted struct {
	src  source
	opts Options

	mu     sync.Mutex
	counts Counts
	last   confirmed
}

// confirmed is what the rows of one state said of some keys. While the source is in
// that state they say the same, and need not all be read again for each key.
type confirmed struct {
	tag   string
	asked map[string]struct{}
	found map[string]Record
}

// maxConfirmed bounds how many keys are remembered.
const maxConfirmed = 100_000

// of is what was said of keys in a state; ok is false when not all were asked for then.
func (c confirmed) of(tag string, keys []string) (out map[string]Record, ok bool) {
	if tag == "" || tag != c.tag {
		return nil, false
	}
	out = make(map[string]Record, len(keys))
	for _, k := range keys {
		if _, asked := c.asked[k]; !asked {
			return nil, false
		}
		if rec, found := c.found[k]; found {
			out[k] = rec
		}
	}
	return out, true
}

var (
	_ Reader  = (*unsorted)(nil)
	_ Counter = (*unsorted)(nil)
)

// Resumable implements Reader.
func (u *unsorted) Resumable() bool { return true }

// Close implements Reader.
func (u *unsorted) Close() error { return nil }

// NamedSince implements Reader.
func (u *unsorted) NamedSince(ctx context.Context) (time.Time, error) { return u.src.namedSince(ctx) }

// Counts implements Counter.
func (u *unsorted) Counts() Counts {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts
}

// position is a row of one state of a source.
type position struct {
	row int64
	tag string
}

func (p position) String() string { return strconv.FormatInt(p.row, 10) + "@" + p.tag }

func parsePosition(s string) (p position, err error) {
	if s == "" {
		return p, nil
	}
	n, tag, ok := strings.Cut(s, "@")
	if p.row, err = strconv.ParseInt(n, 10, 64); !ok || err != nil || tag == "" || p.row < 0 {
		return p, fmt.Errorf("position %s: %w", short(s), ErrPositionGone)
	}
	p.tag = tag
	return p, nil
}

// Records implements Reader.
func (u *unsorted) Records(ctx context.Context, after string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := u.records(ctx, after, yield); err != nil {
			yield(Record{}, err)
		}
	}
}

func (u *unsorted) records(ctx context.Context, after string, yield func(Record, error) bool) error {
	pos, err := parsePosition(after)
	if err != nil {
		return err
	}
	in, err := u.src.open(ctx, pos.tag)
	if err != nil {
		return err
	}
	defer in.close()
	if pos.tag != "" && in.tag() != pos.tag {
		return ErrPositionGone
	}
	w := &walk{u: u, pos: position{pos.row, in.tag()}, from: pos.row, keys: newKeySet(u.opts.MaxKeys), yield: yield}
	defer w.publish()
	w.publish()
	err = in.each(func(r *row) bool { return ctx.Err() == nil && w.row(r) })
	switch {
	case w.stopped:
		return nil
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	w.end()
	return nil
}

// examples is how many doubled keys an error names.
const examples = 3

// walk is one call of Records.
type walk struct {
	u       *unsorted
	pos     position // of the row at hand
	from    int64    // rows up to this one were yielded by an earlier walk
	keys    *keySet
	counts  Counts
	doubled []string
	yield   func(Record, error) bool
	stopped bool
}

func (w *walk) publish() {
	w.u.mu.Lock()
	defer w.u.mu.Unlock()
	w.u.counts = w.counts
}

// row passes one row on; false when no more are wanted.
func (w *walk) row(r *row) bool {
	if r.n <= w.from {
		if !r.unnamed && r.broken == "" {
			w.keys.add(&r.rec)
		}
		return true
	}
	w.pos.row = r.n
	w.counts.Rows++
	if w.counts.Rows%1024 == 0 {
		w.publish()
	}
	switch {
	case r.unnamed:
		w.counts.Unnamed++
		return true
	case r.broken != "":
		w.counts.Bad++
		return w.fail(&RowError{Row: r.n, Reason: r.broken, Detail: r.detail})
	}
	switch w.keys.add(&r.rec) {
	case sameAgain:
		w.counts.Doubled++
		if len(w.doubled) < examples {
			w.doubled = append(w.doubled, fmt.Sprintf("%s in row %d", short(r.rec.Key), r.n))
		}
		return w.partial(r)
	case contradicts:
		w.counts.Contradicting++
		return w.fail(&RowError{Row: r.n, Reason: ReasonConflict, Partial: true,
			Detail: fmt.Sprintf("an earlier row with the key %s has another size or checksum", short(r.rec.Key))})
	case noRoom:
		w.counts.Unremembered++
	}
	if !w.partial(r) {
		return false
	}
	w.counts.Records++
	r.rec.Position = w.pos.String()
	w.stopped = w.stopped || !w.yield(r.rec, nil)
	return !w.stopped
}

// partial tells what is not understood of a row whose key is.
func (w *walk) partial(r *row) bool {
	return (r.badSize == "" || w.fail(&RowError{Row: r.n, Reason: ReasonSize, Detail: short(r.badSize), Partial: true})) &&
		(r.badSum == "" || w.fail(&RowError{Row: r.n, Reason: ReasonChecksum, Detail: short(r.badSum), Partial: true}))
}

func (w *walk) fail(e *RowError) bool {
	e.Count = max(e.Count, 1)
	if !e.Partial || e.Reason == ReasonConflict { // else the record itself comes next
		e.Position = w.pos.String()
	}
	w.stopped = w.stopped || !w.yield(Record{}, e)
	return !w.stopped
}

// end tells what is told once.
func (w *walk) end() {
	if !w.stopped && w.counts.Doubled > 0 {
		w.fail(&RowError{Reason: ReasonDoubled, Count: w.counts.Doubled, Partial: true, Detail: strings.Join(w.doubled, ", ")})
	}
}

// Confirm implements Reader. It reads all rows again, unless the source is still in the
// state in which it was asked for these keys before.
func (u *unsorted) Confirm(ctx context.Context, keys []string) (map[string]Record, error) {
	asked := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		asked[k] = struct{}{}
	}
	found := make(map[string]*group, len(keys))
	if len(asked) == 0 {
		return map[string]Record{}, nil
	}
	in, err := u.src.open(ctx, "")
	if err != nil {
		return nil, err
	}
	defer in.close()
	u.mu.Lock()
	known, ok := u.last.of(in.tag(), keys)
	u.mu.Unlock()
	if ok {
		return known, nil
	}
	var bad int64
	err = in.each(func(r *row) bool {
		switch _, wanted := asked[r.rec.Key]; {
		case r.unnamed:
		case r.broken == ReasonMalformed:
			bad++
		case wanted && r.broken == "" && found[r.rec.Key] == nil:
			found[r.rec.Key] = &group{rec: r.rec}
		case wanted && r.broken == "":
			found[r.rec.Key].add(&r.rec)
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// A row that cannot be read may be the one that names a key.
	if gone := len(asked) - len(found); bad > 0 && gone > 0 {
		return nil, fmt.Errorf("confirm %d keys: %d of them were not found, and %d rows that may name them cannot be read", len(asked), gone, bad)
	}
	out := make(map[string]Record, len(found))
	for k, g := range found {
		out[k] = g.rec
	}
	if len(asked) <= maxConfirmed {
		u.mu.Lock()
		u.last = confirmed{in.tag(), asked, out}
		u.mu.Unlock()
		out = maps.Clone(out) // the caller's own
	}
	return out, nil
}

// group is what the rows with one key say together.
type group struct {
	rec                 Record
	otherSize, otherSum bool // they contradict each other, and rec does without
}

// add takes one more row in.
func (g *group) add(r *Record) {
	switch {
	case g.otherSize || r.Size == Unknown:
	case g.rec.Size == Unknown:
		g.rec.Size = r.Size
	case g.rec.Size != r.Size:
		g.rec.Size, g.otherSize = Unknown, true
	}
	switch {
	case g.otherSum || r.Checksum == "":
	case g.rec.Checksum == "":
		g.rec.Checksum = r.Checksum
	case g.rec.Checksum != r.Checksum:
		g.rec.Checksum, g.otherSum = "", true
	}
}

func (g *group) contradicts() bool { return g.otherSize || g.otherSum }
