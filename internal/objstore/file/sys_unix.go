//go:build unix

package file

import (
	"io/fs"
	"os"
	"syscall"
)

func inode(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}

// identity tells one folder from another, whatever names lead to it.
func identity(fi fs.FileInfo) (id [2]uint64, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return id, false
	}
	return [2]uint64{uint64(st.Dev), uint64(st.Ino)}, true
}

// lockDir keeps other users of this package, in any process of this host, from
// replacing something in the folder until the returned function is called.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		_ = d.Close()
		return nil, &os.PathError{Op: "flock", Path: dir, Err: err}
	}
	return func() { _ = d.Close() }, nil // closing gives the lock back
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	_ = d.Close() // read only
	return err
}

// readable asks whether this process may read a file, which stat does not tell: an
// object store refuses the HEAD of an object that may not be read.
func readable(name string) error {
	const readOK = 4 // R_OK of access(2)
	if err := syscall.Access(name, readOK); err != nil {
		return &os.PathError{Op: "access", Path: name, Err: err}
	}
	return nil
}
