package tables_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// Random small tables × random damage × random faults × a concurrent writer. The
// model is what each object is like, kept beside the store:
//
//   - no fragment whose files were all readable is ever dropped by a repair
//   - no fragment that a rival committed is lost
//   - versions have no gap and every one decodes
//   - the ledger says what is in the table
//   - once the faults stop, a repair ends the damage and a second one does nothing
//
// `-rapid.checks=10000` is what CI runs.
func TestRepairsUnderFaultsAndRivals(t *testing.T) {
	t.Parallel()
	// In a bubble the pauses of a commit whose outcome is open cost nothing.
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // a bubble has no deadline to ask for
			c := newChaos(rt)
			for range 2 {
				c.pass(true)
				c.advance(time.Hour)
			}
			c.pass(false)
			c.advance(time.Hour)
			before := c.newest()
			out := c.pass(false)
			if after := c.newest(); after != before {
				rt.Fatalf("a second repair without faults committed version %d after %d", after, before)
			}
			c.check(out)
		})
	})
}

// chaos is one round.
type chaos struct {
	t     *rapid.T
	store *memstore.Store
	rng   *rand.Rand // seeded by the draw: requests come from several goroutines
	mu    sync.Mutex // guards the draws and the model
	clock sync.Mutex
	now   time.Time // guarded by clock: the store asks for it under mu
	// table is the builder of the newest version that a rival would write on.
	table *lancetest.Builder
	// damaged tells of each data or deletion file whether it cannot be read.
	damaged map[string]bool
	// acked are the fragments that a rival committed and nobody dropped since.
	acked  map[uint64]bool
	faulty bool
	rivals int
	ledger *noted
}

func newChaos(t *rapid.T) *chaos {
	c := &chaos{t: t, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), damaged: map[string]bool{}, acked: map[uint64]bool{}, ledger: newNoted()}
	c.store = memstore.New(memstore.Options{Now: c.Now})
	b := lancetest.New().Version(3).WriterVersion("lance", "12.0.0")
	n := 2 + c.rng.IntN(5)
	for i := range n {
		b.Fragment(10)
		if c.rng.IntN(4) == 0 {
			b.Delete(uint64(i), 2)
		}
	}
	c.table = b
	b.WriteTo(func(name string, data []byte) { c.store.Put(loc("t.lance/"+name), data) })
	for i := range n {
		switch c.rng.IntN(6) {
		case 0:
			c.damage(b.DataName(uint64(i), 0), nil)
		case 1:
			c.damage(b.DataName(uint64(i), 0), []byte("short"))
		}
	}
	return c
}

func (c *chaos) damage(name string, data []byte) {
	c.damaged[name] = true
	if data == nil {
		c.store.Purge(loc("t.lance/" + name))
		return
	}
	c.store.Put(loc("t.lance/"+name), data)
}

func (c *chaos) Now() time.Time {
	c.clock.Lock()
	defer c.clock.Unlock()
	return c.now
}

func (c *chaos) advance(d time.Duration) {
	c.clock.Lock()
	defer c.clock.Unlock()
	c.now = c.now.Add(d)
}

func (c *chaos) Sleep(ctx context.Context, d time.Duration) error {
	c.advance(d)
	if c.faulty {
		c.rival()
	}
	return ctx.Err()
}

// fault draws whether this request goes wrong.
func (c *chaos) fault(odds int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faulty && c.rng.IntN(odds+1) == 0
}

// The store with faults: it implements objstore.Writer.
type sick struct {
	*memstore.Store
	c *chaos
}

func unavailable(op string) error {
	return &objstore.Error{Op: op, Status: 503, Err: objstore.ErrThrottled}
}

func (s sick) Stat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	if s.c.fault(20) {
		return objstore.Attrs{}, unavailable("stat")
	}
	if s.c.fault(20) {
		return objstore.Attrs{}, &objstore.Error{Op: "stat", Status: 404, Err: objstore.ErrNotExist} // once; the second look knows better
	}
	return s.Store.Stat(ctx, l)
}

