package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// documentedQueries are the statements of the documents' sql blocks, in order: over
// reports when parquet is set, else over the ledger.
func documentedQueries(t *testing.T, parquet bool) []string {
	t.Helper()
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range append([]string{"../README.md"}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "\n```sql\n")[1:] {
			block, _, _ = strings.Cut(block, "\n```")
			for _, statement := range strings.Split(block+"\n", ";\n") {
				if statement = strings.TrimSpace(statement); statement != "" && strings.Contains(statement, "read_parquet") == parquet {
					out = append(out, statement)
				}
			}
		}
	}
	return out
}

// threePasses is a site after two passes over everything and a repair of one table:
// t lost one data file (repaired by the last pass), u has one cut short, v is whole,
// and the newest manifest of w cannot be read. Their documents are returned.
func threePasses(t *testing.T, ledgerURL, reports string) (*site, []document) {
	t.Helper()
	x := newSite(t, ledgerURL, fmt.Sprintf("repair: {mode: off, quiet: 0s}\nreports: {uri: %q}\n", reports))
	b := fourFragments()
	put(t, x.s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	put(t, x.s, "r/u.lance", b, lancetest.Truncate(b.DataName(2, 0), 9))
	put(t, x.s, "r/v.lance", b)
	put(t, x.s, "r/w.lance", b, lancetest.Truncate(b.ManifestName(), 100))
	return x, []document{
		x.pass(reconcile.ExitIncomplete), x.pass(reconcile.ExitIncomplete),
		x.run("repair", "table:t", "--output", "json", "--request-timeout", "1s").exit(reconcile.ExitClean).pass(),
	}
}

// Passes are not counted again, and a pass over one table hides no other.
func TestDuckDBAnswersTheDocumentedQuestionsOverSeveralPasses(t *testing.T) {
	t.Parallel()
	modules := duckdb(t)
	reports := t.TempDir()
	_, passes := threePasses(t, "", reports)
	// The first two are of the day before, so that there are two days.
	last, err := filepath.Glob(filepath.Join(reports, "report=passes", "pass_date=*", "pass_id="+passes[2].PassID))
	if err != nil || len(last) != 1 {
		t.Fatalf("reports of the last pass: %v, %v", last, err)
	}
	today := strings.TrimPrefix(filepath.Base(filepath.Dir(last[0])), "pass_date=")
	day, err := time.Parse(time.DateOnly, today)
	if err != nil {
		t.Fatal(err)
	}
	yesterday := day.AddDate(0, 0, -1).Format(time.DateOnly)
	for _, p := range passes[:2] {
		old, err := filepath.Glob(filepath.Join(reports, "report=*", "pass_date=*", "pass_id="+p.PassID))
		if err != nil || len(old) != 5 {
			t.Fatalf("reports of pass %s: %v, %v", p.PassID, old, err)
		}
		for _, from := range old {
			to := filepath.Join(filepath.Dir(filepath.Dir(from)), "pass_date="+yesterday, filepath.Base(from))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	var lost string
	for _, f := range passes[0].Findings {
		if f.Target == "table:t" {
			lost = f.URL
		}
	}
	want := []struct{ columns, rows string }{
		{"verdict,role,objects", "size_mismatch data 1; unreadable manifest 1"},
		{"store,target,state,reason", "rk table:w unreadable bad_manifest"},
		{"day,targets,rows_at_risk", yesterday + " 3 20; " + today + " 2 10"},
		{"verdict,role,objects,targets", "size_mismatch data 1 1; unreadable manifest 1 1"},
		{"target,pass_date,state,findings,percent_checked", "table:t " + yesterday + " diverged 1 100; table:t " + today + " repaired 1 100; table:u " + yesterday + " diverged 1 100; table:w " + yesterday + " unreadable 1 100"},
		{"pass_date,target,verdict", yesterday + " table:t missing; " + yesterday + " table:t missing; " + today + " table:t missing"},
	}
	queries := documentedQueries(t, true)
	if len(queries) != len(want) {
		t.Fatalf("%d queries over reports are documented, and %d answers are known", len(queries), len(want))
	}
	for i, q := range queries {
		queries[i] = strings.NewReplacer("s3://ops/reconcile", reports, "BASE", reports, "s3://bucket/table.lance/data/x.lance", lost).Replace(q)
	}
	in, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "../report/testdata/duckdb.cjs")
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(modules, "node_modules"))
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("duckdb: %v\n%s", err, stderr.String())
	}
	var answers [][]map[string]any
	if err := json.Unmarshal(raw, &answers); err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		var rows []string
		for _, row := range answers[i] {
			var cells []string
			for _, c := range strings.Split(w.columns, ",") {
				cell := "null"
				if row[c] != nil {
					cell = fmt.Sprint(row[c])
				}
				cells = append(cells, cell)
			}
			rows = append(rows, strings.Join(cells, " "))
		}
		if d := cmp.Diff(w.rows, strings.Join(rows, "; ")); d != "" {
			t.Errorf("(-want +got)\n%s\n%s", d, documentedQueries(t, true)[i])
		}
	}
}

// Every documented statement over the ledger runs, and those of the README give the
// numbers of three passes of which the last is over one table.
func TestPostgresAnswersTheDocumentedQuestionsOverSeveralPasses(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	run(t, nil, "migrate", "up", "--database", url).exit(reconcile.ExitClean)
	x, _ := threePasses(t, url, "")
	x.pass(reconcile.ExitIncomplete)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }() // the test is over
	want := []struct{ columns, rows string }{
		{"store,verdict,objects,targets,acknowledged", "rk|size_mismatch|1|1|0; rk|unreadable|1|1|0"},
		{"store,target,rows_lost", "rk|table:t|10"},
		{"store,target,action,trigger,rows_dropped", "rk|table:t|drop_fragment|manual|10"},
		{"kind,target,consecutive_failures", "check|table:w|3"},
		{"change,target,verdict", "resolved|table:t|missing"},
		{"", ""}, // INSERT of a failure
		{"target,action,state", ""},
		{"target,open_findings,rows_at_risk", "table:u|1|10; table:w|1"},
	}
	statements := documentedQueries(t, false)
	if len(statements) != len(want) {
		t.Fatalf("%d statements over the ledger are documented, and %d answers are known", len(statements), len(want))
	}
	for i, w := range want {
		s := strings.ReplaceAll(statements[i], ":'since'", "'2000-01-01'")
		if w.columns == "" {
			if _, err := conn.Exec(t.Context(), s); err != nil {
				t.Errorf("%v\n%s", err, s)
			}
			continue
		}
		rows, err := conn.Query(t.Context(), "SELECT concat_ws('|', "+w.columns+") FROM ("+s+"\n) q")
		var got []string
		if err == nil {
			got, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Errorf("%v\n%s", err, s)
			continue
		}
		if d := cmp.Diff(w.rows, strings.Join(got, "; ")); d != "" {
			t.Errorf("(-want +got)\n%s\n%s", d, s)
		}
	}
}
