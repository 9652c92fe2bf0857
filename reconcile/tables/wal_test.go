package tables_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// A folder of the dataset that is a link leads a commit out of the root.
func TestALinkedFolderIsOutsideTheRoot(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"_versions", "_transactions"} {
		dir := t.TempDir()
		b := four()
		b.WriteDir(t, filepath.Join(dir, "out", "t.lance"))
		b.WriteDir(t, filepath.Join(dir, "root", "t.lance"), lancetest.Missing(b.DataName(1, 0)))
		at := filepath.Join(dir, "root", "t.lance", name)
		if err := errors.Join(os.RemoveAll(at), os.Symlink(filepath.Join(dir, "out", "t.lance", name), at)); err != nil {
			t.Fatal(err)
		}
		stores := factory.New(factory.Options{})
		root, err := stores.Locate(filepath.Join(dir, "root"))
		if err != nil {
			t.Fatal(err)
		}
		r := tables.NewRepairer(reconcile.Target{Name: "table:t", Location: root.Join("t.lance"), Root: root}, stores, tables.RepairOptions{Roots: []objstore.Location{root}, Now: time.Now})
		_, err = r.Prepare(t.Context(), reconcile.PlanAction{Action: reconcile.ActionDropFragment, ReadVersion: 3}, reconcile.Preparation{})
		var refusal *reconcile.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != reconcile.BlockedOutsideRoot {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a table with a write-ahead log asks of a repair just before its commit.
func TestTheWriteAheadLogIsAskedBeforeACommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		shard     lancetest.Shard
		scheduled bool
		age       time.Duration
		want      string // "" = allowed
	}{
		{"an active shard allows it", lancetest.Shard{Name: "a", Version: 1}, true, time.Hour, ""},
		{"a sealed shard blocks every repair", lancetest.Shard{Name: "a", Version: 2, Status: 1}, false, time.Hour, "wal_sealed"},
		{"a scheduled repair waits until the base was left alone", lancetest.Shard{Name: "a", Version: 1}, true, time.Minute, "busy"},
		{"a named one does not", lancetest.Shard{Name: "a", Version: 1}, false, time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, memstore.Options{})
			b := four().MemWAL()
			w.write("t.lance", b, lancetest.Missing(b.DataName(1, 0)))
			c.shard.WriteTo(func(name string, data []byte) { w.store.Put(loc("t.lance/"+name), data) })
			w.advance(c.age)
			// The plan is that of the same fragment; its look is another matter.
			m, _ := tables.ReadNewest(t, w.store, loc("t.lance"))
			plan := reconcile.PlanAction{Action: reconcile.ActionDropFragment, ReadVersion: 3}
			for f, err := range m.Fragments() {
				if err != nil {
					t.Fatal(err)
				}
				if f.ID == 1 {
					plan.Fragments = []reconcile.PlanFragment{{ID: 1, MessageSHA256: tables.Digest(f.Raw), Files: []string{b.DataName(1, 0)}}}
				}
			}
			target := reconcile.Target{Name: "table:t", Location: loc("t.lance"), Root: loc("")}
			r := tables.NewRepairer(target, oneStore{w.store}, tables.RepairOptions{Roots: []objstore.Location{loc("")}, Now: w.Now, Quiet: 2 * time.Minute})
			commit, err := r.Prepare(t.Context(), plan, reconcile.Preparation{RepairID: "r", TransactionUUID: uuid.NewString(), Scheduled: c.scheduled,
				StillBroken: func(_ context.Context, refs []reconcile.Reference) ([]bool, error) {
					out := make([]bool, len(refs))
					for i := range out {
						out[i] = true
					}
					return out, nil
				}})
			var refusal *reconcile.Refusal
			switch errors.As(err, &refusal); {
			case c.want == "" && (err != nil || len(commit.Effect().Fragments) != 1):
				t.Errorf("refused: %v", err)
			case c.want != "" && (refusal == nil || refusal.Reason != c.want):
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}
