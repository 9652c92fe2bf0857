package lance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The fixtures are tables that seven releases of the real library wrote, with
// what is true of each, told by those releases and by a reader in another language.
const fixtures = "../testdata/lance"

type truth struct {
	Root, Manifest, Naming, Writer, Format, Branch, Txn string
	Version                                             uint64
	Rows                                                int64
	Versions                                            []uint64
	ReaderFlags, WriterFlags                            uint64
	Tags                                                map[string]uint64
	Branches                                            map[string]any
	Fields                                              []struct {
		ID   int32
		Name string
	}
	Bases []struct {
		ID         uint32
		Name, Path string
		IsRoot     bool
	}
	Fragments []struct {
		ID           uint64
		PhysicalRows int64
		Files        []truthFile
		Deletion     *struct {
			Path string
			Rows int64
			Base *uint32
		}
	}
	Indices []struct {
		Name, UUID string
		Base       *uint32
		Files      []truthFile
	}
	BuiltAt string           `json:"built_at"`
	OnDisk  map[string]int64 `json:"on_disk"`
}

type truthFile struct {
	Path, Version string
	Size          int64
	Fields        []int32
	Base          *uint32
}

func loadTruth(t testing.TB) map[string]truth {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures, "truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]truth
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d fixtures", len(all))
	}
	return all
}

func readNewest(t testing.TB, s Store) (*VersionSet, *Manifest) {
	t.Helper()
	vs, err := ListVersions(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(context.Background(), s, vs.Newest())
	if err != nil {
		t.Fatal(err)
	}
	return vs, m
}

func TestFixturesReadAsTheLibraryWroteThem(t *testing.T) {
	t.Parallel()
	for name, want := range loadTruth(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vs, m := readNewest(t, dirStore(filepath.Join(fixtures, name, want.Root)))
			var versions []uint64
			for _, e := range vs.Entries {
				versions = append(versions, e.Version)
			}
			slices.Sort(versions)
			got := map[string]any{
				"version": m.Version, "versions": versions, "naming": vs.Naming.String(), "manifest": vs.Newest().Name,
				"writer": m.WriterVersion.Library + " " + m.WriterVersion.Version, "format": m.DataFormat, "branch": m.Branch,
				"txn": m.TransactionFile, "reader": m.ReaderFlags, "writer flags": m.WriterFlags, "rows": m.Summary.LiveRows,
				"read": m.CheckReaderFlags(), "write": m.CheckWriterFlags(), "detached": len(vs.Detached), "staged": len(vs.Staged),
			}
			if len(want.Versions) == 0 {
				want.Versions = versions // 0.4.20 cannot list its versions
			}
			if d := cmp.Diff(map[string]any{
				"version": want.Version, "versions": want.Versions, "naming": want.Naming, "manifest": want.Manifest,
				"writer": want.Writer, "format": want.Format, "branch": want.Branch,
				"txn": want.Txn, "reader": want.ReaderFlags, "writer flags": want.WriterFlags, "rows": want.Rows,
				"read": error(nil), "write": error(nil), "detached": 0, "staged": 0,
			}, got); d != "" {
				t.Error(d)
			}
			checkFragments(t, want, m)
			checkSchema(t, want, m)
		})
	}
}

func checkFragments(t *testing.T, want truth, m *Manifest) {
	t.Helper()
	i := 0
	for f, err := range m.Fragments() {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(want.Fragments) {
			t.Fatalf("more than %d fragments", i)
		}
		w := want.Fragments[i]
		i++
		if f.ID != w.ID || f.PhysicalRows != w.PhysicalRows || len(f.Files) != len(w.Files) || (f.Deletion != nil) != (w.Deletion != nil) {
			t.Fatalf("fragment %+v, want %+v", f, w)
		}
		for j, d := range f.Files {
			x := w.Files[j]
			if folder(m, d.BaseID, d.HasBase, "data/")+d.Path != x.Path || d.Size != x.Size || !slices.Equal(d.Fields, x.Fields) || d.HasBase != (x.Base != nil) || d.HasBase && d.BaseID != *x.Base {
				t.Errorf("file %+v, want %+v", d, x)
			}
		}
		if d := f.Deletion; d != nil && ("_deletions/"+d.Name != w.Deletion.Path || d.NumDeleted != w.Deletion.Rows || d.HasBase != (w.Deletion.Base != nil)) {
			t.Errorf("deletion %+v, want %+v", d, w.Deletion)
		}
	}
	if i != len(want.Fragments) {
		t.Errorf("%d fragments, want %d", i, len(want.Fragments))
	}
}

func folder(m *Manifest, id uint32, has bool, name string) string {
	if b, ok := m.Base(id); has && ok && !b.IsDatasetRoot {
		return ""
	}
	return name
}

