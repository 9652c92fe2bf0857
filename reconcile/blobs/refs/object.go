package refs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

const (
	// chunkSize is what one request reads of a text file. A body is read to its end at
	// once: who takes hours for the records of a file would lose a connection that it
	// lets wait.
	chunkSize  = 4 << 20
	firstChunk = 64 << 10
	// bodyTries is how often a body that breaks off is asked for again; requests
	// without an answer are the store's own to repeat.
	bodyTries = 3
)

// object is one state of one object: reads of another state are ErrChanged.
type object struct {
	ctx  context.Context
	r    objstore.Getter
	at   objstore.Location
	size int64
	tag  string // empty until something was read
}

// tagOf names a state of an object.
func tagOf(a objstore.Attrs) string {
	if a.ETag != "" {
		return a.ETag
	}
	return strconv.FormatInt(a.Size, 10) + "-" + strconv.FormatInt(a.ModTime.UnixNano(), 10)
}

// read fills p from off on, and gives fewer bytes only at the end of the object; with
// off -len(p) it gives the last bytes.
func (o *object) read(p []byte, off int64) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	for try := 1; ; try++ {
		var body bool
		n, body, err = o.readOnce(p, off)
		var e *objstore.Error
		again := body && o.ctx.Err() == nil && (errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &e) && e.Retryable())
		if !again || try == bodyTries {
			return n, err
		}
	}
}

// readOnce is one request. body reports that the error is one of reading its answer.
func (o *object) readOnce(p []byte, off int64) (n int, body bool, err error) {
	rg := objstore.Range{Offset: off, Length: int64(len(p))}
	if off < 0 {
		rg.Length = 0
	}
	rc, a, err := o.r.Get(o.ctx, o.at, rg)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, rc.Close()) }()
	if o.tag == "" {
		o.tag, o.size = tagOf(a), a.Size
	}
	if tagOf(a) != o.tag {
		return 0, false, fmt.Errorf("read %s: %w", o.at, ErrChanged)
	}
	if off < 0 {
		off = max(0, a.Size+off)
	}
	n, err = io.ReadFull(rc, p)
	switch {
	case err == nil:
		return n, false, nil
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, true, err
	case o.size != objstore.Unknown && off+int64(n) < o.size:
		return 0, true, fmt.Errorf("read %s: %d bytes at %d: %w", o.at, len(p), off, io.ErrUnexpectedEOF)
	}
	return n, false, nil // the end of the object
}

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.read(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// text reads an object from its beginning, chunk by chunk.
type text struct {
	o     object
	chunk int
	off   int64 // of what is asked for next
	// buf[pos:] was read and not consumed.
	buf []byte
	pos int
	end bool
}

func openText(ctx context.Context, r objstore.Getter, at objstore.Location, chunk int) (*text, error) {
	if chunk <= 0 {
		chunk = chunkSize
	}
	t := &text{o: object{ctx: ctx, r: r, at: at}, chunk: chunk}
	for len(t.buf) < 4 && !t.end { // what begin looks at
		if err := t.fill(); err != nil {
			return nil, err
		}
	}
	if err := t.begin(); err != nil {
		return nil, fmt.Errorf("read %s: %w", at, err)
	}
	return t, nil
}

// begin takes a byte order mark off and refuses what is no text of ours.
func (t *text) begin() error {
	has := func(prefix string) bool { return len(t.buf) >= len(prefix) && string(t.buf[:len(prefix)]) == prefix }
	switch {
	case has("\xef\xbb\xbf"):
		t.pos = 3
	case has("\xff\xfe"), has("\xfe\xff"):
		return errors.New("the text is UTF-16; UTF-8 is read")
	case has("\x1f\x8b"), has("\x28\xb5\x2f\xfd"), has("BZh"):
		return errors.New("the file is compressed; plain text is read")
	case has("PAR1"):
		return errors.New("the file is Parquet; say parquet: in the configuration")
	}
	return nil
}

// fill reads one chunk more; the first is small, as most files are. It moves what is
// not consumed.
func (t *text) fill() error {
	size := t.chunk
	if t.off == 0 {
		size = min(size, firstChunk)
	}
	rest := copy(t.buf, t.buf[t.pos:])
	if cap(t.buf) < rest+size {
		const spare = 64 << 10 // so that a longer rest needs no new memory
		t.buf = append(make([]byte, 0, rest+size+spare), t.buf[:rest]...)
	}
	t.pos = 0
	t.buf = t.buf[:rest+size]
	n, err := t.o.read(t.buf[rest:], t.off)
	t.buf = t.buf[:rest+n]
	if err != nil {
		return err
	}
	t.off += int64(n)
	t.end = n < size || t.o.size != objstore.Unknown && t.off >= t.o.size
	return nil
}

// ahead gives what was read and not consumed, which may be empty.
func (t *text) ahead() []byte { return t.buf[t.pos:] }

// namedSince is when an object was written, if the store says so and what time it is.
func namedSince(a objstore.Attrs) time.Time {
	if a.ModTime.IsZero() || a.ServerTime.IsZero() || a.ModTime.After(a.ServerTime) {
		return time.Time{}
	}
	return a.ModTime
}
