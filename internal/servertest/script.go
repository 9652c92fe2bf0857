package servertest

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/faultstore"
)

// Rule scripts the answers to some requests of an S3 server. Which requests: Op, Key,
// Query, From and Count. What happens: Before and Delay first, then the first of Hang, Drop, Status;
// without any of them the real server answers a request without what Ignore names,
// and its answer is changed by Header, NoContentLength and Cut.
type Rule struct {
	// Op is HEAD, GET, LIST, PUT, POST or DELETE; empty is any. Every listing is
	// LIST, that of versions too.
	Op string
	// Key selects by object key, by prefix for listings. With one of *?[ in it, it is a
	// [path.Match] pattern that the key or any tail of it after a "/" must match;
	// otherwise a text that the key must hold. Empty is any.
	Key string
	// Query is a text that the raw query must hold ("versions", "uploadId="); empty is any.
	Query string
	// From is the first of the selected requests, counted from 1, that is meant
	// (0 is 1), Count how many are (0 is all from there).
	From, Count int

	// Before is called before anything else happens: what the rest of the world does in
	// that moment. It may send requests itself, which rules see like any other.
	Before func()
	// Ignore are query parameters and header fields of the request that the real server
	// shall know nothing of.
	Ignore []string
	// Delay before the answer.
	Delay time.Duration
	// Hang never answers; the connection ends when the client gives up.
	Hang bool
	// Drop closes the connection without an answer.
	Drop bool
	// Status answers with this status, Code and Message (in an XML body, HEAD excepted).
	Status        int
	Code, Message string
	// Header is set on the answer, scripted or real.
	Header map[string]string
	// NoContentLength leaves Content-Length out of a real answer.
	NoContentLength bool
	// Cut ends the connection after so many bytes of a real body; 0 is never.
	Cut int64
}

// Request is one line of a server's log.
type Request struct {
	// Op as in Rule.
	Op string
	// Method, Path (as escaped on the wire) and Query (raw) of the request.
	Method, Path, Query string
	// Key is the object's key; a listing's prefix.
	Key string
	// RemoteAddr is the client's end of the connection.
	RemoteAddr string
	UserAgent  string
	// Status of the answer; 0 when there was none.
	Status int
}

// String is "HEAD data/x.lance" or "LIST data/".
func (r Request) String() string { return r.Op + " " + r.Key }

// Script stands in front of a server: it logs every request and answers those that
// its rules select. It is safe for concurrent use.
type Script struct {
	next   http.Handler
	closed chan struct{} // when the test ends, so that nothing hangs on

	mu    sync.Mutex
	rules []*rule
	seen  []*Request
}

type rule struct {
	Rule
	seen int
}

// serve puts a script before next on an address of its own, until the test ends.
func serve(t testing.TB, next http.Handler) (*Script, *httptest.Server) {
	script := &Script{next: next, closed: make(chan struct{})}
	srv := httptest.NewUnstartedServer(script)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // what goes wrong here goes wrong on purpose
	srv.Start()
	t.Cleanup(func() {
		close(script.closed)
		srv.CloseClientConnections()
		srv.Close()
	})
	return script, srv
}

// Add appends rules. The first that selects a request decides; each counts the
// requests that it selects and that no earlier rule decided.
func (s *Script) Add(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		s.rules = append(s.rules, &rule{Rule: r})
	}
}

// DenyAll answers every request from now on with 403 AccessDenied.
func (s *Script) DenyAll() { s.Add(Rule{Status: http.StatusForbidden, Code: "AccessDenied"}) }

// ClearRules forgets all rules.
func (s *Script) ClearRules() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Requests is the log so far, in the order in which requests came in.
func (s *Script) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Request, len(s.seen))
	for i, r := range s.seen {
		out[i] = *r
	}
	return out
}

// Writes is every request of the log that was neither HEAD, GET nor LIST.
func (s *Script) Writes() []Request {
	var out []Request
	for _, r := range s.Requests() {
		if r.Op != "HEAD" && r.Op != "GET" && r.Op != "LIST" {
			out = append(out, r)
		}
	}
	return out
}

// ClearLog forgets the log.
func (s *Script) ClearLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = nil
}

func describe(r *http.Request) *Request {
	q := r.URL.Query()
	_, key, hasKey := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	req := &Request{Op: r.Method, Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Key: key, RemoteAddr: r.RemoteAddr, UserAgent: r.UserAgent()}
	if r.Method == http.MethodGet && (!hasKey || key == "") {
		req.Op, req.Key = "LIST", q.Get("prefix")
	}
	return req
}

