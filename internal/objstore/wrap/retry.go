package wrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Defaults of RetryOptions, and the waiting between attempts.
const (
	// DefaultAttempts: a second try meets a server that has just restarted, a third
	// one a slow one; more only delays what must be said.
	DefaultAttempts = 3
	// DefaultRequestTimeout is far above what a HEAD or a page takes and far below
	// what a pass can spare for one key.
	DefaultRequestTimeout = 15 * time.Second

	backoffBase = 100 * time.Millisecond
	backoffCap  = 5 * time.Second
)

// RetryOptions of NewRetry. The zero value has the defaults.
type RetryOptions struct {
	// Attempts per reading request; 0 is DefaultAttempts, 1 never asks again. An
	// answer that asks to slow down is given 2·Attempts+2 attempts when there may be
	// more than one: it says that waiting helps.
	Attempts int
	// RequestTimeout ends one attempt, a Get's wait for its next bytes, and a
	// listing's wait for its next page; 0 is DefaultRequestTimeout, less is none.
	RequestTimeout time.Duration
	// Meter counts repetitions; nil: nobody does.
	Meter *Meter
}

// NewRetry asks inner again when the error says that this may help (it has a method
// Retryable() bool that answers true) or when an attempt got no answer in time.
// Between attempts it waits a random time that doubles at most, or as long as the
// store asks for. Get is repeated until its first byte is there, List page by page;
// a listing without pages until its first entry.
//
// A context that ends is answered at once, with an error that matches it. An attempt
// that got no answer matches [context.DeadlineExceeded] although the caller's
// context has not ended.
func NewRetry(inner objstore.Reader, opts RetryOptions) objstore.Reader {
	return around(inner, newRetrying(opts))
}

// NewRetryWriter is NewRetry for a store that can be written. Create, Replace and
// CreateOverMarker are sent exactly once and have no time limit but their context's: whoever writes must
// look at what became of it.
func NewRetryWriter(inner objstore.Writer, opts RetryOptions) objstore.Writer {
	return aroundWriter(inner, newRetrying(opts))
}

type retrying struct {
	attempts int
	timeout  time.Duration // 0: none
	meter    *Meter
}

var _ streamer = (*retrying)(nil)

func newRetrying(opts RetryOptions) *retrying {
	r := &retrying{attempts: opts.Attempts, timeout: opts.RequestTimeout, meter: opts.Meter}
	if r.attempts <= 0 {
		r.attempts = DefaultAttempts
	}
	if r.timeout == 0 {
		r.timeout = DefaultRequestTimeout
	}
	r.timeout = max(r.timeout, 0)
	if r.meter == nil {
		r.meter = new(Meter)
	}
	return r
}

func (r *retrying) do(ctx context.Context, req request, call func(context.Context) error) error {
	if req.writes() {
		if err := ctx.Err(); err != nil {
			return req.fail(err) // no write is begun under an ended context
		}
		return call(ctx)
	}
	return r.loop(ctx, req, func() error {
		if r.timeout == 0 {
			return call(ctx)
		}
		actx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		err := call(actx)
		if err != nil && actx.Err() != nil && ctx.Err() == nil && retryable(err) {
			return r.timedOut(req)
		}
		return err
	})
}

func (r *retrying) timedOut(req request) error {
	return req.fail(fmt.Errorf("no answer within %s: %w", r.timeout, context.DeadlineExceeded))
}

// loop makes attempts until one gives an answer that stands.
func (r *retrying) loop(ctx context.Context, req request, attempt func() error) error {
	if err := ctx.Err(); err != nil {
		return req.fail(err)
	}
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || !retryable(err) {
			return err
		}
		if ctx.Err() != nil {
			return req.fail(ctx.Err())
		}
		if n >= r.most(err) {
			return err
		}
		if sleep(ctx, backoff(n, err)) != nil {
			return req.fail(ctx.Err())
		}
		r.meter.retried.Add(1)
	}
}

// most is how many attempts are made of what ends in err.
func (r *retrying) most(err error) int {
	if r.attempts > 1 && errors.Is(err, objstore.ErrThrottled) {
		return 2*r.attempts + 2
	}
	return r.attempts
}

