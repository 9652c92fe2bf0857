package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// handedIn is one row of `failures --output json`.
type handedIn struct {
	Kind      string  `json:"kind"`
	Target    *string `json:"target"`
	Error     string  `json:"error"`
	State     string  `json:"state"`
	SeenCount int     `json:"seen_count"`
	HandledAt *string `json:"handled_at"`
	Pass      *string `json:"handled_pass_id"`
	Repair    *string `json:"handled_repair_id"`
	Note      *string `json:"handled_note"`
	Hint      struct {
		Role   *string `json:"role"`
		Damage string  `json:"damage"`
		Target *string `json:"target"`
		Path   *string `json:"path"`
	} `json:"hint"`
}

func (x *site) handIn(kind, target, failure string) {
	x.t.Helper()
	args := []string{"failures", "add", "--kind", kind, "--error", failure}
	if target != "" {
		args = append(args, "--target", target)
	}
	x.run(args...).exit(reconcile.ExitClean)
}

func (x *site) failures(args ...string) []handedIn {
	x.t.Helper()
	r := x.run(append([]string{"failures", "--output", "json"}, args...)...).exit(reconcile.ExitClean)
	var out []handedIn
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		x.t.Fatalf("%v\n%s", err, r.stdout)
	}
	return out
}

// repairs are the rows of `repairs --output json`.
func (x *site) repairs() []map[string]any {
	x.t.Helper()
	r := x.run("repairs", "--output", "json").exit(reconcile.ExitClean)
	var out []map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		x.t.Fatalf("%v\n%s", err, r.stdout)
	}
	return out
}

// gone is what the library says of a data file of a table of the site.
func gone(table, path string) string {
	return fmt.Sprintf("Failed to get next batch from stream: lance error: LanceError(IO): Generic N/A error: Wrapped error: Not found: Wrapped error: Not found: r/%s/%s, /rustc/2d8144b7880597b6e6d3dfd63a9a9efae3f533d3/library/core/src/result.rs:1896:29", table, path)
}

// order is the order in which a pass first asked for something of each table.
func (x *site) order() []string {
	var out []string
	for _, r := range x.s.Requests() {
		table, below, ok := strings.Cut(strings.TrimPrefix(r.Key, "r/"), "/")
		if ok && below != "" && strings.HasSuffix(table, ".lance") && !slices.Contains(out, table) {
			out = append(out, table)
		}
	}
	return out
}

func TestAHandedInTargetComesFirstAndItsRepairTellsWhy(t *testing.T) {
	long(t)
	t.Parallel()
	for name, url := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, url(t), fullAtOnce)
			whole := fourFragments()
			const tables = 60
			for i := range tables {
				put(t, x.s, fmt.Sprintf("r/s%02d.rollout.lance", i), whole)
			}
			b := fourFragments()
			put(t, x.s, "r/zz.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
			put(t, x.s, "r/zy.generic.lance", b, lancetest.Missing(b.DataName(2, 0)))
			lost := gone("zz.rollout.lance", b.DataName(1, 0))
			x.handIn("compact", "zz", lost+" ?X-Amz-Signature=hunter2")
			x.handIn("scan", "rk/generic:zy", "LanceError(IO): Generic memory error: Invalid range 0..16781 for object of size 8390 bytes")
			x.handIn("scan", "somewhere-else", "connection reset by peer")
			open := x.failures()
			if len(open) != 3 || open[2].State != "open" || open[2].Hint.Damage != "missing" || text(open[2].Hint.Role) != "data" || text(open[2].Hint.Target) != "zz" || text(open[2].Hint.Path) != b.DataName(1, 0) {
				t.Fatalf("%+v", open)
			}
			x.s.ClearLog()
			r := x.run("run", "--output", "json", "--log-format", "json", "--log-level", "info").exit(reconcile.ExitClean)
			d := r.pass()
			for _, table := range []string{"zz.rollout.lance", "zy.generic.lance"} {
				if at := slices.Index(x.order(), table); at < 0 || at > tables/2 {
					t.Errorf("%s was asked for as number %d", table, at)
				}
			}
			if !strings.Contains(r.stderr, `"msg":"targets of handed-in failures come first"`) || !strings.Contains(r.stderr, `"names":["zz","generic:zy"]`) && !strings.Contains(r.stderr, `"names":["generic:zy","zz"]`) {
				t.Errorf("no word of the order in\n%s", clip(r.stderr))
			}
			byTarget := map[string]map[string]any{}
			for _, rep := range x.repairs() {
				byTarget[fmt.Sprint(rep["target"])] = rep
				if rep["trigger"] != "failure" || strings.Contains(fmt.Sprint(rep["trigger_error"]), "hunter2") {
					t.Errorf("trigger %v, %v", rep["trigger"], rep["trigger_error"])
				}
			}
			if got := fmt.Sprint(byTarget["zz"]["trigger_error"]); !strings.HasPrefix(got, lost) {
				t.Errorf("the trigger of zz: %s", got)
			}
			if len(d.Repairs) != 2 || d.Repairs[0]["trigger"] != "failure" || d.Repairs[0]["trigger_error"] == nil {
				t.Errorf("the document's repairs: %v", d.Repairs)
			}
			handled := x.failures("--state", "handled")
			if len(handled) != 2 {
				t.Fatalf("handled: %+v", handled)
			}
			for _, f := range handled {
				target := strings.TrimPrefix(text(f.Target), "rk/")
				if text(f.Repair) != byTarget[target]["repair_id"] || f.HandledAt == nil || text(f.Pass) != d.PassID || text(f.Note) != "repaired" {
					t.Errorf("handled: %+v, repairs %v", f, byTarget)
				}
			}
			if open := x.failures(); len(open) != 1 || text(open[0].Target) != "somewhere-else" {
				t.Errorf("left open: %+v", open)
			}
			// The same text again is news.
			x.handIn("compact", "zz", lost)
			if open := x.failures("--target", "zz"); len(open) != 1 || open[0].SeenCount != 1 {
				t.Errorf("failed anew: %+v", open)
			}
			x.pass(reconcile.ExitClean)
			if open := x.failures("--target", "zz"); len(open) != 0 {
				t.Errorf("still open after a clean look: %+v", open)
			}
		})
	}
}

