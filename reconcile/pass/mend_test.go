package pass

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlite"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
	"github.com/rocketkeep/reconcile/reconcile/mend"
)

// records are the references of a collection, in memory and in order of their keys.
type records struct {
	mu   sync.Mutex
	list []refs.Record
	// after, when set, is called with the key of each record that was yielded.
	after func(key string)
	// began are the positions that walks began at.
	began []string
}

func (r *records) Records(ctx context.Context, after string) iter.Seq2[refs.Record, error] {
	return func(yield func(refs.Record, error) bool) {
		r.mu.Lock()
		list := r.list
		r.began = append(r.began, after)
		r.mu.Unlock()
		i := sort.Search(len(list), func(i int) bool { return list[i].Key > after })
		for _, rec := range list[i:] {
			if ctx.Err() != nil {
				yield(refs.Record{}, context.Cause(ctx))
				return
			}
			rec.Position = rec.Key
			if !yield(rec, nil) {
				return
			}
			if r.after != nil {
				r.after(rec.Key)
			}
		}
	}
}

func (r *records) Confirm(_ context.Context, keys []string) (map[string]refs.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]refs.Record{}
	for _, k := range keys {
		if i := sort.Search(len(r.list), func(i int) bool { return r.list[i].Key >= k }); i < len(r.list) && r.list[i].Key == k {
			out[k] = r.list[i]
		}
	}
	return out, nil
}

func (r *records) NamedSince(context.Context) (time.Time, error) { return time.Unix(1, 0), nil }
func (r *records) Resumable() bool                               { return true }
func (r *records) Close() error                                  { return nil }

// set replaces a record's checksum.
func (r *records) set(key, checksum string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.Clone(r.list)
	for i := range r.list {
		if r.list[i].Key == key {
			r.list[i].Checksum = checksum
		}
	}
}

// fakePeer holds bodies by path. It counts what it is asked.
type fakePeer struct {
	name string
	mu   sync.Mutex
	has  map[string][]byte
	// err, when set, answers for a path instead ("" is every path).
	err     map[string]error
	asked   int
	fetched map[string]int
	onFetch func(path string)
	// etag tells of a body, when set.
	etag func(b []byte) string
}

func newPeer(name string) *fakePeer {
	return &fakePeer{name: name, has: map[string][]byte{}, err: map[string]error{}, fetched: map[string]int{}}
}

var errNoPeerObject = fmt.Errorf("peer: %w", objstore.ErrNotExist)

func (p *fakePeer) look(path string) ([]byte, error) {
	for _, at := range []string{path, ""} {
		if err := p.err[at]; err != nil {
			return nil, err
		}
	}
	b, ok := p.has[path]
	if !ok {
		return nil, errNoPeerObject
	}
	return b, nil
}

func (p *fakePeer) Name() string { return p.name }
func (p *fakePeer) Ask(_ context.Context, ref reconcile.Reference) (objstore.Attrs, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	b, err := p.look(ref.Path)
	return p.attrs(b), err
}

func (p *fakePeer) attrs(b []byte) objstore.Attrs {
	at := objstore.Attrs{Size: int64(len(b))}
	if p.etag != nil {
		at.ETag = p.etag(b)
	}
	return at
}

func (p *fakePeer) Fetch(_ context.Context, ref reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	p.mu.Lock()
	p.fetched[ref.Path]++
	b, err := p.look(ref.Path)
	p.mu.Unlock()
	if p.onFetch != nil {
		p.onFetch(ref.Path)
	}
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	return io.NopCloser(bytes.NewReader(b)), p.attrs(b), nil
}

// requests is how often the peer was asked for anything.
func (p *fakePeer) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.asked
	for _, f := range p.fetched {
		n += f
	}
	return n
}

