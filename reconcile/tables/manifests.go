package tables

import (
	"bytes"
	"context"
	"io"
	"iter"
	"path"
	"strings"
	"sync"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
)

// Manifests remembers the bytes of manifests from earlier passes. It must be safe for
// concurrent use; losing anything is its right.
type Manifests interface {
	// Get is the whole object of that ETag and size, in memory of the caller's; nil
	// when it is not at hand.
	Get(loc objstore.Location, etag string, size int64) []byte
	// Put hands in the whole body of an object, proven to be what it should be, with
	// the ETag that it came with. The body must not be changed by either side.
	Put(loc objstore.Location, etag string, body []byte)
}

// WithManifests gives tables that are looked at through r a memory of manifests. Only
// reads are spared that follow a listing of the same look which shows the very ETag
// and size: those bytes are known. That goes for the second look as well, which lists
// anew. Everything else, and every HEAD, is asked of the store.
//
// Stores that commits go through are never given one: what a commit is made from, and
// what it is read back by, comes from the store (the memory travels with the Reader,
// not with the options that a look and a repair share).
func WithManifests(r objstore.Reader, m Manifests) objstore.Reader { return remembering{r, m} }

type remembering struct {
	objstore.Reader
	manifests Manifests
}

// readManifest is lance.ReadManifest, spared where the manifest of a listed entry is
// known from an earlier pass.
//
// A manifest that names no data file is always read: no HEAD would show that the
// store has come to deny reading.
func (s *rooted) readManifest(ctx context.Context, e lance.VersionEntry) (*lance.Manifest, error) {
	mem, ok := s.r.(remembering)
	if !ok || e.ETag == "" {
		return lance.ReadManifest(ctx, s, e)
	}
	loc := s.root.Join(e.Name)
	if b := mem.manifests.Get(loc, e.ETag, e.Size); b != nil {
		if m, err := lance.DecodeManifest(b); err == nil && m.Version == e.Version && m.Summary.DataFiles > 0 {
			return m, nil
		}
	}
	n := &noting{rooted: s}
	m, err := lance.ReadManifest(ctx, n, e)
	if err == nil && n.got.ETag != "" {
		// Whole and decoded. The ETag is the answer's: a writer without a condition may
		// have put another object in the listed one's place.
		mem.manifests.Put(loc, n.got.ETag, m.Raw())
	}
	return m, err
}

// noting remembers what the store said of the object that was read last.
type noting struct {
	*rooted
	got lance.Object
}

// Get implements lance.Store.
func (n *noting) Get(ctx context.Context, name string, off, length int64) (io.ReadCloser, lance.Object, error) {
	body, o, err := n.rooted.Get(ctx, name, off, length)
	n.got = o
	return body, o, err
}

// readShards is lance.Shards, spared the manifests that are known from an earlier
// pass. They are small, written once, and read only right after their listing.
func (s *rooted) readShards(ctx context.Context) ([]lance.Shard, error) {
	mem, ok := s.r.(remembering)
	if !ok {
		return lance.Shards(ctx, s)
	}
	r := &shardReads{rooted: s, mem: mem.manifests, listed: map[string]lance.Object{}, read: map[string]*shardRead{}}
	shards, err := lance.Shards(ctx, r)
	if err == nil {
		for _, sh := range shards {
			r.keep(sh)
		}
	}
	return shards, err
}

// shardReads answers reads of listed shard manifests from memory, and notes those that
// it could not.
type shardReads struct {
	*rooted
	mem Manifests

	mu     sync.Mutex
	listed map[string]lance.Object
	read   map[string]*shardRead
}

// shardRead is a shard manifest as it comes from the store.
type shardRead struct {
	io.ReadCloser
	object lance.Object
	body   bytes.Buffer
}

// maxRemembered bounds a shard manifest that is remembered, in bytes: readers refuse
// shards of more generations than this holds.
const maxRemembered = 1 << 20

// Read implements io.Reader.
func (r *shardRead) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.body.Len() <= maxRemembered {
		r.body.Write(p[:n])
	}
	return n, err
}

func isShardManifest(name string) bool {
	dir, file := path.Split(name)
	_, ok := lance.ParseReversed(file, ".binpb")
	return ok && strings.HasSuffix(dir, "/manifest/")
}

// List implements lance.Store.
func (r *shardReads) List(ctx context.Context, prefix, delimiter string) iter.Seq2[lance.Object, error] {
	return func(yield func(lance.Object, error) bool) {
		for o, err := range r.rooted.List(ctx, prefix, delimiter) {
			if err == nil && !o.Prefix && isShardManifest(o.Name) {
				r.mu.Lock()
				r.listed[o.Name] = o
				r.mu.Unlock()
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// Get implements lance.Store.
func (r *shardReads) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, lance.Object, error) {
	r.mu.Lock()
	listed, ok := r.listed[name]
	r.mu.Unlock()
	if !ok || off != 0 || n >= 0 {
		return r.rooted.Get(ctx, name, off, n)
	}
	if listed.ETag != "" {
		if b := r.mem.Get(r.root.Join(name), listed.ETag, listed.Size); b != nil {
			return io.NopCloser(bytes.NewReader(b)), listed, nil
		}
	}
	body, o, err := r.rooted.Get(ctx, name, off, n)
	if err != nil || o.ETag == "" {
		return body, o, err
	}
	read := &shardRead{ReadCloser: body, object: o}
	r.mu.Lock()
	r.read[name] = read
	r.mu.Unlock()
	return read, o, nil
}

// keep remembers a shard's manifest when it was read now, whole, and is one.
func (r *shardReads) keep(sh lance.Shard) {
	if read := r.read[sh.ManifestName]; read != nil && sh.Err == nil && int64(read.body.Len()) == read.object.Size {
		r.mem.Put(r.root.Join(sh.ManifestName), read.object.ETag, read.body.Bytes())
	}
}

var (
	_ lance.Store     = (*noting)(nil)
	_ lance.Store     = (*shardReads)(nil)
	_ io.ReadCloser   = (*shardRead)(nil)
	_ objstore.Reader = remembering{}
)
