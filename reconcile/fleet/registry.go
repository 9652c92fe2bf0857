package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// registeredKinds are the kinds that have a registry, each a dataset of its own
// beside the stores: _registry.<kind>.lance. Context stores (x.lance) have none.
var registeredKinds = []string{KindRollout, KindGeneric, KindDatagen}

// row is one live row of a registry.
type row struct {
	name, uri string
	// createdAt is when the row was appended, in Unix milliseconds: an upsert is a
	// delete and an append, so of two rows of one name the later one holds.
	createdAt int64
}

// rowReader reads the live rows of the newest version of one registry, in no
// particular order. An error ends the sequence and means that the rows before it
// are not all. A registry that is not there matches errNoRegistry.
type rowReader func(ctx context.Context, stores Stores, root objstore.Location, kind string) iter.Seq2[row, error]

// errNoRegistry: there is no object of this registry at all.
var errNoRegistry = errors.New("no registry")

// registry is what the rows of one registry come to.
type registry struct {
	kind string
	// rows by name; others holds, of a name that stands in it more than once with
	// different places, one of those that do not hold.
	rows   map[string]row
	others map[string]string
	// invalid are the names that no store can have.
	invalid []string
}

// folder is the name of a store's dataset below the root.
func folder(name, kind string) string { return name + "." + kind + ".lance" }

func registryFolder(kind string) string { return "_registry." + kind + ".lance" }

// readRegistry reads one registry whole. Any error means that nothing is known of
// which stores there are.
func readRegistry(ctx context.Context, read rowReader, stores Stores, root objstore.Location, kind string) (*registry, error) {
	g := &registry{kind: kind, rows: map[string]row{}, others: map[string]string{}}
	for r, err := range read(ctx, stores, root, kind) {
		if err != nil {
			return nil, fmt.Errorf("read registry %s: %w", root.Join(registryFolder(kind)), err)
		}
		g.add(r)
	}
	slices.Sort(g.invalid)
	g.invalid = slices.Compact(g.invalid)
	return g, nil
}

func (g *registry) add(r row) {
	if !validName(r.name) {
		g.invalid = append(g.invalid, r.name)
		return
	}
	was, again := g.rows[r.name]
	if !again {
		g.rows[r.name] = r
		return
	}
	// The order of rows means nothing; that of their places settles a tie.
	if c := cmp.Or(cmp.Compare(r.createdAt, was.createdAt), cmp.Compare(r.uri, was.uri)); c < 0 {
		r, was = was, r
	}
	g.rows[r.name] = r
	if was.uri != r.uri {
		g.others[r.name] = was.uri
	}
}

