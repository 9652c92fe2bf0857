package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/testdata"
)

// demoTable is one table of the demo: which fixture it is a copy of, under which
// name it stands in the store, and what happens to it.
type demoTable struct {
	fixture, folder, target string
	damage                  *demoDamage // nil stays healthy
}

// demoDamage is what happens to the first object of a folder that match accepts.
type demoDamage struct {
	told    string
	folder  string
	match   func(name string) bool
	harm    func(file string) error
	role    reconcile.Role
	verdict reconcile.Verdict
}

func suffix(s string) func(string) bool {
	return func(name string) bool { return strings.HasSuffix(name, s) }
}

// halve cuts a file to half its size, as an upload that ended early leaves it.
func halve(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.Truncate(file, info.Size()/2)
}

// demoTables damage the kinds of objects that production lost, in tables of
// several releases and shapes.
var demoTables = []demoTable{
	{"0.39.0/plain", "exp-0001.rollout.lance", "exp-0001",
		&demoDamage{"a data file is gone", "data", suffix(".lance"), os.Remove, reconcile.RoleData, reconcile.Missing}},
	{"0.31.0/plain", "exp-0002.rollout.lance", "exp-0002",
		&demoDamage{"a deletion file is gone", "_deletions", suffix(".arrow"), os.Remove, reconcile.RoleDeletion, reconcile.Missing}},
	{"0.38.0/plain", "exp-0003.rollout.lance", "exp-0003",
		&demoDamage{"a data file is cut short", "data", suffix(".lance"), halve, reconcile.RoleData, reconcile.SizeMismatch}},
	{"0.39.0/scalar", "traces.generic.lance", "generic:traces",
		&demoDamage{"a file of a scalar index is gone", "_indices", suffix("page_lookup.lance"), os.Remove, reconcile.RoleIndex, reconcile.Missing}},
	{"0.22.3/vector", "checkpoints.datagen.lance", "datagen:checkpoints",
		&demoDamage{"a file of a vector index is gone", "_indices", suffix("index.idx"), os.Remove, reconcile.RoleIndex, reconcile.Missing}},
	{"0.39.0/multifile", "team/features.lance", "table:team/features",
		&demoDamage{"one of two files of a fragment is gone", "data", suffix(".lance"), os.Remove, reconcile.RoleData, reconcile.Missing}},
	{"0.4.20/plain", "exp-0004.rollout.lance", "exp-0004", nil},
	{"0.39.0/tag", "notes.lance", "table:notes", nil},
}

// plantedDamage is one damage that the check has to find.
type plantedDamage struct {
	target, told, path string
	role               reconcile.Role
	verdict            reconcile.Verdict
}

func healthyDemoTargets() []string {
	var out []string
	for _, t := range demoTables {
		if t.damage == nil {
			out = append(out, t.target)
		}
	}
	return out
}

// demoAge is how old the copies look. The tables were written long before; what
// is younger than --min-manifest-age would be pending instead of missing.
const demoAge = time.Hour

// plantDemo copies the demo's tables below stores and damages them.
func plantDemo(stores string) ([]plantedDamage, error) {
	var planted []plantedDamage
	for _, t := range demoTables {
		dst := filepath.Join(stores, filepath.FromSlash(t.folder))
		if err := copyDemoTable(path.Join("lance", t.fixture, "t.lance"), dst); err != nil {
			return nil, err
		}
		if t.damage == nil {
			continue
		}
		rel, err := t.damage.inflict(dst)
		if err != nil {
			return nil, fmt.Errorf("damage %s: %w", t.folder, err)
		}
		planted = append(planted, plantedDamage{t.target, t.damage.told, rel, t.damage.role, t.damage.verdict})
	}
	return planted, nil
}

// inflict harms the object and gives its path below the table.
func (d *demoDamage) inflict(table string) (string, error) {
	var files []string
	err := filepath.WalkDir(filepath.Join(table, d.folder), func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && d.match(p) {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("nothing to damage below %s", d.folder)
	}
	victim := slices.Min(files)
	if err := d.harm(victim); err != nil {
		return "", err
	}
	rel, err := filepath.Rel(table, victim)
	return filepath.ToSlash(rel), err
}

func copyDemoTable(src, dst string) error {
	old := time.Now().Add(-demoAge)
	return fs.WalkDir(testdata.Demo, src, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dst, filepath.FromSlash(strings.TrimPrefix(p, src)))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := testdata.Demo.ReadFile(p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
		return os.Chtimes(to, old, old)
	})
}
