// Package mancache keeps the bytes of manifests on local disk, so that a pass reads
// only those that are new since the last one.
//
// A manifest object never changes under its name, and where it does all the same its
// ETag changes with it. An entry is therefore known by the object's URL, ETag and
// size, as a listing of this very pass showed them: what the listing does not show is
// not answered. Only metadata is kept; whether a referenced object is there is never
// answered from here.
//
// The folder is private to the user (0700), shared by the processes of that user, and
// bounded. Losing any of it, or all, costs requests and nothing else: whatever goes
// wrong with the disk is a miss and a line in the debug log, never an error.
package mancache

import (
	"crypto/fips140"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// folder holds the entries, below Options.Dir.
const folder = "manifests"

// maxBody is the largest object that is kept, in bytes: more than any manifest has
// that can be read.
const maxBody = 2 << 30

// Options of a cache.
type Options struct {
	// Dir is the work folder; entries lie in its subfolder "manifests". Empty: there is
	// no cache.
	Dir string
	// Max bounds what lies on disk, in bytes; 0 or less: there is no cache.
	Max    int64
	Logger *slog.Logger
	// Now is the clock by which entries age; it must be set.
	Now func() time.Time
}

// Cache answers for manifests that were read before. It is safe for concurrent use,
// by several processes too; a nil *Cache is one that holds nothing.
type Cache struct {
	opts Options
	once sync.Once
	dir  *dir // nil when there is no folder to use

	hits, misses, kept, bytes atomic.Int64
}

// New makes a cache, or nil when the options ask for none. It touches nothing: the
// folder is made when the first object comes that can be kept, so that a look at
// local files leaves no trace.
func New(o Options) *Cache {
	if o.Dir == "" || o.Max <= 0 {
		return nil
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cache{opts: o}
}

// DefaultDir is the work folder when none is configured: $XDG_CACHE_HOME/reconcile,
// else ~/.cache/reconcile; empty when neither is known. getenv is os.Getenv.
func DefaultDir(getenv func(string) string) string {
	// A relative path is to be passed over (XDG base directory specification).
	if d := getenv("XDG_CACHE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "reconcile")
	}
	if d := getenv("HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, ".cache", "reconcile")
	}
	return ""
}

// keepable reports whether an object can be known again. Folders and memory have no
// ETag that holds what an object holds, and are as fast to read as the cache.
func keepable(loc objstore.Location, etag string, size int64) bool {
	return loc.Scheme == "s3" && etag != "" && size > 0 && size <= maxBody
}

// vouched reports whether a body may stand for its object from now on. Where the ETag
// is an MD5 sum it must be that of the body: a bit that was flipped on the way would
// else be believed by every pass to come. The ETags of objects that AWS encrypts look
// the same and are none; AWS is reached by TLS, which lets no flipped bit through.
func vouched(loc objstore.Location, etag string, body []byte) bool {
	if sum, err := hex.DecodeString(etag); err != nil || len(sum) != md5.Size {
		return true
	}
	if loc.Endpoint == "" {
		return true
	}
	if fips140.Enforced() {
		return false // MD5 is not to be had
	}
	sum := md5.Sum(body)
	return hex.EncodeToString(sum[:]) == etag
}

// key is the name of an entry.
type key [sha256.Size]byte

func keyOf(loc objstore.Location, etag string, size int64) key {
	return sha256.Sum256([]byte(loc.Canonical() + "\x00" + etag + "\x00" + strconv.FormatInt(size, 10)))
}

func (k key) name() string { return hex.EncodeToString(k[:]) }

// Get is the whole object of that ETag and size, as a listing of this pass showed
// them, in memory of its own; nil when it is not at hand. It does not touch the
// network.
func (c *Cache) Get(loc objstore.Location, etag string, size int64) []byte {
	if c == nil || !keepable(loc, etag, size) || !c.open() {
		return nil
	}
	k := keyOf(loc, etag, size)
	body, err := c.dir.read(k, size)
	if err != nil {
		c.misses.Add(1)
		if !errors.Is(err, fs.ErrNotExist) {
			c.opts.Logger.Debug("a kept manifest is of no use", "url", loc.String(), "err", err)
		}
		if errors.Is(err, errDamaged) {
			c.dir.remove(k.name())
		}
		return nil
	}
	c.hits.Add(1)
	c.dir.touch(k.name(), c.opts.Now())
	return body
}

// Put keeps the whole body of an object for later passes. etag is that of the answer
// which the body came with. The caller has made sure that the body is what it should
// be, and does not change it meanwhile.
func (c *Cache) Put(loc objstore.Location, etag string, body []byte) {
	size := int64(len(body))
	if c == nil || !keepable(loc, etag, size) || !vouched(loc, etag, body) || !c.open() {
		return
	}
	n, err := c.dir.write(keyOf(loc, etag, size), body, c.opts.Now())
	switch {
	case errors.Is(err, errFull):
		return
	case err != nil:
		c.opts.Logger.Debug("a manifest is not kept", "url", loc.String(), "err", err)
		return
	}
	c.kept.Add(1)
	c.bytes.Add(n)
}

// Close holds the folder to its bound and tells the log what the cache was good for.
func (c *Cache) Close() {
	if c == nil {
		return
	}
	c.once.Do(func() {}) // what was not opened stays so
	if c.dir == nil {
		return
	}
	used := c.dir.prune(c.opts.Now(), c.opts.Max, time.Time{})
	c.opts.Logger.Debug("kept manifests", "hits", c.hits.Load(), "misses", c.misses.Load(), "new", c.kept.Load(), "new_bytes", c.bytes.Load(), "bytes", used)
	c.dir.close()
}

// open makes the folder once; false means that there is none to use.
func (c *Cache) open() bool {
	c.once.Do(func() {
		d, err := openDir(filepath.Join(c.opts.Dir, folder), c.opts.Max, c.opts.Now())
		if err != nil {
			c.opts.Logger.Debug("no manifests are kept", "dir", c.opts.Dir, "err", err)
			return
		}
		c.dir = d
	})
	return c.dir != nil
}
