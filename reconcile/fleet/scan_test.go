package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/lance"
)

// rowsOf reads the rollout registry below a local root.
func rowsOf(t *testing.T, root string) ([]string, error) {
	t.Helper()
	stores := factory.New(factory.Options{})
	loc, err := rootOf(stores, root)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for r, err := range scan(t.Context(), stores, loc, KindRollout) {
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%s %s %d", r.name, r.uri, r.createdAt))
	}
	return out, nil
}

func TestRegistriesOfTheRealLibrary(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"0.22.3", "0.39.0"} {
		root := t.TempDir()
		lancetest.CopyFixture(t, release+"/registry", root)
		if err := os.Rename(filepath.Join(root, "t.lance"), filepath.Join(root, registryFolder(KindRollout))); err != nil {
			t.Fatal(err)
		}
		got, err := rowsOf(t, root)
		if err != nil {
			t.Fatalf("%s: %v", release, err)
		}
		slices.Sort(got)
		want := []string{
			"exp-0000 s3://bucket/exp-0000.rollout.lance 1800000000000",
			"exp-0001 s3://bucket/exp-0001.rollout.lance 1800000000001",
			"exp-0002 s3://bucket/exp-0002.rollout.lance 1700000000002",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", release, d)
		}
	}
}

// A generated registry with deleted and doubled rows names the stores that are
// there, each once.
func TestDeletedAndDoubledRows(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := lancetest.Fleet{Stores: 500, Deleted: 15, Doubled: 5}
	f.Registry(root).WriteDir(t, filepath.Join(root, registryFolder(KindRollout)))
	found, err := DiscoverStore(t.Context(), factory.New(factory.Options{}), Store{URI: root, Mode: Registry}, slog.New(slog.DiscardHandler))
	if err != nil || len(found.Problems) > 0 {
		t.Fatal(err, found.Problems)
	}
	var names []string
	for _, target := range found.Targets {
		if target.Kind == KindSystem {
			continue
		}
		names = append(names, target.Name)
		if target.Registry != "ok" || !target.Row || target.Listed {
			t.Fatalf("%+v", target)
		}
	}
	var want []string
	for i := range f.Stores {
		want = append(want, f.StoreName(i))
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestWhatIsNoRegistryIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	whole := lancetest.Fleet{Stores: 3, Deleted: 1}.Registry("/r")
	data := whole.DataName(0, 0)
	var deletion string
	for name := range whole.Objects() {
		if ok, _ := filepath.Match("_deletions/*", name); ok {
			deletion = name
		}
	}
	for _, c := range []struct {
		name   string
		b      *lancetest.Builder
		damage []lancetest.Damage
		want   error
		bad    bool
	}{
		{"no manifest", whole, []lancetest.Damage{lancetest.Missing(whole.ManifestName())}, errBadRegistry, true},
		{"a lost data file", whole, []lancetest.Damage{lancetest.Missing(data)}, fs.ErrNotExist, true},
		{"a lost deletion file", whole, []lancetest.Damage{lancetest.Missing(deletion)}, fs.ErrNotExist, true},
		{"a data file that was cut", whole, []lancetest.Damage{lancetest.Truncate(data, 100)}, nil, true},
		{"a manifest that was cut", whole, []lancetest.Damage{lancetest.Truncate(whole.ManifestName(), 30)}, nil, true},
		{"unknown reader flags", lancetest.New().Fragment(1).Flags(1<<40, 0), nil, nil, true},
		{"another table", lancetest.New().Columns("x").Fragment(1), nil, lance.ErrNoColumn, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			c.b.WriteDir(t, filepath.Join(root, registryFolder(KindRollout)), c.damage...)
			rows, err := rowsOf(t, root)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || isBad(err) != c.bad {
				t.Errorf("rows %v, error %v", rows, err)
			}
		})
	}
	if _, err := rowsOf(t, t.TempDir()); !errors.Is(err, errNoRegistry) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := rowsOf(t, filepath.Join(t.TempDir(), "nowhere")); !errors.Is(err, objstore.ErrNoSuchBucket) {
		t.Errorf("no root: %v", err)
	}
	if isBad(context.DeadlineExceeded) || isBad(&objstore.Error{Status: 503, Err: objstore.ErrThrottled}) {
		t.Error("what could not be read is taken for what is bad")
	}
}
