package lance_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/lance"
)

// objects is a Store over a map.
type objects map[string][]byte

func (o objects) Get(_ context.Context, name string, off, n int64) (io.ReadCloser, lance.Object, error) {
	b, ok := o[name]
	if !ok {
		return nil, lance.Object{}, fs.ErrNotExist
	}
	obj := lance.Object{Name: name, Size: int64(len(b))}
	if off < 0 {
		off = max(int64(len(b))+off, 0)
	}
	b = b[min(off, int64(len(b))):]
	if n >= 0 && n < int64(len(b)) {
		b = b[:n]
	}
	return io.NopCloser(strings.NewReader(string(b))), obj, nil
}

func (o objects) List(_ context.Context, prefix, delimiter string) iter.Seq2[lance.Object, error] {
	return func(yield func(lance.Object, error) bool) {
		seen := map[string]bool{}
		var names []string
		for name := range o {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				if i := strings.Index(rest, "/"); delimiter == "/" && i >= 0 {
					name = prefix + rest[:i+1]
				}
				if !seen[name] {
					seen[name] = true
					names = append(names, name)
				}
			}
		}
		slices.Sort(names)
		for _, name := range names {
			if !yield(lance.Object{Name: name, Size: int64(len(o[name])), Prefix: strings.HasSuffix(name, "/")}, nil) {
				return
			}
		}
	}
}

func TestShards(t *testing.T) {
	t.Parallel()
	old := lancetest.Shard{Name: "a", Version: 1, Generations: []lancetest.Generation{{Number: 1, Rows: 7}}}
	newer := lancetest.Shard{Name: "a", Version: 2, Generations: []lancetest.Generation{{Number: 2, Rows: 5}, {Number: 3, Rows: 6}}}
	sealed := lancetest.Shard{Name: "b", Version: 9, Status: 1}
	o := objects{}
	put := func(name string, data []byte) { o[name] = data }
	for _, s := range []lancetest.Shard{old, newer, sealed} {
		s.WriteTo(put)
	}
	o[newer.GenerationFolder(2)+"/_versions/x"] = []byte("x")
	got, err := lance.Shards(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b lance.Shard) int { return int(a.Version) - int(b.Version) })
	if len(got) != 2 || got[0].Version != 2 || got[0].Sealed || !got[1].Sealed || got[0].Hint != 2 {
		t.Fatalf("%+v", got)
	}
	base := func(folder string) string { return folder[strings.LastIndex(folder, "/")+1:] }
	want := []lance.Generation{{Number: 2, Path: base(newer.GenerationFolder(2)), PhysicalRows: 5}, {Number: 3, Path: base(newer.GenerationFolder(3)), PhysicalRows: 6}}
	if d := cmp.Diff(want, got[0].Generations); d != "" {
		t.Error(d)
	}
	if got[0].Root(want[0]) != newer.GenerationFolder(2) || !slices.Equal(got[0].Folders, []string{want[0].Path}) {
		t.Errorf("root %s, folders %v", got[0].Root(want[0]), got[0].Folders)
	}
	o[newer.ManifestName()] = []byte{0xff}
	var corrupt *lance.CorruptError
	got, err = lance.Shards(t.Context(), o)
	i := slices.IndexFunc(got, func(s lance.Shard) bool { return s.Err != nil })
	if err != nil || i < 0 || !errors.As(got[i].Err, &corrupt) || corrupt.Name != newer.ManifestName() {
		t.Errorf("a broken shard manifest: %+v %v", got, err)
	}
}

func TestReversedNames(t *testing.T) {
	t.Parallel()
	for _, v := range []uint64{0, 1, 2, 3, 1 << 40, 1<<64 - 1} {
		if got, ok := lance.ParseReversed(lance.Reversed(v, ".binpb"), ".binpb"); !ok || got != v {
			t.Errorf("%d came back as %d", v, got)
		}
	}
	if lance.Reversed(1, "") != "1"+strings.Repeat("0", 63) {
		t.Error("version 1 has its one first")
	}
	for _, bad := range []string{"", "1.binpb", strings.Repeat("2", 64) + ".binpb", strings.Repeat("0", 64)} {
		if _, ok := lance.ParseReversed(bad, ".binpb"); ok {
			t.Errorf("%q was read", bad)
		}
	}
}