// sickLedger is a ledger that fails, or does something, just before a call.
type sickLedger struct {
	ledger.Ledger
	intend, settle, note func(n int, r ledger.Repair) error
	n                    [3]atomic.Int64
	forgets              bool // what a look found
	// order is what was called for which repair: "intend a", "settle applied".
	mu    sync.Mutex
	order []string
}

func (s *sickLedger) noted(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, what)
}

func (s *sickLedger) Intend(ctx context.Context, l ledger.Lease, r ledger.Repair) error {
	s.noted("intend " + strings.Join(r.Files, " "))
	if n := int(s.n[0].Add(1)); s.intend != nil {
		if err := s.intend(n, r); err != nil {
			return err
		}
	}
	return s.Ledger.Intend(ctx, l, r)
}

func (s *sickLedger) RecordTarget(ctx context.Context, r ledger.TargetRecord) (ledger.TargetSummary, error) {
	if s.forgets {
		return ledger.TargetSummary{}, nil
	}
	return s.Ledger.RecordTarget(ctx, r)
}

func (s *sickLedger) Settle(ctx context.Context, l ledger.Lease, id string, o ledger.Outcome) error {
	s.noted("settle " + o.State)
	if n := int(s.n[1].Add(1)); s.settle != nil {
		if err := s.settle(n, ledger.Repair{}); err != nil {
			return err
		}
	}
	return s.Ledger.Settle(ctx, l, id, o)
}

func (s *sickLedger) Note(ctx context.Context, r ledger.Repair) error {
	s.noted("note " + r.State + " " + strings.Join(r.Files, " "))
	if n := int(s.n[2].Add(1)); s.note != nil {
		if err := s.note(n, r); err != nil {
			return err
		}
	}
	return s.Ledger.Note(ctx, r)
}

// place is a collection with its store, its records, peers and ledger.
type place struct {
	t      *testing.T
	store  *memstore.Store
	fault  *faultstore.Store
	clock  *handClock
	recs   *records
	peers  []reconcile.Peer
	ledger *sickLedger
	target reconcile.Target
	mend   MendOptions
	opts   func(*Options)
	apply  func(*ApplyOptions)
	lost   []ledger.Repair
	begun  []string
}

var collection = objstore.Location{Scheme: "mem", Bucket: "b", Key: "att"}

