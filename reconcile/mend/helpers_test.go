package mend_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/mend"
)

var (
	root       = objstore.Location{Scheme: "mem", Bucket: "b", Key: "root"}
	quarantine = objstore.Location{Scheme: "mem", Bucket: "q", Key: "kept"}
	object     = root.Join("a")
	good       = []byte("the bytes that are recorded")
	bad        = []byte("bytes that nobody recorded!") // as many
)

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

// byRecord proves by the recorded checksum and nothing else. It counts.
type byRecord struct {
	mu    sync.Mutex
	calls int
}

func (p *byRecord) Prove(_ context.Context, ref reconcile.Reference, c reconcile.Copy) (string, error) {
	p.mu.Lock()
	p.calls++
	p.mu.Unlock()
	switch {
	case ref.Size > 0 && c.Size() != ref.Size:
		return "", errors.New("another size")
	case ref.Checksum == "":
		return "", reconcile.ErrUnproven
	case c.Sum("sha256") != ref.Checksum:
		return "", errors.New("another checksum")
	}
	return "checksum sha256", nil
}

// peer answers the n-th fetch (from 1) by a script.
type peer struct {
	name  string
	fetch func(n int) (io.ReadCloser, objstore.Attrs, error)
	// control is what it says to a key that cannot exist.
	control error
	mu      sync.Mutex
	n       int
}

func (p *peer) Name() string { return p.name }
func (p *peer) Ask(_ context.Context, ref reconcile.Reference) (objstore.Attrs, error) {
	if !strings.HasPrefix(ref.Location.Base(), ".reconcile-control-") {
		return objstore.Attrs{}, errors.New("a mender asks for nothing else")
	}
	return objstore.Attrs{}, p.control
}
func (p *peer) Fetch(context.Context, reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	p.mu.Lock()
	p.n++
	n := p.n
	p.mu.Unlock()
	return p.fetch(n)
}
func (p *peer) fetched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// has serves each body in turn, the last one for ever.
func has(name string, bodies ...[]byte) *peer {
	return &peer{name: name, control: objstore.ErrNotExist, fetch: func(n int) (io.ReadCloser, objstore.Attrs, error) {
		b := bodies[min(n, len(bodies))-1]
		return io.NopCloser(bytes.NewReader(b)), objstore.Attrs{Size: int64(len(b))}, nil
	}}
}

// says answers with an error.
func says(name string, err error) *peer {
	return &peer{name: name, fetch: func(int) (io.ReadCloser, objstore.Attrs, error) { return nil, objstore.Attrs{}, err }}
}

// promises serves a body and tells another size.
func promises(name string, b []byte, size int64) *peer {
	return &peer{name: name, fetch: func(int) (io.ReadCloser, objstore.Attrs, error) {
		return io.NopCloser(bytes.NewReader(b)), objstore.Attrs{Size: size}, nil
	}}
}

func breaksOff(name string, b []byte, n int) *peer {
	return &peer{name: name, fetch: func(int) (io.ReadCloser, objstore.Attrs, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(b[:n]), failing{io.ErrUnexpectedEOF})), objstore.Attrs{Size: int64(len(b))}, nil
	}}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

var (
	errAbsent = fmt.Errorf("peer: %w", objstore.ErrNotExist)
	errDown   = errors.New("connection refused")
)

// rig is a store with one object that is damaged, and a mender.
type rig struct {
	t     *testing.T
	store *memstore.Store
	fault *faultstore.Store
	now   time.Time
	opts  mend.Options
	job   mend.Job
	proof *byRecord
	// named is what the metadata says when it is asked again.
	named func() (bool, error)
	asked int
}

const pendingMaxAge = time.Hour

