package ledgertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// checkpoint reads what is kept for a target; nil when nothing is.
func (b *bundle) checkpoint(uri string) *ledger.Checkpoint {
	b.t.Helper()
	cp, err := b.Checkpoint(b.t.Context(), uri)
	if err != nil {
		b.t.Fatalf("read checkpoint: %v", err)
	}
	return cp
}

func testCheckpoints(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	x, y := targetOf("x").URI, targetOf("y").URI
	if cp := b.checkpoint(x); cp != nil {
		t.Fatalf("a new ledger has %+v", cp)
	}
	// Neither the target nor the pass is known to the ledger.
	first := ledger.Checkpoint{Position: "key 10", SourceID: "query a", References: 10, Checked: 9, Present: 7, Suspects: []string{"key 3", "key 4"}}
	if err := b.SaveCheckpoint(ctx, "pass-1", x, first); err != nil {
		t.Fatal(err)
	}
	// Another connection, as after a crash, finds it whole.
	got := open(t, h).checkpoint(x)
	if got == nil || got.PassID != "pass-1" || !near(got.SavedAt, b.now()) {
		t.Fatalf("came back as %+v", got)
	}
	written := cmpopts.IgnoreFields(ledger.Checkpoint{}, "PassID", "SavedAt")
	if d := cmp.Diff(&first, got, written); d != "" {
		t.Errorf("came back otherwise (-want +got)\n%s", d)
	}
	// The later stands, in the place of the earlier; other targets have their own.
	second := ledger.Checkpoint{Position: "key 20", SourceID: "query b", References: 20, Checked: 20, Present: 20}
	if err := b.SaveCheckpoint(ctx, "pass-2", x, second); err != nil {
		t.Fatal(err)
	}
	if err := b.SaveCheckpoint(ctx, "pass-2", y, first); err != nil {
		t.Fatal(err)
	}
	if got := b.checkpoint(x); got == nil || got.PassID != "pass-2" || got.Position != "key 20" || got.SourceID != "query b" || got.Present != 20 || len(got.Suspects) != 0 {
		t.Errorf("the later is %+v", got)
	}
	for range 2 { // again: nothing is there to be dropped
		if err := b.DropCheckpoint(ctx, x); err != nil {
			t.Fatal(err)
		}
	}
	if b.checkpoint(x) != nil || b.checkpoint(y) == nil {
		t.Error("the wrong one was dropped")
	}
}

func testCheckpointAge(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	x := targetOf("x").URI
	cp := ledger.Checkpoint{Position: "1", References: 1, Checked: 1, Present: 1}
	pass := b.pass()
	b.record(look{pass: pass})
	if err := b.SaveCheckpoint(ctx, pass, x, cp); err != nil {
		t.Fatal(err)
	}
	h.SetClock(t, ledger.CheckpointLifetime-time.Hour)
	if b.checkpoint(x) == nil {
		t.Error("gone before its time")
	}
	// What is forgotten of its pass does not take it along.
	if got, err := b.Prune(ctx, ledger.Retention{Passes: 24 * time.Hour, Repairs: 24 * time.Hour}); err != nil || got != (ledger.Pruned{Passes: 1}) {
		t.Fatalf("forgot %+v, %v", got, err)
	}
	if b.checkpoint(x) == nil {
		t.Error("gone with its pass")
	}
	h.SetClock(t, ledger.CheckpointLifetime+time.Hour)
	if got := b.checkpoint(x); got != nil {
		t.Errorf("gone on from %+v after %v", got, b.now().Sub(got.SavedAt))
	}
	// One that is old may be replaced, and goes when things are forgotten.
	if err := b.SaveCheckpoint(ctx, "pass-2", x, cp); err != nil || b.checkpoint(x) == nil {
		t.Errorf("a new one in the place of an old one: %v", err)
	}
	h.SetClock(t, 3*ledger.CheckpointLifetime)
	if got, err := b.Prune(ctx, ledger.Retention{}); err != nil || got != (ledger.Pruned{}) {
		t.Errorf("forgot %+v, %v", got, err)
	}
	h.SetClock(t, ledger.CheckpointLifetime)
	if b.checkpoint(x) != nil {
		t.Error("an old one is kept for ever")
	}
}

