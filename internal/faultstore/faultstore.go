// Package faultstore is an object store that misbehaves on purpose: rules choose
// operations, keys and calls, and what goes wrong with them. It also keeps a log of
// operations, so that a test can show every request that a piece of work costs.
package faultstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Rule makes an Effect happen to some calls.
type Rule struct {
	// Op is a list of operations with commas between: stat, restat, probe, get,
	// getversion, list, versions, versioning, create, replace, overmarker. Empty is all.
	Op string
	// Key selects by key (a listing's prefix). With one of *?[ in it, it is a
	// [path.Match] pattern that the key or any tail of it after a "/" must match;
	// otherwise a text that the key must hold. Empty is any.
	Key string
	// From is the first of the selected calls, counted from 1, that is meant (0 is 1),
	// Count how many are (0 is all from there).
	From, Count int
	Effect      Effect
}

// Effect is what happens to a call. The zero value does nothing.
type Effect struct {
	kind  kind
	err   error
	reply *objstore.Error
	delay time.Duration
	bytes int64
}

type kind int

const (
	none kind = iota
	fail
	status
	delay
	hang
	shortBody
	lostReply
)

// Fail answers with err instead of asking the store.
func Fail(err error) Effect { return Effect{kind: fail, err: err} }

// NotExist lies that there is no such object.
func NotExist() Effect { return Status(http.StatusNotFound, "NoSuchKey") }

// Status answers as an HTTP store would with this status and code.
func Status(code int, name string) Effect {
	return Effect{kind: status, reply: &objstore.Error{Status: code, Code: name}}
}

// Answer answers with a copy of e, its operation and location filled in.
func Answer(e objstore.Error) Effect { return Effect{kind: status, reply: &e} }

// Delay waits, then asks the store.
func Delay(d time.Duration) Effect { return Effect{kind: delay, delay: d} }

// Hang gives no answer until the context ends.
func Hang() Effect { return Effect{kind: hang} }

// ShortBody cuts the body of a Get or GetVersion after n bytes, with io.ErrUnexpectedEOF; a listing
// after n entries.
func ShortBody(n int64) Effect { return Effect{kind: shortBody, bytes: n} }

// LostReply lets the store do its work and answers with err instead of its answer:
// what a broken connection does to a write.
func LostReply(err error) Effect { return Effect{kind: lostReply, err: err} }

// Store puts rules before a store. It is safe for concurrent use.
type Store struct {
	inner objstore.Writer

	mu    sync.Mutex
	rules []*rule
	log   []string
	calls map[string]int
}

type rule struct {
	Rule
	seen int
}

var _ objstore.Writer = (*Store)(nil)

// New puts rules before inner. The first rule that means a call decides.
func New(inner objstore.Writer, rules ...Rule) *Store {
	s := &Store{inner: inner, calls: map[string]int{}}
	s.Add(rules...)
	return s
}

// Add appends rules; each begins to count now.
func (s *Store) Add(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		s.rules = append(s.rules, &rule{Rule: r})
	}
}

// ClearRules forgets all rules.
func (s *Store) ClearRules() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Log is every call so far, in order: "stat data/x.lance", "get a 0+8" (offset and
// length), "get a -8" (the last eight bytes), "getversion a v3 0+8", "overmarker a v4",
// "list data/", "list data/ /" (one level).
func (s *Store) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

// ClearLog forgets log and counts.
func (s *Store) ClearLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.calls = nil, map[string]int{}
}

// Calls is how often an operation was called.
func (s *Store) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// call notes a call and finds what shall happen to it.
func (s *Store) call(op, key, detail string) Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	line := op + " " + key
	if detail != "" {
		line += " " + detail
	}
	s.log = append(s.log, line)
	for _, r := range s.rules {
		if !r.selects(op, key) {
			continue
		}
		r.seen++
		from := max(r.From, 1)
		if r.seen < from || r.Count > 0 && r.seen >= from+r.Count {
			continue
		}
		return r.Effect
	}
	return Effect{}
}

