package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Create implements [objstore.Creator] without races and without half objects: the
// bytes go to a temporary file beside the object, are made durable, and get their
// name by link(2), which fails when the name is taken. Folders are made as needed.
// A file system without hard links answers [objstore.ErrUnsupported].
func (s *Store) Create(ctx context.Context, loc objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	name, err := s.writable("create", loc)
	if err != nil {
		return objstore.Attrs{}, err
	}
	if _, err := os.Lstat(name); err == nil {
		return objstore.Attrs{}, s.fail("create", loc, objstore.ErrExist)
	}
	tmp, err := s.stage(ctx, "create", loc, name, body, size)
	if err != nil {
		return objstore.Attrs{}, err
	}
	defer func() { _ = os.Remove(tmp) }() // a left-over temporary file is no object
	if err := ctx.Err(); err != nil {
		return objstore.Attrs{}, s.ended("create", loc, err)
	}
	err = os.Link(tmp, name)
	switch {
	case errors.Is(err, syscall.EEXIST):
		return objstore.Attrs{}, s.fail("create", loc, objstore.ErrExist)
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EPERM):
		// EPERM is what link(2) says of a file system without links; the right to
		// write has just been proven by the temporary file.
		return objstore.Attrs{}, s.fail("create", loc, fmt.Errorf("%w: no hard links on this file system, so no create-if-absent", objstore.ErrUnsupported))
	case err != nil:
		return objstore.Attrs{}, s.classify("create", loc, name, err)
	}
	_ = os.Remove(tmp) // before the object is looked at, which a name less changes
	return s.landed("create", loc, name)
}

// CreateOverMarker implements [objstore.MarkerCreator]: a disk has no delete markers.
func (s *Store) CreateOverMarker(_ context.Context, loc objstore.Location, _ string, _ io.Reader, _ int64) (objstore.Attrs, error) {
	return objstore.Attrs{}, s.fail("overmarker", loc, errNoVersions)
}

// Replace implements [objstore.Replacer]: the new bytes are made durable beside the
// object and take its name by rename. Between looking at the ETag and renaming,
// users of this package on the same host are kept out by a lock on the folder;
// a file system has no way to keep out others.
func (s *Store) Replace(ctx context.Context, loc objstore.Location, ifMatch string, body io.Reader, size int64) (objstore.Attrs, error) {
	if ifMatch == "" || ifMatch == "*" {
		return objstore.Attrs{}, s.fail("replace", loc, fmt.Errorf("no ETag to match: %w", fs.ErrInvalid))
	}
	name, err := s.writable("replace", loc)
	if err != nil {
		return objstore.Attrs{}, err
	}
	// Through a link, the object is what the link leads to.
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	if err := s.unchanged(loc, name, ifMatch); err != nil {
		return objstore.Attrs{}, err
	}
	tmp, err := s.stage(ctx, "replace", loc, name, body, size)
	if err != nil {
		return objstore.Attrs{}, err
	}
	defer func() { _ = os.Remove(tmp) }() // a left-over temporary file is no object
	unlock, err := run(ctx, s, func() (func(), error) { return lockDir(filepath.Dir(name)) })
	if err != nil {
		return objstore.Attrs{}, s.classify("replace", loc, name, err)
	}
	defer unlock()
	if err := s.unchanged(loc, name, ifMatch); err != nil {
		return objstore.Attrs{}, err
	}
	if err := ctx.Err(); err != nil {
		return objstore.Attrs{}, s.ended("replace", loc, err)
	}
	if err := os.Rename(tmp, name); err != nil {
		return objstore.Attrs{}, s.classify("replace", loc, name, err)
	}
	return s.landed("replace", loc, name)
}

// writable is the path of an object that may be written: below the root, and a root
// that is there.
func (s *Store) writable(op string, loc objstore.Location) (string, error) {
	name, err := s.name(op, loc)
	if err != nil {
		return "", err
	}
	if name == s.root || strings.HasSuffix(name, "/") {
		return "", s.fail(op, loc, fmt.Errorf("names a folder: %w", fs.ErrInvalid))
	}
	fi, err := os.Stat(s.root)
	if err == nil && !fi.IsDir() {
		err = syscall.ENOTDIR
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return "", s.fail(op, loc, objstore.ErrNoSuchBucket)
	}
	return name, s.classify(op, loc, s.root, err)
}

// unchanged is nil while the object at name has the given ETag.
func (s *Store) unchanged(loc objstore.Location, name, ifMatch string) error {
	fi, err := os.Stat(name)
	switch {
	case err != nil:
		return s.classify("replace", loc, name, err)
	case !fi.Mode().IsRegular():
		return s.fail("replace", loc, objstore.ErrNotExist)
	case etag(fi) != ifMatch:
		return s.fail("replace", loc, objstore.ErrExist)
	}
	return nil
}

// stage writes body to a durable temporary file in the folder of name.
func (s *Store) stage(ctx context.Context, op string, loc objstore.Location, name string, body io.Reader, size int64) (tmp string, err error) {
	dir := filepath.Dir(name)
	if err := makeDirs(dir); err != nil {
		return "", s.classifyWrite(op, loc, err)
	}
	tmp = filepath.Join(dir, tempPrefix+rand.Text())
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // the umask decides, as for the library's own files
	if err != nil {
		return "", s.classifyWrite(op, loc, err)
	}
	err = fill(ctx, f, body, size)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(tmp)
		return "", s.classifyWrite(op, loc, err)
	}
	return tmp, nil
}

// fill copies exactly size bytes.
func fill(ctx context.Context, w io.Writer, body io.Reader, size int64) error {
	if size < 0 {
		return fmt.Errorf("size %d: %w", size, fs.ErrInvalid)
	}
	n, err := io.Copy(w, &ctxReader{ctx, io.LimitReader(body, size)})
	if err != nil {
		return err
	}
	if n < size {
		return fmt.Errorf("body ends after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
	}
	if m, _ := io.ReadFull(body, make([]byte, 1)); m > 0 {
		return fmt.Errorf("body goes on after %d bytes: %w", size, fs.ErrInvalid)
	}
	return nil
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// makeDirs makes a folder and its parents, each durable in its own parent.
func makeDirs(dir string) error {
	err := os.Mkdir(dir, 0o777)
	switch {
	case err == nil:
		return syncDir(filepath.Dir(dir))
	case errors.Is(err, syscall.EEXIST):
		return nil // whatever it is, opening a file in it will tell
	case errors.Is(err, syscall.ENOENT) && dir != filepath.Dir(dir):
		if err := makeDirs(filepath.Dir(dir)); err != nil {
			return err
		}
		return makeDirs(dir)
	}
	return err
}

// classifyWrite is classify for steps that say nothing about the object itself:
// an absent folder is no absent object.
func (s *Store) classifyWrite(op string, loc objstore.Location, err error) error {
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EROFS) {
		return s.fail(op, loc, objstore.ErrDenied)
	}
	return s.fail(op, loc, plain(err))
}

// landed makes the new name durable and tells what is there now. An error from here
// on leaves the outcome unknown to the caller.
func (s *Store) landed(op string, loc objstore.Location, name string) (objstore.Attrs, error) {
	if err := syncDir(filepath.Dir(name)); err != nil {
		return objstore.Attrs{}, s.classifyWrite(op, loc, fmt.Errorf("sync folder: %w", plain(err)))
	}
	fi, err := os.Stat(name)
	if err != nil {
		return objstore.Attrs{}, s.classifyWrite(op, loc, fmt.Errorf("look at what was written: %w", plain(err)))
	}
	return s.attrs(loc, fi), nil
}
