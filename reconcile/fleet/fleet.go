// Package fleet says which targets exist below the places that a user named.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Stores resolves places and gives read-only stores for them.
type Stores interface {
	Locate(uri string) (objstore.Location, error)
	Reader(ctx context.Context, loc objstore.Location) (objstore.Reader, error)
}

// ErrBadGlob: a --target or --exclude pattern cannot be read.
var ErrBadGlob = errors.New("bad target pattern")

// Filter chooses targets by name. A target is chosen when Include is empty or one
// of it matches, and none of Exclude does. The patterns are those of path.Match,
// except that "*" crosses "/" as users of shells' ** expect of a name; a store's
// URI and "/" in front of the name match as well.
type Filter struct{ Include, Exclude []string }

// Validate returns ErrBadGlob, naming the pattern, when one cannot be read.
func (f Filter) Validate() error {
	for _, p := range slices.Concat(f.Include, f.Exclude) {
		if _, err := path.Match(flat(p), ""); err != nil {
			return fmt.Errorf("%w %q: %v", ErrBadGlob, p, err)
		}
	}
	return nil
}

// Chosen reports whether the target passes the filter.
func (f Filter) Chosen(t reconcile.Target) bool {
	any := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			for _, name := range []string{t.Name, t.Store + "/" + t.Name} {
				if ok, _ := path.Match(flat(p), flat(name)); ok {
					return true
				}
			}
			return false
		})
	}
	return (len(f.Include) == 0 || any(f.Include)) && !any(f.Exclude)
}

// flat makes path.Match treat "/" as any other character.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// Found is what discovery saw.
type Found struct {
	Targets []reconcile.Target
	// Problems are places that could not be listed whole. Each stands in a report
	// as a target of its own, so that nobody takes the rest for all.
	Problems []reconcile.TargetResult
	// Findings say of each problem that it is denied or undecided.
	Findings []reconcile.Finding
	// Filtered is how many targets the filter left out.
	Filtered int
}

