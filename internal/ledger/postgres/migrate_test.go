package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/ledgertest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/sql/migrations"
)

func migrator(t testing.TB, url string) *Migrator {
	t.Helper()
	m, err := NewMigrator(t.Context(), url, "test")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = m.Close() }) // nothing of it is needed any more
	return m
}

// dump is the schema as pg_dump writes it, comments and grants included.
func dump(t testing.TB, databaseURL string) string {
	t.Helper()
	bin, err := servertest.PostgresBinaries()
	if err != nil {
		t.Skipf("no pg_dump: %v", err)
	}
	cmd := exec.Command(filepath.Join(bin, "pg_dump"), "--schema-only", databaseURL)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v: %s", err, stderr.String())
	}
	// Newer ones write a line with a random word, against injection.
	lines := slices.DeleteFunc(strings.Split(string(out), "\n"), func(l string) bool { return strings.HasPrefix(l, `\restrict`) || strings.HasPrefix(l, `\unrestrict`) })
	return strings.Join(lines, "\n")
}

func TestUpDownUpGivesTheSameSchema(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	m := migrator(t, url)
	steps, err := migrations.Steps(migrations.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.Status(t.Context())
	if err != nil || len(st.Pending) != len(steps) || len(st.Applied) != 0 {
		t.Fatalf("before: %+v, %v", st, err)
	}
	if st, err = m.Up(t.Context()); err != nil || len(st.Applied) != len(steps) || !st.Applied[0].New || len(st.Pending)+len(st.Notices)+len(st.Unknown) != 0 {
		t.Fatalf("up: %+v, %v", st, err)
	}
	first := dump(t, url)
	if !strings.Contains(first, "CREATE TABLE reconcile.repairs") || !strings.Contains(first, "TO reconcile_ro") {
		t.Fatalf("the dump does not show the schema:\n%.2000s", first)
	}
	// Step by step back and forth, each step alone.
	for to := len(steps) - 1; to >= 0; to-- {
		if err := m.Down(t.Context(), to); err != nil {
			t.Fatalf("down to %d: %v", to, err)
		}
		if to > 0 {
			if st, err = m.Status(t.Context()); err != nil || len(st.Applied) != to || len(st.Pending) != len(steps)-to {
				t.Errorf("at %d: %+v, %v", to, st, err)
			}
		}
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatalf("up from %d: %v", to, err)
		}
		if d := cmp.Diff(first, dump(t, url)); d != "" {
			t.Errorf("after down to %d and up: %s", to, d)
		}
	}
	if err := m.Down(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if rest := dump(t, url); strings.Contains(rest, "reconcile.") {
		t.Errorf("left after all the way down: %s", rest)
	}
}

func TestMigratorsAtOnceApplyEachStepOnce(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	const n = 4
	errs := make([]error, n)
	applied := make([]int, n)
	var wg sync.WaitGroup
	for i := range n {
		m := migrator(t, url)
		wg.Go(func() {
			st, err := m.Up(t.Context())
			errs[i] = err
			for _, a := range st.Applied {
				if a.New {
					applied[i]++
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, k := range applied {
		sum += k
	}
	if steps, _ := migrations.Steps(migrations.Postgres); sum != len(steps) {
		t.Errorf("%d steps were applied %d times", len(steps), sum)
	}
}

func TestASchemaOfAnotherProgramIsKnown(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	// A newer program added a step: the older one goes on.
	if err := execSQL(t.Context(), url, "INSERT INTO reconcile.schema_migrations VALUES (99, 'future', 'x', 'v9', now())"); err != nil {
		t.Fatal(err)
	}
	st, err := migrator(t, url).Up(t.Context())
	if err != nil || !slices.Equal(st.Unknown, []string{"099_future"}) {
		t.Errorf("%+v, %v", st, err)
	}
	openURL(t, url)
	// A step is missing.
	if err := execSQL(t.Context(), url, "DELETE FROM reconcile.schema_migrations WHERE version > 3"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), url); !errors.Is(err, ledger.ErrNotMigrated) || !strings.Contains(err.Error(), "004_views and on are missing") {
		t.Errorf("a step is missing: %v", err)
	}
	// A step was applied with another text.
	if err := execSQL(t.Context(), url, "UPDATE reconcile.schema_migrations SET checksum = 'other' WHERE version = 2"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), url); err == nil || errors.Is(err, ledger.ErrNotMigrated) || !strings.Contains(err.Error(), "002_repairs") {
		t.Errorf("an edited step: %v", err)
	}
	if _, err := migrator(t, url).Up(t.Context()); err == nil {
		t.Error("migrated over an edited step")
	}
}

func TestAFailingStepLeavesNothing(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	// The third step finds its table there already.
	if err := execSQL(t.Context(), url, "CREATE SCHEMA reconcile; CREATE TABLE reconcile.task_failures (x int)"); err != nil {
		t.Fatal(err)
	}
	m := migrator(t, url)
	if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "003_intake") {
		t.Errorf("up: %v", err)
	}
	if st, err := m.Status(t.Context()); err != nil || len(st.Applied) != 2 || len(st.Pending) < 2 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := execSQL(t.Context(), url, "DROP TABLE reconcile.task_failures"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Error(err)
	}
}

// as runs statements as a role, each alone, and returns their errors.
func as(t testing.TB, url, role string, statements ...string) []error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }() // the test is over
	if _, err := conn.Exec(t.Context(), "SET ROLE "+role); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(statements))
	for i, s := range statements {
		_, errs[i] = conn.Exec(t.Context(), s)
	}
	return errs
}