func TestASchedulerHandsInByPlainSQL(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	run(t, nil, "migrate", "up", "--database", url).exit(reconcile.ExitClean)
	x := newSite(t, url, fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
	put(t, x.s, "r/u.rollout.lance", fourFragments())
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }() // the test is over
	if _, err := conn.Exec(t.Context(), "SET ROLE reconcile_intake"); err != nil {
		t.Fatal(err)
	}
	lost := gone("t.rollout.lance", b.DataName(1, 0))
	for range 2 { // the second is counted and does not fail
		if _, err := conn.Exec(t.Context(), "INSERT INTO reconcile.task_failures (kind, target, error) VALUES ($1, $2, $3)", "merge_wal", "t", lost); err != nil {
			t.Fatal(err)
		}
	}
	// Only the text names the target.
	if _, err := conn.Exec(t.Context(), "INSERT INTO reconcile.task_failures (kind, error) VALUES ($1, $2)", "index_id", lost+" again"); err != nil {
		t.Fatal(err)
	}
	open := x.failures("--target", "t")
	if len(open) != 2 || open[1].SeenCount != 2 || open[1].Kind != "merge_wal" || open[0].Target != nil || text(open[0].Hint.Target) != "t" {
		t.Fatalf("%+v", open)
	}
	d := x.pass(reconcile.ExitClean)
	if len(d.Repairs) != 1 || d.Repairs[0]["trigger"] != "failure" {
		t.Errorf("%v", d.Repairs)
	}
	if open := x.failures(); len(open) != 0 {
		t.Errorf("left open: %+v", open)
	}
	for _, f := range x.failures("--state", "all") {
		if text(f.Repair) != d.Repairs[0]["repair_id"] {
			t.Errorf("%+v", f)
		}
	}
}

