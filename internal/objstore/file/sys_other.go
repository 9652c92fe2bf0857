//go:build !unix

package file

import (
	"io/fs"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

func inode(fs.FileInfo) uint64 { return 0 }

func identity(fs.FileInfo) (id [2]uint64, ok bool) { return id, false }

func lockDir(string) (func(), error) { return nil, objstore.ErrUnsupported }

func syncDir(string) error { return nil }

func readable(string) error { return nil }
