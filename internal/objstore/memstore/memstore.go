// Package memstore is an object store in memory, for tests and for work that needs
// no disk. It answers as a strict S3 would: exact keys, MD5 ETags, conditional
// writes without races, and, when asked for, versions with delete markers.
//
// [Store.Put], [Store.Remove] and the other methods that no interface of objstore
// has are for tests: they play the rest of the world.
package memstore

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Options of a store. The zero value keeps no versions and uses the system clock.
type Options struct {
	// Versions keeps every version and turns removals into delete markers.
	Versions bool
	// Now is the clock of ModTime and ServerTime; nil is the system clock.
	Now func() time.Time
	// PageSize of listings; 0 is 1000.
	PageSize int
}

// Store is an in-memory [objstore.Writer], safe for concurrent use. It serves
// locations of any scheme, endpoint and bucket; every bucket exists unless
// [Store.RemoveBucket] took it away.
type Store struct {
	opts Options

	mu     sync.RWMutex
	keys   map[objstore.Location][]version // newest last
	sorted []objstore.Location             // nil when keys changed since
	gone   map[objstore.Location]bool      // containers that do not exist
	serial int64
}

type version struct {
	attrs  objstore.Attrs // without Location
	data   []byte
	sparse bool // data is attrs.Size zero bytes
}

var (
	_ objstore.Writer = (*Store)(nil)
	_ objstore.Pager  = (*Store)(nil)
)

// New makes an empty store.
func New(opts Options) *Store {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.PageSize <= 0 {
		opts.PageSize = 1000
	}
	return &Store{opts: opts, keys: map[objstore.Location][]version{}, gone: map[objstore.Location]bool{}}
}

func (s *Store) now() time.Time { return s.opts.Now().UTC() }

func (s *Store) fail(op string, loc objstore.Location, status int, code string, err error) *objstore.Error {
	return &objstore.Error{Op: op, Location: loc, Status: status, Code: code, ServerTime: s.now(), Err: err}
}

func (s *Store) interrupted(ctx context.Context, op string, loc objstore.Location) error {
	if err := ctx.Err(); err != nil {
		return &objstore.Error{Op: op, Location: loc, Err: err}
	}
	return nil
}

// newest answers the current version. The caller holds mu.
func (s *Store) newest(op string, loc objstore.Location) (version, error) {
	if s.gone[loc.Container()] {
		return version{}, s.fail(op, loc, 404, "NoSuchBucket", objstore.ErrNoSuchBucket)
	}
	vs := s.keys[loc]
	if len(vs) == 0 {
		return version{}, s.fail(op, loc, 404, "NoSuchKey", objstore.ErrNotExist)
	}
	v := vs[len(vs)-1]
	if v.attrs.DeleteMarker {
		e := s.fail(op, loc, 404, "NoSuchKey", objstore.ErrNotExist)
		e.DeleteMarker = true
		return version{}, e
	}
	return v, nil
}

// answer is what is told about v now. DeleteMarker and IsLatest are Versions' own.
func (s *Store) answer(loc objstore.Location, v version) objstore.Attrs {
	a := v.attrs
	a.Location, a.ServerTime, a.IsLatest = loc, s.now(), false
	return a
}

func (s *Store) stat(ctx context.Context, op string, loc objstore.Location) (objstore.Attrs, error) {
	if err := s.interrupted(ctx, op, loc); err != nil {
		return objstore.Attrs{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, err := s.newest(op, loc)
	if err != nil {
		return objstore.Attrs{}, err
	}
	return s.answer(loc, v), nil
}

// Stat implements [objstore.Statter].
func (s *Store) Stat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.stat(ctx, "stat", loc)
}

// Restat implements [objstore.Restatter]; memory has no second opinion.
func (s *Store) Restat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.stat(ctx, "restat", loc)
}

// Probe implements [objstore.Prober].
func (s *Store) Probe(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	a, err := s.stat(ctx, "probe", loc)
	if err == nil && a.Archived {
		return objstore.Attrs{}, s.fail("probe", loc, 403, "InvalidObjectState", objstore.ErrArchived)
	}
	return a, err
}

