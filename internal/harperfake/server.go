package harperfake

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Options of a server. The zero value is an old node that asks for no credentials.
type Options struct {
	Dialect Dialect
	// User and Password may do everything; without a User nobody is asked. Reader and
	// ReaderPassword may read tables only; Stranger (with the reader's password) nothing.
	User, Password         string
	Reader, ReaderPassword string
	Stranger               string
	// CutAfter is when an old node cuts off a body that is shorter than the record says;
	// 0 is 31 s.
	CutAfter time.Duration
	// CoreOnly nodes know neither cluster_status nor repair_blob_data.
	CoreOnly bool
	// HealAfter is how long a repair takes from its answer to its effect. NeverHeals
	// answers that it started, and does nothing.
	HealAfter  time.Duration
	NeverHeals bool
	// Less orders keys; nil: numbers, then strings by bytes.
	Less func(a, b any) int
}

// Request is one line of a server's log.
type Request struct {
	// Method, Path as escaped on the wire, Query undecoded.
	Method, Path, Query string
	Header              http.Header
	// Operation is set for requests to the operations port.
	Operation string
}

// Server is one node. All methods are safe for concurrent use.
type Server struct {
	// URL serves records, OperationsURL operations.
	URL, OperationsURL string

	opts   Options
	closed chan struct{}

	mu       sync.Mutex
	tables   map[string]*table // by REST path
	peers    []*Server
	log      []Request
	hang     bool
	status   int
	failures int64
	clock    float64
}

type table struct {
	database, path, key string
	records             []*record
}

type record struct {
	key     any // string or float64
	fields  map[string]any
	blobs   map[string]*blob
	version float64
}

type blob struct {
	data     []byte
	mime     string
	damage   Damage
	adopted  int64 // the size that a read wrote into the cached record; -1: none
	servings int
}

// Start begins a node; it ends with the test.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	s := &Server{opts: opts, closed: make(chan struct{}), tables: map[string]*table{}, clock: 1.7e12}
	if s.opts.CutAfter == 0 {
		s.opts.CutAfter = 31 * time.Second
	}
	if s.opts.Less == nil {
		s.opts.Less = numbersFirst
	}
	rest := httptest.NewServer(http.HandlerFunc(s.rest))
	ops := httptest.NewServer(http.HandlerFunc(s.operations))
	s.URL, s.OperationsURL = rest.URL, ops.URL
	t.Cleanup(func() {
		close(s.closed)
		rest.Close()
		ops.Close()
	})
	return s
}

func numbersFirst(a, b any) int {
	x, xn := a.(float64)
	y, yn := b.(float64)
	switch {
	case xn && yn:
		return cmp.Compare(x, y)
	case xn:
		return -1
	case yn:
		return 1
	}
	return cmp.Compare(a.(string), b.(string))
}

// Table adds a table whose records are served below path and identified by the
// attribute key.
func (s *Server) Table(database, path, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables[path] = &table{database: database, path: path, key: key}
}

// Put stores a record (key: a string or float64) with one blob, as a new version.
func (s *Server) Put(path string, key any, fields map[string]any, attribute string, data []byte) {
	s.PutVersion(path, key, fields, attribute, data, 0)
}

// PutVersion is Put with the version that another node gave to the record; 0 makes a
// new one.
func (s *Server) PutVersion(path string, key any, fields map[string]any, attribute string, data []byte, version float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == 0 {
		s.clock++
		version = s.clock
	}
	t := s.tables[path]
	r := &record{key: key, fields: fields, version: version, blobs: map[string]*blob{attribute: {data: data, mime: "text/plain", adopted: -1}}}
	i, found := slices.BinarySearchFunc(t.records, key, func(r *record, k any) int { return s.opts.Less(r.key, k) })
	if found {
		t.records[i] = r
		return
	}
	t.records = slices.Insert(t.records, i, r)
}

// Version is that of a record; 0 when there is none.
func (s *Server) Version(path string, key any) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.find(path, key); r != nil {
		return r.version
	}
	return 0
}

// Touch gives a record a new version, as an update of another attribute does.
func (s *Server) Touch(path string, key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	s.find(path, key).version = s.clock
}

// Forget takes a record away.
func (s *Server) Forget(path string, key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[path]
	t.records = slices.DeleteFunc(t.records, func(r *record) bool { return r.key == key })
}

// Damage does damage to a blob; None heals it.
func (s *Server) Damage(path string, key any, attribute string, d Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.find(path, key).blobs[attribute]
	b.damage, b.servings, b.adopted = d, 0, -1
}

// DamageOf is what is wrong with a blob now.
func (s *Server) DamageOf(path string, key any, attribute string) Damage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(path, key).blobs[attribute].damage
}

// Hang makes the node leave every request without an answer, or ends that.
func (s *Server) Hang(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang = on
}

// Fail answers every request with status; 0 ends that.
func (s *Server) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// Peer connects the node with another one, from which it can repair itself.
func (s *Server) Peer(other *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = append(s.peers, other)
}

// BlobFailures sets what cluster_status tells as blobReplicationFailures.
func (s *Server) BlobFailures(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = n
}

// Requests is the log of both ports, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// find is called with s.mu held.
func (s *Server) find(path string, key any) *record {
	t := s.tables[path]
	if t == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(t.records, key, func(r *record, k any) int { return s.opts.Less(r.key, k) })
	if !found {
		return nil
	}
	return t.records[i]
}

// etag is the version of a record in a notation of its own.
func (r *record) etag() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(r.version))
	return `"` + base64.RawURLEncoding.EncodeToString(b[:]) + `"`
}

// size is what the record says of a blob's length: a read may have changed it.
func (b *blob) size() int64 {
	if b.adopted >= 0 {
		return b.adopted
	}
	return int64(len(b.data))
}

// shown is how a blob attribute stands in a record's JSON: it never opens the file.
func (b *blob) shown() any {
	switch {
	case b.damage == NullAttribute:
		return nil
	case len(b.data) < 8192 && b.mime == "text/plain":
		return string(b.data)
	case b.mime == "text/plain":
		return fmt.Sprintf("[blob: %s, %d bytes]", b.mime, b.size())
	}
	return map[string]any{"description": "blob of type " + b.mime}
}

// MIME sets a blob's type; only text shows its size in a record.
func (s *Server) MIME(path string, key any, attribute, mime string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find(path, key).blobs[attribute].mime = mime
}
