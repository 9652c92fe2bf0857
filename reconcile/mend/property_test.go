package mend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/mend"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// Random blobs and table files × random damage × peers that lie × a store that fails ×
// rivals who write. The model is kept beside the store:
//
//   - whatever a repair writes under a key whose content is recorded is that content;
//     what nothing recorded proves is what two peers hold, and lies where nothing was
//   - nothing that is right is ever replaced
//   - what is replaced can be read again, as a version or in quarantine, before the
//     replacement is there
//   - once the faults stop, three passes put everything right that can be
//
// `-rapid.checks=10000` is what CI runs.
func TestCopiesUnderFaultsAndLies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		for i := range uint64(2) {
			c := newChaos(rt, seed+i, dir)
			for range 1 + c.rng.IntN(2) {
				c.pass(true)
				c.now.add(24 * time.Hour)
			}
			for range 3 {
				c.pass(false)
				c.now.add(24 * time.Hour)
			}
			c.converged()
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("staging still holds %v (%v)", left, err)
	}
}

// thing is one object of the model. Its fields are guarded by chaos.mu.
type thing struct {
	name string // as the metadata has it
	loc  objstore.Location
	good []byte
	// blob is false for a file of the table. Only of a blob may the checksum or the size
	// not be recorded.
	blob, sum, size bool
	// changed: a rival wrote another content together with its record.
	changed bool
}

// proven reports whether what is recorded tells the content from any other.
func (o *thing) proven() bool { return !o.blob || o.sum }

// instant is a clock that is moved by hand.
type instant struct {
	mu sync.Mutex
	t  time.Time
}

func (i *instant) Now() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.t
}

func (i *instant) add(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.t = i.t.Add(d)
}

func (i *instant) Sleep(ctx context.Context, d time.Duration) error {
	i.add(d)
	return ctx.Err()
}

// chaos is one round.
type chaos struct {
	t        *rapid.T
	rng      *rand.Rand // used while nothing else runs
	seed     uint64
	now      instant
	store    *memstore.Store
	versions bool
	kept     bool // a quarantine is configured
	dir      string
	things   map[objstore.Location]*thing
	peers    []reconcile.Peer
	ledger   *noted

	mu      sync.Mutex
	passes  int
	faulty  bool
	calls   map[string]uint64
	problem string // the first that was seen: only the test's goroutine may fail it
}

var (
	attachments = objstore.Location{Scheme: "mem", Bucket: "b", Key: "att"}
	table       = objstore.Location{Scheme: "mem", Bucket: "b", Key: "t.lance"}
)

func newChaos(t *rapid.T, seed uint64, dir string) *chaos {
	c := &chaos{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), dir: dir, things: map[objstore.Location]*thing{}, calls: map[string]uint64{}, ledger: &noted{rows: map[string]*ledger.Repair{}}}
	c.now.t = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.versions, c.kept = c.rng.IntN(2) == 0, c.rng.IntN(3) > 0
	c.store = memstore.New(memstore.Options{Versions: c.versions, Now: c.now.Now})
	odd := []string{"a b", "50%", "é/ü", "x+y", "/lead", "d/../e", "plain", "q?r#s"}
	for i := range 3 + c.rng.IntN(5) {
		key := odd[i]
		o := &thing{name: key, loc: attachments, good: c.bytes(1 + c.rng.IntN(200)), blob: true, sum: c.rng.IntN(4) > 0, size: c.rng.IntN(4) > 0}
		o.loc.Key += "/" + key
		c.things[o.loc] = o
	}
	// Files of other fragments have other rows, so that each proves itself.
	b := lancetest.New().Version(3)
	n := 2 + c.rng.IntN(3)
	for i := range n {
		b.Fragment(uint64(10 + i))
		if c.rng.IntN(2) == 0 {
			b.Delete(uint64(i), uint64(2+i))
		}
	}
	b.WriteTo(func(name string, data []byte) {
		c.store.Put(table.Join(name), data)
		if strings.HasPrefix(name, "data/") || strings.HasPrefix(name, "_deletions/") {
			c.things[table.Join(name)] = &thing{name: name, loc: table.Join(name), good: data, sum: true, size: true}
		}
	})
	for _, o := range c.all() {
		c.damage(o)
	}
	// What is always there, so that absence can be believed.
	c.store.Put(attachments.Join("~healthy"), []byte("healthy"))
	for i := range 1 + c.rng.IntN(3) {
		c.peers = append(c.peers, c.liar(fmt.Sprintf("peer%d", i)))
	}
	c.now.add(48 * time.Hour)
	return c
}

// all are the things in a stable order.
func (c *chaos) all() []*thing {
	return slices.SortedFunc(maps.Values(c.things), func(a, b *thing) int { return strings.Compare(a.loc.Key, b.loc.Key) })
}

func (c *chaos) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(c.rng.Uint32())
	}
	return b
}

