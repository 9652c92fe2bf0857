package servertest

import (
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Manner is how a [WebPeer] answers for one blob.
type Manner int

// The manners. Those that speak of half a body send the half without the rest.
const (
	Honest         Manner = iota // 200, Content-Length, the bytes
	ClosesHalfWay                // half, then an orderly end of the connection
	ResetsHalfWay                // half, then a reset
	Resets                       // a reset instead of an answer
	Hangs                        // no header until the client gives up
	Stalls                       // half, then nothing until the client gives up
	Drips                        // a byte every 20 ms
	ErrorPage                    // 200 with an HTML page that says that it was not found
	ErrorText                    // 200 with a JSON error
	Redirects                    // 302 to the bytes
	RedirectsBadly               // 302 to what is no address, quoting the request
	Gzips                        // Content-Encoding: gzip
	GzipsSilently                // the same bytes without saying so
	PromisesMore                 // Content-Length too large, then the end of the connection
	PromisesLess                 // Content-Length of the half, and all bytes
	Chunks                       // chunked, without Content-Length
	ChunksHalf                   // chunked, half, without the last chunk
	EndsByClosing                // neither chunked nor Content-Length: the end is that of the connection
	ClosesEarly                  // the same with half
	RefusesHead                  // HEAD is 404, GET is 200
	HeadLies                     // HEAD is 200, GET is 404
	HugeHeader                   // 200 with a megabyte of header
	Gibberish                    // no HTTP at all, quoting the request
	Half                         // 206 although no range was asked for
	Empty                        // 204
	Denies                       // 403
	Busy                         // 503
	BusyOnce                     // 503 to the first request, then Honest
	BusyForLong                  // 503 with Retry-After: 3600
	Fails                        // 500
	Gone                         // 410
)

// WebRequest is one line of a peer's log.
type WebRequest struct {
	Method string
	// Target is the request's target as it came over the wire, Key the blob's key.
	Target, Key string
	Host        string
	Header      http.Header
}

// WebPeer is a web server that holds blobs below /blobs/ and misbehaves as told. It
// resolves nothing: keys are exact.
type WebPeer struct {
	// URL is "http://127.0.0.1:port".
	URL string
	// Roots trust a server with TLS.
	Roots *x509.CertPool

	closed chan struct{}
	mu     sync.Mutex
	blobs  map[string]webBlob
	all    *Manner
	seen   []WebRequest
	times  map[string]int
}

type webBlob struct {
	data   []byte
	manner Manner
}

// Web starts a peer. It ends with the test.
func Web(t testing.TB) *WebPeer { return web(t, (*httptest.Server).Start) }

// WebTLS is Web under a certificate that only Roots trust.
func WebTLS(t testing.TB) *WebPeer { return web(t, (*httptest.Server).StartTLS) }

func web(t testing.TB, start func(*httptest.Server)) *WebPeer {
	p := &WebPeer{closed: make(chan struct{}), blobs: map[string]webBlob{}, times: map[string]int{}, Roots: x509.NewCertPool()}
	srv := httptest.NewUnstartedServer(p)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // what goes wrong here goes wrong on purpose
	start(srv)
	p.URL = srv.URL
	if cert := srv.Certificate(); cert != nil {
		p.Roots.AddCert(cert)
	}
	t.Cleanup(func() {
		close(p.closed)
		srv.CloseClientConnections()
		srv.Close()
	})
	return p
}

// Template is the address of a blob, with {key} in it.
func (p *WebPeer) Template() string { return p.URL + "/blobs/{key}" }

// Put stores a blob and how it is answered for.
func (p *WebPeer) Put(key string, data []byte, m Manner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blobs[key] = webBlob{data, m}
}

// All answers for every blob, those that are not there too, in one manner from now on.
func (p *WebPeer) All(m Manner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = &m
}

// Requests is the log so far.
func (p *WebPeer) Requests() []WebRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]WebRequest(nil), p.seen...)
}

// find logs a request and tells what it asks for.
func (p *WebPeer) find(r *http.Request) (b webBlob, ok bool, nth int) {
	raw, in := strings.CutPrefix(r.URL.EscapedPath(), "/blobs/")
	key, err := url.PathUnescape(raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, WebRequest{Method: r.Method, Target: r.RequestURI, Key: key, Host: r.Host, Header: r.Header.Clone()})
	b, ok = p.blobs[key]
	if p.all != nil {
		b.manner, ok = *p.all, true
	}
	p.times[key]++
	return b, ok && in && err == nil, p.times[key]
}

