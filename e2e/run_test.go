package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/open"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// site is a configured store with a ledger, for runs.
type site struct {
	t      *testing.T
	s      *servertest.Server
	dir    string
	config string
	ledger string
}

func newSite(t *testing.T, ledgerURL, more string) *site {
	t.Helper()
	x := &site{t: t, s: servertest.S3(t), dir: t.TempDir()}
	if ledgerURL == "" {
		ledgerURL = "sqlite:" + filepath.Join(x.dir, "ledger.db")
	}
	x.ledger, x.config = ledgerURL, filepath.Join(x.dir, "reconcile.yaml")
	text := fmt.Sprintf("database: %q\nstores: [{name: rk, uri: \"s3://%s/r\"}]\nverify: {confirm_after: 1s, min_manifest_age: 0s}\n%s", ledgerURL, x.s.Bucket, more)
	if err := os.WriteFile(x.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *site) run(args ...string) result {
	x.t.Helper()
	return runIn(x.t, x.dir, x.s.Env(), append(args, "--config", x.config)...)
}

// pass is a scheduled pass with its document.
func (x *site) pass(want reconcile.ExitCode, args ...string) document {
	x.t.Helper()
	return x.run(append([]string{"run", "--output", "json", "--request-timeout", "1s"}, args...)...).exit(want).pass()
}

func (x *site) open() ledger.Ledger {
	x.t.Helper()
	l, err := open.Ledger(x.t.Context(), x.ledger, "test")
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = l.Close() })
	return l
}

// uri is the canonical URI of a table of the site.
func (x *site) uri(table string) string {
	return objstore.Location{Scheme: "s3", Endpoint: strings.TrimPrefix(x.s.Endpoint, "http://"), Bucket: x.s.Bucket, Key: "r/" + table}.Canonical()
}

const fullAtOnce = "repair: {mode: full, drop_after: 0s, quiet: 0s}\n"

func TestARunRepairsRecordsReportsAndIsCleanTheNextTime(t *testing.T) {
	t.Parallel()
	reports := t.TempDir()
	x := newSite(t, "", fullAtOnce+fmt.Sprintf("reports: {uri: %q}\nmetrics: {textfile: %q}\n", reports, filepath.Join(reports, "reconcile.prom")))
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	put(t, x.s, "r/u.lance", b)
	r := x.run("run", "--output", "json").exit(reconcile.ExitClean)
	d := r.pass()
	if d.Exit.Name != "repaired" || d.Totals["rows_dropped"] != 10.0 || d.Totals["targets_repaired"] != 1.0 || d.Totals["targets_clean"] != 1.0 {
		t.Errorf("exit %v, totals %v", d.Exit, d.Totals)
	}
	if n := strings.Count(r.stderr, `msg="dropped a fragment"`); n != 1 || !strings.Contains(r.stderr, "level=WARN") {
		t.Errorf("%d warnings of a drop:\n%s", n, r.stderr)
	}
	for _, kind := range []string{"findings", "targets", "repairs", "repair_fragments", "passes"} {
		if done, err := filepath.Glob(filepath.Join(reports, "report="+kind, "*", "*", "_SUCCESS")); err != nil || len(done) != 1 {
			t.Errorf("finished reports of %s: %v, %v", kind, done, err)
		}
	}
	prom, err := os.ReadFile(filepath.Join(reports, "reconcile.prom"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"reconcile_fragments_dropped_total 1\n", "reconcile_rows_dropped_total 10\n", `reconcile_repairs_total{action="drop_fragment",state="applied"} 1`,
		`reconcile_references_total{role="data",verdict="present"} 7`, `reconcile_open_findings{verdict="missing"} 0`, `reconcile_requests_total{code="ok",op="head",store="rk"}`} {
		if !strings.Contains(string(prom), line) {
			t.Errorf("no %q in\n%s", line, prom)
		}
	}
	l := x.open()
	rs, err := l.ListRepairs(t.Context(), ledger.Filter{})
	if err != nil || len(rs) != 1 || rs[0].State != ledger.StateApplied || rs[0].VerifiedAt == nil || rs[0].Trigger != ledger.TriggerSchedule {
		t.Errorf("repairs %+v, %v", rs, err)
	}
	hs, err := l.ListTargets(t.Context(), ledger.Filter{Targets: []string{"table:t"}})
	if err != nil || len(hs) != 1 || text(hs[0].State) != "repaired" || hs[0].OpenFindings != 0 {
		t.Errorf("targets %+v, %v", hs, err)
	}
	if again := x.pass(reconcile.ExitClean); again.Exit.Name != "clean" || len(again.Repairs) != 0 {
		t.Errorf("the next pass: %+v, %v", again.Exit, again.Repairs)
	}
}

func TestAScheduledDropWaitsForAnEarlierPass(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "repair: {mode: full, drop_after: 3s, quiet: 0s}\n")
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	first := outcome(x.pass(reconcile.ExitDivergence))
	if d := cmp.Diff(repaired{3, "diverged", "", []string{"drop_after"}, nil}, first, cmp.AllowUnexported(repaired{})); d != "" {
		t.Errorf("the first pass (-want +got)\n%s", d)
	}
	time.Sleep(3 * time.Second)
	second := outcome(x.pass(reconcile.ExitClean))
	if d := cmp.Diff(repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}, second, cmp.AllowUnexported(repaired{})); d != "" {
		t.Errorf("the second pass (-want +got)\n%s", d)
	}
}