func sha(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

func content(key string) []byte { return []byte("the bytes of " + key) }

// newPlace makes a healthy collection of these keys, with one more that is always
// there.
func newPlace(t *testing.T, versions bool, keys ...string) *place {
	t.Helper()
	p := &place{t: t, clock: &handClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, recs: &records{}, target: blobs.Target("att", collection)}
	p.store = memstore.New(memstore.Options{Versions: versions, Now: p.clock.Now})
	p.fault = faultstore.New(p.store)
	l, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p.ledger = &sickLedger{Ledger: l}
	for _, k := range append(slices.Clone(keys), "~healthy") {
		p.recs.list = append(p.recs.list, refs.Record{Key: k, Size: int64(len(content(k))), Checksum: sha(content(k))})
		p.store.Put(p.at(k), content(k))
	}
	slices.SortFunc(p.recs.list, func(a, b refs.Record) int { return strings.Compare(a.Key, b.Key) })
	p.clock.now = p.clock.now.Add(24 * time.Hour)
	p.mend = MendOptions{Mender: mend.New(mend.Options{Writer: p.writer, Allowed: []objstore.Location{collection}, Dir: t.TempDir(), Max: 1 << 20, PendingMaxAge: time.Hour})}
	return p
}

func (p *place) at(key string) objstore.Location { return collection.Join(key) }
func (p *place) writer(context.Context, objstore.Location) (objstore.Writer, error) {
	return p.fault, nil
}
func (p *place) Reader(context.Context, objstore.Location) (objstore.Reader, error) {
	return p.fault, nil
}
func (p *place) Locate(uri string) (objstore.Location, error) { return objstore.Parse(uri) }

// gone takes objects away without a trace.
func (p *place) gone(keys ...string) {
	for _, k := range keys {
		p.store.Purge(p.at(k))
	}
}

func (p *place) options(id string) Options {
	o := Options{
		Open: func(t reconcile.Target) reconcile.Source {
			return blobs.New(t, blobs.Options{Root: collection, Records: p.recs, Stores: p, Sample: 1, Day: p.clock.Now()})
		},
		Stores: p, ConfirmAfter: time.Minute, PendingMaxAge: time.Hour, TargetTimeout: time.Minute, Concurrency: 8, Clock: p.clock,
		Logger: slog.New(slog.DiscardHandler), Policy: reconcile.Policy{Limits: reconcile.DefaultLimits()},
		Recall: Recall{Memory: p.ledger, PassID: id, Look: ledger.Look{}, Cooldown: ledger.DefaultCooldown()},
	}
	if p.peers != nil {
		o.Peers = func(reconcile.Target) []reconcile.Peer { return p.peers }
	}
	if p.opts != nil {
		p.opts(&o)
	}
	return o
}

// look takes one look, as a pass of its own.
func (p *place) look(ctx context.Context) *Outcome {
	p.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	p.begun = append(p.begun, id)
	if _, err := p.ledger.BeginPass(p.t.Context(), reconcile.Pass{PassID: id, Mode: "full", StartedAt: p.clock.Now(), Actor: "tester", Host: "here"}); err != nil {
		p.t.Fatal(err)
	}
	out, err := Look(ctx, []reconcile.Target{p.target}, p.options(id))
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// repair carries out what a look planned.
func (p *place) repair(ctx context.Context, out *Outcome) error {
	id := p.begun[len(p.begun)-1]
	a := ApplyOptions{Options: p.options(id), Ledger: p.ledger, Repairer: func(reconcile.Target) reconcile.Repairer { return nil }, Writer: p.writer,
		PassID: id, Owner: "test", Actor: "tester", Host: "here", Trigger: ledger.TriggerSchedule, Cooldown: ledger.DefaultCooldown(), Mend: p.mend,
		Lost: func(r ledger.Repair, _ ledger.Outcome, _ error) { p.lost = append(p.lost, r) }}
	if p.apply != nil {
		p.apply(&a)
	}
	return Apply(ctx, out, out.Actions, a)
}

// pass looks and repairs.
func (p *place) pass() *Outcome {
	p.t.Helper()
	out := p.look(p.t.Context())
	if err := p.repair(p.t.Context(), out); err != nil {
		p.t.Fatal(err)
	}
	return out
}

func (p *place) right(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		if b, ok := p.store.Data(p.at(k)); !ok || !bytes.Equal(b, content(k)) {
			p.t.Errorf("%s is %q (there: %v)", k, b, ok)
		}
	}
}

func (p *place) absent(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		if b, ok := p.store.Data(p.at(k)); ok {
			p.t.Errorf("%s is there: %q", k, b)
		}
	}
}

// states are what the outcome tells of each object's attempt, in order of the paths.
func (p *place) states(out *Outcome) []string {
	p.t.Helper()
	rows, err := p.ledger.ListRepairs(p.t.Context(), ledger.Filter{})
	if err != nil {
		p.t.Fatal(err)
	}
	var recorded, told []string
	for _, r := range rows {
		if r.PassID == p.begun[len(p.begun)-1] {
			recorded = append(recorded, r.Files[0]+" "+r.State)
		}
	}
	byID := map[string]string{}
	for _, r := range rows {
		byID[r.RepairID] = r.Files[0]
	}
	for _, r := range out.Repairs {
		told = append(told, byID[r.RepairID]+" "+r.State)
	}
	slices.Sort(recorded)
	slices.Sort(told)
	if d := cmp.Diff(recorded, told); d != "" {
		p.t.Errorf("the ledger (-) and the outcome (+) tell differently of the repairs: %s", d)
	}
	return recorded
}

