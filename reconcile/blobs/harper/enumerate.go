package harper

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// Reasons of row errors, beside those of package refs.
const (
	// ReasonSomeNodesOnly: a record that not every node holds. It is reported and never
	// touched; the blobs of the nodes that hold it are looked at.
	ReasonSomeNodesOnly = "record on some nodes only"
	// ReasonNotEnumerated: records of a node that could not be enumerated. The first
	// thousand keys that other nodes have are looked at on it nevertheless, and stay
	// undecided; the rest is counted here.
	ReasonNotEnumerated = "node cannot be enumerated"
)

// reader enumerates the union of the records of all checked nodes. Nodes order keys by
// rules of their own, so keys are compared for equality only: what one node holds of a
// range of another's keys is what comes, in its own order, before the first of its keys
// after that range.
type reader struct{ c *Cluster }

var _ refs.Reader = (*reader)(nil)

// Resumable implements refs.Reader: a position is the path of a table and the last key
// that is done with.
func (r *reader) Resumable() bool { return true }

// Close implements refs.Reader.
func (r *reader) Close() error { return nil }

// NamedSince implements refs.Reader: records tell nothing of their age that can be
// trusted, so that it is not known.
func (r *reader) NamedSince(context.Context) (time.Time, error) { return time.Time{}, nil }

func position(path, after string) string { return path + "?" + after }

// Records implements refs.Reader. Each record is one blob of one node, its Key a location
// and its Record the record's own key. A record's Position is that of the last key that
// is done with, so that going on may repeat the blobs of one key.
func (r *reader) Records(ctx context.Context, after string) iter.Seq2[refs.Record, error] {
	return func(yield func(refs.Record, error) bool) {
		paths, key := r.c.paths, ""
		if after != "" {
			path, k, ok := strings.Cut(after, "?")
			i := slices.Index(paths, path)
			if raw, err := url.PathUnescape(k); !ok || i < 0 || err != nil || EncodeKey(raw) != k {
				yield(refs.Record{}, fmt.Errorf("the place to go on at is in no set of the collection: %w", refs.ErrPositionGone))
				return
			}
			paths, key = paths[i:], k
		}
		nodes := r.c.sickestFirst(ctx)
		for _, path := range paths {
			w := &walk{c: r.c, g: r.c.groups[path], after: key, yield: yield}
			for _, n := range nodes {
				w.nodes = append(w.nodes, &cursor{n: n, after: key})
			}
			if err := w.run(ctx); err != nil {
				yield(refs.Record{}, err)
				return
			}
			if w.stopped {
				return
			}
			key = ""
		}
	}
}

