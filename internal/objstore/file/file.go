// Package file is an object store over folders of a local or mounted disk.
//
// The store is opened at a root folder, which plays the bucket: when it is absent,
// every answer is [objstore.ErrNoSuchBucket], so that a mount that is away never
// reads as a store without objects. Below the root:
//
//   - only regular files are objects; a folder, socket or device is none;
//   - symbolic links are followed; one that leads nowhere is an error that proves
//     nothing, since its target may be on a mount that is away;
//   - ENOENT and ENOTDIR are [objstore.ErrNotExist], EACCES and EPERM are
//     [objstore.ErrDenied]; ESTALE, EIO and whatever else are plain errors;
//   - names that begin with ".reconcile-tmp-" are unfinished writes of this package
//     and are not objects for listings.
//
// Every question to the disk runs in a goroutine of its own, so that a mount that
// hangs cannot keep a caller whose context ends.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// maxStuck bounds the system calls under way at once. A hung mount keeps each of
// its calls, and with it an OS thread, for ever; the runtime ends the process at
// 10,000 threads.
const maxStuck = 1024

// tempPrefix begins the name of every file that is not whole yet.
const tempPrefix = ".reconcile-tmp-"

// Store is an [objstore.Writer] over one root folder, safe for concurrent use.
type Store struct {
	root string
	now  func() time.Time
	sem  chan struct{}
}

var _ objstore.Writer = (*Store)(nil)

// New makes a store whose root is the folder at loc. It does not touch the disk:
// an absent root shows in the answers. A location that is no file, and a path that
// is relative or not clean, match [fs.ErrInvalid].
func New(root objstore.Location) (*Store, error) {
	dir := strings.TrimRight(root.Key, "/")
	if dir == "" {
		dir = "/"
	}
	if root.Scheme != "file" || !path.IsAbs(root.Key) || path.Clean(dir) != dir {
		return nil, &objstore.Error{Op: "open", Location: root, Err: fmt.Errorf("not a clean absolute file path: %w", fs.ErrInvalid)}
	}
	return &Store{root: dir, now: time.Now, sem: make(chan struct{}, maxStuck)}, nil
}

func (s *Store) fail(op string, loc objstore.Location, err error) *objstore.Error {
	return &objstore.Error{Op: op, Location: loc, ServerTime: s.now().UTC(), Err: err}
}

// name is the path of loc for the operating system. Keys with "." or ".." are
// refused: they could leave the root or give one object two names.
func (s *Store) name(op string, loc objstore.Location) (string, error) {
	k := loc.Key
	if loc.Scheme != "file" || loc.Bucket != "" || loc.Endpoint != "" {
		return "", s.fail(op, loc, fmt.Errorf("not a file: %w", fs.ErrInvalid))
	}
	if k == "" || k[0] != '/' || path.Clean(k) != k && path.Clean(k)+"/" != k || strings.ContainsRune(k, 0) {
		return "", s.fail(op, loc, fmt.Errorf("not a clean absolute file path: %w", fs.ErrInvalid))
	}
	if s.root != "/" && k != s.root && !strings.HasPrefix(k, s.root+"/") {
		return "", s.fail(op, loc, fmt.Errorf("outside the root %s: %w", s.root, fs.ErrInvalid))
	}
	return filepath.FromSlash(k), nil
}

// run asks the disk without letting it keep the caller: when ctx ends first, the
// call goes on by itself and its answer is dropped.
func run[T any](ctx context.Context, s *Store, f func() (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	select {
	case s.sem <- struct{}{}:
	case <-ctx.Done():
		return zero, ctx.Err()
	}
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-s.sem }()
		v, err := f()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// classify turns what the disk said about name into what it means.
func (s *Store) classify(op string, loc objstore.Location, name string, err error) error {
	var known *objstore.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return s.fail(op, loc, s.absent(name))
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return s.fail(op, loc, objstore.ErrDenied)
	default:
		return s.fail(op, loc, plain(err))
	}
}

// plain drops the path that the os package puts into its errors: Error has it already.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

var errDangling = errors.New("a symbolic link on the path leads nowhere")

// absent says what "no such file" about name proves. It walks up to the nearest
// thing that exists: a folder (or a file where a folder should be) proves absence;
// a link without target proves nothing; past the root, the root is absent.
func (s *Store) absent(name string) error {
	for p := filepath.Clean(name); ; p = filepath.Dir(p) {
		li, err := os.Lstat(p)
		switch {
		case err == nil && li.Mode()&fs.ModeSymlink != 0:
			if _, err := os.Stat(p); errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
				return errDangling
			} else if err != nil {
				return s.unproven(err)
			}
			fallthrough
		case err == nil:
			// Something exists here, at the root or below it.
			return s.present(p, name)
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
			if p == s.root || p == filepath.Dir(p) {
				return objstore.ErrNoSuchBucket
			}
		default:
			return s.unproven(err)
		}
	}
}

// present decides between absence and a change under our feet: p is the nearest
// existing part of name.
func (s *Store) present(p, name string) error {
	if p == s.root {
		if ri, err := os.Stat(p); err != nil {
			return s.unproven(err)
		} else if !ri.IsDir() {
			return objstore.ErrNoSuchBucket
		}
	}
	if p == filepath.Clean(name) && !strings.HasSuffix(name, "/") {
		return errors.New("appeared while being looked at")
	}
	return objstore.ErrNotExist
}

func (s *Store) unproven(err error) error {
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return objstore.ErrDenied
	}
	return fmt.Errorf("absence not proven: %w", plain(err))
}

