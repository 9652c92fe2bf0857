package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the ledger's driver

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// wire stands between the program and a store and does what a rule before the store
// cannot: something after the request had its effect.
type wire struct {
	*servertest.Server
	// before and after are called for every request, in turn: n counts all requests
	// from 1. before returning false drops the connection without asking the store;
	// after returning false drops it although the store has answered.
	before, after func(c call) bool
	// status, when it is not 0, answers instead of what the store said.
	status func(c call) int
	// strip removes the condition of every PUT.
	strip bool

	mu   sync.Mutex
	seen []call
}

// call is one request.
type call struct {
	n      int
	method string
	key    string
	// write counts the writes from 1; 0 is a read.
	write int
}

func (c call) manifest() bool { return c.write > 0 && strings.HasSuffix(c.key, ".manifest") }

func (c call) transaction() bool { return c.write > 0 && strings.HasSuffix(c.key, ".txn") }

// newWire puts a wire before a server. What the test itself does goes to the server.
// before and after may be set until the program runs.
func newWire(t *testing.T, s *servertest.Server) *wire {
	t.Helper()
	up, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = up.Scheme, up.Host, r.In.Host
	}, ErrorLog: log.New(io.Discard, "", 0)}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.serve(proxy, rw, r) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	mine := *s
	mine.Endpoint = srv.URL
	w.Server = &mine
	return w
}

func (w *wire) serve(next http.Handler, rw http.ResponseWriter, r *http.Request) {
	// The whole body first, and the store is asked even when the client is gone by then:
	// a request that was sent is on its way.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		hangUp(rw)
		return
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	c := w.note(r)
	if w.strip {
		r.Header.Del("If-None-Match")
	}
	if w.before != nil && !w.before(c) {
		hangUp(rw)
		return
	}
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	if w.after != nil && !w.after(c) {
		hangUp(rw)
		return
	}
	if w.status != nil {
		if n := w.status(c); n != 0 {
			rw.WriteHeader(n)
			return
		}
	}
	for k, v := range answer.Header() {
		rw.Header()[k] = v
	}
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes()) // the client may be gone
}

func (w *wire) note(r *http.Request) call {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	c := call{n: len(w.seen) + 1, method: r.Method, key: key}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.write = 1
		for _, o := range w.seen {
			if o.write > 0 {
				c.write++
			}
		}
	}
	w.seen = append(w.seen, c)
	return c
}

func (w *wire) calls() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func hangUp(rw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset; an orderly end would do too
	}
	_ = conn.Close() // that it ends is the point
}

// valueTable is a table of four fragments that the real library can read.
func valueTable() *lancetest.Builder {
	b := lancetest.New().Version(3)
	for f := range int64(4) {
		b.Values(lancetest.Int64s("id", f*10, f*10+1, f*10+2))
	}
	return b
}

// victim is the fragment of valueTable that the tests here lose.
const victim = 1

// scene is a table with a lost fragment on a store, with a ledger.
type scene struct {
	t        *testing.T
	s        *servertest.Server
	w        *wire
	dir      string
	database string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := servertest.S3(t)
	b := valueTable()
	put(t, s, "r/t.lance", b, lancetest.Missing(b.DataName(victim, 0)))
	x := &scene{t: t, s: s, w: newWire(t, s), dir: t.TempDir()}
	x.database = "sqlite:" + filepath.Join(x.dir, "ledger.db")
	return x
}

func (x *scene) args(extra ...string) []string {
	return repairNow(append([]string{"--database", x.database, "--request-timeout", "10s", x.w.URI("r/t.lance")}, extra...)...)
}

// repair is the repair, undisturbed except by what the wire does.
func (x *scene) repair(extra ...string) result {
	x.t.Helper()
	return runIn(x.t, x.dir, x.w.Env(), x.args(extra...)...)
}

// process is a run that the test has a hand on.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

func (x *scene) start(extra ...string) *process {
	x.t.Helper()
	return startProcess(x.t, x.dir, x.w.Env(), x.args(extra...)...)
}

func startProcess(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = command(t.Context(), t, dir, env, args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state tells
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // gone already is as good
		<-p.done
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("signal %v: %v", s, err)
	}
}

// ended waits for the end and gives what a run gives; a killed one has the code -1.
func (p *process) ended(within time.Duration) result {
	p.t.Helper()
	start := time.Now()
	select {
	case <-p.done:
	case <-time.After(within):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // so that it says where it stands
		<-p.done
		p.t.Fatalf("it did not end within %v\n%s", within, clip(p.stderr.String()))
	}
	return result{t: p.t, args: p.cmd.Args, code: p.cmd.ProcessState.ExitCode(), stdout: p.stdout.String(), stderr: p.stderr.String(), took: time.Since(start)}
}

