package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// world is a store with folders, and registries whose rows are given.
type world struct {
	store *memstore.Store
	fault *faultstore.Store
	// reads are what each reading of a registry gives, in order; the last one stays.
	reads map[string][]reading
	count map[string]int
}

type reading struct {
	rows []row
	err  error
}

func newWorld(folders ...string) *world {
	w := &world{store: memstore.New(memstore.Options{}), reads: map[string][]reading{}, count: map[string]int{}}
	w.fault = faultstore.New(w.store)
	for _, f := range folders {
		w.store.Put(objstore.Location{Scheme: "s3", Bucket: "b", Key: "r/" + f + "/_versions/1.manifest"}, []byte("x"))
	}
	return w
}

// registry makes a registry of these rows.
func (w *world) registry(kind string, rows ...row) *world {
	return w.then(kind, reading{rows: rows})
}

func (w *world) then(kind string, r ...reading) *world {
	if len(w.reads[kind]) == 0 {
		w.store.Put(objstore.Location{Scheme: "s3", Bucket: "b", Key: "r/" + registryFolder(kind) + "/_versions/1.manifest"}, []byte("x"))
	}
	w.reads[kind] = append(w.reads[kind], r...)
	return w
}

func (w *world) read(_ context.Context, _ Stores, _ objstore.Location, kind string) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		rs := w.reads[kind]
		if len(rs) == 0 {
			yield(row{}, errNoRegistry)
			return
		}
		r := rs[min(w.count[kind], len(rs)-1)]
		w.count[kind]++
		for _, one := range r.rows {
			if !yield(one, nil) {
				return
			}
		}
		if r.err != nil {
			yield(row{}, r.err)
		}
	}
}

func (w *world) stores() *factory.Set {
	return factory.New(factory.Options{Attempts: 1, Logger: slog.New(slog.DiscardHandler), S3: factory.S3Options{Region: "us-east-1"},
		Open: func(context.Context, objstore.Location) (objstore.Writer, error) { return w.fault, nil }})
}

func (w *world) discover(t *testing.T, mode Mode) *Found {
	t.Helper()
	stores := w.stores()
	root, err := rootOf(stores, "s3://b/r/")
	if err != nil {
		t.Fatal(err)
	}
	d := &registries{discovery: newDiscovery(stores, Filter{}, slog.New(slog.DiscardHandler)), root: root, mode: mode, read: w.read, known: map[string]*registry{}}
	d.find(t.Context())
	return &d.found
}

// at is a row whose uri is as the name says.
func at(name, kind string, created int64) row {
	return row{name, "s3://b/r/" + folder(name, kind), created}
}

// brief is each target as one line, system datasets left out, and then each problem.
func brief(f *Found) []string {
	out := []string{}
	for _, t := range f.Targets {
		if t.Kind == KindSystem {
			continue
		}
		line := t.Name
		if t.Registry != "" {
			line += " " + t.Registry
		}
		if t.RegistryURI != "" {
			line += " " + t.RegistryURI
		}
		if t.Row {
			line += " row"
		}
		if t.Listed {
			line += " listed"
		}
		if t.RegistryUnread {
			line += " unread"
		}
		out = append(out, line)
	}
	slices.Sort(out)
	for _, p := range f.Problems {
		out = append(out, fmt.Sprintf("! %s %s %s", strings.TrimPrefix(p.Target, "s3://b/r/"), p.State, *p.Reason))
	}
	return out
}

