package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// root is a store root with registries, on files or in a bucket, and a
// configuration that names it.
type root struct {
	t      *testing.T
	s      *servertest.Server // nil on files
	dir    string
	uri    string
	config string
}

// eachPlace runs a test on files and on S3.
func eachPlace(t *testing.T, test func(t *testing.T, newRoot func(mode, more string) *root)) {
	t.Parallel()
	for _, where := range []string{"files", "s3"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			test(t, func(mode, more string) *root {
				r := &root{t: t, dir: t.TempDir()}
				r.uri = filepath.Join(r.dir, "stores")
				if err := os.Mkdir(r.uri, 0o755); err != nil {
					t.Fatal(err)
				}
				if where == "s3" {
					r.s = servertest.S3(t)
					r.uri = "s3://" + r.s.Bucket + "/stores"
				}
				r.config = filepath.Join(r.dir, "reconcile.yaml")
				text := fmt.Sprintf("database: %q\nstores: [{name: rk, uri: %q, discover: %s}]\nverify: {confirm_after: 1s, min_manifest_age: 0s}\n%s", "sqlite:"+filepath.Join(r.dir, "ledger.db"), r.uri, mode, more)
				if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return r
			})
		})
	}
}

// put writes a dataset directly below the root.
func (r *root) put(name string, b *lancetest.Builder, damages ...lancetest.Damage) {
	r.t.Helper()
	if r.s != nil {
		put(r.t, r.s, "stores/"+name, b, damages...)
		return
	}
	b.WriteDir(r.t, filepath.Join(r.uri, name), damages...)
}

// registry is a registry of these rows, each "name" or "name uri".
func (r *root) registry(rows ...string) *lancetest.Builder {
	var names, uris []string
	var created []int64
	for i, row := range rows {
		name, uri, given := strings.Cut(row, " ")
		if !given {
			uri = r.uri + "/" + name + ".rollout.lance"
		}
		names, uris, created = append(names, name), append(uris, uri), append(created, int64(1_790_000_000_000+i))
	}
	return lancetest.New().Values(lancetest.Strings("name", names...), lancetest.Strings("uri", uris...), lancetest.Int64s("created_at", created...))
}

func (r *root) env() []string {
	if r.s == nil {
		return nil
	}
	return r.s.Env()
}

func (r *root) run(args ...string) result {
	r.t.Helper()
	return runIn(r.t, r.dir, r.env(), append(args, "--config", r.config, "--output", "json")...)
}

// lines are "target state registry (reason)" of the document, systems left out when
// they are clean, with the root taken out of names.
func (r *root) lines(d document) []string {
	out := []string{}
	for _, tg := range d.Targets {
		registry := "null"
		if tg.Registry != nil {
			registry = *tg.Registry
		}
		line := fmt.Sprintf("%s %s %s", tg.Target, tg.State, registry)
		if tg.Reason != nil {
			line += " (" + *tg.Reason + ")"
		}
		if !strings.HasPrefix(line, "system:") || tg.State != "clean" {
			out = append(out, strings.NewReplacer("file://"+r.uri, "ROOT", r.uri, "ROOT").Replace(line))
		}
	}
	return out
}

const registryName = "_registry.rollout.lance"

