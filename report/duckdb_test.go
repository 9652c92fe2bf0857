package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

// duckdb runs statements and gives the rows of each. Node and @duckdb/node-api are
// found in $RECONCILE_TEST_NODE_MODULES, else in e2e/fixtures. Without them the
// test is skipped, and failed when $RECONCILE_TEST_REQUIRE lists "duckdb".
func duckdb(t *testing.T, sql ...string) [][]map[string]any {
	t.Helper()
	modules := ""
	for _, dir := range []string{os.Getenv("RECONCILE_TEST_NODE_MODULES"), "../e2e/fixtures/node_modules"} {
		if _, err := os.Stat(filepath.Join(dir, "@duckdb", "node-api")); dir != "" && err == nil {
			modules = dir
			break
		}
	}
	if _, err := exec.LookPath("node"); err != nil || modules == "" {
		const msg = "node or @duckdb/node-api not found; set RECONCILE_TEST_NODE_MODULES or run npm ci in e2e/fixtures"
		if slices.Contains(strings.Split(os.Getenv("RECONCILE_TEST_REQUIRE"), ","), "duckdb") {
			t.Fatal("DuckDB is required: " + msg)
		}
		t.Skip(msg)
	}
	abs, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(append([]string{"SET TimeZone = 'UTC'"}, sql...))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/duckdb.cjs")
	cmd.Env = append(os.Environ(), "NODE_PATH="+abs)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("duckdb: %v\n%s", err, stderr.String())
	}
	var answers [][]map[string]any
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatal(err)
	}
	return answers[1:]
}

// scan is a report in one line of SQL.
func scan(s *dirStore, kind string) string {
	return fmt.Sprintf("read_parquet('%s/reconcile/report=%s/*/*/*.parquet', hive_partitioning=1)", s.dir, kind)
}

func TestDuckDBReadsEachReportInOneLineAndCountsAsTheDocument(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	full := fullPass(t)
	writePass(t, newTestWriter(t, s, func(o *Options) { o.References = true }), full)
	// A second pass of the next day, clean: files of both are read together.
	const second = "0198c0de-7a11-7000-8000-000000000002"
	clean := cleanPass(t)
	clean.PassID = second
	writePass(t, newTestWriter(t, s, func(o *Options) { o.PassID, o.PassDate = second, start.Add(24*time.Hour) }), clean)

	var sql []string
	for _, kind := range Kinds() {
		sql = append(sql,
			"DESCRIBE SELECT * FROM "+scan(s, kind),
			"SELECT count(*)::INTEGER AS n, min(report) AS report, min(pass_date)::VARCHAR AS pass_date FROM "+scan(s, kind)+" WHERE pass_id = '"+passID+"'")
	}
	answers := duckdb(t, sql...)
	want := map[string]int{KindFindings: len(full.Findings), KindTargets: len(full.Targets), KindRepairs: len(full.Repairs), KindRepairFragments: 2, KindPasses: 1, KindReferences: 0}
	for i, kind := range Kinds() {
		var wantCols, gotCols []string
		for _, c := range Schema(kind) {
			wantCols = append(wantCols, c.Name+" "+c.Type)
		}
		for _, r := range answers[2*i] {
			gotCols = append(gotCols, fmt.Sprintf("%s %s", r["column_name"], r["column_type"]))
		}
		wantCols = append(wantCols, "pass_date DATE", "pass_id VARCHAR", "report VARCHAR")
		if d := cmp.Diff(wantCols, gotCols); d != "" {
			t.Errorf("columns of %s (-ours +DuckDB's):\n%s", kind, d)
		}
		row := answers[2*i+1][0]
		if row["n"] != float64(want[kind]) || want[kind] > 0 && (row["report"] != kind || row["pass_date"] != "2026-01-31") {
			t.Errorf("%s: DuckDB counts %v, want %d", kind, row, want[kind])
		}
	}
}

