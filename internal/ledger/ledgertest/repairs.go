package ledgertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// drop is the repair that drops two fragments of a target.
func drop(name string) ledger.Repair {
	id := uuid.Must(uuid.NewV7()).String()
	return ledger.Repair{
		RepairOutcome: reconcile.RepairOutcome{
			RepairID: id, Target: name, Store: "rocketkeep", Action: reconcile.ActionDropFragment, State: ledger.StatePlanned,
			Trigger: ledger.TriggerManual, ReadVersion: reconcile.Ptr(uint64(7)), TransactionUUID: reconcile.Ptr(uuid.NewString()),
			Fragments: []reconcile.RepairFragment{
				{ID: 3, PhysicalRows: reconcile.Ptr(int64(100)), LiveRows: reconcile.Ptr(int64(90)), MissingFiles: []string{"data/3.lance"}},
				{ID: 5, PhysicalRows: reconcile.Ptr(int64(10)), LiveRows: reconcile.Ptr(int64(10)), MissingFiles: []string{"data/5.lance", "_deletions/5-6-7.arrow"}},
			},
			Files: []string{},
		},
		Where: targetOf(name), PassID: "pass-1", Actor: "alice", Host: "host1", Reason: reconcile.Ptr("incident 7"),
		Manifest: ledger.ManifestOf("_versions/18446744073709551608.manifest", []byte("manifest\x00bytes")),
		Messages: map[uint64][]byte{3: {8, 3, 0}, 5: {8, 5, 255}},
	}
}

// restore is the repair that brings one object back.
func restore(name, file string) ledger.Repair {
	return ledger.Repair{
		RepairOutcome: reconcile.RepairOutcome{
			RepairID: uuid.Must(uuid.NewV7()).String(), Target: name, Store: "rocketkeep", Action: reconcile.ActionRestore, State: ledger.StatePlanned,
			Trigger: ledger.TriggerSchedule, Fragments: []reconcile.RepairFragment{}, Files: []string{file}, Source: reconcile.Ptr("version abc"),
		},
		Where: targetOf(name), PassID: "pass-1", Actor: "alice", Host: "host1",
	}
}

func applied(version uint64) ledger.Outcome {
	return ledger.Outcome{State: ledger.StateApplied, CommittedVersion: &version}
}

func ended(state string) ledger.Outcome {
	return ledger.Outcome{State: state, Error: reconcile.Ptr("why")}
}

func (b *bundle) intend(l ledger.Lease, r ledger.Repair) ledger.Repair {
	b.t.Helper()
	if err := b.Intend(b.t.Context(), l, r); err != nil {
		b.t.Fatalf("intend: %v", err)
	}
	return r
}

func (b *bundle) repair(id string) ledger.Repair {
	b.t.Helper()
	r, err := b.UndoData(b.t.Context(), id)
	if err != nil {
		b.t.Fatalf("read repair: %v", err)
	}
	return r
}

var ignoreWritten = cmpopts.IgnoreFields(ledger.Repair{}, "CreatedAt", "IntendedAt", "SettledAt", "VerifiedAt", "Epoch")

