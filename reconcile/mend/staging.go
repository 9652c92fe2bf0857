package mend

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// staged is a copy on local disk, with its digests. It is a reconcile.Copy.
type staged struct {
	f    *os.File
	size int64
	sums map[string]hash.Hash
	room *room // nil when it takes none of the mender's
}

// room is a share of what may be staged.
type room struct {
	bytes int64
	once  sync.Once
	m     *Mender
}

// room waits for the room that a copy needs: as many bytes as are recorded, all of it
// when none are. A job waits only while it holds nothing, so that none waits for ever.
func (m *Mender) room(ctx context.Context, recorded int64) (*room, error) {
	n := m.opts.Max
	if recorded > n {
		return nil, fmt.Errorf("%d bytes: %w", recorded, errTooLarge)
	}
	if recorded > 0 {
		n = recorded
	}
	if err := m.staging.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	return &room{bytes: n, m: m}, nil
}

func (r *room) free() { r.once.Do(func() { r.m.staging.Release(r.bytes) }) }

// errTooLarge: the copy does not fit into staging.
var errTooLarge = errors.New("larger than what may be staged (work.max)")

// stage writes a whole body to a file of its own. promised is what the source says
// the size is (objstore.Unknown when it says nothing); a body of another length is
// an error.
func stage(ctx context.Context, dir string, most int64, body io.Reader, promised int64) (*staged, error) {
	if promised > most {
		return nil, fmt.Errorf("%d bytes: %w", promised, errTooLarge)
	}
	f, err := os.CreateTemp(dir, "copy-*")
	if err != nil {
		return nil, fmt.Errorf("make a file for the copy: %w", err)
	}
	// Nobody but this process needs its name.
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &staged{f: f, sums: map[string]hash.Hash{}}
	ws := []io.Writer{f}
	for _, alg := range []string{"sha256", "crc32c", "md5"} {
		s.sums[alg] = reconcile.NewHash(alg)
		ws = append(ws, s.sums[alg])
	}
	n, err := io.Copy(io.MultiWriter(ws...), io.LimitReader(&untilDone{ctx, body}, most+1))
	s.size = n
	switch {
	case err != nil:
	case n > most:
		err = errTooLarge
	case promised != objstore.Unknown && n != promised:
		err = fmt.Errorf("%w: %d bytes came of %d", errShort, n, promised)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// errShort: the source sent less than it promised.
var errShort = errors.New("not what was promised")

// readErr remembers an error of the source, as opposed to one of the staging.
type readErr struct {
	r   io.Reader
	err error
}

func (e *readErr) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}

// untilDone ends a copy when the context does.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// Close gives the bytes up. It may be called again.
func (s *staged) Close() {
	_ = s.f.Close()
	if s.room != nil {
		s.room.free()
	}
}

// ReadAt implements io.ReaderAt.
func (s *staged) ReadAt(p []byte, off int64) (int, error) { return s.f.ReadAt(p, off) }

// Size implements reconcile.Copy.
func (s *staged) Size() int64 { return s.size }

// Sum implements reconcile.Copy.
func (s *staged) Sum(alg string) string {
	h, ok := s.sums[alg]
	if !ok {
		return ""
	}
	return reconcile.Checksum(alg, h)
}

func (s *staged) hex() string { return hex.EncodeToString(s.sums["sha256"].Sum(nil)) }

// body reads the copy from its start.
func (s *staged) body() io.ReadSeeker { return io.NewSectionReader(s.f, 0, s.size) }
