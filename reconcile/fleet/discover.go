package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Mode is how the targets below a store root are found. The zero value lists.
type Mode uint8

// The modes: what a listing shows, at any depth; what the registries name; both, as
// far as the first level of the root goes.
const (
	List Mode = iota
	Registry
	Both
)

var modeNames = []string{"list", "registry", "both"}

// String is the word of the configuration.
func (m Mode) String() string { return modeNames[m] }

// ParseMode reads the word of the configuration; ok is false for any other.
func ParseMode(word string) (m Mode, ok bool) {
	i := slices.Index(modeNames, word)
	return Mode(max(i, 0)), i >= 0
}

// Store is one root and how the targets below it are found.
type Store struct {
	URI  string
	Mode Mode
}

// settleTime is how long a store without a row waits for its row: an upsert is two
// commits, and between them there is none.
const settleTime = 2 * time.Second

// DiscoverStore finds the targets of one store root.
//
// By its registries they are the rows of _registry.{rollout,generic,datagen}.lance,
// the registries themselves and the _stats datasets beside them. Both adds what the
// first level of the root shows, and says of every target of a registered kind
// whether rows and listing agree; before a store is called unregistered the
// registry is read again. A registry that cannot be read, a name that no store can
// have, and a root without any registry are problems: they never mean that there
// are no stores.
//
// A URI that names no place is an error that matches *objstore.ParseError.
func DiscoverStore(ctx context.Context, stores Stores, s Store, log *slog.Logger) (*Found, error) {
	if s.Mode == List {
		return Discover(ctx, stores, []string{s.URI}, Filter{}, log)
	}
	root, err := rootOf(stores, s.URI)
	if err != nil {
		return nil, err
	}
	d := &registries{discovery: newDiscovery(stores, Filter{}, log), root: root, mode: s.Mode, read: scan, settle: settleTime, known: map[string]*registry{}}
	d.find(ctx)
	if ctx.Err() != nil {
		return &d.found, context.Cause(ctx)
	}
	return &d.found, nil
}

// registries is a discovery by registries.
type registries struct {
	*discovery
	root objstore.Location
	mode Mode
	read rowReader
	// settle is how long an absent row is given to come back.
	settle time.Duration
	// known are the registries that could be read, by kind; one that is not there is nil.
	known map[string]*registry
	any   bool
}

func (d *registries) find(ctx context.Context) {
	folders, err := d.folders(ctx)
	if err != nil {
		if ctx.Err() == nil {
			d.problem(d.root, d.root, err)
		}
		return
	}
	for _, kind := range registeredKinds {
		d.open(ctx, kind)
		if ctx.Err() != nil {
			return
		}
	}
	if !d.any {
		d.noRegistry()
	}
	listed := map[string]bool{}
	for _, f := range folders {
		listed[f.Base()] = true
	}
	for _, kind := range registeredKinds {
		d.rows(d.known[kind], listed)
	}
	d.without(ctx, folders)
}

// folders are the first level of the root that is of interest: all of its datasets,
// or those of the store system only.
func (d *registries) folders(ctx context.Context) ([]objstore.Location, error) {
	r, err := d.stores.Reader(ctx, d.root)
	if err != nil {
		return nil, err
	}
	prefixes := []objstore.Location{d.root.Dir()}
	if d.mode == Registry {
		prefixes = []objstore.Location{d.root.Join("_registry."), d.root.Join("_stats.")}
	}
	var out []objstore.Location
	for _, prefix := range prefixes {
		for at, err := range r.List(ctx, prefix, "/") {
			if err != nil {
				return nil, err
			}
			rel, below := at.Location.Rel(d.root)
			if !below {
				return nil, fmt.Errorf("list %s: the store answers with %s, which is not below it", d.root, at.Location)
			}
			// A store's folder is directly below the root; hidden ones are nobody's.
			if at.Prefix && strings.HasSuffix(rel, ".lance/") && !strings.HasPrefix(rel, ".") {
				at.Location.Key = strings.TrimRight(at.Location.Key, "/")
				out = append(out, at.Location)
			}
		}
	}
	return out, nil
}

// open reads one registry, if there is one.
func (d *registries) open(ctx context.Context, kind string) {
	g, err := readRegistry(ctx, d.read, d.stores, d.root, kind)
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, errNoRegistry):
		d.known[kind] = nil
		return
	case err != nil:
		d.any = true
		d.unreadable(kind, err)
		return
	}
	d.any, d.known[kind] = true, g
	d.log.Debug("read registry", "uri", d.root.Join(registryFolder(kind)).String(), "stores", len(g.rows))
	if len(g.invalid) > 0 {
		d.invalid(g)
	}
}

// rows makes a target of each row.
func (d *registries) rows(g *registry, listed map[string]bool) {
	if g == nil {
		return
	}
	var differ []string
	for _, name := range g.names() {
		t := reconcile.Target{Row: true, Rows: len(g.rows), Listed: listed[folder(name, g.kind)]}
		t.Registry, t.RegistryURI = g.says(d.stores, d.root, name)
		if t.Registry == reconcile.RegistryURIDiffers {
			differ = append(differ, name)
		}
		d.add(d.root, d.root.Join(folder(name, g.kind)), t)
	}
	if len(differ) > 0 {
		d.log.Warn("the registry names other places than the folders below the root", "uri", d.root.Join(registryFolder(g.kind)).String(), "stores", len(differ), "first", some(differ))
	}
}

