package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Restat implements [objstore.Restatter] with the SDK's HeadObject, each on a
// connection of its own: nothing is shared with the first look but the credentials.
func (s *Store) Restat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	if err := s.own("restat", loc, true); err != nil {
		return objstore.Attrs{}, err
	}
	return s.withChecksums(func(checksums bool) (objstore.Attrs, error) {
		return s.headObject(ctx, s.fresh, "restat", loc, "", checksums)
	})
}

// withChecksums asks for the stored checksums where the options say so, and without
// them when that is denied: under a KMS key they need a right more than a plain HEAD.
func (s *Store) withChecksums(ask func(checksums bool) (objstore.Attrs, error)) (objstore.Attrs, error) {
	if !s.client.opts.Checksums {
		return ask(false)
	}
	a, err := ask(true)
	if errors.Is(err, objstore.ErrDenied) {
		if plain, perr := ask(false); perr == nil {
			return plain, nil
		}
	}
	return a, err
}

// headObject asks for the newest version ("") or for one.
func (s *Store) headObject(ctx context.Context, client *s3.Client, op string, loc objstore.Location, versionID string, checksumMode bool) (objstore.Attrs, error) {
	in := &s3.HeadObjectInput{Bucket: aws.String(loc.Bucket), Key: aws.String(loc.Key)}
	if versionID != "" {
		in.VersionId = aws.String(versionID)
	}
	if checksumMode {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := client.HeadObject(ctx, in)
	if err != nil {
		return objstore.Attrs{}, s.fromSDK(ctx, op, loc, err)
	}
	if status := statusOf(out.ResultMetadata); status != http.StatusOK {
		// The SDK takes every 2xx for a success; only 200 describes an object.
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Status: status, Err: errUnexpected}
	}
	h := header(out.ResultMetadata)
	a := objstore.Attrs{
		Location: loc, Size: objstore.Unknown, ETag: unquote(aws.ToString(out.ETag)),
		VersionID: aws.ToString(out.VersionId), StorageClass: storageClass(string(out.StorageClass)),
		Archived:   archived(string(out.StorageClass), string(out.ArchiveStatus), aws.ToString(out.Restore)),
		ServerTime: httpTime(h.Get("Date")), RequestID: requestID(h),
	}
	if out.ContentLength != nil {
		a.Size = *out.ContentLength
	}
	a.ModTime = known(out.LastModified)
	if fullObject(string(out.ChecksumType), a.ETag) {
		told := map[string]*string{"sha256": out.ChecksumSHA256, "sha1": out.ChecksumSHA1, "md5": out.ChecksumMD5,
			"crc32": out.ChecksumCRC32, "crc32c": out.ChecksumCRC32C, "crc64nvme": out.ChecksumCRC64NVME}
		for _, c := range checksums {
			c.add(&a, aws.ToString(told[c.alg]))
		}
	}
	return a, nil
}

// header is the header of the answer behind a success of the SDK.
func header(md middleware.Metadata) http.Header {
	if resp, ok := awsmiddleware.GetRawResponse(md).(*smithyhttp.Response); ok && resp != nil && resp.Response != nil {
		return resp.Header
	}
	return http.Header{}
}

// statusOf is the status of the answer behind a success of the SDK; 0 when it
// cannot be told.
func statusOf(md middleware.Metadata) int {
	if resp, ok := awsmiddleware.GetRawResponse(md).(*smithyhttp.Response); ok && resp != nil && resp.Response != nil {
		return resp.StatusCode
	}
	return 0
}

// known is zero for absent times and for the epoch.
func known(t *time.Time) time.Time {
	if t == nil || t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}

// Probe implements [objstore.Prober]: a GET of the first byte, whose refusal carries
// the store's error code. An empty object has no first byte; the 416 that says so
// proves the object, and what the refusal does not tell of it (ETag, age) is asked for
// by HEAD. Where that fails, the proof stands alone.
func (s *Store) Probe(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	if err := s.own("probe", loc, true); err != nil {
		return objstore.Attrs{}, err
	}
	out, err := s.getObject(ctx, loc, "", "bytes=0-0")
	if err != nil {
		err = s.fromSDK(ctx, "probe", loc, err)
		var e *objstore.Error
		if errors.As(err, &e) && e.Status == http.StatusRequestedRangeNotSatisfiable {
			if a, herr := s.headObject(ctx, s.sdk, "probe", loc, "", false); herr == nil {
				return a, nil
			}
			return objstore.Attrs{Location: loc, ServerTime: e.ServerTime, RequestID: e.RequestID}, nil
		}
		return objstore.Attrs{}, err
	}
	_ = out.Body.Close() // the answer is what was asked for, the byte is not
	if status := statusOf(out.ResultMetadata); status != http.StatusOK && status != http.StatusPartialContent {
		return objstore.Attrs{}, &objstore.Error{Op: "probe", Location: loc, Status: status, Err: errUnexpected}
	}
	h := header(out.ResultMetadata)
	a := attrs(loc, h)
	if _, _, total, ok := contentRange(h.Get("Content-Range")); ok {
		a.Size = total
	} else if out.ContentRange == nil && out.ContentLength != nil {
		a.Size = *out.ContentLength // a store that ignores ranges sends all of it
	}
	return a, nil
}

func (s *Store) getObject(ctx context.Context, loc objstore.Location, versionID, rng string) (*s3.GetObjectOutput, error) {
	in := &s3.GetObjectInput{Bucket: aws.String(loc.Bucket), Key: aws.String(loc.Key)}
	if versionID != "" {
		in.VersionId = aws.String(versionID)
	}
	if rng != "" {
		in.Range = aws.String(rng)
	}
	return s.sdk.GetObject(ctx, in)
}