// The rows of the situation table that are about registries.
func TestRegistrySituations(t *testing.T) {
	long(t)
	whole := fourFragments()
	lost := lancetest.Missing(whole.DataName(1, 0))
	for _, c := range []struct {
		name  string
		modes []string
		make  func(r *root)
		exit  reconcile.ExitCode
		want  []string
	}{
		{"rows and stores agree", []string{"registry", "both"}, func(r *root) {
			r.put("a.rollout.lance", whole)
			r.put(registryName, r.registry("a"))
		}, 0, []string{"a clean ok"}},
		{"a row without objects", []string{"registry", "both"}, func(r *root) {
			r.put("a.rollout.lance", whole)
			r.put(registryName, r.registry("a", "gone"))
		}, 3, []string{"a clean ok", "gone diverged no_store (no_store)"}},
		{"rows of which no store is there", []string{"registry", "both"}, func(r *root) {
			r.put(registryName, r.registry("a", "b", "c"))
		}, 3, []string{"a diverged no_store (everything_missing)", "b diverged no_store (everything_missing)", "c diverged no_store (everything_missing)"}},
		{"a store without a row", []string{"both"}, func(r *root) {
			r.put("a.rollout.lance", whole)
			r.put("loose.rollout.lance", whole)
			r.put("g.generic.lance", whole)
			r.put(registryName, r.registry("a"))
		}, 3, []string{"a clean ok", "generic:g clean unregistered (unregistered)", "loose clean unregistered (unregistered)"}},
		{"the registry alone does not see it", []string{"registry"}, func(r *root) {
			r.put("a.rollout.lance", whole)
			r.put("loose.rollout.lance", whole)
			r.put(registryName, r.registry("a"))
		}, 0, []string{"a clean ok"}},
		{"a damaged store without a row", []string{"both"}, func(r *root) {
			r.put("loose.rollout.lance", whole, lost)
			r.put(registryName, r.registry())
		}, 3, []string{"loose diverged unregistered (unregistered)"}},
		{"a row that names another place", []string{"registry", "both"}, func(r *root) {
			r.put("a.rollout.lance", whole)
			r.put(registryName, r.registry("a s3://old/a.rollout.lance"))
		}, 3, []string{"a clean uri_differs (the registry names s3://old/a.rollout.lance)"}},
		{"and nothing is here", []string{"registry", "both"}, func(r *root) {
			r.put("b.rollout.lance", whole)
			r.put(registryName, r.registry("a s3://old/a.rollout.lance", "b"))
		}, 3, []string{"a diverged uri_differs (the registry names s3://old/a.rollout.lance, and nothing is here)", "b clean ok"}},
		{"a half-removed store with its row", []string{"registry", "both"}, func(r *root) {
			r.put("a.rollout.lance", whole, lancetest.Missing(whole.ManifestName()))
			r.put(registryName, r.registry("a"))
		}, 4, []string{"a half_deleted ok (no manifest, 5 objects)"}},
		{"a context store is in no registry", []string{"both"}, func(r *root) {
			r.put("a.rollout.lance", whole)
			r.put("ctx.lance", whole)
			r.put(registryName, r.registry("a"))
		}, 0, []string{"a clean ok", "table:ctx clean null"}},
		{"a root without registries", []string{"registry"}, func(r *root) { r.put("a.rollout.lance", whole) }, 4, []string{"ROOT incomplete null (no_registry)"}},
		{"a root without registries, listed as well", []string{"both"}, func(r *root) { r.put("a.rollout.lance", whole) }, 4, []string{"a clean null", "ROOT incomplete null (no_registry)"}},
		{"a registry that lost its rows is no empty one", []string{"registry"}, func(r *root) {
			reg := r.registry("a")
			r.put("a.rollout.lance", whole)
			r.put(registryName, reg, lancetest.Missing(reg.DataName(0, 0)))
		}, 4, []string{"ROOT/_registry.rollout.lance/ incomplete null (bad_registry)", "system:_registry.rollout diverged null (everything_missing)"}},
		{"a name that leads out of the root", []string{"registry", "both"}, func(r *root) {
			r.put("a.rollout.lance", whole)
			r.put(registryName, r.registry("a", "../outside"))
		}, 4, []string{"ROOT/_registry.rollout.lance/ incomplete null (invalid_names)", "a clean ok"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPlace(t, func(t *testing.T, newRoot func(mode, more string) *root) {
				for _, mode := range c.modes {
					r := newRoot(mode, "")
					c.make(r)
					got := r.lines(r.run("check").exit(c.exit).pass())
					slices.Sort(got)
					want := slices.Clone(c.want)
					slices.Sort(want)
					if d := cmp.Diff(want, got); d != "" {
						t.Errorf("discover: %s (-want +got)\n%s", mode, d)
					}
				}
			})
		})
	}
}

