package tables

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

// rooted shows the objects below one place to package lance, and remembers the
// newest time that the store said it is.
type rooted struct {
	r    objstore.Reader
	root objstore.Location

	mu  sync.Mutex
	now time.Time
}

var _ lance.Store = (*rooted)(nil)

// notExist lets package lance, which knows nothing of objstore, see that an
// object is missing, and keeps the store's error for everyone else.
type notExist struct{ error }

func (e notExist) Is(target error) bool { return target == fs.ErrNotExist }
func (e notExist) Unwrap() error        { return e.error }

func translate(err error) error {
	if errors.Is(err, objstore.ErrNotExist) && !errors.Is(err, objstore.ErrNoSuchBucket) {
		return notExist{err}
	}
	return err
}

// Get implements lance.Store.
func (s *rooted) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, lance.Object, error) {
	if n == 0 && off >= 0 {
		n = 1 // a range of no bytes cannot be asked for; one byte tells as much
	}
	rg := objstore.Range{Offset: off, Length: max(n, 0)}
	if off < 0 {
		rg.Length = 0
	}
	body, at, err := s.r.Get(ctx, s.root.Join(name), rg)
	if err != nil {
		return nil, lance.Object{}, translate(err)
	}
	s.sawTime(at.ServerTime)
	return body, object(name, at), nil
}

// List implements lance.Store.
func (s *rooted) List(ctx context.Context, prefix, delimiter string) iter.Seq2[lance.Object, error] {
	return func(yield func(lance.Object, error) bool) {
		for at, err := range s.r.List(ctx, s.root.Join(prefix), delimiter) {
			if err != nil {
				// A listing that answers "no such object" is no listing: what is not
				// there lists as empty.
				yield(lance.Object{}, err)
				return
			}
			s.sawTime(at.ServerTime)
			name, ok := at.Location.Rel(s.root)
			if !ok {
				yield(lance.Object{}, fmt.Errorf("list %s: the store answers with %s, which is not below it", s.root, at.Location))
				return
			}
			if !yield(object(name, at), nil) {
				return
			}
		}
	}
}

func (s *rooted) sawTime(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.After(s.now) {
		s.now = t
	}
}

// serverNow is the newest time that the store told (UTC); zero when it never did.
func (s *rooted) serverNow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func object(name string, at objstore.Attrs) lance.Object {
	return lance.Object{Name: name, Size: at.Size, ETag: at.ETag, ModTime: at.ModTime, ServerTime: at.ServerTime, Prefix: at.Prefix}
}