func TestDiscoveryByRegistries(t *testing.T) {
	t.Parallel()
	const none = "! s3://b/r incomplete no_registry"
	for _, c := range []struct {
		name string
		w    *world
		mode Mode
		want []string
	}{
		{"rows of three kinds", newWorld().registry(KindRollout, at("a", KindRollout, 1)).registry(KindGeneric, at("a", KindGeneric, 1)).registry(KindDatagen, at("a", KindDatagen, 1)), Registry,
			[]string{"a ok row", "datagen:a ok row", "generic:a ok row"}},
		{"a store without a row is not seen by the registry alone", newWorld("x.rollout.lance").registry(KindRollout, at("a", KindRollout, 1)), Registry, []string{"a ok row"}},
		{"a context store is in no registry", newWorld("ctx.lance", "a.rollout.lance").registry(KindRollout, at("a", KindRollout, 1)), Both, []string{"a ok row listed", "table:ctx listed"}},
		{"a name with dots", newWorld("a.rollout.rollout.lance").registry(KindRollout, at("a.rollout", KindRollout, 1)), Both, []string{"a.rollout ok row listed"}},
		{"a doubled row is one target", newWorld().registry(KindRollout, at("a", KindRollout, 1), at("b", KindRollout, 1), at("a", KindRollout, 2)), Registry, []string{"a ok row", "b ok row"}},
		{"of two rows the later one holds, and that they differ is told",
			newWorld().registry(KindRollout, at("a", KindRollout, 2), row{"a", "s3://old/a.rollout.lance", 1}), Registry, []string{"a uri_differs s3://old/a.rollout.lance row"}},
		{"a later row elsewhere", newWorld().registry(KindRollout, at("a", KindRollout, 1), row{"a", "s3://new/a.rollout.lance", 2}), Registry, []string{"a uri_differs s3://new/a.rollout.lance row"}},
		{"of two that are both elsewhere the later one is named", newWorld().registry(KindRollout, row{"a", "s3://new/a", 2}, row{"a", "s3://old/a", 1}), Registry, []string{"a uri_differs s3://new/a row"}},
		{"in whichever order they stand", newWorld().registry(KindRollout, row{"a", "s3://old/a", 1}, row{"a", "s3://new/a", 2}), Registry, []string{"a uri_differs s3://new/a row"}},
		{"a row elsewhere", newWorld("a.rollout.lance").registry(KindRollout, row{"a", "s3a://b/other/a.rollout.lance", 1}), Both, []string{"a uri_differs s3://b/other/a.rollout.lance row listed"}},
		{"a row without a uri", newWorld().registry(KindRollout, row{name: "a"}), Registry, []string{"a uri_differs row"}},
		{"credentials in a row are not shown", newWorld().registry(KindRollout, row{"a", "s3://KEY:SECRET@b/r/a.rollout.lance", 1}), Registry,
			[]string{"a uri_differs s3://…@b/r/a.rollout.lance row"}},
		{"names that would lead elsewhere", newWorld().registry(KindRollout, at("a", KindRollout, 1), row{name: "../x"}, row{name: ".."}, row{name: ""}, row{name: "_stats"}, row{name: "a/b"}, row{name: strings.Repeat("n", 129)}), Registry,
			[]string{"a ok row", "! _registry.rollout.lance/ incomplete invalid_names"}},
		{"a registry that breaks off names nothing", newWorld("a.rollout.lance").then(KindRollout, reading{[]row{at("a", KindRollout, 1)}, errBadRegistry}), Registry,
			[]string{"! _registry.rollout.lance/ incomplete bad_registry"}},
		{"and takes nothing away from the listing", newWorld("a.rollout.lance", "g.generic.lance").then(KindRollout, reading{nil, &objstore.Error{Status: 403, Err: objstore.ErrDenied}}).registry(KindGeneric, at("g", KindGeneric, 1)), Both,
			[]string{"a listed unread", "generic:g ok row listed", "! _registry.rollout.lance/ incomplete access_denied"}},
		{"no registry", newWorld("a.rollout.lance"), Registry, []string{none}},
		{"no registry, and a listing", newWorld("a.rollout.lance"), Both, []string{"a listed unread", none}},
		{"a kind without a registry", newWorld("a.rollout.lance", "g.generic.lance").registry(KindRollout, at("a", KindRollout, 1)), Both, []string{"a ok row listed", "generic:g unregistered listed"}},
		{"a row without a folder", newWorld().registry(KindRollout, at("a", KindRollout, 1)), Both, []string{"a ok row"}},
		{"a folder without a row", newWorld("a.rollout.lance", "b.rollout.lance").registry(KindRollout, at("a", KindRollout, 1)), Both, []string{"a ok row listed", "b unregistered listed"}},
		{"a row that was absent for a moment", newWorld("a.rollout.lance").then(KindRollout, reading{}, reading{rows: []row{at("a", KindRollout, 1)}}), Both, []string{"a ok row listed"}},
		{"a row that came back elsewhere", newWorld("a.rollout.lance").then(KindRollout, reading{}, reading{rows: []row{{"a", "s3://x/a", 1}}}), Both, []string{"a uri_differs s3://x/a row listed"}},
		{"a registry that cannot be read again", newWorld("a.rollout.lance").then(KindRollout, reading{}, reading{err: errBadRegistry}), Both, []string{"a listed unread", "! _registry.rollout.lance/ incomplete bad_registry"}},
		{"hidden folders and those below others", newWorld(".x.rollout.lance", "dir/x.rollout.lance", "a.rollout.lance").registry(KindRollout, at("a", KindRollout, 1)), Both, []string{"a ok row listed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(c.want, brief(c.w.discover(t, c.mode))); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestTheRegistriesThemselvesAreTargets(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Registry, Both} {
		w := newWorld("_stats.rollout.lance").registry(KindRollout).registry(KindGeneric)
		var names []string
		for _, target := range w.discover(t, mode).Targets {
			names = append(names, target.Name)
			if target.Registry != "" || !target.Listed {
				t.Errorf("%v: %+v", mode, target)
			}
		}
		slices.Sort(names)
		if want := []string{"system:_registry.generic", "system:_registry.rollout", "system:_stats.rollout"}; !slices.Equal(names, want) {
			t.Errorf("%v: targets %v, want %v", mode, names, want)
		}
	}
}

func TestARootThatCannotBeListed(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Registry, Both} {
		w := newWorld().registry(KindRollout, at("a", KindRollout, 1))
		w.fault.Add(faultstore.Rule{Op: "list", Effect: faultstore.Status(403, "AccessDenied")})
		if d := cmp.Diff([]string{"! s3://b/r incomplete access_denied"}, brief(w.discover(t, mode))); d != "" {
			t.Errorf("%v (-want +got)\n%s", mode, d)
		}
	}
}

func TestRegisteredReadsEachRegistryOnce(t *testing.T) {
	t.Parallel()
	w := newWorld().registry(KindRollout, at("a", KindRollout, 1), row{"b", "s3://elsewhere/b", 1})
	root := objstore.Location{Scheme: "s3", Bucket: "b", Key: "r"}
	target := func(name, kind string) reconcile.Target {
		return reconcile.Target{Name: name, Kind: kind, Root: root, Row: true}
	}
	targets := []reconcile.Target{target("a", KindRollout), target("b", KindRollout), target("c", KindRollout), target("generic:a", KindGeneric)}
	got, err := registered(t.Context(), w.read, w.stores(), targets)
	if err != nil || !slices.Equal(got, []string{"ok", "uri_differs", "", ""}) || w.count[KindRollout] != 1 {
		t.Errorf("%v, %v, %d readings", got, err, w.count[KindRollout])
	}
	w.reads[KindRollout] = []reading{{err: objstore.ErrThrottled}}
	if _, err := registered(t.Context(), w.read, w.stores(), targets); !errors.Is(err, objstore.ErrThrottled) {
		t.Errorf("an unreadable registry: %v", err)
	}
}

func TestRowsOfTargetsThatWereNamed(t *testing.T) {
	t.Parallel()
	root := objstore.Location{Scheme: "s3", Bucket: "b", Key: "r"}
	bad := func() *world { return newWorld().then(KindRollout, reading{err: errBadRegistry}) }
	for _, c := range []struct {
		name string
		w    *world
		all  bool
		want string
	}{
		{"a row, none, and a kind without a registry", newWorld().registry(KindRollout, at("a", KindRollout, 1)), false, "a row, b none, generic:g none, table:ctx, a"},
		{"a registry that cannot be read", bad().registry(KindGeneric, at("g", KindGeneric, 1)), false, "a row unread, b row unread, generic:g row, table:ctx, a"},
		{"the only registry cannot be read", bad(), false, "a row unread, b row unread, generic:g none, table:ctx, a"},
		{"no registry at all", newWorld(), false, "a unread, b unread, generic:g unread, table:ctx, a"},
		{"all", newWorld(), true, "a row, b row, generic:g row, table:ctx, a"},
	} {
		targets := []reconcile.Target{{Name: "a", Kind: KindRollout, Root: root}, {Name: "b", Kind: KindRollout, Root: root}, {Name: "generic:g", Kind: KindGeneric, Root: root},
			{Name: "table:ctx", Kind: KindTable, Root: root}, {Name: "a", Kind: KindRollout, Root: root.Join("below")}}
		markRows(t.Context(), c.w.read, c.w.stores(), root, targets, c.all)
		var got []string
		for _, target := range targets {
			line := target.Name
			if target.Row {
				line += " row"
			}
			if target.NoRow {
				line += " none"
			}
			if target.RegistryUnread {
				line += " unread"
			}
			got = append(got, line)
		}
		if d := cmp.Diff(c.want, strings.Join(got, ", ")); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, d)
		}
		if n := c.w.count[KindRollout]; n > 1 {
			t.Errorf("%s: the registry is read %d times", c.name, n)
		}
	}
}

