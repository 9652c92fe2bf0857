package harper

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// Cluster is one collection over its nodes, for one pass: what it learns of nodes and
// blobs is forgotten with it. It is safe for concurrent use.
type Cluster struct {
	cfg    Config
	nodes  map[string]*node
	order  []*node // as configured
	groups map[string]*group
	paths  []string // of groups, as configured
	notes  notes
	groupd comparer
	recent recents

	healMu sync.Mutex
	asked  map[repairKey]error // repairs begun, by node and database
}

// group is everything configured below one REST path: it is enumerated once.
type group struct {
	path, key string
	page      int
	sets      map[string]*Set // by attribute
	attrs     []string        // as configured
	columns   []string
}

// New makes the collection of a configuration. It touches no network.
func New(cfg Config) (*Cluster, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("harper collection %s: %w", cfg.Name, err)
	}
	c := &Cluster{cfg: cfg, nodes: map[string]*node{}, groups: map[string]*group{}, asked: map[repairKey]error{}}
	for _, n := range cfg.Nodes {
		node := newNode(n, cfg.Timers)
		c.nodes[n.Name] = node
		c.order = append(c.order, node)
	}
	for i := range c.cfg.Sets {
		s := &c.cfg.Sets[i]
		g := c.groups[s.Path]
		if g == nil {
			g = &group{path: s.Path, key: s.Key, page: s.PageSize, sets: map[string]*Set{}, columns: []string{s.Key}}
			c.groups[s.Path] = g
			c.paths = append(c.paths, s.Path)
		}
		if g.key != s.Key {
			return nil, fmt.Errorf("harper collection %s: sets of one path, %s, have two keys", cfg.Name, s.Path)
		}
		for _, a := range s.Attributes {
			g.sets[a] = s
			g.attrs = append(g.attrs, a)
		}
		for _, col := range []string{s.Size, s.Digest} {
			if col != "" && !slices.Contains(g.columns, col) {
				g.columns = append(g.columns, col)
			}
		}
	}
	for _, n := range c.order {
		n.known = c.notes.isSick
		for _, path := range c.paths {
			n.groups = append(n.groups, c.groups[path])
		}
		if ctl := n.cfg.Control; ctl != (Control{}) {
			u := unit{node: n, path: ctl.Path, name: EncodeKey(ctl.Key), attr: ctl.Attribute}
			if g := c.groups[ctl.Path]; g == nil || g.sets[ctl.Attribute] == nil || ctl.Key == "" {
				return nil, fmt.Errorf("harper collection %s: the control of node %s is in no set", cfg.Name, n.cfg.Name)
			}
			n.health.configured = &u
		}
	}
	c.notes.init()
	return c, nil
}

// Root is the place of the collection as a target, Allow are the nodes: everything that
// it names lies below one of them.
func (c *Cluster) Root() objstore.Location {
	return objstore.Location{Scheme: Scheme, Endpoint: c.cfg.Name, Bucket: c.cfg.Name}
}

// Allow are the places of the nodes, each the base of its blobs.
func (c *Cluster) Allow() []objstore.Location {
	out := make([]objstore.Location, 0, len(c.order))
	for _, n := range c.order {
		out = append(out, objstore.Location{Scheme: Scheme, Endpoint: c.cfg.Name, Bucket: n.cfg.Name})
	}
	return out
}

// Reader is the store of the collection's nodes. An error matches
// objstore.ErrUnsupported: the place is another's.
func (c *Cluster) Reader(_ context.Context, loc objstore.Location) (objstore.Reader, error) {
	if loc.Scheme != Scheme || loc.Endpoint != c.cfg.Name {
		return nil, &objstore.Error{Op: "open", Location: loc, Err: objstore.ErrUnsupported}
	}
	return &Store{c}, nil
}

// Records enumerates the collection.
func (c *Cluster) Records() refs.Reader { return &reader{c: c} }

// Peers are the nodes that may be asked for copies.
func (c *Cluster) Peers() []reconcile.Peer {
	var out []reconcile.Peer
	for _, n := range c.order {
		if n.cfg.Role != Check {
			out = append(out, &peer{c, n})
		}
	}
	return out
}

// checked are the nodes whose blobs are looked at.
func (c *Cluster) checked() []*node {
	return slices.DeleteFunc(slices.Clone(c.order), func(n *node) bool { return n.cfg.Role == Donor })
}