// finding is the one of a key.
func finding(t *testing.T, out *Outcome, key string) reconcile.Finding {
	t.Helper()
	i := slices.IndexFunc(out.Findings, func(f reconcile.Finding) bool { return f.Path == key })
	if i < 0 {
		t.Fatalf("no finding of %s", key)
	}
	return out.Findings[i]
}

func TestObjectsThatPeersHoldComeBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a", "b", "c", "d")
	p.gone("a", "b", "c")
	x, y := newPeer("x"), newPeer("y")
	x.has["a"], y.has["b"] = content("a"), content("b")
	p.peers = []reconcile.Peer{x, y}
	out := p.pass()
	p.right("a", "b", "d")
	p.absent("c")
	if d := cmp.Diff([]string{"a applied", "b applied"}, p.states(out)); d != "" {
		t.Error(d)
	}
	if f := finding(t, out, "c"); f.Verdict != reconcile.Lost || !slices.Equal(f.PeersAsked, []string{"x", "y"}) || f.ProposedAction != reconcile.ActionNone {
		t.Errorf("c is %+v", f)
	}
	if want := int64(len(content("a")) + len(content("b"))); out.Totals.BytesRestored != want {
		t.Errorf("%d bytes restored, want %d", out.Totals.BytesRestored, want)
	}
	rows, _ := p.ledger.ListRepairs(t.Context(), ledger.Filter{})
	for _, r := range rows {
		if r.Source == nil || r.Proof == nil || *r.Proof != "checksum sha256" || r.BytesRestored == nil || r.DurationMS == nil || r.IntendedAt == nil || r.VerifiedAt == nil {
			t.Errorf("the record of %s is not whole: %+v", r.Files, r.RepairOutcome)
		}
	}
}

func TestAttemptsAreRecordedBeforeTheyWriteAndSettledAfter(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	p.ledger.intend = func(int, ledger.Repair) error { p.absent("a"); return nil }
	p.ledger.settle = func(int, ledger.Repair) error { p.right("a"); return nil }
	p.pass()
	if d := cmp.Diff([]string{"intend a", "settle applied"}, p.ledger.order); d != "" {
		t.Error(d)
	}
}

func TestOneObjectThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("k%02d", i))
	}
	p := newPlace(t, false, keys...)
	p.gone(keys...)
	x := newPeer("x")
	for _, k := range keys {
		x.has[k] = content(k)
	}
	x.has["k00"] = []byte("other")
	p.peers = []reconcile.Peer{x}
	p.fault.Add(faultstore.Rule{Op: "create", Key: "att/k01", Effect: faultstore.Status(403, "AccessDenied")},
		faultstore.Rule{Op: "create", Key: "att/k02", Effect: faultstore.LostReply(errors.New("reset"))},
		// The answer is lost, and the object cannot be read back: nobody knows.
		faultstore.Rule{Op: "create", Key: "att/k03", Effect: faultstore.LostReply(errors.New("reset"))},
		faultstore.Rule{Op: "get", Key: "att/k03", Effect: faultstore.Status(503, "SlowDown")},
		faultstore.Rule{Op: "probe", Key: "att/k04", From: 2, Effect: faultstore.Status(503, "SlowDown")})
	out := p.pass()
	want := []string{"k00 failed", "k01 failed", "k02 applied", "k03 uncertain", "k04 failed"}
	for _, k := range keys[5:] {
		want = append(want, k+" applied")
	}
	if d := cmp.Diff(want, p.states(out)); d != "" {
		t.Error(d)
	}
	p.right(keys[5:]...)
	p.right("k02")
	if out.Exit() != reconcile.ExitCommitFailed {
		t.Errorf("exit %d, and of one object nobody knows", out.Exit())
	}
	// The next pass settles what nobody knew, and sees what is there.
	p.fault.ClearRules()
	p.opts = func(o *Options) { o.Recall.AskAgain = true }
	p.repairOpen()
	p.pass()
	p.right(keys[1:]...)
	if n, _ := p.ledger.Unsettled(t.Context(), ""); len(n) != 0 {
		t.Errorf("still open: %+v", n)
	}
}