func TestSamePlace(t *testing.T) {
	t.Parallel()
	stores := factory.New(factory.Options{S3: factory.S3Options{Region: "us-east-1"}})
	s3 := objstore.Location{Scheme: "s3", Bucket: "b", Key: "r/x.rollout.lance"}
	file := objstore.Location{Scheme: "file", Key: "/srv/app/data dir/x.rollout.lance"}
	for _, c := range []struct {
		uri  string
		at   objstore.Location
		same bool
	}{
		{"s3://b/r/x.rollout.lance", s3, true},
		{"s3a://b/r/x.rollout.lance/", s3, true},
		{"s3://b/r/y.rollout.lance", s3, false},
		{"s3://c/r/x.rollout.lance", s3, false},
		{"r/x.rollout.lance", s3, false},
		{"az://b/r/x.rollout.lance", s3, false},
		{"", s3, false},
		{"/srv/app/data dir/x.rollout.lance", file, true},
		{"/srv/app/data dir/x.rollout.lance/", file, true},
		{"file:///srv/app/data%20dir/x.rollout.lance", file, true},
		{"file:/srv/app/data%20dir/x.rollout.lance", file, true},
		{"./data dir/x.rollout.lance", file, true},
		{"../../app/data dir/x.rollout.lance", file, true},
		{"x.rollout.lance", file, true},
		{"a dir/x.rollout.lance", file, false},
		{"data dir/y.rollout.lance", file, false},
		{"/srv/other/data dir/x.rollout.lance", file, false},
		{"s3://srv/app/data dir/x.rollout.lance", file, false},
	} {
		if got := samePlace(stores, c.uri, c.at); got != c.same {
			t.Errorf("samePlace(%q, %s) = %v", c.uri, c.at, got)
		}
	}
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "_own": true, "A-1.b_c": true, "a..b": true, strings.Repeat("n", 128): true, "_registry.x": true,
		"": false, ".": false, "..": false, "-a": false, ".a": false, "a/b": false, `a\b`: false, "a b": false, "ä": false, "a\x00": false, "_registry": false, "_stats": false, strings.Repeat("n", 129): false,
	} {
		if validName(name) != want {
			t.Errorf("validName(%q) = %v", name, !want)
		}
	}
}