// Get implements [objstore.Getter]. A store that answers another range than the one
// asked for, or ignores it, is an error.
func (s *Store) Get(ctx context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return s.get(ctx, "get", loc, "", r)
}

// GetVersion implements [objstore.VersionGetter]. An answer that names another version,
// or none, is an error: servers exist that answer with the newest.
func (s *Store) GetVersion(ctx context.Context, loc objstore.Location, versionID string, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if versionID == "" {
		return nil, objstore.Attrs{}, &objstore.Error{Op: "getversion", Location: loc, Err: fmt.Errorf("no version: %w", fs.ErrInvalid)}
	}
	return s.get(ctx, "getversion", loc, versionID, r)
}

func (s *Store) get(ctx context.Context, op string, loc objstore.Location, versionID string, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if err := s.own(op, loc, true); err != nil {
		return nil, objstore.Attrs{}, err
	}
	if err := r.Valid(); err != nil {
		return nil, objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: err}
	}
	out, err := s.getObject(ctx, loc, versionID, rangeHeader(r))
	if err != nil {
		err = s.fromSDK(ctx, op, loc, err)
		var e *objstore.Error
		if errors.As(err, &e) && e.Status == http.StatusRequestedRangeNotSatisfiable {
			return s.nothing(ctx, op, loc, versionID, r)
		}
		return nil, objstore.Attrs{}, err
	}
	a := attrs(loc, header(out.ResultMetadata))
	err = ofVersion(a, versionID)
	var length int64
	if err == nil {
		length, err = promised(out, r, &a)
	}
	if err != nil {
		_ = out.Body.Close() // refused
		return nil, objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, RequestID: a.RequestID, ServerTime: a.ServerTime, Err: err}
	}
	return &body{ctx: ctx, op: op, loc: loc, rc: out.Body, left: length}, a, nil
}

// ofVersion is nil when the answer is of the version that was asked for. A bucket that
// never kept versions does not name its version "null".
func ofVersion(a objstore.Attrs, versionID string) error {
	if versionID == "" || a.VersionID == versionID || versionID == objstore.NullVersion && a.VersionID == "" {
		return nil
	}
	return fmt.Errorf("%w: of version %q instead of %q", errUnexpected, a.VersionID, versionID)
}

func rangeHeader(r objstore.Range) string {
	switch {
	case r.Offset < 0:
		return "bytes=" + strconv.FormatInt(r.Offset, 10)
	case r.Length > 0:
		return fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1)
	case r.Offset > 0:
		return fmt.Sprintf("bytes=%d-", r.Offset)
	}
	return ""
}

// nothing answers a range that has no byte. The refusal does not describe the object,
// so it is asked for.
func (s *Store) nothing(ctx context.Context, op string, loc objstore.Location, versionID string, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	a, err := s.headObject(ctx, s.sdk, op, loc, versionID, false)
	if err == nil {
		if verr := ofVersion(a, versionID); verr != nil {
			err = &objstore.Error{Op: op, Location: loc, RequestID: a.RequestID, ServerTime: a.ServerTime, Err: verr}
		}
	}
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	begin, end, err := r.Bounds(a.Size)
	if err == nil && r.Offset < 0 && begin == 0 && end > 0 {
		// Some servers refuse the last n bytes of an object that has fewer.
		return s.get(ctx, op, loc, versionID, objstore.Range{})
	}
	if a.Size == objstore.Unknown || err != nil || begin < end {
		return nil, objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Status: http.StatusRequestedRangeNotSatisfiable, RequestID: a.RequestID,
			Err: fmt.Errorf("%w: range refused of an object of %d bytes", errUnexpected, a.Size)}
	}
	return io.NopCloser(strings.NewReader("")), a, nil
}

// promised is how many bytes the body must have, -1 when nothing tells; it sets the
// full size. It refuses what is not the range that was asked for.
func promised(out *s3.GetObjectOutput, r objstore.Range, a *objstore.Attrs) (int64, error) {
	length := int64(-1)
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	if rangeHeader(r) == "" {
		a.Size = length
		return length, nil
	}
	first, last, total, ok := contentRange(aws.ToString(out.ContentRange))
	if !ok && length == 0 {
		a.Size = 0 // no range of an empty object can be satisfied; some servers send it whole
		return 0, nil
	}
	if !ok || total < 0 {
		return 0, fmt.Errorf("%w: the store ignored the range", errUnexpected)
	}
	begin, end, err := r.Bounds(total)
	if err != nil || first != begin || last != end-1 || length >= 0 && length != end-begin {
		return 0, fmt.Errorf("%w: another range than was asked for (%d-%d of %d)", errUnexpected, first, last, total)
	}
	a.Size = total
	return end - begin, nil
}

// contentRange reads "bytes 0-9/100".
func contentRange(s string) (first, last, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, size, ok2 := strings.Cut(s, "/")
	from, to, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, false
	}
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	total, err3 := strconv.ParseInt(size, 10, 64)
	return first, last, total, err1 == nil && err2 == nil && err3 == nil
}

// body reads exactly what was promised.
type body struct {
	ctx  context.Context
	op   string
	loc  objstore.Location
	rc   io.ReadCloser
	left int64 // -1: unknown
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	if b.left >= 0 {
		if int64(n) > b.left {
			return int(b.left), b.fail(fmt.Errorf("%w: more bytes than promised", errUnexpected))
		}
		b.left -= int64(n)
	}
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && b.left <= 0:
		return n, io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, b.fail(err)
}

func (b *body) fail(err error) error {
	if b.ctx.Err() != nil {
		err = b.ctx.Err()
	}
	return &objstore.Error{Op: b.op, Location: b.loc, Err: clean(err)}
}

func (b *body) Close() error { return b.rc.Close() }
