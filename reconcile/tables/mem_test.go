package tables_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// world is a bucket in memory with a clock that tests move, and a pass over it.
type world struct {
	t     *testing.T
	store *memstore.Store
	mu    sync.Mutex
	now   time.Time
	// between runs in the wait between the two looks.
	between  func()
	versions reconcile.Versions
	policy   reconcile.Policy
	minAge   time.Duration
	depth    reconcile.Depth
}

func newWorld(t *testing.T, opts memstore.Options) *world {
	w := &world{t: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), minAge: 15 * time.Minute}
	opts.Now = w.Now
	w.store = memstore.New(opts)
	w.policy = reconcile.Policy{Limits: reconcile.DefaultLimits(), DropPartialFragments: true}
	return w
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	w.advance(d)
	if w.between != nil {
		w.between()
	}
	return ctx.Err()
}

func loc(key string) objstore.Location {
	return objstore.Location{Scheme: "s3", Bucket: "b", Key: key}
}

// write puts a table's objects below a root, damaged as asked.
func (w *world) write(root string, b *lancetest.Builder, damages ...lancetest.Damage) {
	b.WriteTo(func(name string, data []byte) { w.store.Put(loc(root+"/"+name), data) }, damages...)
}

func (w *world) stores() *factory.Set {
	return factory.New(factory.Options{Attempts: 1, Logger: slog.New(slog.DiscardHandler), S3: factory.S3Options{Region: "us-east-1"},
		Open: func(context.Context, objstore.Location) (objstore.Writer, error) { return w.store, nil }})
}

