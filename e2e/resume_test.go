package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// A look at a large collection that was killed goes on where it stopped, and its
// totals are those of one look.
func TestALookThatWasKilledGoesOnWhereItStopped(t *testing.T) {
	long(t)
	t.Parallel()
	const n, gone = 45_000, 10
	dir := t.TempDir()
	root := filepath.Join(dir, "att")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	url, book := servertest.Postgres(t), servertest.Postgres(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(`CREATE TABLE blob (path text PRIMARY KEY, bytes bigint); INSERT INTO blob SELECT 'f' || lpad(i::text, 6, '0'), 3 FROM generate_series(0, %d) i`, n-1)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if i%(n/gone) == 7 {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("f%06d", i)), []byte("abc"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "reconcile.yaml")
	text := fmt.Sprintf(`database: %q
blobs:
  - name: att
    uri: %q
    references: {postgres: {url: "${SOURCE}", query: "SELECT path AS key, bytes AS size FROM blob"}}
verify: {confirm_after: 1s, pending_max_age: 0s, max_requests_per_second: 6000}
`, book, root)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"SOURCE=" + url}
	runIn(t, dir, env, "migrate", "up", "--config", config).exit(reconcile.ExitClean)
	args := []string{"run", "--config", config, "--output", "json"}
	p := startProcess(t, dir, env, args...)
	ledger, err := pgx.Connect(t.Context(), book)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close(t.Context())
	var looked int64
	for begun := time.Now(); looked < 15_000; time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("no checkpoint: %s", clip(p.stderr.String()))
		}
		_ = ledger.QueryRow(t.Context(), "SELECT references_found FROM reconcile.look_checkpoints").Scan(&looked) // no row yet
	}
	p.signal(syscall.SIGKILL)
	<-p.done
	r := runIn(t, dir, env, args...)
	d := r.exit(reconcile.ExitDivergence).pass()
	verdicts := d.Totals["verdicts"].(map[string]any)
	if d.Coverage.References != n || d.Coverage.Checked != n || verdicts["present"].(float64) != n-gone || verdicts["missing"].(float64) != gone || len(d.Findings) != gone {
		t.Errorf("references %d, checked %d, verdicts %v, findings %d", d.Coverage.References, d.Coverage.Checked, verdicts, len(d.Findings))
	}
	heads := d.Totals["requests"].(map[string]any)["head"].(float64)
	if heads > float64(n-looked)+1000 {
		t.Errorf("%v HEADs after %d were looked at: it began anew", heads, looked)
	}
	if strings.Contains(r.stdout+r.stderr, "postgres://") {
		t.Error("the source's address is shown")
	}
	// The next look begins anew.
	if d := runIn(t, dir, env, args...).exit(reconcile.ExitDivergence).pass(); d.Totals["requests"].(map[string]any)["head"].(float64) < n {
		t.Errorf("the next pass looks at %v", d.Totals["requests"])
	}
}
