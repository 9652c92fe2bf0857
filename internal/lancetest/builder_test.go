package lancetest_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

func sizes(objects map[string][]byte) map[string]int {
	out := map[string]int{}
	for name, data := range objects {
		out[name] = len(data)
	}
	return out
}

func TestABuiltTableHasEveryObjectThatItNames(t *testing.T) {
	t.Parallel()
	b := lancetest.New().Version(7).Fragment(4).Fragment(2, lancetest.File{Path: "x.lance"}, lancetest.File{Path: "under.lance", BaseID: lancetest.ID(3)}).
		Delete(0, 1).DeleteBitmap(1, 1).DeletionBase(1, 4).Index("id_idx", lancetest.IndexFile{Path: "page_data.lance"}).
		Base(3, "s3://b/pool", false).Base(4, "/other/src.lance", true).Tag("t", 7).Branch("a/b", "", 7).Hint(7).
		Overlay(0, "over.lance").ExternalRowIDs(1, "ids.bin", 7)
	want := []string{
		"_deletions/0-6-1000.arrow", "_refs/branches/a%2Fb.json", "_refs/tags/t.json", "_transactions/" + b.TransactionName(),
		"_versions/18446744073709551608.manifest", "_versions/latest_version_hint.json",
		"data/0-0.lance", "data/over.lance", "data/x.lance", "ids.bin", b.IndexFolder(0) + "/page_data.lance",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(b.Objects()))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	wantBase := []string{"/other/src.lance/_deletions/1-6-1001.bin", "s3://b/pool/under.lance"}
	if diff := cmp.Diff(wantBase, slices.Sorted(maps.Keys(b.BaseObjects()))); diff != "" {
		t.Errorf("objects under bases (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(b.Objects(), b.Objects()); diff != "" {
		t.Errorf("the same builder gives other bytes the second time:\n%s", diff)
	}
}

func TestTheNextVersionLeavesItsPredecessorAlone(t *testing.T) {
	t.Parallel()
	first := lancetest.New().Fragment(4).Fragment(2).Delete(0, 1).Index("id_idx")
	before := first.Objects()
	first.Next().Drop(0).Fragment(9).Delete(1, 2).DeletionCount(1, 0).IndexUncovered().UnknownInFragment(1, 900, []byte("x"))
	if diff := cmp.Diff(before, first.Objects()); diff != "" {
		t.Errorf("the first version changed:\n%s", diff)
	}
}

func TestDamageBreaksWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	b := lancetest.New().Fragment(4).Fragment(2).Delete(0, 1)
	whole := sizes(b.Objects())
	got := map[string][]byte{}
	b.WriteTo(func(name string, data []byte) { got[name] = data },
		lancetest.Missing("data/0-*.lance"), lancetest.Truncate("data/1-0.lance", 10), lancetest.Empty(b.DeletionName(0)))
	want := maps.Clone(whole)
	delete(want, "data/0-0.lance")
	want["data/1-0.lance"] = 10
	want[b.DeletionName(0)] = 0
	if diff := cmp.Diff(want, sizes(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	root := filepath.Join(t.TempDir(), "t.lance")
	b.WriteDir(t, root)
	lancetest.DamageDir(t, root, lancetest.Missing("_versions/*"), lancetest.Corrupt("data/1-0.lance", -1))
	onDiskNow := onDisk(t, root)
	if _, ok := onDiskNow[b.ManifestName()]; ok || len(onDiskNow) != len(whole)-1 {
		t.Errorf("on disk: %v", onDiskNow)
	}
	if raw := readFile(t, filepath.Join(root, "data/1-0.lance")); strings.HasSuffix(string(raw), "LANC") {
		t.Error("the corrupted byte is as it was")
	}
}

func TestDamageThatHitsNothingIsAnError(t *testing.T) {
	t.Parallel()
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "no such object") {
			t.Errorf("recovered %v", r)
		}
	}()
	lancetest.New().WriteTo(func(string, []byte) {}, lancetest.Missing("data/none.lance"))
}

func TestAShardNamesItsFilesAsTheLibraryDoes(t *testing.T) {
	t.Parallel()
	s := lancetest.Shard{Name: "w0", Version: 2, Epoch: 1, Generations: []lancetest.Generation{{Number: 1, Rows: 3}}}
	if want := s.Folder() + "/manifest/01" + strings.Repeat("0", 62) + ".binpb"; s.ManifestName() != want {
		t.Errorf("manifest %s, want %s", s.ManifestName(), want)
	}
	if folder := s.GenerationFolder(1); !strings.HasPrefix(folder, s.Folder()+"/") || !strings.HasSuffix(folder, "_gen_1") {
		t.Errorf("generation folder %s", folder)
	}
	got := map[string][]byte{}
	s.WriteTo(func(name string, data []byte) { got[name] = data })
	if hint := string(got[s.Folder()+"/manifest/version_hint.json"]); hint != `{"version":2}` || len(got) != 2 {
		t.Errorf("hint %q, %d files", hint, len(got))
	}
}

// fieldNumbers lists the fields of a message, each once, ascending.
func fieldNumbers(t *testing.T, msg []byte) []int {
	t.Helper()
	seen := map[int]bool{}
	for len(msg) > 0 {
		num, _, n := protowire.ConsumeField(msg)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		seen[int(num)] = true
		msg = msg[n:]
	}
	return slices.Sorted(maps.Keys(seen))
}

func TestABuiltShardManifestHasTheFieldsOfARealOne(t *testing.T) {
	t.Parallel()
	truth := lancetest.Fixture(t, "0.39.0/memwal")
	root := lancetest.FixtureRoot(t, truth.Name)
	newest := truth.Shards[0]
	entries, err := filepath.Glob(filepath.Join(root, newest.Dir, "manifest", "*.binpb"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("no shard manifest: %v", err)
	}
	built := lancetest.Shard{Name: "w", Version: newest.Version, Epoch: 1, Generations: []lancetest.Generation{{Number: 1, Rows: 3}}}
	real := readFile(t, filepath.Join(root, newest.Dir, "manifest", filepath.Base(built.ManifestName())))
	if diff := cmp.Diff(fieldNumbers(t, real), fieldNumbers(t, built.Manifest())); diff != "" {
		t.Errorf("field numbers (-real +built):\n%s", diff)
	}
}