// names of the registry, sorted.
func (g *registry) names() []string {
	out := make([]string, 0, len(g.rows))
	for name := range g.rows {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// maxName is the longest name of a store, in bytes.
const maxName = 128

// validName reports whether a store can have the name: 1 to 128 ASCII characters,
// a letter, digit or "_" first, then also "." and "-", and none of the two that are
// reserved. No such name leads out of the root.
func validName(name string) bool {
	if name == "" || len(name) > maxName || name == "_registry" || name == "_stats" {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case i > 0 && (c == '.' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// says is what the registry says of a store that it has a row of, and the other
// place when it names one.
func (g *registry) says(stores Stores, root objstore.Location, name string) (word, other string) {
	at := root.Join(folder(name, g.kind))
	for _, uri := range []string{g.rows[name].uri, g.others[name]} {
		if uri == "" && uri != g.rows[name].uri {
			continue
		}
		if !samePlace(stores, uri, at) {
			return reconcile.RegistryURIDiffers, readable(uri)
		}
	}
	return reconcile.RegistryOK, ""
}

// samePlace reports whether a row's URI is the dataset at, whichever way it is
// spelled: s3a for s3, file:/// or a plain path, with or without a slash at its end.
// A relative path is one below some working directory of a writer, which nobody
// recorded: it is the same place when the rest of the path is.
func samePlace(stores Stores, uri string, at objstore.Location) bool {
	uri = strings.TrimRight(uri, "/")
	if uri == at.String() || at.Scheme == "file" && uri == at.Key {
		return true
	}
	if uri == "" {
		return false
	}
	if at.Scheme == "file" && relative(uri) {
		rest := path.Clean(uri)
		for strings.HasPrefix(rest, "../") {
			rest = rest[len("../"):]
		}
		return strings.HasSuffix(at.Key, "/"+rest)
	}
	loc, err := stores.Locate(uri)
	if err != nil {
		return false
	}
	if loc.Canonical() == at.Canonical() {
		return true
	}
	// The dataset itself may be a link.
	real, err := stores.Locate(at.String())
	return err == nil && loc.Canonical() == real.Canonical()
}

// relative reports whether a URI is a path without a beginning.
func relative(uri string) bool {
	return !strings.HasPrefix(uri, "/") && !strings.Contains(uri, "://") && !strings.HasPrefix(uri, "file:/")
}

// maxShown is how much of a text out of a registry is shown.
const maxShown = 300

// readable is a row's URI as a report may show it: without credentials.
func readable(uri string) string {
	shown := uri
	if !relative(uri) {
		loc, err := objstore.Parse(uri)
		var bad *objstore.ParseError
		if errors.As(err, &bad) {
			shown = bad.URI
		} else {
			shown = loc.String()
		}
	}
	if len(shown) > maxShown {
		shown = strings.ToValidUTF8(shown[:maxShown], "") + "…"
	}
	return shown
}

// Registered reads the registries again and says of each target what they say now:
// reconcile.RegistryOK, reconcile.RegistryURIDiffers, or "" when no row names it
// any more. Targets are of registered kinds, directly below their Root. Each
// registry is read once. An error means that nothing is known.
func Registered(ctx context.Context, stores Stores, targets []reconcile.Target) ([]string, error) {
	return registered(ctx, scan, stores, targets)
}

func registered(ctx context.Context, read rowReader, stores Stores, targets []reconcile.Target) ([]string, error) {
	type place struct {
		root objstore.Location
		kind string
	}
	known := map[place]*registry{}
	out := make([]string, len(targets))
	for i, t := range targets {
		p := place{t.Root, t.Kind}
		g, again := known[p]
		if !again {
			var err error
			if g, err = readRegistry(ctx, read, stores, t.Root, t.Kind); err != nil && !errors.Is(err, errNoRegistry) {
				return nil, err
			}
			known[p] = g
		}
		name := storeName(t)
		if g == nil {
			continue
		}
		if _, there := g.rows[name]; there {
			out[i], _ = g.says(stores, t.Root, name)
		}
	}
	return out, nil
}

// storeName is a target's name in its registry.
func storeName(t reconcile.Target) string { return strings.TrimPrefix(t.Name, t.Kind+":") }

// MarkRows sets Row of the targets directly below a store root that its registries
// name, so that their rows are asked for again before a commit; with all, of every
// one that they could name. Where their registry cannot be read, or the root has
// none at all, RegistryUnread is set; where no row names them, and none does a little
// later either, NoRow is.
func MarkRows(ctx context.Context, stores Stores, uri string, targets []reconcile.Target, all bool) error {
	root, err := rootOf(stores, uri)
	if err != nil {
		return err
	}
	markRows(ctx, scan, stores, root, targets, all)
	if !slices.ContainsFunc(targets, func(t reconcile.Target) bool { return t.NoRow }) {
		return nil
	}
	if err := pause(ctx, settleTime); err != nil {
		return err
	}
	markRows(ctx, scan, stores, root, targets, all)
	return nil
}

func markRows(ctx context.Context, read rowReader, stores Stores, root objstore.Location, targets []reconcile.Target, all bool) {
	known := map[string]*registry{} // by kind, those that could be read; nil is not there
	tried := map[string]bool{}
	open := func(kind string) (g *registry, ok bool) {
		if !tried[kind] {
			tried[kind] = true
			if g, err := readRegistry(ctx, read, stores, root, kind); err == nil || errors.Is(err, errNoRegistry) {
				known[kind] = g
			}
		}
		g, ok = known[kind]
		return g, ok
	}
	none := func(kind string) bool { g, ok := open(kind); return ok && g == nil }
	for i := range targets {
		t := &targets[i]
		switch {
		case t.Root != root || !slices.Contains(registeredKinds, t.Kind):
			continue
		case all:
			t.Row = true
			continue
		}
		g, ok := open(t.Kind)
		t.RegistryUnread = !ok || g == nil && !slices.ContainsFunc(registeredKinds, func(kind string) bool { return !none(kind) })
		// Of an unread one the row counts as there: what is absent is then no target that was mistyped.
		t.Row = !ok || g != nil && g.has(storeName(*t))
		t.NoRow = !t.Row && !t.RegistryUnread
	}
}

// pause waits, or returns why ctx ended first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
