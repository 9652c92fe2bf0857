package lancetest

import (
	"fmt"
	"os"
	"path/filepath"
)

// Fleet is a generated store root: rollout stores of a few small fragments each, and
// the registry that names them.
type Fleet struct {
	// Stores is their number, named as by StoreName.
	Stores int
	// Fragments of each store, with ten rows in each; 0 means 3.
	Fragments int
	// Deleted rows of the registry name stores that are not there; of the Doubled ones
	// a later row of the same name follows.
	Deleted, Doubled int
}

// StoreName is the name of the store i.
func (f Fleet) StoreName(i int) string { return fmt.Sprintf("exp-%06d", i) }

// Store is the table of every store.
func (f Fleet) Store() *Builder {
	b := New()
	fragments := f.Fragments
	if fragments == 0 {
		fragments = 3
	}
	for range fragments {
		b.Fragment(10)
	}
	return b
}

// Registry is the registry of the fleet below a root: the deleted rows first, each
// store's row, and the second rows of the doubled ones.
func (f Fleet) Registry(root string) *Builder {
	var names, uris []string
	var created []int64
	row := func(name string, at int) {
		names, uris = append(names, name), append(uris, root+"/"+name+".rollout.lance")
		created = append(created, 1_790_000_000_000+int64(at))
	}
	for i := range f.Deleted {
		row(fmt.Sprintf("gone-%06d", i), i)
	}
	for i := range f.Stores {
		row(f.StoreName(i), f.Deleted+i)
	}
	for i := range f.Doubled {
		row(f.StoreName(i), f.Deleted+f.Stores+i)
	}
	b := New().Version(2).Values(Strings("name", names...), Strings("uri", uris...), Int64s("created_at", created...))
	if f.Deleted > 0 {
		b.Delete(0, uint64(f.Deleted))
	}
	return b
}

// WriteDir writes the fleet below a local folder.
func (f Fleet) WriteDir(root string) error {
	if err := writeObjects(filepath.Join(root, "_registry.rollout.lance"), f.Registry(root).Objects()); err != nil {
		return err
	}
	objects := f.Store().Objects()
	for i := range f.Stores {
		if err := writeObjects(filepath.Join(root, f.StoreName(i)+".rollout.lance"), objects); err != nil {
			return err
		}
	}
	return nil
}

func writeObjects(dir string, objects map[string][]byte) error {
	made := map[string]bool{}
	for name, data := range objects {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if folder := filepath.Dir(file); !made[folder] {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return fmt.Errorf("write fleet: %w", err)
			}
			made[folder] = true
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return fmt.Errorf("write fleet: %w", err)
		}
	}
	return nil
}
