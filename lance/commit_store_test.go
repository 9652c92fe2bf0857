package lance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"
)

// Answers of a store, as an implementation of CommitStore must give them.
var (
	errExists  = &fs.PathError{Op: "create", Path: "x", Err: fs.ErrExist}                      // 409, 412
	errDenied  = errors.Join(errors.New("HTTP 403"), ErrNotStored)                             // 4xx
	errServer  = errors.New("HTTP 500")                                                        // 5xx
	errNoReply = errors.Join(errors.New("connection reset"), io.ErrUnexpectedEOF)              // no answer
	errBoth    = errors.Join(errors.New("HTTP 412 after HTTP 400"), fs.ErrExist, ErrNotStored) // contradicts itself
)

// answer is what a store does with one PUT.
type answer struct {
	stores bool          // the object is stored at once
	later  time.Duration // … or after this time, if set
	hangs  bool          // the answer comes only when the context ends
	rival  []byte        // somebody else's object is stored instead, at once or later
	err    error
}

// commitStore is a store in memory that does with each PUT what it is told. Names
// that begin with a key of answers get its answers, one after another, then
// success.
type commitStore struct {
	mu      sync.Mutex
	mem     memStore
	answers map[string][]answer
	reads   map[string][]error // of Get, one after another; nil reads
	puts    []string
	onPut   func(name string)
	onList  func()
}

func newCommitStore(objects map[string][]byte) *commitStore {
	return &commitStore{mem: memStore{objects: maps.Clone(objects)}, answers: map[string][]answer{}, reads: map[string][]error{}}
}

func (s *commitStore) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, Object{}, err
	}
	if errs := s.reads[name]; len(errs) > 0 {
		s.reads[name] = errs[1:]
		if errs[0] != nil {
			return nil, Object{}, errs[0]
		}
	}
	return s.mem.Get(ctx, name, off, n)
}

func (s *commitStore) List(ctx context.Context, prefix, delimiter string) iter.Seq2[Object, error] {
	if s.onList != nil {
		s.onList()
	}
	s.mu.Lock()
	snapshot := memStore{objects: maps.Clone(s.mem.objects), listErr: s.mem.listErr}
	s.mu.Unlock()
	return snapshot.List(ctx, prefix, delimiter)
}

func (s *commitStore) next(name string) (answer, bool) {
	for prefix, as := range s.answers {
		if strings.HasPrefix(name, prefix) && len(as) > 0 {
			s.answers[prefix] = as[1:]
			return as[0], true
		}
	}
	return answer{}, false
}

func (s *commitStore) store(name string, data []byte) error {
	if _, taken := s.mem.objects[name]; taken {
		return errExists
	}
	s.mem.objects[name] = bytes.Clone(data)
	return nil
}

func (s *commitStore) Create(ctx context.Context, name string, data []byte) error {
	s.mu.Lock()
	s.puts = append(s.puts, name)
	a, told := s.next(name)
	s.mu.Unlock()
	if s.onPut != nil {
		s.onPut(name)
	}
	if a.hangs {
		<-ctx.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !told {
		return s.store(name, data)
	}
	if a.rival != nil {
		data, a.stores = a.rival, true
	}
	if a.later > 0 {
		time.AfterFunc(a.later, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = s.store(name, data)
		})
	} else if a.stores {
		_ = s.store(name, data)
	}
	return a.err
}

func (s *commitStore) Replace(_ context.Context, name, etag string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts = append(s.puts, "replace "+name)
	a, told := s.next("replace " + name)
	if etag != "e" {
		return errExists
	}
	if !told || a.stores {
		s.mem.objects[name] = bytes.Clone(data)
	}
	return a.err
}

// object is what is stored under a name.
func (s *commitStore) object(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.mem.objects[name])
}

var _ CommitStore = (*commitStore)(nil)

// aTable is a store with version 5 of a table, and a proposal for version 6.
func aTable(t testing.TB) (*commitStore, *Proposal) {
	t.Helper()
	file := plainFile()
	s := newCommitStore(map[string][]byte{
		ManifestName(5, V2):               file,
		ManifestName(4, V2):               []byte("older"),
		"_transactions/4-a792ad67.txn":    []byte("theirs"),
		"_transactions/5-under-way.txn":   []byte("a commit of somebody else"),
		"_versions/.tmp1":                 []byte("x"),
		"data/a":                          []byte("x"),
		"_deletions/1-4-8.arrow":          []byte("x"),
		"_versions/18446744073709551609#": []byte("x"),
	})
	return s, propose(t)(mustDecode(t, file).ProposeDelete([]uint64{2}, "", commitInfo()))
}

// rivalOf is somebody else's version in the place of a proposal.
func rivalOf(t testing.TB) []byte {
	t.Helper()
	info := commitInfo()
	info.UUID = "aaaaaaaa-3c0e-4b3f-9d0e-0123456789ab"
	return propose(t)(mustDecode(t, plainFile()).ProposeDelete([]uint64{0}, "", info)).Manifest()
}