// repairOpen settles what earlier passes left open.
func (p *place) repairOpen() {
	p.t.Helper()
	id := p.begun[len(p.begun)-1]
	out := &Outcome{Totals: reconcile.Totals{TargetsByState: map[reconcile.State]int64{}}}
	if err := Settle(p.t.Context(), out, []reconcile.Target{p.target}, ApplyOptions{Options: p.options(id), Ledger: p.ledger, Repairer: func(reconcile.Target) reconcile.Repairer { return nil },
		Writer: p.writer, PassID: id, Owner: "test", Trigger: ledger.TriggerSchedule}); err != nil {
		p.t.Fatal(err)
	}
}

func TestAFailedAttemptIsRecordedWithItsReason(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x, y := newPeer("x"), newPeer("y")
	x.has["a"], y.has["a"] = []byte("truncated"), []byte("the bytes of b")
	p.peers = []reconcile.Peer{x, y}
	out := p.pass()
	if d := cmp.Diff([]string{"a failed"}, p.states(out)); d != "" {
		t.Fatal(d)
	}
	for _, want := range []string{"x: ", "y: "} {
		if e := out.Repairs[0].Error; e == nil || !strings.Contains(*e, want) {
			t.Errorf("the reason %v does not name %q", deref(e), want)
		}
	}
	state, err := p.ledger.RefetchState(t.Context(), []string{finding(t, out, "a").FindingID})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range state {
		if !slices.Equal(s.PeersSaidNo, []string{"x", "y"}) || s.Due {
			t.Errorf("remembered: %+v", s)
		}
	}
	if len(state) != 1 {
		t.Error("nothing is remembered")
	}
	// A second pass at once leaves the peers alone and says what they said: a copy that
	// fails its proof twice is a no.
	before := x.requests() + y.requests()
	out = p.pass()
	if n := x.requests() + y.requests(); n != before {
		t.Errorf("%d more requests", n-before)
	}
	if f := finding(t, out, "a"); f.Verdict != reconcile.Lost {
		t.Errorf("a is %s, blocked by %q", f.Verdict, f.BlockedBy)
	}
}

func TestARefusalRefusesTheTarget(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.recs.set("a", "")
	p.gone("a")
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	out := p.pass()
	if d := cmp.Diff([]string{"a refused"}, p.states(out)); d != "" {
		t.Fatal(d)
	}
	if f := finding(t, out, "a"); !slices.Equal(f.BlockedBy, []string{reconcile.BlockedReplaceUnproven}) {
		t.Errorf("blocked by %q", f.BlockedBy)
	}
	if out.Exit() != reconcile.ExitRefused || out.Targets[0].State != reconcile.StateRefused {
		t.Errorf("exit %d, state %s", out.Exit(), out.Targets[0].State)
	}
	if len(p.store.Locations()) != 2 { // the healthy one, and the test of conditions
		t.Errorf("the store holds %v", p.store.Locations())
	}
}

func TestARecordThatChangedBetweenLookAndRepairIsSuperseded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	x.onFetch = func(string) { p.recs.set("a", sha([]byte("newer"))) }
	out := p.pass()
	if d := cmp.Diff([]string{"a refused"}, p.states(out)); d != "" {
		t.Fatal(d)
	}
	if !strings.HasPrefix(*out.Repairs[0].Error, "superseded") {
		t.Error(*out.Repairs[0].Error)
	}
	p.absent("a")
	if state, _ := p.ledger.RefetchState(t.Context(), []string{finding(t, out, "a").FindingID}); len(state) != 0 {
		t.Errorf("it counts as a failed attempt: %v", state)
	}
}