// Confirm implements refs.Reader. Of a node that does not answer, what the enumeration
// said is taken to hold still: the look that follows finds the node unhealthy.
func (r *reader) Confirm(ctx context.Context, keys []string) (map[string]refs.Record, error) {
	var mu sync.Mutex
	out := make(map[string]refs.Record, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, key := range keys {
		g.Go(func() error {
			rec, named, err := r.confirm(gctx, key)
			if err == nil && named {
				mu.Lock()
				defer mu.Unlock()
				out[key] = rec
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

func (r *reader) confirm(ctx context.Context, key string) (rec refs.Record, named bool, err error) {
	loc, err := r.c.Locate(key)
	if err != nil {
		return rec, false, nil // never ours: nothing names it
	}
	u, err := r.c.unit(loc)
	if err != nil || u.set == nil {
		return rec, false, err
	}
	remembered, known := r.c.notes.expected(u)
	s, err := seen{}, u.node.open(ctx, r.c.cfg.LeaveAlone)
	if err == nil {
		s, err = u.node.record(ctx, u, how{})
	}
	switch {
	case ctx.Err() != nil:
		return rec, false, context.Cause(ctx)
	case err != nil && known:
		return remembered, true, nil
	case err != nil:
		return rec, false, fmt.Errorf("read a record again: %w", err)
	case !s.found || s.row.isNull(u.attr):
		return rec, false, nil
	}
	rec, _ = s.row.expected(u.set)
	rec.Key, rec.Record = key, keyOf(u.name)
	return rec, true, nil
}

// keyOf is the key that a name encodes.
func keyOf(name string) string {
	key, err := url.PathUnescape(name)
	if err != nil {
		return name
	}
	return key
}

// entry is one record of a node, by its encoded key.
type entry struct {
	name string
	row  row
}

// cursor is a node on the walk.
type cursor struct {
	n     *node
	after string  // the last key that is done with
	ahead []entry // read already, behind after
	end   bool    // nothing comes behind ahead
	err   error   // it cannot be enumerated any further
	lost  int64   // blobs of other nodes' keys, which it may hold
	bad   int64   // records without a key, not told yet
	first string  // the first key of the page before
}

// maxOnSick is how many blobs of a node that cannot be enumerated are looked at anyway.
const maxOnSick = 1000

// errSamePage: a node that ignores where to begin would be asked for ever.
var errSamePage = errors.New("a page does not begin after the key that it was to begin after")

// fill reads the next page behind ahead, if need be a second time.
func (cu *cursor) fill(ctx context.Context, g *group) error {
	after := cu.after
	if len(cu.ahead) > 0 {
		after = cu.ahead[len(cu.ahead)-1].name
	}
	rows, err := cu.n.page(ctx, g, after, g.page)
	if err != nil && ctx.Err() == nil {
		rows, err = cu.n.page(ctx, g, after, g.page)
	}
	if err != nil {
		return err
	}
	end := len(rows) < g.page
	for i, r := range rows {
		key, ok := keyText(r[g.key])
		name := EncodeKey(key)
		if ok && i == 0 {
			if name == cu.first {
				return errSamePage
			}
			cu.first = name
		}
		switch {
		case ok && name == after:
			return errSamePage
		case ok:
			cu.ahead = append(cu.ahead, entry{name, r})
			after = name
		case i == len(rows)-1 && !end:
			return fmt.Errorf("node %s: the last record of a page has no key to go on from", cu.n.cfg.Name)
		default:
			cu.bad++
		}
	}
	cu.end = end
	return nil
}

// walk is the enumeration of one group.
type walk struct {
	c       *Cluster
	g       *group
	nodes   []*cursor
	after   string // the last key that is done with
	yield   func(refs.Record, error) bool
	stopped bool
}

func (w *walk) fail(e *refs.RowError) {
	w.stopped = w.stopped || !w.yield(refs.Record{}, e)
}

// leave leaves a node out of the rest of the walk. The error is non-nil when nobody is
// left, or the context has ended.
func (w *walk) leave(ctx context.Context, cu *cursor, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cu.err, cu.end, cu.ahead = err, true, nil
	w.c.cfg.Logger.Warn("a node cannot be enumerated", "node", cu.n.cfg.Name, "table", w.g.path, "err", err)
	if !slices.ContainsFunc(w.nodes, func(other *cursor) bool { return other.err == nil }) {
		return fmt.Errorf("no node can be enumerated: %w", err)
	}
	return nil
}

func (w *walk) run(ctx context.Context) error {
	for !w.stopped {
		if err := w.fillAll(ctx); err != nil {
			return err
		}
		pivot := w.pivot()
		if pivot == nil || w.stopped {
			break
		}
		if err := w.batch(ctx, pivot); err != nil {
			return err
		}
	}
	for _, cu := range w.nodes {
		if !w.stopped && cu.err != nil {
			w.fail(&refs.RowError{Reason: ReasonNotEnumerated, Count: max(cu.lost, 1), Detail: fmt.Sprintf("node %s, table %s: %v", cu.n.cfg.Name, w.g.path, cu.err)})
		}
	}
	return nil
}

// fillAll reads on from every node that has nothing ahead.
func (w *walk) fillAll(ctx context.Context) error {
	errs := make([]error, len(w.nodes))
	var wg sync.WaitGroup
	for i, cu := range w.nodes {
		if len(cu.ahead) == 0 && !cu.end {
			wg.Go(func() { errs[i] = cu.fill(ctx, w.g) })
		}
	}
	wg.Wait()
	for i, cu := range w.nodes {
		if errs[i] != nil {
			if err := w.leave(ctx, cu, errs[i]); err != nil {
				return err
			}
		}
		if cu.bad > 0 && !w.stopped {
			w.fail(&refs.RowError{Reason: refs.ReasonNoKey, Detail: "node " + cu.n.cfg.Name + ", table " + w.g.path, Count: cu.bad})
			cu.bad = 0
		}
	}
	return nil
}

// pivot is a node with records ahead.
func (w *walk) pivot() *cursor {
	for _, cu := range w.nodes {
		if len(cu.ahead) > 0 {
			return cu
		}
	}
	return nil
}

// batch yields all records up to the last one that the pivot has ahead.
func (w *walk) batch(ctx context.Context, pivot *cursor) error {
	last := pivot.ahead[len(pivot.ahead)-1].name
	counts := make([]int, len(w.nodes)) // of ahead, how many are in the range
	for i, cu := range w.nodes {
		if cu == pivot {
			counts[i] = len(cu.ahead)
			continue
		}
		if cu.err != nil {
			continue
		}
		n, err := w.within(ctx, cu, last)
		if err == nil {
			counts[i] = n
		} else if err := w.leave(ctx, cu, err); err != nil {
			return err
		}
	}
	w.emit(pivot, counts)
	for i, cu := range w.nodes {
		cu.ahead = slices.Clone(cu.ahead[counts[i]:])
		cu.after = last
	}
	w.after = last
	return nil
}

// within counts the records that a node has ahead up to a key, reading on as needed.
func (w *walk) within(ctx context.Context, cu *cursor, last string) (int, error) {
	seen := 0
	for {
		for i := seen; i < len(cu.ahead); i++ {
			if cu.ahead[i].name == last {
				return i + 1, nil
			}
		}
		seen = len(cu.ahead)
		if cu.end && seen == 0 {
			return 0, nil
		}
		// The key is not on this node: what it has behind it tells where it would be.
		next, err := cu.n.page(ctx, w.g, last, 1)
		if err != nil {
			return 0, err
		}
		if len(next) > 0 {
			key, ok := keyText(next[0][w.g.key])
			if !ok {
				return 0, errors.New("a record without a key")
			}
			if i := slices.IndexFunc(cu.ahead, func(e entry) bool { return e.name == EncodeKey(key) }); i >= 0 {
				return i, nil
			}
		}
		if cu.end {
			return len(cu.ahead), nil
		}
		if err := cu.fill(ctx, w.g); err != nil {
			return 0, err
		}
	}
}
