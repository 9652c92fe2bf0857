package tables_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// walTable writes a table whose log has the shards, with the base as b says.
func walTable(w *world, b *lancetest.Builder, shards ...lancetest.Shard) {
	w.write("t.lance", b)
	for _, s := range shards {
		put := func(name string, data []byte) { w.store.Put(loc("t.lance/"+name), data) }
		s.WriteTo(put)
		s.WriteGenerations(put)
	}
}

func (w *world) remove(names ...string) {
	for _, name := range names {
		w.store.Remove(loc("t.lance/" + name))
	}
}

// shard is one with generations 4 and 5, each of seven rows, and older manifests.
func shard() lancetest.Shard {
	return lancetest.Shard{Name: "a", Version: 6, Generations: []lancetest.Generation{{Number: 4, Rows: 7}, {Number: 5, Rows: 7}}}
}

// removeAll takes away everything below a folder of the table.
func (w *world) removeAll(folder string) {
	w.t.Helper()
	n := 0
	for at, err := range w.store.List(w.t.Context(), loc("t.lance/"+folder+"/"), "") {
		if err != nil {
			w.t.Fatal(err)
		}
		w.store.Remove(at.Location)
		n++
	}
	if n == 0 {
		w.t.Fatalf("nothing below %s", folder)
	}
}

