package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/internal/mancache"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs/harper"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
	"github.com/rocketkeep/reconcile/report"
)

// rolesLookedAt are the roles that this version looks at.
var rolesLookedAt = reconcile.Roles()

func (s *settings) scope() reconcile.Scope {
	sc := reconcile.Scope{Depth: s.depth, Roles: rolesLookedAt, TargetsFilter: []string{}}
	for _, p := range s.places {
		sc.Versions = max(sc.Versions, p.versions)
	}
	sc.TargetsFilter = append(sc.TargetsFilter, s.filter.Include...)
	for _, x := range s.filter.Exclude {
		sc.TargetsFilter = append(sc.TargetsFilter, "!"+x)
	}
	sc.TargetsFilter = append(sc.TargetsFilter, s.narrowed...)
	return sc
}

func (a *app) sayNoTargets(s *settings, f *foundTargets) {
	where := "any configured place"
	if len(s.places) == 1 {
		where = printable(s.places[0].uri)
	} else if len(s.places) > 1 {
		where = fmt.Sprintf("any of the %d places", len(s.places))
	}
	if f.filtered > 0 {
		fmt.Fprintf(a.stderr, "reconcile: %d targets below %s, and --target and --exclude leave out all of them\n", f.filtered, where)
		return
	}
	fmt.Fprintf(a.stderr, "reconcile: no Lance dataset at or below %s; is it the folder that holds the tables?\n", where)
}

// sayNowhere names the datasets that were asked for and are not there.
func (w *work) sayNowhere(out *pass.Outcome) {
	for _, n := range out.Nowhere {
		fmt.Fprintln(w.stderr, "reconcile: "+notThere(n.Target.Location, n.NoRoot, w.s.command))
	}
	if len(out.Nowhere) > 0 && len(out.Targets) == 0 {
		w.doc.Reason = cmp.Or(w.doc.Reason, reconcile.Ptr(reconcile.ReasonNoTargets))
	}
}

// notThere says that there is no dataset at a place, why that is known, and how to find
// what was meant.
func notThere(at objstore.Location, noRoot bool, as report.Command) string {
	why, next := "no object lies below it", "What is beside it: "+as.Check(at.Parent().String())
	switch {
	case noRoot && at.Scheme == "file":
		why = "there is no such folder"
	case noRoot:
		why, next = "there is no such bucket", "Compare bucket, endpoint and account"
	}
	return printable(fmt.Sprintf("no dataset at %s: %s. %s", at, why, next))
}

// foundTargets are the targets of all places, each with the place that it is of.
type foundTargets struct {
	targets  []reconcile.Target
	problems []reconcile.TargetResult
	findings []reconcile.Finding
	filtered int
	places   map[string]place // by canonical URI of the target
	roots    []objstore.Location
	bare     []objstore.Location
	// collections are the blob collections, by canonical URI of the target.
	collections map[string]*collection
	// byGet are the places whose objects are asked for by GET.
	byGet []objstore.Location
}

// discover finds the targets of every place. Names of configured stores take the place of URIs.
func discover(ctx context.Context, set *factory.Set, s *settings, log *slog.Logger) (*foundTargets, error) {
	out := &foundTargets{places: map[string]place{}}
	for _, p := range s.places {
		// Without a filter, so that a pattern may name a configured store.
		found, err := fleet.DiscoverStore(ctx, placed{set, p}, fleet.Store{URI: p.uri, Mode: p.discover}, log)
		if err != nil {
			return nil, err
		}
		if p.registries != "" && (s.repair.carry || s.mode != modeOff) {
			// A plan may be a day old: what it was made for had a row then.
			if err := fleet.MarkRows(ctx, set, p.registries, found.Targets, s.repair.plan != nil); err != nil {
				return nil, err
			}
		}
		for _, t := range found.Targets {
			key := t.Location.Canonical()
			if _, dup := out.places[key]; dup {
				continue // places overlap
			}
			if p.name != "" {
				t.Store = p.name
			}
			if !s.filter.Chosen(t) {
				out.filtered++
				continue
			}
			out.places[key] = p
			out.targets = append(out.targets, t)
		}
		for i := range found.Problems {
			if p.name != "" {
				found.Problems[i].Store = p.name
			}
		}
		for i := range found.Findings {
			if p.name != "" {
				found.Findings[i].Store = p.name
			}
		}
		root, err := p.locate(set, p.uri)
		if err != nil {
			return nil, err
		}
		root.Key = strings.TrimRight(root.Key, "/")
		out.roots = append(out.roots, root)
		out.problems = append(out.problems, found.Problems...)
		out.findings = append(out.findings, found.Findings...)
		if p.noVersioning {
			out.bare = append(out.bare, root)
		}
	}
	if err := findCollections(set, s, out); err != nil {
		return nil, err
	}
	return out, nil
}

// tableOptions are those of one target, by the place that it was found below.
func (f *foundTargets) tableOptions(t reconcile.Target, s *settings, log *slog.Logger) tables.Options {
	p := f.places[t.Location.Canonical()]
	return tables.Options{Versions: p.versions, ExternalCommit: p.external, WritersStopped: s.writersStopped, AcceptVersion: s.repair.acceptVersion, Logger: log}
}

// stores are those of the set, told which of them keep no object versions, with the
// manifests of earlier passes at hand.
func (f *foundTargets) stores(set *factory.Set, kept *mancache.Cache) lookStores {
	out := lookStores{Set: set, bare: f.bare, byGet: f.byGet, kept: kept}
	for _, c := range f.collections {
		if c.cluster != nil {
			out.clusters = append(out.clusters, c.cluster)
		}
	}
	return out
}

type lookStores struct {
	*factory.Set
	bare, byGet []objstore.Location
	kept        *mancache.Cache
	// target is the place of what is looked at.
	target objstore.Location
	// cluster is that of the collection that is looked at, clusters are all of them.
	cluster  *harper.Cluster
	clusters []*harper.Cluster
}

// Locate reads a URI as what is looked at means it.
func (s lookStores) Locate(uri string) (objstore.Location, error) {
	if s.cluster != nil && strings.HasPrefix(uri, harper.Scheme+"://") {
		return s.cluster.Locate(uri)
	}
	return s.LocateNear(uri, s.target)
}

// Reader opens the store of a place.
func (s lookStores) Reader(ctx context.Context, root objstore.Location) (objstore.Reader, error) {
	if root.Scheme == harper.Scheme {
		return s.node(ctx, root)
	}
	r, err := s.Set.Reader(ctx, root)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.bare, func(b objstore.Location) bool { _, ok := root.Dir().Rel(b); return ok }) {
		r = unversioned{r}
	}
	if slices.ContainsFunc(s.byGet, func(b objstore.Location) bool { _, ok := root.Dir().Rel(b); return ok }) {
		r = probing{r}
	}
	if s.kept != nil {
		r = tables.WithManifests(r, s.kept)
	}
	return r, nil
}

// node opens the nodes of the collection that a place is of.
func (s lookStores) node(ctx context.Context, root objstore.Location) (objstore.Reader, error) {
	for _, c := range s.clusters {
		if r, err := c.Reader(ctx, root); err == nil {
			return r, nil
		}
	}
	return nil, &objstore.Error{Op: "open", Location: root, Err: objstore.ErrUnsupported}
}

// actor is who runs the program, for the record.
func actor() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

func host() string {
	h, _ := os.Hostname() // a host without a name is no reason not to look
	return h
}
