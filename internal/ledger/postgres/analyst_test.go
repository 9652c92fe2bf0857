package postgres

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/ledger/ledgertest"
)

const queriesFile = "../../../docs/analyst-queries.sql"

// questions splits the file: the text after "-- Q:" and the statement.
func questions(t testing.TB) (texts, statements []string) {
	t.Helper()
	b, err := os.ReadFile(queriesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(b), "-- Q: ")[1:] {
		text, statement, _ := strings.Cut(part, "\n")
		texts, statements = append(texts, text), append(statements, strings.TrimSuffix(strings.TrimSpace(statement), ";"))
	}
	return texts, statements
}

func TestTheAnalystsQuestionsAreAnswered(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	ledgertest.Fill(t, openURL(t, url))
	texts, statements := questions(t)
	want := []struct{ columns, rows string }{
		{"store,verdict,objects,targets,acknowledged", "archive|size_mismatch|1|1|0; rocketkeep|missing|2|1|1"},
		{"store,target,rows_lost,repairs_of_unknown_size", "rocketkeep|x|100|0"},
		{"store,target,action,trigger,why,actor,read_version,committed_version,fragments,rows_dropped,verified", "rocketkeep|x|drop_fragment|failure|Not found: x.rollout.lance/data/3.lance|alice|7|8|2|100|true"},
		{"store,target,kind,consecutive_failures,last_error_class,last_error", "archive|y|check|3|server_error|boom y"},
		{"change,store,target,role,path,verdict,rows_at_risk", "new|rocketkeep|x|data|data/4.lance|missing|90; resolved|rocketkeep|x|data|data/1.lance|missing|90; resolved|rocketkeep|x|data|data/2.lance|missing|90"},
	}
	if len(statements) != len(want) {
		t.Fatalf("%d questions, want %d", len(statements), len(want))
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }() // the test is over
	if _, err := conn.Exec(t.Context(), "SET ROLE reconcile_ro"); err != nil {
		t.Fatal(err)
	}
	for i, s := range statements {
		s = strings.ReplaceAll(s, ":'since'", "'2000-01-01'")
		rows, err := conn.Query(t.Context(), "SELECT concat_ws('|', "+want[i].columns+") FROM ("+s+") q")
		var got []string
		if err == nil {
			got, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Errorf("%s %v", texts[i], err)
			continue
		}
		// concat_ws spells booleans t and f.
		if d := cmp.Diff(strings.ReplaceAll(want[i].rows, "|true", "|t"), strings.Join(got, "; ")); d != "" {
			t.Errorf("%s %s", texts[i], d)
		}
	}
}

func TestPsqlRunsTheAnalystsQuestions(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("no psql in PATH")
	}
	url := migrated(t)
	ledgertest.Fill(t, openURL(t, url))
	for since, want := range map[string]int{"2000-01-01": 8, "2999-01-01": 7, "": 8} {
		args := []string{"-X", "-v", "ON_ERROR_STOP=1", "-A", "-t", "-f", queriesFile, url}
		if since != "" {
			args = append([]string{"-v", "since=" + since}, args...)
		}
		out, err := exec.Command(psql, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("psql: %v: %s", err, out)
		}
		if lines := strings.Count(string(out), "\n"); lines != want {
			t.Errorf("since %q: %d rows, want %d:\n%s", since, lines, want, out)
		}
	}
}
