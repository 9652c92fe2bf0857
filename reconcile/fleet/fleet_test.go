package fleet

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
)

func TestName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rel, name, kind string }{
		{"x.rollout.lance", "x", KindRollout},
		{"a.rollout.rollout.lance", "a.rollout", KindRollout},
		{"x.generic.lance/", "generic:x", KindGeneric},
		{"x.datagen.lance", "datagen:x", KindDatagen},
		{"x.lance", "table:x", KindTable},
		{"team/x.rollout.lance", "table:team/x.rollout", KindTable},
		{"_registry.rollout.lance", "system:_registry.rollout", KindSystem},
		{"_stats.rollout.lance", "system:_stats.rollout", KindSystem},
		{"_own.rollout.lance", "_own", KindRollout},
		{".rollout.lance", "table:.rollout", KindTable},
		{"__manifest", "table:__manifest/", KindTable},
	} {
		if name, kind := Name(c.rel); name != c.name || kind != c.kind {
			t.Errorf("Name(%q) = %q, %q; want %q, %q", c.rel, name, kind, c.name, c.kind)
		}
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	target := reconcile.Target{Name: "table:team/x", Store: "s3://b/r"}
	for _, c := range []struct {
		name   string
		f      Filter
		chosen bool
	}{
		{"no pattern chooses everything", Filter{}, true},
		{"the exact name", Filter{Include: []string{"table:team/x"}}, true},
		{"a star crosses slashes", Filter{Include: []string{"table:*"}}, true},
		{"another name", Filter{Include: []string{"x"}}, false},
		{"the store in front", Filter{Include: []string{"s3://b/r/table:team/x"}}, true},
		{"an exclusion wins", Filter{Include: []string{"*"}, Exclude: []string{"*x"}}, false},
		{"one of several", Filter{Include: []string{"a", "table:team/?"}}, true},
	} {
		if got := c.f.Chosen(target); got != c.chosen {
			t.Errorf("%s: chosen = %v", c.name, got)
		}
	}
	if err := (Filter{Exclude: []string{"[a"}}).Validate(); !errors.Is(err, ErrBadGlob) {
		t.Errorf("a broken pattern: %v", err)
	}
}

// Links of folders: a loop ends, and a second name of a table is no second table.
func TestLinksOfFolders(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"a/x.lance/_versions", "z.lance/_versions"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "1.manifest"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"loop": ".", "a/up": "..", "b.lance": "z.lance"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	stores := factory.New(factory.Options{})
	found, err := Discover(t.Context(), stores, []string{root, root + "/a"}, Filter{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, target := range found.Targets {
		names = append(names, target.Name)
	}
	if len(names) != 2 || !slices.Contains(names, "table:a/x") {
		t.Errorf("targets %v", names)
	}
}
