package s3

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// attrs reads what the headers of a HEAD or GET tell, the size excepted.
func attrs(loc objstore.Location, h http.Header) objstore.Attrs {
	a := objstore.Attrs{
		Location: loc, Size: objstore.Unknown,
		ETag:         unquote(h.Get("Etag")),
		VersionID:    h.Get("X-Amz-Version-Id"),
		StorageClass: storageClass(h.Get("X-Amz-Storage-Class")),
		ModTime:      httpTime(h.Get("Last-Modified")),
		ServerTime:   httpTime(h.Get("Date")),
		RequestID:    requestID(h),
	}
	a.Archived = archived(a.StorageClass, h.Get("X-Amz-Archive-Status"), h.Get("X-Amz-Restore"))
	if fullObject(h.Get("X-Amz-Checksum-Type"), a.ETag) {
		for _, c := range checksums {
			if v := h[c.header]; len(v) > 0 {
				c.add(&a, v[0])
			}
		}
	}
	return a
}

// storageClass drops the default's name, which most servers do not send.
func storageClass(s string) string {
	if s == "STANDARD" {
		return ""
	}
	return s
}

func unquote(etag string) string {
	return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
}

// httpTime is zero for what is absent, no date, or the epoch, which some servers
// send for "unknown".
func httpTime(s string) time.Time {
	t, err := http.ParseTime(s)
	if err != nil || t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}

func requestID(h http.Header) string { return h.Get("X-Amz-Request-Id") }

// archived: HEAD answers 200 for objects whose GET is refused until they are
// restored. A finished restore makes them readable for a time.
func archived(class, status, restore string) bool {
	if status == "" && class != "GLACIER" && class != "DEEP_ARCHIVE" {
		return false
	}
	return !strings.Contains(restore, `ongoing-request="false"`)
}

// fullObject reports whether checksums are of the object's bytes and not of its parts'
// checksums. Servers older than x-amz-checksum-type do not tell; without it, an object
// that was put in parts, as its ETag shows, may have either.
func fullObject(checksumType, etag string) bool {
	return checksumType == "FULL_OBJECT" || checksumType == "" && !strings.Contains(etag, "-")
}

// checksum is one algorithm whose full-object value a store may tell, of so many bytes.
// Digests are written in hex, as everywhere else; CRCs stay base64. An ETag is none:
// whether it is an MD5 depends on how the object was put and encrypted.
type checksum struct {
	header, alg string
	hex         bool
	size        int
}

var checksums = []checksum{
	{"X-Amz-Checksum-Sha256", "sha256", true, 32}, {"X-Amz-Checksum-Sha1", "sha1", true, 20}, {"X-Amz-Checksum-Md5", "md5", true, 16},
	{"X-Amz-Checksum-Crc32", "crc32", false, 4}, {"X-Amz-Checksum-Crc32c", "crc32c", false, 4}, {"X-Amz-Checksum-Crc64nvme", "crc64nvme", false, 8},
}

// add notes a full-object checksum; one with "-N" is of parts, one of another length is
// no checksum.
func (c checksum) add(a *objstore.Attrs, value string) {
	raw, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(raw) != c.size {
		return
	}
	if c.hex {
		value = hex.EncodeToString(raw)
	}
	if a.Checksums == nil {
		a.Checksums = map[string]string{}
	}
	a.Checksums[c.alg] = c.alg + ":" + value
}

// reply is an answer that is not what was asked for.
type reply struct {
	status        int
	header        http.Header
	code, message string
}

// throttleCodes ask to slow down, whatever their status.
var throttleCodes = map[string]bool{
	"SlowDown": true, "ServerBusy": true, "ServiceUnavailable": true, "RequestLimitExceeded": true, "Throttling": true,
	"ThrottlingException": true, "ThrottledException": true, "RequestThrottled": true, "RequestThrottledException": true,
	"TooManyRequests": true, "TooManyRequestsException": true, "BandwidthLimitExceeded": true,
}

// answer says what a reply means for an operation.
func answer(op string, loc objstore.Location, r reply) *objstore.Error {
	h := r.header
	if h == nil {
		h = http.Header{}
	}
	e := &objstore.Error{
		Op: op, Location: loc, Status: r.status, Code: r.code, RequestID: requestID(h),
		ServerTime: httpTime(h.Get("Date")), RetryAfter: retryAfter(h),
	}
	head := op == "stat" || op == "restat"
	if head {
		e.Code, r.message = "", "" // made up by the client: a HEAD has no body to carry them
	}
	write := op == "create" || op == "replace" || op == "overmarker"
	switch {
	case throttleCodes[r.code] || r.status == 429 || r.status == 503:
		e.Err = objstore.ErrThrottled
	case r.status == 404 && (head || r.code == "NoSuchKey" || r.code == "NoSuchVersion"):
		e.Err = objstore.ErrNotExist
		e.DeleteMarker = h.Get("X-Amz-Delete-Marker") == "true"
	case op == "getversion" && r.status == 405 && (h.Get("X-Amz-Delete-Marker") == "true" || r.code == "MethodNotAllowed"):
		// The version is a delete marker, which has no bytes.
		e.Err, e.DeleteMarker = objstore.ErrNotExist, true
	case r.status == 404 && r.code == "NoSuchBucket":
		e.Err = objstore.ErrNoSuchBucket
	case r.status == 403 && r.code == "InvalidObjectState":
		e.Err = objstore.ErrArchived
	case r.status == 401 || r.status == 403:
		e.Err = explain(objstore.ErrDenied, r.message, skewHint(e.ServerTime))
	case write && (r.status == 409 || r.status == 412 || r.code == "PreconditionFailed"):
		e.Err = objstore.ErrExist
	case r.code == "NotImplemented" || r.status == 501 || r.status == 405 && op == "versions":
		e.Err = explain(objstore.ErrUnsupported, r.message, "")
	default:
		e.Err = explain(errUnexpected, r.message, hint(r.status, h))
	}
	return e
}

