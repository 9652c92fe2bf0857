package harper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Errors that keep everything about a node undecided.
var (
	// ErrNodeUnhealthy: the node did not serve a blob that is known to be good.
	ErrNodeUnhealthy = errors.New("the node does not serve what it is known to hold")
	// ErrNoControl: no blob of the node is known to be good.
	ErrNoControl = errors.New("no blob of the node is known to be good, so that its answers prove nothing")
)

const (
	// maxControls survive a racing update or two.
	maxControls = 3
	// maxControlSize: a control costs little.
	maxControlSize = 1 << 20
)

// health is what is known of a node's being well.
type health struct {
	mu sync.Mutex
	// begun counts controls begun; passed is the number of the newest that passed. A
	// look remembers begun when it starts, and a control with a greater number speaks
	// for it.
	begun, passed uint64
	flight        *flight
	tripped       bool
	again         <-chan time.Time // when a tripped node may be tried
	learned       []unit
	configured    *unit
	// first is closed when the first control is known; searched that it was looked for.
	first    chan struct{}
	searched bool
}

// flight is a control under way, for everybody who waits for one.
type flight struct {
	number uint64
	done   chan struct{}
	err    error
}

// since is the point that a control must come after to speak for a look.
func (n *node) since() uint64 {
	n.health.mu.Lock()
	defer n.health.mu.Unlock()
	return n.health.begun
}

// learn keeps a blob that was read whole as a control.
func (n *node) learn(u unit, l look) {
	if l.got > maxControlSize {
		return
	}
	n.health.mu.Lock()
	defer n.health.mu.Unlock()
	if len(n.health.learned) < maxControls && !slices.Contains(n.health.learned, u) {
		n.health.learned = append(n.health.learned, u)
		select {
		case <-n.health.first:
		default:
			close(n.health.first)
		}
	}
}

// open is nil unless the node is left alone. When its time has come it is tried again.
func (n *node) open(ctx context.Context, alone time.Duration) error {
	n.health.mu.Lock()
	tripped := n.health.tripped
	if tripped {
		select {
		case <-n.health.again:
			n.health.again = nil // this caller tries; the others go on leaving it alone
			since := n.health.begun
			n.health.mu.Unlock()
			return n.prove(ctx, since, alone)
		default:
		}
	}
	n.health.mu.Unlock()
	if tripped {
		return fmt.Errorf("node %s: %w", n.cfg.Name, ErrNodeUnhealthy)
	}
	return nil
}

// prove is nil when a control that began after since was read whole. A node that fails
// is left alone from then on.
func (n *node) prove(ctx context.Context, since uint64, alone time.Duration) error {
	for {
		n.health.mu.Lock()
		if n.health.passed > since {
			n.health.mu.Unlock()
			return nil
		}
		f := n.health.flight
		if f == nil {
			n.health.begun++
			f = &flight{number: n.health.begun, done: make(chan struct{})}
			n.health.flight = f
			// One caller's end is not the end of the others' control.
			go n.control(context.WithoutCancel(ctx), f, alone)
		}
		n.health.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if f.number > since {
			return f.err
		}
	}
}

// control reads the controls until one is whole.
func (n *node) control(ctx context.Context, f *flight, alone time.Duration) {
	err := n.readControls(ctx)
	n.health.mu.Lock()
	defer n.health.mu.Unlock()
	switch {
	case err == nil:
		n.health.passed, n.health.tripped = f.number, false
	case n.health.tripped, errors.Is(err, ErrNodeUnhealthy):
		n.health.tripped, n.health.again = true, time.After(alone)
	}
	f.err = err
	n.health.flight = nil
	close(f.done)
}

// controls are the blobs that may serve as controls. When none is known, the looks that
// are under way are waited for, and at last one is searched for, once.
func (n *node) controls(ctx context.Context) []unit {
	known := func() ([]unit, bool) {
		n.health.mu.Lock()
		defer n.health.mu.Unlock()
		out := slices.Clone(n.health.learned)
		if n.health.configured != nil {
			out = append([]unit{*n.health.configured}, out...)
		}
		search := len(out) == 0 && !n.health.searched
		n.health.searched = n.health.searched || search
		return out, search
	}
	out, search := known()
	if !search {
		return out
	}
	select {
	case <-n.health.first:
	case <-time.After(n.timers.FirstByte):
		n.search(ctx)
	}
	out, _ = known()
	return out
}

// Bounds of a search: a node that shows this much and no whole blob has a control only
// where the configuration names one.
const (
	maxSearched = 1000
	maxBadInRow = 3 // of those that cost time
)

// search reads blobs in the order of their keys until one is whole.
func (n *node) search(ctx context.Context) {
	costly := 0
	for _, g := range n.groups {
		keys := *g
		keys.columns = []string{g.key}
		rows, err := n.page(ctx, &keys, "", min(g.page, maxSearched))
		if err != nil {
			return
		}
		for _, r := range rows {
			key, ok := keyText(r[g.key])
			if !ok {
				continue
			}
			u := unit{node: n, set: g.sets[g.attrs[0]], path: g.path, name: EncodeKey(key), attr: g.attrs[0]}
			if n.known(u) { // met already, and not whole: not read again
				continue
			}
			l := n.read(ctx, u, how{urgent: true})
			switch l.outcome {
			case whole:
				if l.promised >= 0 {
					n.learn(u, l)
					return
				}
			case absent, failed:
			default:
				if costly++; costly == maxBadInRow {
					return
				}
			}
		}
	}
}

func (n *node) readControls(ctx context.Context) error {
	controls := n.controls(ctx)
	err := fmt.Errorf("node %s: %w", n.cfg.Name, ErrNoControl)
	for i, u := range controls {
		l := n.read(ctx, u, how{fresh: true, urgent: true})
		switch {
		case l.outcome == whole:
			return nil
		case l.outcome == absent && (n.health.configured == nil || i > 0):
			n.unlearn(u) // its record was taken away meanwhile: no control any more
		default:
			err = fmt.Errorf("node %s: %w", n.cfg.Name, ErrNodeUnhealthy)
		}
	}
	return err
}

func (n *node) unlearn(u unit) {
	n.health.mu.Lock()
	defer n.health.mu.Unlock()
	n.health.learned = slices.DeleteFunc(n.health.learned, func(v unit) bool { return v == u })
}