func checkSchema(t *testing.T, want truth, m *Manifest) {
	t.Helper()
	type named struct {
		ID   any
		Name string
	}
	var wanted, got []named
	for _, f := range want.Fields {
		wanted = append(wanted, named{f.ID, f.Name})
	}
	for f, err := range m.Fields() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, named{f.ID, f.Name})
	}
	for _, x := range want.Indices {
		wanted = append(wanted, named{x.UUID, x.Name})
	}
	for x, err := range m.Indices() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, named{x.UUID, x.Name})
	}
	if d := cmp.Diff(wanted, got); d != "" {
		t.Error(d)
	}
	if len(m.BasePaths) != len(want.Bases) {
		t.Fatalf("bases %v, want %v", m.BasePaths, want.Bases)
	}
	for i, b := range want.Bases {
		if d := cmp.Diff(BasePath{b.ID, b.Name, b.IsRoot, b.Path}, m.BasePaths[i]); d != "" {
			t.Error(d)
		}
	}
}

// place is where a file of a manifest lies, relative to the fixture's folder.
func (w truth) place(t *testing.T, root string, m *Manifest, f File) string {
	t.Helper()
	if !f.HasBase {
		return root + "/" + f.Path
	}
	b, ok := m.Base(f.BaseID)
	rel, below := strings.CutPrefix(b.Path, w.BuiltAt+"/")
	if !ok || !below {
		t.Fatalf("base %d (%q) is not below %s", f.BaseID, b.Path, w.BuiltAt)
	}
	return rel + "/" + f.Path
}

// roots are the datasets of a fixture: t.lance, its branches, and what lies beside it.
func roots(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name() == "_mem_wal" {
			return filepath.SkipDir // generations are datasets of their own
		}
		if err == nil && e.IsDir() && e.Name() == "_versions" {
			rel, relErr := filepath.Rel(dir, filepath.Dir(p))
			found, err = append(found, filepath.ToSlash(rel)), relErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Every object that any version of a fixture names is there, whole, with its
// recorded size; and there is no object that no version names.
func TestFixturesHoldWhatTheirManifestsNameAndNothingElse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, want := range loadTruth(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(fixtures, name)
			unnamed := maps.Clone(want.OnDisk)
			for _, root := range roots(t, dir) {
				s := dirStore(filepath.Join(dir, root))
				vs, err := ListVersions(ctx, s)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range vs.Entries {
					m, err := ReadManifest(ctx, s, e)
					if err != nil {
						t.Fatal(err)
					}
					delete(unnamed, root+"/"+e.Name)
					for _, f := range allFiles(t, m) {
						at := want.place(t, root, m, f)
						if f.Kind == KindIndex {
							at = indexAt(want, root, at)
						}
						checkObject(t, dir, want, f, at)
						delete(unnamed, at)
					}
					for _, at := range unrecorded(t, dir, want, root, m) {
						delete(unnamed, at)
					}
				}
			}
			for at := range unnamed {
				if !expectedUnnamed(at) {
					t.Errorf("no version names %s", at)
				}
			}
		})
	}
}

// expectedUnnamed are the objects that no manifest names: hints, the copy of the
// newest manifest that the oldest release keeps, refs, blob sidecars, the MemWAL.
func expectedUnnamed(at string) bool {
	return strings.HasSuffix(at, "/_latest.manifest") || strings.HasSuffix(at, "/latest_version_hint.json") ||
		strings.Contains(at, "/_refs/") || strings.HasSuffix(at, ".blob") || strings.Contains(at, "/_mem_wal/")
}

// indexAt tries the other places of an index file: a branch of a branch records
// the base of its parent for an index that lies in main.
func indexAt(want truth, root, at string) string {
	if _, ok := want.OnDisk[at]; ok {
		return at
	}
	_, tail, _ := strings.Cut(at, "/_indices/")
	for _, dir := range []string{root, want.Root} {
		if other := dir + "/_indices/" + tail; want.OnDisk[other] > 0 {
			return other
		}
	}
	return at
}

func checkObject(t *testing.T, dir string, want truth, f File, at string) {
	t.Helper()
	size, ok := want.OnDisk[at]
	switch {
	case !ok:
		t.Errorf("%s is named and not there: %+v", at, f)
		return
	case f.Size != 0 && f.Size != size:
		t.Errorf("%s has %d bytes, recorded are %d", at, size, f.Size)
	case size < f.MinSize:
		t.Errorf("%s has %d bytes, fewer than %d", at, size, f.MinSize)
	}
	b, err := os.ReadFile(filepath.Join(dir, at))
	if err != nil {
		t.Fatal(err)
	}
	switch f.Kind {
	case KindDeletion:
		err = CheckDeletionFile(f.Path, b)
	case KindTransaction:
		_, err = DecodeTransaction(b)
	case KindData, KindIndex:
		for n := min(FooterLen, len(b)); n <= len(b) && err == nil; n += max(1, len(b)/7) {
			err = CheckLanceFooter(b[len(b)-n:], int64(len(b)))
		}
	}
	if err != nil {
		t.Errorf("%s: %v", at, err)
	}
}

