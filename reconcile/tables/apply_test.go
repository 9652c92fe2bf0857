package tables_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlite"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// hooked is the bucket as repairs write to it: each create goes through create,
// when that is set, which may call effect.
type hooked struct {
	*memstore.Store
	create func(name string, effect func() error) error
	puts   []string
}

func (h *hooked) Create(ctx context.Context, l objstore.Location, body io.Reader, size int64) (at objstore.Attrs, err error) {
	if ctx.Err() != nil {
		return at, ctx.Err()
	}
	h.puts = append(h.puts, l.Key)
	effect := func() error { at, err = h.Store.Create(ctx, l, body, size); return err }
	if h.create == nil {
		return at, effect()
	}
	err = h.create(l.Key, effect)
	return at, err
}

// repairs is a world with a ledger whose repairs can be interfered with.
type repairs struct {
	*world
	hook   *hooked
	ledger ledger.Ledger
	opts   func(*pass.ApplyOptions)
	lost   []ledger.Repair
	quiet  time.Duration
}

func newRepairs(t *testing.T) *repairs {
	w := newWorld(t, memstore.Options{})
	l, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w.minAge = 0
	return &repairs{world: w, hook: &hooked{Store: w.store}, ledger: l}
}

// repair looks and applies everything that is planned.
func (r *repairs) repair(ctx context.Context, uri string) (*pass.Outcome, error) {
	r.t.Helper()
	stores := factory.New(factory.Options{Attempts: 1, Logger: slog.New(slog.DiscardHandler), S3: factory.S3Options{Region: "us-east-1"},
		Open: func(context.Context, objstore.Location) (objstore.Writer, error) { return r.hook, nil }})
	log := slog.New(slog.DiscardHandler)
	found, err := fleet.Discover(r.t.Context(), stores, []string{uri}, fleet.Filter{}, log)
	if err != nil {
		r.t.Fatal(err)
	}
	id := uuid.Must(uuid.NewV7()).String()
	if _, err := r.ledger.BeginPass(r.t.Context(), reconcile.Pass{PassID: id, Mode: "full", StartedAt: time.Now(), Actor: "tester", Host: "here"}); err != nil {
		r.t.Fatal(err)
	}
	opts := pass.Options{Open: func(t reconcile.Target) reconcile.Source { return tables.New(t, stores, tables.Options{}) },
		Stores: stores, ConfirmAfter: time.Second, MinManifestAge: r.minAge, TargetTimeout: time.Hour, Concurrency: 4, Policy: r.policy, Clock: r.world, Logger: log,
		Recall: pass.Recall{Memory: r.ledger, PassID: id, Cooldown: ledger.DefaultCooldown()}}
	out, err := pass.Look(ctx, found.Targets, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	root, _ := stores.Locate("s3://b/")
	a := pass.ApplyOptions{Options: opts, Ledger: r.ledger, PassID: id, Owner: "test", Actor: "tester", Host: "here", Trigger: ledger.TriggerManual, Cooldown: ledger.DefaultCooldown(),
		Repairer: func(t reconcile.Target) reconcile.Repairer {
			return tables.NewRepairer(t, stores, tables.RepairOptions{Roots: []objstore.Location{root}, Now: r.Now, Quiet: r.quiet})
		},
		Writer: func(ctx context.Context, l objstore.Location) (objstore.Writer, error) { return stores.Writer(ctx, l) },
		Lost:   func(rec ledger.Repair, _ ledger.Outcome, _ error) { r.lost = append(r.lost, rec) },
	}
	if r.opts != nil {
		r.opts(&a)
	}
	return out, pass.Apply(ctx, out, out.Actions, a)
}

// read is the newest version of a table.
func (r *repairs) read(root string) (version uint64, ids []uint64, m *lance.Manifest) {
	r.t.Helper()
	stores := r.stores()
	l, _ := stores.Locate("s3://b/" + root)
	rd, _ := stores.Reader(r.t.Context(), l)
	m, version = tables.ReadNewest(r.t, rd, l)
	for f, err := range m.Fragments() {
		if err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, f.ID)
	}
	return version, ids, m
}

