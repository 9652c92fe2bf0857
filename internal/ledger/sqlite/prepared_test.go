package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// rawConn is one connection of a new file, and what it keeps.
func rawConn(t *testing.T) (*sql.Conn, func() []string) {
	t.Helper()
	db, err := open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, func() (texts []string) {
		t.Helper()
		err := c.Raw(func(raw any) error {
			for text, p := range raw.(*conn).kept {
				if p.busy {
					t.Errorf("%s is in use", text)
				}
				texts = append(texts, text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(texts)
		return texts
	}
}

func do(t *testing.T, c *sql.Conn, text string, args ...any) {
	t.Helper()
	if _, err := c.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func number(t *testing.T, c *sql.Conn, text string, args ...any) (n int) {
	t.Helper()
	if err := c.QueryRowContext(t.Context(), text, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

func TestStatementsAreKeptAndNoMoreThanFit(t *testing.T) {
	t.Parallel()
	c, kept := rawConn(t)
	before := kept()
	for i := range 3 {
		if got := number(t, c, "SELECT $1 + 1", i); got != i+1 {
			t.Errorf("%d + 1 = %d", i, got)
		}
	}
	if got := kept(); len(got) != len(before)+1 || !slices.Contains(got, "SELECT $1 + 1") {
		t.Errorf("kept %q", got)
	}
	do(t, c, "CREATE TABLE s1 (x); CREATE TABLE s2 (x)")
	if got := kept(); len(got) != len(before)+1 {
		t.Errorf("a script is kept: %q", got)
	}
	for i := range 3 * maxPrepared {
		number(t, c, fmt.Sprintf("SELECT %d", i))
		number(t, c, "SELECT $1 + 1", 1) // used all the time
	}
	if got := kept(); len(got) != maxPrepared || !slices.Contains(got, "SELECT $1 + 1") || slices.Contains(got, "SELECT 0") {
		t.Errorf("%d are kept, %q", len(got), got)
	}
}

func TestAStatementThatIsInUseRunsBesideItself(t *testing.T) {
	t.Parallel()
	c, kept := rawConn(t)
	do(t, c, "CREATE TABLE n (x)")
	do(t, c, "INSERT INTO n VALUES (1), (2), (3)")
	const text = "SELECT x FROM n WHERE x >= $1 ORDER BY x"
	var got []int
	outer, err := c.QueryContext(t.Context(), text, 2)
	if err != nil {
		t.Fatal(err)
	}
	for outer.Next() {
		var x int
		if err := outer.Scan(&x); err != nil {
			t.Fatal(err)
		}
		got = append(got, x, number(t, c, text, 1))
	}
	if err := errors.Join(outer.Err(), outer.Close()); err != nil || !slices.Equal(got, []int{2, 1, 3, 1}) {
		t.Errorf("%v, %v", got, err)
	}
	kept() // none is in use any more
}

func TestAKeptStatementOutlivesWhatHappensToIt(t *testing.T) {
	t.Parallel()
	c, _ := rawConn(t)
	do(t, c, "CREATE TABLE n (x INTEGER NOT NULL UNIQUE)")
	const insert, count = "INSERT INTO n VALUES ($1)", "SELECT count(*) FROM n"
	do(t, c, insert, 1)
	if _, err := c.ExecContext(t.Context(), insert, 1); err == nil {
		t.Error("taken twice")
	}
	if _, err := c.ExecContext(t.Context(), insert, nil); err == nil {
		t.Error("NULL was taken, or the value before it")
	}
	do(t, c, insert, 2)
	// It was interrupted.
	ctx, cancel := context.WithCancel(t.Context())
	rows, err := c.QueryContext(ctx, "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i FROM r WHERE i % $1 = 0", 3)
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	cancel()
	_ = rows.Close() // cancelled
	if _, err := c.QueryContext(ctx, count); err == nil {
		t.Error("a query ran after its context ended")
	}
	if n := number(t, c, count); n != 2 {
		t.Errorf("%d rows", n)
	}
	// The table changed, was gone, and came back.
	do(t, c, "ALTER TABLE n ADD COLUMN y")
	if _, err := c.ExecContext(t.Context(), insert, 3); err == nil {
		t.Error("a value is missing, and it was taken")
	}
	do(t, c, "DROP TABLE n")
	if err := c.QueryRowContext(t.Context(), count).Scan(new(int)); err == nil {
		t.Error("a table that is gone was counted")
	}
	do(t, c, "CREATE TABLE n (x)")
	do(t, c, insert, 7)
	if n := number(t, c, count); n != 1 {
		t.Errorf("%d rows", n)
	}
	// What a rollback takes back it takes from the statements too.
	tx, err := c.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const temp = "CREATE TEMPORARY TABLE IF NOT EXISTS staged (x)"
	if _, err := tx.ExecContext(t.Context(), temp); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	do(t, c, temp)
	do(t, c, "INSERT INTO temp.staged VALUES ($1)", 1)
	if n := number(t, c, "SELECT count(*) FROM temp.staged"); n != 1 {
		t.Errorf("%d staged", n)
	}
}

// Rows go in many at a time; none is lost at the ends.
func TestCopiesOfEachLength(t *testing.T) {
	t.Parallel()
	db, err := open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	for _, n := range []int{0, 1, copiedAtOnce - 1, copiedAtOnce, copiedAtOnce + 1, 3*copiedAtOnce + 5} {
		err := db.run(t.Context(), func(ctx context.Context, tr *transaction) error {
			rows := make([][]any, n)
			for i := range rows {
				rows[i] = []any{fmt.Sprint(i), i}
			}
			if err := tr.Stage(ctx, "staged", []string{"name text", "n bigint"}, rows); err != nil {
				return err
			}
			var count, sum int
			err := tr.tx.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(n), 0) FROM temp.staged WHERE name = CAST(n AS text)").Scan(&count, &sum)
			if count != n || sum != n*(n-1)/2 {
				t.Errorf("%d rows are %d, their sum %d", n, count, sum)
			}
			return err
		}, false)
		if err != nil {
			t.Fatal(err)
		}
	}
}
