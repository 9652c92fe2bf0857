package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

const (
	// maxHeader bounds what is read of an answer's header.
	maxHeader = 64 << 10
	// attempts and the wait between them; a wait that the peer asks for is kept up to
	// maxPause, since other peers may have the object.
	attempts = 2
	pause    = 250 * time.Millisecond
	maxPause = 5 * time.Second
)

// HTTPOptions of a web server.
type HTTPOptions struct {
	Options
	// Header goes with every request; it may hold secrets, which no error repeats.
	Header map[string]string
	// RootCAs replaces the system's certificates; nil keeps them.
	RootCAs *x509.CertPool
}

// HTTP is a peer that is asked by a template of its address. It trusts an answer as
// little as it can: no redirect is followed, no encoding taken, no HEAD believed, and
// no connection used twice, since what a server sends beyond the length that it told
// would be read as the answer to the next question.
//
// A body of HTTP/1.1 that is longer than its Content-Length cannot be told from one
// that is not: it ends at the promised length, and it is for the proof to see that
// this is not the recorded one.
type HTTP struct {
	t       template
	header  http.Header
	host    string // the Host header, when it is not the address's
	mirrors objstore.Location
	timing  Timing
	now     func() time.Time
	via     *http.Transport
}

var _ reconcile.Peer = (*HTTP)(nil)

// reserved are headers that would change what an answer means.
var reserved = []string{"Accept-Encoding", "Connection", "Content-Length", "Expect", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range",
	"If-Unmodified-Since", "Keep-Alive", "Proxy-Connection", "Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// NewHTTP makes a peer of a template such as "https://host/blobs/{key}". It asks
// nothing. What makes no sense matches [fs.ErrInvalid], without a word of the
// template or of a header's value.
func NewHTTP(text string, opts HTTPOptions) (*HTTP, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	if opts.Now == nil || opts.Mirrors.Scheme == "" {
		return nil, invalid("a peer needs a clock and a place that it mirrors")
	}
	h := &HTTP{t: t, header: http.Header{}, mirrors: opts.Mirrors, timing: opts.Timing.withDefaults(), now: opts.Now}
	for name, value := range opts.Header {
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		switch {
		case name == "" || strings.ContainsFunc(name, func(c rune) bool { return c > '~' || strings.ContainsRune(" :\"(),/;<=>?@[\\]{}", c) || c < ' ' }):
			return nil, invalid("a header of a peer has no valid name")
		case slices.Contains(reserved, name):
			return nil, invalid("the header " + name + " of a peer is set by the program")
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
			return nil, invalid("the value of the header " + name + " of a peer holds control characters")
		case name == "Host":
			h.host = value
		default:
			h.header.Set(name, value)
		}
	}
	for name, value := range map[string]string{"User-Agent": "reconcile", "Cache-Control": "no-cache"} {
		if h.header.Get(name) == "" {
			h.header.Set(name, value)
		}
	}
	h.header.Set("Accept-Encoding", "identity")
	h.via = &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: opts.RootCAs, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
	}
	return h, nil
}

// Name implements [reconcile.Peer]: scheme, host and the path before the key.
func (h *HTTP) Name() string { return h.t.name() }

// Ask implements [reconcile.Peer] with the GET that Fetch would send, given up once
// its header is there: some servers answer HEAD for objects that they do not have,
// and ranges otherwise than the whole. Attrs have no Location.
func (h *HTTP) Ask(ctx context.Context, ref reconcile.Reference) (objstore.Attrs, error) {
	t, a, err := h.open(ctx, ref)
	if err != nil {
		return objstore.Attrs{}, err
	}
	_ = t.Close() // the header is what was asked for
	return a, nil
}

// Fetch implements [reconcile.Peer].
func (h *HTTP) Fetch(ctx context.Context, ref reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	t, a, err := h.open(ctx, ref)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	return t, a, nil
}

// open sends the request, a second time where that may help, and judges the header of
// the answer.
func (h *HTTP) open(ctx context.Context, ref reconcile.Reference) (*transfer, objstore.Attrs, error) {
	name, ok := nameBelow(ref.Location, h.mirrors)
	if !ok {
		return nil, objstore.Attrs{}, h.fail(ReasonOutside, 0, reconcile.ErrNotBelow)
	}
	at, err := h.t.url(name)
	if err != nil {
		return nil, objstore.Attrs{}, h.fail(ReasonOutside, 0, fmt.Errorf("%w: %w", reconcile.ErrNotBelow, err))
	}
	for n := 1; ; n++ {
		t, a, again, err := h.once(ctx, ref, at)
		if err == nil || again == 0 || n == attempts {
			return t, a, err
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, objstore.Attrs{}, h.fail(ReasonInterrupted, 0, context.Cause(ctx))
		}
	}
}