// The record and the object at the peer are new: the copy fails what was recorded before,
// and that is the fault of nobody.
func TestACopyThatFailsARecordThatHasChangedIsSuperseded(t *testing.T) {
	t.Parallel()
	for _, planned := range []bool{false, true} {
		p := newPlace(t, false, "a")
		p.gone("a")
		x := newPeer("x")
		x.has["a"] = []byte("newer")
		p.peers = []reconcile.Peer{x}
		p.apply = func(o *ApplyOptions) { o.Strict = planned }
		x.onFetch = func(string) { p.recs.set("a", sha([]byte("newer"))) }
		out := p.pass()
		if d := cmp.Diff([]string{"a refused"}, p.states(out)); d != "" {
			t.Fatal(d)
		}
		if !strings.HasPrefix(*out.Repairs[0].Error, "superseded") {
			t.Error(*out.Repairs[0].Error)
		}
		p.absent("a")
		if state, _ := p.ledger.RefetchState(t.Context(), []string{finding(t, out, "a").FindingID}); len(state) != 0 {
			t.Errorf("it counts as a failed attempt: %v", state)
		}
		if got := out.Targets[0]; planned && (out.Exit() != reconcile.ExitRefused || got.Reason == nil || *got.Reason != reconcile.RefusedPlanStale) {
			t.Errorf("exit %d, %s %v: a plan no longer holds", out.Exit(), got.State, got.Reason)
		}
	}
}

func TestVersionsThatAreNoGoodLeadToPeers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, true, "a", "b")
	for _, k := range []string{"a", "b"} {
		p.gone(k)
		wrong := bytes.Repeat([]byte("x"), len(content(k)))
		p.store.Put(p.at(k), wrong)
		p.store.Remove(p.at(k))
	}
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	out := p.pass()
	if d := cmp.Diff([]string{"a applied", "a refused", "b failed"}, p.states(out)); d != "" {
		t.Error(d)
	}
	p.right("a")
	p.absent("b")
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	keys := make([]string, 10)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%02d", i)
	}
	size := int64(len(content("k00")))
	for name, c := range map[string]struct {
		objects, bytes int64
		want           int
	}{
		"none":                                  {0, 0, 10},
		"of objects":                            {7, 0, 7},
		"of one object":                         {1, 0, 1},
		"of bytes, exactly":                     {0, 5 * size, 5},
		"of bytes, not quite":                   {0, 6*size - 1, 5},
		"smaller than one object still heals":   {0, 1, 1},
		"of both, the stricter":                 {3, 5 * size, 3},
		"of both, that of bytes being stricter": {9, 4 * size, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, false, keys...)
			p.gone(keys...)
			x := newPeer("x")
			for _, k := range keys {
				x.has[k] = content(k)
			}
			p.peers = []reconcile.Peer{x}
			p.mend.MaxObjects, p.mend.MaxBytes = c.objects, c.bytes
			out := p.pass()
			if n := len(p.states(out)); n != c.want {
				t.Errorf("%d objects were brought back, want %d", n, c.want)
			}
			if n := len(x.fetched); n != c.want {
				t.Errorf("%d objects were fetched, want %d", n, c.want)
			}
		})
	}
}

func TestALedgerThatCannotBeReachedBeforehand(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a", "b")
	p.gone("a", "b")
	x := newPeer("x")
	x.has["a"], x.has["b"] = content("a"), content("b")
	p.peers = []reconcile.Peer{x}
	p.ledger.intend = func(int, ledger.Repair) error { return ledger.ErrUnreachable }
	out := p.look(t.Context())
	if err := p.repair(t.Context(), out); !errors.Is(err, ledger.ErrUnreachable) {
		t.Errorf("the pass goes on: %v", err)
	}
	p.absent("a", "b")
	if len(p.lost) != 0 {
		t.Error("nothing was done, and nothing is lost")
	}
}