// without makes targets of the folders that no row named.
func (d *registries) without(ctx context.Context, folders []objstore.Location) {
	var late []objstore.Location
	for _, f := range folders {
		name, kind := Name(f.Base())
		g, read := d.known[kind]
		switch {
		case !slices.Contains(registeredKinds, kind):
			d.add(d.root, f, reconcile.Target{Listed: true})
		case !read, !d.any:
			d.add(d.root, f, reconcile.Target{Listed: true, RegistryUnread: true})
		case g != nil && g.has(strings.TrimPrefix(name, kind+":")):
		default:
			late = append(late, f)
		}
	}
	if len(late) == 0 {
		return
	}
	again := d.again(ctx, late)
	if ctx.Err() != nil {
		return
	}
	var unregistered []string
	for _, f := range late {
		name, kind := Name(f.Base())
		store := strings.TrimPrefix(name, kind+":")
		t := reconcile.Target{Listed: true, Registry: reconcile.RegistryUnregistered}
		switch g, read := again[kind]; {
		case !read:
			t.Registry, t.RegistryUnread = "", true
		case g != nil && g.has(store):
			t.Row = true
			t.Registry, t.RegistryURI = g.says(d.stores, d.root, store)
		default:
			unregistered = append(unregistered, name)
		}
		d.add(d.root, f, t)
	}
	if len(unregistered) > 0 {
		d.log.Warn("stores that the registry has no row of", "uri", d.root.String(), "stores", len(unregistered), "first", some(unregistered))
	}
}

func (g *registry) has(name string) bool {
	_, there := g.rows[name]
	return there
}

// again reads the registries of some stores once more, a little later.
func (d *registries) again(ctx context.Context, of []objstore.Location) map[string]*registry {
	if pause(ctx, d.settle) != nil {
		return nil
	}
	out := map[string]*registry{}
	failed := map[string]bool{}
	for _, f := range of {
		_, kind := Name(f.Base())
		if _, done := out[kind]; done || failed[kind] {
			continue
		}
		g, err := readRegistry(ctx, d.read, d.stores, d.root, kind)
		if err != nil && !errors.Is(err, errNoRegistry) {
			failed[kind] = true
			if ctx.Err() == nil {
				d.unreadable(kind, err)
			}
			continue
		}
		out[kind] = g
	}
	return out
}

// unreadable reports a registry that is there and could not be read whole.
func (d *registries) unreadable(kind string, err error) {
	verdict, reason := reconcile.JudgeLook(err)
	if reason == reconcile.ReasonNoAnswer && isBad(err) {
		reason = reconcile.ReasonBadRegistry
	}
	d.log.Error("cannot read registry", "uri", d.root.Join(registryFolder(kind)).String(), "err", err)
	d.report(kind, verdict, reason, "not read: "+reason, err)
}

// noRegistry reports a root that has none.
func (d *registries) noRegistry() {
	var names []string
	for _, kind := range registeredKinds {
		names = append(names, registryFolder(kind))
	}
	d.log.Error("no registry below the root", "uri", d.root.String(), "looked_for", names)
	d.report("", reconcile.Undecided, reconcile.ReasonNoRegistry, fmt.Sprintf("discover: %s needs one of %s, and none is there", d.mode, strings.Join(names, ", ")), nil)
}

// invalid reports rows whose names no store can have.
func (d *registries) invalid(g *registry) {
	d.log.Error("the registry holds names that no store can have", "uri", d.root.Join(registryFolder(g.kind)).String(), "rows", len(g.invalid), "first", some(g.invalid))
	d.report(g.kind, reconcile.Undecided, reconcile.ReasonInvalidNames, fmt.Sprintf("%d names that no store can have: %s", len(g.invalid), some(g.invalid)), nil)
}

// some are the first few names, as a log or a report may show them.
func some(names []string) string {
	const most = 3
	var out []string
	for _, n := range names[:min(len(names), most)] {
		out = append(out, fmt.Sprintf("%.60q", n))
	}
	if len(names) > most {
		out = append(out, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(out, ", ")
}

// report adds a problem with the registry of a kind, or with all of them (""). The
// registry is a target of its own beside it, so that the problem has the place with
// a slash at the end.
func (d *registries) report(kind string, verdict reconcile.Verdict, reason, not string, err error) {
	at := d.root
	if kind != "" {
		at = d.root.Join(registryFolder(kind) + "/")
	}
	t := reconcile.Target{Name: at.String(), Store: d.root.String(), Kind: "registry", Location: at}
	d.found.Problems = append(d.found.Problems, reconcile.TargetResult{Target: t.Name, Store: t.Store, Kind: t.Kind, URI: t.Name,
		State: reconcile.StateIncomplete, Reason: &reason, NotChecked: []reconcile.NotChecked{{Role: reconcile.RoleData, Reason: not}}})
	f := reconcile.NewFinding(t, reconcile.Reference{Role: reconcile.RoleManifest, Location: at, PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}, time.Time{})
	f.Verdict, f.Reason = verdict, &reason
	f.SetEvidence(err)
	d.found.Findings = append(d.found.Findings, f)
}