// damage makes an object's history, the last of which is what is there.
func (c *chaos) damage(o *thing) {
	c.store.Purge(o.loc)
	for range c.rng.IntN(3) {
		c.store.Put(o.loc, c.spoiled(o))
	}
	if c.rng.IntN(2) == 0 {
		c.store.Put(o.loc, o.good)
	}
	switch c.rng.IntN(6) {
	case 0:
		c.store.Put(o.loc, o.good)
	case 1, 2:
		c.store.Purge(o.loc)
	case 3:
		if _, there := c.store.Data(o.loc); there {
			c.store.Remove(o.loc)
		}
	default:
		c.store.Put(o.loc, c.spoiled(o))
	}
}

// spoiled is a content that is not the object's, and of table files one that shows.
func (c *chaos) spoiled(o *thing) []byte {
	switch n := len(o.good); {
	case o.blob && c.rng.IntN(2) == 0:
		b := bytes.Clone(o.good)
		b[c.rng.IntN(n)] ^= 1 << c.rng.IntN(8)
		return b
	case c.rng.IntN(2) == 0:
		return bytes.Clone(o.good[:c.rng.IntN(n)])
	default:
		return bytes.Repeat([]byte("not it "), 1+c.rng.IntN(30))
	}
}

// manner is how a peer answers for one object.
type manner struct {
	body    []byte // nil is none
	promise int64
	cut     int   // the body breaks off here; -1 = it does not
	err     error // instead of an answer
	right   bool  // sooner or later the content arrives
}

// fibber is a peer with a manner for each object.
type fibber struct {
	name    string
	c       *chaos
	manners map[objstore.Location]manner
}

func (c *chaos) liar(name string) *fibber {
	p := &fibber{name: name, c: c, manners: map[objstore.Location]manner{}}
	all := c.all()
	for i, o := range all {
		whole := func(b []byte, right bool) manner { return manner{b, int64(len(b)), -1, nil, right} }
		m := whole(o.good, true)
		switch c.rng.IntN(11) {
		case 0:
			m = whole(o.good[:c.rng.IntN(len(o.good))], false)
		case 1:
			m = whole(c.spoiled(o), false)
		case 2: // another object
			if other := all[(i+1)%len(all)]; other.blob == o.blob && !bytes.Equal(other.good, o.good) {
				m = whole(other.good, false)
			}
		case 3:
			m = manner{cut: -1}
		case 4:
			m = manner{err: errors.New("connection refused"), cut: -1}
		case 5:
			m.promise, m.right = m.promise+1+int64(c.rng.IntN(9)), false
		case 6:
			m.promise, m.right = int64(c.rng.IntN(len(o.good))), false
		case 7:
			m.promise = objstore.Unknown
		case 8:
			m.cut, m.right = c.rng.IntN(len(o.good)), false
		}
		p.manners[o.loc] = m
	}
	return p
}

func (p *fibber) Name() string { return p.name }

func (p *fibber) manner(ref reconcile.Reference) (manner, error) {
	m, ok := p.manners[ref.Location]
	switch {
	case !ok:
		return m, reconcile.ErrNotBelow
	case m.err != nil:
		return m, m.err
	case m.body == nil:
		return m, errAbsent
	case p.c.fault(p.name, ref.Location, 8):
		return m, errDown
	}
	return m, nil
}

func (p *fibber) Ask(_ context.Context, ref reconcile.Reference) (objstore.Attrs, error) {
	m, err := p.manner(ref)
	return objstore.Attrs{Size: m.promise}, err
}

func (p *fibber) Fetch(_ context.Context, ref reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	m, err := p.manner(ref)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	p.c.update(ref.Location)
	body := m.body
	if p.c.fault(p.name+" spoils", ref.Location, 6) {
		body = bytes.Clone(body[:len(body)/2])
		return io.NopCloser(bytes.NewReader(body)), objstore.Attrs{Size: int64(len(body))}, nil
	}
	var r io.Reader = bytes.NewReader(body)
	if m.cut >= 0 {
		r = io.MultiReader(bytes.NewReader(body[:m.cut]), failing{io.ErrUnexpectedEOF})
	}
	return io.NopCloser(r), objstore.Attrs{Size: m.promise}, nil
}

// fault draws whether a call goes wrong, by what it asks and how often that was asked:
// so that it is the same whichever goroutine is first.
func (c *chaos) fault(op string, loc objstore.Location, odds uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.faulty {
		return false
	}
	call := op + " " + loc.Key
	c.calls[call]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", c.seed, call, c.calls[call])
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x%(odds+1) == 0
}

func (c *chaos) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == "" {
		c.problem = fmt.Sprintf(format, args...)
	}
}