// The whole record of an effect that the ledger was lost after goes to the caller, and
// nothing more is written to the target.
func TestALedgerThatIsLostAfterAnEffect(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "b", "c", "d", "e", "f"}
	for name, uncertain := range map[string]bool{"known": false, "unknown": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, false, keys...)
			p.gone(keys...)
			x := newPeer("x")
			for _, k := range keys {
				x.has[k] = content(k)
			}
			p.peers = []reconcile.Peer{x}
			p.ledger.settle = func(n int, _ ledger.Repair) error { return ledger.ErrUnreachable }
			lost := 1
			if uncertain {
				p.fault.Add(faultstore.Rule{Op: "create", Key: "att/?", Effect: faultstore.LostReply(errors.New("reset"))},
					faultstore.Rule{Op: "get", Key: "att/?", Effect: faultstore.Status(503, "SlowDown")})
				lost = len(keys)
			}
			out := p.look(t.Context())
			if err := p.repair(t.Context(), out); err != nil {
				t.Errorf("the error of an effect is the exit code's matter: %v", err)
			}
			if len(p.lost) != lost || len(out.Repairs) != lost {
				t.Fatalf("%d records are handed on, %d told, want %d", len(p.lost), len(out.Repairs), lost)
			}
			r := p.lost[0]
			if len(r.Files) != 1 || r.Source == nil || r.Proof == nil || r.PassID == "" || !uncertain && (r.State != ledger.StateApplied || r.BytesRestored == nil) {
				t.Errorf("the record is not whole: %+v", r)
			}
			if out.Exit() != reconcile.ExitCommitFailed {
				t.Errorf("exit %d", out.Exit())
			}
			open, err := p.ledger.Unsettled(t.Context(), "")
			if err != nil || len(open) != lost {
				t.Errorf("%d are open in the ledger: %v", len(open), err)
			}
		})
	}
}

func TestALockThatIsLostInTheMiddleEndsTheTargetAndNotThePass(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]func(p *place, err error){
		"before an object is intended": func(p *place, err error) {
			p.ledger.intend = func(n int, _ ledger.Repair) error {
				if n > 2 {
					return err
				}
				return nil
			}
		},
		"when a failed one is settled": func(p *place, err error) {
			p.fault.Add(faultstore.Rule{Op: "create", Key: "att/?", From: 3, Effect: faultstore.Status(403, "AccessDenied")})
			p.ledger.settle = func(n int, _ ledger.Repair) error {
				if n > 2 {
					return err
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := []string{"a", "b", "c", "d", "e", "f"}
			p := newPlace(t, false, keys...)
			p.gone(keys...)
			x := newPeer("x")
			for _, k := range keys {
				x.has[k] = content(k)
			}
			p.peers = []reconcile.Peer{x}
			when(p, fmt.Errorf("settle: %w", ledger.ErrFenced))
			out := p.look(t.Context())
			if err := p.repair(t.Context(), out); err != nil {
				t.Errorf("the pass ends: %v", err)
			}
			if s := out.Targets[0]; s.State != reconcile.StateLocked || deref(s.Reason) != "lock_lost" {
				t.Errorf("state %s %q", s.State, deref(s.Reason))
			}
			if len(p.lost) != 0 {
				t.Errorf("handed on: %+v", p.lost)
			}
			there := 0
			for _, k := range keys {
				if _, ok := p.store.Data(p.at(k)); ok {
					there++
				}
			}
			if there != 2 {
				t.Errorf("%d objects were written, and the lock was held for two", there)
			}
		})
	}
}

func TestAnUnsettledRepairEndsTheTargetAndNotThePass(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	p.ledger.intend = func(int, ledger.Repair) error { return ledger.ErrUnsettled }
	out := p.look(t.Context())
	if err := p.repair(t.Context(), out); err != nil {
		t.Errorf("the pass ends: %v", err)
	}
	if out.Exit() != reconcile.ExitCommitFailed || out.Targets[0].State != reconcile.StateFailed {
		t.Errorf("exit %d, state %s", out.Exit(), out.Targets[0].State)
	}
	p.absent("a")
}

