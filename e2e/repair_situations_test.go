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

// repairNow is a repair with no patience: a second between the looks, no age
// protection.
func repairNow(extra ...string) []string {
	return append([]string{"repair", "--output", "json", "--min-manifest-age", "0s", "--confirm-after", "1s", "--request-timeout", "1s"}, extra...)
}

// denied is the case in which not even the test may list.
const denied = "403 on everything"

// repaired is what a repair of one table came to.
type repaired struct {
	exit   reconcile.ExitCode
	state  string
	reason string
	// blocked are the words of all findings, sorted.
	blocked []string
	// repairs are "action state" in order.
	repairs []string
}

func outcome(d document) repaired {
	got := repaired{exit: reconcile.ExitCode(d.Exit.Code)}
	for _, tg := range d.Targets {
		if tg.Target == "table:t" || len(d.Targets) == 1 {
			got.state, got.reason = tg.State, text(tg.Reason)
		}
	}
	for _, f := range d.Findings {
		for _, b := range f.BlockedBy {
			if !slices.Contains(got.blocked, b) {
				got.blocked = append(got.blocked, b)
			}
		}
	}
	slices.Sort(got.blocked)
	for _, r := range d.Repairs {
		got.repairs = append(got.repairs, fmt.Sprint(r["action"], " ", r["state"]))
	}
	return got
}

// manifests counts the versions of a table.
func manifests(t *testing.T, s *servertest.Server, table string) int {
	t.Helper()
	n := 0
	for _, k := range s.Keys(t, table+"/_versions/") {
		if strings.HasSuffix(k, ".manifest") {
			n++
		}
	}
	return n
}

