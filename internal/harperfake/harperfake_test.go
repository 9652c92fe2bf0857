package harperfake

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

type reply struct {
	status int
	length int64
	body   string
	etag   string
	err    error // of the request, or of the body
}

// ask sends a request and gives up after a while, as a client of a node must.
func ask(t *testing.T, method, url, body string, header ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.ContentLength, string(data), resp.Header.Get("ETag"), err}
}

func TestBlobsAreServedAsNodesServeThem(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Repeat("0123456789", 5000)) // 50,000 bytes
	type want struct {
		status  int
		length  int64
		got     int
		clean   bool
		another *want // the second read
	}
	hang := want{}
	full := want{status: 200, length: 50000, got: 50000, clean: true}
	for dialect, rows := range map[Dialect]map[Damage]want{
		Old: {
			None: full, Deleted: hang, Truncated: {status: 200, length: 50000, got: 25000}, Emptied: hang, BitsFlipped: full,
			Shorter:       {status: 200, length: 50000, got: 30000, another: &want{status: 200, length: 30000, got: 30000, clean: true}},
			SentinelWhole: full, SentinelShort: {status: 200, length: -1, got: 30000}, SentinelEmpty: hang, ErrorStub: hang, ExtraByte: full, UnknownType: full,
			PendingStub: {status: 200, length: 50000, got: len(PendingText), another: &want{status: 200, length: int64(len(PendingText)), got: len(PendingText), clean: true}},
			Writing:     {status: 200, length: -1, got: 50000, clean: true}, LateFailure: {status: 200, length: 50000, got: 25000},
		},
		New: {
			None: full, Deleted: {status: 404}, Truncated: {status: 500}, Emptied: {status: 500}, BitsFlipped: full, Shorter: {status: 500}, SentinelShort: {status: 500},
			SentinelEmpty: {status: 500}, ErrorStub: {status: 500}, ExtraByte: {status: 500}, UnknownType: {status: 500}, PendingStub: {status: 503}, Writing: {status: 503},
			LateFailure: {status: 200, length: 50000, got: 25000}, Compressed: full,
		},
	} {
		s := Start(t, Options{Dialect: dialect, CutAfter: 20 * time.Millisecond})
		s.Table("data", "Doc", "id")
		for d, w := range rows {
			s.Put("Doc", "k", nil, "body", data)
			s.Damage("Doc", "k", "body", d)
			for w := &w; w != nil; w = w.another {
				got := ask(t, "GET", s.URL+"/Doc/k.body", "")
				ok := got.status == w.status
				if w.status == 200 {
					ok = ok && got.length == w.length && len(got.body) == w.got && (got.err == nil) == w.clean && got.etag != ""
				}
				if w.status == 0 {
					ok = got.err != nil
				}
				if !ok {
					t.Errorf("dialect %d, %s: status %d, length %d, %d bytes, %v", dialect, d, got.status, got.length, len(got.body), got.err)
				}
				if head := ask(t, "HEAD", s.URL+"/Doc/k.body", ""); head.status != 200 || head.length != 0 {
					t.Errorf("HEAD of %s: %+v", d, head)
				}
			}
		}
	}
}

func TestRecordsAndPages(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.Table("data", "Doc", "id")
	s.Put("Doc", "a", map[string]any{"size": 3}, "body", []byte("abc"))
	s.Put("Doc", "a.b", map[string]any{"size": 20000}, "body", make([]byte, 20000))
	s.Put("Doc", "c", nil, "body", make([]byte, 9000))
	s.MIME("Doc", "c", "body", "image/png")
	for _, tt := range []struct {
		url    string
		status int
		body   string // contained
	}{
		{"/Doc/a", 200, `"body":"abc"`},
		{"/Doc/a%2Eb", 200, "[blob: text/plain, 20000 bytes]"},
		{"/Doc/c", 200, `"description"`},
		{"/Doc/a.b", 404, ""}, // the attribute b of a
		{"/Doc/a.b.body", 404, ""},
		{"/Doc/nobody", 404, ""},
		{"/Other/a", 404, ""},
		{"/Doc/a?select(body)", 200, "abc"},
		{"/Doc/?id=gt=&limit(2)", 500, "unexpected operator"},
		{"/Doc/?sort(+id)&limit(2)", 404, "is not indexed"},
		{"/Doc/?limit(1)&select(id,size)", 200, `[{"id":"a","size":3}]`},
		{"/Doc/?id=gt=a&limit(1)&select(id)", 200, `[{"id":"a.b"}]`},
		{"/Doc/?id=gt=a%2Eb&limit(5)&select(id)", 200, `[{"id":"c"}]`},
		{"/Doc/?id=gt=c&limit(5)&select(id)", 200, `[]`},
		{"/Doc/?select(id)", 200, `[{"id":"a"},{"id":"a.b"},{"id":"c"}]`},
	} {
		if got := ask(t, "GET", s.URL+tt.url, ""); got.status != tt.status || !strings.Contains(got.body, tt.body) {
			t.Errorf("%s: %d %s", tt.url, got.status, got.body)
		}
	}
	etag := ask(t, "GET", s.URL+"/Doc/c.body", "").etag
	s.Damage("Doc", "c", "body", Deleted)
	if got := ask(t, "GET", s.URL+"/Doc/c.body", "", "If-None-Match", etag); got.status != 304 {
		t.Errorf("a condition is answered from the file: %+v", got)
	}
	s.Touch("Doc", "c")
	if got := ask(t, "GET", s.URL+"/Doc/c", ""); got.etag == etag || got.etag == "" {
		t.Errorf("a write left the version %q", got.etag)
	}
	if got := ask(t, "GET", s.URL+"/Doc/a%2Eb.body", "", "Range", "bytes=0-0"); got.status != 200 || len(got.body) != 20000 {
		t.Errorf("a range: %d, %d bytes", got.status, len(got.body))
	}
}

func TestOperations(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{User: "u", Password: "p", Reader: "r", ReaderPassword: "q"})
	s.BlobFailures(7)
	url := func(user string) string { return strings.Replace(s.OperationsURL, "http://", "http://"+user+"@", 1) }
	for _, tt := range []struct {
		user, op string
		status   int
	}{{"u:p", "cluster_status", 200}, {"u:p", "repair_blob_data", 200}, {"u:p", "drop_database", 400}, {"r:q", "cluster_status", 403}, {"u:x", "cluster_status", 401}} {
		got := ask(t, "POST", url(tt.user), `{"operation":"`+tt.op+`","database":"data"}`)
		if got.status != tt.status || !json.Valid([]byte(got.body)) || tt.op == "cluster_status" && tt.status == 200 && !strings.Contains(got.body, `"blobReplicationFailures":7`) {
			t.Errorf("%s %s: %d %s", tt.user, tt.op, got.status, got.body)
		}
	}
	core := Start(t, Options{CoreOnly: true})
	if got := ask(t, "POST", core.OperationsURL, `{"operation":"cluster_status"}`); !strings.Contains(got.body, "Operation 'cluster_status' not found") {
		t.Errorf("of a core: %+v", got)
	}
}