func relations(t testing.TB, url, kind string) (names []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }() // the test is over
	rows, err := conn.Query(t.Context(), "SELECT relname FROM pg_class WHERE relnamespace = 'reconcile'::regnamespace AND relkind = $1 ORDER BY relname", kind)
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWhoeverReadsReadsViewsAndNothingElse(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	ledgertest.Fill(t, openURL(t, url))
	views, tables := relations(t, url, "v"), relations(t, url, "r")
	if len(views) < 8 || len(tables) < 14 {
		t.Fatalf("views %v, tables %v", views, tables)
	}
	for _, v := range views {
		if errs := as(t, url, "reconcile_ro", "SELECT * FROM reconcile."+v, "DELETE FROM reconcile."+v, "INSERT INTO reconcile."+v+" DEFAULT VALUES"); errs[0] != nil || errs[1] == nil || errs[2] == nil {
			t.Errorf("view %s: %v", v, errs)
		}
		if errs := as(t, url, "reconcile_intake", "SELECT * FROM reconcile."+v); errs[0] == nil {
			t.Errorf("reconcile_intake reads %s", v)
		}
	}
	for _, table := range tables {
		for _, verb := range []string{"SELECT * FROM reconcile.%s", "DELETE FROM reconcile.%s", "TRUNCATE reconcile.%s", "DROP TABLE reconcile.%s CASCADE"} {
			for _, role := range []string{"reconcile_ro", "reconcile_intake"} {
				if errs := as(t, url, role, fmt.Sprintf(verb, table)); sqlState(errs[0]) != "42501" {
					t.Errorf("%s: %s: %v", role, fmt.Sprintf(verb, table), errs[0])
				}
			}
		}
	}
	if errs := as(t, url, "reconcile_ro", "INSERT INTO reconcile.task_failures (kind, target, error) VALUES ('k', 't', 'e')", "CREATE TABLE reconcile.x ()"); errs[0] == nil || errs[1] == nil {
		t.Errorf("reconcile_ro writes: %v", errs)
	}
}

