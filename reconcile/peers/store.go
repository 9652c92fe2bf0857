package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Objects is what a peer needs of an object store. Requests are repeated, and ended
// in time, by the store's own decorators.
type Objects interface {
	objstore.Statter
	objstore.Prober
	objstore.Getter
	objstore.Lister
}

// Store is a peer of the same layout in an object store: what lies at a name below
// the mirrored place lies at the same name below the peer's root.
type Store struct {
	root, mirrors objstore.Location
	src           Objects
	mu            sync.Mutex
	living        bool // the root was seen to hold something
	timing        Timing
	now           func() time.Time
}

var _ reconcile.Peer = (*Store)(nil)

// NewStore makes a peer of a store's root. It asks nothing. What makes no sense
// matches [fs.ErrInvalid]: no root, no clock, or a place that would be its own peer.
func NewStore(root objstore.Location, src Objects, opts Options) (*Store, error) {
	switch {
	case root.Scheme == "" || opts.Mirrors.Scheme == "" || src == nil:
		return nil, invalid("a peer needs a root, its store, and a place that it mirrors")
	case opts.Now == nil:
		return nil, invalid("a peer needs a clock")
	case root.Canonical() == opts.Mirrors.Canonical():
		return nil, invalid(root.Canonical() + " cannot be its own peer")
	}
	return &Store{root: root, mirrors: opts.Mirrors, src: src, timing: opts.Timing.withDefaults(), now: opts.Now}, nil
}

// Name implements [reconcile.Peer]: the canonical URI of the root.
func (s *Store) Name() string { return s.root.Canonical() }

// places are where a copy of the referenced object can lie at the peer: that of its
// own place first, then those of its alternates.
func (s *Store) places(ref reconcile.Reference) []objstore.Location {
	var out []objstore.Location
	add := func(loc objstore.Location) {
		if name, ok := nameBelow(loc, s.mirrors); ok && fits(s.root.Scheme, name) {
			out = append(out, s.root.Join(name))
		}
	}
	add(ref.Location)
	for _, alt := range ref.Alternates {
		add(alt.Location)
	}
	return out
}

// each calls f with every place until one has a copy. It is a no only when every
// place said no.
func (s *Store) each(ctx context.Context, ref reconcile.Reference, f func(objstore.Location) error) error {
	places := s.places(ref)
	if len(places) == 0 {
		return &Error{Peer: s.Name(), Reason: ReasonOutside, Err: reconcile.ErrNotBelow}
	}
	var no, silent error
	for _, at := range places {
		err := f(at)
		switch {
		case err == nil:
			return nil
		case saidNo(err):
			no = err
		case ctx.Err() != nil:
			return s.fail(ctx, err)
		case silent == nil:
			silent = err
		}
	}
	if silent != nil {
		return s.fail(ctx, silent)
	}
	if err := s.alive(ctx); err != nil {
		return err
	}
	return s.fail(ctx, no)
}

// alive reports whether the peer holds anything at all: a root that lists nothing (a
// mount that is away, a replica that was never filled) says no to everything, and none
// of it counts. One listing a pass tells.
func (s *Store) alive(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.living {
		return nil
	}
	for _, err := range s.src.List(ctx, s.root.Dir(), "/") {
		if err != nil {
			return s.fail(ctx, fmt.Errorf("list the peer's root: %w", err))
		}
		s.living = true
		return nil
	}
	return &Error{Peer: s.Name(), Reason: ReasonEmptyRoot, Err: errEmptyRoot}
}

var errEmptyRoot = errors.New("the peer's root lists nothing, so that its no counts for nothing")

// Ask implements [reconcile.Peer]: one HEAD, and after a 404 one GET of a byte,
// whose error code must say that it is the object that is not there. An object in an
// archive tier is there; Attrs.Archived says that it cannot be fetched.
func (s *Store) Ask(ctx context.Context, ref reconcile.Reference) (a objstore.Attrs, err error) {
	err = s.each(ctx, ref, func(at objstore.Location) error {
		a, err = s.src.Stat(ctx, at)
		if saidNo(err) {
			a, err = s.src.Probe(ctx, at)
		}
		return err
	})
	if err != nil {
		return objstore.Attrs{}, err
	}
	return a, nil
}

// Fetch implements [reconcile.Peer] with one GET.
func (s *Store) Fetch(ctx context.Context, ref reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	var body *transfer
	var a objstore.Attrs
	err := s.each(ctx, ref, func(at objstore.Location) error {
		t := s.timing.begin(ctx, s.Name(), s.now)
		rc, attrs, err := s.src.Get(t.ctx, at, objstore.Range{})
		if err != nil {
			t.end()
			return err
		}
		t.carry(rc, attrs.Size, ref.Size)
		body, a = t, attrs
		return nil
	})
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	return body, a, nil
}

// fail says what an error of the store means.
func (s *Store) fail(ctx context.Context, err error) error {
	out := &Error{Peer: s.Name(), Reason: ReasonUnreachable, Err: err}
	var e *objstore.Error
	if errors.As(err, &e) {
		out.Status = e.Status
	}
	v, reason := reconcile.Judge(err)
	switch {
	case ctx.Err() != nil:
		out.Reason, out.Err = ReasonInterrupted, context.Cause(ctx)
	case errors.Is(err, objstore.ErrNoCredentials):
		out.Reason = ReasonNoCredentials
	// Peers have words of their own for what findings say by their verdict.
	case v == reconcile.Missing:
		out.Reason = ReasonNoSuchObject
	case v == reconcile.Denied:
		out.Reason = ReasonDenied
	case v == reconcile.Archived:
		out.Reason = ReasonArchived
	case reason != reconcile.ReasonNoAnswer && reason != reconcile.ReasonBadRequest:
		out.Reason = reason // no_such_bucket, unreachable, bad_credentials, throttled, timeout, server_error
	case out.Status >= 300 && out.Status < 400:
		out.Reason = ReasonRedirect
	case out.Status != 0:
		out.Reason = ReasonStatus
	}
	return out
}
