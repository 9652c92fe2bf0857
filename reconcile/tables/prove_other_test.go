package tables_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/lance/datafile"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// shape is what a data file holds: format, rows, ids and types of fields.
func shape(t *testing.T, b []byte) string {
	f, err := datafile.Open(t.Context(), inMemory(b), int64(len(b)))
	if errors.Is(err, datafile.ErrLegacy) {
		return "0.1"
	}
	if err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("2.%d %d", f.Minor, f.Rows)
	var walk func([]*datafile.Field)
	walk = func(fields []*datafile.Field) {
		for _, f := range fields {
			out += fmt.Sprintf(" %d:%s", f.ID, f.LogicalType)
			walk(f.Children)
		}
	}
	walk(f.Fields())
	return out
}

func TestTheFileOfAnotherTableIsNotTaken(t *testing.T) {
	t.Parallel()
	type file struct {
		of    opened
		ref   reconcile.Reference
		b     []byte
		shape string
	}
	var files []file
	for name := range lancetest.Fixtures(t) {
		if strings.HasSuffix(name, "/tombstone") {
			continue // of columns that nothing reads any more nothing is recorded
		}
		o := openRoot(t, lancetest.CopyFixture(t, name, t.TempDir()), reconcile.VersionsCurrent)
		for _, ref := range o.refs {
			if ref.Role == reconcile.RoleData && !ref.Harmless {
				b := bytesOf(t, ref)
				files = append(files, file{o, ref, b, shape(t, b)})
			}
		}
	}
	sameSize, alike := 0, 0
	for i, a := range files {
		for k, b := range files {
			if i == k || bytes.Equal(a.b, b.b) {
				continue
			}
			if len(a.b) != len(b.b) && (k+i)%7 > 0 {
				continue // enough of those
			}
			got, err := a.of.verdict(t.Context(), a.ref, b.b)
			switch {
			case len(a.b) != len(b.b) && a.ref.Size > 0, a.shape != b.shape:
				if len(a.b) == len(b.b) {
					sameSize++
				}
				if got != "refused" {
					t.Errorf("%s takes %s (%s): %s, %v", a.ref.Path, b.ref.Path, b.shape, got, err)
				}
			case got == "proven":
				alike++ // the same columns, rows and size: only values differ
			}
		}
	}
	t.Logf("%d data files; %d pairs of one size and another shape were refused, %d of one shape were not told apart", len(files), sameSize, alike)
	if sameSize == 0 {
		t.Error("no two files of one size")
	}
}

// built opens a built table in memory.
func built(t *testing.T, b *lancetest.Builder) (*world, opened) {
	t.Helper()
	w := newWorld(t, memstore.Options{})
	w.write("t.lance", b)
	o := opened{Table: tables.New(reconcile.Target{Name: "t", Location: loc("t.lance")}, w.stores(), tables.Options{})}
	if _, err := o.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for ref, err := range o.References(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		o.refs = append(o.refs, ref)
	}
	return w, o
}

func (o opened) ref(t *testing.T, path string) reconcile.Reference {
	t.Helper()
	for _, ref := range o.refs {
		if ref.Path == path {
			return ref
		}
	}
	t.Fatalf("%s is not named", path)
	return reconcile.Reference{}
}

