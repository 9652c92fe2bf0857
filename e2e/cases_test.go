package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// What users of similar tools reported, replayed. Each name says what must hold.

// apache/iceberg#8994: a running writer's file was taken for lost.
func TestAFileThatArrivesBetweenTheLooksIsNoFinding(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	b := fourFragments()
	put(t, s, "r/t.lance", b)
	s.Add(servertest.Rule{Op: "HEAD", Key: b.DataName(2, 0), Count: 1, Status: 404})
	d := run(t, s.Env(), "check", "--output", "json", "--confirm-after", "1s", "s3://"+s.Bucket+"/r").exit(reconcile.ExitClean).pass()
	if len(d.Findings) != 0 || d.Totals["flapped"].(float64) != 1 {
		t.Errorf("findings %v, flapped %v", d.brief(), d.Totals["flapped"])
	}
	// Still absent, on a table this young: pending, and never in a plan.
	s.Remove(t, "r/t.lance/"+b.DataName(2, 0))
	plan := filepath.Join(t.TempDir(), "plan.json")
	run(t, s.Env(), "plan", "-o", plan, "--confirm-after", "1s", "s3://"+s.Bucket+"/r").exit(reconcile.ExitIncomplete)
	if n := planActions(t, plan); len(n) != 0 {
		t.Errorf("a young table's file is planned: %v", n)
	}
}

type planned struct {
	Target    string `json:"target"`
	Action    string `json:"action"`
	Fragments []struct {
		ID           uint64   `json:"id"`
		PhysicalRows *int64   `json:"physical_rows"`
		LiveRows     *int64   `json:"live_rows"`
		Files        []string `json:"files"`
	} `json:"fragments"`
	ReadVersion uint64 `json:"read_version"`
}

func planActions(t *testing.T, file string) []planned {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Actions []planned `json:"actions"`
	}
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return p.Actions
}

// apache/iceberg#7599: one vanished folder ended the whole job.
func TestOneTableOfThreeThatAnswersNothingLeavesTheOthersWhole(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	for _, n := range []string{"a", "b", "c"} {
		put(t, s, "r/"+n+".lance", fourFragments())
	}
	s.Add(servertest.Rule{Key: "r/b.lance/", Status: 404, Code: "NoSuchKey"})
	d := run(t, s.Env(), look("s3://"+s.Bucket+"/r")...).exit(reconcile.ExitIncomplete).pass()
	for _, tg := range d.Targets {
		if tg.Target != "table:b" && (tg.State != "clean" || tg.Checked != 5) {
			t.Errorf("%s: %s, checked %d", tg.Target, tg.State, tg.Checked)
		}
		if tg.Target == "table:b" && tg.State != "incomplete" {
			t.Errorf("%s: %s", tg.Target, tg.State)
		}
	}
	for _, f := range d.Findings {
		if f.Verdict == "missing" {
			t.Errorf("%s is called missing", f.URL)
		}
	}
}

// apache/paimon-rust#817, seaweedfs#1532: the wrong place looked like the loss of
// everything.
func TestAPlaceWithManifestsAndNoFilesIsTheWrongPlace(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	b := fourFragments()
	put(t, s, "moved/t.lance", b, lancetest.Missing("data/*"), lancetest.Missing("_transactions/*"))
	plan := filepath.Join(t.TempDir(), "plan.json")
	r := run(t, s.Env(), "plan", "-o", plan, "--min-manifest-age", "0s", "--confirm-after", "1s", "s3://"+s.Bucket+"/moved").exit(reconcile.ExitRefused)
	if a := planActions(t, plan); len(a) != 0 {
		t.Errorf("planned %v", a)
	}
	if !strings.Contains(r.stdout, "everything_missing") {
		t.Errorf("the text does not say that everything is missing:\n%s", r.stdout)
	}
}

