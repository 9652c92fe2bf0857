package peers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/peers"
)

var collection = objstore.Location{Scheme: "s3", Bucket: "attachments", Key: "blobs"}

func blob(key string, size int64) reconcile.Reference {
	return reconcile.Reference{Role: reconcile.RoleBlob, Path: key, Location: collection.Join(key), Base: collection, Size: size}
}

func content(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data) // it never fails
	return data
}

// patient does not end what is only slow because the machine is.
var patient = peers.Timing{FirstByte: 20 * time.Second, Stall: 20 * time.Second, Grace: 20 * time.Second}

func newHTTP(t *testing.T, template string, timing peers.Timing, header map[string]string) *peers.HTTP {
	t.Helper()
	p, err := peers.NewHTTP(template, peers.HTTPOptions{Options: peers.Options{Mirrors: collection, Timing: timing, Now: time.Now}, Header: header})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fetched is all that Fetch gives, and whether it is whole.
func fetched(ctx context.Context, p reconcile.Peer, ref reconcile.Reference) ([]byte, objstore.Attrs, error) {
	rc, a, err := p.Fetch(ctx, ref)
	if err != nil {
		return nil, a, err
	}
	data, err := io.ReadAll(rc)
	if cerr := rc.Close(); err == nil {
		err = cerr
	}
	return data, a, err
}

const secret = "Bearer c2VjcmV0LXRva2Vu"

func TestEachMannerOfAPeerHasItsWord(t *testing.T) {
	t.Parallel()
	const size = 4096
	stall, drip, hang := patient, patient, patient
	stall.Stall, hang.FirstByte = 300*time.Millisecond, 300*time.Millisecond
	drip.Grace, drip.MinRate = 300*time.Millisecond, 1<<20
	for _, tt := range []struct {
		name         string
		manner       servertest.Manner
		timing       peers.Timing
		ask, fetch   string // reasons
		promised     int64
		wrong        bool // whole, and other bytes: for the proof to see
		unrecorded   bool // no size is recorded
		checksum     string
		requests     int // of one Ask; 0 is 1
		wantNotExist bool
	}{
		{name: "an honest one", manner: servertest.Honest, promised: size},
		{name: "one that closes half way", manner: servertest.ClosesHalfWay, promised: size, fetch: peers.ReasonCutShort},
		{name: "one that resets half way", manner: servertest.ResetsHalfWay, promised: size, fetch: peers.ReasonCutShort},
		{name: "one that resets", manner: servertest.Resets, ask: peers.ReasonUnreachable, requests: 2},
		{name: "one that hangs is not waited for twice", manner: servertest.Hangs, timing: hang, ask: peers.ReasonTimeout},
		{name: "one that stalls", manner: servertest.Stalls, timing: stall, promised: size, fetch: peers.ReasonStalled},
		{name: "one that drips", manner: servertest.Drips, timing: drip, promised: size, fetch: peers.ReasonTooSlow},
		{name: "an error page", manner: servertest.ErrorPage, ask: peers.ReasonErrorPage},
		{name: "an error page for a blob of which nothing is recorded", manner: servertest.ErrorPage, unrecorded: true, ask: peers.ReasonErrorPage},
		{name: "an error page that a checksum will judge", manner: servertest.ErrorPage, unrecorded: true, checksum: "md5:00", promised: 64, wrong: true},
		{name: "a small error that is no page", manner: servertest.ErrorText, promised: 21, wrong: true},
		{name: "a redirect", manner: servertest.Redirects, ask: peers.ReasonRedirect},
		{name: "a redirect to no address", manner: servertest.RedirectsBadly, ask: peers.ReasonRedirect},
		{name: "gzip", manner: servertest.Gzips, ask: peers.ReasonEncoded},
		{name: "gzip that is not spoken of", manner: servertest.GzipsSilently, promised: 4124, wrong: true},
		{name: "a length that is too large", manner: servertest.PromisesMore, promised: size + 10, fetch: peers.ReasonCutShort},
		{name: "a length that is too small", manner: servertest.PromisesLess, promised: size / 2, wrong: true},
		{name: "chunks", manner: servertest.Chunks, promised: objstore.Unknown},
		{name: "chunks that break off", manner: servertest.ChunksHalf, promised: objstore.Unknown, fetch: peers.ReasonCutShort},
		{name: "chunks that break off, nothing recorded", manner: servertest.ChunksHalf, unrecorded: true, promised: objstore.Unknown, fetch: peers.ReasonCutShort},
		{name: "an end by closing, size recorded", manner: servertest.EndsByClosing, promised: objstore.Unknown},
		{name: "an end by closing, checksum recorded", manner: servertest.EndsByClosing, unrecorded: true, checksum: "md5:00", promised: objstore.Unknown},
		{name: "an end by closing, nothing recorded", manner: servertest.EndsByClosing, unrecorded: true, ask: peers.ReasonNoEnd},
		{name: "an early end by closing, size recorded", manner: servertest.ClosesEarly, promised: objstore.Unknown, fetch: peers.ReasonCutShort},
		{name: "404 to HEAD alone", manner: servertest.RefusesHead, promised: size},
		{name: "200 to HEAD alone", manner: servertest.HeadLies, ask: peers.ReasonNoSuchObject, wantNotExist: true},
		{name: "410", manner: servertest.Gone, ask: peers.ReasonNoSuchObject, wantNotExist: true},
		{name: "a huge header", manner: servertest.HugeHeader, ask: peers.ReasonUnreachable, requests: 2},
		{name: "no HTTP", manner: servertest.Gibberish, ask: peers.ReasonUnreachable, requests: 2},
		{name: "206 unasked", manner: servertest.Half, ask: peers.ReasonStatus},
		{name: "204", manner: servertest.Empty, ask: peers.ReasonStatus},
		{name: "403", manner: servertest.Denies, ask: peers.ReasonDenied},
		{name: "503", manner: servertest.Busy, ask: peers.ReasonThrottled, requests: 2},
		{name: "503 once", manner: servertest.BusyOnce, promised: size, requests: 2},
		{name: "503 for an hour", manner: servertest.BusyForLong, ask: peers.ReasonThrottled},
		{name: "500", manner: servertest.Fails, ask: peers.ReasonServerError, requests: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.timing == (peers.Timing{}) {
				tt.timing = patient
			}
			srv := servertest.Web(t)
			good := content(size)
			srv.Put("a/b.bin", good, tt.manner)
			p := newHTTP(t, srv.Template(), tt.timing, map[string]string{"Authorization": secret})
			ref := blob("a/b.bin", size)
			ref.Checksum = tt.checksum
			if tt.unrecorded {
				ref.Size = 0
			}

			a, err := p.Ask(t.Context(), ref)
			if got := peers.Reason(err); got != tt.ask || errors.Is(err, objstore.ErrNotExist) != tt.wantNotExist {
				t.Errorf("ask: %q (%v), want %q", got, err, tt.ask)
			}
			if err == nil && a.Size != tt.promised {
				t.Errorf("ask: size %d, want %d", a.Size, tt.promised)
			}
			if got, want := len(srv.Requests()), max(tt.requests, 1); got != want {
				t.Errorf("ask: %d requests, want %d", got, want)
			}

			data, a, ferr := fetched(t.Context(), p, ref)
			want := tt.ask + tt.fetch
			if got := peers.Reason(ferr); got != want || errors.Is(ferr, objstore.ErrNotExist) != tt.wantNotExist {
				t.Errorf("fetch: %q (%v), want %q", got, ferr, want)
			}
			if ferr == nil && (a.Size != tt.promised || bytes.Equal(data, good) == tt.wrong) {
				t.Errorf("fetch: %d bytes, size %d; want size %d", len(data), a.Size, tt.promised)
			}
			for _, err := range []error{err, ferr} {
				if err != nil && (strings.Contains(err.Error(), "c2Vj") || strings.Contains(err.Error(), "a/b.bin")) {
					t.Errorf("the error tells what the peer or the request said: %v", err)
				}
			}
		})
	}
}

