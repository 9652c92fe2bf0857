package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

func (c *Client) maxPut() int64 {
	if c.opts.MaxPut > 0 {
		return min(c.opts.MaxPut, maxPut)
	}
	return maxPut
}

// partSize is the size of all parts of a body but the last.
func (c *Client) partSize(size int64) int64 {
	part := c.opts.PartSize
	if part <= 0 {
		part = minPart
	}
	return max(part, (size+maxParts-1)/maxParts)
}

// partsAllowed is nil when a body of this size can go up in parts under a condition.
func (c *Client) partsAllowed(size int64, cond condition) error {
	if c.partSize(size) > maxPut {
		return fmt.Errorf("%d bytes are more than %d parts of %d bytes: %w", size, maxParts, int64(maxPut), objstore.ErrUnsupported)
	}
	known := c.opts.MultipartConditions == "true" || c.opts.MultipartConditions != "false" && c.host == ""
	if known || cond == (condition{}) {
		return nil
	}
	return fmt.Errorf("%d bytes are more than one request takes (%d), and this server is not known to hold to conditions when an upload in parts is completed: %w", size, c.maxPut(), objstore.ErrUnsupported)
}

// putParts puts a body in parts, one after another, and completes the upload under
// the condition. Nobody sees any of it before it is completed. A part that fails is
// sent again, which only replaces itself; the completion is sent once.
//
// When it is certain that the upload will not be completed it is aborted: that takes
// back our own parts, which are no object and never were. When the completion got no
// answer, its outcome is unknown and the upload is left alone.
func (s *Store) putParts(ctx context.Context, op string, loc objstore.Location, body io.ReadSeeker, size int64, cond condition) (objstore.Attrs, error) {
	if err := s.holds(ctx, op, loc, cond); err != nil {
		return objstore.Attrs{}, err
	}
	upload, err := s.sdk.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: aws.String(loc.Bucket), Key: aws.String(loc.Key)})
	if err != nil {
		return objstore.Attrs{}, s.fromSDK(ctx, op, loc, err)
	}
	if aws.ToString(upload.UploadId) == "" {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: fmt.Errorf("%w: an upload without id", errUnexpected)}
	}
	in := &s3.CompleteMultipartUploadInput{Bucket: aws.String(loc.Bucket), Key: aws.String(loc.Key), UploadId: upload.UploadId, MultipartUpload: &types.CompletedMultipartUpload{}}
	in.IfNoneMatch, in.IfMatch = cond.headers()
	if in.MultipartUpload.Parts, err = s.sendParts(ctx, op, loc, upload.UploadId, body, size); err == nil {
		// Parts take their time. What can be seen to be in vain is not tried.
		err = s.holds(ctx, op, loc, cond)
	}
	if err == nil && ctx.Err() != nil {
		err = &objstore.Error{Op: op, Location: loc, Err: ctx.Err()}
	}
	if err != nil {
		return objstore.Attrs{}, s.abort(ctx, in, err)
	}
	out, err := s.sdk.CompleteMultipartUpload(ctx, in)
	if err != nil {
		err = s.fromSDK(ctx, op, loc, err)
		var e *objstore.Error
		if errors.As(err, &e) && (errors.Is(err, objstore.ErrExist) || e.Status >= 400 && e.Status < 500) {
			err = s.abort(ctx, in, err)
		}
		return objstore.Attrs{}, err
	}
	a := attrs(loc, header(out.ResultMetadata))
	a.Size, a.ETag = size, unquote(aws.ToString(out.ETag))
	if a.VersionID == "" {
		a.VersionID = aws.ToString(out.VersionId)
	}
	return a, nil
}

