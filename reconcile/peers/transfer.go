package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// transfer is a request and the body of its answer: one that stalls, drips, ends
// early or does not end is an error. It is read from one goroutine at a time.
type transfer struct {
	peer   string
	timing Timing
	now    func() time.Time

	parent context.Context
	ctx    context.Context // of the request; ends with the transfer
	cancel context.CancelCauseFunc

	rc       io.ReadCloser
	promised int64 // of the whole body; Unknown when nothing tells
	recorded int64 // of the object; 0 when not recorded
	exact    bool  // a body of unknown length must have the recorded one
	read     int64
	waited   time.Duration
	err      error // what every further Read answers
}

// Causes of a transfer's end.
var (
	errFirstByte = errors.New("no answer in time")
	errStall     = errors.New("no byte in time")
	errDone      = errors.New("transfer ended")
)

// begin makes the context of a request.
func (t Timing) begin(ctx context.Context, peer string, now func() time.Time) *transfer {
	out := &transfer{peer: peer, timing: t, now: now, parent: ctx, promised: objstore.Unknown}
	out.ctx, out.cancel = context.WithCancelCause(ctx)
	return out
}

// within ends the request when f takes longer than d.
func (t *transfer) within(d time.Duration, cause error, f func()) {
	if d <= 0 {
		f()
		return
	}
	timer := time.AfterFunc(d, func() { t.cancel(cause) })
	f()
	timer.Stop()
}

// carry begins the body.
func (t *transfer) carry(rc io.ReadCloser, promised, recorded int64) {
	t.rc, t.promised, t.recorded = rc, promised, recorded
}

// end gives up what the request holds.
func (t *transfer) end() { t.cancel(errDone) }

// Close implements [io.Closer].
func (t *transfer) Close() error {
	if t.err == nil {
		t.err = t.fail(ReasonInterrupted, errDone)
	}
	t.end() // first: closing may wait for what is still under way
	return t.rc.Close()
}

// Read implements [io.Reader].
func (t *transfer) Read(p []byte) (n int, err error) {
	if t.err != nil {
		return 0, t.err
	}
	start := t.now()
	t.within(t.timing.Stall, errStall, func() { n, err = t.rc.Read(p) })
	t.waited += t.now().Sub(start)
	t.read += int64(n)
	if over := t.read - t.most(); t.most() >= 0 && over > 0 {
		n -= int(min(over, int64(n)))
		err = t.fail(ReasonTooLong, fmt.Errorf("more than %d bytes", t.most()))
	} else {
		err = t.judge(err)
	}
	if err != nil && err != io.EOF {
		t.end()
	}
	t.err = err
	return n, err
}

// most is the largest number of bytes that the body may have; -1 is any.
func (t *transfer) most() int64 {
	switch {
	case t.promised >= 0:
		return t.promised
	case t.recorded > 0:
		return t.recorded
	}
	return -1
}

// judge says what the end of one Read means.
func (t *transfer) judge(err error) error {
	switch {
	case err == io.EOF && t.promised >= 0 && t.read < t.promised:
		return t.fail(ReasonCutShort, fmt.Errorf("%d of %d bytes: %w", t.read, t.promised, io.ErrUnexpectedEOF))
	case err == io.EOF && t.exact && t.read < t.recorded:
		return t.fail(ReasonCutShort, fmt.Errorf("%d of the recorded %d bytes: %w", t.read, t.recorded, io.ErrUnexpectedEOF))
	case err == io.EOF:
		return io.EOF
	case err != nil && t.parent.Err() != nil:
		return t.fail(ReasonInterrupted, context.Cause(t.parent))
	case err != nil && (context.Cause(t.ctx) == errStall || context.Cause(t.ctx) == errFirstByte || errors.Is(err, context.DeadlineExceeded)):
		return t.fail(ReasonStalled, fmt.Errorf("after %d bytes: %w", t.read, context.DeadlineExceeded))
	case err != nil:
		return t.fail(ReasonCutShort, fmt.Errorf("after %d bytes: %w", t.read, harmless(err)))
	case t.dripping():
		return t.fail(ReasonTooSlow, fmt.Errorf("%d bytes in %s of waiting", t.read, t.waited.Round(time.Second)))
	}
	return nil
}

func (t *transfer) dripping() bool {
	if t.timing.Grace < 0 || t.timing.MinRate < 0 {
		return false
	}
	// In seconds as floats: bytes in nanoseconds would overflow at some gigabytes.
	return t.waited.Seconds() > t.timing.Grace.Seconds()+float64(t.read)/float64(t.timing.MinRate)
}

func (t *transfer) fail(reason string, err error) error {
	return &Error{Peer: t.peer, Reason: reason, Err: err}
}