func TestARunRepairsRegisteredStores(t *testing.T) {
	eachPlace(t, func(t *testing.T, newRoot func(mode, more string) *root) {
		r := newRoot("registry", fullAtOnce)
		b := fourFragments()
		r.put("a.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
		r.put("b.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
		r.put("c.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
		r.put(registryName, r.registry("a", "b s3://elsewhere/b.rollout.lance"))
		d := r.run("run").exit(reconcile.ExitRefused).pass()
		want := []string{"a repaired ok", "b refused uri_differs (the registry names s3://elsewhere/b.rollout.lance)"}
		if diff := cmp.Diff(want, r.lines(d)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		for _, f := range d.Findings {
			if f.Target == "b" && !slices.Contains(f.BlockedBy, "outside_root") {
				t.Errorf("b is blocked by %v", f.BlockedBy)
			}
		}
	})
}

// A store is removed folder first and row last. A row that goes between look and
// commit means that the store is being removed.
func TestNoCommitToAStoreWhoseRowIsGone(t *testing.T) {
	long(t)
	eachPlace(t, func(t *testing.T, newRoot func(mode, more string) *root) {
		for _, c := range []struct {
			name, detail, state string
			break_              func(r *root)
		}{
			{"the row is gone", "it has no row in the registry", "refused", func(r *root) { r.put(registryName, r.registry("other").Version(2)) }},
			{"the row names another place", "the registry names another place", "refused", func(r *root) { r.put(registryName, r.registry("a s3://x/a.rollout.lance").Version(2)) }},
			{"the registry cannot be read", "the registry cannot be read just before the commit", "refused", func(r *root) {
				reg := r.registry("a").Version(2)
				r.put(registryName, reg, lancetest.Truncate(reg.ManifestName(), 30))
			}},
		} {
			r := newRoot("registry", fullAtOnce)
			b := fourFragments()
			r.put("a.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
			r.put(registryName, r.registry("a"))
			// The two looks are this long apart; the change falls between them.
			timer := time.AfterFunc(2*time.Second, func() { c.break_(r) })
			d := r.run("run", "--confirm-after", "5s").exit(reconcile.ExitRefused).pass()
			if timer.Stop() {
				t.Fatal("the run ended before the registry changed")
			}
			if len(d.Repairs) != 1 || d.Repairs[0]["state"] != c.state || !strings.Contains(fmt.Sprint(d.Repairs[0]["error"]), c.detail) {
				t.Errorf("%s: repairs %v", c.name, d.Repairs)
			}
			for _, tg := range d.Targets {
				if tg.Target == "a" && (tg.State != "refused" || *tg.Version != 3) {
					t.Errorf("%s: %s, version %d", c.name, tg.State, *tg.Version)
				}
			}
		}
	})
}

// What is named by its URI is repaired by its row too, and a plan lives on when its
// store does not.
func TestNamedRepairsAndPlansLookAtTheRow(t *testing.T) {
	long(t)
	eachPlace(t, func(t *testing.T, newRoot func(mode, more string) *root) {
		r := newRoot("registry", fullAtOnce)
		b := fourFragments()
		r.put("a.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
		r.put("b.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
		r.put(registryName, r.registry("a", "b s3://elsewhere/b.rollout.lance"))
		if out := r.run("repair", r.uri+"/b.rollout.lance").exit(reconcile.ExitRefused).stdout; !strings.Contains(out, "the registry names another place") {
			t.Errorf("repair of a store that the registry names elsewhere:\n%s", clip(out))
		}
		plan := filepath.Join(r.dir, "plan.json")
		r.run("plan", "--target", "a", "-o", plan).exit(reconcile.ExitDivergence)
		r.put(registryName, r.registry("b").Version(2))
		if out := r.run("apply", plan).exit(reconcile.ExitRefused).stdout; !strings.Contains(out, "it has no row in the registry") {
			t.Errorf("a plan for a store whose row is gone:\n%s", clip(out))
		}
		r.put(registryName, r.registry("a").Version(3))
		r.run("apply", plan).exit(reconcile.ExitClean)
		r.run("repair", "b").exit(reconcile.ExitFailed) // by name it is no target without a row
		r.run("repair", r.uri+"/b.rollout.lance").exit(reconcile.ExitClean)
	})
}

// A registry that cannot be read says nothing against any store, and nothing for one:
// every drop below its root waits until it can be read, whoever asks.
func TestNothingIsDroppedWhereTheRegistryCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(r *root)
	}{
		{"it lost its rows", func(r *root) {
			reg := r.registry("a")
			r.put(registryName, reg, lancetest.Missing(reg.DataName(0, 0)))
		}},
		{"the root has none", func(*root) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPlace(t, func(t *testing.T, newRoot func(mode, more string) *root) {
				r := newRoot("both", fullAtOnce)
				b := fourFragments()
				r.put("a.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
				c.make(r)
				for _, words := range [][]string{{"run"}, {"plan", "-o", filepath.Join(r.dir, "p.json")}, {"plan", r.uri, "-o", filepath.Join(r.dir, "q.json")}, {"repair", "a"}, {"repair", r.uri + "/a.rollout.lance"}} {
					d := r.run(words...).exit(reconcile.ExitRefused).pass()
					met := false
					for _, f := range d.Findings {
						if f.Target == "a" && f.Role == "data" {
							met = slices.Contains(f.BlockedBy, "incomplete_look")
						}
					}
					if !met || len(d.Repairs) != 0 {
						t.Errorf("%v: findings %+v, repairs %v", words, d.Findings, d.Repairs)
					}
				}
			})
		})
	}
}

// A folder without a row is being made or removed, or a left-over: it is told of, and
// only a repair that names it drops anything.
func TestAStoreWithoutARowIsOnlyReported(t *testing.T) {
	eachPlace(t, func(t *testing.T, newRoot func(mode, more string) *root) {
		r := newRoot("both", fullAtOnce)
		b := fourFragments()
		lost := lancetest.Missing(b.DataName(1, 0))
		r.put("a.rollout.lance", b, lost)
		r.put("loose.rollout.lance", b, lost)
		r.put("stray.rollout.lance", b, lost)
		r.put(registryName, r.registry("a"))
		blocked := func(d document) {
			t.Helper()
			for _, f := range d.Findings {
				if got := slices.Contains(f.BlockedBy, "half_deleted"); f.Role == "data" && got != (f.Target != "a") {
					t.Errorf("%s is blocked by %v", f.Target, f.BlockedBy)
				}
			}
			for _, repair := range d.Repairs {
				if repair["target"] != "a" {
					t.Errorf("repair %v", repair)
				}
			}
		}
		// A plan that was made while it had a row.
		early, late := filepath.Join(r.dir, "early.json"), filepath.Join(r.dir, "late.json")
		r.put(registryName, r.registry("a", "loose").Version(2))
		r.run("plan", "-o", early, "--target", "loose").exit(reconcile.ExitDivergence)
		r.put(registryName, r.registry("a").Version(3))
		for _, words := range [][]string{{"plan", "-o", late}, {"plan", r.uri, "-o", late + "2"}, {"run"}} {
			blocked(r.run(words...).exit(reconcile.ExitRefused).pass())
		}
		d := r.run("apply", early).exit(reconcile.ExitRefused).pass()
		if len(d.Repairs) != 1 || d.Repairs[0]["state"] != "refused" || !strings.Contains(fmt.Sprint(d.Repairs[0]["error"]), "half_deleted: it has no row in the registry") {
			t.Errorf("repairs of an early plan: %v", d.Repairs)
		}
		text := runIn(t, r.dir, r.env(), "plan", "--config", r.config, "--dry-run", "--target", "loose").exit(reconcile.ExitRefused).stdout
		if !strings.Contains(strings.Join(strings.Fields(text), " "), "It has no row in the registry") {
			t.Errorf("the text does not say why:\n%s", text)
		}
		for _, name := range []string{"loose", r.uri + "/stray.rollout.lance"} {
			if d := r.run("repair", name).pass(); len(d.Repairs) != 1 || d.Repairs[0]["state"] != "applied" {
				t.Errorf("repair %s: %v", name, d.Repairs)
			}
		}
	})
}

// What is dropped of a registry are the rows of stores that live.
func TestARegistryIsDroppedFromOnlyByName(t *testing.T) {
	eachPlace(t, func(t *testing.T, newRoot func(mode, more string) *root) {
		r := newRoot("list", fullAtOnce)
		reg := r.registry("a", "b", "c")
		for range 3 {
			reg = reg.Fragment(10)
		}
		r.put(registryName, reg, lancetest.Missing(reg.DataName(1, 0)))
		name := "system:_registry.rollout"
		for _, words := range [][]string{{"run"}, {"plan", "-o", filepath.Join(r.dir, "p.json")}, {"plan", r.uri + "/" + registryName, "-o", filepath.Join(r.dir, "q.json")}} {
			d := r.run(words...).exit(reconcile.ExitDivergence).pass()
			if len(d.Findings) != 1 || d.Findings[0].Target != name || d.Findings[0].ProposedAction != "none" || len(d.Repairs) != 0 {
				t.Errorf("%v: findings %+v, repairs %v", words, d.Findings, d.Repairs)
			}
		}
		text := runIn(t, r.dir, r.env(), "check", "--config", r.config).exit(reconcile.ExitDivergence).stdout
		if !strings.Contains(strings.Join(strings.Fields(text), " "), "its rows are stores") {
			t.Errorf("the text does not say what it is:\n%s", text)
		}
		d := r.run("repair", name).exit(reconcile.ExitClean).pass()
		if len(d.Repairs) != 1 || d.Repairs[0]["state"] != "applied" {
			t.Errorf("repairs %v", d.Repairs)
		}
	})
}

// madeRegistry is what registry.mjs says of the registry that it made.
type madeRegistry struct {
	Live, Deleted, Doubled []string
	Version                int
}

// Registries of a thousand rows, written by the real library in every file format:
// 3 % of the rows deleted, 1 % doubled.
func TestRegistriesOfTheRealLibraryNameExactlyTheLiveStores(t *testing.T) {
	long(t)
	t.Parallel()
	lib := lancetest.Library(t)
	for _, format := range []string{"2.0", "2.1", "2.2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, err := exec.CommandContext(t.Context(), "node", "fixtures/registry.mjs", dir, "--lib", lib, "--rows", "1000", "--stores", "3", "--format", format).Output()
			if err != nil {
				t.Fatalf("make registry: %v", err)
			}
			var made madeRegistry
			if err := json.Unmarshal(out, &made); err != nil {
				t.Fatal(err)
			}
			if len(made.Deleted) < 30 || len(made.Doubled) < 9 || len(made.Live)+len(made.Deleted) != 1000 {
				t.Fatalf("%d live, %d deleted, %d doubled", len(made.Live), len(made.Deleted), len(made.Doubled))
			}
			config := filepath.Join(t.TempDir(), "reconcile.yaml")
			if err := os.WriteFile(config, fmt.Appendf(nil, "stores: [{name: rk, uri: %q, discover: registry}]\n", dir), 0o600); err != nil {
				t.Fatal(err)
			}
			d := run(t, nil, "check", "--config", config, "--output", "json").exit(reconcile.ExitDivergence).pass()
			var names, there []string
			for _, tg := range d.Targets {
				if strings.HasPrefix(tg.Target, "system:") {
					continue
				}
				names = append(names, tg.Target)
				if text(tg.Registry) == "ok" {
					there = append(there, tg.Target)
				}
			}
			slices.Sort(names)
			want := slices.Sorted(slices.Values(made.Live))
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("names (-want +got)\n%s", diff)
			}
			slices.Sort(there)
			if diff := cmp.Diff(slices.Sorted(slices.Values(made.Live[:3])), there); diff != "" {
				t.Errorf("stores that are there (-want +got)\n%s", diff)
			}
		})
	}
}
