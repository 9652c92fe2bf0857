package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/ledgertest"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/sql/migrations"
)

// A process of this binary that records without end, for tests that kill it.
const childEnv = "RECONCILE_TEST_SQLITE_CHILD"

func TestMain(m *testing.M) {
	if file := os.Getenv(childEnv); file != "" {
		if err := recordForEver(file); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

func recordForEver(file string) error {
	ctx := context.Background()
	l, err := Open(ctx, file, "test")
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		pass := fmt.Sprintf("%d-%06d", os.Getpid(), i)
		if _, err := l.BeginPass(ctx, reconcile.Pass{PassID: pass}); err != nil {
			return err
		}
		fmt.Println("begin", pass)
		if _, err := l.RecordTarget(ctx, ledgertest.ManyFindings(pass, findingsOfChild)); err != nil {
			return err
		}
		fmt.Println("done", pass)
	}
}

const findingsOfChild = 1000

func TestAKilledProcessLeavesNoHalfRecordAndLosesNoneThatWasDone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	l := openFile(t, file)
	begun, done := map[string]bool{}, map[string]bool{}
	for i := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+file)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var once sync.Once
		for lines.Scan() {
			word, pass, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "begin":
				begun[pass] = true
				// Somewhere within the record that begins.
				once.Do(func() {
					time.AfterFunc(time.Duration(i)*40*time.Millisecond, func() { _ = cmd.Process.Kill() }) // already gone is as good
				})
			case "done":
				done[pass] = true
			default:
				t.Fatalf("child: %s", lines.Text())
			}
		}
		_ = cmd.Wait() // killed, as it should be
	}
	ps, err := l.ListPasses(t.Context(), ledger.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, p := range ps {
		switch p.FindingsSeen {
		case findingsOfChild:
			whole++
		case 0:
			if done[p.PassID] {
				t.Errorf("pass %s was recorded and is lost", p.PassID)
			}
		default:
			t.Errorf("pass %s: %d of %d", p.PassID, p.FindingsSeen, findingsOfChild)
		}
		delete(begun, p.PassID)
	}
	if len(begun) > 0 || whole < len(done) || whole == len(ps) {
		t.Errorf("%d passes, %d whole, %d told as done, begun and lost: %v", len(ps), whole, len(done), begun)
	}
	db, err := sql.Open("sqlite", source(file))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	var ok string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
		t.Errorf("integrity: %s, %v", ok, err)
	}
}

func TestTheFileIsForItsOwnerAndDurable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "reconcile")
	l := openFile(t, filepath.Join(dir, "ledger.db"))
	if _, err := l.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "ledger.db"): 0o600, filepath.Join(dir, "ledger.db-wal"): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	db, err := open(t.Context(), filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "60000"} {
		var got string
		if err := db.pool.QueryRow("PRAGMA " + name).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %s, %v, want %s", name, got, err, want)
		}
	}
}

func TestOddFileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "what?.db", "50%.db", "%41.db", "#1.db", "ümlaut&x=1;.db", "file:x.db", "'q'\".db"} {
		dir := t.TempDir()
		l := openFile(t, filepath.Join(dir, name))
		if l.Location() != "sqlite:"+filepath.Join(dir, name) {
			t.Errorf("location %s", l.Location())
		}
		found, err := os.ReadDir(dir)
		if err != nil || !slices.ContainsFunc(found, func(e os.DirEntry) bool { return e.Name() == name }) {
			t.Errorf("%q is %v, %v", name, found, err)
		}
		for _, e := range found {
			if !strings.HasPrefix(e.Name(), name) {
				t.Errorf("%q made %q", name, e.Name())
			}
		}
	}
}

func TestWhatIsNoLedgerIsUnreachable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"a text": text, "a folder": dir, "below a file": filepath.Join(text, "x.db")} {
		l, err := Open(t.Context(), file, "test")
		if err == nil {
			_ = l.Close() // what matters is that it opened
		}
		if !errors.Is(err, ledger.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), "", "test"); err == nil {
		t.Error("no name was opened")
	}
	if b, err := os.ReadFile(text); err != nil || !strings.HasPrefix(string(b), "this is not") {
		t.Errorf("the text was changed: %v", err)
	}
}

func TestManyOpenANewFileAtOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			l, err := Open(t.Context(), file, "test")
			if err == nil {
				err = l.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestANewFileThatAnotherIsMakingIsWaitedFor(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	other, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		l, err := Open(t.Context(), file, "test")
		if err == nil {
			err = l.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Close(), <-done); err != nil {
		t.Error(err)
	}
}

// schema is everything of a file's schema.
func schema(t testing.TB, db *database) (out []string) {
	t.Helper()
	rows, err := db.pool.Query("SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUpDownUpGivesTheSameSchema(t *testing.T) {
	t.Parallel()
	m, err := NewMigrator(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }() // nothing of it is needed any more
	steps, err := migrations.Steps(migrations.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.Up(t.Context())
	if err != nil || len(st.Applied) != len(steps) || len(st.Pending) != 0 || !st.Applied[0].New {
		t.Fatalf("up: %+v, %v", st, err)
	}
	first := schema(t, m.db)
	for to := len(steps) - 1; to >= 0; to-- {
		if err := m.Down(t.Context(), to); err != nil {
			t.Fatalf("down to %d: %v", to, err)
		}
		if left := schema(t, m.db); to == 0 && len(left) != 0 {
			t.Errorf("left after all the way down: %q", left)
		}
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatalf("up from %d: %v", to, err)
		}
		if d := cmp.Diff(first, schema(t, m.db)); d != "" {
			t.Errorf("after down to %d and up: %s", to, d)
		}
	}
	if st, err := m.Up(t.Context()); err != nil || st.Applied[0].New {
		t.Errorf("up again: %+v, %v", st, err)
	}
}

func TestTheViewsAnswer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	ledgertest.Fill(t, openFile(t, file))
	db, err := sql.Open("sqlite", source(file))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	for view, want := range map[string]int{"open_findings": 3, "finding_history": 8, "repair_history": 2, "active_cooldowns": 1, "target_health": 2, "pass_summary": 2, "failure_history": 1} {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM " + view).Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d rows, %v, want %d", view, n, err, want)
		}
	}
}