func TestANamedRepairDoesNotWait(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "repair: {mode: full, drop_after: 1h}\n")
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	x.pass(reconcile.ExitDivergence)
	l := x.open()
	for range 3 {
		if _, err := l.Fail(t.Context(), ledger.DefaultCooldown(), ledger.Failure{Kind: ledger.KindRepair, Target: x.uri("t.lance"), Class: "failed", Text: "no luck"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := outcome(x.pass(reconcile.ExitDivergence)); got.state != "cooling_down" || got.reason != "repair" || !slices.Contains(got.blocked, "cooling_down") {
		t.Errorf("%+v", got)
	}
	x.run("repair", "table:t", "--output", "json").exit(reconcile.ExitClean)
	if cs, err := l.ListCooldowns(t.Context(), ledger.Filter{States: []string{"active"}}); err != nil || len(cs) != 0 {
		t.Errorf("a verified repair leaves the cooldown: %+v, %v", cs, err)
	}
}

func TestACheckThatCoolsDownIsLeftOutAndSaidSo(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	put(t, x.s, "r/t.lance", fourFragments())
	put(t, x.s, "r/u.lance", fourFragments())
	l := x.open()
	for range 3 {
		if _, err := l.Fail(t.Context(), ledger.DefaultCooldown(), ledger.Failure{Kind: ledger.KindCheck, Target: x.uri("t.lance"), Class: "unreadable", Text: "bad_manifest"}); err != nil {
			t.Fatal(err)
		}
	}
	x.s.ClearLog()
	got := outcome(x.pass(reconcile.ExitIncomplete))
	if d := cmp.Diff(repaired{4, "cooling_down", "check", nil, nil}, got, cmp.AllowUnexported(repaired{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for _, r := range x.s.Requests() {
		if strings.Contains(r.Key, "t.lance/") {
			t.Errorf("it was asked: %v", r)
		}
	}
	x.pass(reconcile.ExitClean, "--force")
}

// The third failed check in a row puts the next off, and the log says so once.
func TestTheThirdFailedCheckEntersACooldown(t *testing.T) {
	t.Parallel()
	for name, url := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, url(t), fullAtOnce)
			b := fourFragments()
			put(t, x.s, "r/t.lance", b, lancetest.Truncate(b.ManifestName(), 100))
			for i := range 3 {
				r := x.run("run", "--output", "json").exit(reconcile.ExitIncomplete)
				if n := strings.Count(r.stderr, `msg="work on target cools down"`); (n == 1) != (i == 2) || !strings.Contains(r.stderr, "last_error") == (i == 2) {
					t.Errorf("pass %d: %d warnings\n%s", i+1, n, r.stderr)
				}
			}
			if got := outcome(x.pass(reconcile.ExitIncomplete)); got.state != "cooling_down" {
				t.Errorf("the fourth pass: %+v", got)
			}
			r := x.run("cooldowns", "--output", "json").exit(reconcile.ExitClean)
			var cs []ledger.Cooldown
			if err := json.Unmarshal([]byte(r.stdout), &cs); err != nil || len(cs) != 1 || cs[0].ConsecutiveFailures != 3 || !cs[0].Active {
				t.Errorf("%v\n%s", err, r.stdout)
			}
		})
	}
}

// A repair that fails three times is left alone by runs; naming it is not.
func TestTheThirdFailedRepairEntersACooldown(t *testing.T) {
	t.Parallel()
	for name, url := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, url(t), fullAtOnce)
			b := fourFragments()
			put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
			x.s.Add(servertest.Rule{Op: "PUT", Key: "t.lance/_transactions/*", Status: 403, Code: "AccessDenied"})
			for i := range 3 {
				got := outcome(x.pass(reconcile.ExitCommitFailed))
				if got.state != "failed" || !slices.Equal(got.repairs, []string{"drop_fragment failed"}) {
					t.Errorf("pass %d: %+v", i+1, got)
				}
			}
			if got := outcome(x.pass(reconcile.ExitDivergence)); got.state != "cooling_down" || got.reason != "repair" || len(got.repairs) != 0 {
				t.Errorf("the fourth pass: %+v", got)
			}
			x.s.ClearRules()
			if got := outcome(x.run("repair", "table:t", "--output", "json").exit(reconcile.ExitClean).pass()); got.state != "repaired" {
				t.Errorf("a named repair: %+v", got)
			}
			if manifests(t, x.s, "r/t.lance") != 2 {
				t.Error("more or less than one new version")
			}
		})
	}
}

