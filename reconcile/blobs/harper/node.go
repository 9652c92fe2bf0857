package harper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"
)

// What a request met instead of a whole answer.
var (
	errNoResponse = errors.New("the node took the request and did not answer")
	errStalled    = errors.New("the body stopped coming")
	errTooSlow    = errors.New("the body came too slowly")
	errConnect    = errors.New("no connection to the node")
)

// node is one node's REST and operations port.
type node struct {
	cfg    Node
	rest   string // without a trailing slash
	ops    string
	timers Timers
	// fresh makes a connection of its own for each request.
	client, fresh *http.Client
	slots         chan struct{}
	pace          chan struct{} // nil: no bound
	gap           time.Duration
	health        health
	// groups are where a control may be searched for, known tells that a blob was met.
	groups []*group
	known  func(unit) bool
}

func newNode(cfg Node, timers Timers) *node {
	n := &node{cfg: cfg, rest: strings.TrimRight(cfg.URL, "/"), ops: strings.TrimRight(cfg.OperationsURL, "/"), timers: timers, slots: make(chan struct{}, cfg.Concurrency)}
	n.health.first = make(chan struct{})
	if cfg.RequestsPerSecond > 0 {
		n.pace = make(chan struct{}, 1)
		n.gap = time.Duration(float64(time.Second) / cfg.RequestsPerSecond)
	}
	client := func(keepAlive bool) *http.Client {
		return &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: timers.Connect}).DialContext,
				TLSHandshakeTimeout: timers.Connect,
				DisableKeepAlives:   !keepAlive,
				DisableCompression:  true, // bytes are judged as they are sent
				MaxIdleConnsPerHost: cfg.Concurrency,
				IdleConnTimeout:     30 * time.Second,
				// A page of records has small headers.
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	n.client, n.fresh = client(true), client(false)
	return n
}

// enter waits for a slot and for the node's pace.
func (n *node) enter(ctx context.Context) (leave func(), err error) {
	select {
	case n.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leave = func() { <-n.slots }
	if n.pace != nil {
		select {
		case n.pace <- struct{}{}:
			time.AfterFunc(n.gap, func() { <-n.pace })
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}
	return leave, nil
}

// reply is the head of an answer; Close frees what it holds.
type reply struct {
	status int
	header http.Header
	length int64 // -1: not told
	date   time.Time
	body   io.ReadCloser
}

func (r *reply) etag() string {
	return strings.Trim(strings.TrimPrefix(r.header.Get("ETag"), "W/"), `"`)
}

// how is the manner of a request.
type how struct {
	fresh  bool // on a connection of its own
	urgent bool // past the bounds that spare the node: a control
}

// get asks for path and query, as they stand on the wire.
func (n *node) get(ctx context.Context, target string, h how) (*reply, error) {
	req, err := http.NewRequest(http.MethodGet, n.rest+"/"+target, nil)
	if err != nil {
		return nil, fmt.Errorf("ask node %s: %w", n.cfg.Name, err)
	}
	return n.do(ctx, req, h)
}

// do sends a request under the node's timers. The error matches one of those above, or
// is the context's cause, or that of a connection that broke.
func (n *node) do(ctx context.Context, req *http.Request, h how) (*reply, error) {
	leave := func() {}
	if !h.urgent {
		var err error
		if leave, err = n.enter(ctx); err != nil {
			return nil, err
		}
	}
	if n.cfg.Authorization != "" {
		req.Header.Set("Authorization", n.cfg.Authorization)
	}
	req.Header.Set("Accept-Encoding", "identity")
	rctx, cancel := context.WithCancelCause(ctx)
	first := &firstByte{timer: time.AfterFunc(n.timers.Connect+n.timers.FirstByte, func() { cancel(errNoResponse) })}
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { first.sent(n.timers.FirstByte) }}
	client := n.client
	if h.fresh {
		client = n.fresh
	}
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(rctx, trace)))
	first.answered()
	if err != nil {
		cause := context.Cause(rctx)
		cancel(nil)
		leave()
		return nil, fmt.Errorf("ask node %s: %w", n.cfg.Name, n.reason(ctx, cause, err))
	}
	total := time.AfterFunc(n.timers.total(resp.ContentLength), func() { cancel(errTooSlow) })
	body := &timedBody{rc: resp.Body, parent: ctx, ctx: rctx, stall: n.timers.Stall}
	body.timer = time.AfterFunc(n.timers.Stall, func() { cancel(errStalled) })
	body.timer.Stop() // only a Read waits for the node
	body.free = sync.OnceFunc(func() {
		total.Stop()
		body.timer.Stop()
		cancel(nil)
		leave()
	})
	r := &reply{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: body}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.date = at.UTC()
	}
	return r, nil
}

// firstByte is the timer of an answer's head. That a request was written is told by
// another goroutine, which may come to it only after the answer is there.
type firstByte struct {
	mu    sync.Mutex
	timer *time.Timer
	done  bool
}

func (f *firstByte) sent(wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		f.timer.Reset(wait)
	}
}

func (f *firstByte) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
	f.timer.Stop()
}

// reason says why there was no answer. The text of the client's error is left out: it
// repeats the address.
func (n *node) reason(ctx context.Context, cause, err error) error {
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(cause, errNoResponse):
		return errNoResponse
	case errors.As(err, &op) && op.Op == "dial":
		return errConnect
	}
	return fmt.Errorf("%w: the request ended without an answer", errConnect)
}

// timedBody is a body whose reads may not stall. A body that ends early is an error of
// Read (io.ErrUnexpectedEOF).
type timedBody struct {
	rc     io.ReadCloser
	parent context.Context
	ctx    context.Context
	timer  *time.Timer
	stall  time.Duration
	free   func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.rc.Read(p)
	b.timer.Stop()
	if err == nil || err == io.EOF {
		return n, err
	}
	switch cause := context.Cause(b.ctx); {
	case b.parent.Err() != nil:
		return n, context.Cause(b.parent)
	case errors.Is(cause, errStalled), errors.Is(cause, errTooSlow):
		return n, cause
	}
	return n, io.ErrUnexpectedEOF
}

func (b *timedBody) Close() error {
	err := b.rc.Close()
	b.free()
	return err
}
