package refs

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// pgWalk is one call of Records: transactions one after the other.
type pgWalk struct {
	p     *postgres
	yield func(Record, error) bool
	// last is the key behind which the next transaction goes on: everything up to it
	// was yielded.
	last    string
	batch   []row
	counts  Counts
	doubled []string
	stopped bool
}

func (w *pgWalk) publish() {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.counts = w.counts
}

func (w *pgWalk) run(ctx context.Context) error {
	for failed := 0; ; {
		before := w.last
		end, err := w.transaction(ctx)
		switch {
		case w.stopped, err == nil && end:
			return nil
		case err == nil:
			failed = 0
			continue
		case !again(err):
			return err
		}
		if w.last != before {
			failed = 0
		}
		if failed++; failed > pgTries {
			return err
		}
		if err := sleep(ctx, w.p.opts.pause<<(failed-1)); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// transaction reads until the end, or until it has lasted long enough.
func (w *pgWalk) transaction(ctx context.Context) (end bool, err error) {
	late := time.NewTimer(w.p.opts.lasts)
	defer late.Stop()
	tx, err := w.p.begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.close(ctx)
	cols, err := w.p.columns(ctx, tx)
	if err != nil {
		return false, err
	}
	sql := "DECLARE refs NO SCROLL CURSOR FOR SELECT " + cols.list + " " + w.p.from() + `WHERE key COLLATE "C" > $1 ORDER BY key COLLATE "C"`
	if err := tx.exec(ctx, sql, []byte(w.last)); err != nil {
		return false, pgError(ctx, "open a cursor", err)
	}
	g := pgGroup{w: w}
	from, expired := w.last, false
	for {
		if err := w.fetch(ctx, tx); err != nil {
			return false, err
		}
		if len(w.batch) == 0 {
			return true, w.end(ctx, tx, cols, &g)
		}
		for i := range w.batch {
			select {
			case <-late.C:
				expired = true
			case <-ctx.Done():
				return false, context.Cause(ctx)
			default:
			}
			if expired && w.last != from {
				tx.close(ctx) // what was fetched is still good
			}
			if !g.add(&w.batch[i]) {
				return false, nil
			}
		}
		w.publish()
		// The newest group may go on in the next batch; it is read again.
		if !tx.open {
			return false, nil
		}
	}
}

func (w *pgWalk) fetch(ctx context.Context, tx *pgTx) error {
	w.batch = w.batch[:0]
	_, err := tx.rows(ctx, fmt.Sprintf("FETCH FORWARD %d FROM refs", w.p.opts.batch), func(v [][]byte) {
		w.batch = append(w.batch, row{})
		pgRow(v, &w.batch[len(w.batch)-1])
	})
	if err != nil {
		return pgError(ctx, "fetch", err)
	}
	return nil
}

// end tells what is left when there are no more rows.
func (w *pgWalk) end(ctx context.Context, tx *pgTx, cols pgColumns, g *pgGroup) error {
	var null, empty int64
	_, err := tx.rows(ctx, "SELECT count(*) FILTER (WHERE key IS NULL), count(*) FILTER (WHERE key = '') "+w.p.from()+"WHERE key IS NULL OR key = ''", func(v [][]byte) {
		null, empty = count(v[0]), count(v[1])
	})
	var ids []string
	if err == nil && null+empty > 0 && cols.record {
		_, err = tx.rows(ctx, fmt.Sprintf("SELECT record_id::text %sWHERE key IS NULL OR key = '' LIMIT %d", w.p.from(), examples), func(v [][]byte) {
			ids = append(ids, short(string(v[0])))
		})
	}
	if err != nil {
		return pgError(ctx, "count null keys", err)
	}
	tx.close(ctx)
	if !g.flush() {
		return nil
	}
	if n := null + empty; n > 0 {
		w.counts.Rows += n
		w.counts.Bad += n
		detail := fmt.Sprintf("%d null, %d empty", null, empty)
		if len(ids) > 0 {
			detail += ", of the records " + strings.Join(ids, ", ")
		}
		if !w.fail(&RowError{Reason: ReasonNoKey, Count: n, Detail: detail}) {
			return nil
		}
	}
	if w.counts.Doubled > 0 {
		w.fail(&RowError{Reason: ReasonDoubled, Count: w.counts.Doubled, Partial: true, Detail: strings.Join(w.doubled, ", ")})
	}
	return nil
}

func (w *pgWalk) fail(e *RowError) bool {
	e.Count = max(e.Count, 1)
	w.stopped = w.stopped || !w.yield(Record{}, e)
	return !w.stopped
}

// pgGroup is the rows with the key that is read at the moment. They follow each other.
type pgGroup struct {
	w *pgWalk
	group
	rows     int64
	problems []*RowError
}

// maxProblems bounds what is told of the rows of one key.
const maxProblems = 10

// add takes a row in, and passes the group before on when it is of another key; false
// when no more are wanted.
func (g *pgGroup) add(r *row) bool {
	if g.rows > 0 && g.rec.Key == r.rec.Key {
		g.group.add(&r.rec)
	} else {
		if !g.flush() {
			return false
		}
		g.group, g.rows, g.problems = group{rec: r.rec}, 0, g.problems[:0]
	}
	g.rows++
	for _, bad := range [...]struct{ reason, text string }{{ReasonSize, r.badSize}, {ReasonChecksum, r.badSum}} {
		if bad.text != "" && len(g.problems) < maxProblems {
			g.problems = append(g.problems, &RowError{Reason: bad.reason, Detail: "key " + short(r.rec.Key) + ": " + short(bad.text), Partial: true})
		}
	}
	return true
}

// flush passes the group on; false when no more are wanted.
func (g *pgGroup) flush() bool {
	w := g.w
	if g.rows == 0 {
		return true
	}
	w.counts.Rows += g.rows
	switch {
	case g.contradicts():
		w.counts.Contradicting += g.rows - 1
		e := &RowError{Reason: ReasonConflict, Count: g.rows, Partial: true, Detail: fmt.Sprintf("%d rows have the key %s, with other sizes or checksums", g.rows, short(g.rec.Key))}
		if !w.fail(e) {
			return false
		}
	case g.rows > 1:
		w.counts.Doubled += g.rows - 1
		if len(w.doubled) < examples {
			w.doubled = append(w.doubled, short(g.rec.Key))
		}
	}
	for _, e := range g.problems {
		if !w.fail(e) {
			return false
		}
	}
	w.counts.Records++
	g.rec.Position = g.rec.Key
	w.last = g.rec.Key
	g.rows = 0
	w.stopped = !w.yield(g.rec, nil)
	return !w.stopped
}