func (w *world) look(uri string) *pass.Outcome {
	w.t.Helper()
	stores := w.stores()
	found, err := fleet.Discover(w.t.Context(), stores, []string{uri}, fleet.Filter{}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := pass.Look(w.t.Context(), found.Targets, pass.Options{
		Open: func(target reconcile.Target) reconcile.Source {
			return tables.New(target, stores, tables.Options{Versions: w.versions})
		},
		Stores: stores, ConfirmAfter: time.Minute, MinManifestAge: w.minAge, TargetTimeout: time.Hour, Concurrency: 4, Depth: w.depth,
		Policy: w.policy, Clock: w, Logger: slog.New(slog.DiscardHandler), Problems: found.Problems, ProblemFindings: found.Findings,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// four is a table of four fragments of ten rows.
func four() *lancetest.Builder {
	b := lancetest.New().Version(3).WriterVersion("lance", "12.0.0")
	for range 4 {
		b.Fragment(10)
	}
	return b
}

func aged(w *world) { w.advance(time.Hour) }

// brief is what a test says of one finding.
type brief struct {
	Path, Verdict, Reason, Action string
	Blocked                       []string
}

func briefs(out *pass.Outcome) []brief {
	var bs []brief
	for _, f := range out.Findings {
		b := brief{Path: f.Path, Verdict: f.Verdict.String(), Action: f.ProposedAction.String(), Blocked: f.BlockedBy}
		if f.Reason != nil {
			b.Reason = *f.Reason
		}
		if len(b.Blocked) == 0 {
			b.Blocked = nil
		}
		bs = append(bs, b)
	}
	return bs
}

type line struct {
	State, Reason string
	Exit          reconcile.ExitCode
	Findings      []brief
}

func outcome(out *pass.Outcome) line {
	l := line{Exit: out.Exit(), Findings: briefs(out)}
	if len(out.Targets) > 0 {
		l.State = out.Targets[0].State.String()
		if out.Targets[0].Reason != nil {
			l.Reason = *out.Targets[0].Reason
		}
	}
	return l
}

// Each case is one state of storage and what a pass makes of it.
func TestOneTable(t *testing.T) {
	t.Parallel()
	name := func(b *lancetest.Builder, i uint64) string { return b.DataName(i, 0) }
	del := four().Delete(1, 2)
	cases := []struct {
		name  string
		setup func(w *world)
		want  line
	}{
		{"one file of four gone: its fragment would be dropped", func(w *world) { w.write("t.lance", four(), lancetest.Missing(name(four(), 1))); aged(w) },
			line{"diverged", "", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", nil}}}},
		{"all files gone: the scope is wrong, not the data", func(w *world) {
			b := four()
			w.write("t.lance", b, lancetest.Missing(name(b, 0), name(b, 1), name(b, 2), name(b, 3)))
			aged(w)
		}, line{"diverged", "everything_missing", 3, []brief{
			{name(four(), 0), "missing", "", "drop_fragment", []string{"everything_missing", "over_limit"}},
			{name(four(), 1), "missing", "", "drop_fragment", []string{"everything_missing", "over_limit"}},
			{name(four(), 2), "missing", "", "drop_fragment", []string{"everything_missing", "over_limit"}},
			{name(four(), 3), "missing", "", "drop_fragment", []string{"everything_missing", "over_limit"}}}}},
		{"a lost deletion file drops nothing by default", func(w *world) { w.write("t.lance", del, lancetest.Missing(del.DeletionName(1))); aged(w) },
			line{"diverged", "", 3, []brief{{del.DeletionName(1), "missing", "", "none", []string{"deletion_policy"}}}}},
		{"a lost deletion file drops its fragment when the policy says so", func(w *world) {
			w.policy.DropForLostDeletionFile = true
			w.write("t.lance", del, lancetest.Missing(del.DeletionName(1)))
			aged(w)
		}, line{"diverged", "", 3, []brief{{del.DeletionName(1), "missing", "", "drop_fragment", nil}}}},
		{"a cut data file without a footer at its end may be dropped", func(w *world) { w.write("t.lance", four(), lancetest.Truncate(name(four(), 2), 30)); aged(w) },
			line{"diverged", "", 3, []brief{{name(four(), 2), "size_mismatch", "bad_footer", "drop_fragment", nil}}}},
		{"an emptied data file may be dropped", func(w *world) { w.write("t.lance", four(), lancetest.Empty(name(four(), 2))); aged(w) },
			line{"diverged", "", 3, []brief{{name(four(), 2), "size_mismatch", "bad_footer", "drop_fragment", nil}}}},
		{"a whole file of another size than recorded is the metadata's fault", func(w *world) {
			b := lancetest.New().Fragment(10).Fragment(10, lancetest.File{Path: "odd.lance", Size: 99999})
			w.write("t.lance", b)
			aged(w)
		}, line{"diverged", "", 3, []brief{{"data/odd.lance", "size_mismatch", "metadata_size_wrong", "none", nil}}}},
		{"no size recorded gives no size verdict", func(w *world) {
			w.write("t.lance", lancetest.New().Fragment(10, lancetest.File{Path: "x.lance", Size: lancetest.UnknownSize}))
			aged(w)
		}, line{"clean", "", 0, nil}},
		{"a data file without a recorded size that is too short is unreadable", func(w *world) {
			b := lancetest.New().Fragment(10).Fragment(10, lancetest.File{Path: "x.lance", Size: lancetest.UnknownSize})
			w.write("t.lance", b, lancetest.Truncate("data/x.lance", 7))
			aged(w)
		}, line{"diverged", "", 3, []brief{{"data/x.lance", "unreadable", "too_short", "drop_fragment", nil}}}},
		{"one of several files of a fragment names what is lost", func(w *world) {
			b := lancetest.New().Columns("id", "v").Fragment(10).Fragment(10, lancetest.File{Path: "id.lance", Fields: []int32{0}}, lancetest.File{Path: "v.lance", Fields: []int32{1}})
			w.policy.DropPartialFragments = false
			w.write("t.lance", b, lancetest.Missing("data/v.lance"))
			aged(w)
		}, line{"diverged", "", 3, []brief{{"data/v.lance", "missing", "", "drop_fragment", []string{"partial_columns"}}}}},
		{"a dead file that is gone harms nobody", func(w *world) {
			b := lancetest.New().Fragment(10, lancetest.File{Path: "live.lance"}, lancetest.File{Path: "dead.lance", Fields: lancetest.NoFields})
			w.write("t.lance", b, lancetest.Missing("data/dead.lance"))
			aged(w)
		}, line{"clean", "", 0, []brief{{"data/dead.lance", "missing", "dead_file", "none", nil}}}},
		{"a transaction file that is gone harms nobody", func(w *world) {
			b := four()
			w.write("t.lance", b, lancetest.Missing("_transactions/"+b.TransactionName()))
			aged(w)
		}, line{"clean", "", 0, []brief{{"_transactions/" + four().TransactionName(), "missing", "", "none", nil}}}},
		{"an index file that is gone costs its entry, no row", func(w *world) {
			b := four().Index("i", lancetest.IndexFile{Path: "page_data.lance"}, lancetest.IndexFile{Path: "page_lookup.lance"})
			w.write("t.lance", b, lancetest.Missing(b.IndexFolder(0)+"/page_lookup.lance"))
			aged(w)
		}, line{"diverged", "", 3, []brief{{four().Index("i").IndexFolder(0) + "/page_lookup.lance", "missing", "", "drop_index", nil}}}},
		{"an index that a write-ahead log maintains keeps its entry", func(w *world) {
			b := four().Index("i", lancetest.IndexFile{Path: "page_data.lance"}).MemWAL("i")
			w.write("t.lance", b, lancetest.Missing(b.IndexFolder(0)+"/page_data.lance"))
			aged(w)
		}, line{"diverged", "", 3, []brief{{four().Index("i").IndexFolder(0) + "/page_data.lance", "missing", "", "none", nil}}}},
		{"a young table's missing file is pending", func(w *world) { w.write("t.lance", four(), lancetest.Missing(name(four(), 1))) },
			line{"pending", "", 4, []brief{{name(four(), 1), "pending", "", "none", nil}}}},
		{"on a busy table an older version shows that the file is not young", func(w *world) {
			b := four()
			w.write("t.lance", b, lancetest.Missing(name(b, 1)))
			aged(w)
			next := b.Next()
			w.store.Put(loc("t.lance/"+next.ManifestName()), next.Manifest())
			w.store.Put(loc("t.lance/_transactions/"+next.TransactionName()), []byte("x"))
		}, line{"diverged", "", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", nil}}}},
		{"a file that only the young version names stays pending", func(w *world) {
			b := four()
			w.write("t.lance", b)
			aged(w)
			next := b.Next().Fragment(10)
			w.write("t.lance", next, lancetest.Missing(next.DataName(4, 0)))
		}, line{"pending", "", 4, []brief{{four().Fragment(1).DataName(4, 0), "pending", "", "none", nil}}}},
		{"a newest manifest that is cut short is unreadable", func(w *world) { w.write("t.lance", four(), lancetest.Truncate(four().ManifestName(), 60)); aged(w) },
			line{"unreadable", "bad_manifest", 4, []brief{{four().ManifestName(), "unreadable", "bad_manifest", "none", nil}}}},
		{"a newest manifest without a byte is unreadable", func(w *world) { w.write("t.lance", four(), lancetest.Empty(four().ManifestName())); aged(w) },
			line{"unreadable", "bad_manifest", 4, []brief{{four().ManifestName(), "unreadable", "bad_manifest", "none", nil}}}},
		{"an unknown reader flag stops the look", func(w *world) {
			w.write("t.lance", four().Flags(512, 512), lancetest.Missing(name(four(), 1)))
			aged(w)
		},
			line{"unreadable", "unknown_reader_flags", 4, nil}},
		{"an unknown writer flag stops the commit only", func(w *world) { w.write("t.lance", four().Flags(0, 1024), lancetest.Missing(name(four(), 1))); aged(w) },
			line{"diverged", "", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", []string{"unknown_writer_flags"}}}}},
		{"overlay files are their own role", func(w *world) {
			b := four().Overlay(1, "over.lance")
			w.write("t.lance", b, lancetest.Missing("data/over.lance"))
			aged(w)
		}, line{"diverged", "", 3, []brief{{"data/over.lance", "missing", "", "none", nil}}}},
		{"an unknown base id is undecided", func(w *world) {
			w.write("t.lance", lancetest.New().Fragment(10).Fragment(10, lancetest.File{Path: "far.lance", BaseID: lancetest.ID(9)}))
			aged(w)
		}, line{"incomplete", "unknown_base", 4, []brief{{"data/far.lance", "undecided", "unknown_base", "none", nil}}}},
		{"a base path of an unbuilt scheme is undecided", func(w *world) {
			w.write("t.lance", lancetest.New().Base(1, "az://c/t.lance", true).Fragment(10).Fragment(10, lancetest.File{Path: "far.lance", BaseID: lancetest.ID(1)}))
			aged(w)
		}, line{"incomplete", "unknown_base", 4, []brief{{"data/far.lance", "undecided", "unknown_base", "none", nil}}}},
		{"s3a names the same bucket as s3", func(w *world) {
			b := lancetest.New().Base(0, "s3a://b/far.lance", true).Base(1, "s3n://b/flat", false).
				Fragment(10, lancetest.File{Path: "x.lance", BaseID: lancetest.ID(0)}).Fragment(10, lancetest.File{Path: "y.lance", BaseID: lancetest.ID(1)})
			w.write("t.lance", b)
			for path, data := range b.BaseObjects() {
				_, key, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "s3a://"), "s3n://"), "/")
				w.store.Put(loc(key), data)
			}
			aged(w)
		}, line{"clean", "", 0, nil}},
		{"objects without a manifest are a half-deleted table", func(w *world) { w.store.Put(loc("t.lance/data/x.lance"), []byte("x")) },
			line{"half_deleted", "no manifest, 1 objects", 4, nil}},
		{"two naming schemes in one folder are refused as the library does", func(w *world) {
			w.write("t.lance", four())
			v1 := four().Naming(lancetest.V1)
			w.store.Put(loc("t.lance/"+v1.ManifestName()), v1.Manifest())
		}, line{"unreadable", "mixed_naming", 4, []brief{{"_versions/", "unreadable", "mixed_naming", "none", nil}}}},
		{"a tag above the newest manifest proves a roll-back", func(w *world) { w.write("t.lance", four().Tag("v9", 9), lancetest.Missing(name(four(), 1))); aged(w) },
			line{"rolled_back", "tag v9 names version 9, the newest manifest is 3", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", []string{"rolled_back"}}}}},
		{"a hint above the newest manifest is only a trace", func(w *world) { w.write("t.lance", four().Hint(7)); aged(w) },
			line{"incomplete", "higher_version_trace", 4, []brief{{"_versions/latest_version_hint.json", "undecided", "higher_version_trace", "none", nil}}}},
		{"the hint is never trusted for what is newest", func(w *world) { w.write("t.lance", four().Hint(1)); aged(w) },
			line{"clean", "", 0, nil}},
		{"a staged manifest is the sign of another commit store", func(w *world) {
			w.write("t.lance", four(), lancetest.Missing(name(four(), 1)))
			w.store.Put(loc("t.lance/"+four().ManifestName()+"-0f0e0d0c-0b0a-0908-0706-050403020100"), []byte("x"))
			aged(w)
		}, line{"diverged", "", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", []string{"external_commit_store"}}}}},
		{"writers that commit without a condition forbid a commit", func(w *world) {
			w.write("t.lance", four().WriterVersion("lance", "0.22.0"), lancetest.Missing(name(four(), 1)))
			aged(w)
		}, line{"diverged", "", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", []string{"unconditional_writer"}}}}},
		{"the first release with conditional commits is trusted", func(w *world) {
			w.write("t.lance", four().WriterVersion("lance", "0.39.0"), lancetest.Missing(name(four(), 1)))
			aged(w)
		}, line{"diverged", "", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", nil}}}},
		{"what a compaction replaced between the looks is superseded", func(w *world) {
			b := four()
			w.write("t.lance", b, lancetest.Missing(name(b, 1)))
			aged(w)
			w.between = func() { w.write("t.lance", b.Next().Drop(1).Fragment(10)) }
		}, line{"clean", "", 0, []brief{{name(four(), 1), "superseded", "", "none", nil}}}},
		{"a newest version that falls between the looks is a table being deleted", func(w *world) {
			b := four()
			w.write("t.lance", b, lancetest.Missing(name(b, 1)))
			next := b.Next()
			w.write("t.lance", next, lancetest.Missing(name(b, 1)))
			aged(w)
			w.between = func() {
				w.store.Remove(loc("t.lance/" + next.ManifestName()))
				w.store.Remove(loc("t.lance/_transactions/" + next.TransactionName()))
			}
		}, line{"rolled_back", "the newest version fell from 4 to 3 between the looks", 3, []brief{{name(four(), 1), "missing", "", "drop_fragment", []string{"rolled_back"}}}}},
		{"a healthy file in a fragment without deletions is not touched by a neighbour", func(w *world) {
			b := four().Delete(0, 3).DeleteBitmap(2, 4)
			w.write("t.lance", b)
			aged(w)
		}, line{"clean", "", 0, nil}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, memstore.Options{})
			c.setup(w)
			got := outcome(w.look("s3://b/t.lance"))
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestPlannedActions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memstore.Options{Versions: true})
	b := four().Delete(1, 2).Index("i", lancetest.IndexFile{Path: "page_data.lance"})
	w.write("t.lance", b)
	w.store.Purge(loc("t.lance/" + b.DataName(1, 0)))
	w.store.Purge(loc("t.lance/" + b.IndexFolder(0) + "/page_data.lance"))
	w.store.Remove(loc("t.lance/" + b.DataName(2, 0))) // leaves a delete marker
	aged(w)
	out := w.look("s3://b/t.lance")
	var kinds []string
	for _, a := range out.Actions {
		kinds = append(kinds, a.Action.String())
	}
	slices.Sort(kinds)
	if d := cmp.Diff([]string{"drop_fragment", "drop_index", "restore"}, kinds); d != "" {
		t.Fatal(d, briefs(out))
	}
	for _, a := range out.Actions {
		if a.ReadVersion != 3 || a.Target != "table:t" || a.URI != "s3://b/t.lance" {
			t.Errorf("action %+v", a)
		}
		if a.Action != reconcile.ActionDropFragment {
			continue
		}
		f := a.Fragments[0]
		if len(a.Fragments) != 1 || f.ID != 1 || *f.PhysicalRows != 10 || *f.LiveRows != 8 || len(f.MessageSHA256) != 64 || !slices.Equal(f.Files, []string{b.DataName(1, 0)}) {
			t.Errorf("fragment %+v", f)
		}
	}
	for _, f := range out.Findings {
		if f.Role == reconcile.RoleData && f.Verdict == reconcile.Missing && (*f.RowsAtRisk != 8 || !slices.Equal(f.ColumnsLost, []string{"id"}) || len(f.ColumnsKept) != 0) {
			t.Errorf("finding %+v", f)
		}
	}
}

func TestOneUndecidedReferenceBlocksEveryDropOfItsTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memstore.Options{})
	b := lancetest.New().WriterVersion("lance", "12.0.0").Fragment(10).Fragment(10).Fragment(10, lancetest.File{Path: "far.lance", BaseID: lancetest.ID(7)})
	w.write("t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	w.write("u.lance", four(), lancetest.Missing(four().DataName(1, 0)))
	aged(w)
	out := w.look("s3://b/")
	for _, f := range out.Findings {
		want := f.Target == "table:t" && f.Verdict == reconcile.Missing
		if got := slices.Contains(f.BlockedBy, reconcile.BlockedIncompleteLook); got != want {
			t.Errorf("%s %s blocked by %v", f.Target, f.Path, f.BlockedBy)
		}
	}
	if len(out.Actions) != 1 || out.Actions[0].Target != "table:u" {
		t.Errorf("actions %+v", out.Actions)
	}
}

func TestRetainedVersions(t *testing.T) {
	t.Parallel()
	setup := func(w *world) *lancetest.Builder {
		old := four()
		w.write("t.lance", old)
		w.advance(time.Hour)
		next := old.Next().Drop(1).Tag("keep", 3)
		w.write("t.lance", next)
		aged(w)
		return old
	}
	t.Run("a file that only a tag names is found in that scope alone and leads to no commit", func(t *testing.T) {
		w := newWorld(t, memstore.Options{})
		old := setup(w)
		w.store.Remove(loc("t.lance/" + old.DataName(1, 0)))
		if got := outcome(w.look("s3://b/t.lance")); got.Exit != 0 {
			t.Errorf("current scope: %+v", got)
		}
		w.versions = reconcile.VersionsRetained
		out := w.look("s3://b/t.lance")
		if len(out.Findings) != 1 || !slices.Equal(out.Findings[0].Scopes, []string{"tag:keep"}) || out.Findings[0].ProposedAction != reconcile.ActionNone || len(out.Actions) != 0 {
			t.Errorf("%+v %+v", briefs(out), out.Actions)
		}
	})
	t.Run("a file that both name is one finding with both scopes", func(t *testing.T) {
		w := newWorld(t, memstore.Options{})
		old := setup(w)
		w.store.Remove(loc("t.lance/" + old.DataName(2, 0)))
		w.versions = reconcile.VersionsAll
		out := w.look("s3://b/t.lance")
		if len(out.Findings) != 1 || !slices.Equal(out.Findings[0].Scopes, []string{"latest", "version:4", "tag:keep", "version:3"}) || out.Findings[0].Version != 4 {
			t.Errorf("%+v", out.Findings)
		}
	})
	t.Run("a tagged manifest that is gone is a finding of its own", func(t *testing.T) {
		w := newWorld(t, memstore.Options{})
		old := setup(w)
		w.store.Remove(loc("t.lance/" + old.ManifestName()))
		w.minAge = 0
		w.versions = reconcile.VersionsRetained
		out := w.look("s3://b/t.lance")
		if len(out.Findings) != 1 || out.Findings[0].Role != reconcile.RoleManifest || out.Findings[0].Verdict != reconcile.Missing || !slices.Equal(out.Findings[0].Scopes, []string{"tag:keep"}) {
			t.Errorf("%+v", out.Findings)
		}
	})
	t.Run("an old manifest without a byte is unreadable and does not stop the rest", func(t *testing.T) {
		w := newWorld(t, memstore.Options{})
		old := setup(w)
		w.store.Put(loc("t.lance/"+old.ManifestName()), nil)
		w.minAge = 0
		w.versions = reconcile.VersionsAll
		out := w.look("s3://b/t.lance")
		if len(out.Findings) != 1 || out.Findings[0].Verdict != reconcile.Unreadable || out.Targets[0].State != reconcile.StateDiverged {
			t.Errorf("%+v", out.Findings)
		}
	})
}

func TestAStoreThatTellsNoAgeProtectsEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memstore.Options{})
	w.now = time.Time{} // the store tells no time at all
	w.write("t.lance", four(), lancetest.Missing(four().DataName(1, 0)))
	if got := outcome(w.look("s3://b/t.lance")); got.State != "pending" {
		t.Errorf("%+v", got)
	}
}

func TestNobodyListsAnObjectThatIsNotNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memstore.Options{})
	w.write("t.lance", four())
	w.store.Put(loc("t.lance/data/uploading.lance"), []byte("not named yet"))
	aged(w)
	if got := outcome(w.look("s3://b/t.lance")); got.Exit != 0 || len(got.Findings) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestDiscoveryNamesTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memstore.Options{})
	for _, root := range []string{"r/a.rollout.lance", "r/g.generic.lance", "r/d.datagen.lance", "r/_registry.rollout.lance", "r/_stats.rollout.lance", "r/ctx.lance", "r/team/x.lance", "r/_own.rollout.lance", "r/a.rollout.rollout.lance"} {
		w.write(root, four())
	}
	w.store.Put(loc("r/notes/readme.txt"), []byte("x"))
	out := w.look("s3://b/r")
	var got []string
	for _, r := range out.Targets {
		got = append(got, r.Target+" "+r.Kind)
	}
	slices.Sort(got)
	want := []string{"_own rollout", "a rollout", "a.rollout rollout", "datagen:d datagen", "generic:g generic", "system:_registry.rollout system", "system:_stats.rollout system", "table:ctx table", "table:team/x table"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestABucketThatIsGoneIsAFailureAndNoVerdict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memstore.Options{})
	w.store.RemoveBucket(loc(""))
	out := w.look("s3://b/r")
	if out.Exit() != reconcile.ExitFailed || out.Targets[0].State != reconcile.StateFailed {
		t.Errorf("%+v", outcome(out))
	}
	for v, n := range out.Totals.Verdicts {
		if v.Damaged() && n > 0 {
			t.Errorf("%d %s", n, v)
		}
	}
}
