package peers

import (
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// nameBelow is the exact name of loc below root, the inverse of root.Join; ok is
// false when loc is root itself or not below it. Nothing is cleaned or decoded.
func nameBelow(loc, root objstore.Location) (name string, ok bool) {
	if loc.Scheme == "" || loc.Container() != root.Container() {
		return "", false
	}
	name, ok = strings.CutPrefix(loc.Key, root.Join("").Key)
	return name, ok && name != ""
}

// fits reports whether a name can be an object of a store of that scheme. Folders
// have no place for names with an empty, "." or ".." part, which would be another
// object's name or leave the root, nor for NUL. Object stores take every name.
func fits(scheme, name string) bool {
	if scheme != "file" {
		return true
	}
	if strings.ContainsRune(name, 0) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}
