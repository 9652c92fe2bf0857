package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rocketkeep/reconcile/internal/lancestore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
)

// Writers gives stores that can be written. Only repairs hold one.
type Writers interface {
	Stores
	Writer(ctx context.Context, root objstore.Location) (objstore.Writer, error)
}

// committing is a dataset root that can be committed to.
type committing struct {
	*rooted
	w objstore.Writer
}

var _ lance.CommitStore = (*committing)(nil)

// errExist lets package lance see that an object is there.
type errExist struct{ error }

func (e errExist) Is(target error) bool { return target == fs.ErrExist }
func (e errExist) Unwrap() error        { return e.error }

// Create implements lance.CommitStore.
func (c *committing) Create(ctx context.Context, name string, data []byte) error {
	_, err := c.w.Create(ctx, c.root.Join(name), bytes.NewReader(data), int64(len(data)))
	var se *objstore.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objstore.ErrExist):
		return errExist{err}
	case errors.As(err, &se) && notStored(se):
		return fmt.Errorf("%w: %w", lance.ErrNotStored, err)
	}
	return err
}

// notStored reports whether an answer to a conditional PUT proves that nothing was
// stored: the store understood the request and would not have it.
func notStored(e *objstore.Error) bool {
	switch e.Status {
	case 400, 401, 403, 404, 405, 411, 413, 501:
		return true
	}
	return false
}

// Replace implements lance.CommitStore.
func (c *committing) Replace(ctx context.Context, name, etag string, data []byte) error {
	_, err := c.w.Replace(ctx, c.root.Join(name), etag, bytes.NewReader(data), int64(len(data)))
	return lancestore.Translate(err)
}