func TestWhoeverHandsInInsertsAndNothingElse(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	l := openURL(t, url)
	const insert = "INSERT INTO reconcile.task_failures (kind, target, error) VALUES ('compact', 'x', 'Not found: data/1.lance')"
	if errs := as(t, url, "reconcile_intake", insert, insert); errs[0] != nil || errs[1] != nil {
		t.Fatalf("insert: %v", errs)
	}
	fs, err := l.PendingFailures(t.Context(), 0)
	if err != nil || len(fs) != 1 || fs[0].SeenCount != 2 {
		t.Errorf("pending %+v, %v", fs, err)
	}
	for i, err := range as(t, url, "reconcile_intake",
		insert+" RETURNING failure_id",
		"INSERT INTO reconcile.task_failures (kind, target, error, handled_at) VALUES ('k', 't', 'e', now())",
		"INSERT INTO reconcile.task_failures (kind, target, error, seen_count) VALUES ('k', 't', 'e', 99)",
		"INSERT INTO reconcile.task_failures (kind, target, error, failure_id) OVERRIDING SYSTEM VALUE VALUES ('k', 't', 'e', 1)",
		"UPDATE reconcile.task_failures SET handled_at = now()",
		"UPDATE reconcile.task_failures SET error = 'x'",
		"SELECT count(*) FROM reconcile.task_failures",
		"DELETE FROM reconcile.task_failures",
		"INSERT INTO reconcile.passes (pass_id) VALUES ('x')",
		"SELECT reconcile.take_in_failure()",
		"CREATE FUNCTION reconcile.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE TRIGGER t BEFORE INSERT ON reconcile.task_failures FOR EACH ROW EXECUTE FUNCTION reconcile.take_in_failure()",
	) {
		if err == nil {
			t.Errorf("statement %d was allowed", i+1)
		}
	}
}

// A user who may not create roles migrates all the same, is told, and gets the grants
// once an administrator made the roles. Roles are of the whole server, so it is one of
// its own.
func TestMigratingWithoutTheRightToCreateRoles(t *testing.T) {
	t.Parallel()
	s := servertest.NewPostgres(t)
	admin := s.URL("postgres")
	if err := execSQL(t.Context(), admin, "CREATE ROLE app LOGIN; CREATE DATABASE app"); err == nil {
		t.Fatal("both in one transaction?")
	}
	for _, sql := range []string{"CREATE ROLE app LOGIN", "CREATE DATABASE app"} {
		if err := execSQL(t.Context(), admin, sql); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody prepared the schema, and the user may create nothing else.
	if err := execSQL(t.Context(), s.URL("app"), "CREATE SCHEMA reconcile AUTHORIZATION app"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(s.URL("app"))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("app")
	m := migrator(t, u.String())
	st, err := m.Up(t.Context())
	if err != nil || len(st.Pending) != 0 {
		t.Fatalf("up: %+v, %v", st, err)
	}
	if len(st.Notices) != 2 || !strings.Contains(st.Notices[0], "reconcile_ro") || !strings.Contains(st.Notices[1], "reconcile_intake") {
		t.Errorf("notices %q", st.Notices)
	}
	ledgertest.Fill(t, openURL(t, u.String()))
	for _, role := range []string{"reconcile_ro", "reconcile_intake"} {
		if err := execSQL(t.Context(), admin, "CREATE ROLE "+role+" NOLOGIN"); err != nil {
			t.Fatal(err)
		}
	}
	if st, err = m.Up(t.Context()); err != nil || len(st.Notices) != 0 {
		t.Errorf("up again: %+v, %v", st, err)
	}
	if errs := as(t, s.URL("app"), "reconcile_ro", "SELECT * FROM reconcile.target_health"); errs[0] != nil {
		t.Error(errs[0])
	}
	if errs := as(t, s.URL("app"), "reconcile_intake", "INSERT INTO reconcile.task_failures (kind, target, error) VALUES ('k', 't', 'e')"); errs[0] != nil {
		t.Error(errs[0])
	}
}