// Get implements [objstore.Getter].
func (s *Store) Get(ctx context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if err := r.Valid(); err != nil {
		return nil, objstore.Attrs{}, &objstore.Error{Op: "get", Location: loc, Err: err}
	}
	if err := s.interrupted(ctx, "get", loc); err != nil {
		return nil, objstore.Attrs{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, err := s.newest("get", loc)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	return s.body(ctx, "get", loc, v, r)
}

// body is what a version holds. The caller holds mu.
func (s *Store) body(ctx context.Context, op string, loc objstore.Location, v version, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if v.attrs.Archived {
		return nil, objstore.Attrs{}, s.fail(op, loc, 403, "InvalidObjectState", objstore.ErrArchived)
	}
	size := int64(len(v.data))
	if v.sparse {
		size = v.attrs.Size
	}
	begin, end, err := r.Bounds(size)
	if err != nil {
		return nil, objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: err}
	}
	var body io.Reader = io.LimitReader(zeros{}, end-begin)
	if !v.sparse {
		body = bytes.NewReader(v.data[begin:end])
	}
	return io.NopCloser(&ctxReader{ctx: ctx, op: op, loc: loc, r: body}), s.answer(loc, v), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type ctxReader struct {
	ctx context.Context
	op  string
	loc objstore.Location
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, &objstore.Error{Op: c.op, Location: c.loc, Err: err}
	}
	return c.r.Read(p)
}

// List implements [objstore.Lister].
func (s *Store) List(ctx context.Context, prefix objstore.Location, delimiter string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		for token := ""; ; {
			page, next, err := s.ListPage(ctx, prefix, delimiter, token)
			if err != nil {
				yield(objstore.Attrs{}, err)
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// ListPage implements [objstore.Pager]. The token is the last key of the page.
func (s *Store) ListPage(ctx context.Context, prefix objstore.Location, delimiter, token string) ([]objstore.Attrs, string, error) {
	if err := s.interrupted(ctx, "list", prefix); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[prefix.Container()] {
		return nil, "", s.fail("list", prefix, 404, "NoSuchBucket", objstore.ErrNoSuchBucket)
	}
	all := s.sortedKeys()
	from := prefix
	if token > from.Key {
		from.Key = token
	}
	i := sort.Search(len(all), func(i int) bool { return !less(all[i], from) })
	var page []objstore.Attrs
	for ; i < len(all); i++ {
		loc := all[i]
		if loc.Container() != prefix.Container() || !strings.HasPrefix(loc.Key, prefix.Key) {
			break
		}
		if token != "" && (loc.Key == token || delimiter != "" && strings.HasSuffix(token, delimiter) && len(token) > len(prefix.Key) && strings.HasPrefix(loc.Key, token)) {
			continue
		}
		vs := s.keys[loc]
		v := vs[len(vs)-1]
		if v.attrs.DeleteMarker {
			continue
		}
		a := s.answer(loc, v)
		if n := len(prefix.Key); delimiter != "" {
			if j := strings.Index(loc.Key[n:], delimiter); j >= 0 {
				loc.Key = loc.Key[:n+j+len(delimiter)]
				a = objstore.Attrs{Location: loc, Prefix: true, Size: objstore.Unknown, ServerTime: s.now()}
				if len(page) > 0 && page[len(page)-1].Location == loc {
					continue
				}
			}
		}
		if len(page) == s.opts.PageSize {
			return page, page[len(page)-1].Location.Key, nil
		}
		page = append(page, a)
	}
	return page, "", nil
}

func less(a, b objstore.Location) bool {
	if a.Scheme != b.Scheme {
		return a.Scheme < b.Scheme
	}
	if a.Endpoint != b.Endpoint {
		return a.Endpoint < b.Endpoint
	}
	if a.Bucket != b.Bucket {
		return a.Bucket < b.Bucket
	}
	return a.Key < b.Key
}

// sortedKeys answers every key that has a version. The caller holds mu for writing.
func (s *Store) sortedKeys() []objstore.Location {
	if s.sorted == nil {
		s.sorted = make([]objstore.Location, 0, len(s.keys))
		for loc := range s.keys {
			s.sorted = append(s.sorted, loc)
		}
		sort.Slice(s.sorted, func(i, j int) bool { return less(s.sorted[i], s.sorted[j]) })
	}
	return s.sorted
}

// readBody reads a body that must have exactly size bytes.
func readBody(body io.Reader, size int64) ([]byte, error) {
	if size < 0 {
		return nil, fmt.Errorf("size %d: %w", size, fs.ErrInvalid)
	}
	data, err := io.ReadAll(io.LimitReader(body, size+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, errors.New("body is not of the size that was promised")
	}
	return data, nil
}

// Create implements [objstore.Creator]. As on S3, a delete marker counts as nothing.
func (s *Store) Create(ctx context.Context, loc objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	return s.write(ctx, "create", loc, body, size, func(_ version, err error) error {
		switch {
		case err == nil:
			return s.fail("create", loc, 412, "PreconditionFailed", objstore.ErrExist)
		case errors.Is(err, objstore.ErrNotExist):
			return nil
		default:
			return err
		}
	})
}

// Replace implements [objstore.Replacer].
func (s *Store) Replace(ctx context.Context, loc objstore.Location, ifMatch string, body io.Reader, size int64) (objstore.Attrs, error) {
	if ifMatch == "" || ifMatch == "*" {
		return objstore.Attrs{}, &objstore.Error{Op: "replace", Location: loc, Err: fmt.Errorf("no ETag to match: %w", fs.ErrInvalid)}
	}
	return s.write(ctx, "replace", loc, body, size, func(v version, err error) error {
		if err == nil && v.attrs.ETag != ifMatch {
			return s.fail("replace", loc, 412, "PreconditionFailed", objstore.ErrExist)
		}
		return err
	})
}

func (s *Store) write(ctx context.Context, op string, loc objstore.Location, body io.Reader, size int64, allowed func(version, error) error) (objstore.Attrs, error) {
	if loc.Key == "" {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: fmt.Errorf("no key: %w", fs.ErrInvalid)}
	}
	data, err := readBody(body, size)
	if err != nil {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: err}
	}
	if err := s.interrupted(ctx, op, loc); err != nil {
		return objstore.Attrs{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := allowed(s.newest(op, loc)); err != nil {
		return objstore.Attrs{}, err
	}
	v := s.put(loc, version{data: data, attrs: objstore.Attrs{Size: size, ETag: etag(data)}})
	return s.answer(loc, v), nil
}

func etag(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

// put stores v as the newest version. The caller holds mu.
func (s *Store) put(loc objstore.Location, v version) version {
	if v.attrs.ModTime.IsZero() {
		v.attrs.ModTime = s.now()
	}
	if _, ok := s.keys[loc]; !ok {
		s.sorted = nil
	}
	if !s.opts.Versions {
		s.keys[loc] = []version{v}
		return v
	}
	s.serial++
	v.attrs.VersionID = "v" + strconv.FormatInt(s.serial, 10)
	s.keys[loc] = append(s.keys[loc], v)
	return v
}
