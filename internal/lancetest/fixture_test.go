package lancetest_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

var equateEmpty = cmpopts.EquateEmpty()

// onDisk is every file below dir with its size.
func onDisk(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		out[filepath.ToSlash(rel)] = info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryFixtureLiesOnDiskAsItsTruthSays(t *testing.T) {
	t.Parallel()
	var total int64
	seen := map[string]bool{}
	for name, truth := range lancetest.Fixtures(t) {
		dir := filepath.Dir(lancetest.FixtureRoot(t, name))
		got := onDisk(t, dir)
		if diff := cmp.Diff(truth.OnDisk, got); diff != "" {
			t.Errorf("%s (-truth +disk):\n%s", name, diff)
		}
		for _, size := range got {
			total += size
		}
		seen[name] = true
		for _, f := range truth.Fragments {
			for _, file := range f.Files {
				if file.Base == nil && file.Size > 0 && got[truth.Root+"/"+file.Path] != file.Size {
					t.Errorf("%s: %s has %d bytes, manifest says %d", name, file.Path, got[truth.Root+"/"+file.Path], file.Size)
				}
			}
		}
	}
	lance := filepath.Dir(filepath.Dir(filepath.Dir(lancetest.FixtureRoot(t, "0.39.0/plain"))))
	dirs, err := filepath.Glob(filepath.Join(lance, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		name, _ := filepath.Rel(lance, d)
		if filepath.Dir(name) == "columns" { // tables of values, whose truth lies beside them
			continue
		}
		if !seen[filepath.ToSlash(name)] {
			t.Errorf("%s has no entry in truth.json", name)
		}
	}
	const limit = 2 << 20
	if total > limit {
		t.Errorf("fixtures take %d bytes, limit %d", total, limit)
	}
}

func TestFixturesCoverEveryReleaseAndShape(t *testing.T) {
	t.Parallel()
	releases, shapes := map[string]bool{}, map[string]bool{}
	for name := range lancetest.Fixtures(t) {
		release, shape, _ := strings.Cut(name, "/")
		releases[release], shapes[shape] = true, true
	}
	wantReleases := []string{"0.10.0", "0.15.0", "0.22.3", "0.31.0", "0.38.0", "0.39.0", "0.4.20"}
	if diff := cmp.Diff(wantReleases, slices.Sorted(maps.Keys(releases))); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
	for _, shape := range []string{"plain", "v1names", "v2names", "stable", "format01", "format20", "format21", "format22", "scalar", "vector", "text", "multifile",
		"dropped", "tombstone", "compacted", "updated", "empty", "tag", "branch", "branchbranch", "clone", "blob", "memwal", "densedel", "dictionary"} {
		if !shapes[shape] {
			t.Errorf("no release has shape %s", shape)
		}
	}
}

func TestACopyOfAFixtureNamesItsNewPlaceAndNothingElseChanges(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"0.39.0/branch", "0.39.0/branchbranch", "0.39.0/clone", "0.22.3/clone", "0.39.0/plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			truth := lancetest.Fixture(t, name)
			dst := filepath.Join(t.TempDir(), "a place with a longer name", strings.Repeat("x", 60))
			root := lancetest.CopyFixture(t, name, dst)
			if want := filepath.Join(dst, "t.lance"); root != want {
				t.Errorf("root %s, want %s", root, want)
			}
			source := filepath.Dir(lancetest.FixtureRoot(t, name))
			for file := range truth.OnDisk {
				before := readFile(t, filepath.Join(source, file))
				after := readFile(t, filepath.Join(dst, file))
				if strings.HasSuffix(file, ".manifest") {
					back, err := lancetest.RewriteBases(after, func(p string) string { return strings.Replace(p, dst, truth.BuiltAt, 1) })
					if err != nil {
						t.Errorf("%s: %v", file, err)
					}
					after = back
				}
				if strings.Contains(file, "_refs/") {
					continue // sizes of moved manifests
				}
				if string(before) != string(after) {
					t.Errorf("%s changed", file)
				}
			}
		})
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
