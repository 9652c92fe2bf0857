package harper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sync"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Store is the nodes of a collection as an objstore.Reader. Stat, Restat and Probe are
// full GETs whose bytes are counted and digested; their Attrs tell the record's version
// as ETag. What a node shows to be damaged is a *reconcile.Judged, a blob that it says it
// does not have an error that matches objstore.ErrNotExist; both only after a control on
// the same node. It is not to be put behind a retrying reader: a blob found damaged is
// asked for once a look.
type Store struct{ c *Cluster }

var _ objstore.Reader = (*Store)(nil)

// Stat implements objstore.Statter.
func (s *Store) Stat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.ask(ctx, "stat", loc, false)
}

// Restat implements objstore.Restatter. Damage that no Stat before has met is undecided
// (seen_damaged_once), and damage of another version of the record superseded.
func (s *Store) Restat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return s.ask(ctx, "restat", loc, true)
}

// Probe implements objstore.Prober. Every look is a GET already: asked right after a Stat
// or Restat it repeats that answer, once, instead of reading the blob again.
func (s *Store) Probe(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	if a, ok := s.c.recent.take(loc); ok {
		return a.attrs, a.err
	}
	return s.ask(ctx, "probe", loc, false)
}

func (s *Store) ask(ctx context.Context, op string, loc objstore.Location, second bool) (objstore.Attrs, error) {
	u, err := s.c.unit(loc)
	if err != nil {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: err}
	}
	j := &judging{c: s.c, op: op, loc: loc, u: u, second: second}
	at, err := j.judge(ctx)
	if op != "probe" && ctx.Err() == nil {
		s.c.recent.put(loc, recentAnswer{at, err})
	}
	return at, err
}

// Get implements objstore.Getter. Nodes send whole bodies only: what r leaves out is read
// and thrown away. A range from the end needs a length, which a blob that is being
// written does not have (objstore.ErrUnsupported).
func (s *Store) Get(ctx context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	fail := func(status int, err error) (io.ReadCloser, objstore.Attrs, error) {
		return nil, objstore.Attrs{}, &objstore.Error{Op: "get", Location: loc, Status: status, Err: err}
	}
	u, err := s.c.unit(loc)
	if err != nil {
		return fail(0, err)
	}
	if err := r.Valid(); err != nil {
		return fail(0, err)
	}
	if u.attr == "" {
		return fail(0, fmt.Errorf("no blob attribute: %w", fs.ErrInvalid))
	}
	rep, err := u.node.get(ctx, u.target(), how{})
	if err != nil {
		return fail(0, err)
	}
	if err := replyError(rep); err != nil {
		rep.body.Close()
		return fail(rep.status, err)
	}
	at := objstore.Attrs{Location: loc, Size: rep.length, ETag: rep.etag(), ServerTime: rep.date}
	body, err := cut(rep.body, rep.length, r)
	if err != nil {
		rep.body.Close()
		return fail(rep.status, err)
	}
	return body, at, nil
}

// replyError is nil for a 200 that a node sends.
func replyError(r *reply) error {
	switch byStatus(r) {
	case whole:
		return nil
	case denied:
		return objstore.ErrDenied
	case throttled, inFlight:
		return objstore.ErrThrottled
	case absent:
		return errAbsentUnproven
	}
	return errors.New("the answer is no blob")
}

// errAbsentUnproven is not objstore.ErrNotExist: a single 404 without a control says
// nothing yet.
var errAbsentUnproven = errors.New("no such blob, says an answer without a control")

// cut makes the body of a range out of a whole one.
func cut(body io.ReadCloser, length int64, r objstore.Range) (io.ReadCloser, error) {
	if r == (objstore.Range{}) {
		return body, nil
	}
	begin, end := r.Offset, r.Offset+r.Length
	switch {
	case length >= 0:
		var err error
		if begin, end, err = r.Bounds(length); err != nil {
			return nil, err
		}
	case r.Offset < 0:
		return nil, fmt.Errorf("a range from the end of a blob without a length: %w", objstore.ErrUnsupported)
	case r.Length == 0:
		end = -1
	}
	if begin > 0 {
		if _, err := io.CopyN(io.Discard, body, begin); err != nil && (err != io.EOF || length >= 0) {
			return nil, err
		}
	}
	if end < 0 || end == length {
		return body, nil
	}
	return limited{io.LimitReader(body, end-begin), body}, nil
}

type limited struct {
	io.Reader
	io.Closer
}

// GetVersion implements objstore.VersionGetter: nodes give out no older bytes
// (objstore.ErrUnsupported).
func (s *Store) GetVersion(_ context.Context, loc objstore.Location, _ string, _ objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return nil, objstore.Attrs{}, &objstore.Error{Op: "get", Location: loc, Err: objstore.ErrUnsupported}
}

// List implements objstore.Lister: blobs cannot be listed, only records enumerated
// (objstore.ErrUnsupported).
func (s *Store) List(_ context.Context, prefix objstore.Location, _ string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		yield(objstore.Attrs{}, &objstore.Error{Op: "list", Location: prefix, Err: objstore.ErrUnsupported})
	}
}

// Versions implements objstore.Versioner: nodes keep none.
func (s *Store) Versions(context.Context, objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return func(func(objstore.Attrs, error) bool) {}
}

// Versioning implements objstore.VersioningTeller: nodes keep none.
func (s *Store) Versioning(context.Context, objstore.Location) (objstore.Versioning, error) {
	return objstore.VersioningNever, nil
}

// maxRecent bounds the answers kept for a Probe.
const maxRecent = 1024

type recentAnswer struct {
	attrs objstore.Attrs
	err   error
}

// recents are the last answers of Stat and Restat.
type recents struct {
	mu    sync.Mutex
	m     map[objstore.Location]recentAnswer
	order []objstore.Location
}

func (r *recents) put(loc objstore.Location, a recentAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[objstore.Location]recentAnswer{}
	}
	r.m[loc] = a
	r.order = append(r.order, loc)
	if len(r.order) > maxRecent {
		delete(r.m, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *recents) take(loc objstore.Location) (recentAnswer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.m[loc]
	delete(r.m, loc)
	return a, ok
}
