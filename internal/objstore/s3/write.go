package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

const (
	// maxPut is the largest object that S3 takes in one PUT.
	maxPut = 5 << 30
	// maxBuffer is the largest body that is kept in memory so that its digest can be
	// signed, when it cannot be read twice.
	maxBuffer = 16 << 20
)

// Create implements [objstore.Creator] with If-None-Match, sent once.
func (s *Store) Create(ctx context.Context, loc objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	return s.put(ctx, "create", loc, body, size, func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
}

// Replace implements [objstore.Replacer] with If-Match, sent once.
func (s *Store) Replace(ctx context.Context, loc objstore.Location, ifMatch string, body io.Reader, size int64) (objstore.Attrs, error) {
	if ifMatch == "" || ifMatch == "*" {
		return objstore.Attrs{}, &objstore.Error{Op: "replace", Location: loc, Err: fmt.Errorf("no ETag to match: %w", fs.ErrInvalid)}
	}
	return s.put(ctx, "replace", loc, body, size, func(in *s3.PutObjectInput) { in.IfMatch = aws.String(`"` + ifMatch + `"`) })
}

func (s *Store) put(ctx context.Context, op string, loc objstore.Location, body io.Reader, size int64, condition func(*s3.PutObjectInput)) (objstore.Attrs, error) {
	if err := s.own(op, loc, true); err != nil {
		return objstore.Attrs{}, err
	}
	refuse := func(err error) (objstore.Attrs, error) {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: err}
	}
	if size < 0 {
		return refuse(fmt.Errorf("size %d: %w", size, fs.ErrInvalid))
	}
	if size > maxPut {
		return refuse(fmt.Errorf("%d bytes in one request: %w", size, objstore.ErrUnsupported))
	}
	in := &s3.PutObjectInput{Bucket: aws.String(loc.Bucket), Key: aws.String(loc.Key), ContentLength: aws.Int64(size)}
	condition(in)
	var opts []func(*s3.Options)
	exact := &exactReader{r: body, left: size}
	switch seeker, ok := body.(io.ReadSeeker); {
	case ok:
		if err := checkLength(seeker, size); err != nil {
			return refuse(err)
		}
		in.Body = seeker
	case size <= maxBuffer:
		data, err := io.ReadAll(exact)
		if err != nil {
			return refuse(err)
		}
		in.Body = bytes.NewReader(data)
	default:
		// Read once, so its digest cannot be signed beforehand.
		in.Body = exact
		opts = append(opts, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
	}
	if err := ctx.Err(); err != nil {
		return refuse(err)
	}
	out, err := s.sdk.PutObject(ctx, in, opts...)
	if exact.err != nil {
		// The request broke off because of the body; what the store made of it is unknown.
		return refuse(exact.err)
	}
	if err != nil {
		return objstore.Attrs{}, s.fromSDK(ctx, op, loc, err)
	}
	a := attrs(loc, header(out.ResultMetadata))
	a.Size = size
	return a, nil
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

// exactReader fails, before it hands out its last bytes, unless the body has exactly
// as many as promised: a request that ends early stores nothing.
type exactReader struct {
	r    io.Reader
	left int64
	err  error
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	if e.left > 0 && int64(len(p)) > e.left {
		p = p[:e.left]
	}
	if e.left == 0 {
		return 0, e.end()
	}
	n, err := e.r.Read(p)
	e.left -= int64(n)
	switch {
	case e.left == 0:
		if err == nil || err == io.EOF {
			err = e.end()
		}
		if err == io.EOF {
			return n, nil
		}
		e.err = err
		return 0, err
	case err == io.EOF:
		e.err = fmt.Errorf("body ends %d bytes early: %w", e.left, io.ErrUnexpectedEOF)
		return n, e.err
	case err != nil:
		e.err = err
	}
	return n, err
}

// end is io.EOF when the body is at its end.
func (e *exactReader) end() error {
	n, err := io.ReadFull(e.r, make([]byte, 1))
	if n > 0 {
		e.err = fmt.Errorf("body goes on after what was promised: %w", fs.ErrInvalid)
		return e.err
	}
	if !errors.Is(err, io.EOF) {
		e.err = err
		return err
	}
	return io.EOF
}