func TestWhenThePassIsToldToStopNothingMoreIsWritten(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	p := newPlace(t, false, keys...)
	p.gone(keys...)
	x := newPeer("x")
	for _, k := range keys {
		x.has[k] = content(k)
	}
	p.peers = []reconcile.Peer{x}
	out := p.look(t.Context())
	ctx, stop := context.WithCancelCause(t.Context())
	p.ledger.settle = func(n int, _ ledger.Repair) error {
		if n == 2 {
			stop(errors.New("told to stop"))
		}
		return nil
	}
	if err := p.repair(ctx, out); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(2, len(p.states(out))); d != "" || out.Interrupted == nil {
		t.Errorf("%s interrupted: %v", d, out.Interrupted)
	}
	if open, _ := p.ledger.Unsettled(t.Context(), ""); len(open) != 0 {
		t.Errorf("left open: %+v", open)
	}
}

func TestAWriteThatWasSentWhenThePassIsToldToStopIsRecorded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	out := p.look(t.Context())
	ctx, stop := context.WithCancelCause(t.Context())
	p.fault.Add(faultstore.Rule{Op: "create", Key: "att/a", Effect: faultstore.Delay(30 * time.Millisecond)})
	time.AfterFunc(10*time.Millisecond, func() {
		for range 100 {
			if slices.Contains(p.fault.Log(), "create att/a") {
				stop(errors.New("told to stop"))
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	if err := p.repair(ctx, out); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a applied"}, p.states(out)); d != "" {
		t.Error(d)
	}
	p.right("a")
}

func TestAcknowledgedDamageIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	p.peers = []reconcile.Peer{x}
	out := p.pass()
	if out.Exit() != reconcile.ExitDivergence {
		t.Errorf("exit %d", out.Exit())
	}
	now, _ := p.ledger.Now(t.Context())
	if err := p.ledger.Acknowledge(t.Context(), finding(t, out, "a").FindingID, now.Add(time.Hour), "known", "tester"); err != nil {
		t.Fatal(err)
	}
	x.has["a"] = content("a")
	p.opts = func(o *Options) { o.Recall.AskAgain = true }
	out = p.pass()
	if f := finding(t, out, "a"); !slices.Contains(f.BlockedBy, reconcile.BlockedAcknowledged) || len(out.Repairs) != 0 {
		t.Errorf("blocked by %q, %d repairs", f.BlockedBy, len(out.Repairs))
	}
	if out.Exit() != reconcile.ExitClean {
		t.Errorf("exit %d", out.Exit())
	}
	p.absent("a")
}

func TestAWriteThatTheStoreRefusesDidNotLand(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	p.fault.Add(faultstore.Rule{Op: "create", Key: "att/a", Effect: faultstore.Status(403, "AccessDenied")})
	out := p.pass()
	if d := cmp.Diff([]string{"a failed"}, p.states(out)); d != "" {
		t.Error(d)
	}
	if out.Exit() != reconcile.ExitCommitFailed {
		t.Errorf("exit %d", out.Exit())
	}
}

func TestAPeerThatFailsInTheMiddleLeavesItsRungOpen(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{tongueTied{x}}
	out := p.pass()
	if d := cmp.Diff([]string{"a failed"}, p.states(out)); d != "" {
		t.Error(d)
	}
	if f := finding(t, out, "a"); !slices.Equal(f.BlockedBy, []string{reconcile.BlockedRungOpen + "x"}) {
		t.Errorf("blocked by %q", f.BlockedBy)
	}
	if out.Exit() != reconcile.ExitDivergence {
		t.Errorf("exit %d", out.Exit())
	}
}

// tongueTied answers for objects, and then not with them.
type tongueTied struct{ *fakePeer }

func (tongueTied) Fetch(context.Context, reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	return nil, objstore.Attrs{}, errors.New("connection reset")
}