// unrecorded looks at indices whose files are not recorded: what they certainly
// have is exactly what their folder holds.
func unrecorded(t *testing.T, dir string, want truth, root string, m *Manifest) (found []string) {
	t.Helper()
	for x, err := range m.Indices() {
		if err != nil {
			t.Fatal(err)
		}
		if len(x.Files) > 0 || x.Name == MemWALIndex || x.Name == FragReuseIndex {
			continue
		}
		folder := want.place(t, root, m, File{BaseID: x.BaseID, HasBase: x.HasBase, Path: "_indices/" + x.UUID + "/"})
		must, listed, known, err := x.FindFiles(context.Background(), dirStore(dir), folder)
		if err != nil || !known || listed != len(must) {
			t.Errorf("index %s in %s: must %v, listed %d, known %v, %v", x.Name, folder, must, listed, known, err)
		}
		for _, name := range must {
			checkObject(t, dir, want, File{Kind: KindIndex, Path: name, MinSize: MinFileSize(KindIndex, name)}, folder+name)
			found = append(found, folder+name)
		}
		loseOne(t, dir, folder, x, must)
	}
	return found
}

// loseOne takes each file of an index away in turn: it must still be expected.
func loseOne(t *testing.T, dir, folder string, x Index, must []string) {
	t.Helper()
	for _, lost := range must {
		s := &memStore{objects: map[string][]byte{}}
		for _, name := range must {
			b, err := os.ReadFile(filepath.Join(dir, folder, name))
			if err != nil {
				t.Fatal(err)
			}
			if name != lost {
				s.objects[folder+name] = b
			}
		}
		got, _, known, err := x.FindFiles(context.Background(), s, folder)
		if len(must) == 1 && x.DetailsType == "" && !known {
			continue // a bitmap of a release that wrote no details
		}
		if d := cmp.Diff(must, got); err != nil || !known || d != "" {
			t.Errorf("%s (%s) without %s: %v %v %s", folder, x.Name, lost, known, err, d)
		}
	}
}

func TestFixturesShowNoTraceOfAHigherVersion(t *testing.T) {
	t.Parallel()
	for name, want := range loadTruth(t) {
		dir := filepath.Join(fixtures, name)
		for _, root := range roots(t, dir) {
			s := dirStore(filepath.Join(dir, root))
			vs, m := readNewest(t, s)
			if traces, err := Traces(context.Background(), s, vs, m); err != nil || len(traces) > 0 {
				t.Errorf("%s/%s: %v %v", name, root, traces, err)
			}
		}
		s := dirStore(filepath.Join(dir, want.Root))
		tags, err := Tags(context.Background(), s)
		if err != nil {
			t.Error(name, err)
		}
		got := map[string]uint64{}
		for _, tag := range tags {
			got[tag.Name] = tag.Version
		}
		if d := cmp.Diff(want.Tags, got, cmpopts.EquateEmpty()); d != "" {
			t.Error(name, d)
		}
		branches, err := Branches(context.Background(), s)
		if err != nil || len(branches) != len(want.Branches) {
			t.Errorf("%s: branches %v, want %v: %v", name, branches, want.Branches, err)
		}
		for _, b := range branches {
			if _, ok := want.Branches[b.Name]; !ok {
				t.Errorf("%s: branch %q, want one of %v", name, b.Name, want.Branches)
			}
			_, m := readNewest(t, dirStore(filepath.Join(dir, want.Root, b.Root)))
			if m.Branch != b.Name || m.Version < b.ParentVersion {
				t.Errorf("%s: branch %s holds version %d of %q", name, b.Name, m.Version, m.Branch)
			}
		}
	}
}

// A newest manifest that is lost leaves a trace wherever the library left one.
func TestALostNewestManifestLeavesATrace(t *testing.T) {
	t.Parallel()
	for name, want := range loadTruth(t) {
		if len(want.Versions) < 2 {
			continue
		}
		s := &memStore{objects: map[string][]byte{}}
		root := filepath.Join(fixtures, name, want.Root)
		for at := range want.OnDisk {
			rel, ok := strings.CutPrefix(at, want.Root+"/")
			if !ok || rel == want.Manifest {
				continue
			}
			b, err := os.ReadFile(filepath.Join(root, rel))
			if err != nil {
				t.Fatal(err)
			}
			s.objects[rel] = b
		}
		vs, m := readNewest(t, s)
		traces, err := Traces(context.Background(), s, vs, m)
		if err != nil {
			t.Fatal(name, err)
		}
		seen := false
		for _, tr := range traces {
			seen = seen || tr.Version == want.Version
		}
		if !seen {
			t.Errorf("%s: version %d left %v", name, want.Version, fmt.Sprint(traces))
		}
	}
}