// ledgers are both kinds, each as a maker of a new one.
func ledgers(t *testing.T) map[string]func(*testing.T) string {
	t.Helper()
	return map[string]func(*testing.T) string{
		"sqlite": func(*testing.T) string { return "" },
		"postgres": func(t *testing.T) string {
			url := servertest.Postgres(t)
			run(t, nil, "migrate", "up", "--database", url).exit(reconcile.ExitClean)
			return url
		},
	}
}

func TestALockedTargetIsLeftToItsHolder(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	lease, err := x.open().Acquire(t.Context(), x.uri("t.lance"), "somebody else", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if got := outcome(x.pass(reconcile.ExitLocked)); got.state != "locked" || len(got.repairs) != 0 {
		t.Errorf("all locked: %+v", got)
	}
	put(t, x.s, "r/u.lance", b)
	if got := outcome(x.pass(reconcile.ExitIncomplete)); got.state != "locked" {
		t.Errorf("one of two locked: %+v", got)
	}
	r := x.run("status").exit(reconcile.ExitClean)
	r.says(r.stdout, "somebody else")
	if err := x.open().Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if got := outcome(x.pass(reconcile.ExitClean)); got.state != "repaired" {
		t.Errorf("released: %+v", got)
	}
}

func TestAnAcknowledgedFindingIsNotRepairedAndDoesNotCount(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	d := x.pass(reconcile.ExitDivergence, "--mode", "off")
	r := x.run("ack", d.Findings[0].FindingID[:8], "--until", time.Now().AddDate(0, 0, 7).Format(time.DateOnly), "--reason", "known").exit(reconcile.ExitClean)
	r.says(r.stdout, "is accepted until")
	got := outcome(x.pass(reconcile.ExitClean))
	if d := cmp.Diff(repaired{0, "clean", "", []string{"acknowledged"}, nil}, got, cmp.AllowUnexported(repaired{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	x.run("ack", d.Findings[0].FindingID[:8], "--withdraw").exit(reconcile.ExitClean)
	if got := outcome(x.pass(reconcile.ExitClean)); got.state != "repaired" {
		t.Errorf("taken back: %+v", got)
	}
}

// A table whose newest version is lower than one that the ledger knows.
func TestALowerVersionThanTheLedgerKnowsIsRolledBack(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.lance", b)
	next := fourFragments().Version(4)
	put(t, x.s, "r/t.lance", next)
	x.pass(reconcile.ExitClean)
	x.s.Remove(t, "r/t.lance/"+next.ManifestName())
	x.s.Remove(t, "r/t.lance/"+b.DataName(1, 0))
	if got := outcome(x.pass(reconcile.ExitRefused)); got.state != "rolled_back" || !slices.Contains(got.blocked, "rolled_back") {
		t.Errorf("%+v", got)
	}
	if got := outcome(x.run("repair", "table:t", "--accept-version", "3", "--output", "json").exit(reconcile.ExitClean).pass()); got.state != "repaired" {
		t.Errorf("accepted: %+v", got)
	}
	x.pass(reconcile.ExitClean)
}

func TestPoliciesAndInterlocksOfRuns(t *testing.T) {
	t.Parallel()
	parts := fourFragments()
	parts.Columns("a", "b").Fragment(10, lancetest.File{Path: "p1.lance", Fields: []int32{0}}, lancetest.File{Path: "p2.lance", Fields: []int32{1}})
	b := fourFragments()
	for _, tt := range []struct {
		name, more string
		setup      func(t *testing.T, s *servertest.Server)
		want       repaired
	}{
		{"a part of a fragment is only reported", fullAtOnce, func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", parts, lancetest.Missing("data/p2.lance"))
		},
			repaired{3, "diverged", "", []string{"partial_columns"}, nil}},
		{"a part of a fragment is dropped by the policy", "repair: {mode: full, drop_after: 0s, partial_fragments: drop}\n",
			func(t *testing.T, s *servertest.Server) {
				put(t, s, "r/t.lance", parts, lancetest.Missing("data/p2.lance"))
			},
			repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"too many tables at once", "repair: {mode: full, drop_after: 0s, max_pass_targets: 1}\n", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
			put(t, s, "r/u.lance", b, lancetest.Missing(b.DataName(1, 0)))
		}, repaired{5, "refused", "", []string{"over_limit"}, nil}},
		{"mode off", "repair: {mode: off, drop_after: 0s}\n", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
		},
			repaired{3, "diverged", "", nil, nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, "", tt.more)
			tt.setup(t, x.s)
			if d := cmp.Diff(tt.want, outcome(x.pass(tt.want.exit)), cmp.AllowUnexported(repaired{})); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestAnExternalCommitStoreIsNeverCommittedTo(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	text, err := os.ReadFile(x.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(x.config, []byte(strings.Replace(string(text), "name: rk,", "name: rk, commit: external,", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	if d := cmp.Diff(repaired{5, "refused", "", []string{"external_commit_store"}, nil}, outcome(x.pass(reconcile.ExitRefused)), cmp.AllowUnexported(repaired{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Before an effect, a ledger that is not there ends the pass.
func TestALedgerThatIsNotThereEndsTheRepairBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	b := fourFragments()
	put(t, s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	s.ClearLog()
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"postgres://u:hunter2@127.0.0.1:1/d", "sqlite:" + filepath.Join(blocked, "ledger.db")} {
		for _, cmd := range []string{"repair", "check"} {
			r := run(t, s.Env(), cmd, "s3://"+s.Bucket+"/r/t.lance", "--database", url, "--confirm-after", "1s").exit(reconcile.ExitFailed)
			if strings.Contains(r.stderr, "hunter2") {
				t.Errorf("a password is printed:\n%s", r.stderr)
			}
		}
	}
	if w := s.Writes(); len(w) > 0 {
		t.Errorf("it wrote: %v", w)
	}
	// A look that named none goes on without one, and says so.
	r := run(t, append(s.Env(), "XDG_STATE_HOME="+blocked), look("s3://"+s.Bucket+"/r")...).exit(reconcile.ExitDivergence)
	r.says(r.stderr, "remembers nothing")
	run(t, append(s.Env(), "XDG_STATE_HOME="+blocked), repairNow("s3://"+s.Bucket+"/r/t.lance")...).exit(reconcile.ExitFailed)
}