func testRepair(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	lease := b.lock("x")
	r := drop("x")
	b.intend(lease, r)
	// Another connection, as after a crash, finds it whole.
	other := open(t, h)
	un, err := other.Unsettled(ctx, "")
	if err != nil || len(un) != 1 || un[0].RepairID != r.RepairID || un[0].State != ledger.StateIntended || *un[0].TransactionUUID != *r.TransactionUUID {
		t.Fatalf("unsettled: %+v, %v", un, err)
	}
	if un[0].Manifest.Bytes != nil || un[0].Messages != nil {
		t.Error("a list carries the bytes")
	}
	got := other.repair(r.RepairID)
	want := r
	want.State = ledger.StateIntended
	if d := cmp.Diff(want, got, ignoreWritten, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("the record came back otherwise: %s", d)
	}
	if got.IntendedAt == nil || got.Epoch == nil || *got.Epoch != lease.Epoch || got.SettledAt != nil {
		t.Errorf("written at %v, epoch %v", got.IntendedAt, got.Epoch)
	}
	b.intend(lease, r) // the answer to the first call was lost
	if err := b.Settle(ctx, lease, r.RepairID, applied(8)); err != nil {
		t.Fatal(err)
	}
	if err := b.Settle(ctx, lease, r.RepairID, applied(8)); err != nil {
		t.Errorf("settled again the same: %v", err)
	}
	wantErr(t, "settled otherwise", b.Settle(ctx, lease, r.RepairID, ended(ledger.StateFailed)), ledger.ErrSettled)
	wantErr(t, "applied as another version", b.Settle(ctx, lease, r.RepairID, applied(9)), ledger.ErrSettled)
	wantErr(t, "intended again", b.Intend(ctx, lease, r), ledger.ErrSettled)
	got = b.repair(r.RepairID)
	if got.State != ledger.StateApplied || *got.CommittedVersion != 8 || got.RowsDropped == nil || *got.RowsDropped != 100 || got.SettledAt == nil || got.VerifiedAt != nil {
		t.Errorf("settled: %+v", got.RepairOutcome)
	}
	if v, err := b.HighestVersion(ctx, targetOf("x").URI); err != nil || v == nil || *v != 8 {
		t.Errorf("highest version %v, %v", v, err)
	}
	if err := b.Verified(ctx, lease, r.RepairID); err != nil {
		t.Fatal(err)
	}
	if b.repair(r.RepairID).VerifiedAt == nil {
		t.Error("not marked as verified")
	}
	wantErr(t, "settle what is not there", b.Settle(ctx, lease, "nobody", applied(9)), ledger.ErrNotFound)
	if _, err := b.UndoData(ctx, "nobody"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("undo what is not there: %v", err)
	}
	// The line for stderr holds everything.
	line, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var back ledger.Repair
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, back, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("the record as JSON: %s", d)
	}
	// A fragment whose rows are unknown makes the sum unknown.
	unknown := drop("x")
	unknown.Fragments[1].LiveRows = nil
	b.intend(lease, unknown)
	if err := b.Settle(ctx, lease, unknown.RepairID, applied(9)); err != nil {
		t.Fatal(err)
	}
	if got := b.repair(unknown.RepairID); got.RowsDropped != nil {
		t.Errorf("rows dropped %d although nobody knows", *got.RowsDropped)
	}
}