// states are the recorded repairs, oldest first.
func (r *repairs) states() []string {
	r.t.Helper()
	rows, err := r.ledger.ListRepairs(r.t.Context(), ledger.Filter{})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, row := range slices.Backward(rows) {
		out = append(out, row.Action.String()+" "+row.State)
	}
	return out
}

func (r *repairs) must(uri string) *pass.Outcome {
	r.t.Helper()
	out, err := r.repair(r.t.Context(), uri)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func TestARepairDropsExactlyTheBrokenFragment(t *testing.T) {
	t.Parallel()
	r := newRepairs(t)
	b := four().Delete(2, 3).Index("i", lancetest.IndexFile{Path: "page_data.lance"}).Unknown(200, []byte("kept"))
	r.write("t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	_, _, before := r.read("t.lance")
	out := r.must("s3://b/t.lance")
	version, ids, after := r.read("t.lance")
	if version != 4 || !slices.Equal(ids, []uint64{0, 2, 3}) {
		t.Fatalf("version %d, fragments %v, outcome %+v", version, ids, out.Repairs)
	}
	same, err := lance.SameFragments(before, after, []uint64{0, 2, 3})
	if err != nil || len(same) != 3 {
		t.Errorf("survivors %v %v", same, err)
	}
	if !strings.Contains(string(after.Raw()), "kept") {
		t.Error("an unknown field was lost")
	}
	txn, ok, err := after.InlineTransaction()
	if err != nil || !ok || !slices.Equal(txn.DeletedFragmentIDs, []uint64{1}) || txn.Properties[lance.RepairIDProperty] != out.Repairs[0].RepairID {
		t.Errorf("transaction %+v %v", txn, err)
	}
	rep := out.Repairs[0]
	if rep.State != "applied" || *rep.ReadVersion != 3 || *rep.CommittedVersion != 4 || *rep.RowsDropped != 10 || len(rep.Fragments) != 1 {
		t.Errorf("repair %+v", rep)
	}
	rec, err := r.ledger.UndoData(t.Context(), rep.RepairID)
	if err != nil || rec.Manifest == nil || string(rec.Manifest.Bytes) != string(before.Raw()) || len(rec.Messages[1]) == 0 {
		t.Errorf("undo data: %v", err)
	}
	if d := cmp.Diff([]string{".reconcile-probe", ".reconcile-probe", "t.lance/_transactions/3-" + *rep.TransactionUUID + ".txn", "t.lance/" + b.Next().ManifestName()}, r.hook.puts); d != "" {
		t.Errorf("writes %s", d)
	}
	again := r.must("s3://b/t.lance")
	if again.Exit() != reconcile.ExitClean || len(again.Repairs) != 0 {
		t.Errorf("a second repair: exit %d, %+v", again.Exit(), again.Repairs)
	}
	if v, _, _ := r.read("t.lance"); v != 4 {
		t.Errorf("a second repair committed version %d", v)
	}
}

func TestALostIndexFileCostsTheEntryAndNoRow(t *testing.T) {
	t.Parallel()
	r := newRepairs(t)
	b := four().Index("i", lancetest.IndexFile{Path: "page_data.lance"}).Index("j", lancetest.IndexFile{Path: "page_data.lance"})
	r.write("t.lance", b, lancetest.Missing(b.IndexFolder(0)+"/page_data.lance"))
	out := r.must("s3://b/t.lance")
	_, ids, m := r.read("t.lance")
	var names []string
	for x, err := range m.Indices() {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, x.Name)
	}
	if len(ids) != 4 || !slices.Equal(names, []string{"j"}) || *out.Repairs[0].RowsDropped != 0 {
		t.Errorf("fragments %v, indexes %v, %+v", ids, names, out.Repairs)
	}
}

// A rival commits at each moment of the repair: the repair lands on top of it, and
// nothing of the rival is lost.
func TestARivalIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"_transactions/", "_versions/"} {
		t.Run("before the write of "+at, func(t *testing.T) {
			t.Parallel()
			r := newRepairs(t)
			b := four()
			r.write("t.lance", b, lancetest.Missing(b.DataName(1, 0)))
			rivals := 0
			r.hook.create = func(name string, effect func() error) error {
				if strings.Contains(name, at) && rivals < 3 {
					rivals++
					b = b.Next().Fragment(10)
					b.WriteTo(func(n string, data []byte) {
						if n != "data/1-0.lance" {
							r.store.Put(loc("t.lance/"+n), data)
						}
					})
				}
				return effect()
			}
			out := r.must("s3://b/t.lance")
			version, ids, _ := r.read("t.lance")
			if want := []uint64{0, 2, 3, 4, 5, 6}; version != 7 || !slices.Equal(ids, want) {
				t.Errorf("version %d, fragments %v, %+v", version, ids, out.Repairs)
			}
			want := []string{"drop_fragment conflict", "drop_fragment conflict", "drop_fragment conflict", "drop_fragment applied"}
			if d := cmp.Diff(want, r.states()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestARivalThatRewroteTheFragmentEndsTheRepair(t *testing.T) {
	t.Parallel()
	r := newRepairs(t)
	b := four()
	r.write("t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	done := false
	r.hook.create = func(name string, effect func() error) error {
		if strings.Contains(name, "_versions/") && !done {
			done = true
			r.write("t.lance", b.Next().Drop(1).Fragment(10))
		}
		return effect()
	}
	out := r.must("s3://b/t.lance")
	version, ids, _ := r.read("t.lance")
	if version != 4 || !slices.Equal(ids, []uint64{0, 2, 3, 4}) || out.Repairs[len(out.Repairs)-1].State != "refused" {
		t.Errorf("version %d, fragments %v, %+v", version, ids, out.Repairs)
	}
}

// Every write's reply is lost after its effect, in turn, and every write fails
// without effect, in turn: the record says what is in the table.
func TestTheRecordIsRightWhateverTheStoreAnswers(t *testing.T) {
	t.Parallel()
	lostReply := func(effect func() error) error {
		if err := effect(); err != nil {
			return err
		}
		return &objstore.Error{Op: "create", Status: 500, Err: errors.New("internal")}
	}
	noEffect := func(status int) func(func() error) error {
		return func(func() error) error {
			return &objstore.Error{Op: "create", Status: status, Err: errors.New("refused")}
		}
	}
	thenExists := func(effect func() error) error {
		if err := effect(); err != nil {
			return err
		}
		return &objstore.Error{Op: "create", Status: 412, Err: objstore.ErrExist}
	}
	for _, c := range []struct {
		name, at string
		answer   func(func() error) error
		state    string
		version  uint64
		exit     reconcile.ExitCode
	}{
		{"the manifest's reply is lost", "_versions/", lostReply, "applied", 4, 3},
		{"the manifest is stored, and a retry below says that it exists", "_versions/", thenExists, "applied", 4, 3},
		{"the transaction's reply is lost", "_transactions/", lostReply, "applied", 4, 3},
		{"the manifest is refused", "_versions/", noEffect(403), "failed", 3, 6},
		{"the transaction is refused", "_transactions/", noEffect(403), "failed", 3, 6},
		{"the manifest's fate is unknown and it is not there", "_versions/", noEffect(500), "uncertain", 3, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRepairs(t)
			r.write("t.lance", four(), lancetest.Missing(four().DataName(1, 0)))
			hit := false
			r.hook.create = func(name string, effect func() error) error {
				if strings.Contains(name, c.at) && !hit {
					hit = true
					return c.answer(effect)
				}
				return effect()
			}
			out := r.must("s3://b/t.lance")
			version, ids, _ := r.read("t.lance")
			if version != c.version || r.states()[0] != "drop_fragment "+c.state {
				t.Errorf("version %d, fragments %v, recorded %v", version, ids, r.states())
			}
			if out.Exit() != c.exit {
				t.Errorf("exit %d, want %d", out.Exit(), c.exit)
			}
			if c.version == 4 {
				return
			}
			// The next pass settles what is open and repairs once.
			r.advance(time.Hour)
			r.must("s3://b/t.lance")
			if version, ids, _ := r.read("t.lance"); version != 4 || len(ids) != 3 {
				t.Errorf("after the next pass: version %d, fragments %v, recorded %v", version, ids, r.states())
			}
			if got := r.states(); got[len(got)-1] != "drop_fragment applied" || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "uncertain") || strings.Contains(s, "intended") }) {
				t.Errorf("recorded %v", got)
			}
		})
	}
}

// A ledger that goes away at a moment of the repair.
type failing struct {
	ledger.Ledger
	intend, settle error
}

func (f failing) Intend(ctx context.Context, l ledger.Lease, r ledger.Repair) error {
	if f.intend != nil {
		return f.intend
	}
	return f.Ledger.Intend(ctx, l, r)
}

func (f failing) Settle(ctx context.Context, l ledger.Lease, id string, o ledger.Outcome) error {
	if f.settle != nil {
		return f.settle
	}
	return f.Ledger.Settle(ctx, l, id, o)
}

func TestALedgerThatIsGone(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("%w: connection refused", ledger.ErrUnreachable)
	t.Run("before the effect: nothing is sent", func(t *testing.T) {
		r := newRepairs(t)
		r.write("t.lance", four(), lancetest.Missing(four().DataName(1, 0)))
		r.opts = func(o *pass.ApplyOptions) { o.Ledger = failing{Ledger: r.ledger, intend: gone} }
		if _, err := r.repair(t.Context(), "s3://b/t.lance"); !errors.Is(err, ledger.ErrUnreachable) {
			t.Errorf("error %v", err)
		}
		if v, _, _ := r.read("t.lance"); v != 3 {
			t.Errorf("version %d", v)
		}
		if slices.ContainsFunc(r.hook.puts, func(k string) bool { return strings.HasPrefix(k, "t.lance/") }) {
			t.Errorf("wrote %v", r.hook.puts)
		}
	})
	t.Run("after the effect: the whole record goes to the last resort", func(t *testing.T) {
		r := newRepairs(t)
		r.write("t.lance", four(), lancetest.Missing(four().DataName(1, 0)))
		r.opts = func(o *pass.ApplyOptions) { o.Ledger = failing{Ledger: r.ledger, settle: gone} }
		out := r.must("s3://b/t.lance")
		if out.Exit() != reconcile.ExitCommitFailed || len(r.lost) != 1 || r.lost[0].State != "applied" || len(r.lost[0].Messages[1]) == 0 || len(r.lost[0].Manifest.Bytes) == 0 {
			t.Errorf("exit %d, lost %+v", out.Exit(), r.lost)
		}
		if out.Repairs[0].State != "applied" {
			t.Errorf("report %+v", out.Repairs)
		}
		// The next pass finds the commit.
		r.opts = nil
		r.write("u.lance", four())
		b := four().Next().Next()
		_ = b
		r.store.Remove(loc("t.lance/" + four().DataName(2, 0)))
		r.advance(2 * time.Hour)
		r.must("s3://b/t.lance")
		if d := cmp.Diff([]string{"drop_fragment applied", "drop_fragment applied"}, r.states()); d != "" {
			t.Error(d)
		}
	})
}

// Every interlock that a repair asks at the last moment.
func TestInterlocksOfARepair(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		setup  func(r *repairs, b *lancetest.Builder)
		reason string
	}{
		{"a store that ignores If-None-Match", func(r *repairs, b *lancetest.Builder) {
			r.hook.create = func(name string, effect func() error) error {
				if strings.HasSuffix(name, pass.ProbeName) {
					return nil // 200 to everything
				}
				return effect()
			}
		}, "no_conditional_put"},
		{"a file that came back before the commit", func(r *repairs, b *lancetest.Builder) {
			r.opts = func(*pass.ApplyOptions) { r.write("t.lance", b) }
		}, "plan_stale"},
		{"a version that fell since the plan", func(r *repairs, b *lancetest.Builder) {
			r.opts = func(*pass.ApplyOptions) {
				r.store.Remove(loc("t.lance/" + b.ManifestName()))
				r.write("t.lance", lancetest.New().Version(2).WriterVersion("lance", "12.0.0").Fragment(10).Fragment(10), lancetest.Missing(b.DataName(1, 0)))
			}
		}, "rolled_back"},
		{"a table that is being deleted", func(r *repairs, b *lancetest.Builder) {
			r.opts = func(*pass.ApplyOptions) { r.store.Remove(loc("t.lance/" + b.ManifestName())) }
		}, "half_deleted"},
		{"another commit store", func(r *repairs, b *lancetest.Builder) {
			r.opts = func(*pass.ApplyOptions) {
				r.store.Put(loc("t.lance/"+b.ManifestName()+"-0f0e0d0c-0b0a-0908-0706-050403020100"), []byte("x"))
			}
		}, "external_commit_store"},
		{"an old writer that appeared since the plan", func(r *repairs, b *lancetest.Builder) {
			r.opts = func(*pass.ApplyOptions) {
				r.write("t.lance", b.Next().WriterVersion("lance", "0.22.0"), lancetest.Missing(b.DataName(1, 0)))
			}
		}, "unconditional_writer"},
		{"a root that this invocation was not given", func(r *repairs, b *lancetest.Builder) {
			r.opts = func(o *pass.ApplyOptions) {
				stores := r.stores()
				o.Repairer = func(t reconcile.Target) reconcile.Repairer {
					return tables.NewRepairer(t, stores, tables.RepairOptions{Roots: []objstore.Location{loc("elsewhere")}, Now: r.Now})
				}
			}
		}, "outside_root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRepairs(t)
			b := four()
			r.write("t.lance", b, lancetest.Missing(b.DataName(1, 0)))
			c.setup(r, b)
			out := r.must("s3://b/t.lance")
			if len(out.Repairs) != 1 || out.Repairs[0].State != "refused" || !strings.HasPrefix(*out.Repairs[0].Error, c.reason) {
				t.Errorf("repairs %+v, want refused by %s", out.Repairs, c.reason)
			}
			if out.Exit() != reconcile.ExitRefused {
				t.Errorf("exit %d", out.Exit())
			}
			for _, k := range r.hook.puts {
				if strings.HasPrefix(k, "t.lance/") {
					t.Errorf("wrote %s", k)
				}
			}
			if cds, err := r.ledger.ListCooldowns(t.Context(), ledger.Filter{}); err != nil || len(cds) != 0 {
				for _, cd := range cds {
					if cd.Kind == ledger.KindRepair && cd.ConsecutiveFailures > 0 {
						t.Errorf("a refusal counts as a failure: %+v", cd)
					}
				}
			}
		})
	}
}

func TestALockedTargetIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRepairs(t)
	r.write("t.lance", four(), lancetest.Missing(four().DataName(1, 0)))
	if _, err := r.ledger.Acquire(t.Context(), "s3://b/t.lance", "somebody", time.Hour); err != nil {
		t.Fatal(err)
	}
	out := r.must("s3://b/t.lance")
	if out.Exit() != reconcile.ExitLocked || len(out.Repairs) != 0 {
		t.Errorf("exit %d, %+v", out.Exit(), out.Repairs)
	}
	if v, _, _ := r.read("t.lance"); v != 3 {
		t.Errorf("version %d", v)
	}
}

func TestAnEndedContextBeginsNoWrite(t *testing.T) {
	t.Parallel()
	r := newRepairs(t)
	r.write("t.lance", four(), lancetest.Missing(four().DataName(1, 0)))
	ctx, cancel := context.WithCancel(t.Context())
	// The interruption comes while the transaction file is being written: that
	// write is awaited, and the manifest is not begun.
	r.hook.create = func(name string, effect func() error) error {
		err := effect()
		if strings.Contains(name, "_transactions/") {
			cancel()
		}
		return err
	}
	out, err := r.repair(ctx, "s3://b/t.lance")
	if err != nil {
		t.Fatal(err)
	}
	if v, _, _ := r.read("t.lance"); v != 3 {
		t.Errorf("version %d", v)
	}
	if got := r.states(); !slices.Equal(got, []string{"drop_fragment failed"}) || out.Interrupted == nil {
		t.Errorf("recorded %v, interrupted %v", got, out.Interrupted)
	}
}
