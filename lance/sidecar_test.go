package lance

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

func TestSidecarsAreFoundInTheDescriptors(t *testing.T) {
	t.Parallel()
	// 16 rows of eight sizes; n % 5 = 1 is deleted, which hits some in sidecars.
	// 0.31.0 keeps all of them inline.
	for name, outside := range map[string]bool{"0.39.0/blob2-2.2-8": true, "0.31.0/blob2-2.2-8": false} {
		counts, rows, live := compareSidecars(t, filepath.Join(columnFixtures, name))
		if counts.Inline+counts.Empty+counts.Nulls+rows != 16 || outside != (rows > 0) || outside && live >= rows || counts.Files != 2 {
			t.Errorf("%s: %+v, %d rows, %d live", name, counts, rows, live)
		}
	}
}

// compareSidecars holds what is found for the table in dir/t.lance against the
// blobs that lie there: of all of them the last byte is known.
func compareSidecars(t *testing.T, dir string) (counts BlobCounts, rows, live int64) {
	t.Helper()
	s := dirStore(filepath.Join(dir, "t.lance"))
	_, m := readNewest(t, s)
	onDisk := map[string]int64{}
	err := filepath.WalkDir(string(s), func(p string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, ".blob") {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(string(s), p)
		onDisk[filepath.ToSlash(rel)] = info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for x, err := range m.Sidecars(t.Context(), s, ScanOptions{Blobs: &counts}) {
		if err != nil {
			t.Fatal(err)
		}
		found[x.Path] = x.MinSize
		if x.Dedicated != (x.Size > 0) || x.Dedicated && x.Size != x.MinSize || x.Column != "body" || !strings.HasPrefix(x.Path, strings.TrimSuffix(x.File, ".lance")+"/") {
			t.Errorf("%+v", x)
		}
		rows, live = rows+x.Rows, live+x.LiveRows
	}
	if d := cmp.Diff(onDisk, found); d != "" {
		t.Errorf("%s: %s", dir, d)
	}
	if counts.Packed+counts.Dedicated != rows {
		t.Errorf("%s: %+v, %d rows", dir, counts, rows)
	}
	return counts, rows, live
}

// What is wrong with one data file does not end the walk.
func TestSidecarsGoOnAfterALostFile(t *testing.T) {
	t.Parallel()
	s, m := loaded(t, "0.39.0/blob2-2.2-8")
	walk := func() (files []string, lost []string) {
		for x, err := range m.Sidecars(t.Context(), s, ScanOptions{}) {
			if bad, ok := errors.AsType[*SidecarError](err); ok {
				lost = append(lost, bad.File)
				if !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if !slices.Contains(files, x.File) {
				files = append(files, x.File)
			}
		}
		return files, lost
	}
	all, lost := walk()
	if len(all) != 2 || lost != nil {
		t.Fatal(all, lost)
	}
	for _, f := range allFiles(t, m) {
		if f.Kind == KindTransaction {
			continue
		}
		b := s.objects[f.Path]
		delete(s.objects, f.Path)
		files, lost := walk()
		if !slices.Equal(lost, []string{f.Path}) || f.Kind == KindDeletion && len(files) != 2 || f.Kind == KindData && len(files) != 1 {
			t.Errorf("without %s: %v, lost %v", f.Path, files, lost)
		}
		s.objects[f.Path] = b
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range m.Sidecars(ctx, s, ScanOptions{}) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestDescriptorsAddUpToSidecars(t *testing.T) {
	t.Parallel()
	type d = datafile.Descriptor
	of := Sidecar{FragmentID: 3, File: "data/01.lance", Column: "body"}
	for _, tc := range []struct {
		about string
		rows  []d
		want  []Sidecar
		bad   bool
	}{
		{"nothing outside", []d{{Null: true}, {Size: 9}, {Empty: true}, {Kind: 3, URI: "s3://x/y"}}, nil, false},
		{"packed values", []d{{Kind: 1, Position: 5, Size: 7, ID: 1}, {Kind: 1, Size: 5, ID: 1}},
			[]Sidecar{{Path: "data/01/10000000000000000000000000000000.blob", BlobID: 1, MinSize: 12, Rows: 2, LiveRows: 1}}, false},
		{"one of its own, and a large number", []d{{Kind: 2, Size: 7, ID: 6}, {Kind: 2, Size: 8, ID: 1 << 31}},
			[]Sidecar{{Path: "data/01/01100000000000000000000000000000.blob", BlobID: 6, Dedicated: true, Size: 7, MinSize: 7, Rows: 1, LiveRows: 1},
				{Path: "data/01/00000000000000000000000000000001.blob", BlobID: 1 << 31, Dedicated: true, Size: 8, MinSize: 8, Rows: 1}}, false},
		{"one of its own that two rows disagree about", []d{{Kind: 2, Size: 7, ID: 6}, {Kind: 2, Size: 8, ID: 6}},
			[]Sidecar{{Path: "data/01/01100000000000000000000000000000.blob", BlobID: 6, Dedicated: true, MinSize: 8, Rows: 2, LiveRows: 1}}, false},
		{"packed and of its own", []d{{Kind: 2, Size: 7, ID: 6}, {Kind: 1, Size: 8, ID: 6}}, nil, true},
		{"beyond any object", []d{{Kind: 1, Position: 1 << 63, ID: 6}}, nil, true},
		{"beyond any object in sum", []d{{Kind: 1, Position: 1<<63 - 1, Size: 1, ID: 6}}, nil, true},
		{"of an unknown kind", []d{{Kind: 4}}, nil, true},
	} {
		found := map[uint32]*Sidecar{}
		var counts BlobCounts
		var err error
		for i, desc := range tc.rows {
			err = errors.Join(err, of.count(found, &counts, desc, i == 0))
		}
		var got []Sidecar
		for _, id := range slices.Sorted(maps.Keys(found)) {
			got = append(got, *found[id])
		}
		for i := range tc.want {
			tc.want[i].FragmentID, tc.want[i].File, tc.want[i].Column = of.FragmentID, of.File, of.Column
		}
		if (err != nil) != tc.bad || !tc.bad && cmp.Diff(tc.want, got) != "" {
			t.Errorf("%s: %v, %s", tc.about, err, cmp.Diff(tc.want, got))
		}
		if total := counts.Nulls + counts.Inline + counts.Empty + counts.External + counts.Packed + counts.Dedicated; !tc.bad && total != int64(len(tc.rows)) {
			t.Errorf("%s: %+v", tc.about, counts)
		}
	}
}