// Each case is one sight of a write-ahead log and what it means.
func TestWriteAheadLogs(t *testing.T) {
	t.Parallel()
	s := shard()
	older := lancetest.Shard{Name: "a", Version: 5, Generations: []lancetest.Generation{{Number: 4, Rows: 7}}}
	base := func() *lancetest.Builder { return four().MemWAL() }
	type sight struct {
		Line            line
		Pending, Leaked int64
		AtRisk          int64
	}
	ok := func(l line) sight { return sight{l, 2, 0, 0} }
	clean := line{"clean", "", 0, nil}
	for _, c := range []struct {
		name  string
		setup func(w *world)
		want  sight
	}{
		{"a whole log", func(w *world) { walTable(w, base(), s) }, ok(clean)},
		{"a data file of a pending generation is gone: its rows are at stake, and no commit is proposed", func(w *world) {
			walTable(w, base(), s)
			w.remove(s.GenerationData(4))
		}, sight{line{"diverged", "", 3, []brief{{s.GenerationData(4), "missing", "", "none", nil}}}, 2, 0, 7}},
		{"two files of one generation put its rows at stake once", func(w *world) {
			walTable(w, base(), s)
			w.remove(s.GenerationData(4), s.GenerationFolder(4)+"/_pk_index/page_lookup.lance")
		}, sight{line{"diverged", "", 3, []brief{
			{s.GenerationFolder(4) + "/_pk_index/page_lookup.lance", "missing", "", "none", nil},
			{s.GenerationData(4), "missing", "", "none", nil}}}, 2, 0, 7}},
		{"the whole folder of a pending generation is gone", func(w *world) {
			walTable(w, base(), s)
			w.removeAll(s.GenerationFolder(5))
		}, sight{line{"diverged", "", 3, []brief{{s.GenerationFolder(5), "missing", "generation_gone", "none", nil}}}, 2, 0, 7}},
		{"the manifest of a pending generation is gone", func(w *world) {
			walTable(w, base(), s)
			w.removeAll(s.GenerationFolder(5) + "/_versions")
		}, sight{line{"diverged", "", 3, []brief{{s.GenerationFolder(5) + "/_versions/18446744073709551614.manifest", "missing", "generation_gone", "none", nil}}}, 2, 0, 7}},
		{"the manifest of a pending generation is cut", func(w *world) {
			walTable(w, base(), s)
			w.store.Put(loc("t.lance/"+s.GenerationFolder(5)+"/_versions/18446744073709551614.manifest"), []byte("LANC"))
		}, sight{line{"diverged", "", 3, []brief{{s.GenerationFolder(5) + "/_versions/18446744073709551614.manifest", "unreadable", "bad_manifest", "none", nil}}}, 2, 0, 7}},
		{"a generation that is merged and not drained yet harms nobody by being gone", func(w *world) {
			walTable(w, base().Merged(s, 4), s)
			w.removeAll(s.GenerationFolder(4))
		}, ok(line{"clean", "", 0, []brief{{s.GenerationFolder(4), "missing", "already_merged", "none", nil}}})},
		{"a generation above the merged one is still pending", func(w *world) {
			walTable(w, base().Merged(s, 4), s)
			w.remove(s.GenerationData(5))
		}, sight{line{"diverged", "", 3, []brief{{s.GenerationData(5), "missing", "", "none", nil}}}, 2, 0, 7}},
		{"a folder that a merge left behind is no damage", func(w *world) {
			walTable(w, base(), s)
			lancetest.Shard{Name: "a", Generations: []lancetest.Generation{{Number: 2, Rows: 3}}}.WriteGenerations(func(name string, data []byte) { w.store.Put(loc("t.lance/"+name), data) })
		}, sight{clean, 2, 1, 0}},
		{"a flush under way is no damage", func(w *world) {
			walTable(w, base(), s)
			lancetest.Shard{Name: "a", Generations: []lancetest.Generation{{Number: 6, Rows: 3}}}.WriteGenerations(func(name string, data []byte) { w.store.Put(loc("t.lance/"+name), data) })
		}, ok(clean)},
		{"the newest shard manifest is gone and the hint tells", func(w *world) {
			walTable(w, base(), older, s)
			w.remove(s.ManifestName())
		}, sight{line{"diverged", "", 3, []brief{{s.ManifestName(), "missing", "named_by_hint", "none", nil}}}, 1, 0, -1}},
		{"the newest shard manifest and the hint are gone and the folder tells", func(w *world) {
			walTable(w, base(), older, s)
			w.remove(s.ManifestName(), s.Folder()+"/manifest/version_hint.json")
		}, sight{line{"incomplete", "higher_version_trace", 4, []brief{{s.GenerationFolder(5), "undecided", "higher_version_trace", "none", nil}}}, 1, 0, -1}},
		{"every shard manifest is gone and the hint tells", func(w *world) {
			walTable(w, base(), s)
			w.remove(s.ManifestName())
		}, sight{line{"diverged", "", 3, []brief{{s.ManifestName(), "missing", "named_by_hint", "none", nil}}}, -1, 0, -1}},
		{"a shard that rows were merged from is gone as a whole", func(w *world) {
			walTable(w, base().Merged(s, 4), s)
			w.removeAll(s.Folder())
		}, sight{line{"incomplete", "higher_version_trace", 4, []brief{{s.Folder() + "/manifest/", "undecided", "higher_version_trace", "none", nil}}}, -1, 0, -1}},
		{"every shard manifest and the hint are gone", func(w *world) {
			walTable(w, base(), s)
			w.removeAll(s.Folder() + "/manifest")
		}, sight{line{"incomplete", "higher_version_trace", 4, []brief{{s.Folder() + "/manifest/", "undecided", "higher_version_trace", "none", nil}}}, -1, 0, -1}},
		{"an older shard manifest is gone: normal cleanup", func(w *world) {
			walTable(w, base(), older, s)
			w.remove(older.ManifestName())
		}, ok(clean)},
		{"a hint behind the newest manifest is only a hint", func(w *world) {
			walTable(w, base(), s)
			s := s
			s.Hint = 3
			s.WriteTo(func(name string, data []byte) { w.store.Put(loc("t.lance/"+name), data) })
		}, ok(clean)},
		{"a log without a hint", func(w *world) {
			walTable(w, base(), s)
			w.remove(s.Folder() + "/manifest/version_hint.json")
		}, ok(clean)},
		{"a broken newest shard manifest leaves its generations unknown", func(w *world) {
			walTable(w, base(), s)
			w.store.Put(loc("t.lance/"+s.ManifestName()), []byte{0xff})
		}, sight{line{"incomplete", "not_checked:wal_generation", 4, []brief{{s.ManifestName(), "unreadable", "bad_manifest", "none", nil}}}, -1, 0, -1}},
		{"a lost log entry that no generation holds is told and moves no state", func(w *world) {
			s := s
			s.Entries = 1
			walTable(w, base(), s)
		}, ok(line{"clean", "", 0, []brief{{s.EntryName(6), "missing", "pending_wal_entry", "none", nil}}})},
		{"a sealed shard blocks the base's repair", func(w *world) {
			s := s
			s.Status = 1
			b := base()
			walTable(w, b, s)
			w.remove(b.DataName(1, 0))
		}, sight{line{"diverged", "", 3, []brief{{base().DataName(1, 0), "missing", "", "drop_fragment", []string{"wal_sealed"}}}}, 2, 0, 10}},
		{"a lost generation does not keep the base from its own repair", func(w *world) {
			b := base()
			walTable(w, b, s)
			w.remove(b.DataName(1, 0), s.GenerationData(4))
		}, sight{line{"diverged", "", 3, []brief{
			{base().DataName(1, 0), "missing", "", "drop_fragment", nil},
			{s.GenerationData(4), "missing", "", "none", nil}}}, 2, 0, 17}},
		{"a generation merged and drained between the looks is none any more", func(w *world) {
			walTable(w, base(), s)
			w.remove(s.GenerationData(4))
			w.between = func() {
				after := lancetest.Shard{Name: "a", Version: 7, Generations: s.Generations[1:]}
				after.WriteTo(func(name string, data []byte) { w.store.Put(loc("t.lance/"+name), data) })
			}
		}, ok(line{"clean", "", 0, []brief{{s.GenerationData(4), "superseded", "", "none", nil}}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, memstore.Options{})
			c.setup(w)
			aged(w)
			out := w.look("s3://b/t.lance")
			got := sight{Line: outcome(out), Pending: -1, Leaked: -1, AtRisk: -1}
			if r := out.Targets[0]; true {
				set := func(to *int64, from *int64) {
					if from != nil {
						*to = *from
					}
				}
				set(&got.Pending, r.PendingGenerations)
				set(&got.Leaked, r.LeakedGenerations)
				set(&got.AtRisk, r.RowsAtRisk)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// A young generation that is lost stays pending until something old names it.
func TestAYoungGenerationIsPending(t *testing.T) {
	t.Parallel()
	s := shard()
	w := newWorld(t, memstore.Options{})
	walTable(w, four().MemWAL(), s)
	w.remove(s.GenerationData(4))
	if got := w.look("s3://b/t.lance").Findings[0].Verdict; got != reconcile.Pending {
		t.Errorf("verdict %s", got)
	}
	// An older manifest of the shard names it too: the newest is young and says no more.
	aged(w)
	newer := s
	newer.Version = 7
	newer.WriteTo(func(name string, data []byte) { w.store.Put(loc("t.lance/"+name), data) })
	if got := w.look("s3://b/t.lance").Findings[0].Verdict; got != reconcile.Missing {
		t.Errorf("verdict %s", got)
	}
}

// What no manifest of the base names is walked too: the blob values beside data files,
// and the files of pending generations.
func TestRealTablesNameWhatNoBaseManifestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[reconcile.Role]int{
		"0.39.0/blob":   {reconcile.RoleData: 2, reconcile.RoleBlobSidecar: 4},
		"0.39.0/memwal": {reconcile.RoleData: 3, reconcile.RoleWALGeneration: 8},
	} {
		root := lancetest.CopyFixture(t, name, t.TempDir())
		got := map[reconcile.Role]int{}
		for _, ref := range references(t, root, reconcile.VersionsCurrent) {
			if got[ref.Role]++; ref.Role == reconcile.RoleBlobSidecar && (!ref.HasFragment || ref.MinSize == 0) {
				t.Errorf("sidecar %+v", ref)
			}
		}
		delete(got, reconcile.RoleTransaction)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
}

// A drop is asked again for the very damage that it is made for: another damage of
// the fragment, which would not have led to it, does not keep it alive.
func TestAPlannedDropNamesOnlyWhatItIsMadeFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memstore.Options{})
	b := four().Delete(1, 2)
	w.write("t.lance", b, lancetest.Missing(b.DataName(1, 0), b.DeletionName(1)))
	aged(w)
	out := w.look("s3://b/t.lance")
	if len(out.Actions) != 1 || len(out.Actions[0].Fragments) != 1 {
		t.Fatalf("actions %+v", out.Actions)
	}
	if d := cmp.Diff([]string{b.DataName(1, 0)}, out.Actions[0].Fragments[0].Files); d != "" {
		t.Errorf("files (-want +got)\n%s", d)
	}
}