func TestRequestsAskForTheBytesAsTheyAre(t *testing.T) {
	t.Parallel()
	srv := servertest.Web(t)
	srv.Put("k", []byte("x"), servertest.Honest)
	p := newHTTP(t, srv.Template(), patient, map[string]string{"authorization": secret, "X-Tenant": "t", "Host": "b.internal"})
	if _, err := p.Ask(t.Context(), blob("k", 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := fetched(t.Context(), p, blob("k", 1)); err != nil {
		t.Fatal(err)
	}
	for _, r := range srv.Requests() {
		want := http.Header{"Authorization": {secret}, "X-Tenant": {"t"}, "Accept-Encoding": {"identity"}, "Cache-Control": {"no-cache"}, "User-Agent": {"reconcile"}, "Connection": {"close"}}
		if diff := cmp.Diff(want, r.Header); diff != "" || r.Method != http.MethodGet || r.Host != "b.internal" {
			t.Errorf("%s of %s, headers (-want +got):\n%s", r.Method, r.Host, diff)
		}
	}
}

// A body that goes on for ever ends at what was recorded.
func TestABodyIsBoundedByTheRecordedSize(t *testing.T) {
	t.Parallel()
	srv := servertest.Web(t)
	srv.Put("k", content(1<<20), servertest.Chunks)
	data, _, err := fetched(t.Context(), newHTTP(t, srv.Template(), patient, nil), blob("k", 1000))
	if peers.Reason(err) != peers.ReasonTooLong || len(data) != 1000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestAPageIsTakenWhereOneIsExpected(t *testing.T) {
	t.Parallel()
	srv := servertest.Web(t)
	srv.All(servertest.ErrorPage)
	p := newHTTP(t, srv.Template(), patient, nil)
	for _, ref := range []reconcile.Reference{blob("index.HTML", 0), blob("a.htm", 5), blob("k", 64)} {
		if _, err := p.Ask(t.Context(), ref); err != nil {
			t.Errorf("%s of %d bytes: %v", ref.Path, ref.Size, err)
		}
	}
}

func TestAServerWhoseCertificateIsNotTrustedGivesNoAnswer(t *testing.T) {
	t.Parallel()
	srv := servertest.WebTLS(t)
	srv.Put("k", []byte("x"), servertest.Honest)
	_, err := newHTTP(t, srv.Template(), patient, nil).Ask(t.Context(), blob("k", 1))
	if peers.Reason(err) != peers.ReasonUnreachable || !strings.Contains(err.Error(), "certificate") || len(srv.Requests()) != 0 {
		t.Errorf("%v", err)
	}
	p, err := peers.NewHTTP(srv.Template(), peers.HTTPOptions{Options: peers.Options{Mirrors: collection, Timing: patient, Now: time.Now}, RootCAs: srv.Roots})
	if err != nil {
		t.Fatal(err)
	}
	if data, _, err := fetched(t.Context(), p, blob("k", 1)); string(data) != "x" || err != nil {
		t.Errorf("under its own roots: %q, %v", data, err)
	}
}

func TestAPeerThatIsDownGivesNoAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = newHTTP(t, url+"/{key}", patient, nil).Ask(t.Context(), blob("k", 1))
	if peers.Reason(err) != peers.ReasonUnreachable || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("%v", err)
	}
	_, err = newHTTP(t, "http://host.invalid/{key}", patient, nil).Ask(t.Context(), blob("k", 1))
	if peers.Reason(err) != peers.ReasonUnreachable || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("no such host is no missing object: %v", err)
	}
}