func retryable(err error) bool {
	var e interface{ Retryable() bool }
	return errors.As(err, &e) && e.Retryable()
}

// backoff is a random part of a span that doubles with each attempt, so that many
// callers that failed together do not come back together.
func backoff(attempt int, err error) time.Duration {
	span := min(backoffBase<<min(attempt-1, 16), backoffCap)
	d := time.Duration(rand.Int64N(int64(span) + 1))
	var e *objstore.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		d += min(e.RetryAfter, maxPause)
	}
	return d
}

// watch ends a context when what it watches makes no progress.
type watch struct {
	r      *retrying
	req    request
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // nil: no limit
}

var errStalled = errors.New("no progress")

func (r *retrying) watch(ctx context.Context, req request) *watch {
	w := &watch{r: r, req: req, parent: ctx}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

// step runs f, which must come back within the time limit.
func (w *watch) step(f func() error) error {
	if w.r.timeout == 0 {
		return f()
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.r.timeout, func() { w.cancel(errStalled) })
	} else {
		w.timer.Reset(w.r.timeout)
	}
	err := f()
	w.timer.Stop()
	if err != nil && err != io.EOF && context.Cause(w.ctx) == errStalled && w.parent.Err() == nil {
		return w.r.timedOut(w.req)
	}
	return err
}

func (w *watch) close() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}

// firstRead is how much of a body the attempt waits for at most.
const firstRead = 4096

// get is an attempt up to the first byte, and a body whose reads may not stall.
func (r *retrying) get(ctx context.Context, req request, open func(context.Context) (io.ReadCloser, objstore.Attrs, error)) (io.ReadCloser, objstore.Attrs, error) {
	var (
		body  *watchedBody
		attrs objstore.Attrs
	)
	err := r.loop(ctx, req, func() error {
		w := r.watch(ctx, req)
		b := &watchedBody{w: w}
		err := w.step(func() (err error) {
			b.rc, attrs, err = open(w.ctx)
			if err != nil {
				return err
			}
			return b.fill()
		})
		if err != nil {
			b.abandon()
			return err
		}
		body = b
		return nil
	})
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	return body, attrs, nil
}

type watchedBody struct {
	w    *watch
	rc   io.ReadCloser
	head []byte // read already
	err  error  // what follows head
}

// fill reads the first bytes. An error before any is the attempt's.
func (b *watchedBody) fill() error {
	buf := make([]byte, firstRead)
	for {
		n, err := b.rc.Read(buf)
		b.head, b.err = buf[:n], err
		if n == 0 && err != nil && err != io.EOF {
			return err
		}
		if n > 0 || err != nil {
			return nil
		}
	}
}

func (b *watchedBody) abandon() {
	if b.rc != nil {
		_ = b.rc.Close() // the attempt has failed already
	}
	b.w.close()
}

func (b *watchedBody) Read(p []byte) (n int, err error) {
	if len(b.head) > 0 {
		n = copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	err = b.w.step(func() (err error) {
		n, err = b.rc.Read(p)
		return err
	})
	b.err = err // a body that has failed stays so
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.rc.Close()
	b.w.close()
	return err
}

// list is an attempt up to the first entry, and entries that may not stall.
func (r *retrying) list(ctx context.Context, req request, open func(context.Context) iter.Seq2[objstore.Attrs, error]) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		var (
			p pull
			w *watch
		)
		defer func() {
			p.close()
			if w != nil {
				w.close()
			}
		}()
		err := r.loop(ctx, req, func() error {
			if w != nil {
				w.close()
			}
			w = r.watch(ctx, req)
			return w.step(func() error { return p.open(open(w.ctx)) })
		})
		if err != nil {
			yield(objstore.Attrs{}, err)
			return
		}
		p.rest(yield, func() (a objstore.Attrs, err error, ok bool) {
			err = w.step(func() (err error) {
				a, err, ok = p.step()
				return err
			})
			return a, err, ok
		})
	}
}
