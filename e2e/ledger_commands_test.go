package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// planned makes a plan for the site's one table and gives its file.
func (x *site) plan(args ...string) string {
	x.t.Helper()
	file := filepath.Join(x.dir, "plan.json")
	x.run(append([]string{"plan", "-o", file}, args...)...).exit(reconcile.ExitDivergence)
	return file
}

func (x *site) apply(file string, want reconcile.ExitCode, args ...string) document {
	x.t.Helper()
	return x.run(append([]string{"apply", file, "--output", "json"}, args...)...).exit(want).pass()
}

func TestApplyCarriesOutThePlanAndNothingElse(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "")
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	put(t, x.s, "r/u.lance", b, lancetest.Missing(b.DataName(2, 0)))
	file := x.plan("--target", "table:t")
	// More is lost since: it is not in the plan.
	x.s.Remove(t, "r/t.lance/"+b.DataName(3, 0))
	d := x.apply(file, reconcile.ExitDivergence)
	if len(d.Targets) != 1 || d.Targets[0].Target != "table:t" || d.Targets[0].State != "diverged" || len(d.Repairs) != 1 || d.Totals["rows_dropped"] != 10.0 {
		t.Errorf("targets %+v, repairs %v", d.Targets, d.Repairs)
	}
	left := run(t, x.s.Env(), look("s3://"+x.s.Bucket+"/r/t.lance")...).exit(reconcile.ExitDivergence).pass()
	if got := left.brief(); len(got) != 1 || !strings.Contains(got[0], b.DataName(3, 0)) {
		t.Errorf("left: %v", got)
	}
}

func TestAnActionThatNoLongerHoldsIsRefusedAndTheOthersProceed(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "")
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	put(t, x.s, "r/u.lance", b, lancetest.Missing(b.DataName(2, 0)))
	file := x.plan()
	x.s.Put(t, "r/u.lance/"+b.DataName(2, 0), b.Objects()[b.DataName(2, 0)]) // it has returned
	d := x.apply(file, reconcile.ExitRefused)
	got := map[string]string{}
	for _, tg := range d.Targets {
		got[tg.Target] = tg.State + " " + text(tg.Reason)
	}
	if got["table:t"] != "repaired " || got["table:u"] != "refused plan_stale" {
		t.Errorf("%v", got)
	}
	if n := manifests(t, x.s, "r/u.lance"); n != 1 {
		t.Errorf("%d versions of the table that healed", n)
	}
	rs, err := x.open().ListRepairs(t.Context(), ledger.Filter{States: []string{ledger.StateRefused}})
	if err != nil || len(rs) != 1 || rs[0].Error == nil || !strings.HasPrefix(*rs[0].Error, "plan_stale") {
		t.Errorf("%+v, %v", rs, err)
	}
	// The same plan again: nothing of it holds any more.
	x.apply(file, reconcile.ExitRefused)
	if n := manifests(t, x.s, "r/t.lance"); n != 2 {
		t.Errorf("%d versions of the repaired table", n)
	}
}

func TestAPlannedFragmentThatChangedIsNotDropped(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "")
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	file := x.plan()
	next := fourFragments().Version(4).Delete(1, 2)
	put(t, x.s, "r/t.lance", next, lancetest.Missing(next.DataName(1, 0)))
	d := x.apply(file, reconcile.ExitRefused)
	if d.Targets[0].State != "refused" || text(d.Targets[0].Reason) != "plan_stale" {
		t.Errorf("%+v", d.Targets)
	}
}

func TestLimitsAreTheStricterOfPlanAndConfiguration(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "")
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)), lancetest.Missing(b.DataName(2, 0)))
	file := x.plan()
	d := x.apply(file, reconcile.ExitRefused, "--max-fragments", "1")
	if d.Targets[0].State != "refused" || text(d.Targets[0].Reason) != "over_limit" || manifests(t, x.s, "r/t.lance") != 1 {
		t.Errorf("%+v", d.Targets)
	}
	x.apply(file, reconcile.ExitClean, "--max-fragments", "2")
}