// newRig makes an absent object with size and checksum recorded.
func newRig(t *testing.T, versions bool) *rig {
	r := &rig{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), proof: &byRecord{}, named: func() (bool, error) { return true, nil }}
	r.store = memstore.New(memstore.Options{Versions: versions, Now: func() time.Time { return r.now }})
	r.fault = faultstore.New(r.store)
	r.opts = mend.Options{
		Writer:  func(context.Context, objstore.Location) (objstore.Writer, error) { return r.fault, nil },
		Allowed: []objstore.Location{root}, Dir: t.TempDir(), Max: 1 << 20, PendingMaxAge: pendingMaxAge,
	}
	ref := reconcile.Reference{Role: reconcile.RoleBlob, Path: "a", Location: object, Base: root, Size: int64(len(good)), Checksum: sum(good)}
	target := reconcile.Target{Name: "blobs:x", Location: root, Root: root}
	r.job = mend.Job{Target: target, Finding: reconcile.NewFinding(target, ref, r.now), Prover: r.proof, StillNamed: func(context.Context) (bool, error) {
		r.asked++
		return r.named()
	}}
	r.job.Finding.Verdict = reconcile.Missing
	return r
}

// damaged puts bytes there, old enough, and makes the finding tell of them.
func (r *rig) damaged(b []byte) {
	r.store.Put(object, b)
	at, err := r.store.Stat(context.Background(), object)
	if err != nil {
		r.t.Fatal(err)
	}
	r.job.Finding.Verdict, r.job.Finding.ObservedETag = reconcile.ChecksumMismatch, at.ETag
	r.now = r.now.Add(2 * pendingMaxAge)
}

// unrecorded takes the record's checksum away.
func (r *rig) unrecorded() { r.job.Finding.Ref.Checksum = "" }

func (r *rig) peers(ps ...reconcile.Peer) { r.job.Peers = ps }

// mend prepares and, when there is a copy, writes.
func (r *rig) mend(ctx context.Context) mend.Result {
	r.t.Helper()
	p, res := mend.New(r.opts).Prepare(ctx, r.job)
	if p != nil {
		defer func() {
			p.Close()
			r.empty()
		}()
		return p.Write(ctx)
	}
	r.empty()
	return res
}

// empty fails the test when staging holds a file.
func (r *rig) empty() {
	r.t.Helper()
	files, err := os.ReadDir(r.opts.Dir)
	if err == nil && len(files) > 0 {
		r.t.Errorf("staging still holds %v", files)
	}
}

func (r *rig) is(res mend.Result, want mend.Outcome, reason string) {
	r.t.Helper()
	if res.Outcome != want || res.Reason != reason {
		r.t.Fatalf("outcome %d reason %q (%v), want %d %q\nrequests %q", res.Outcome, res.Reason, res.Err, want, reason, r.fault.Log())
	}
	if want != mend.Restored && res.Err == nil {
		r.t.Error("no error tells why")
	}
	if want != mend.Restored && want != mend.Uncertain && res.Bytes != 0 {
		r.t.Errorf("%d bytes are told, and none were restored", res.Bytes)
	}
}

// holds fails the test when the object is not these bytes; nil is no object.
func (r *rig) holds(b []byte) {
	r.t.Helper()
	got, ok := r.store.Data(object)
	if ok != (b != nil) || !bytes.Equal(got, b) {
		r.t.Fatalf("the object holds %q (there: %v), want %q", got, ok, b)
	}
}

// writes are the requests so far that could change the store.
func (r *rig) writes() []string {
	return slices.DeleteFunc(r.fault.Log(), func(s string) bool {
		op, _, _ := strings.Cut(s, " ")
		return op != "create" && op != "replace" && op != "overmarker"
	})
}

func (r *rig) wrote(want ...string) {
	r.t.Helper()
	if got := r.writes(); !slices.Equal(got, want) {
		r.t.Fatalf("writes %q, want %q", got, want)
	}
}

// versions are the bodies that the store still holds of a key, newest first.
func (r *rig) versions(loc objstore.Location) (out []string) {
	r.t.Helper()
	for v, err := range r.store.Versions(context.Background(), loc) {
		if err != nil {
			r.t.Fatal(err)
		}
		if v.DeleteMarker {
			out = append(out, "marker")
			continue
		}
		body, _, err := r.store.GetVersion(context.Background(), loc, v.VersionID, objstore.Range{})
		if err != nil {
			r.t.Fatal(err)
		}
		b, _ := io.ReadAll(body)
		out = append(out, string(b))
	}
	return out
}