func (r *rule) selects(op, key string) bool {
	if r.Op != "" {
		found := false
		for o := range strings.SplitSeq(r.Op, ",") {
			found = found || strings.TrimSpace(o) == op
		}
		if !found {
			return false
		}
	}
	return MatchKey(r.Key, key)
}

// MatchKey reports whether a key is meant by a pattern, as [Rule] says.
func MatchKey(pattern, key string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return strings.Contains(key, pattern)
	}
	for {
		if ok, err := path.Match(pattern, key); ok && err == nil {
			return true
		}
		_, rest, more := strings.Cut(key, "/")
		if !more {
			return false
		}
		key = rest
	}
}

// before does what an effect does before the store is asked. A non-nil error is the
// answer.
func (e Effect) before(ctx context.Context, op string, loc objstore.Location) error {
	end := func() error { return &objstore.Error{Op: op, Location: loc, Err: ctx.Err()} }
	switch e.kind {
	case fail:
		return e.err
	case status:
		return e.answer(op, loc)
	case hang:
		<-ctx.Done()
		return end()
	case delay:
		t := time.NewTimer(e.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return end()
		}
	}
	return nil
}

// after replaces the store's answer.
func (e Effect) after(err error) error {
	if e.kind == lostReply {
		return e.err
	}
	return err
}

func (e Effect) answer(op string, loc objstore.Location) error {
	r := *e.reply
	r.Op, r.Location = op, loc
	if r.Err == nil {
		r.Err = sentinel(r.Status, r.Code)
	}
	return &r
}

// sentinel is what a store would make of a status and code.
func sentinel(status int, code string) error {
	switch {
	case code == "NoSuchBucket":
		return objstore.ErrNoSuchBucket
	case code == "InvalidObjectState":
		return objstore.ErrArchived
	case code == "SlowDown" || code == "ServerBusy" || status == 429 || status == 503:
		return objstore.ErrThrottled
	case status == 404:
		return objstore.ErrNotExist
	case status == 401 || status == 403:
		return objstore.ErrDenied
	case status == 409 || status == 412:
		return objstore.ErrExist
	case status == 501:
		return objstore.ErrUnsupported
	}
	return errors.New("unexpected answer")
}

func (s *Store) attrs(ctx context.Context, op, detail string, loc objstore.Location, ask func(context.Context, objstore.Location) (objstore.Attrs, error)) (objstore.Attrs, error) {
	e := s.call(op, loc.Key, detail)
	if err := e.before(ctx, op, loc); err != nil {
		return objstore.Attrs{}, err
	}
	a, err := ask(ctx, loc)
	if err = e.after(err); err != nil {
		return objstore.Attrs{}, err
	}
	return a, nil
}

// Stat implements [objstore.Statter].
func (s *Store) Stat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.attrs(ctx, "stat", "", loc, s.inner.Stat)
}

// Restat implements [objstore.Restatter].
func (s *Store) Restat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.attrs(ctx, "restat", "", loc, s.inner.Restat)
}

// Probe implements [objstore.Prober].
func (s *Store) Probe(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.attrs(ctx, "probe", "", loc, s.inner.Probe)
}

// Create implements [objstore.Creator].
func (s *Store) Create(ctx context.Context, loc objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	return s.attrs(ctx, "create", "", loc, func(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
		return s.inner.Create(ctx, loc, body, size)
	})
}

// Replace implements [objstore.Replacer].
func (s *Store) Replace(ctx context.Context, loc objstore.Location, ifMatch string, body io.Reader, size int64) (objstore.Attrs, error) {
	return s.attrs(ctx, "replace", "", loc, func(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
		return s.inner.Replace(ctx, loc, ifMatch, body, size)
	})
}

// CreateOverMarker implements [objstore.MarkerCreator].
func (s *Store) CreateOverMarker(ctx context.Context, loc objstore.Location, markerVersionID string, body io.Reader, size int64) (objstore.Attrs, error) {
	return s.attrs(ctx, "overmarker", markerVersionID, loc, func(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
		return s.inner.CreateOverMarker(ctx, loc, markerVersionID, body, size)
	})
}

