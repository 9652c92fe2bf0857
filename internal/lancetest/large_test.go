package lancetest_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

func TestALargeTableIsWholeOnDisk(t *testing.T) {
	t.Parallel()
	large := lancetest.Large{Fragments: 2500, Rows: 10, DeletionEvery: 3, FileSize: 1 << 20}
	root := filepath.Join(t.TempDir(), "t.lance")
	if err := large.WriteDir(root); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{large.ManifestName(): int64(len(large.Manifest()))}
	for name, size := range large.Files() {
		want[name] = size
	}
	if len(want) != 1+2500+834 {
		t.Errorf("%d files, want %d", len(want), 1+2500+834)
	}
	if diff := cmp.Diff(want, onDisk(t, root)); diff != "" {
		t.Errorf("files (-want +disk):\n%s", diff)
	}
	inMemory := map[string]int64{}
	large.WriteTo(func(name string, data []byte) { inMemory[name] = int64(len(data)) })
	if diff := cmp.Diff(want, inMemory); diff != "" {
		t.Errorf("files (-want +memory):\n%s", diff)
	}
	if got := lancetest.Probe(t, root)[0]; got.Error != "" || got.Rows != 2500*10-834 || got.Scanned != got.Rows {
		t.Errorf("the library counts %d rows and reads %d, error %q; want %d", got.Rows, got.Scanned, got.Error, 2500*10-834)
	}
}

func BenchmarkLargeTableOf100000Fragments(b *testing.B) {
	for b.Loop() {
		if err := lancetest.SparseTable(filepath.Join(b.TempDir(), "t.lance"), 100_000); err != nil {
			b.Fatal(err)
		}
	}
}