func testIncomplete(t *testing.T, h Harness) {
	b := open(t, h)
	lease := b.lock("x")
	large := bytes.Repeat([]byte{7}, ledger.MaxManifestBytes+1)
	for name, spoil := range map[string]func(*ledger.Repair){
		"no pass":                        func(r *ledger.Repair) { r.PassID = "" },
		"no action":                      func(r *ledger.Repair) { r.Action = reconcile.ActionNone },
		"no transaction":                 func(r *ledger.Repair) { r.TransactionUUID = nil },
		"an empty transaction":           func(r *ledger.Repair) { r.TransactionUUID = reconcile.Ptr("") },
		"no read version":                func(r *ledger.Repair) { r.ReadVersion = nil },
		"no manifest":                    func(r *ledger.Repair) { r.Manifest = nil },
		"no manifest bytes":              func(r *ledger.Repair) { r.Manifest.Bytes = nil },
		"bytes of another manifest":      func(r *ledger.Repair) { r.Manifest.Bytes = []byte("manifest\x00bytez") },
		"no fragments":                   func(r *ledger.Repair) { r.Fragments = nil },
		"no message of a fragment":       func(r *ledger.Repair) { delete(r.Messages, 5) },
		"a fragment id out of range":     func(r *ledger.Repair) { r.Fragments[0].ID = 1 << 63; r.Messages[1<<63] = []byte{1} },
		"a failure without its text":     func(r *ledger.Repair) { r.Trigger = ledger.TriggerFailure },
		"an index drop without an entry": func(r *ledger.Repair) { r.Action = reconcile.ActionDropIndex; r.IndexUUID = reconcile.Ptr("u") },
	} {
		r := drop("x")
		spoil(&r)
		wantErr(t, name, b.Intend(t.Context(), lease, r), ledger.ErrIncomplete)
	}
	if un, err := b.Unsettled(t.Context(), ""); err != nil || len(un) != 0 {
		t.Errorf("written nevertheless: %+v, %v", un, err)
	}
	wrong := drop("y")
	if err := b.Intend(t.Context(), lease, wrong); err == nil {
		t.Error("intended under the lease of another target")
	}
	// Up to 16 MiB the bytes are kept; above, name, size and digest.
	exact, over := drop("x"), drop("x")
	exact.Manifest = ledger.ManifestOf("_versions/1.manifest", large[:ledger.MaxManifestBytes])
	over.Manifest = ledger.ManifestOf("_versions/2.manifest", large)
	for _, r := range []ledger.Repair{exact, over} {
		b.intend(lease, r)
		if err := b.Settle(t.Context(), lease, r.RepairID, ended(ledger.StateConflict)); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.repair(exact.RepairID); !bytes.Equal(got.Manifest.Bytes, exact.Manifest.Bytes) {
		t.Error("16 MiB did not come back")
	}
	if got := b.repair(over.RepairID); got.Manifest.Bytes != nil || got.Manifest.Size != int64(len(large)) || got.Manifest.SHA256 != over.Manifest.SHA256 {
		t.Errorf("a larger manifest: %d bytes kept", len(got.Manifest.Bytes))
	}
	// An index entry is kept as it stood.
	ix := drop("x")
	ix.Action, ix.Fragments, ix.Messages = reconcile.ActionDropIndex, nil, nil
	ix.IndexUUID, ix.IndexMessage = reconcile.Ptr("0f0e"), []byte{1, 0, 2}
	b.intend(lease, ix)
	if got := b.repair(ix.RepairID); !bytes.Equal(got.IndexMessage, ix.IndexMessage) || *got.IndexUUID != "0f0e" {
		t.Errorf("index entry %v", got.IndexMessage)
	}
}

func testOutcomes(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	lease := b.lock("x")
	for _, c := range []struct {
		path []string
		ok   bool
	}{
		{[]string{ledger.StateApplied}, true},
		{[]string{ledger.StateConflict}, true},
		{[]string{ledger.StateRefused}, true},
		{[]string{ledger.StateFailed}, true},
		{[]string{ledger.StateUncertain, ledger.StateApplied}, true},
		{[]string{ledger.StateUncertain, ledger.StateUncertain, ledger.StateFailed}, true},
		{[]string{ledger.StateUncertain, ledger.StateRefused}, false},
		{[]string{ledger.StateFailed, ledger.StateApplied}, false},
		{[]string{ledger.StateApplied, ledger.StateUncertain}, false},
	} {
		r := b.intend(lease, drop("x"))
		for i, state := range c.path {
			o := ended(state)
			if state == ledger.StateApplied {
				o = applied(8)
			}
			err := b.Settle(ctx, lease, r.RepairID, o)
			last := i == len(c.path)-1
			if (err == nil) != (c.ok || !last) {
				t.Errorf("%v at %s: %v", c.path, state, err)
			}
		}
		if got := b.repair(r.RepairID); got.State == ledger.StateUncertain {
			if err := b.Settle(ctx, lease, r.RepairID, ended(ledger.StateFailed)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := b.intend(lease, drop("x"))
	for name, o := range map[string]ledger.Outcome{
		"a state that is none":           ended("done"),
		"a failure without a reason":     {State: ledger.StateFailed},
		"a failure with an effect":       {State: ledger.StateConflict, Error: reconcile.Ptr("why"), CommittedVersion: reconcile.Ptr(uint64(8))},
		"a commit without a version":     {State: ledger.StateApplied},
		"planned":                        {State: ledger.StatePlanned, Error: reconcile.Ptr("why")},
		"rows dropped by what was not":   {State: ledger.StateRefused, Error: reconcile.Ptr("why"), RowsDropped: reconcile.Ptr(int64(1))},
		"a negative number of rows lost": {State: ledger.StateApplied, CommittedVersion: reconcile.Ptr(uint64(8)), RowsDropped: reconcile.Ptr(int64(-1))},
	} {
		if err := b.Settle(ctx, lease, r.RepairID, o); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if got := b.repair(r.RepairID); got.State != ledger.StateIntended || got.SettledAt != nil {
		t.Errorf("a refused outcome left %+v", got.RepairOutcome)
	}
	wantErr(t, "verify what was not applied", b.Verified(ctx, lease, r.RepairID), ledger.ErrNotFound)
}

func testUnsettled(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	first := b.lock("x")
	left := b.intend(first, drop("x"))
	heal := b.intend
	// The pass that holds the lock may bring several objects back at once, but commits
	// one after another.
	wantErr(t, "a second commit beside the first", b.Intend(ctx, first, drop("x")), ledger.ErrUnsettled)
	if err := b.Release(ctx, first); err != nil {
		t.Fatal(err)
	}
	second := b.lock("x")
	if second.Epoch <= first.Epoch {
		t.Fatalf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	wantErr(t, "a new drop over what an earlier pass left", b.Intend(ctx, second, drop("x")), ledger.ErrUnsettled)
	wantErr(t, "a restore over what an earlier pass left", b.Intend(ctx, second, restore("x", "data/1.lance")), ledger.ErrUnsettled)
	heal(b.lock("y"), drop("y")) // another target is free
	// The next pass settles it, whatever the epoch under which it was intended.
	if err := b.Settle(ctx, second, left.RepairID, ended(ledger.StateUncertain)); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a restore while the effect of a drop is unknown", b.Intend(ctx, second, restore("x", "data/1.lance")), ledger.ErrUnsettled)
	if err := b.Settle(ctx, second, left.RepairID, applied(8)); err != nil {
		t.Fatal(err)
	}
	one := heal(second, restore("x", "data/1.lance"))
	two := heal(second, restore("x", "data/2.lance"))
	un, err := b.Unsettled(ctx, targetOf("x").URI)
	if err != nil || len(un) != 2 || un[0].RepairID != one.RepairID || un[1].RepairID != two.RepairID || un[0].Files[0] != "data/1.lance" {
		t.Errorf("unsettled %+v, %v", un, err)
	}
	if err := b.Settle(ctx, second, one.RepairID, ledger.Outcome{State: ledger.StateApplied, BytesRestored: reconcile.Ptr(int64(1000)), Source: reconcile.Ptr("peer b")}); err != nil {
		t.Fatal(err)
	}
	if got := b.repair(one.RepairID); *got.BytesRestored != 1000 || *got.Source != "peer b" || got.RowsDropped != nil || got.CommittedVersion != nil {
		t.Errorf("restored: %+v", got.RepairOutcome)
	}
	all, err := b.Unsettled(ctx, "")
	if err != nil || len(all) != 2 {
		t.Errorf("%d are unsettled in all, %v", len(all), err)
	}
}

func testNoted(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	r := drop("x")
	if err := b.Note(ctx, r); err != nil {
		t.Fatal(err)
	}
	r.Trigger, r.TriggerError = ledger.TriggerFailure, reconcile.Ptr("Not found: x.rollout.lance/data/3.lance")
	r.State, r.Error = ledger.StateRefused, reconcile.Ptr("over_limit")
	if err := b.Note(ctx, r); err != nil {
		t.Fatal(err)
	}
	got := b.repair(r.RepairID)
	if got.State != ledger.StateRefused || *got.Error != "over_limit" || *got.TriggerError != *r.TriggerError || got.SettledAt == nil || got.IntendedAt != nil || len(got.Fragments) != 2 {
		t.Errorf("refused: %+v", got)
	}
	for _, state := range []string{ledger.StateIntended, ledger.StateApplied, ledger.StateUncertain, "", "done"} {
		r := drop("x")
		r.State, r.Error = state, reconcile.Ptr("e")
		if err := b.Note(ctx, r); err == nil {
			t.Errorf("noted as %q without an intention", state)
		}
	}
	noReason := drop("x")
	noReason.State = ledger.StateFailed
	if err := b.Note(ctx, noReason); err == nil {
		t.Error("failed, and nobody says why")
	}
	// What was planned may be carried out.
	planned := drop("x")
	if err := b.Note(ctx, planned); err != nil {
		t.Fatal(err)
	}
	planned.TransactionUUID = reconcile.Ptr("fresh")
	planned.Fragments = planned.Fragments[:1]
	lease := b.lock("x")
	b.intend(lease, planned)
	if got := b.repair(planned.RepairID); got.State != ledger.StateIntended || *got.TransactionUUID != "fresh" || len(got.Fragments) != 1 || !bytes.Equal(got.Messages[3], planned.Messages[3]) {
		t.Errorf("planned, then intended: %+v", got)
	}
	wantErr(t, "note over an intention", b.Note(ctx, planned), ledger.ErrSettled)
}

func testIntendRace(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	lease := a.lock("x")
	const n = 8
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		r := drop("x")
		wg.Go(func() { errs[i] = []*bundle{a, b}[i%2].Intend(t.Context(), lease, r) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ledger.ErrUnsettled):
			t.Errorf("one that lost got %v", err)
		}
	}
	un, err := a.Unsettled(t.Context(), targetOf("x").URI)
	if won != 1 || err != nil || len(un) != 1 {
		t.Errorf("%d of %d were intended, %d stand, %v", won, n, len(un), err)
	}
}

func testConstraints(t *testing.T, h Harness) {
	b := open(t, h)
	f := damage("x", 1, reconcile.Missing)
	p := b.see(f)
	lease := b.lock("x")
	r := b.intend(lease, drop("x"))
	if _, err := b.Fail(t.Context(), ledger.DefaultCooldown(), ledger.Failure{Kind: ledger.KindRepair, Target: targetOf("x").URI, Class: "conflict", Text: "e"}); err != nil {
		t.Fatal(err)
	}
	if err := b.AddFailure(t.Context(), "compact", "x", "e"); err != nil {
		t.Fatal(err)
	}
	const repairs = "UPDATE reconcile.repairs SET "
	for name, sql := range map[string]string{
		"a state that is none":                       repairs + "state = 'done'",
		"a step back":                                repairs + "state = 'planned', intended_at = NULL",
		"applied without a version":                  repairs + "state = 'applied', settled_at = intended_at",
		"applied without an end":                     repairs + "state = 'applied', committed_version = 8",
		"failed without a reason":                    repairs + "state = 'failed', settled_at = intended_at",
		"another transaction than intended":          repairs + "transaction_uuid = 'other'",
		"another manifest than intended":             repairs + "manifest_sha256 = '" + strings.Repeat("0", 64) + "'",
		"an intention without its manifest":          repairs + "manifest_bytes = NULL",
		"an intention withdrawn":                     repairs + "intended_at = NULL",
		"another target than intended":               repairs + "target_uri = 's3://bucket/y'",
		"verified before applied":                    repairs + "verified_at = intended_at",
		"rows dropped before applied":                repairs + "rows_dropped = 5",
		"a verdict that is none":                     "UPDATE reconcile.findings SET verdict = 'present'",
		"a role that is none":                        "UPDATE reconcile.findings SET role = 'file'",
		"half a resolution":                          "UPDATE reconcile.findings SET resolved_at = last_seen_at",
		"half an acknowledgement":                    "UPDATE reconcile.findings SET acknowledged_until = last_seen_at",
		"a finding of no target":                     "UPDATE reconcile.findings SET target_uri = 'nowhere'",
		"a finding seen by nobody":                   "UPDATE reconcile.findings SET seen_count = 0",
		"a target's state that is none":              "UPDATE reconcile.pass_targets SET state = 'broken'",
		"an event of no finding":                     "UPDATE reconcile.pass_findings SET finding_id = 'nothing'",
		"a pass that ended without a code":           "UPDATE reconcile.passes SET finished_at = started_at",
		"a depth that is none":                       "UPDATE reconcile.passes SET scope_depth = 'deep'",
		"a kind that is none":                        "UPDATE reconcile.cooldowns SET kind = 'compact'",
		"a cooldown without failures":                "UPDATE reconcile.cooldowns SET consecutive_failures = 0, cooldown_until = last_failed_at",
		"a failure without a text":                   "UPDATE reconcile.task_failures SET error = ''",
		"a repair of a failure that is not handled":  "UPDATE reconcile.task_failures SET handled_repair_id = 'r'",
		"a second commit under way on a target":      "INSERT INTO reconcile.repairs (repair_id, pass_id, target_uri, target, store, action, state, trigger, actor, host, epoch, read_version, transaction_uuid, files, fragments, manifest_name, manifest_size, manifest_sha256, manifest_bytes, created_at, intended_at) SELECT 'second', pass_id, target_uri, target, store, action, state, trigger, actor, host, epoch, read_version, transaction_uuid, files, fragments, manifest_name, manifest_size, manifest_sha256, manifest_bytes, created_at, intended_at FROM reconcile.repairs",
		"a lock of epoch 0":                          "UPDATE reconcile.locks SET epoch = 0",
		"a target of no name":                        "UPDATE reconcile.targets SET target_uri = ''",
		"a target that findings speak of, forgotten": "DELETE FROM reconcile.targets",
		"a fragment of no repair":                    "UPDATE reconcile.repair_fragments SET repair_id = 'nobody'",
	} {
		if err := h.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if got := b.repair(r.RepairID); got.State != ledger.StateIntended || *got.TransactionUUID != *r.TransactionUUID {
		t.Errorf("the repair is %+v", got.RepairOutcome)
	}
	if ps, err := b.ListPasses(t.Context(), ledger.Filter{}); err != nil || len(ps) != 1 || ps[0].PassID != p {
		t.Errorf("passes %+v, %v", ps, err)
	}
	if err := h.Exec(t.Context(), "UPDATE reconcile.locks SET owner = 'bob'"); err != nil {
		t.Errorf("not even what is right is taken: %v", err)
	}
}

func testTexts(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	odd := "a\x00b\xffc'\"\\$1 😀 ?1 reconcile.now() " + strings.Repeat("é", 3000)
	f := damage("x", 1, reconcile.Missing)
	f.Path, f.URL, f.Reason, f.Scopes, f.BlockedBy = odd, odd, &odd, []string{odd, "", "{}", "NULL"}, []string{odd}
	b.see(f)
	got := b.openIDs()[f.FindingID].Finding
	if !strings.HasPrefix(got.Path, "a\uFFFDb\uFFFDc'\"\\$1 😀 ?1 reconcile.now() é") || len(got.Scopes) != 4 || got.Scopes[1] != "" || got.Scopes[3] != "NULL" || *got.Reason != got.Path {
		t.Errorf("path %.60q, scopes %q", got.Path, got.Scopes)
	}
	c, err := b.Fail(ctx, ledger.DefaultCooldown(), ledger.Failure{Kind: ledger.KindCheck, Target: odd, Class: odd, Text: strings.Repeat("é", 5000)})
	if err != nil || c.LastError == nil || len(*c.LastError) > 4096 || !strings.HasSuffix(*c.LastError, "é") {
		t.Errorf("a long error: %v", err)
	}
	due, cooling, err := b.Due(ctx, ledger.KindCheck, []string{odd})
	if err != nil || len(due) != 1 || due[0] != odd || len(cooling) != 0 {
		t.Errorf("an odd target is due: %v, %v", len(due), err)
	}
	if err := b.AddFailure(ctx, odd[:20], "x", odd); err != nil {
		t.Error(err)
	}
	r := drop("x")
	r.Fragments[0].MissingFiles = []string{odd}
	r.Reason = &odd
	b.intend(b.lock("x"), r)
	if got := b.repair(r.RepairID); len(got.Fragments) != 2 || !strings.HasPrefix(got.Fragments[0].MissingFiles[0], "a\uFFFDb") {
		t.Errorf("fragments %+v", got.Fragments)
	}
	if _, err := b.BeginPass(ctx, reconcile.Pass{PassID: "odd", Mode: odd, Actor: odd, Host: odd, Scope: reconcile.Scope{TargetsFilter: []string{odd}}}); err != nil {
		t.Error(err)
	}
	for i := range 3 {
		if _, err := b.ListFindings(ctx, ledger.Filter{Targets: []string{fmt.Sprintf("%d[", i)}}); !errors.Is(err, ledger.ErrBadPattern) {
			t.Errorf("a pattern that cannot be read: %v", err)
		}
	}
	if _, err := b.Acquire(ctx, targetOf("y").URI, "o\x00dd", time.Minute); err != nil {
		t.Error(err)
	}
}