// ServeHTTP implements [http.Handler].
func (p *WebPeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, ok, nth := p.find(r)
	w.Header().Set("Content-Type", "application/octet-stream")
	h := w.Header()
	size := len(b.data)
	switch m := b.manner; {
	case !ok || m == HeadLies && r.Method != http.MethodHead || m == RefusesHead && r.Method == http.MethodHead:
		http.Error(w, "404", http.StatusNotFound)
	case m == Resets:
		drop(w)
	case m == Hangs:
		p.wait(r)
	case m == ErrorPage:
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html><title>Not found</title><p>There is nothing here.") // the client may be gone
	case m == ErrorText:
		h.Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"error":"not found"}`) // the client may be gone
	case m == Redirects:
		h.Set("Location", "/blobs/elsewhere")
		w.WriteHeader(http.StatusFound)
	case m == RedirectsBadly:
		h.Set("Location", "http://%zz/"+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusFound)
	case m == HugeHeader:
		for i := range 256 {
			h.Set("X-Filler-"+strconv.Itoa(i), strings.Repeat("x", 4096))
		}
		_, _ = w.Write(b.data) // the client may be gone
	case m == Half:
		h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", size/2-1, size))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(b.data[:size/2]) // the client may be gone
	case m == BusyForLong:
		h.Set("Retry-After", "3600")
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case m == BusyOnce && nth == 1:
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case mannerStatus[m] != 0:
		w.WriteHeader(mannerStatus[m])
	default:
		p.body(w, r, b)
	}
}

var mannerStatus = map[Manner]int{Empty: 204, Denies: 403, Busy: 503, Fails: 500, Gone: 410}

// body answers 200 with something of the blob.
func (p *WebPeer) body(w http.ResponseWriter, r *http.Request, b webBlob) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
	size, half := len(b.data), b.data[:len(b.data)/2]
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n", n) }
	chunk := func(data []byte) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }
	switch b.manner {
	case ClosesHalfWay:
		raw(w, head+length(size)+string(half), false)
	case ResetsHalfWay:
		raw(w, head+length(size)+string(half), true)
	case PromisesMore:
		raw(w, head+length(size+10)+string(b.data), false)
	case PromisesLess:
		raw(w, head+length(len(half))+string(b.data), false)
	case Chunks:
		raw(w, head+"Transfer-Encoding: chunked\r\n\r\n"+chunk(half)+chunk(b.data[len(half):])+"0\r\n\r\n", false)
	case ChunksHalf:
		raw(w, head+"Transfer-Encoding: chunked\r\n\r\n"+chunk(half), false)
	case EndsByClosing:
		raw(w, head+"Connection: close\r\n\r\n"+string(b.data), false)
	case ClosesEarly:
		raw(w, head+"Connection: close\r\n\r\n"+string(half), false)
	case Gibberish:
		raw(w, strings.ReplaceAll(r.Header.Get("Authorization"), " ", "-")+"\r\n", false)
	case Stalls, Drips:
		w.Header().Set("Content-Length", strconv.Itoa(size))
		p.slowly(w, r, b)
	case Gzips, GzipsSilently:
		if b.manner == Gzips {
			w.Header().Set("Content-Encoding", "gzip")
		}
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		_, _ = z.Write(b.data) // to memory
		_ = z.Close()          // to memory
		w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
		_, _ = w.Write(buf.Bytes()) // the client may be gone
	default:
		w.Header().Set("Content-Length", strconv.Itoa(size))
		w.Header().Set("Etag", `"v1"`)
		_, _ = w.Write(b.data) // the client may be gone
	}
}

func (p *WebPeer) slowly(w http.ResponseWriter, r *http.Request, b webBlob) {
	ctl := http.NewResponseController(w)
	if b.manner == Stalls {
		_, _ = w.Write(b.data[:len(b.data)/2]) // the client may be gone
		_ = ctl.Flush()                        // the client may be gone
		p.wait(r)
		return
	}
	for i := range b.data {
		if _, err := w.Write(b.data[i : i+1]); err != nil || ctl.Flush() != nil || !sleep(r.Context(), 20*time.Millisecond) {
			return
		}
	}
}

// wait lasts until the client gives up or the test ends.
func (p *WebPeer) wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-p.closed:
	}
}

// raw sends bytes as they are and ends the connection.
func raw(w http.ResponseWriter, text string, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, text) // the client may be gone
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		time.Sleep(20 * time.Millisecond) // a reset overtakes what was not yet read
		_ = tcp.SetLinger(0)              // best effort: a reset instead of an orderly end
	}
	_ = conn.Close() // that it ends is the point
}