func TestATextProvesNothing(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.rollout.lance", b)
	x.handIn("compact", "t", gone("t.rollout.lance", b.DataName(1, 0)))
	d := x.pass(reconcile.ExitClean)
	if len(d.Repairs) != 0 || manifests(t, x.s, "r/t.rollout.lance") != 1 {
		t.Errorf("a whole table was repaired: %v", d.Repairs)
	}
	fs := x.failures("--state", "handled")
	if len(fs) != 1 || fs[0].Repair != nil || text(fs[0].Note) != "checked clean" || text(fs[0].Pass) != d.PassID {
		t.Errorf("%+v", fs)
	}
	// A text that names no damage asks for nothing; the look finds what there is.
	put(t, x.s, "r/u.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
	x.handIn("compact", "u", "Retryable commit conflict for version 9: This Rewrite transaction was preempted by concurrent transaction Delete at version 9. Please retry.")
	d = x.pass(reconcile.ExitClean)
	if len(d.Repairs) != 1 || d.Repairs[0]["trigger"] != "schedule" || d.Repairs[0]["trigger_error"] != nil {
		t.Errorf("%v", d.Repairs)
	}
	if fs := x.failures("--target", "u", "--state", "handled"); len(fs) != 1 || text(fs[0].Repair) != d.Repairs[0]["repair_id"] {
		t.Errorf("%+v", fs)
	}
}

func TestAFailureStaysOpenWhileWhatItNamesIsDamaged(t *testing.T) {
	long(t)
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments().Delete(0, 2)
	put(t, x.s, "r/t.rollout.lance", b, lancetest.Missing(b.DeletionName(0), b.DataName(1, 0)))
	x.handIn("scan", "", gone("t.rollout.lance", b.DeletionName(0)))
	x.handIn("compact", "t", gone("t.rollout.lance", b.DataName(1, 0)))
	d := x.pass(reconcile.ExitDivergence) // the fragment is dropped, the deletion file is reported
	if got := outcome(d); !slices.Equal(got.repairs, []string{"drop_fragment applied"}) {
		t.Fatalf("%+v", got)
	}
	if d.Repairs[0]["trigger_error"] != gone("t.rollout.lance", b.DataName(1, 0)) {
		t.Errorf("the trigger is another text: %v", d.Repairs[0]["trigger_error"])
	}
	open := x.failures()
	if len(open) != 1 || open[0].Kind != "scan" {
		t.Fatalf("left open: %+v", open)
	}
	x.pass(reconcile.ExitDivergence)
	if open := x.failures(); len(open) != 1 {
		t.Errorf("left open: %+v", open)
	}
	x.s.Put(t, "r/t.rollout.lance/"+b.DeletionName(0), b.Objects()[b.DeletionName(0)])
	// A look by hand answers as well.
	x.run("check", "--output", "json").exit(reconcile.ExitClean)
	fs := x.failures("--state", "all")
	if len(fs) != 2 || slices.ContainsFunc(fs, func(f handedIn) bool { return f.State != "handled" }) {
		t.Errorf("%+v", fs)
	}
}

func TestANamedRepairTellsTheFailureToo(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
	x.handIn("compact", "t", gone("t.rollout.lance", b.DataName(1, 0)))
	plan := x.run("repair", "t", "--dry-run", "--output", "json").exit(reconcile.ExitDivergence).pass()
	if len(plan.Repairs) != 1 || plan.Repairs[0]["state"] != "planned" || plan.Repairs[0]["trigger"] != "failure" {
		t.Errorf("%v", plan.Repairs)
	}
	if open := x.failures(); len(open) != 1 {
		t.Fatalf("a dry run answered it: %+v", open)
	}
	d := x.run("repair", "t", "--output", "json").exit(reconcile.ExitClean).pass()
	if len(d.Repairs) != 1 || d.Repairs[0]["trigger"] != "failure" {
		t.Errorf("%v", d.Repairs)
	}
	if fs := x.failures("--state", "handled"); len(fs) != 1 || text(fs[0].Repair) != d.Repairs[0]["repair_id"] {
		t.Errorf("%+v", fs)
	}
}

func TestAFailureDoesNotEndACooldown(t *testing.T) {
	t.Parallel()
	x := newSite(t, "", fullAtOnce)
	b := fourFragments()
	put(t, x.s, "r/t.rollout.lance", b, lancetest.Missing(b.DataName(1, 0)))
	put(t, x.s, "r/u.rollout.lance", fourFragments())
	l := x.open()
	for range 3 {
		if _, err := l.Fail(t.Context(), ledger.DefaultCooldown(), ledger.Failure{Kind: ledger.KindCheck, Target: x.uri("t.rollout.lance"), Class: "unreadable", Text: "bad_manifest"}); err != nil {
			t.Fatal(err)
		}
	}
	x.handIn("compact", "t", gone("t.rollout.lance", b.DataName(1, 0)))
	d := x.pass(reconcile.ExitIncomplete)
	states := map[string]string{}
	for _, tg := range d.Targets {
		states[tg.Target] = tg.State
	}
	if diff := cmp.Diff(map[string]string{"t": "cooling_down", "u": "clean"}, states); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if open := x.failures(); len(open) != 1 {
		t.Errorf("%+v", open)
	}
}
