// Package lancestore shows the objects below one place of an object store to package
// lance, which knows nothing of object stores.
package lancestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
)

// Objects is what is needed of an object store.
type Objects interface {
	objstore.Getter
	objstore.Lister
}

// Store is the place as a lance.Store: names are relative to it. It remembers the
// newest time that the store said it is. It is safe for concurrent use.
type Store struct {
	objects Objects
	root    objstore.Location

	mu  sync.Mutex
	now time.Time
}

var _ lance.Store = (*Store)(nil)

// New makes the Store of a place. It asks nothing.
func New(objects Objects, root objstore.Location) *Store {
	return &Store{objects: objects, root: root}
}

// Root is the place.
func (s *Store) Root() objstore.Location { return s.root }

// ServerNow is the newest time that the store told in its answers so far (UTC); zero
// when it never did.
func (s *Store) ServerNow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Get implements lance.Store with one GET. An error for an absent object matches
// fs.ErrNotExist, as [Translate] has it.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, lance.Object, error) {
	rg := objstore.Range{Offset: off, Length: max(n, 0)}
	switch {
	case off < 0:
		rg.Length = 0
	case n == 0:
		rg.Length = 1 // a range of no bytes cannot be asked for; one byte tells as much
	}
	body, at, err := s.objects.Get(ctx, s.root.Join(name), rg)
	if err != nil {
		return nil, lance.Object{}, Translate(err)
	}
	return body, s.object(name, at), nil
}

// List implements lance.Store. What a store lists outside of the place is an error.
func (s *Store) List(ctx context.Context, prefix, delimiter string) iter.Seq2[lance.Object, error] {
	return func(yield func(lance.Object, error) bool) {
		for at, err := range s.objects.List(ctx, s.root.Join(prefix), delimiter) {
			if err != nil {
				// A listing that answers "no such object" is no listing: what is not
				// there lists as empty.
				yield(lance.Object{}, err)
				return
			}
			name, ok := at.Location.Rel(s.root)
			if !ok {
				yield(lance.Object{}, fmt.Errorf("list %s: the store answers with %s, which is not below it", s.root, at.Location))
				return
			}
			if !yield(s.object(name, at), nil) {
				return
			}
		}
	}
}

// object is what lance is told of an object, whose answer may tell the time.
func (s *Store) object(name string, at objstore.Attrs) lance.Object {
	s.mu.Lock()
	if at.ServerTime.After(s.now) {
		s.now = at.ServerTime
	}
	s.mu.Unlock()
	return lance.Object{Name: name, Size: at.Size, ETag: at.ETag, ModTime: at.ModTime, ServerTime: at.ServerTime, Prefix: at.Prefix}
}

// notExist keeps the store's error for everyone else.
type notExist struct{ error }

func (e notExist) Is(target error) bool { return target == fs.ErrNotExist }
func (e notExist) Unwrap() error        { return e.error }

// Translate lets package lance see that an object is absent: an error that matches
// [objstore.ErrNotExist] matches [fs.ErrNotExist] as well. An absent bucket or root is
// no absent object. Any other error, nil included, stays as it is.
func Translate(err error) error {
	if errors.Is(err, objstore.ErrNotExist) && !errors.Is(err, objstore.ErrNoSuchBucket) {
		return notExist{err}
	}
	return err
}