func (s sick) Restat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	if s.c.fault(20) {
		return objstore.Attrs{}, unavailable("restat")
	}
	return s.Store.Restat(ctx, l)
}

func (s sick) Get(ctx context.Context, l objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if s.c.fault(30) {
		return nil, objstore.Attrs{}, unavailable("get")
	}
	return s.Store.Get(ctx, l, r)
}

func (s sick) List(ctx context.Context, l objstore.Location, d string) iter.Seq2[objstore.Attrs, error] {
	if s.c.fault(30) {
		return func(yield func(objstore.Attrs, error) bool) { yield(objstore.Attrs{}, unavailable("list")) }
	}
	return s.Store.List(ctx, l, d)
}

func (s sick) Create(ctx context.Context, l objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	if s.c.fault(3) {
		s.c.rival()
	}
	switch {
	case s.c.fault(12):
		return objstore.Attrs{}, &objstore.Error{Op: "create", Status: 403, Err: objstore.ErrDenied}
	case s.c.fault(6):
		if _, err := s.Store.Create(ctx, l, body, size); err != nil {
			return objstore.Attrs{}, err
		}
		return objstore.Attrs{}, &objstore.Error{Op: "create", Status: 500, Err: errors.New("internal")}
	case s.c.fault(6):
		if _, err := s.Store.Create(ctx, l, body, size); err != nil {
			return objstore.Attrs{}, err
		}
		return objstore.Attrs{}, &objstore.Error{Op: "create", Status: 412, Err: objstore.ErrExist}
	}
	return s.Store.Create(ctx, l, body, size)
}

// rival commits on top of whatever is newest, as another writer would: it appends a
// fragment, or drops one of its own.
func (c *chaos) rival() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rivals >= 4 {
		return
	}
	c.rivals++
	newest, m := c.read()
	highest := uint64(0)
	if m.MaxFragmentID != nil {
		highest = uint64(*m.MaxFragmentID)
	}
	none := ^uint64(0)
	drop := none
	if mine := slices.Sorted(maps.Keys(c.acked)); len(mine) > 0 && c.rng.IntN(2) == 0 {
		drop = mine[c.rng.IntN(len(mine))]
	}
	b := lancetest.New().Version(newest+1).WriterVersion("lance", "12.0.0")
	var deletions []string
	for _, f := range c.fragments(m) {
		highest = max(highest, f.ID)
		if f.ID == drop {
			continue
		}
		b.FragmentID(f.ID, uint64(f.PhysicalRows), lancetest.File{Path: f.Files[0].Path, Size: f.Files[0].Size})
		if f.Deletion != nil {
			b.Delete(f.ID, uint64(f.Deletion.NumDeleted))
			deletions = append(deletions, b.DeletionName(f.ID))
		}
	}
	b.FragmentID(highest+1, 10).MaxFragmentID(highest + 1)
	objects := b.Objects()
	raw := objects[b.ManifestName()]
	if _, err := c.store.Create(context.Background(), loc("t.lance/"+b.ManifestName()), strings.NewReader(string(raw)), int64(len(raw))); err != nil {
		return // it lost the race, as writers do
	}
	for _, name := range append(deletions, b.DataName(highest+1, 0)) {
		c.store.Put(loc("t.lance/"+name), objects[name])
	}
	c.acked[highest+1] = true
	delete(c.acked, drop)
}

func (c *chaos) fragments(m *lance.Manifest) []lance.Fragment {
	var out []lance.Fragment
	for f, err := range m.Fragments() {
		if err != nil {
			c.t.Fatalf("fragments: %v", err)
		}
		cp := *f
		cp.Files = slices.Clone(f.Files)
		out = append(out, cp)
	}
	return out
}

