// Package ledgertest holds what every ledger must do. A ledger's own tests call [Run]
// with a way to make empty ledgers and to move their clock.
package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Harness is one new, migrated, empty ledger.
type Harness struct {
	// Open opens it, with connections of its own, until the test ends.
	Open func(t testing.TB) ledger.Ledger
	// SetClock makes the database's clock differ from this machine's by offset.
	SetClock func(t testing.TB, offset time.Duration)
	// Exec runs one statement past the ledger, in the words of Postgres
	// (reconcile.passes) without parameters.
	Exec func(ctx context.Context, sql string) error
}

// Run runs the suite, each test on a harness of its own.
func Run(t *testing.T, newHarness func(t testing.TB) Harness) {
	suite := []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"passes", testPasses},
		{"findings keep their history", testHistory},
		{"what resolves a finding", testResolution},
		{"a look that began earlier does not know better", testStaleLook},
		{"a pass that was held up opens nothing again", testStaleSight},
		{"a finding that comes back begins anew", testReopened},
		{"since when damage is known", testDamagedSince},
		{"what is no record of a target is refused", testBadRecords},
		{"a target's record replaces that of the same pass", testRecordTwice},
		{"the newest version only rises", testHighestVersion},
		{"acknowledging", testAcknowledge},
		{"two passes record one target at once", testRecordRace},
		{"an interrupted record is none", testInterruptedRecord},
		{"repairs from intention to undo", testRepair},
		{"a record that could not be undone is not intended", testIncomplete},
		{"outcomes", testOutcomes},
		{"unsettled repairs block new ones", testUnsettled},
		{"noted repairs", testNoted},
		{"locks", testLocks},
		{"a holder that lost its lock writes nothing", testFenced},
		{"of many that want a lock one gets it", testLockRace},
		{"of many commits one is intended", testIntendRace},
		{"a lease that is kept", testKeep},
		{"cooldowns grow and end", testCooldown},
		{"what is put off too long is overdue", testPostpone},
		{"a half success resets nothing", testHalfSuccess},
		{"nothing is picked before its time", testDue},
		{"kinds cool down alone", testKinds},
		{"failures at once are all counted", testFailRace},
		{"fetches back off by object", testRefetch},
		{"copies that failed their proof are kept by peer", testDisproved},
		{"what bytes that are brought back must tell", testBroughtBack},
		{"where a look stands", testCheckpoints},
		{"how long a look may be gone on with", testCheckpointAge},
		{"keys of a look come back byte for byte", testCheckpointKeys},
		{"handed-in failures", testIntake},
		{"the same failure handed in at once", testIntakeRace},
		{"lists of handed-in failures", testFailureLists},
		{"probes", testProbes},
		{"posts from opened to delivered", testPosts},
		{"posts that nobody takes", testPostsEnd},
		{"posts take turns", testPostsTakeTurns},
		{"posts of a process that died", testPostsOfTheDead},
		{"of many that would send a post one does", testPostRace},
		{"lists and their filters", testLists},
		{"the state of everything", testStatus},
		{"what changed between passes", testDiff},
		{"what is forgotten", testPrune},
		{"texts that databases choke on", testTexts},
		{"records that would be wrong are refused", testConstraints},
	}
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.test(t, newHarness(t))
		})
	}
}

// at is a time of day for evidence that callers hand in.
var at = time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)

func dataset(name string) objstore.Location {
	return objstore.Location{Scheme: "s3", Endpoint: "minio:9000", Bucket: "bucket", Key: name + ".rollout.lance"}
}

func targetOf(name string) ledger.Target {
	return ledger.TargetOf(reconcile.Target{Name: name, Store: "rocketkeep", Kind: "rollout", Location: dataset(name)})
}

// damage is a finding about data/<n>.lance of a target.
func damage(name string, n int, v reconcile.Verdict) reconcile.Finding {
	loc := dataset(name)
	path := fmt.Sprintf("data/%d.lance", n)
	f := reconcile.NewFinding(reconcile.Target{Name: name, Store: "rocketkeep", Kind: "rollout", Location: loc}, reconcile.Reference{
		Role: reconcile.RoleData, Path: path, Location: loc.Join(path), Version: 7, FragmentID: uint64(n), HasFragment: true,
		Size: 1000, PhysicalRows: 100, LiveRows: 90,
	}, at)
	f.Verdict = v
	f.Scopes = []string{"latest"}
	f.ProposedAction = reconcile.ActionDropFragment
	return f
}