// once is one attempt; again is how long to wait before another, 0 when there is no
// use in one. A peer that let the time run out is not asked again.
func (h *HTTP) once(ctx context.Context, ref reconcile.Reference, at *url.URL) (_ *transfer, _ objstore.Attrs, again time.Duration, err error) {
	t := h.timing.begin(ctx, h.Name(), h.now)
	// Not through a client: redirects, cookies and what else it would add are not wanted.
	req := (&http.Request{Method: http.MethodGet, URL: at, Host: h.host, Header: h.header.Clone()}).WithContext(t.ctx)
	var resp *http.Response
	t.within(h.timing.FirstByte, errFirstByte, func() { resp, err = h.via.RoundTrip(req) })
	switch {
	case err != nil && ctx.Err() != nil:
		t.end()
		return nil, objstore.Attrs{}, 0, h.fail(ReasonInterrupted, 0, context.Cause(ctx))
	case err != nil && context.Cause(t.ctx) == errFirstByte:
		t.end()
		return nil, objstore.Attrs{}, 0, h.fail(ReasonTimeout, 0, fmt.Errorf("no answer within %s: %w", h.timing.FirstByte, context.DeadlineExceeded))
	case err != nil:
		t.end()
		return nil, objstore.Attrs{}, pause, h.fail(ReasonUnreachable, 0, harmless(err))
	}
	t.carry(resp.Body, resp.ContentLength, ref.Size)
	if again, err = h.judge(t, ref, resp); err != nil {
		_ = t.Close() // nothing of the body is wanted
		return nil, objstore.Attrs{}, again, err
	}
	return t, attrs(resp), 0, nil
}

// judge says whether an answer is a copy. again is as in once.
func (h *HTTP) judge(t *transfer, ref reconcile.Reference, resp *http.Response) (again time.Duration, err error) {
	status := resp.StatusCode
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		return 0, h.fail(ReasonNoSuchObject, status, objstore.ErrNotExist)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return 0, h.fail(ReasonDenied, status, objstore.ErrDenied)
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return h.retryAfter(resp), h.fail(ReasonThrottled, status, objstore.ErrThrottled)
	case status >= 300 && status < 400:
		return 0, h.fail(ReasonRedirect, status, errors.New("redirects are not followed"))
	case status >= 500:
		return pause, h.fail(ReasonServerError, status, nil)
	case status != http.StatusOK:
		return 0, h.fail(ReasonStatus, status, nil)
	}
	for _, v := range resp.Header.Values("Content-Encoding") {
		if v = strings.TrimSpace(v); v != "" && !strings.EqualFold(v, "identity") {
			return 0, h.fail(ReasonEncoded, status, errors.New("the body is encoded"))
		}
	}
	if errorPage(ref, resp) {
		return 0, h.fail(ReasonErrorPage, status, errors.New("an HTML page that the record does not speak of"))
	}
	if resp.ContentLength < 0 && resp.ProtoMajor == 1 && !slices.Contains(resp.TransferEncoding, "chunked") {
		// The body ends with the connection, however that ended.
		if ref.Size <= 0 && ref.Checksum == "" {
			return 0, h.fail(ReasonNoEnd, status, errors.New("the body has no length and ends with the connection"))
		}
		t.exact = ref.Size > 0
	}
	return 0, nil
}

// errorPage reports whether an answer is a page for people where the object is none.
// One of the recorded size, or one that a recorded checksum will judge, may be the
// object under a wrong type.
func errorPage(ref reconcile.Reference, resp *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // what cannot be read is no HTML
	if kind != "text/html" && kind != "application/xhtml+xml" {
		return false
	}
	switch strings.ToLower(path.Ext(ref.Location.Key)) {
	case ".html", ".htm", ".xhtml":
		return false
	}
	if ref.Size > 0 && resp.ContentLength >= 0 {
		return resp.ContentLength != ref.Size
	}
	return ref.Checksum == ""
}

// retryAfter is how long a peer asks to be left alone, 0 when that is too long.
func (h *HTTP) retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	wait := pause
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		wait = max(pause, time.Duration(n)*time.Second)
	} else if at, err := http.ParseTime(text); err == nil {
		wait = max(pause, at.Sub(h.now()))
	}
	if wait > maxPause {
		return 0
	}
	return wait
}

// attrs are what the header tells.
func attrs(resp *http.Response) objstore.Attrs {
	return objstore.Attrs{
		Size: max(resp.ContentLength, objstore.Unknown), ETag: strings.Trim(strings.TrimPrefix(resp.Header.Get("Etag"), "W/"), `"`),
		ModTime: httpTime(resp.Header.Get("Last-Modified")), ServerTime: httpTime(resp.Header.Get("Date")),
	}
}

// httpTime is zero for what is no date, and for the epoch, which means "unknown".
func httpTime(s string) time.Time {
	t, err := http.ParseTime(s)
	if err != nil || t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}

func (h *HTTP) fail(reason string, status int, err error) error {
	return &Error{Peer: h.Name(), Reason: reason, Status: status, Err: err}
}

// quiet is an error whose text is ours.
type quiet struct {
	text string
	err  error
}

func (q *quiet) Error() string { return q.text }
func (q *quiet) Unwrap() error { return q.err }

// harmless keeps the text of errors that speak of the connection. Those that speak of
// an answer quote it, and an answer may quote the request.
func harmless(err error) error {
	var (
		op   net.Error
		cert *tls.CertificateVerificationError
		done *objstore.Error
	)
	switch {
	case errors.As(err, &op), errors.As(err, &cert), errors.As(err, &done), errors.Is(err, context.Canceled),
		err == io.EOF, err == io.ErrUnexpectedEOF:
		return err
	case strings.HasPrefix(err.Error(), "net/http: server response headers exceeded"):
		return &quiet{fmt.Sprintf("a header of more than %d bytes", maxHeader), err}
	}
	return &quiet{"no valid HTTP answer", err}
}
