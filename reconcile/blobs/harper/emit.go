package harper

import (
	"fmt"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// holder is a node that holds a record of a batch.
type holder struct {
	n *node
	r row
}

// emit yields the blobs of a batch, key by key: first what the pivot does not hold, then
// its records in its order. counts tell how much of each node's ahead is in it.
func (w *walk) emit(pivot *cursor, counts []int) {
	held := map[string][]holder{}
	var names []string
	for i, cu := range w.nodes {
		for _, e := range cu.ahead[:counts[i]] {
			if held[e.name] == nil && cu != pivot {
				names = append(names, e.name)
			}
			held[e.name] = append(held[e.name], holder{cu.n, e.row})
		}
	}
	own := pivot.ahead[:len(pivot.ahead)]
	isOwn := make(map[string]bool, len(own))
	for _, e := range own {
		isOwn[e.name] = true
	}
	done := w.after
	for _, name := range names {
		if !isOwn[name] && !w.key(name, held[name], done, done) {
			return
		}
	}
	for _, e := range own {
		if !w.key(e.name, held[e.name], done, e.name) {
			return
		}
		done = e.name
	}
}

// key yields the blobs of one record: the last of them with a position behind it, the
// others with the one before.
func (w *walk) key(name string, held []holder, before, behind string) bool {
	w.divergence(name, held)
	for _, cu := range w.nodes {
		if cu.err == nil || len(held) == 0 {
			continue
		}
		// Replicated nodes hold the same records, so that these are known to be there.
		if cu.lost += int64(len(w.g.attrs)); cu.lost <= maxOnSick && w.c.cfg.Relation == Replicated {
			held = append(held, holder{cu.n, held[0].r})
		}
	}
	left := len(held) * len(w.g.attrs)
	for _, h := range held {
		for _, attr := range w.g.attrs {
			set := w.g.sets[attr]
			u := unit{node: h.n, set: set, path: w.g.path, name: name, attr: attr}
			rec, problems := h.r.expected(set)
			for _, p := range problems {
				p.Detail = fmt.Sprintf("%s of record %s, node %s", p.Detail, keyOf(name), h.n.cfg.Name)
				if w.fail(p); w.stopped {
					return false
				}
			}
			rec.Key, rec.Record = w.c.location(u).String(), keyOf(name)
			w.c.notes.expect(u, rec)
			rec.Position = position(w.g.path, before)
			if left--; left == 0 {
				rec.Position = position(w.g.path, behind)
			}
			if w.stopped = w.stopped || !w.yield(rec, nil); w.stopped {
				return false
			}
		}
	}
	return !w.stopped
}

// divergence reports a record that not every node holds.
func (w *walk) divergence(name string, held []holder) {
	var have, lack []string
	for _, cu := range w.nodes {
		switch {
		case cu.err != nil:
		case holds(held, cu.n):
			have = append(have, cu.n.cfg.Name)
		default:
			lack = append(lack, cu.n.cfg.Name)
		}
	}
	if len(lack) > 0 && !w.stopped {
		w.fail(&refs.RowError{Reason: ReasonSomeNodesOnly, Count: 1, Partial: true,
			Detail: fmt.Sprintf("record %s of %s is on %s and not on %s", keyOf(name), w.g.path, strings.Join(have, ", "), strings.Join(lack, ", "))})
	}
}

func holds(held []holder, n *node) bool {
	for _, h := range held {
		if h.n == n {
			return true
		}
	}
	return false
}