func (s *Store) attrs(loc objstore.Location, fi fs.FileInfo) objstore.Attrs {
	return objstore.Attrs{
		Location: loc, Size: fi.Size(), ETag: etag(fi), ModTime: modTime(fi), ServerTime: s.now().UTC(),
	}
}

// modTime is zero for the epoch, which file systems report for "unknown".
func modTime(fi fs.FileInfo) time.Time {
	if t := fi.ModTime(); t.Unix() != 0 {
		return t.UTC()
	}
	return time.Time{}
}

// etag changes whenever another file takes the name or the bytes are rewritten, also by
// a copy that keeps its times: a file system has no digest to tell.
func etag(fi fs.FileInfo) string {
	return fmt.Sprintf("%x-%x-%x-%x", inode(fi), fi.ModTime().UnixNano(), changed(fi), fi.Size())
}

// errNoFile: something stands at the path that is no file (a folder, a FIFO, a
// device). That is not the absence of an object.
var errNoFile = errors.New("what stands at this path is no regular file")

func (s *Store) stat(ctx context.Context, op string, loc objstore.Location) (objstore.Attrs, error) {
	name, err := s.name(op, loc)
	if err != nil {
		return objstore.Attrs{}, err
	}
	a, err := run(ctx, s, func() (objstore.Attrs, error) {
		fi, err := os.Stat(name)
		if err != nil {
			return objstore.Attrs{}, s.classify(op, loc, name, err)
		}
		if !fi.Mode().IsRegular() {
			return objstore.Attrs{}, s.fail(op, loc, errNoFile)
		}
		if err := readable(name); err != nil {
			return objstore.Attrs{}, s.classify(op, loc, name, err)
		}
		return s.attrs(loc, fi), nil
	})
	return a, s.ended(op, loc, err)
}

// ended gives a context's end the shape of every other error.
func (s *Store) ended(op string, loc objstore.Location, err error) error {
	var known *objstore.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &objstore.Error{Op: op, Location: loc, Err: err}
}

// Stat implements [objstore.Statter].
func (s *Store) Stat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.stat(ctx, "stat", loc)
}

// Restat implements [objstore.Restatter]: the same question, asked again.
func (s *Store) Restat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.stat(ctx, "restat", loc)
}

// Probe implements [objstore.Prober]: it opens the file, so that an object which
// may be looked at but not read is denied.
func (s *Store) Probe(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	f, a, err := s.open(ctx, "probe", loc)
	if err != nil {
		return objstore.Attrs{}, err
	}
	_ = f.Close() // opened for reading: nothing can be lost
	return a, nil
}

func (s *Store) open(ctx context.Context, op string, loc objstore.Location) (*os.File, objstore.Attrs, error) {
	name, err := s.name(op, loc)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	type opened struct {
		f *os.File
		a objstore.Attrs
	}
	o, err := run(ctx, s, func() (opened, error) {
		// A FIFO would block its opener, so what it is comes first.
		if fi, err := os.Stat(name); err != nil {
			return opened{}, s.classify(op, loc, name, err)
		} else if !fi.Mode().IsRegular() {
			return opened{}, s.fail(op, loc, errNoFile)
		}
		f, err := os.Open(name)
		if err != nil {
			return opened{}, s.classify(op, loc, name, err)
		}
		fi, err := f.Stat()
		if err != nil || ctx.Err() != nil {
			_ = f.Close()
			return opened{}, s.classify(op, loc, name, errors.Join(err, ctx.Err()))
		}
		return opened{f, s.attrs(loc, fi)}, nil
	})
	return o.f, o.a, s.ended(op, loc, err)
}

// Get implements [objstore.Getter].
func (s *Store) Get(ctx context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if err := r.Valid(); err != nil {
		return nil, objstore.Attrs{}, s.fail("get", loc, err)
	}
	f, a, err := s.open(ctx, "get", loc)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	begin, end, err := r.Bounds(a.Size)
	if err != nil {
		_ = f.Close()
		return nil, objstore.Attrs{}, s.fail("get", loc, err)
	}
	return &body{ctx: ctx, s: s, loc: loc, f: f, off: begin, end: end}, a, nil
}

// body reads [off, end) of a file that had end bytes or more when it was opened.
type body struct {
	ctx      context.Context
	s        *Store
	loc      objstore.Location
	f        *os.File
	off, end int64
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, &objstore.Error{Op: "get", Location: b.loc, Err: err}
	}
	if b.off >= b.end {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), b.end-b.off)]
	n, err := b.f.ReadAt(p, b.off)
	b.off += int64(n)
	switch {
	case err == nil || err == io.EOF && b.off == b.end:
		return n, nil
	case err == io.EOF: // the file was cut after it had been opened
		err = io.ErrUnexpectedEOF
	}
	return n, b.s.fail("get", b.loc, plain(err))
}

func (b *body) Close() error { return b.f.Close() }

// Versions implements [objstore.Versioner]: a disk keeps none.
func (s *Store) Versions(context.Context, objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return func(func(objstore.Attrs, error) bool) {}
}

var errNoVersions = fmt.Errorf("a disk keeps no versions: %w", objstore.ErrUnsupported)

// GetVersion implements [objstore.VersionGetter]: a disk keeps none.
func (s *Store) GetVersion(_ context.Context, loc objstore.Location, _ string, _ objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return nil, objstore.Attrs{}, s.fail("getversion", loc, errNoVersions)
}

// Versioning implements [objstore.VersioningTeller]: [objstore.VersioningNever], always.
func (s *Store) Versioning(ctx context.Context, loc objstore.Location) (objstore.Versioning, error) {
	if err := ctx.Err(); err != nil {
		return "", s.ended("versioning", loc, err)
	}
	return objstore.VersioningNever, nil
}