func TestAPlanThatIsAlteredIsNoPlan(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "")
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	file := x.plan()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	x.s.ClearLog()
	for name, text := range map[string][]byte{
		"another fragment": bytes.Replace(data, []byte(`"id": 1,`), []byte(`"id": 2,`), 1),
		"a blank more":     append(bytes.Clone(data), ' '),
		"half of it":       data[:len(data)/2],
		"another version":  bytes.Replace(data, []byte(`"plan_version": 1`), []byte(`"plan_version": 2`), 1),
	} {
		if bytes.Equal(text, data) {
			t.Fatalf("%s: nothing was altered", name)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		x.run("apply", file).exit(reconcile.ExitUsage)
	}
	if n := len(x.s.Requests()); n > 0 {
		t.Errorf("%d requests for plans that are none", n)
	}
}

func TestAnEmptyPlanIsCarriedOutByDoingNothing(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", "")
	put(t, x.s, "r/t.lance", fourFragments())
	file := filepath.Join(x.dir, "plan.json")
	x.run("plan", "-o", file).exit(reconcile.ExitClean)
	if d := x.apply(file, reconcile.ExitClean); len(d.Targets) != 0 || len(d.Repairs) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestTheLedgerIsReadByItsCommands(t *testing.T) {
	t.Parallel()
	for name, url := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, url(t), fullAtOnce)
			b := fourFragments()
			put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
			first := x.pass(reconcile.ExitDivergence, "--mode", "off")
			x.s.Remove(t, "r/t.lance/"+b.DataName(2, 0))
			second := x.pass(reconcile.ExitDivergence, "--mode", "off")
			third := x.pass(reconcile.ExitClean)

			list := func(want int, args ...string) []map[string]any {
				t.Helper()
				r := x.run(append(args, "--output", "json")...).exit(reconcile.ExitClean)
				var rows []map[string]any
				if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil || rows == nil || len(rows) != want {
					t.Errorf("%v: %d rows, want %d, %v\n%s", args, len(rows), want, err, clip(r.stdout))
				}
				return rows
			}
			list(0, "findings")
			list(2, "findings", "--state", "resolved")
			list(2, "findings", "--state", "all", "--target", "rk/table:*", "--since", "1h")
			list(0, "findings", "--state", "all", "--target", "other")
			list(0, "findings", "--state", "all", "--since", "2999-01-01")
			list(1, "repairs", "--state", "applied")
			list(0, "cooldowns")
			list(3, "passes")
			list(1, "passes", "--state", "repaired", "--limit", "5")
			if rows := list(1, "targets", "--state", "repaired"); len(rows) == 1 && rows[0]["target"] != "table:t" {
				t.Errorf("%v", rows)
			}
			diff := func(a, b string) map[string][]any {
				t.Helper()
				r := x.run("diff", a, b, "--output", "json").exit(reconcile.ExitClean)
				var doc map[string]json.RawMessage
				if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
					t.Fatal(err)
				}
				out := map[string][]any{}
				for _, k := range []string{"new", "persisting", "resolved", "not_looked_at"} {
					var l []any
					if err := json.Unmarshal(doc[k], &l); err != nil || l == nil {
						t.Errorf("%s: %v %s", k, err, doc[k])
					}
					out[k] = l
				}
				return out
			}
			if d := diff(first.PassID, second.PassID); len(d["new"]) != 1 || len(d["persisting"]) != 1 || len(d["resolved"]) != 0 {
				t.Errorf("%v", d)
			}
			if d := diff(third.PassID, second.PassID); len(d["new"]) != 0 {
				t.Errorf("the order of the words matters: %v", d)
			}
			for _, cmd := range [][]string{{"findings", "--state", "all"}, {"repairs"}, {"cooldowns"}, {"passes"}, {"targets"}, {"status"}, {"diff", first.PassID, second.PassID}, {"migrate", "status"}} {
				r := x.run(cmd...).exit(reconcile.ExitClean)
				if r.stdout == "" || r.stderr != "" {
					t.Errorf("%v: %q, %q", cmd, r.stdout, r.stderr)
				}
			}
			x.run("diff", "ffffffff", second.PassID).exit(reconcile.ExitUsage)
			x.run("diff", "0", second.PassID).exit(reconcile.ExitUsage) // three begin so
			x.run("ack", "0123456789ab", "--until", "2999-01-01", "--reason", "x").exit(reconcile.ExitUsage)
			x.run("findings", "--state", "lovely").exit(reconcile.ExitUsage)
			x.run("findings", "--since", "yesterday").exit(reconcile.ExitUsage)
		})
	}
}

func TestReadingALedgerThatIsNotThereMakesNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, cmd := range []string{"findings", "repairs", "cooldowns", "passes", "targets", "status"} {
		r := runIn(t, dir, nil, cmd, "--database", "sqlite:"+filepath.Join(dir, "none.db")).exit(reconcile.ExitFailed)
		r.says(r.stderr, "no ledger at")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files: %v, %v", left, err)
	}
}

// ignored is the case of a store that overwrites what it should not.
const ignored = "the condition of a create is ignored"

// unconditional is the way to the server through one that drops conditions, as some
// S3 servers do.
func unconditional(t *testing.T, s *servertest.Server) []string {
	t.Helper()
	to, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Del("If-None-Match")
		r.Out.Header.Del("If-Match")
	}})
	t.Cleanup(srv.Close)
	return []string{"AWS_ENDPOINT_URL=" + srv.URL, "AWS_ENDPOINT_URL_S3=" + srv.URL}
}

func TestAStoreThatIgnoresConditionsIsNeverCommittedTo(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	b := fourFragments()
	put(t, s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	r := run(t, append(s.Env(), unconditional(t, s)...), repairNow("s3://"+s.Bucket+"/r/t.lance")...).exit(reconcile.ExitRefused)
	if got := outcome(r.pass()); got.state != "refused" || got.reason != "no_conditional_put" || manifests(t, s, "r/t.lance") != 1 {
		t.Errorf("%+v", got)
	}
	r.says(r.stdout, "ignores If-None-Match")
}

func TestProbeTellsWhatAStoreCanDo(t *testing.T) {
	t.Parallel()
	b := fourFragments()
	for _, tt := range []struct {
		name, check, verdict string
		exit                 reconcile.ExitCode
		args                 []string
		rules                []servertest.Rule
	}{
		{"a good store", "conditional_create", "ok", 0, nil, nil},
		{"nothing may be written", "conditional_create", "skipped", 0, []string{"--read-only"}, nil},
		{ignored, "conditional_create", "failed", 5, nil, nil},
		{"403 for what is missing", "missing_key_head", "failed", 4, nil, []servertest.Rule{{Op: "HEAD", Key: ".reconcile-control-", Status: 403}}},
		{"an answer for what cannot be", "missing_key_get", "failed", 4, nil, []servertest.Rule{{Op: "GET", Key: ".reconcile-control-", Status: 200}}},
		{"no right to list", "list", "failed", 4, nil, []servertest.Rule{{Op: "LIST", Status: 403, Code: "AccessDenied"}}},
		{"a clock that is off", "clock", "warning", 0, nil, []servertest.Rule{{Op: "HEAD", Key: "r/t.lance/", Header: map[string]string{"Date": time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.S3(t)
			put(t, s, "r/t.lance", b)
			s.ClearLog()
			s.Add(tt.rules...)
			env := s.Env()
			if tt.name == ignored {
				env = append(env, unconditional(t, s)...)
			}
			r := run(t, env, append([]string{"probe", "s3://" + s.Bucket + "/r", "--output", "json", "--request-timeout", "2s"}, tt.args...)...).exit(tt.exit)
			var doc struct {
				Exit   struct{ Code int }
				Checks []struct{ Check, Verdict, Detail string }
			}
			if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || doc.Exit.Code != int(tt.exit) {
				t.Fatalf("%v\n%s", err, r.stdout)
			}
			found := false
			for _, c := range doc.Checks {
				if c.Check == tt.check {
					found = c.Verdict == tt.verdict && c.Detail != ""
				}
			}
			if !found {
				t.Errorf("%s is not %s in\n%s", tt.check, tt.verdict, r.stdout)
			}
			for _, w := range s.Writes() {
				if !strings.HasSuffix(w.Key, "r/.reconcile-probe") || len(tt.args) > 0 {
					t.Errorf("it wrote: %v", w)
				}
			}
		})
	}
	run(t, nil, "probe", filepath.Join(t.TempDir(), "none")).exit(reconcile.ExitFailed)
}

// A signal while the manifest is on its way: the write is awaited, read back and
// recorded, and nothing else begins.
func TestASignalInTheMiddleOfACommitEndsInAWholeRecord(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	for _, name := range []string{"t", "u"} {
		put(t, x.s, "r/"+name+".lance", b, lancetest.Missing(b.DataName(1, 0)))
	}
	x.s.ClearLog()
	x.s.Add(servertest.Rule{Op: "PUT", Key: "t.lance/_versions/*", Delay: 4 * time.Second})
	cmd := command(t.Context(), t, x.dir, x.s.Env(), "run", "--config", x.config, "--output", "json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := func() bool {
		for _, w := range x.s.Writes() {
			if strings.Contains(w.Key, "t.lance/_versions/") {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(time.Minute); !begun(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no manifest was sent\n%s", stderr.String())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	d := result{t: t, args: cmd.Args[1:], code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}.exit(reconcile.ExitTerminated).pass()
	if len(d.Repairs) != 1 || d.Repairs[0]["state"] != "applied" {
		t.Errorf("repairs %v", d.Repairs)
	}
	rs, err := x.open().ListRepairs(t.Context(), ledger.Filter{})
	if err != nil || len(rs) != 1 || rs[0].State != ledger.StateApplied || rs[0].CommittedVersion == nil || *rs[0].CommittedVersion != 4 {
		t.Errorf("%+v, %v", rs, err)
	}
	ps, err := x.open().ListPasses(t.Context(), ledger.Filter{})
	if err != nil || len(ps) != 1 || ps[0].ExitCode == nil || *ps[0].ExitCode != int64(reconcile.ExitTerminated) {
		t.Errorf("%+v, %v", ps, err)
	}
	if manifests(t, x.s, "r/t.lance") != 2 || manifests(t, x.s, "r/u.lance") != 1 {
		t.Error("more or less than the one version was made")
	}
	x.s.ClearRules()
	if got := x.pass(reconcile.ExitClean); got.Exit.Name != "repaired" {
		t.Errorf("the next pass: %+v", got.Exit)
	}
}

// A ledger that is lost after the effect: the record stands on stderr and in the
// document, and the next pass settles what is open.
func TestALedgerThatIsLostAfterTheEffectLosesNoRecord(t *testing.T) {
	t.Parallel()
	pg := servertest.NewPostgres(t)
	database := pg.URL("postgres")
	run(t, nil, "migrate", "up", "--database", database).exit(reconcile.ExitClean)
	x := newSite(t, database, fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	x.s.ClearLog()
	x.s.Add(servertest.Rule{Op: "PUT", Key: "t.lance/_versions/*", Delay: 3 * time.Second})
	done := make(chan result)
	go func() { done <- x.run("run", "--output", "json") }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		w := x.s.Writes()
		if len(w) > 0 && strings.Contains(w[len(w)-1].Key, "_versions/") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no manifest was sent")
		}
	}
	pg.Stop()
	r := (<-done).exit(reconcile.ExitCommitFailed)
	d := r.pass()
	if len(d.Repairs) != 1 || d.Repairs[0]["state"] != "applied" || d.Targets[0].State != "failed" || text(d.Targets[0].Reason) != "not_recorded" {
		t.Errorf("repairs %v, targets %+v", d.Repairs, d.Targets)
	}
	var record struct {
		Level  string
		Repair struct {
			RepairID         string `json:"repair_id"`
			CommittedVersion uint64 `json:"committed_version"`
			State            string `json:"state"`
			Manifest         struct{ Bytes []byte }
			Messages         map[string][]byte
		}
	}
	for line := range strings.Lines(r.stderr) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatal(err)
			}
		}
	}
	if record.Level != "WARN" || record.Repair.RepairID == "" || record.Repair.CommittedVersion != 4 || record.Repair.State != "applied" || len(record.Repair.Manifest.Bytes) == 0 || len(record.Repair.Messages) != 1 {
		t.Errorf("the record on stderr: %+v\n%s", record, clip(r.stderr))
	}
	pg.Start(t)
	x.s.ClearRules()
	// The lock of the pass is still there. Its lease runs out by itself, a minute later.
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), "UPDATE reconcile.locks SET lease_until = reconcile.now()"); err != nil {
		t.Fatal(err)
	}
	next := x.pass(reconcile.ExitClean)
	if len(next.Repairs) != 1 {
		rs, err := x.open().ListRepairs(t.Context(), ledger.Filter{})
		t.Fatalf("the next pass settles nothing; the ledger has %+v, %v", rs, err)
	}
	if next.Repairs[0]["repair_id"] != record.Repair.RepairID || next.Repairs[0]["state"] != "applied" {
		t.Errorf("the next pass settles %v", next.Repairs)
	}
	if manifests(t, x.s, "r/t.lance") != 2 {
		t.Error("more or less than the one version was made")
	}
}

func TestAnUndoPutsFragmentsBackWhoseFilesAreThereAgain(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	one := b.DataName(1, 0)
	put(t, x.s, "r/t.lance", b, lancetest.Missing(one))
	d := x.pass(reconcile.ExitClean)
	id := d.Repairs[0]["repair_id"].(string)
	undo := func(want reconcile.ExitCode, args ...string) map[string]any {
		t.Helper()
		r := x.run(append([]string{"undo", id, "--output", "json"}, args...)...).exit(want)
		var doc map[string]any
		if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
			t.Fatalf("%v\n%s", err, r.stderr)
		}
		return doc
	}
	if got := undo(reconcile.ExitRefused); got["state"] != "refused" || !strings.Contains(got["error"].(string), one+" is not there") {
		t.Errorf("while the file is gone: %v", got)
	}
	x.s.Put(t, "r/t.lance/"+one, b.Objects()[one][:50])
	if got := undo(reconcile.ExitRefused); got["state"] != "refused" {
		t.Errorf("while the file is short: %v", got)
	}
	x.s.Put(t, "r/t.lance/"+one, b.Objects()[one])
	if got := undo(reconcile.ExitClean, "--dry-run"); got["state"] != "planned" || manifests(t, x.s, "r/t.lance") != 2 {
		t.Errorf("a dry run: %v", got)
	}
	if got := undo(reconcile.ExitClean); got["state"] != "applied" || got["committed_version"] != 5.0 || got["source"] != "undo:"+id {
		t.Errorf("%v", got)
	}
	after := run(t, x.s.Env(), look("s3://"+x.s.Bucket+"/r")...).exit(reconcile.ExitClean).pass()
	if after.Targets[0].References != 5 || *after.Targets[0].Version != 5 {
		t.Errorf("%+v", after.Targets)
	}
	if got := undo(reconcile.ExitRefused); !strings.Contains(got["error"].(string), "is taken") && !strings.Contains(got["error"].(string), "append") {
		t.Errorf("twice: %v", got)
	}
	x.run("undo", "ffffffff").exit(reconcile.ExitUsage)
}