func TestTheFileOfAnotherFragmentIsNotTaken(t *testing.T) {
	t.Parallel()
	b := lancetest.New().Columns("a", "b").Fragment(10).Fragment(11).Fragment(10).Delete(0, 3).Delete(2, 4).DeleteBitmap(1, 11)
	_, o := built(t, b)
	objects := b.Objects()
	for _, c := range []struct{ of, is, want string }{
		{b.DataName(0, 0), b.DataName(0, 0), "proven"},
		{b.DataName(0, 0), b.DataName(1, 0), "refused"},
		{b.DataName(1, 0), b.DataName(2, 0), "refused"},
		{b.DeletionName(0), b.DeletionName(0), "proven"},
		{b.DeletionName(0), b.DeletionName(2), "refused"},
		{b.DeletionName(1), b.DeletionName(1), "proven"},
		{b.DeletionName(1), b.DeletionName(0), "refused"},
		{b.DeletionName(0), b.DataName(0, 0), "refused"},
		{b.DataName(0, 0), b.DeletionName(0), "refused"},
	} {
		if got, err := o.verdict(t.Context(), o.ref(t, c.of), objects[c.is]); got != c.want {
			t.Errorf("%s for %s: %s (%v), want %s", c.is, c.of, got, err, c.want)
		}
	}
	// As many rows, and one that the fragment does not have.
	got, err := o.verdict(t.Context(), o.ref(t, b.DeletionName(0)), lancetest.DeletionArrow([]uint32{1, 2, 10}))
	if got != "refused" || !strings.Contains(err.Error(), "row 10 of 10") {
		t.Errorf("a deletion beyond the fragment's rows: %s (%v)", got, err)
	}
	if got, err := o.verdict(t.Context(), o.ref(t, b.DeletionName(0)), lancetest.DeletionArrow([]uint32{1, 2, 2})); got != "refused" {
		t.Errorf("a row deleted twice: %s (%v)", got, err)
	}
}

func TestWhatIsNotRecordedProvesNothing(t *testing.T) {
	t.Parallel()
	b := lancetest.New().Fragment(10, lancetest.File{Path: "unsized.lance", Size: lancetest.UnknownSize}).Fragment(10, lancetest.File{Path: "sized.lance"}).
		Delete(0, 3).DeletionCount(0, 0).ExternalRowIDs(1, "data/rows.bin", 20)
	_, o := built(t, b)
	objects := b.Objects()
	for path, want := range map[string]string{"data/unsized.lance": "footer, rows, fields, pages", "data/sized.lance": "size, footer, rows, fields, pages", b.DeletionName(0): "offsets"} {
		proof, err := o.Prove(t.Context(), o.ref(t, path), staged(objects[path]))
		if err != nil || proof != want {
			t.Errorf("%s: proof %q, %v, want %q", path, proof, err, want)
		}
	}
	ref := o.ref(t, "data/rows.bin")
	if got, err := o.verdict(t.Context(), ref, make([]byte, 20)); got != "unproven" {
		t.Errorf("row ids: %s (%v)", got, err)
	}
	if got, err := o.verdict(t.Context(), ref, make([]byte, 19)); got != "refused" {
		t.Errorf("row ids that are too short: %s (%v)", got, err)
	}
	ref.Path, ref.Location = "data/unsized2.lance", loc("t.lance/data/unsized2.lance")
	ref.Role = reconcile.RoleData
	if got, err := o.verdict(t.Context(), ref, objects["data/unsized.lance"]); got != "unproven" {
		t.Errorf("a file that no version names: %s (%v)", got, err)
	}
}

func TestARecordedChecksumDecidesAlone(t *testing.T) {
	t.Parallel()
	b := lancetest.New().Fragment(10)
	_, o := built(t, b)
	name := b.DataName(0, 0)
	ref, whole := o.ref(t, name), b.Objects()[name]
	ref.Checksum = staged(whole).Sum("sha256")
	if proof, err := o.Prove(t.Context(), ref, staged(whole)); proof != "checksum sha256" || err != nil {
		t.Errorf("proof %q, %v", proof, err)
	}
	ref.Checksum = strings.ToUpper(ref.Checksum[len("sha256:"):])
	ref.Checksum = "sha256:" + ref.Checksum
	if proof, err := o.Prove(t.Context(), ref, staged(whole)); proof != "checksum sha256" || err != nil {
		t.Errorf("in capitals: proof %q, %v", proof, err)
	}
	ref.Checksum = staged("else").Sum("sha256")
	if got, err := o.verdict(t.Context(), ref, whole); got != "refused" {
		t.Errorf("of another file: %s (%v)", got, err)
	}
	ref.Checksum = "blake3:00"
	if proof, err := o.Prove(t.Context(), ref, staged(whole)); !strings.HasPrefix(proof, "size") || err != nil {
		t.Errorf("of an algorithm that nobody here knows: proof %q, %v", proof, err)
	}
}

// broken is a copy whose staging fails.
type broken struct{ staged }

var errStaging = errors.New("input/output error")

func (broken) ReadAt([]byte, int64) (int, error) { return 0, errStaging }

