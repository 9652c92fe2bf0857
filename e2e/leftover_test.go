package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

// What a killed write left behind on a disk is no object anywhere: beside manifests, data,
// indices and datasets, and in folders of its own.
func TestUnfinishedWritesOnADiskAreNoObjects(t *testing.T) {
	t.Parallel()
	stores := demoStores(t)
	look := func() document {
		t.Helper()
		return run(t, nil, "check", stores, "--versions", "all", "--depth", "footer", "--confirm-after", "1s", "--min-manifest-age", "0s", "--output", "json").exit(reconcile.ExitDivergence).pass()
	}
	was := look()
	var folders []string
	if err := filepath.WalkDir(stores, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders = append(folders, p)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(folders, filepath.Join(stores, "left.lance"), filepath.Join(stores, "left.lance", "_versions")) {
		if err := os.MkdirAll(f, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f, ".reconcile-tmp-ABC"), []byte("half an object"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := look()
	if d := cmp.Diff(was.brief(), now.brief()); d != "" {
		t.Errorf("findings (-before +with left-overs):\n%s", d)
	}
	if d := cmp.Diff(was.Targets, now.Targets); d != "" {
		t.Errorf("targets (-before +with left-overs):\n%s", d)
	}
	if was.Coverage.References != now.Coverage.References || was.Coverage.Checked != now.Coverage.Checked {
		t.Errorf("coverage %+v, was %+v", now.Coverage, was.Coverage)
	}
}
