package tables_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// staged is a copy in memory.
type staged []byte

func (s staged) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(s).ReadAt(p, off) }
func (s staged) Size() int64                             { return int64(len(s)) }
func (s staged) Sum(alg string) string {
	if alg != "sha256" {
		return ""
	}
	sum := sha256.Sum256(s)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// opened is a table with what it names.
type opened struct {
	*tables.Table
	refs []reconcile.Reference
}

func openRoot(t testing.TB, root string, versions reconcile.Versions) opened {
	t.Helper()
	stores := factory.New(factory.Options{})
	t.Cleanup(stores.Close)
	loc, err := stores.Locate(root)
	if err != nil {
		t.Fatal(err)
	}
	o := opened{Table: tables.New(reconcile.Target{Name: "x", Location: loc}, stores, tables.Options{Versions: versions})}
	if _, err := o.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for ref, err := range o.References(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		o.refs = append(o.refs, ref)
	}
	return o
}

// bytesOf are the bytes of a reference, wherever they lie.
func bytesOf(t testing.TB, ref reconcile.Reference) []byte {
	t.Helper()
	places := []objstore.Location{ref.Location}
	for _, alt := range ref.Alternates {
		places = append(places, alt.Location)
	}
	for _, p := range places {
		b, err := os.ReadFile(p.Key)
		if err == nil {
			return b
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Fatalf("%s is nowhere", ref.Path)
	return nil
}

// verdict is what came of a proof, in one word.
func (o opened) verdict(ctx context.Context, ref reconcile.Reference, b []byte) (word string, err error) {
	proof, err := o.Prove(ctx, ref, staged(b))
	switch {
	case err == nil && proof != "":
		return "proven", nil
	case errors.Is(err, reconcile.ErrUnproven):
		return "unproven", err
	case err == nil:
		return "proven by nothing", nil
	}
	return "refused", err
}

// proofOf is what can be said at best of a whole copy of a reference.
func proofOf(ref reconcile.Reference) string {
	dir, ext := path.Dir(ref.Path), path.Ext(ref.Path)
	switch {
	case strings.HasSuffix(dir, "_versions"), strings.HasSuffix(dir, "_transactions"), strings.HasSuffix(dir, "/wal"), strings.HasSuffix(dir, "/manifest"):
		return "refused"
	case ext == ".blob":
		return "unproven"
	case strings.Contains(ref.Path, "_indices/"), strings.HasSuffix(dir, "_pk_index"), ref.Role == reconcile.RoleIndex:
		if ref.Size == 0 || ext != ".lance" && ext != ".idx" {
			return "unproven"
		}
	}
	return "proven"
}

// eachTable calls fn with every fixture, opened at all of its versions.
func eachTable(t *testing.T, fn func(t *testing.T, o opened)) {
	for name := range lancetest.Fixtures(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, openRoot(t, lancetest.CopyFixture(t, name, t.TempDir()), reconcile.VersionsAll))
		})
	}
}

func TestAWholeCopyIsProvenByAllThatIsRecorded(t *testing.T) {
	t.Parallel()
	eachTable(t, func(t *testing.T, o opened) {
		for _, ref := range o.refs {
			b := bytesOf(t, ref)
			proof, err := o.Prove(t.Context(), ref, staged(b))
			got, _ := o.verdict(t.Context(), ref, b)
			if want := proofOf(ref); got != want {
				t.Errorf("%s %s is %s (%v), want %s", ref.Role, ref.Path, got, err, want)
				continue
			}
			if ref.Role == reconcile.RoleData && ref.Size > 0 && proof != "size, footer, rows, fields, pages" {
				t.Errorf("%s: proof %q", ref.Path, proof)
			}
		}
	})
}

func TestACopyCutShortOrContinuedIsNotTaken(t *testing.T) {
	t.Parallel()
	eachTable(t, func(t *testing.T, o opened) {
		for _, ref := range o.refs {
			b := bytesOf(t, ref)
			spoiled := map[string][]byte{
				"empty": nil, "half": b[:len(b)/2], "one byte less": b[:len(b)-1], "without its footer": b[:max(0, len(b)-40)],
				"a byte more": append(slices.Clone(b), 0), "twice": append(slices.Clone(b), b...), "begun later": b[1:],
				"an error page": []byte("<html><body>404 Not Found</body></html>"),
			}
			for how, s := range spoiled {
				got, err := o.verdict(t.Context(), ref, s)
				// What follows a whole file disproves it only where a size is recorded.
				atEnd := how == "twice" || how == "a byte more"
				if got != "refused" && (ref.Size > 0 || proofOf(ref) == "proven" && !atEnd) || got == "proven" {
					t.Errorf("%s %s, %s: %s (%v)", ref.Role, ref.Path, how, got, err)
				}
			}
		}
	})
}

// inMemory reads a file for package datafile.
type inMemory []byte

func (m inMemory) ReadAt(_ context.Context, off, n int64) ([]byte, error) {
	return m[off : off+n], nil
}
