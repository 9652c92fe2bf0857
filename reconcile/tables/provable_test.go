package tables_test

import (
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// What no record can prove is told before a copy is looked for.
func TestOfWhatACopyMayBeProven(t *testing.T) {
	t.Parallel()
	const gen = "_mem_wal/0b/gen_1/"
	table := tables.New(reconcile.Target{Name: "t", Location: loc("t.lance")}, newWorld(t, memstore.Options{}).stores(), tables.Options{})
	for _, c := range []struct {
		name string
		ref  reconcile.Reference
		want bool
	}{
		{"a data file", reconcile.Reference{Role: reconcile.RoleData, Path: "data/a.lance", Size: 9}, true},
		{"a data file without a size", reconcile.Reference{Role: reconcile.RoleData, Path: "data/a.lance", PhysicalRows: 9}, true},
		{"an overlay", reconcile.Reference{Role: reconcile.RoleOverlay, Path: "data/a.lance", Size: 9}, true},
		{"an overlay without a size", reconcile.Reference{Role: reconcile.RoleOverlay, Path: "data/a.lance", PhysicalRows: 9}, false},
		{"a deletion file", reconcile.Reference{Role: reconcile.RoleDeletion, Path: "_deletions/a.arrow"}, true},
		{"an index file", reconcile.Reference{Role: reconcile.RoleIndex, Path: "_indices/u/index.idx", Size: 9}, true},
		{"an index file without a size", reconcile.Reference{Role: reconcile.RoleIndex, Path: "_indices/u/index.idx"}, false},
		{"an index file of another format", reconcile.Reference{Role: reconcile.RoleIndex, Path: "_indices/u/x.bin", Size: 9}, false},
		{"a blob sidecar", reconcile.Reference{Role: reconcile.RoleBlobSidecar, Path: "data/u/a.blob", Size: 9}, false},
		{"a blob sidecar with a checksum", reconcile.Reference{Role: reconcile.RoleBlobSidecar, Path: "data/u/a.blob", Checksum: "md5:00"}, true},
		{"row ids", reconcile.Reference{Role: reconcile.RoleRowIDs, Path: "_rowids/a", Size: 9}, false},
		{"a generation's data file", reconcile.Reference{Role: reconcile.RoleWALGeneration, Path: gen + "data/a.lance", Size: 9}, true},
		{"a generation's key index", reconcile.Reference{Role: reconcile.RoleWALGeneration, Path: gen + "_pk_index/page_data.lance"}, false},
		{"a generation's sidecar", reconcile.Reference{Role: reconcile.RoleWALGeneration, Path: gen + "data/u/a.blob", Size: 9}, false},
		{"a generation's manifest", reconcile.Reference{Role: reconcile.RoleWALGeneration, Path: gen + "_versions/1.manifest", Size: 9}, false},
		{"a generation of which nothing is left", reconcile.Reference{Role: reconcile.RoleWALGeneration, Path: "_mem_wal/0b/gen_1"}, false},
		{"a shard manifest", reconcile.Reference{Role: reconcile.RoleWALManifest, Path: "_mem_wal/0b/manifest/1.binpb", Size: 9}, false},
	} {
		if got := table.Provable(c.ref); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if c.want {
			continue
		}
		// Prove gives none either.
		if proof, err := table.Prove(t.Context(), c.ref, noBytes{c.ref.Size}); err == nil {
			t.Errorf("%s is proven by %q", c.name, proof)
		}
	}
}

// noBytes is a copy of so many zero bytes.
type noBytes struct{ n int64 }

func (c noBytes) ReadAt(b []byte, _ int64) (int, error) { clear(b); return len(b), nil }
func (c noBytes) Size() int64                           { return c.n }
func (c noBytes) Sum(string) string                     { return "" }