// Every value that DuckDB sees is the one of the JSON document: names, nulls,
// zeros, lists and times.
func TestDuckDBSeesTheValuesOfTheDocument(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	full := fullPass(t)
	writePass(t, newTestWriter(t, s), full)
	var doc map[string]any
	if err := json.Unmarshal(jsonOf(t, full), &doc); err != nil {
		t.Fatal(err)
	}
	answers := duckdb(t,
		"SELECT to_json(r)::VARCHAR AS j FROM (SELECT * EXCLUDE (schema_version, report, pass_date, pass_id) FROM "+scan(s, KindFindings)+") r",
		"SELECT to_json(r)::VARCHAR AS j FROM (SELECT * EXCLUDE (schema_version, report, pass_date, pass_id, not_checked, not_checked_counts, not_checked_reasons) FROM "+scan(s, KindTargets)+") r",
		"SELECT to_json(r)::VARCHAR AS j FROM (SELECT * EXCLUDE (schema_version, report, pass_date, pass_id, fragments) FROM "+scan(s, KindRepairs)+") r",
		"SELECT unnest(not_checked) AS role, unnest(not_checked_counts)::INTEGER AS count, unnest(not_checked_reasons) AS reason FROM "+scan(s, KindTargets),
		"SELECT fragments::VARCHAR AS f FROM "+scan(s, KindRepairs),
	)
	for i, member := range []string{"findings", "targets", "repairs"} {
		var got, want []map[string]any
		for _, r := range answers[i] {
			var m map[string]any
			if err := json.Unmarshal([]byte(r["j"].(string)), &m); err != nil {
				t.Fatal(err)
			}
			got = append(got, m)
		}
		for _, w := range doc[member].([]any) {
			m := w.(map[string]any)
			switch member {
			case "targets":
				delete(m, "not_checked")
			case "repairs":
				delete(m, "fragments")
			}
			for k, v := range m {
				if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v)); err == nil {
					m[k] = at.Format("2006-01-02 15:04:05.000000") + "+00"
				}
			}
			want = append(want, m)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-document +DuckDB):\n%s", member, d)
		}
	}
	if d := cmp.Diff([]map[string]any{{"role": "blob_sidecar", "count": 12., "reason": "not built"}, {"role": "wal_generation", "count": nil, "reason": "not built"}}, answers[3]); d != "" {
		t.Errorf("not_checked (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]map[string]any{{"f": "[0, 9]"}, {"f": "[]"}, {"f": "[]"}}, answers[4]); d != "" {
		t.Errorf("fragments of repairs (-want +got):\n%s", d)
	}
}

func TestDuckDBRunsTheExamplesOfTheDocs(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	p := fullPass(t)
	writePass(t, newTestWriter(t, s), p)
	var sql []string
	for _, q := range exampleQueries {
		sql = append(sql, strings.ReplaceAll(strings.ReplaceAll(q.sql, "BASE", s.dir+"/reconcile"), "s3://bucket/table.lance/data/x.lance", p.Findings[0].URL))
	}
	answers := duckdb(t, sql...)
	for i, want := range []int{4, 2, 1} { // verdict × role, targets that are not clean, one object
		if len(answers[i]) != want {
			t.Errorf("%s: %d rows, want %d: %v", exampleQueries[i].what, len(answers[i]), want, answers[i])
		}
	}
}

// One name that is not UTF-8 would make DuckDB refuse the whole file.
func TestDuckDBReadsNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	p := emptyPass()
	addTarget(t, p, "x\xff", "s3://b/x.lance", reconcile.StateDiverged).
		find(reconcile.Reference{Role: reconcile.RoleData, Path: "data/\xc3\x28.lance", PhysicalRows: -1, LiveRows: -1}, reconcile.Missing, func(f *reconcile.Finding) {
			f.ErrorCode, f.Scopes = ptr("\xfe"), []string{"tag:\xfd"}
		})
	writePass(t, newTestWriter(t, s), finish(p, reconcile.ExitDivergence))
	got := duckdb(t, "SELECT target, path, error_code, scopes[1] AS scope FROM "+scan(s, KindFindings), "SELECT target FROM "+scan(s, KindTargets))
	want := [][]map[string]any{{{"target": "x\uFFFD", "path": "data/\uFFFD(.lance", "error_code": "\uFFFD", "scope": "tag:\uFFFD"}}, {{"target": "x\uFFFD"}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestFilesAreLaidOutForQuickQueries(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	w := newTestWriter(t, s)
	streamFindings(t, w, rowGroupRows+1)
	p := emptyPass()
	p.FindingsTruncated = true
	if _, err := w.Upload(t.Context(), finish(p, reconcile.ExitDivergence)); err != nil {
		t.Fatal(err)
	}
	meta := "parquet_metadata('" + s.part(KindFindings) + "')"
	got := duckdb(t,
		"SELECT DISTINCT compression FROM "+meta,
		"SELECT DISTINCT row_group_num_rows::INTEGER AS n FROM "+meta+" ORDER BY n",
		"SELECT path_in_schema AS c FROM "+meta+" WHERE row_group_id = 0 AND bloom_filter_length > 0",
		"SELECT path_in_schema AS c FROM "+meta+" WHERE row_group_id = 0 AND encodings LIKE '%DICTIONARY%' AND path_in_schema IN ('verdict', 'role', 'store', 'target', 'reason', 'proposed_action') ORDER BY c",
		"SELECT count(*)::INTEGER AS n FROM "+meta+" WHERE path_in_schema IN ('url', 'fragment_id', 'first_observed_at') AND (stats_min_value IS NULL OR stats_max_value IS NULL)",
	)
	want := [][]map[string]any{
		{{"compression": "ZSTD"}},
		{{"n": 1.}, {"n": float64(rowGroupRows)}},
		{{"c": "url"}},
		{{"c": "proposed_action"}, {"c": "reason"}, {"c": "role"}, {"c": "store"}, {"c": "target"}, {"c": "verdict"}},
		{{"n": 0.}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