func testCheckpointKeys(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	x := targetOf("x").URI
	odd := []string{"a\x00b", "\xff\xfe", `\x00`, `\xzz`, `\`, "", "ü/😀", `"quoted", {key} [1]`, "<a&b>", " lead", "../..", "%2F+", "NULL", "null", "\u2028", strings.Repeat("é", 1024)}
	want := ledger.Checkpoint{Position: "p\x00\xff", SourceID: `\x`, References: 100, Checked: 100, Suspects: odd}
	if err := b.SaveCheckpoint(ctx, "pass-1", x, want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want, b.checkpoint(x), cmpopts.IgnoreFields(ledger.Checkpoint{}, "PassID", "SavedAt")); d != "" {
		t.Errorf("came back otherwise (-want +got)\n%s", d)
	}
	// As many as there may be.
	most := ledger.Checkpoint{Position: "p", References: ledger.MaxSuspects, Checked: ledger.MaxSuspects, Suspects: make([]string, ledger.MaxSuspects)}
	for i := range most.Suspects {
		most.Suspects[i] = fmt.Sprintf("2026/01/02/%030d.bin", i)
	}
	if err := b.SaveCheckpoint(ctx, "pass-1", x, most); err != nil {
		t.Fatal(err)
	}
	if got := b.checkpoint(x); got == nil || len(got.Suspects) != ledger.MaxSuspects || got.Suspects[ledger.MaxSuspects-1] != most.Suspects[ledger.MaxSuspects-1] {
		t.Error("the largest one came back otherwise")
	}
	ok := ledger.Checkpoint{Position: "q", References: 3, Checked: 2, Present: 1}
	for name, c := range map[string]struct {
		pass, uri string
		spoil     func(*ledger.Checkpoint)
	}{
		"no pass":            {"", x, func(*ledger.Checkpoint) {}},
		"no target":          {"p", "", func(*ledger.Checkpoint) {}},
		"no position":        {"p", x, func(c *ledger.Checkpoint) { c.Position = "" }},
		"too many suspects":  {"p", x, func(c *ledger.Checkpoint) { c.Suspects = make([]string, ledger.MaxSuspects+1) }},
		"more than is there": {"p", x, func(c *ledger.Checkpoint) { c.Checked = 4 }},
		"less than nothing":  {"p", x, func(c *ledger.Checkpoint) { c.Present = -1 }},
	} {
		cp := ok
		c.spoil(&cp)
		wantErr(t, name, b.SaveCheckpoint(ctx, c.pass, c.uri, cp), ledger.ErrCheckpoint)
	}
	if got := b.checkpoint(x); got == nil || got.Position != "p" {
		t.Errorf("one that was refused left %+v", got)
	}
}

// What brings bytes back says what from, how much, what proved it and how long it took.
func testBroughtBack(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	lease := b.lock("x")
	ms, bytes := int64(1234), int64(1000)
	whole := ledger.Outcome{State: ledger.StateApplied, BytesRestored: &bytes, Source: reconcile.Ptr("s3://dr/"), Proof: reconcile.Ptr("checksum sha256"), DurationMS: &ms}

	r := restore("x", "data/1.lance")
	r.Action, r.Source = reconcile.ActionRefetch, nil
	b.intend(lease, r)
	for name, spoil := range map[string]func(*ledger.Outcome){
		"no bytes":         func(o *ledger.Outcome) { o.BytesRestored = nil },
		"no source":        func(o *ledger.Outcome) { o.Source = nil },
		"an empty source":  func(o *ledger.Outcome) { o.Source = reconcile.Ptr("") },
		"a negative time":  func(o *ledger.Outcome) { o.DurationMS = reconcile.Ptr(int64(-1)) },
		"negative bytes":   func(o *ledger.Outcome) { o.BytesRestored = reconcile.Ptr(int64(-1)) },
		"nothing but done": func(o *ledger.Outcome) { *o = ledger.Outcome{State: ledger.StateApplied} },
	} {
		o := whole
		spoil(&o)
		if err := b.Settle(ctx, lease, r.RepairID, o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := b.Settle(ctx, lease, r.RepairID, whole); err != nil {
		t.Fatal(err)
	}
	// Everywhere repairs are read.
	listed, err := b.ListRepairs(ctx, ledger.Filter{})
	if err != nil || len(listed) != 1 {
		t.Fatalf("%d repairs, %v", len(listed), err)
	}
	for where, got := range map[string]ledger.Repair{"undo": b.repair(r.RepairID), "list": listed[0]} {
		if got.State != ledger.StateApplied || *got.BytesRestored != bytes || *got.Source != "s3://dr/" || got.Proof == nil || *got.Proof != "checksum sha256" || got.DurationMS == nil || *got.DurationMS != ms {
			t.Errorf("%s: %+v", where, got.RepairOutcome)
		}
	}
	// An attempt of which nobody knew the end keeps what it said.
	open := b.intend(lease, restore("x", "data/2.lance"))
	o := ended(ledger.StateUncertain)
	o.Proof, o.DurationMS = reconcile.Ptr("size, footer, rows"), &ms
	for _, o := range []ledger.Outcome{o, ended(ledger.StateFailed)} {
		if err := b.Settle(ctx, lease, open.RepairID, o); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.repair(open.RepairID); *got.Proof != "size, footer, rows" || *got.DurationMS != ms || *got.Source != "version abc" {
		t.Errorf("settled later: %+v", got.RepairOutcome)
	}
	// A failed attempt that wrote nothing is noted.
	failed := restore("x", "data/3.lance")
	failed.State, failed.Error, failed.Proof, failed.DurationMS = ledger.StateFailed, reconcile.Ptr("s3://dr/: the copy is not the object"), nil, &ms
	if err := b.Note(ctx, failed); err != nil {
		t.Fatal(err)
	}
	refused := restore("x", "data/4.lance")
	refused.State, refused.Error, refused.Proof = ledger.StateRefused, reconcile.Ptr("replace_would_lose_bytes"), reconcile.Ptr("checksum md5")
	if err := b.Note(ctx, refused); err != nil {
		t.Fatal(err)
	}
	if got := b.repair(failed.RepairID); got.Proof != nil || *got.DurationMS != ms {
		t.Errorf("failed: %+v", got.RepairOutcome)
	}
	if got := b.repair(refused.RepairID); *got.Proof != "checksum md5" || got.DurationMS != nil {
		t.Errorf("refused: %+v", got.RepairOutcome)
	}
	// The database itself holds to it; an undo is a restore that is a commit.
	for name, sql := range map[string]string{
		"applied without bytes":  "UPDATE reconcile.repairs SET bytes_restored = NULL WHERE state = 'applied'",
		"applied without source": "UPDATE reconcile.repairs SET source = NULL WHERE state = 'applied'",
		"less time than none":    "UPDATE reconcile.repairs SET duration_ms = -1",
	} {
		if err := h.Exec(ctx, sql); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	undo := b.intend(lease, restore("x", "data/5.lance"))
	if err := b.Settle(ctx, lease, undo.RepairID, applied(9)); err != nil {
		t.Errorf("an undo: %v", err)
	}
}