var errUnexpected = errors.New("unexpected answer")

func explain(err error, message, hint string) error {
	if m := scrub(message); m != "" {
		err = fmt.Errorf("%w: %s", err, m)
	}
	if hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// hint names the usual causes of answers that say nothing about the object.
func hint(status int, h http.Header) string {
	region := h.Get("X-Amz-Bucket-Region")
	switch status {
	case 301, 302, 307, 308:
		if region != "" {
			return "the bucket lies in region " + scrub(region) + ": set AWS_REGION or the store's region"
		}
		return "a redirect: wrong region or endpoint"
	case 400:
		if region != "" {
			return "the bucket lies in region " + scrub(region) + ": set AWS_REGION or the store's region"
		}
		return "wrong region or endpoint, an expired session token, or an object under a customer key"
	case 404:
		return "the answer does not say what is missing: wrong endpoint?"
	}
	return ""
}

// maxSkew is how far signatures may be off; see RequestTimeTooSkewed.
const maxSkew = 15 * time.Minute

func skewHint(server time.Time) string {
	if server.IsZero() {
		return ""
	}
	if d := time.Since(server).Round(time.Minute); d > maxSkew || d < -maxSkew {
		return fmt.Sprintf("the clock of this host is off by %s from the store's: signatures are refused", d)
	}
	return ""
}

func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	at, now := httpTime(v), httpTime(h.Get("Date"))
	if at.IsZero() || now.IsZero() || at.Before(now) {
		return 0
	}
	return at.Sub(now)
}

// fromSDK says what an error of the SDK means.
func (s *Store) fromSDK(ctx context.Context, op string, loc objstore.Location, err error) error {
	var re *smithyhttp.ResponseError
	if !errors.As(err, &re) || re.Response == nil || re.Response.Response == nil {
		return s.noAnswer(ctx, op, loc, err)
	}
	r := reply{status: re.HTTPStatusCode(), header: re.Response.Header}
	if r.status < 300 {
		// A success whose body breaks off or is no XML: there was no usable answer.
		return s.noAnswer(ctx, op, loc, err)
	}
	var ae smithy.APIError
	if errors.As(err, &ae) {
		r.code, r.message = ae.ErrorCode(), ae.ErrorMessage()
	}
	return answer(op, loc, r)
}

// noAnswer is the error of a request that was not answered.
func (s *Store) noAnswer(ctx context.Context, op string, loc objstore.Location, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return &objstore.Error{Op: op, Location: loc, Err: clean(err)}
}

// cause is an error whose text is safe to print.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

// clean cuts an error of the SDK or of net/http down to what went wrong, without the
// URL (Error names the place) and without anything that could be a credential.
func clean(err error) error {
	if err == nil {
		return nil
	}
	var nc *noCredentials
	if errors.As(err, &nc) {
		return nc
	}
	var done *cause
	if errors.As(err, &done) {
		return done
	}
	inner := err
	var ue *url.Error
	if errors.As(err, &ue) {
		inner = ue.Err
	}
	return &cause{scrub(inner.Error()), err}
}

var (
	userInfo = regexp.MustCompile(`://[^\s"']*@`)
	query    = regexp.MustCompile(`\?[^\s"']*`)
	control  = regexp.MustCompile(`[\x00-\x1f\x7f]+`)
	// What credentials look like: key ids of AWS, and long runs of base64 or hex.
	keyID  = regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{12,}\b`)
	secret = regexp.MustCompile(`[A-Za-z0-9+/=_-]{40,}`)
)

// maxText is enough for what a server has to say, and short enough for a report.
const maxText = 300

// scrub makes a text of a server or library safe to print: no user info, no query,
// nothing that looks like a key, no control characters, bounded length.
func scrub(text string) string {
	text = control.ReplaceAllString(strings.ToValidUTF8(text, "�"), " ")
	text = userInfo.ReplaceAllString(text, "://…@")
	text = query.ReplaceAllString(text, "?…")
	text = keyID.ReplaceAllString(text, "…")
	text = secret.ReplaceAllString(text, "…")
	text = strings.TrimSpace(text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
