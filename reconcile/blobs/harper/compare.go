package harper

import (
	"context"
	"sync"
)

// maxReadings bounds the blobs whose nodes' looks are kept until each node was asked
// about: enumeration names the nodes of one record one after the other.
const maxReadings = 4096

// comparer keeps, of blobs that no record has a digest of, what all nodes answered, so
// that comparing them costs no read more than looking at each.
type comparer struct {
	mu    sync.Mutex
	kept  map[string]*reading
	order []string
}

// reading is one blob on all nodes.
type reading struct {
	mu    sync.Mutex
	looks map[*node]*begunLook
}

type begunLook struct {
	done chan struct{}
	look look
	used bool // the look at the node itself has had it: the next one is new
}

// of is the reading of a blob; a second look makes one of its own.
func (c *comparer) of(u unit, second bool) *reading {
	if second {
		return &reading{looks: map[*node]*begunLook{}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[string]*reading{}
	}
	r := c.kept[u.target()]
	if r == nil {
		r = &reading{looks: map[*node]*begunLook{}}
		c.kept[u.target()] = r
		c.order = append(c.order, u.target())
		if len(c.order) > maxReadings {
			delete(c.kept, c.order[0])
			c.order = c.order[1:]
		}
	}
	return r
}

// look is the look at a unit's blob: that of an earlier caller, once, or a new one.
func (r *reading) look(ctx context.Context, u unit, h how, algs []string, own bool) (look, error) {
	r.mu.Lock()
	b := r.looks[u.node]
	if b == nil || own && b.used {
		b = &begunLook{done: make(chan struct{})}
		r.looks[u.node] = b
		// The answer is for several callers, whose contexts end one by one.
		go func() {
			b.look = u.node.lookAt(context.WithoutCancel(ctx), u, h, algs)
			close(b.done)
		}()
	}
	b.used = b.used || own
	r.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		return look{}, context.Cause(ctx)
	}
	return b.look, nil
}

// lookAt reads a blob, and remembers the point that a control must come after.
func (n *node) lookAt(ctx context.Context, u unit, h how, algs []string) look {
	since := n.since()
	l := n.read(ctx, u, h, algs...)
	l.since = since
	return l
}

// accord is how the bytes of one node compare with those of others at the same version of
// the record: as most have them, otherwise, or there is no majority.
type accord uint8

const (
	agreed accord = iota
	outvoted
	disagreed
)

func compare(mine look, others []look, alg string) accord {
	votes := map[string]int{mine.sums[alg]: 1}
	all := 1
	for _, l := range others {
		if l.outcome == whole && l.etag != "" && l.etag == mine.etag {
			votes[l.sums[alg]]++
			all++
		}
	}
	if len(votes) == 1 {
		return agreed
	}
	for sum, n := range votes {
		if 2*n > all {
			if sum == mine.sums[alg] {
				return agreed
			}
			return outvoted
		}
	}
	return disagreed
}