// lance-format/lance#6694: the one lost file of three.
func TestAPlanDropsExactlyTheFragmentOfTheLostFile(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	b := lancetest.New().Version(3).WriterVersion("lance", "12.0.0").Fragment(1).Fragment(1).Fragment(1)
	put(t, s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	put(t, s, "r/healthy.lance", fourFragments())
	before := s.Keys(t, "")
	plan := filepath.Join(t.TempDir(), "plan.json")
	s.ClearLog()
	run(t, s.Env(), "plan", "-o", plan, "--min-manifest-age", "0s", "--confirm-after", "1s", "s3://"+s.Bucket+"/r").exit(reconcile.ExitDivergence)
	one := int64(1)
	acts := planActions(t, plan)
	want := []planned{{Target: "table:t", Action: "drop_fragment", ReadVersion: 3}}
	want[0].Fragments = append(want[0].Fragments, struct {
		ID           uint64   `json:"id"`
		PhysicalRows *int64   `json:"physical_rows"`
		LiveRows     *int64   `json:"live_rows"`
		Files        []string `json:"files"`
	}{1, &one, &one, []string{b.DataName(1, 0)}})
	if d := cmp.Diff(want, acts); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if w := s.Writes(); len(w) > 0 || !slices.Equal(before, s.Keys(t, "")) {
		t.Errorf("planning wrote: %v", w)
	}
}

// lance-format/lance#1538: a check that stopped at the first fault.
func TestEveryFaultIsReportedNotTheFirst(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	b := fourFragments().Delete(3, 1).Index("i", lancetest.IndexFile{Path: "page_data.lance"})
	put(t, s, "r/t.lance", b, lancetest.Truncate(b.DataName(0, 0), 20), lancetest.Missing(b.DataName(1, 0)), lancetest.Missing(b.DeletionName(3)), lancetest.Missing(b.IndexFolder(0)+"/page_data.lance"))
	d := run(t, s.Env(), look("s3://"+s.Bucket+"/r")...).exit(reconcile.ExitDivergence).pass()
	want := []string{"table:t data size_mismatch " + b.DataName(0, 0), "table:t data missing " + b.DataName(1, 0),
		"table:t deletion missing " + b.DeletionName(3), "table:t index missing " + b.IndexFolder(0) + "/page_data.lance"}
	if diff := cmp.Diff(want, d.brief()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// lance-format/lance#8097: files under other bases were left out.
func TestFilesOfACloneAreLookedAtWhereTheyLie(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	clone := lancetest.New().Base(1, "s3://"+s.Bucket+"/src.lance", true).Base(2, "s3://"+s.Bucket+"/flat", false).
		Fragment(10, lancetest.File{Path: "a.lance", BaseID: lancetest.ID(1)}).Fragment(10, lancetest.File{Path: "b.lance", BaseID: lancetest.ID(2)}).
		Fragment(10, lancetest.File{Path: "gone.lance", BaseID: lancetest.ID(1)}).Fragment(10)
	put(t, s, "r/t.lance", clone)
	for path, data := range clone.BaseObjects() {
		if !strings.HasSuffix(path, "gone.lance") {
			s.Put(t, strings.TrimPrefix(path, "s3://"+s.Bucket+"/"), data)
		}
	}
	d := run(t, s.Env(), look("s3://"+s.Bucket+"/r")...).exit(reconcile.ExitDivergence).pass()
	if len(d.Findings) != 1 || d.Findings[0].URL != "s3://"+s.Bucket+"/src.lance/data/gone.lance" {
		t.Errorf("findings %v", d.Findings)
	}
}

// juicedata/juicefs#949: a filtered check did less than a whole one.
func TestAFilteredLookFindsWhatAWholeOneFinds(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	b := fourFragments().Delete(1, 2)
	put(t, s, "r/a.lance", fourFragments())
	put(t, s, "r/b.lance", b, lancetest.Missing(b.DataName(1, 0)))
	uri := "s3://" + s.Bucket + "/r"
	whole := run(t, s.Env(), look(uri)...).exit(reconcile.ExitDivergence).pass()
	part := run(t, s.Env(), look("--target", "table:b", uri)...).exit(reconcile.ExitDivergence).pass()
	if d := cmp.Diff(whole.Findings, part.Findings); d != "" {
		t.Errorf("(-whole +filtered)\n%s", d)
	}
	if f := part.Findings[0]; f.RowsAtRisk == nil || *f.RowsAtRisk != 8 || !slices.Equal(f.Scopes, []string{"latest"}) {
		t.Errorf("finding %+v", f)
	}
	if len(part.Targets) != 1 {
		t.Errorf("%d targets", len(part.Targets))
	}
}

// A versioned bucket: a removed file has a version that can be brought back, a
// purged one has none.
func TestVersionsOfAMissingFileAreAskedFor(t *testing.T) {
	t.Parallel()
	s := servertest.Versitygw(t)
	s.EnableVersions(t)
	b := fourFragments()
	put(t, s, "r/t.lance", b)
	s.Remove(t, "r/t.lance/"+b.DataName(1, 0))
	d := run(t, s.Env(), look("s3://"+s.Bucket+"/r")...).exit(reconcile.ExitDivergence).pass()
	if diff := cmp.Diff([]string{"table:t data recoverable " + b.DataName(1, 0)}, d.brief()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if d.Findings[0].ProposedAction != "restore" {
		t.Errorf("action %s", d.Findings[0].ProposedAction)
	}
}

// DuckDB reads each report in one line, and its counts are the document's.
func TestDuckDBReadsTheReportsOfTheBinary(t *testing.T) {
	t.Parallel()
	modules := duckdb(t)
	dir := t.TempDir()
	b := fourFragments().Delete(3, 1)
	b.WriteDir(t, filepath.Join(dir, "r", "t.lance"), lancetest.Missing(b.DataName(1, 0)), lancetest.Truncate(b.DataName(2, 0), 9))
	fourFragments().WriteDir(t, filepath.Join(dir, "r", "u.lance"))
	reports := filepath.Join(dir, "reports")
	d := run(t, nil, look("--report", reports, filepath.Join(dir, "r"))...).exit(reconcile.ExitDivergence).pass()
	script := `
import { DuckDBInstance } from "@duckdb/node-api";
const c = await (await DuckDBInstance.create(":memory:")).connect();
const out = {};
for (const kind of ["findings", "targets", "passes", "repairs", "repair_fragments"]) {
  const r = await c.runAndReadAll("SELECT count(*)::INT AS n FROM read_parquet('" + process.argv[2] + "/report=" + kind + "/**/*.parquet', hive_partitioning=1)");
  out[kind] = r.getRowObjects()[0].n;
}
const v = await c.runAndReadAll("SELECT verdict, count(*)::INT AS n FROM read_parquet('" + process.argv[2] + "/report=findings/**/*.parquet', hive_partitioning=1) WHERE pass_id = '" + process.argv[3] + "' GROUP BY 1");
for (const row of v.getRowObjects()) out["verdict " + row.verdict] = row.n;
console.log(JSON.stringify(out));
`
	file := filepath.Join(modules, "reconcile-e2e-"+filepath.Base(filepath.Dir(dir))+".mjs")
	if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	raw, err := exec.CommandContext(t.Context(), "node", file, reports, d.PassID).CombinedOutput()
	if err != nil {
		t.Fatalf("duckdb: %v\n%s", err, raw)
	}
	var got map[string]int
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	want := map[string]int{"findings": len(d.Findings), "targets": len(d.Targets), "passes": 1, "repairs": 0, "repair_fragments": 0}
	for _, f := range d.Findings {
		want["verdict "+f.Verdict]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-json +duckdb)\n%s", diff)
	}
}

// duckdb is a folder below which node finds the package; without one the test is
// skipped or, when required, fails.
func duckdb(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("fixtures")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@duckdb", "node-api")); err != nil {
		if slices.Contains(strings.Split(os.Getenv("RECONCILE_TEST_REQUIRE"), ","), "duckdb") {
			t.Fatalf("duckdb is required: %v", err)
		}
		t.Skipf("no duckdb: %v", err)
	}
	return dir
}
