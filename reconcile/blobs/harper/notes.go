package harper

import (
	"sync"

	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

const (
	// maxFresh bounds what is remembered of records between their enumeration and the
	// look at their blobs, maxDamaged of blobs that were not whole.
	maxFresh   = 1 << 16
	maxDamaged = 1 << 20
)

// notes is what a pass remembers of blobs: what records said of them, until they were
// seen whole, and how the others were met. Both are bounded; what does not fit is
// forgotten, which only makes later words more careful.
type notes struct {
	mu    sync.Mutex
	fresh map[unit]refs.Record
	ring  []unit
	next  int
	// sick are the blobs that were met not whole.
	sick map[unit]*sickness
}

// sickness is a blob that was met not whole.
type sickness struct {
	// record is what the enumeration said of it, when known.
	record refs.Record
	known  bool
	// met counts the looks that called it damaged; the rest is of the first of them.
	met      int
	etag     string
	promised int64
}

func (n *notes) init() { n.fresh, n.sick = map[unit]refs.Record{}, map[unit]*sickness{} }

// expect remembers what a record says, until the blob was looked at.
func (n *notes) expect(u unit, rec refs.Record) {
	rec.Position = ""
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sick[u]; s != nil {
		s.record, s.known = rec, true
		return
	}
	if len(n.ring) < maxFresh {
		n.ring = append(n.ring, u)
	} else {
		delete(n.fresh, n.ring[n.next])
		n.ring[n.next] = u
		n.next = (n.next + 1) % maxFresh
	}
	n.fresh[u] = rec
}

// expected is what the record of a blob said.
func (n *notes) expected(u unit) (refs.Record, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sick[u]; s != nil {
		return s.record, s.known
	}
	rec, ok := n.fresh[u]
	return rec, ok
}

// well forgets a blob that is whole.
func (n *notes) well(u unit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.fresh, u)
}

// ill is the entry of a blob that is not whole; nil when there is no room.
func (n *notes) ill(u unit) *sickness {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sick[u]
	if s == nil && len(n.sick) < maxDamaged {
		s = &sickness{promised: -1}
		s.record, s.known = n.fresh[u]
		delete(n.fresh, u)
		n.sick[u] = s
	}
	return s
}

// meet notes a look that called a blob damaged, and returns how it was before.
func (n *notes) meet(u unit, etag string, promised int64) (before sickness) {
	s := n.ill(u)
	if s == nil {
		return sickness{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before = *s
	if s.met == 0 {
		s.etag, s.promised = etag, promised
	}
	s.met++
	return before
}

// met is how a blob was met before.
func (n *notes) met(u unit) sickness {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sick[u]; s != nil {
		return *s
	}
	return sickness{promised: -1}
}

// cured forgets how a blob was met.
func (n *notes) cured(u unit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sick, u)
}

// isSick reports whether a blob was met and not found whole.
func (n *notes) isSick(u unit) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sick[u] != nil
}