// read is the newest version in the store, past all faults.
func (c *chaos) read() (uint64, *lance.Manifest) {
	m, v := tables.ReadNewest(c.t, c.store, loc("t.lance"))
	return v, m
}

func (c *chaos) newest() uint64 { v, _ := c.read(); return v }

// pass is one repair, faulty or not.
func (c *chaos) pass(faulty bool) *pass.Outcome {
	c.faulty = faulty
	defer func() { c.faulty = false }()
	w := sick{c.store, c}
	stores := oneStore{w}
	log := slog.New(slog.DiscardHandler)
	target := reconcile.Target{Name: "table:t", Store: "s3://b/", Kind: "table", Location: loc("t.lance"), Root: loc("")}
	opts := pass.Options{Open: func(t reconcile.Target) reconcile.Source { return tables.New(t, stores, tables.Options{}) }, Stores: stores,
		ConfirmAfter: time.Second, TargetTimeout: time.Hour, Concurrency: 1, Clock: c, Logger: log,
		Policy: reconcile.Policy{Limits: reconcile.Limits{MaxFragments: 16, MaxRows: 1e6, MaxFraction: 1, MaxPassTargets: 9, MaxPassFragments: 99, MaxPassRows: 1e9}, DropPartialFragments: true}}
	out, err := pass.Look(context.Background(), []reconcile.Target{target}, opts)
	if err != nil {
		c.t.Fatalf("look: %v", err)
	}
	_, before := c.read()
	readable := map[uint64]bool{}
	for _, f := range c.fragments(before) {
		readable[f.ID] = !c.damaged["data/"+f.Files[0].Path]
	}
	err = pass.Apply(context.Background(), out, out.Actions, pass.ApplyOptions{Options: opts, Ledger: c.ledger, PassID: uuid.NewString(), Owner: "x", Trigger: ledger.TriggerManual,
		Repairer: func(t reconcile.Target) reconcile.Repairer {
			return tables.NewRepairer(t, stores, tables.RepairOptions{Roots: []objstore.Location{loc("")}, Now: c.Now})
		},
		Writer: func(context.Context, objstore.Location) (objstore.Writer, error) { return w, nil },
		Lost:   func(ledger.Repair, ledger.Outcome, error) { c.t.Fatal("ledger lost") }})
	if err != nil {
		c.t.Fatalf("apply: %v", err)
	}
	for _, r := range out.Repairs {
		for _, f := range r.Fragments {
			if r.State == ledger.StateApplied && readable[f.ID] {
				c.t.Fatalf("fragment %d was whole and was dropped: %+v", f.ID, r)
			}
		}
	}
	return out
}

// check holds the end to the model.
func (c *chaos) check(out *pass.Outcome) {
	version, m := c.read()
	ids := map[uint64]bool{}
	broken, whole := 0, 0
	for _, f := range c.fragments(m) {
		ids[f.ID] = true
		if c.damaged["data/"+f.Files[0].Path] {
			broken++
		} else {
			whole++
		}
	}
	for id := range c.acked {
		if !ids[id] {
			c.t.Fatalf("a rival's fragment %d is lost; version %d holds %v", id, version, slices.Sorted(maps.Keys(ids)))
		}
	}
	for v := uint64(3); v <= version; v++ {
		name := lance.ManifestName(v, lance.V2)
		data, ok := c.store.Data(loc("t.lance/" + name))
		if !ok {
			c.t.Fatalf("version %d of %d is missing", v, version)
		}
		if _, err := lance.DecodeManifest(data); err != nil {
			c.t.Fatalf("version %d: %v", v, err)
		}
	}
	if broken > 0 && whole > 0 {
		c.t.Fatalf("%d fragments are still broken beside %d whole ones: %v", broken, whole, describe(out))
	}
	if broken == 0 && out.Exit() != reconcile.ExitClean {
		c.t.Fatalf("nothing is broken and the exit is %d: %v", out.Exit(), describe(out))
	}
	c.ledger.check(c, m)
}

