package mancache

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// block is what a file takes on disk at least, and in steps of which it grows.
	block = 4 << 10
	// tempPrefix begins the names of files that are being written.
	tempPrefix = ".tmp-"
	// tempAge is when such a file is one whose writer died.
	tempAge = time.Hour
)

// errFull: the bound is reached by what was used since the cache was opened.
var errFull = errors.New("cache is full")

// dir is the folder. Names are looked up in the opened folder, so that nobody can put
// another in its place, and no link leads out of it.
type dir struct {
	root *os.Root
	max  int64
	// began is when the cache was opened, by the clock that ages entries.
	began time.Time

	mu   sync.Mutex
	used int64 // as far as this process knows
	full bool
}

// openDir makes and opens the folder, which must be this user's own and nobody
// else's: whoever writes here says what tables are made of, and their names and
// columns are not everyone's to read.
func openDir(path string, maxBytes int64, now time.Time) (*dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if err := private(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	d := &dir{root: root, max: maxBytes, began: now}
	d.used = d.prune(now, maxBytes, time.Time{})
	return d, nil
}

func private(root *os.Root) error {
	fi, err := root.Stat(".")
	if err != nil {
		return err
	}
	if !ownedByUs(fi) {
		return fmt.Errorf("%s belongs to another user", root.Name())
	}
	if fi.Mode().Perm() != 0o700 {
		return root.Chmod(".", 0o700)
	}
	return nil
}

func (d *dir) close() { _ = d.root.Close() } // opened for reading: there is nothing to lose

// read is the body of an entry; a missing one matches fs.ErrNotExist.
func (d *dir) read(k key, size int64) ([]byte, error) {
	f, err := d.root.Open(k.name())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return decode(f, k, size)
}

// touch says that an entry is in use.
func (d *dir) touch(name string, now time.Time) { _ = d.root.Chtimes(name, now, now) }

func (d *dir) remove(name string) { _ = d.root.Remove(name) }

// write keeps a body under its key, under the name of its own first, so that nobody
// sees half of it, and tells how much room it takes (bytes). errFull says that there
// is none.
func (d *dir) write(k key, body []byte, now time.Time) (int64, error) {
	most := room(headerSize + int64(len(body)) + int64(len(body)/256)) // what does not compress grows a little
	if !d.reserve(most, now) {
		return 0, errFull
	}
	size, err := d.writeFile(k, body, now)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.used -= most
		d.full = true // a disk that took this one not will hardly take the next
		return 0, err
	}
	took := room(size)
	d.used += took - most
	return took, nil
}

func (d *dir) writeFile(k key, body []byte, now time.Time) (size int64, err error) {
	var random [8]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	temp := tempPrefix + hex.EncodeToString(random[:])
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			d.remove(temp)
		}
	}()
	err = encode(f, k, body)
	fi, serr := f.Stat()
	if err = errors.Join(err, serr, f.Close()); err != nil {
		return 0, err
	}
	d.touch(temp, now)
	return fi.Size(), d.root.Rename(temp, k.name())
}

// reserve takes room for a new entry. Room is made by removing entries that nobody
// used since the cache was opened. What this pass used stays: were it to give way to
// the rest of the pass, a pass over more than fits would find nothing of itself the
// next time.
func (d *dir) reserve(n int64, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := d.max - d.max/10
	if d.full || n > most {
		return false
	}
	if d.used+n > d.max {
		// A tenth more than needed, so that not every new entry reads the whole folder.
		d.used = d.prune(now, most-n, d.began)
	}
	if d.used+n > d.max {
		d.full = d.used >= most
		return false
	}
	d.used += n
	return true
}

func room(size int64) int64 { return (size + block - 1) / block * block }

// prune removes what was used longest ago until the rest takes limit bytes at most,
// and what dead writers left. Entries used at or after since stay; with the zero time
// none does for that. It tells how many bytes stay.
func (d *dir) prune(now time.Time, limit int64, since time.Time) (used int64) {
	f, err := d.root.Open(".")
	if err != nil {
		return 0
	}
	defer f.Close()
	// A listing that breaks off is of what there is at least.
	names, _ := f.ReadDir(-1)
	entries := make([]fs.FileInfo, 0, len(names))
	for _, e := range names {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() {
			continue // another process was faster, or it is nothing of ours
		}
		if strings.HasPrefix(fi.Name(), tempPrefix) {
			if now.Sub(fi.ModTime()) > tempAge {
				d.remove(fi.Name())
			}
			continue
		}
		if !isEntry(fi.Name()) {
			continue
		}
		entries = append(entries, fi)
		used += room(fi.Size())
	}
	slices.SortFunc(entries, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, fi := range entries {
		if used <= limit || !since.IsZero() && !fi.ModTime().Before(since) {
			break
		}
		d.remove(fi.Name())
		used -= room(fi.Size())
	}
	return used
}

// isEntry reports whether a name is one that keys have.
func isEntry(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == len(key{})
}
