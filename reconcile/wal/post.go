package wal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// The classes of failures, for machines.
const (
	classStatus      = "bad_status"
	classAnswer      = "bad_answer"
	classTimeout     = "timeout"
	classUnreachable = "unreachable"
	classCut         = "connection_cut"
	classInterrupted = "interrupted"
)

// answer is what one request came to.
type answer struct {
	status    int // 0 when there was none
	reclaimed int64
	took      time.Duration
	err       error
	class     string
	// unknown: the request was sent and no whole answer came, so that the worker may
	// still be merging.
	unknown bool
}

// silent reports whether the worker let the time run out.
func (a answer) silent() bool { return a.class == classTimeout }

// dialTimeout is short, unlike that of a merge: who does not take a connection does
// not merge either.
const dialTimeout = 10 * time.Second

// newTransport makes a connection for each request: on one that was kept, a request
// can be lost without anybody knowing whether it was read.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}
}

const maxAnswer = 64 << 10

// post asks one worker. When ctx ends because the lock is lost, the request is broken
// off at once, since somebody else may be merging; when it ends otherwise, the answer
// is awaited for Grace.
func (m *merger) post(ctx context.Context, address string) (a answer) {
	begun := m.Now()
	defer func() { a.took = m.Now().Sub(begun) }()
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ledger.ErrFenced) {
			cancel()
			return
		}
		grace := time.AfterFunc(m.Grace, cancel)
		context.AfterFunc(rctx, func() { grace.Stop() })
	})
	defer stop()

	var sent atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(rctx, trace), http.MethodPost, address, nil)
	if err != nil {
		return answer{err: errors.New("the address cannot be asked"), class: classUnreachable}
	}
	client := &http.Client{Transport: m.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return m.noAnswer(ctx, rctx, 0, sent.Load(), err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil && resp.StatusCode/100 == 2 {
		return m.noAnswer(ctx, rctx, resp.StatusCode, true, err)
	}
	return judge(resp, body)
}

// judge reads an answer that came whole.
func judge(resp *http.Response, body []byte) answer {
	a := answer{status: resp.StatusCode}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return a // it has none of the target
	case resp.StatusCode/100 != 2:
		a.class, a.err = classStatus, fmt.Errorf("answered %d", resp.StatusCode)
		// Said by a proxy that lost sight of the worker.
		a.unknown = resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout
		return a
	}
	var doc struct {
		Reclaimed *int64 `json:"reclaimed"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Reclaimed == nil || *doc.Reclaimed < 0 {
		a.class, a.err = classAnswer, fmt.Errorf("answered %d without saying how many generations it reclaimed; is this a worker?", resp.StatusCode)
		return a
	}
	a.reclaimed = *doc.Reclaimed
	return a
}

// noAnswer tells why no answer came.
func (m *merger) noAnswer(ctx, rctx context.Context, status int, sent bool, err error) answer {
	a := answer{status: status, unknown: sent}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address, which is told beside it
	}
	switch {
	case errors.Is(context.Cause(ctx), ledger.ErrFenced) && rctx.Err() != nil:
		a.class, a.err = classInterrupted, fmt.Errorf("broken off: %w", context.Cause(ctx))
	case ctx.Err() != nil && rctx.Err() != nil:
		a.class, a.err = classInterrupted, fmt.Errorf("no answer yet when the pass ended: %w", context.Cause(ctx))
	case errors.Is(rctx.Err(), context.DeadlineExceeded):
		a.class, a.err = classTimeout, fmt.Errorf("no answer within %s", m.Timeout)
	case sent:
		a.class, a.err = classCut, fmt.Errorf("the connection broke before the answer: %w", err)
	default:
		a.class, a.err = classUnreachable, fmt.Errorf("cannot be reached: %w", err)
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			a.class = classTimeout
		}
	}
	return a
}

// exactly is a ledger.Filter pattern that matches one URI.
func exactly(uri string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(uri)
}