// update plays the application, while a copy is on its way: it writes the content that
// is recorded, or has another one recorded, whose bytes may follow at once or never.
func (c *chaos) update(loc objstore.Location) {
	o := c.things[loc]
	if o == nil {
		return
	}
	right, record, follow := c.fault("comes right", loc, 12), c.fault("record", loc, 10), c.fault("bytes", loc, 1)
	if right || o.blob && record {
		// The copy took its time, so that nothing that is written is young.
		defer c.now.add(2 * pendingMaxAge)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.blob && record {
		o.good, o.changed = fmt.Appendf(nil, "written anew %d", c.calls["record "+loc.Key]), true
	}
	if right || o.blob && record && follow {
		c.store.Put(loc, o.good)
	}
}

// rival plays another writer just before a write of ours.
func (c *chaos) rival(loc objstore.Location) {
	o := c.things[loc]
	switch {
	case o == nil:
	case c.fault("rival is right", loc, 10):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.store.Put(loc, o.good)
	case c.fault("rival is wrong", loc, 12):
		c.store.Put(loc, []byte("rival"))
	case c.fault("rival removes", loc, 20):
		if _, there := c.store.Data(loc); there {
			c.store.Remove(loc)
		}
	}
}

// pass is one look and repair of both targets.
func (c *chaos) pass(faulty bool) {
	c.mu.Lock()
	c.faulty = faulty
	c.passes++
	c.mu.Unlock()
	w := sick{c.store, c}
	log := slog.New(slog.DiscardHandler)
	targets := []reconcile.Target{blobs.Target("att", attachments), {Name: "table:t", Store: "mem://b/", Kind: "table", Location: table, Root: objstore.Location{Scheme: "mem", Bucket: "b"}}}
	opts := pass.Options{
		Open: func(t reconcile.Target) reconcile.Source {
			if t.Kind == blobs.Kind {
				return blobs.New(t, blobs.Options{Root: attachments, Records: reader{c}, Stores: w, Sample: 1, Day: c.now.Now()})
			}
			return tables.New(t, w, tables.Options{})
		},
		Stores: w, Depth: reconcile.DepthChecksum, ConfirmAfter: time.Second, PendingMaxAge: pendingMaxAge, TargetTimeout: time.Hour, Concurrency: 4, Clock: &c.now, Logger: log,
		Peers: func(reconcile.Target) []reconcile.Peer { return c.peers },
	}
	m := mend.Options{Writer: w.Writer, Allowed: []objstore.Location{attachments, table}, Dir: c.dir, Max: 1 << 20, PendingMaxAge: pendingMaxAge, Logger: log}
	if c.kept {
		m.Quarantine = quarantine
	}
	apply := pass.ApplyOptions{Options: opts, Ledger: c.ledger, PassID: uuid.NewString(), Owner: "x", Trigger: ledger.TriggerManual,
		Repairer: func(reconcile.Target) reconcile.Repairer { return nil }, Writer: w.Writer, Mend: pass.MendOptions{Mender: mend.New(m)},
		Lost: func(r ledger.Repair, _ ledger.Outcome, err error) { c.wrong("lost %s: %v", r.Files, err) }}
	settled := &pass.Outcome{Totals: reconcile.Totals{TargetsByState: map[reconcile.State]int64{}}}
	if err := pass.Settle(context.Background(), settled, targets, apply); err != nil {
		c.t.Fatalf("settle: %v", err)
	}
	out, err := pass.Look(context.Background(), targets, opts)
	if err != nil {
		c.t.Fatalf("look: %v", err)
	}
	actions := slices.DeleteFunc(slices.Clone(out.Actions), func(a reconcile.PlanAction) bool { return a.Action.Destructive() })
	if err := pass.Apply(context.Background(), out, actions, apply); err != nil {
		c.t.Fatalf("apply: %v", err)
	}
	if c.problem != "" {
		c.t.Fatalf("pass %d (faults %v, versions %v, quarantine %v): %s", c.passes, faulty, c.versions, c.kept, c.problem)
	}
}

// converged fails the test when something is not right that could be.
func (c *chaos) converged() {
	for _, o := range c.all() {
		got, there := c.store.Data(o.loc)
		if !o.proven() || bytes.Equal(got, o.good) && there {
			continue
		}
		source := ""
		for _, p := range c.peers {
			// A peer knows the first content only.
			if p.(*fibber).manners[o.loc].right && !o.changed {
				source = p.Name()
			}
		}
		if c.versioned(o.loc, o.good) {
			source = "a version"
		}
		if source == "" || there && !c.versions && !c.kept {
			continue
		}
		var tried []string
		for _, r := range c.ledger.rows {
			if slices.Contains(r.Files, o.name) {
				tried = append(tried, fmt.Sprintf("%s %s", r.Action, r.State))
			}
		}
		c.t.Fatalf("%s is %q (there: %v), and %s holds what is right (versions %v, quarantine %v, tried %q)", o.loc, got, there, source, c.versions, c.kept, tried)
	}
	for _, r := range c.ledger.rows {
		if r.State == ledger.StateIntended || r.State == ledger.StateUncertain {
			c.t.Fatalf("the repair of %s is still %s", r.Files, r.State)
		}
	}
}