func TestACallerThatGivesUpIsNotThePeersFault(t *testing.T) {
	t.Parallel()
	srv := servertest.Web(t)
	srv.Put("hangs", content(64), servertest.Hangs)
	srv.Put("stalls", content(64), servertest.Stalls)
	p := newHTTP(t, srv.Template(), patient, nil)
	for _, key := range []string{"hangs", "stalls"} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, _, err := fetched(ctx, p, blob(key, 64))
		if peers.Reason(err) != peers.ReasonInterrupted || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", key, err)
		}
		cancel()
	}
}

func TestPeersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	ok := peers.Options{Mirrors: collection, Now: time.Now}
	for name, tt := range map[string]struct {
		template string
		header   map[string]string
		opts     peers.Options
	}{
		"no key":               {"https://h/x", nil, ok},
		"two keys":             {"https://h/{key}/{key}", nil, ok},
		"a key in the host":    {"https://{key}.h/", nil, ok},
		"a key as the port":    {"https://h:{key}/", nil, ok},
		"a key after #":        {"https://h/#{key}", nil, ok},
		"an empty fragment":    {"https://h/{key}#", nil, ok},
		"a password":           {"https://u:hunter2@h/{key}", nil, ok},
		"a key as user":        {"https://{key}@h/", nil, ok},
		"another scheme":       {"ftp://h/{key}", nil, ok},
		"a key as the scheme":  {"{key}://h/", nil, ok},
		"no host":              {"https:///{key}", nil, ok},
		"no host but a port":   {"https://:80/{key}", nil, ok},
		"no URL":               {"https://h/%zz{key}?hunter2", nil, ok},
		"opaque":               {"https:{key}", nil, ok},
		"dots":                 {"https://h/a/../{key}", nil, ok},
		"encoded dots":         {"https://h/a/%2e%2E/{key}", nil, ok},
		"a space in the query": {"https://h/?a b={key}", nil, ok},
		"a space in the path":  {"https://h/a b/{key}", nil, ok},
		"a range":              {"https://h/{key}", map[string]string{"range": "bytes=0-hunter2"}, ok},
		"an encoding":          {"https://h/{key}", map[string]string{"Accept-Encoding": "gzip"}, ok},
		"a header with breaks": {"https://h/{key}", map[string]string{"A": "hunter2\r\nB: c"}, ok},
		"a header's bad name":  {"https://h/{key}", map[string]string{"A:hunter2": "x"}, ok},
		"no clock":             {"https://h/{key}", nil, peers.Options{Mirrors: collection}},
		"nothing mirrored":     {"https://h/{key}", nil, peers.Options{Now: time.Now}},
	} {
		_, err := peers.NewHTTP(tt.template, peers.HTTPOptions{Options: tt.opts, Header: tt.header})
		if !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesOfWebPeersTellNoSecret(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"https://B.internal/blobs/{key}":           "https://b.internal/blobs",
		"http://h:8080/{key}":                      "http://h:8080",
		"https://h/v1/x-{key}/raw?token=hunter2":   "https://h/v1/x-",
		"https://h/get?token=hunter2&name={key}":   "https://h/get",
		"https://h?token=hunter2&{key}":            "https://h",
		"https://[::1]:9/a%2Fb/with%20space/{key}": "https://[::1]:9/a%2Fb/with%20space",
	} {
		p := newHTTP(t, template, patient, map[string]string{"Authorization": "hunter2"})
		if p.Name() != want {
			t.Errorf("%s: %s, want %s", template, p.Name(), want)
		}
	}
}
