package lance

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseManifestName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		about, name string
		version     uint64
		naming      Naming
		kind        NameKind
	}{
		{"V1 is the plain number", "_versions/7.manifest", 7, V1, ManifestFile},
		{"the folder may be left out", "12.manifest", 12, V1, ManifestFile},
		{"29 characters are V2, counted from the top", "_versions/18446744073709551614.manifest", 1, V2, ManifestFile},
		{"V2 keeps its leading zeros", "00000000000000000000.manifest", math.MaxUint64, V2, ManifestFile},
		{"text between the number and the end does not matter to the library", "5.copy.manifest", 5, V1, ManifestFile},
		{"d is a detached version", "_versions/d9223372036854775809.manifest", 0, 0, DetachedManifest},
		{"a staged manifest ends in its uuid", "7.manifest-6e47c8f0-3c0e-4b3f-9d0e-000000000001", 0, 0, StagedManifest},
		{"a staged V2 manifest too", "18446744073709551614.manifest-6e47c8f03c0e4b3f9d0e000000000001", 0, 0, StagedManifest},
		{"a local writer's staging name is passed over", "_versions/7.manifest#1", 0, 0, OtherName},
		{"a temporary dot file is passed over", "_versions/.tmpAb12.manifest", 0, 0, OtherName},
		{"the hint is no manifest", "_versions/latest_version_hint.json", 0, 0, OtherName},
		{"a sign is no number", "_versions/+7.manifest", 0, 0, OtherName},
		{"a number beyond 64 bits is none", "_versions/99999999999999999999.manifest", 0, 0, OtherName},
		{"a word is no number", "_versions/x.manifest", 0, 0, OtherName},
		{"manifest without a dot", "_versions/7manifest", 0, 0, OtherName},
		{"a deeper name is not of this folder", "_versions/old/7.manifest", 0, 0, OtherName},
		{"not every suffix is a uuid", "7.manifest-backup", 0, 0, OtherName},
		{"nothing", "", 0, 0, OtherName},
	} {
		v, n, k := ParseManifestName(tc.name)
		if v != tc.version || n != tc.naming || k != tc.kind {
			t.Errorf("%s: %q = %d, %v, %d; want %d, %v, %d", tc.about, tc.name, v, n, k, tc.version, tc.naming, tc.kind)
		}
	}
}

func TestManifestNamesReadBackAsWhatTheyNamed(t *testing.T) {
	t.Parallel()
	for _, v := range []uint64{0, 1, 9, 10, 1 << 40, math.MaxInt64} {
		for _, n := range []Naming{V1, V2} {
			if got, naming, kind := ParseManifestName(ManifestName(v, n)); got != v || naming != n || kind != ManifestFile {
				t.Errorf("%s = %d, %v, %d; want %d, %v", ManifestName(v, n), got, naming, kind, v, n)
			}
		}
	}
	if got := ManifestName(1, V2); got != "_versions/18446744073709551614.manifest" {
		t.Errorf("version 1 in V2 = %s", got)
	}
}

func store(names ...string) *memStore {
	s := &memStore{objects: map[string][]byte{}}
	for _, n := range names {
		s.objects[n] = []byte("x")
	}
	return s
}

func TestListVersions(t *testing.T) {
	t.Parallel()
	broken := errors.New("no answer")
	staged := "_versions/4.manifest-6e47c8f0-3c0e-4b3f-9d0e-000000000001"
	for _, tc := range []struct {
		about    string
		names    []string
		listErr  error
		err      error
		versions []uint64
		naming   Naming
		detached []string
		staged   []string
		others   int
	}{
		{about: "V1 names sort by number, not by text", names: []string{"_versions/9.manifest", "_versions/10.manifest", "_versions/2.manifest"},
			versions: []uint64{10, 9, 2}, naming: V1},
		{about: "the newest of V2 is the highest version, whatever the store's order", names: []string{ManifestName(3, V2), ManifestName(12, V2)},
			versions: []uint64{12, 3}, naming: V2},
		{about: "what is no manifest is counted and does not count", names: []string{"_versions/3.manifest", "_versions/latest_version_hint.json",
			"_versions/4.manifest#1", "_versions/.tmpX", "_versions/sub/5.manifest", staged, "_versions/d9223372036854775809.manifest"},
			versions: []uint64{3}, naming: V1, others: 4, staged: []string{staged}, detached: []string{"_versions/d9223372036854775809.manifest"}},
		{about: "a detached version beside V1 names mixes nothing", names: []string{"_versions/1.manifest", "_versions/d9223372036854775809.manifest"},
			versions: []uint64{1}, naming: V1, detached: []string{"_versions/d9223372036854775809.manifest"}},
		{about: "two schemes in one folder are refused, as the library does", names: []string{"_versions/1.manifest", ManifestName(2, V2)}, err: ErrMixedNaming},
		{about: "an empty folder has no versions", names: []string{"data/x.lance"}, err: ErrNoVersions},
		{about: "only a staged manifest is no version", names: []string{staged}, err: ErrNoVersions},
		{about: "a folder that is not there has no versions", listErr: fs.ErrNotExist, err: ErrNoVersions},
		{about: "a listing that breaks off is no answer", names: []string{"_versions/1.manifest"}, listErr: broken, err: broken},
		{about: "nor is one that ends with absence after it told something", names: []string{"_versions/1.manifest"}, listErr: fs.ErrNotExist, err: fs.ErrNotExist},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			s := store(tc.names...)
			if tc.listErr != nil {
				s.listErr = map[string]error{"_versions/": tc.listErr}
			}
			vs, err := ListVersions(context.Background(), s)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if tc.err != nil {
				if whole := errors.Is(err, ErrNoVersions) || errors.Is(err, ErrMixedNaming); whole != (vs != nil) {
					t.Fatalf("set %v with error %v", vs, err)
				}
				return
			}
			var versions []uint64
			for _, e := range vs.Entries {
				versions = append(versions, e.Version)
			}
			got := VersionSet{Naming: vs.Naming, Detached: vs.Detached, Staged: vs.Staged, Others: vs.Others}
			want := VersionSet{Naming: tc.naming, Detached: tc.detached, Staged: tc.staged, Others: tc.others}
			if d := cmp.Diff(want, got, cmp.AllowUnexported(VersionSet{}), cmp.FilterPath(func(p cmp.Path) bool {
				return p.Last().String() == ".hint"
			}, cmp.Ignore())); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tc.versions, versions); d != "" {
				t.Error(d)
			}
			if vs.Newest().Version != tc.versions[0] {
				t.Errorf("newest %d", vs.Newest().Version)
			}
		})
	}
}

func TestOfTwoNamesForOneVersionTheUsualOneCounts(t *testing.T) {
	t.Parallel()
	vs, err := ListVersions(context.Background(), store("_versions/12.bak.manifest", "_versions/12.manifest", "_versions/012.manifest"))
	if err != nil {
		t.Fatal(err)
	}
	if vs.Newest().Name != "_versions/12.manifest" || len(vs.Entries) != 3 {
		t.Errorf("newest %q of %d", vs.Newest().Name, len(vs.Entries))
	}
}