// expireLeases lets every lease of a ledger run out: what a minute of waiting does.
func expireLeases(t *testing.T, database string) {
	t.Helper()
	if file, ok := strings.CutPrefix(database, "sqlite:"); ok {
		db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), "UPDATE locks SET lease_until = '2020-01-01T00:00:00.000000Z'"); err != nil && !strings.Contains(err.Error(), "no such table") {
			t.Fatal(err)
		}
		return
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "UPDATE reconcile.locks SET lease_until = '2020-01-01'"); err != nil {
		t.Fatal(err)
	}
}

// table is what is in a table now.
type tableFacts struct {
	version   uint64
	versions  int
	fragments map[uint64]string // id: digest of its message
}

// newestManifest decodes the newest manifest of a table on a server.
func newestManifest(t *testing.T, s *servertest.Server, table string) (*lance.Manifest, int) {
	t.Helper()
	var best string
	var version uint64
	n := 0
	for _, k := range s.Keys(t, table+"/_versions/") {
		v, _, kind := lance.ParseManifestName(strings.TrimPrefix(k, table+"/"))
		if kind != lance.ManifestFile {
			continue
		}
		n++
		if best == "" || v > version {
			best, version = k, v
		}
	}
	m, err := lance.DecodeManifest(object(t, s, best))
	if err != nil {
		t.Fatalf("%s: %v", best, err)
	}
	return m, n
}

func object(t *testing.T, s *servertest.Server, key string) []byte {
	t.Helper()
	out, err := s.Client().GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(s.Bucket), Key: aws.String(key)})
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return data
}

func facts(t *testing.T, s *servertest.Server, table string) tableFacts {
	t.Helper()
	m, n := newestManifest(t, s, table)
	f := tableFacts{version: m.Version, versions: n, fragments: map[uint64]string{}}
	for fr, err := range m.Fragments() {
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(fr.Raw)
		f.fragments[fr.ID] = hex.EncodeToString(sum[:])
	}
	return f
}

// repairedFacts is what an undisturbed repair of the scene's table leaves: one new
// version that has every fragment but the lost one, as they were.
func (x *scene) repairedFacts() tableFacts {
	x.t.Helper()
	s := servertest.S3(x.t)
	put(x.t, s, "r/t.lance", valueTable())
	f := facts(x.t, s, "r/t.lance")
	f.version++
	f.versions++
	delete(f.fragments, victim)
	return f
}

// ledgerRepairs is what `reconcile repairs` says: "action state committed_version".
func (x *scene) ledgerRepairs() []map[string]any {
	x.t.Helper()
	r := runIn(x.t, x.dir, x.w.Env(), "repairs", "--output", "json", "--database", x.database).exit(reconcile.ExitClean)
	return decodeList(x.t, r.stdout)
}

// settledOnce fails the test unless the table and the ledger are as after one repair:
// one drop applied, nothing open.
func (x *scene) settledOnce() {
	x.t.Helper()
	if d := cmp.Diff(x.repairedFacts(), facts(x.t, x.s, "r/t.lance"), cmp.AllowUnexported(tableFacts{})); d != "" {
		x.t.Errorf("the table (-undisturbed +now)\n%s", d)
	}
	applied := 0
	for _, r := range x.ledgerRepairs() {
		switch r["state"] {
		case "applied":
			applied++
			if r["committed_version"] != 4.0 || r["rows_dropped"] != 3.0 {
				x.t.Errorf("the record: version %v, %v rows", r["committed_version"], r["rows_dropped"])
			}
		case "intended", "uncertain":
			x.t.Errorf("the ledger still has %v %v", r["repair_id"], r["state"])
		}
	}
	if applied != 1 {
		x.t.Errorf("the ledger has %d applied repairs, want 1: %v", applied, x.ledgerRepairs())
	}
}

// download copies a table into a folder where the real library can read it.
func download(t *testing.T, s *servertest.Server, prefix, dir string) {
	t.Helper()
	for _, k := range s.Keys(t, prefix+"/") {
		name := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(k, prefix+"/")))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, object(t, s, k), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// readable asks the real library for the table's rows: nine of twelve.
func (x *scene) readable() {
	x.t.Helper()
	dir := filepath.Join(x.t.TempDir(), "t.lance")
	download(x.t, x.s, "r/t.lance", dir)
	if p := lancetest.Probe(x.t, dir)[0]; p.Error != "" || p.Rows != 9 || p.Scanned != 9 || p.Version != 4 {
		x.t.Errorf("the real library: %+v", p)
	}
}

// decodeList is a list of objects in JSON.
func decodeList(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v\n%s", err, clip(text))
	}
	return out
}