func describe(out *pass.Outcome) string {
	s := ""
	for _, f := range out.Findings {
		s += fmt.Sprintf("\n%s %s %s %v", f.Verdict, f.Path, f.ProposedAction, f.BlockedBy)
	}
	for _, r := range out.Repairs {
		s += fmt.Sprintf("\nrepair %s %v", r.State, r.Error)
	}
	return s
}

// oneStore answers every place with one store.
type oneStore struct{ w objstore.Writer }

func (s oneStore) Locate(uri string) (objstore.Location, error) { return objstore.Parse(uri) }
func (s oneStore) Reader(context.Context, objstore.Location) (objstore.Reader, error) {
	return s.w, nil
}
func (s oneStore) Writer(context.Context, objstore.Location) (objstore.Writer, error) {
	return s.w, nil
}

// noted is a ledger in memory, for speed: the rules of the real ones are held by
// their own suite.
type noted struct {
	ledger.Repairs // panics on what is not used
	ledger.Locks
	ledger.Cooldowns
	ledger.Refetches
	rows map[string]*ledger.Repair
}

func newNoted() *noted { return &noted{rows: map[string]*ledger.Repair{}} }

func (n *noted) Note(context.Context, ledger.Repair) error { return nil }
func (n *noted) Intend(_ context.Context, _ ledger.Lease, r ledger.Repair) error {
	if err := r.CheckIntended(); err != nil {
		return err
	}
	for _, o := range n.rows {
		if o.State == ledger.StateIntended || o.State == ledger.StateUncertain {
			return ledger.ErrUnsettled
		}
	}
	r.State = ledger.StateIntended
	n.rows[r.RepairID] = &r
	return nil
}
func (n *noted) Settle(_ context.Context, _ ledger.Lease, id string, o ledger.Outcome) error {
	if err := o.CheckOutcome(); err != nil {
		return err
	}
	n.rows[id].State, n.rows[id].CommittedVersion = o.State, o.CommittedVersion
	return nil
}
func (n *noted) Verified(context.Context, ledger.Lease, string) error { return nil }
func (n *noted) Unsettled(context.Context, string) ([]ledger.Repair, error) {
	var out []ledger.Repair
	for _, r := range n.rows {
		if r.State == ledger.StateIntended || r.State == ledger.StateUncertain {
			out = append(out, *r)
		}
	}
	return out, nil
}
func (n *noted) Acquire(context.Context, string, string, time.Duration) (ledger.Lease, error) {
	return ledger.Lease{Epoch: 1}, nil
}
func (n *noted) Renew(_ context.Context, l ledger.Lease, _ time.Duration) (ledger.Lease, error) {
	return l, nil
}
func (n *noted) Release(context.Context, ledger.Lease) error { return nil }
func (n *noted) Fail(context.Context, ledger.CooldownPolicy, ledger.Failure) (ledger.Cooldown, error) {
	return ledger.Cooldown{}, nil
}
func (n *noted) PutProbe(context.Context, ledger.Probe) error { return nil }
func (n *noted) GetProbe(context.Context, string, string, time.Duration) (*ledger.Probe, error) {
	return nil, nil
}

// check holds the ledger to the table: every applied repair is in it, at its
// version, and every other is not.
func (n *noted) check(c *chaos, _ *lance.Manifest) {
	for _, r := range n.rows {
		v, found, err := lance.FindTransaction(context.Background(), tables.StoreOf(c.store, loc("t.lance")), *r.TransactionUUID, *r.ReadVersion+1)
		if err != nil {
			c.t.Fatalf("find transaction: %v", err)
		}
		if found != (r.State == ledger.StateApplied) || found && v != *r.CommittedVersion {
			c.t.Fatalf("repair %s is recorded as %s at %v, and its transaction is found=%v at %d", r.RepairID, r.State, r.CommittedVersion, found, v)
		}
	}
}
