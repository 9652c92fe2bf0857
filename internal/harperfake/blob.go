package harperfake

import (
	"bytes"
	"compress/zlib"
	"net/http"
	"strconv"
	"time"
)

// answer is what a GET of a blob attribute meets.
type answer struct {
	status int // other than 200: an error
	text   string
	silent bool  // no answer at all
	length int64 // promised; -1: chunked
	body   []byte
	slow   bool // the body comes in pieces
	end    ending
}

type ending uint8

const (
	endClean ending = iota
	endStall        // nothing more comes
	endCut          // the node closes after Options.CutAfter
	endClose        // the node closes at once
)

// PendingText and ErrorText are the bodies of stubs.
const (
	PendingText = "receive interrupted, will be retried"
	ErrorText   = "Blob stream failed: connection reset"
)

// answer is called with the server's mutex held.
func (b *blob) answer(d Dialect) answer {
	b.servings++
	n := int64(len(b.data))
	if d == New {
		if status := b.damage.newStatus(); status != 0 {
			return answer{status: status, text: b.damage.newText(status)}
		}
		if b.damage == Compressed {
			return answer{length: n, body: b.data}
		}
	}
	switch b.damage {
	case NullAttribute:
		return answer{status: http.StatusNotFound, text: "Not found"}
	case Deleted, Emptied, SentinelEmpty, ErrorStub:
		return answer{silent: true}
	case Truncated:
		return answer{length: n, body: b.data[:n/2], end: endStall}
	case BitsFlipped:
		flipped := bytes.Clone(b.data)
		flipped[n/2] ^= 0x10
		return answer{length: n, body: flipped}
	case Shorter:
		return b.adopt(b.data[:n*3/5])
	case PendingStub:
		return b.adopt([]byte(PendingText))
	case SentinelShort:
		return answer{length: -1, body: b.data[:n*3/5], end: endStall}
	case Compressed:
		return answer{length: n, body: deflate(b.data), end: endStall}
	case Writing:
		return answer{length: -1, body: b.data, slow: true}
	case LateFailure:
		return answer{length: n, body: b.data[:n/2], end: endClose}
	}
	return answer{length: n, body: b.data}
}

// adopt serves what the file's header says: with the record's length the first time,
// and with the header's, which that read wrote into the cached record, from then on.
func (b *blob) adopt(body []byte) answer {
	if b.adopted >= 0 {
		return answer{length: int64(len(body)), body: body}
	}
	b.adopted = int64(len(body))
	return answer{length: int64(len(b.data)), body: body, end: endCut}
}

func (d Damage) newText(status int) string {
	switch {
	case d == ErrorStub:
		return "Error in blob: " + ErrorText
	case status == http.StatusNotFound:
		return "ENOENT: no such file or directory, open '/srv/harper/blobs/data/0/0/2'"
	case status == http.StatusServiceUnavailable:
		return "Blob is not available yet"
	}
	return "Error: Incomplete blob for /srv/harper/blobs/data/0/0/2"
}

func deflate(data []byte) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write(data) // into memory
	_ = z.Close()
	return b.Bytes()
}

// serve carries an answer out.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, a answer) {
	switch {
	case a.silent:
		s.wait(r)
	case a.status != 0:
		fail(w, a.status, a.text)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if a.length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(a.length, 10))
	}
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	pieces := 1
	if a.slow {
		pieces = 8
	}
	for i := range pieces {
		from, to := len(a.body)*i/pieces, len(a.body)*(i+1)/pieces
		if _, err := w.Write(a.body[from:to]); err != nil {
			return
		}
		if a.length < 0 || a.end != endClean {
			_ = flush() // fails when the client has gone
		}
		if a.slow {
			s.pause(r, 2*time.Millisecond)
		}
	}
	switch a.end {
	case endStall:
		s.wait(r)
	case endCut:
		s.pause(r, s.opts.CutAfter)
		panic(http.ErrAbortHandler)
	case endClose:
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) pause(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	case <-s.closed:
	}
}
