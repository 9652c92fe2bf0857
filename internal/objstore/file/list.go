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
	"sort"
	"strings"
	"syscall"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// List implements [objstore.Lister], in the order of the keys' bytes. A folder
// without any object below it is not there. What cannot be told (a link that leads
// nowhere) ends the sequence with an error after everything that can.
func (s *Store) List(ctx context.Context, prefix objstore.Location, delimiter string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		w := &walk{ctx: ctx, s: s, prefix: prefix, flat: delimiter == "", yield: yield}
		err := w.start(delimiter)
		if err == errStop {
			return
		}
		if err == nil {
			err = w.doubt
		}
		if err != nil {
			yield(objstore.Attrs{}, s.ended("list", prefix, err))
		}
	}
}

var errStop = errors.New("the caller has seen enough")

type walk struct {
	ctx    context.Context
	s      *Store
	prefix objstore.Location
	flat   bool // no delimiter: everything below
	yield  func(objstore.Attrs, error) bool
	// above are the folders on the way down, so that a link to one of them ends.
	above [][2]uint64
	// doubt is the first entry that could not be told.
	doubt error
}

func (w *walk) start(delimiter string) error {
	if delimiter != "" && delimiter != "/" {
		return w.s.fail("list", w.prefix, fmt.Errorf("delimiter %q: %w", delimiter, fs.ErrInvalid))
	}
	if _, err := w.s.name("list", w.prefix); err != nil {
		return err
	}
	// A prefix may end within a name: everything in the folder that begins so.
	i := strings.LastIndexByte(w.prefix.Key, '/')
	dir, part := w.prefix.Key[:i+1], w.prefix.Key[i+1:]
	if w.prefix.Key == w.s.root && part != "" {
		// The root without its slash is the root: nothing beside it is of this store.
		dir, part = w.s.root+"/", ""
	}
	_, err := run(w.ctx, w.s, func() (struct{}, error) {
		// The root is asked first: below an absent root, nothing is "empty".
		fi, err := os.Stat(w.s.root)
		if err == nil && !fi.IsDir() {
			err = syscall.ENOENT
		}
		if errors.Is(err, syscall.ENOENT) {
			return struct{}{}, w.s.fail("list", w.prefix, w.s.absent(w.s.root))
		}
		return struct{}{}, w.s.classify("list", w.prefix, w.s.root, err)
	})
	if err != nil {
		return err
	}
	return w.dir(dir, part)
}

// entry is one name of a folder. For links, fi and err are known at once, since
// where a link leads decides how it sorts; for others they come later, so that a
// folder of a million files costs no million FileInfos.
type entry struct {
	name string
	dir  bool
	fi   fs.FileInfo
	err  error
}

// key orders folders among objects as their keys sort: with the slash.
func (e entry) key() string {
	if e.dir {
		return e.name + "/"
	}
	return e.name
}

// batch is how many files are asked for in one go.
const batch = 256

// dir lists the folder at key (which ends in "/"), names that begin with part.
func (w *walk) dir(key, part string) error {
	entries, self, err := w.read(key, part)
	if err != nil || self == nil {
		return err
	}
	if id, ok := identity(self); ok {
		for _, a := range w.above {
			if a == id {
				return nil // a link back up: everything in it has been listed
			}
		}
		w.above = append(w.above, id)
		defer func() { w.above = w.above[:len(w.above)-1] }()
	}
	for len(entries) > 0 {
		n := min(batch, len(entries))
		if _, err := run(w.ctx, w.s, func() (struct{}, error) {
			for i := range entries[:n] {
				if e := &entries[i]; e.fi == nil && e.err == nil && !e.dir {
					e.fi, e.err = os.Lstat(key + e.name)
				}
			}
			return struct{}{}, nil
		}); err != nil {
			return err
		}
		for i := range entries[:n] {
			if err := w.entry(key, entries[i]); err != nil {
				return err
			}
			entries[i] = entry{}
		}
		entries = entries[n:]
	}
	return nil
}

func (w *walk) entry(key string, e entry) error {
	loc := w.prefix
	loc.Key = key + e.name
	switch {
	case e.dir && w.flat:
		return w.dir(loc.Key+"/", "")
	case e.dir:
		return w.group(loc)
	case e.err != nil:
		if err := w.s.classify("list", loc, loc.Key, e.err); w.doubt == nil && !errors.Is(err, objstore.ErrNotExist) {
			w.doubt = err
		}
	case e.fi.Mode().IsRegular():
		if !w.yield(w.s.attrs(loc, e.fi), nil) {
			return errStop
		}
	}
	return nil
}

// group yields the folder at loc as one entry, unless nothing is below it.
func (w *walk) group(loc objstore.Location) error {
	some, err := run(w.ctx, w.s, func() (bool, error) { return occupied(loc.Key, 0), nil })
	if err != nil {
		return err
	}
	if !some {
		return nil
	}
	loc.Key += "/"
	if !w.yield(objstore.Attrs{Location: loc, Size: objstore.Unknown, Prefix: true, ServerTime: w.s.now().UTC()}, nil) {
		return errStop
	}
	return nil
}

// read answers the entries of a folder, sorted. A folder that is not there is empty.
func (w *walk) read(key, part string) ([]entry, fs.FileInfo, error) {
	type answer struct {
		entries []entry
		self    fs.FileInfo
	}
	a, err := run(w.ctx, w.s, func() (answer, error) {
		name := path.Clean(key)
		self, err := os.Stat(name)
		if err == nil && !self.IsDir() {
			return answer{}, nil
		}
		var des []fs.DirEntry
		if err == nil {
			des, err = os.ReadDir(name)
		}
		if err != nil {
			loc := w.prefix
			loc.Key = key
			if err := w.s.classify("list", loc, name, err); !errors.Is(err, objstore.ErrNotExist) {
				return answer{}, err
			}
			return answer{}, nil
		}
		entries := make([]entry, 0, len(des))
		for _, de := range des {
			if !strings.HasPrefix(de.Name(), part) || strings.HasPrefix(de.Name(), tempPrefix) {
				continue
			}
			entries = append(entries, look(name, de))
		}
		sort.Slice(entries, func(i, j int) bool { return entries[i].key() < entries[j].key() })
		return answer{entries, self}, nil
	})
	return a.entries, a.self, err
}

// look says what a name is, links followed.
func look(dir string, de fs.DirEntry) entry {
	e := entry{name: de.Name(), dir: de.IsDir()}
	if de.Type()&fs.ModeSymlink != 0 {
		e.fi, e.err = os.Stat(path.Join(dir, e.name))
		e.dir = e.err == nil && e.fi.IsDir()
	}
	return e
}

// maxDepth ends the search for a first object in trees of links.
const maxDepth = 64

// occupied reports whether an object is below dir, or may be: what cannot be read
// counts.
func occupied(dir string, depth int) bool {
	d, err := os.Open(dir)
	if err != nil || depth > maxDepth {
		return true
	}
	defer func() { _ = d.Close() }() // read only
	for {
		// Small batches: the first object of a large folder is enough.
		des, err := d.ReadDir(64)
		for _, de := range des {
			if strings.HasPrefix(de.Name(), tempPrefix) {
				continue
			}
			e := look(dir, de)
			if !e.dir || occupied(path.Join(dir, e.name), depth+1) {
				return true
			}
		}
		if err == io.EOF {
			return false
		}
		if err != nil {
			return true
		}
	}
}