func TestACopyThatCannotBeJudgedIsNotHeldAgainstItsPeer(t *testing.T) {
	t.Parallel()
	root := lancetest.CopyFixture(t, "0.39.0/compacted", t.TempDir())
	o := openRoot(t, root, reconcile.VersionsAll)
	ref := o.refs[len(o.refs)-1]
	for _, r := range o.refs {
		if r.Role == reconcile.RoleData {
			ref = r
		}
	}
	whole := bytesOf(t, ref)
	if _, err := o.Prove(t.Context(), ref, broken{staged(whole)}); !errors.Is(err, reconcile.ErrUnproven) || !errors.Is(err, errStaging) {
		t.Errorf("staging fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Prove(ctx, ref, staged(whole)); !errors.Is(err, reconcile.ErrUnproven) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	o = openRoot(t, root, reconcile.VersionsAll) // which has read no manifest for a proof
	if err := os.RemoveAll(root + "/_versions"); err != nil {
		t.Fatal(err)
	}
	// The newest manifest is at hand; the others cannot be read any more.
	unread := 0
	for _, r := range o.refs {
		if r.Role != reconcile.RoleData {
			continue
		}
		got, err := o.verdict(t.Context(), r, bytesOf(t, r))
		if got == "unproven" {
			unread++
		} else if got != "proven" {
			t.Errorf("%s, whose manifest is gone: %s (%v)", r.Path, got, err)
		}
	}
	if unread == 0 {
		t.Error("no file is named by an older version only")
	}
	unopened := tables.New(o.Target(), nil, tables.Options{})
	if _, err := unopened.Prove(t.Context(), ref, staged(whole)); !errors.Is(err, reconcile.ErrUnproven) {
		t.Errorf("a table that was not opened: %v", err)
	}
}

func TestMetadataIsNeverTaken(t *testing.T) {
	t.Parallel()
	o := openRoot(t, lancetest.CopyFixture(t, "0.39.0/plain", t.TempDir()), reconcile.VersionsAll)
	for _, role := range []reconcile.Role{reconcile.RoleManifest, reconcile.RoleWALManifest, reconcile.RoleTransaction} {
		ref := reconcile.Reference{Role: role, Path: "_versions/1.manifest"}
		if got, err := o.verdict(t.Context(), ref, []byte("x")); got != "refused" {
			t.Errorf("%s: %s (%v)", role, got, err)
		}
	}
	for _, path := range []string{"_mem_wal/s/g/_versions/1.manifest", "_mem_wal/s/g/_transactions/0-a.txn", "_mem_wal/s/wal/1.arrow", "_mem_wal/s/g"} {
		ref := reconcile.Reference{Role: reconcile.RoleWALGeneration, Path: path}
		if got, err := o.verdict(t.Context(), ref, []byte("x")); got != "refused" {
			t.Errorf("%s: %s (%v)", path, got, err)
		}
	}
}

func TestFilesOfPendingGenerationsAreProvenByTheirOwnManifest(t *testing.T) {
	t.Parallel()
	o := openRoot(t, lancetest.CopyFixture(t, "0.39.0/memwal", t.TempDir()), reconcile.VersionsCurrent)
	n := 0
	for _, ref := range o.refs {
		if ref.Role != reconcile.RoleWALGeneration || !strings.Contains(ref.Path, "/data/") {
			continue
		}
		n++
		proof, err := o.Prove(t.Context(), ref, staged(bytesOf(t, ref)))
		if err != nil || !strings.Contains(proof, "rows") {
			t.Errorf("%s: %q, %v", ref.Path, proof, err)
		}
	}
	if n == 0 {
		t.Error("the fixture has no pending generation")
	}
}

func TestManyCopiesAreProvenAtOnce(t *testing.T) {
	t.Parallel()
	o := openRoot(t, lancetest.CopyFixture(t, "0.39.0/branchbranch", t.TempDir()), reconcile.VersionsAll)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for _, ref := range o.refs {
				b, err := os.ReadFile(ref.Location.Key)
				if err != nil {
					continue
				}
				if got, err := o.verdict(t.Context(), ref, b); got != proofOf(ref) {
					t.Errorf("%s: %s (%v)", ref.Path, got, err)
				}
			}
		})
	}
	work.Wait()
}
