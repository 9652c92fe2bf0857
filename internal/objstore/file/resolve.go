package file

import (
	"os"
	"path/filepath"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Resolve follows the symbolic links of the longest part of a file's path that
// exists, so that one folder has one name. What cannot be followed stays as it
// stands; opening it will tell why.
func Resolve(loc objstore.Location) objstore.Location {
	rest := ""
	for p := filepath.Clean(filepath.FromSlash(loc.Key)); ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			loc.Key = filepath.ToSlash(filepath.Join(real, rest))
			return loc
		} else if !os.IsNotExist(err) || p == filepath.Dir(p) {
			return loc
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}
