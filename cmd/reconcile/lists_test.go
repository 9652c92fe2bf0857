package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlite"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// blobsLedger holds a pass over a collection: one blob lost, one that a peer has, one
// that was brought back and one that could not be.
func blobsLedger(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "ledger.db")
	l, err := sqlite.Open(ctx, file, "test")
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	target := reconcile.Target{Name: "blobs:att", Store: "s3://att/", Kind: "blobs", Location: objstore.Location{Scheme: "s3", Bucket: "att"}}
	finding := func(key, record string, v reconcile.Verdict) reconcile.Finding {
		f := reconcile.NewFinding(target, reconcile.Reference{Role: reconcile.RoleBlob, Path: key, Location: target.Location.Join(key), Record: record,
			PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		f.Verdict, f.PeersAsked = v, []string{"s3://a/", "s3://b/"}
		return f
	}
	lost, there := finding("lost.bin", "rec-1", reconcile.Lost), finding("there.bin", "rec-2", reconcile.Missing)
	there.PeersHaving = []string{"s3://b/"}
	pass := reconcile.Pass{PassID: "0190-a", Mode: "restore", Actor: "alice", Host: "host1"}
	_, err = l.BeginPass(ctx, pass)
	must(err)
	_, err = l.RecordTarget(ctx, ledger.TargetRecord{PassID: pass.PassID, Target: ledger.TargetOf(target), Findings: []reconcile.Finding{lost, there},
		Result: reconcile.TargetResult{Target: target.Name, State: reconcile.StateDiverged, References: 4, Checked: 4, Findings: 2}})
	must(err)
	lease, err := l.Acquire(ctx, target.Location.Canonical(), "alice", time.Minute)
	must(err)
	for _, o := range []ledger.Outcome{
		{State: ledger.StateApplied, BytesRestored: reconcile.Ptr(int64(1234)), Source: reconcile.Ptr("s3://b/"), Proof: reconcile.Ptr("checksum sha256"), DurationMS: reconcile.Ptr(int64(56))},
		{State: ledger.StateFailed, Error: reconcile.Ptr("s3://a/: the copy is not the object")},
	} {
		r := ledger.Repair{RepairOutcome: reconcile.RepairOutcome{RepairID: "r-" + o.State, Target: target.Name, Store: target.Store, Action: reconcile.ActionRefetch, Trigger: ledger.TriggerManual, Files: []string{"back.bin"}},
			Where: ledger.TargetOf(target), PassID: pass.PassID, Actor: "alice", Host: "host1"}
		must(l.Intend(ctx, lease, r))
		must(l.Settle(ctx, lease, r.RepairID, o))
	}
	must(l.Close())
	return "sqlite:" + file
}

// gaps stand between columns.
var gaps = regexp.MustCompile(` {2,}`)

func TestListsTellOfCopiesAndOfWhatCameBack(t *testing.T) {
	t.Parallel()
	db := blobsLedger(t)
	// row is the one line that speaks of what is named, with its columns apart.
	row := func(word string, args ...string) string {
		t.Helper()
		code, out, errs := invoke(t, "", append(args, "--database", db)...)
		if code != reconcile.ExitClean {
			t.Fatalf("%q: exit %d, %s", args, code, errs)
		}
		found := ""
		for line := range strings.Lines(out) {
			if strings.Contains(line, word) {
				if found != "" {
					t.Errorf("%q: two lines speak of %s:\n%s", args, word, out)
				}
				found = gaps.ReplaceAllString(strings.TrimSpace(line), "|")
			}
		}
		return found
	}
	if got := row("lost.bin", "findings", "--state", "lost"); !strings.HasSuffix(got, "rec-1|none: asked s3://a/ s3://b/|lost.bin") {
		t.Errorf("a lost blob: %s", got)
	}
	if got := row("there.bin", "findings", "--state", "lost"); got != "" {
		t.Errorf("--state lost lists %s", got)
	}
	if got := row("there.bin", "findings"); !strings.HasSuffix(got, "rec-2|at s3://b/|there.bin") {
		t.Errorf("a blob that a peer has: %s", got)
	}
	if got := row("r-applied", "repairs"); !strings.HasSuffix(got, "|1234|manual|back.bin brought back from s3://b/, checksum sha256") {
		t.Errorf("what came back: %s", got)
	}
	if got := row("r-failed", "repairs"); !strings.HasSuffix(got, "|-|manual|back.bin: s3://a/: the copy is not the object") {
		t.Errorf("what did not: %s", got)
	}
	for _, want := range [][]string{{`"record": "rec-1"`, "findings"}, {`"proof": "checksum sha256"`, "repairs"}, {`"duration_ms": 56`, "repairs"}} {
		if _, out, _ := invoke(t, "", want[1], "--database", db, "--output", "json"); !strings.Contains(out, want[0]) {
			t.Errorf("%s as JSON lacks %s", want[1], want[0])
		}
	}
}