// holds looks whether a condition is already seen not to hold. Only the condition on
// the completion decides; a look that gets no answer decides nothing.
func (s *Store) holds(ctx context.Context, op string, loc objstore.Location, cond condition) error {
	if cond == (condition{}) {
		return nil
	}
	a, err := s.headObject(ctx, s.sdk, "stat", loc, "", false)
	switch {
	case err == nil && (cond.noneMatch || a.ETag != cond.match):
		return &objstore.Error{Op: op, Location: loc, ServerTime: a.ServerTime, RequestID: a.RequestID, Err: objstore.ErrExist}
	case cond.match != "" && errors.Is(err, objstore.ErrNotExist):
		return &objstore.Error{Op: op, Location: loc, Err: objstore.ErrNotExist}
	}
	return nil
}

// sendParts sends the body from its present position.
func (s *Store) sendParts(ctx context.Context, op string, loc objstore.Location, upload *string, body io.ReadSeeker, size int64) ([]types.CompletedPart, error) {
	base, err := body.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, &objstore.Error{Op: op, Location: loc, Err: fmt.Errorf("seek body: %w", err)}
	}
	at, ok := body.(io.ReaderAt)
	if !ok {
		at = &seekerAt{body}
	}
	part := s.client.partSize(size)
	var parts []types.CompletedPart
	for off, n := int64(0), int32(1); off < size; off, n = off+part, n+1 {
		length := min(part, size-off)
		tag, err := s.sendPart(ctx, op, loc, &s3.UploadPartInput{
			Bucket: aws.String(loc.Bucket), Key: aws.String(loc.Key), UploadId: upload, PartNumber: aws.Int32(n), ContentLength: aws.Int64(length),
		}, io.NewSectionReader(at, base+off, length))
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", n, err)
		}
		parts = append(parts, types.CompletedPart{ETag: tag, PartNumber: aws.Int32(n)})
	}
	return parts, nil
}

const (
	partTries = 4
	partPause = 250 * time.Millisecond
)

func (s *Store) sendPart(ctx context.Context, op string, loc objstore.Location, in *s3.UploadPartInput, body *io.SectionReader) (*string, error) {
	for n := 1; ; n++ {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return nil, &objstore.Error{Op: op, Location: loc, Err: fmt.Errorf("seek body: %w", err)}
		}
		in.Body = body
		out, err := s.sdk.UploadPart(ctx, in)
		if err == nil {
			return out.ETag, nil
		}
		err = s.fromSDK(ctx, op, loc, err)
		if n == partTries || !retryable(err) || ctx.Err() != nil {
			return nil, err
		}
		pause(ctx, partPause<<n)
	}
}

// seekerAt reads at offsets by seeking; one read at a time.
type seekerAt struct{ r io.ReadSeeker }

func (s *seekerAt) ReadAt(p []byte, off int64) (int, error) {
	if _, err := s.r.Seek(off, io.SeekStart); err != nil {
		return 0, fmt.Errorf("seek body: %w", err)
	}
	n, err := io.ReadFull(s.r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// abortTries is how often an upload is aborted at most.
const abortTries = 4

// abort gives our own uncompleted parts back and answers why. A part whose request
// broke off may still arrive while the upload is aborted, and is given back by
// aborting again, as S3's documentation of AbortMultipartUpload says. That the parts
// could not be given back is said, and changes nothing else.
func (s *Store) abort(ctx context.Context, in *s3.CompleteMultipartUploadInput, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterGrace)
	defer cancel()
	var e *objstore.Error
	brokenOff := errors.As(why, &e) && e.Status == 0
	for n := 1; ; n++ {
		_, err := s.sdk.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: in.Bucket, Key: in.Key, UploadId: in.UploadId})
		var ae smithy.APIError
		switch {
		case err == nil && (!brokenOff || n == abortTries), errors.As(err, &ae) && ae.ErrorCode() == "NoSuchUpload":
			return why
		case err != nil && (n == abortTries || !retryable(s.fromSDK(ctx, "abort", s.bucket, err))):
			return fmt.Errorf("%w (the parts of upload %q could not be given back: %v)", why, aws.ToString(in.UploadId), clean(err))
		}
		pause(ctx, time.Duration(n)*partPause)
	}
}