// bundle is a ledger with a way to talk about it briefly.
type bundle struct {
	ledger.Ledger
	t testing.TB
	Harness
}

func open(t testing.TB, h Harness) *bundle { return &bundle{h.Open(t), t, h} }

// pass begins a pass.
func (b *bundle) pass() string {
	b.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	if _, err := b.BeginPass(b.t.Context(), reconcile.Pass{PassID: id, Mode: "off", ToolVersion: "test", Actor: "alice", Host: "host1"}); err != nil {
		b.t.Fatalf("begin pass: %v", err)
	}
	return id
}

type look struct {
	pass     string
	depth    reconcile.Depth
	versions reconcile.Versions
	findings []reconcile.Finding
	answers  map[string]ledger.Answer
	version  uint64
}

// record records what a pass saw of the target x.
func (b *bundle) record(l look) ledger.TargetSummary {
	b.t.Helper()
	sum, err := b.RecordTarget(b.t.Context(), recordOf("x", l))
	if err != nil {
		b.t.Fatalf("record target: %v", err)
	}
	return sum
}

func recordOf(name string, l look) ledger.TargetRecord {
	state := reconcile.StateClean
	if len(l.findings) > 0 {
		state = reconcile.StateDiverged
	}
	version := l.version
	if version == 0 {
		version = 7
	}
	return ledger.TargetRecord{
		PassID: l.pass, Target: targetOf(name), Look: ledger.Look{Depth: l.depth, Versions: l.versions}, Findings: l.findings, Answers: l.answers,
		Result: reconcile.TargetResult{Target: name, Store: "rocketkeep", Kind: "rollout", URI: dataset(name).String(), Version: &version, State: state, References: 10, Checked: 10, Findings: int64(len(l.findings))},
	}
}

// see is a new pass that sees the findings at depth head in the current version.
func (b *bundle) see(fs ...reconcile.Finding) string {
	b.t.Helper()
	p := b.pass()
	b.record(look{pass: p, findings: fs})
	return p
}

// openIDs are the open findings of x.
func (b *bundle) openIDs() map[string]ledger.Finding {
	b.t.Helper()
	fs, err := b.OpenFindings(b.t.Context(), targetOf("x").URI)
	if err != nil {
		b.t.Fatalf("open findings: %v", err)
	}
	each := []ledger.Finding{}
	if err := b.EachOpenFinding(b.t.Context(), targetOf("x").URI, func(f ledger.Finding) { each = append(each, f) }); err != nil {
		b.t.Fatalf("each open finding: %v", err)
	}
	if diff := cmp.Diff(fs, each); diff != "" {
		b.t.Errorf("open findings, all at once and one by one (-all +each):\n%s", diff)
	}
	out := map[string]ledger.Finding{}
	for _, f := range fs {
		out[f.Finding.FindingID] = f
	}
	return out
}

// finding reads one finding whatever became of it.
func (b *bundle) finding(id string) ledger.Finding {
	b.t.Helper()
	fs, err := b.ListFindings(b.t.Context(), ledger.Filter{})
	if err != nil {
		b.t.Fatalf("list findings: %v", err)
	}
	for _, f := range fs {
		if f.Finding.FindingID == id {
			return f
		}
	}
	b.t.Fatalf("finding %s is not in the ledger", id)
	return ledger.Finding{}
}

func (b *bundle) now() time.Time {
	b.t.Helper()
	now, err := b.Now(b.t.Context())
	if err != nil {
		b.t.Fatalf("now: %v", err)
	}
	return now
}

func (b *bundle) lock(name string) ledger.Lease {
	b.t.Helper()
	l, err := b.Acquire(b.t.Context(), targetOf(name).URI, "alice", time.Minute)
	if err != nil {
		b.t.Fatalf("lock %s: %v", name, err)
	}
	return l
}

// wantErr fails the test unless err is the sentinel; nil means success.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// near reports whether two times differ by less than the time a test takes.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < 30*time.Second }