// Every row of the situation table where a repair is asked for: what storage does,
// what becomes of the table, how the program ends. Only where a repair is applied is
// anything written to the table.
func TestRepairSituations(t *testing.T) {
	t.Parallel()
	b := fourFragments()
	one, two := b.DataName(1, 0), b.DataName(2, 0)
	gone := func(damages ...lancetest.Damage) func(*testing.T, *servertest.Server) {
		return func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b, damages...) }
	}
	with := func(setup func(*testing.T, *servertest.Server), rules ...servertest.Rule) func(*testing.T, *servertest.Server) {
		return func(t *testing.T, s *servertest.Server) { setup(t, s); s.Add(rules...) }
	}
	deleted := fourFragments().Delete(3, 1)
	indexed := fourFragments().Index("i", lancetest.IndexFile{Path: "page_data.lance"})
	parts := fourFragments()
	parts.Columns("a", "b").Fragment(10, lancetest.File{Path: "p1.lance", Fields: []int32{0}}, lancetest.File{Path: "p2.lance", Fields: []int32{1}})
	cases := []struct {
		name  string
		setup func(t *testing.T, s *servertest.Server)
		uri   string
		args  []string
		want  repaired
	}{
		{"a healthy table", gone(), "r/t.lance", nil, repaired{0, "clean", "", nil, nil}},
		{"a data file that is gone", gone(lancetest.Missing(one)), "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"two data files that are gone", gone(lancetest.Missing(one), lancetest.Missing(two)), "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"an index file that is gone", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", indexed, lancetest.Missing(indexed.IndexFolder(0)+"/page_data.lance"))
		}, "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_index applied"}}},
		{"a deletion file that is gone", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", deleted, lancetest.Missing(deleted.DeletionName(3)))
		}, "r/t.lance", nil, repaired{3, "diverged", "", []string{"deletion_policy"}, nil}},
		{"a deletion file that is gone, and the policy says to drop", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", deleted, lancetest.Missing(deleted.DeletionName(3)))
		}, "r/t.lance", []string{"--deletion-files", "drop_fragment"}, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"nothing that loses rows is asked for", gone(lancetest.Missing(one)), "r/t.lance", []string{"--mode", "restore"}, repaired{3, "diverged", "", nil, nil}},
		{"a repair that is only shown", gone(lancetest.Missing(one)), "r/t.lance", []string{"--dry-run"}, repaired{3, "diverged", "", nil, []string{"drop_fragment planned"}}},
		{"a repair that is off", gone(lancetest.Missing(one)), "r/t.lance", []string{"--mode", "off"}, repaired{3, "diverged", "", nil, nil}},
		{"the bucket is absent", gone(), "!nowhere/t.lance", nil, repaired{1, "failed", "no_such_bucket", nil, nil}},
		{"no table at the place", gone(), "r/other.lance", nil, repaired{1, "", "", nil, nil}},
		{denied, gone(lancetest.Missing(one)), "r/t.lance", nil,
			repaired{4, "incomplete", "access_denied", nil, nil}},
		{"403 on one key beside a lost one", with(gone(lancetest.Missing(one)), servertest.Rule{Key: two, Status: 403, Code: "AccessDenied"}), "r/t.lance", nil,
			repaired{5, "incomplete", "access_denied", []string{"incomplete_look"}, nil}},
		{"a key that answers 500 for ever", with(gone(), servertest.Rule{Key: two, Status: 500, Code: "InternalError"}), "r/t.lance", nil,
			repaired{4, "incomplete", "server_error", nil, nil}},
		{"a key that answers 500 beside a lost one", with(gone(lancetest.Missing(one)), servertest.Rule{Key: two, Status: 500, Code: "InternalError"}), "r/t.lance", nil,
			repaired{5, "incomplete", "server_error", []string{"incomplete_look"}, nil}},
		{"404 and then 200", with(gone(), servertest.Rule{Op: "HEAD", Key: one, Count: 1, Status: 404}), "r/t.lance", nil, repaired{0, "clean", "", nil, nil}},
		{"all data files gone", gone(lancetest.Missing("data/*")), "r/t.lance", nil, repaired{5, "refused", "everything_missing", []string{"everything_missing", "over_limit"}, nil}},
		{"all data files gone, and the table may be empty", gone(lancetest.Missing("data/*")), "r/t.lance", []string{"--allow-empty-table", "--allow-mass-drop"},
			repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"more than the limit", gone(lancetest.Missing(one), lancetest.Missing(two)), "r/t.lance", []string{"--max-fragments", "1"},
			repaired{5, "refused", "", []string{"over_limit"}, nil}},
		{"more than the limit, which is lifted", gone(lancetest.Missing(one), lancetest.Missing(two)), "r/t.lance", []string{"--max-fragments", "1", "--allow-mass-drop"},
			repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"the newest manifest is cut short", gone(lancetest.Truncate(b.ManifestName(), 100)), "r/t.lance", nil, repaired{4, "unreadable", "bad_manifest", nil, nil}},
		{"the newest manifest is empty", gone(lancetest.Empty(b.ManifestName())), "r/t.lance", nil, repaired{4, "unreadable", "bad_manifest", nil, nil}},
		{"an unknown reader flag", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Flags(512, 512), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{4, "unreadable", "unknown_reader_flags", nil, nil}},
		{"an unknown writer flag", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Flags(0, 1024), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{5, "refused", "", []string{"unknown_writer_flags"}, nil}},
		{"a writer that commits without a condition", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().WriterVersion("lance", "0.30.0"), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{5, "refused", "", []string{"unconditional_writer"}, nil}},
		{"a writer that commits without a condition, and has stopped", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().WriterVersion("lance", "0.30.0"), lancetest.Missing(one))
		}, "r/t.lance", []string{"--writers-stopped"}, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"a store that ignores the condition of a create", with(gone(lancetest.Missing(one)), servertest.Rule{Op: "PUT", Key: ".reconcile-probe", Status: 200}), "r/t.lance", nil,
			repaired{5, "refused", "no_conditional_put", nil, []string{"drop_fragment refused"}}},
		{"a base path without access beside a lost file", func(t *testing.T, s *servertest.Server) {
			far := fourFragments().Base(1, "s3://"+s.Bucket+"/far.lance", true).Fragment(10, lancetest.File{Path: "f.lance", BaseID: lancetest.ID(1)})
			put(t, s, "r/t.lance", far, lancetest.Missing(far.DataName(1, 0)))
			s.Add(servertest.Rule{Key: "far.lance", Status: 403, Code: "AccessDenied"})
		}, "r/t.lance", nil, repaired{5, "incomplete", "access_denied", []string{"incomplete_look"}, nil}},
		{"an unknown base id", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", lancetest.New().Fragment(10).Fragment(10, lancetest.File{Path: "f.lance", BaseID: lancetest.ID(9)}))
		}, "r/t.lance", nil, repaired{4, "incomplete", "unknown_base", nil, nil}},
		{"a half-deleted table", func(t *testing.T, s *servertest.Server) { s.Put(t, "r/t.lance/data/x.lance", []byte("x")) }, "r/t.lance", nil,
			repaired{5, "half_deleted", "no manifest, 1 objects", nil, nil}},
		{"a lost file with an older version", func(t *testing.T, s *servertest.Server) {
			s.EnableVersions(t)
			put(t, s, "r/t.lance", b)
			s.Remove(t, "r/t.lance/"+one)
		}, "r/t.lance", nil, repaired{3, "diverged", "", nil, nil}},
		{"a file in an archive tier", with(gone(), servertest.Rule{Op: "HEAD", Key: one, Header: map[string]string{"X-Amz-Storage-Class": "GLACIER"}}), "r/t.lance", nil,
			repaired{3, "diverged", "", nil, nil}},
		{"versions that nobody may list", with(gone(lancetest.Missing(one)), servertest.Rule{Op: "LIST", Key: one, Status: 403, Code: "AccessDenied"}), "r/t.lance", nil,
			repaired{5, "refused", "", []string{"versions_unknown"}, nil}},
		{"a young manifest", gone(lancetest.Missing(one)), "r/t.lance", []string{"--min-manifest-age", "1h"}, repaired{4, "pending", "", nil, nil}},
		{"a rolled-back table", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Tag("v9", 9), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{5, "rolled_back", "tag v9 names version 9, the newest manifest is 3", []string{"rolled_back"}, nil}},
		{"a rolled-back table that is accepted", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Tag("v9", 9), lancetest.Missing(one))
		}, "r/t.lance", []string{"--accept-version", "3"}, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"another version is accepted than the newest", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Tag("v9", 9), lancetest.Missing(one))
		}, "r/t.lance", []string{"--accept-version", "2"}, repaired{5, "rolled_back", "tag v9 names version 9, the newest manifest is 3", []string{"rolled_back"}, nil}},
		{"only a trace of a higher version", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", fourFragments().Hint(9)) }, "r/t.lance", nil,
			repaired{5, "incomplete", "higher_version_trace", nil, nil}},
		{"the transaction file is gone", gone(lancetest.Missing("_transactions/" + b.TransactionName())), "r/t.lance", nil, repaired{0, "clean", "", nil, nil}},
		{"one of two files of a fragment is gone", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", parts, lancetest.Missing("data/p2.lance"))
		}, "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		// Whether a shard is sealed is asked of tables whose generations were looked at,
		// and this version looks at none.
		{"a table with a write-ahead log", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().MemWAL(), lancetest.Missing(one))
			lancetest.Shard{Name: "a", Version: 1, Epoch: 1, Status: 1}.WriteTo(func(name string, data []byte) { s.Put(t, "r/t.lance/"+name, data) })
		}, "r/t.lance", nil, repaired{5, "incomplete", "not_checked:wal_generation", []string{"incomplete_look"}, nil}},
		{"more than one table at the place", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			put(t, s, "r/u.lance", b)
		}, "r", nil, repaired{2, "", "", nil, nil}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.S3(t)
			c.setup(t, s)
			before := manifests(t, s, "r/t.lance")
			s.ClearLog()
			if c.name == denied {
				s.DenyAll()
			}
			uri, foreign := strings.CutPrefix(c.uri, "!")
			if !foreign {
				uri = s.Bucket + "/" + c.uri
			}
			r := run(t, s.Env(), repairNow(append(c.args, "s3://"+uri)...)...).exit(c.want.exit)
			if c.want.exit == reconcile.ExitUsage {
				r.says(r.stderr, "2 targets are meant")
				return
			}
			got := outcome(r.pass())
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(repaired{})); d != "" {
				t.Errorf("(-want +got)\n%s%s", d, clip(r.stderr))
			}
			s.ClearRules()
			applied := slices.ContainsFunc(got.repairs, func(r string) bool { return strings.HasSuffix(r, " applied") })
			if after := manifests(t, s, "r/t.lance"); applied != (after == before+1) || !applied && after != before {
				t.Errorf("%d versions before, %d after", before, after)
			}
			for _, w := range s.Writes() {
				if w.Op == "DELETE" || !applied && !strings.HasSuffix(w.Key, ".reconcile-probe") {
					t.Errorf("it wrote: %v", w)
				}
			}
			if applied {
				if againExit(c.name) == reconcile.ExitClean {
					run(t, s.Env(), look("s3://"+uri)...).exit(reconcile.ExitClean)
				}
				again := outcome(run(t, s.Env(), repairNow(append(c.args[:0:0], "s3://"+uri)...)...).exit(againExit(c.name)).pass())
				if len(again.repairs) > 0 {
					t.Errorf("a second repair did something: %v", again.repairs)
				}
			}
		})
	}
}

// againExit is how the same repair ends when nothing is damaged any more.
func againExit(name string) reconcile.ExitCode {
	if strings.Contains(name, "that is accepted") {
		return reconcile.ExitRefused // the tag still names a version that is not there
	}
	return reconcile.ExitClean
}

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