// Discover finds the datasets at or below the URIs: a URI that ends in ".lance" or
// holds "_versions/" is itself one; below any other, every folder is looked into
// until one is a dataset. It lists; it reads no object.
//
// A URI that names no place is an error that matches *objstore.ParseError.
func Discover(ctx context.Context, stores Stores, uris []string, filter Filter, log *slog.Logger) (*Found, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	roots := make([]objstore.Location, 0, len(uris))
	for _, u := range uris {
		root, err := rootOf(stores, u)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	d := newDiscovery(stores, filter, log)
	for _, root := range roots {
		d.root(ctx, root)
		if ctx.Err() != nil {
			return &d.found, context.Cause(ctx)
		}
	}
	return &d.found, nil
}

// rootOf is a place without the slashes at its end.
func rootOf(stores Stores, uri string) (objstore.Location, error) {
	loc, err := stores.Locate(uri)
	if err != nil {
		return loc, err
	}
	loc.Key = strings.TrimRight(loc.Key, "/")
	if loc.Scheme == "file" && loc.Key == "" {
		loc.Key = "/"
	}
	return loc, nil
}

func newDiscovery(stores Stores, filter Filter, log *slog.Logger) *discovery {
	return &discovery{stores: stores, filter: filter, log: log, seen: map[string]bool{}, links: map[objstore.Location]bool{}}
}

type discovery struct {
	stores Stores
	filter Filter
	log    *slog.Logger
	found  Found
	links  map[objstore.Location]bool
	seen   map[string]bool // canonical dataset URIs: overlapping roots name a target once
}

func (d *discovery) root(ctx context.Context, root objstore.Location) {
	if strings.HasSuffix(root.Key, ".lance") {
		d.dataset(root.Parent(), root, false)
		return
	}
	d.walk(ctx, root, root)
}

// walk lists one level below dir and goes down into what is no dataset.
func (d *discovery) walk(ctx context.Context, root, dir objstore.Location) {
	r, err := d.stores.Reader(ctx, dir)
	if err != nil {
		d.problem(root, dir, err)
		return
	}
	var below []objstore.Location
	dataset := false
	for at, err := range r.List(ctx, dir.Dir(), "/") {
		if err != nil {
			if ctx.Err() == nil {
				d.problem(root, dir, err)
			}
			return
		}
		if _, below := at.Location.Rel(dir); !below {
			d.problem(root, dir, fmt.Errorf("list %s: the store answers with %s, which is not below it", dir, at.Location))
			return
		}
		if !at.Prefix {
			continue
		}
		sub, again := d.resolve(at.Location)
		if again {
			continue // a link to what was seen: a loop, or a second name
		}
		switch name := sub.Base(); {
		case name == "_versions":
			dataset = true
		case strings.HasPrefix(name, "."):
			// hidden folders are nobody's tables
		default:
			below = append(below, sub)
		}
	}
	if dataset {
		if dir == root {
			root = root.Parent()
		}
		d.dataset(root, dir, true)
		return
	}
	for _, sub := range below {
		if strings.HasSuffix(sub.Key, ".lance") {
			d.dataset(root, sub, true)
			continue
		}
		d.walk(ctx, root, sub)
		if ctx.Err() != nil {
			return
		}
	}
}

// resolve is a listed folder, and whether it was met before: folders of files may be
// reached by several names, or hold themselves.
func (d *discovery) resolve(loc objstore.Location) (_ objstore.Location, again bool) {
	loc.Key = strings.TrimRight(loc.Key, "/")
	if loc.Scheme != "file" {
		return loc, false
	}
	real := d.real(loc)
	again = d.links[real]
	d.links[real] = true
	return loc, again
}

// real is a place with symbolic links resolved, where there are any.
func (d *discovery) real(loc objstore.Location) objstore.Location {
	if loc.Scheme != "file" {
		return loc
	}
	if real, err := d.stores.Locate(loc.String()); err == nil {
		return real
	}
	return loc
}

func (d *discovery) dataset(root, loc objstore.Location, listed bool) {
	d.add(root, loc, reconcile.Target{Listed: listed})
}

// add makes the target of a dataset, unless it is there already; t holds what is
// known of it besides its place.
func (d *discovery) add(root, loc objstore.Location, t reconcile.Target) {
	rel, _ := loc.Rel(root)
	loc = d.real(loc)
	if d.seen[loc.Canonical()] {
		return
	}
	d.seen[loc.Canonical()] = true
	t.Name, t.Kind = Name(rel)
	t.Store, t.Location, t.Root = root.String(), loc, root
	if !d.filter.Chosen(t) {
		d.found.Filtered++
		return
	}
	d.found.Targets = append(d.found.Targets, t)
}

// problem reports a place that could not be listed to its end.
func (d *discovery) problem(root, dir objstore.Location, err error) {
	state := reconcile.StateIncomplete
	verdict, reason := reconcile.JudgeLook(err)
	// What was to be listed is a root, or was listed a moment ago: a folder that is not
	// there is one that went away as a whole.
	if errors.Is(err, objstore.ErrNoSuchBucket) || errors.Is(err, objstore.ErrNotExist) {
		state, reason = reconcile.StateFailed, reconcile.ReasonNoSuchBucket
	}
	d.log.Error("cannot list", "uri", dir.String(), "err", err)
	t := reconcile.Target{Name: dir.String(), Store: root.String(), Kind: "root", Location: dir}
	d.found.Problems = append(d.found.Problems, reconcile.TargetResult{Target: t.Name, Store: t.Store, Kind: t.Kind, URI: dir.String(),
		State: state, Reason: &reason, NotChecked: []reconcile.NotChecked{{Role: reconcile.RoleData, Reason: "not listed: " + reason}}})
	f := reconcile.NewFinding(t, reconcile.Reference{Role: reconcile.RoleManifest, Location: dir, PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}, time.Time{})
	f.Verdict, f.Reason = verdict, &reason
	f.SetEvidence(err)
	d.found.Findings = append(d.found.Findings, f)
}