func rangeText(r objstore.Range) string {
	switch {
	case r == objstore.Range{}:
		return ""
	case r.Offset < 0:
		return fmt.Sprint(r.Offset)
	case r.Length == 0:
		return fmt.Sprintf("%d+", r.Offset)
	}
	return fmt.Sprintf("%d+%d", r.Offset, r.Length)
}

// Get implements [objstore.Getter].
func (s *Store) Get(ctx context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return s.get(ctx, "get", rangeText(r), loc, func() (io.ReadCloser, objstore.Attrs, error) { return s.inner.Get(ctx, loc, r) })
}

// GetVersion implements [objstore.VersionGetter].
func (s *Store) GetVersion(ctx context.Context, loc objstore.Location, versionID string, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	detail := strings.TrimSpace(versionID + " " + rangeText(r))
	return s.get(ctx, "getversion", detail, loc, func() (io.ReadCloser, objstore.Attrs, error) {
		return s.inner.GetVersion(ctx, loc, versionID, r)
	})
}

func (s *Store) get(ctx context.Context, op, detail string, loc objstore.Location, open func() (io.ReadCloser, objstore.Attrs, error)) (io.ReadCloser, objstore.Attrs, error) {
	e := s.call(op, loc.Key, detail)
	if err := e.before(ctx, op, loc); err != nil {
		return nil, objstore.Attrs{}, err
	}
	rc, a, err := open()
	if replaced := e.after(err); replaced != nil {
		if rc != nil {
			_ = rc.Close() // its answer is lost
		}
		return nil, objstore.Attrs{}, replaced
	}
	if e.kind == shortBody {
		rc = &short{ReadCloser: rc, op: op, loc: loc, left: e.bytes}
	}
	return rc, a, nil
}

type short struct {
	io.ReadCloser
	op   string
	loc  objstore.Location
	left int64
}

func (b *short) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, &objstore.Error{Op: b.op, Location: b.loc, Err: io.ErrUnexpectedEOF}
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (s *Store) sequence(ctx context.Context, op, detail string, loc objstore.Location, seq func() iter.Seq2[objstore.Attrs, error]) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		e := s.call(op, loc.Key, detail)
		if err := e.before(ctx, op, loc); err != nil {
			yield(objstore.Attrs{}, err)
			return
		}
		if e.kind == lostReply {
			yield(objstore.Attrs{}, e.err)
			return
		}
		n := int64(0)
		for a, err := range seq() {
			if e.kind == shortBody && n == e.bytes {
				yield(objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: io.ErrUnexpectedEOF})
				return
			}
			n++
			if !yield(a, err) {
				return
			}
		}
		if e.kind == shortBody && n <= e.bytes {
			yield(objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: io.ErrUnexpectedEOF})
		}
	}
}

// List implements [objstore.Lister].
func (s *Store) List(ctx context.Context, prefix objstore.Location, delimiter string) iter.Seq2[objstore.Attrs, error] {
	return s.sequence(ctx, "list", delimiter, prefix, func() iter.Seq2[objstore.Attrs, error] { return s.inner.List(ctx, prefix, delimiter) })
}

// Versions implements [objstore.Versioner].
func (s *Store) Versions(ctx context.Context, loc objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return s.sequence(ctx, "versions", "", loc, func() iter.Seq2[objstore.Attrs, error] { return s.inner.Versions(ctx, loc) })
}

// Versioning implements [objstore.VersioningTeller].
func (s *Store) Versioning(ctx context.Context, loc objstore.Location) (objstore.Versioning, error) {
	e := s.call("versioning", loc.Key, "")
	if err := e.before(ctx, "versioning", loc); err != nil {
		return "", err
	}
	v, err := s.inner.Versioning(ctx, loc)
	if err = e.after(err); err != nil {
		return "", err
	}
	return v, nil
}
