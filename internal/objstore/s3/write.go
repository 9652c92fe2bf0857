package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

const (
	// maxPut is the largest object, and the largest part of one, that S3 takes in one
	// PUT; maxParts is how many parts an object may have. Source: Amazon S3 User Guide,
	// "Amazon S3 multipart upload limits".
	maxPut   = 5 << 30
	maxParts = 10_000
	// minPart is a size of parts that costs little memory and few requests.
	minPart = 64 << 20
	// maxBuffer is the largest body that is kept in memory when it cannot be read
	// twice; a larger one goes through a temporary file.
	maxBuffer = 16 << 20
)

// Create implements [objstore.Creator] with If-None-Match, sent once. A body above
// Options.MaxPut goes up in parts; see putParts.
func (s *Store) Create(ctx context.Context, loc objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	return s.put(ctx, "create", loc, body, size, condition{noneMatch: true})
}

// Replace implements [objstore.Replacer] with If-Match, sent once.
func (s *Store) Replace(ctx context.Context, loc objstore.Location, ifMatch string, body io.Reader, size int64) (objstore.Attrs, error) {
	if ifMatch == "" || ifMatch == "*" {
		return objstore.Attrs{}, &objstore.Error{Op: "replace", Location: loc, Err: fmt.Errorf("no ETag to match: %w", fs.ErrInvalid)}
	}
	return s.put(ctx, "replace", loc, body, size, condition{match: ifMatch})
}

// condition is what must hold for a write; the zero value is nothing.
type condition struct {
	noneMatch bool   // no object is there
	match     string // the object has this ETag
}

// headers are the values of If-None-Match and If-Match; nil is no header.
func (c condition) headers() (noneMatch, match *string) {
	if c.noneMatch {
		noneMatch = aws.String("*")
	}
	if c.match != "" {
		match = aws.String(`"` + c.match + `"`)
	}
	return noneMatch, match
}

func (s *Store) put(ctx context.Context, op string, loc objstore.Location, body io.Reader, size int64, cond condition) (objstore.Attrs, error) {
	if err := s.own(op, loc, true); err != nil {
		return objstore.Attrs{}, err
	}
	refuse := func(err error) (objstore.Attrs, error) {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: err}
	}
	parts := size > s.client.maxPut()
	if parts {
		if err := s.client.partsAllowed(size, cond); err != nil {
			return refuse(err)
		}
	}
	// The digest of the body is signed, so it is read twice. Without it, servers
	// exist that store what has arrived of a request that breaks off.
	seeker, done, err := twice(ctx, body, size)
	if err != nil {
		return refuse(err)
	}
	defer done()
	if err := ctx.Err(); err != nil {
		return refuse(err)
	}
	if parts {
		return s.putParts(ctx, op, loc, seeker, size, cond)
	}
	in := &s3.PutObjectInput{Bucket: aws.String(loc.Bucket), Key: aws.String(loc.Key), ContentLength: aws.Int64(size), Body: seeker}
	in.IfNoneMatch, in.IfMatch = cond.headers()
	out, err := s.sdk.PutObject(ctx, in)
	if err != nil {
		return objstore.Attrs{}, s.fromSDK(ctx, op, loc, err)
	}
	a := attrs(loc, header(out.ResultMetadata))
	a.Size = size
	return a, nil
}

// twice makes a body of exactly size bytes readable more than once. One that can seek
// is taken as it is, from its present position; done gives room back.
func twice(ctx context.Context, body io.Reader, size int64) (seeker io.ReadSeeker, done func(), err error) {
	if size < 0 {
		return nil, nil, fmt.Errorf("size %d: %w", size, fs.ErrInvalid)
	}
	if seeker, ok := body.(io.ReadSeeker); ok {
		return seeker, func() {}, checkLength(seeker, size)
	}
	return stage(ctx, body, size)
}

// checkLength is nil when exactly size bytes are left to read.
func checkLength(r io.ReadSeeker, size int64) error {
	at, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("seek body: %w", err)
	}
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("seek body: %w", err)
	}
	if _, err := r.Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("seek body: %w", err)
	}
	if end-at != size {
		return fmt.Errorf("body has %d bytes, not %d: %w", end-at, size, fs.ErrInvalid)
	}
	return nil
}

// stage makes a body of exactly size bytes readable twice; done gives the room back.
func stage(ctx context.Context, body io.Reader, size int64) (staged io.ReadSeeker, done func(), err error) {
	if size <= maxBuffer {
		var b bytes.Buffer
		b.Grow(int(size))
		if err := copyExactly(ctx, &b, body, size); err != nil {
			return nil, nil, err
		}
		return bytes.NewReader(b.Bytes()), func() {}, nil
	}
	f, err := os.CreateTemp("", "reconcile-put-")
	if err != nil {
		return nil, nil, fmt.Errorf("stage body: %w", err)
	}
	done = func() {
		_ = f.Close() // a temporary file: what it holds is in the store or nowhere
		_ = os.Remove(f.Name())
	}
	err = copyExactly(ctx, f, body, size)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("stage body: %w", err)
	}
	return f, done, nil
}

// copyExactly fails unless body has exactly size bytes.
func copyExactly(ctx context.Context, w io.Writer, body io.Reader, size int64) error {
	n, err := io.Copy(w, io.LimitReader(&ctxReader{ctx, body}, size))
	if err != nil {
		return err
	}
	if n < size {
		return fmt.Errorf("body ends after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
	}
	if m, _ := io.ReadFull(body, make([]byte, 1)); m > 0 {
		return fmt.Errorf("body goes on after %d bytes: %w", size, fs.ErrInvalid)
	}
	return nil
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
