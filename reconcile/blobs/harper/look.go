package harper

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// outcome is what a full GET of a blob came to.
type outcome uint8

const (
	whole      outcome = iota // 200, and everything that was promised came
	absent                    // 404
	silent                    // no answer at all
	incomplete                // the body ended early or stalled
	failed                    // 500
	inFlight                  // 503, or a body without a length that stalled
	stub                      // a file's header and an error's text in place of the bytes
	deflated                  // stalled after compressed bytes that are the whole blob
	denied                    // 401, 403
	throttled                 // 429
	slow                      // bytes came to the end of the time
	unclear                   // anything else: it tells nothing of the blob
)

// look is one full GET, judged by what it tells itself.
type look struct {
	outcome  outcome
	status   int
	etag     string
	promised int64 // Content-Length; -1: none
	got      int64
	sums     map[string]string
	date     time.Time
	err      error
	since    uint64 // the point that a control must come after to speak for it
}

// stubTypes are the first two bytes of files that hold an error's text.
const (
	typeError   = 0x00ff
	typePending = 0x00fe
	headerSize  = 8
)

// read asks for a blob and reads it whole.
func (n *node) read(ctx context.Context, u unit, h how, algs ...string) look {
	l := look{promised: -1}
	r, err := n.get(ctx, u.target(), h)
	if err != nil {
		l.err = err
		l.outcome = unclear
		if errors.Is(err, errNoResponse) {
			l.outcome = silent
		}
		return l
	}
	defer r.body.Close()
	l.status, l.etag, l.promised, l.date = r.status, r.etag(), r.length, r.date
	if l.outcome = byStatus(r); l.outcome != whole {
		// The text of an error holds paths of the node's disk: it is not read.
		return l
	}
	l.drain(r.body, algs)
	return l
}

// byStatus judges the head of an answer; whole means that the body decides.
func byStatus(r *reply) outcome {
	switch r.status {
	case http.StatusOK:
	case http.StatusNotFound:
		return absent
	case http.StatusInternalServerError:
		return failed
	case http.StatusServiceUnavailable:
		return inFlight
	case http.StatusUnauthorized, http.StatusForbidden:
		return denied
	case http.StatusTooManyRequests:
		return throttled
	default: // redirects, and what no node says
		return unclear
	}
	if enc := r.header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return unclear
	}
	// Something before the node that answers for it has a page, and no version.
	if strings.HasPrefix(r.header.Get("Content-Type"), "text/html") && r.etag() == "" {
		return unclear
	}
	return whole
}

// drain reads the body to its end and judges how that came.
func (l *look) drain(body io.Reader, algs []string) {
	var head prefix
	writers := []io.Writer{&head}
	texts := map[string]func() string{}
	for _, alg := range algs {
		h := reconcile.NewHash(alg)
		texts[alg] = func() string { return reconcile.Checksum(alg, h) }
		writers = append(writers, h)
	}
	in := &inflater{limit: l.promised}
	defer in.close()
	writers = append(writers, in)
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(writers...)}, struct{ io.Reader }{body}, make([]byte, 64<<10))
	l.got = n
	switch {
	case err == nil:
		if head.isStub(n) {
			l.outcome = stub
			return
		}
		l.sums = make(map[string]string, len(algs))
		for alg, text := range texts {
			l.sums[alg] = text()
		}
	case errors.Is(err, errTooSlow):
		l.outcome, l.err = slow, err
	case errors.Is(err, errStalled) && l.promised < 0:
		l.outcome, l.err = inFlight, err
	case errors.Is(err, errStalled) && in.whole():
		l.outcome, l.err = deflated, err
	case errors.Is(err, errStalled), errors.Is(err, io.ErrUnexpectedEOF):
		l.outcome, l.err = incomplete, err
	default: // the caller's context
		l.outcome, l.err = unclear, err
	}
}

// prefix keeps the first bytes of a body.
type prefix struct {
	b [headerSize]byte
	n int
}

func (p *prefix) Write(b []byte) (int, error) {
	p.n += copy(p.b[p.n:], b)
	return len(b), nil
}

// isStub reports whether a body of n bytes is a file that holds an error's text, served
// as it lies on the disk.
func (p *prefix) isStub(n int64) bool {
	if p.n < headerSize {
		return false
	}
	h := ParseHeader(p.b)
	return (h.Type == typeError || h.Type == typePending) && h.Size == n-headerSize
}

// inflater tells whether bytes that begin like zlib's are a whole stream of exactly the
// promised length: builds that serve compressed files as they lie there stall after
// them. It works beside the reading and holds a few kilobytes.
type inflater struct {
	limit int64
	begun bool
	w     *io.PipeWriter
	done  chan bool
}

func (f *inflater) Write(b []byte) (int, error) {
	if !f.begun && len(b) > 0 {
		f.begun = true
		if f.limit > 0 && len(b) >= 2 && b[0] == 0x78 && binary.BigEndian.Uint16(b)%31 == 0 {
			f.start()
		}
	}
	if f.w != nil {
		_, _ = f.w.Write(b) // fails once the stream is at its end or is none
	}
	return len(b), nil
}

func (f *inflater) start() {
	r, w := io.Pipe()
	f.w, f.done = w, make(chan bool, 1)
	go func() {
		ok := false
		if z, err := zlib.NewReader(r); err == nil {
			n, err := io.Copy(io.Discard, io.LimitReader(z, f.limit+1))
			ok = err == nil && n == f.limit
		}
		_ = r.CloseWithError(io.ErrClosedPipe) // never fails
		f.done <- ok
	}()
}

func (f *inflater) whole() bool {
	if f.w == nil {
		return false
	}
	_ = f.w.Close() // never fails
	ok := <-f.done
	f.done <- ok
	return ok
}

func (f *inflater) close() {
	if f.w != nil {
		_ = f.w.Close()
		<-f.done
	}
}

// sniff is for small bodies: everything up to a limit, or an error.
func sniff(r io.Reader, limit int64) ([]byte, error) {
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = errors.New("the answer is longer than an answer of its kind can be")
	}
	return b.Bytes(), err
}