func (r *rule) selects(req *Request) bool {
	if r.Op != "" && r.Op != req.Op || !strings.Contains(req.Query, r.Query) {
		return false
	}
	return faultstore.MatchKey(r.Key, req.Key)
}

// decide logs the request and finds the rule for it; nil is none.
func (s *Script) decide(req *Request) *Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, req)
	for _, r := range s.rules {
		if !r.selects(req) {
			continue
		}
		r.seen++
		from := max(r.From, 1)
		if r.seen < from || r.Count > 0 && r.seen >= from+r.Count {
			continue
		}
		return &r.Rule
	}
	return nil
}

func (s *Script) answered(req *Request, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Status == 0 {
		req.Status = status
	}
}

// ServeHTTP implements [http.Handler].
func (s *Script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := describe(r)
	rule := s.decide(req)
	out := &recorder{ResponseWriter: w, status: func(n int) { s.answered(req, n) }}
	defer out.finish()
	if rule == nil {
		s.next.ServeHTTP(out, r)
		return
	}
	out.rule = rule
	if rule.Before != nil {
		rule.Before()
	}
	if rule.Delay > 0 && !sleep(r.Context(), rule.Delay) {
		out.drop()
		return
	}
	switch {
	case rule.Hang:
		// The server notices that the client is gone only once the body has been read.
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-s.closed:
		}
		out.drop()
	case rule.Drop:
		out.drop()
	case rule.Status != 0:
		out.refuse(r, rule)
	default:
		s.next.ServeHTTP(out, rule.without(r))
	}
}

// without is the request as a server reads it that ignores parts of it.
func (r *Rule) without(req *http.Request) *http.Request {
	if len(r.Ignore) == 0 {
		return req
	}
	req = req.Clone(req.Context())
	q := req.URL.Query()
	for _, name := range r.Ignore {
		q.Del(name)
		req.Header.Del(name)
	}
	req.URL.RawQuery = q.Encode()
	return req
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// drop ends the connection as a crashed server would.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // best effort: a reset instead of an orderly end
	}
	_ = conn.Close() // that it ends is the point
}

// recorder notes the status and bends the answer as a rule says.
type recorder struct {
	http.ResponseWriter
	rule   *Rule
	status func(int)
	wrote  bool
	gone   bool // the connection was ended on purpose
	sent   int64
}

func (w *recorder) drop() {
	w.gone = true
	drop(w.ResponseWriter)
}

// finish sends the header of an answer that has nothing else.
func (w *recorder) finish() {
	if !w.wrote && !w.gone {
		w.WriteHeader(http.StatusOK)
	}
}

// Unwrap serves [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if w.gone {
		return
	}
	if status >= 200 && !w.wrote {
		w.wrote = true
		w.status(status)
		if w.rule != nil {
			for k, v := range w.rule.Header {
				w.Header().Set(k, v)
			}
			if w.rule.NoContentLength {
				w.Header().Del("Content-Length")
			}
		}
	}
	w.ResponseWriter.WriteHeader(status)
	if w.rule != nil && w.rule.NoContentLength {
		// The server would count what it has buffered and tell the length after all.
		http.NewResponseController(w.ResponseWriter).Flush()
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.gone {
		return 0, net.ErrClosed
	}
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	if w.rule == nil || w.rule.Cut <= 0 {
		return w.ResponseWriter.Write(p)
	}
	if left := w.rule.Cut - w.sent; int64(len(p)) > left {
		n, err := w.ResponseWriter.Write(p[:left])
		w.sent += int64(n)
		if err == nil {
			err = http.NewResponseController(w.ResponseWriter).Flush()
		}
		w.drop()
		return n, fmt.Errorf("cut by a rule: %w", errOr(err, net.ErrClosed))
	}
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, err
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func (w *recorder) refuse(r *http.Request, rule *Rule) {
	// An answer to a body that was not read may be lost with the connection.
	_, _ = io.Copy(io.Discard, r.Body)
	code, message := rule.Code, rule.Message
	if code == "" {
		code = strings.ReplaceAll(http.StatusText(rule.Status), " ", "")
	}
	if message == "" {
		message = "scripted"
	}
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Amz-Request-Id", "SCRIPTED00000001")
	if r.Method == http.MethodHead {
		w.WriteHeader(rule.Status)
		return
	}
	body, err := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Error"`
		Code      string
		Message   string
		RequestID string `xml:"RequestId"`
	}{Code: code, Message: message, RequestID: "SCRIPTED00000001"})
	if err != nil {
		panic(err) // two strings always marshal
	}
	w.WriteHeader(rule.Status)
	_, _ = w.Write(body) // the client may be gone
}
