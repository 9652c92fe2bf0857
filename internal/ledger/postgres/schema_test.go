package postgres

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/ledger/sqlite"
)

var update = flag.Bool("update", false, "rewrite docs/sql-schema.md")

// column is one column of a table or view.
type column struct {
	Relation, Name, Type string
	NotNull, Key         bool
	comment              string
}

// catalog reads everything of the schema that has a comment.
type catalog struct {
	relations []relation
	functions [][2]string
}

type relation struct {
	name, kind, comment  string
	columns              []column
	constraints, indexes []string
}

func query[T any](t testing.TB, conn *pgx.Conn, row pgx.RowToFunc[T], sql string, args ...any) []T {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	var out []T
	if err == nil {
		out, err = pgx.CollectRows(rows, row)
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func pair(row pgx.CollectableRow) (p [2]string, err error) {
	err = row.Scan(&p[0], &p[1])
	return p, err
}

func readCatalog(t testing.TB, url string) catalog {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }() // the test is over
	// Names without their schema, in constraints and the like.
	if _, err := conn.Exec(t.Context(), "SET search_path = reconcile"); err != nil {
		t.Fatal(err)
	}
	var c catalog
	c.relations = query(t, conn, func(row pgx.CollectableRow) (r relation, err error) {
		err = row.Scan(&r.name, &r.kind, &r.comment)
		return r, err
	}, `SELECT relname, relkind::text, coalesce(obj_description(oid, 'pg_class'), '') FROM pg_class
		WHERE relnamespace = 'reconcile'::regnamespace AND relkind IN ('r', 'v') ORDER BY relkind, relname`)
	for i := range c.relations {
		r := &c.relations[i]
		r.columns = query(t, conn, func(row pgx.CollectableRow) (c column, err error) {
			err = row.Scan(&c.Relation, &c.Name, &c.Type, &c.NotNull, &c.Key, &c.comment)
			return c, err
		}, `SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			coalesce((SELECT a.attnum = ANY (k.conkey) FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p'), false), coalesce(col_description(c.oid, a.attnum), '')
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
			WHERE c.relnamespace = 'reconcile'::regnamespace AND c.relname = $1 ORDER BY a.attnum`, r.name)
		r.constraints = query(t, conn, pgx.RowTo[string], `SELECT conname || ': ' || pg_get_constraintdef(oid, true) FROM pg_constraint
			WHERE conrelid = ('reconcile.' || $1)::regclass AND contype <> 'n' ORDER BY contype DESC, conname`, r.name)
		r.indexes = query(t, conn, pgx.RowTo[string], `SELECT indexdef FROM pg_indexes WHERE schemaname = 'reconcile' AND tablename = $1
			AND indexname NOT IN (SELECT conname FROM pg_constraint WHERE conrelid = ('reconcile.' || $1)::regclass) ORDER BY indexname`, r.name)
	}
	c.functions = query(t, conn, pair, `SELECT p.proname || '()', coalesce(obj_description(p.oid, 'pg_proc'), '') FROM pg_proc p WHERE p.pronamespace = 'reconcile'::regnamespace ORDER BY p.proname`)
	return c
}

func TestEverythingHasAComment(t *testing.T) {
	t.Parallel()
	c := readCatalog(t, migrated(t))
	for _, r := range c.relations {
		if r.comment == "" {
			t.Errorf("%s has no comment", r.name)
		}
		for _, col := range r.columns {
			if col.comment == "" {
				t.Errorf("%s.%s has no comment", r.name, col.Name)
			}
		}
	}
	for _, f := range c.functions {
		if f[1] == "" {
			t.Errorf("%s has no comment", f[0])
		}
	}
}

// document is docs/sql-schema.md.
func document(c catalog) string {
	var b strings.Builder
	b.WriteString(`# The SQL schema of the ledger

Made from a live database by ` + "`go test ./internal/ledger/postgres -run TestTheSchemaDocument -update`" + `; do not edit.

Everything is in the schema ` + "`reconcile`" + ` of Postgres. People read the views; their columns may grow and do not break.
The tables belong to the program, except that ` + "`task_failures`" + ` takes INSERTs of (kind, target, error) from everybody who has the role ` + "`reconcile_intake`" + `.
The role ` + "`reconcile_ro`" + ` reads the views and nothing else. NULL means unknown or does not apply, never 0. Times are the database's, in UTC.
A ledger in a file (SQLite) has the same tables, views and columns without the schema's name: times are RFC 3339 texts, lists JSON texts, booleans 0 and 1.

Questions that are often asked are answered in [analyst-queries.sql](analyst-queries.sql).
`)
	for _, kind := range []struct{ letter, title string }{{"v", "Views"}, {"r", "Tables"}} {
		fmt.Fprintf(&b, "\n## %s\n", kind.title)
		for _, r := range c.relations {
			if r.kind != kind.letter {
				continue
			}
			fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| column | type | |\n|---|---|---|\n", r.name, r.comment)
			for _, col := range r.columns {
				typ := col.Type
				if r.kind == "r" && !col.NotNull {
					typ += ", may be NULL"
				}
				fmt.Fprintf(&b, "| %s | %s | %s |\n", col.Name, typ, strings.ReplaceAll(col.comment, "|", `\|`))
			}
			for _, list := range [][]string{r.constraints, r.indexes} {
				if len(list) > 0 {
					b.WriteString("\n")
				}
				for _, l := range list {
					fmt.Fprintf(&b, "- `%s`\n", strings.Join(strings.Fields(l), " "))
				}
			}
		}
	}
	b.WriteString("\n## Functions\n\n")
	for _, f := range c.functions {
		fmt.Fprintf(&b, "- `%s`: %s\n", f[0], f[1])
	}
	return b.String()
}

func TestTheSchemaDocumentIsThatOfTheDatabase(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/sql-schema.md"
	got := document(readCatalog(t, migrated(t)))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("docs/sql-schema.md is not that of the database; run this test with -update\n%s", d)
	}
}

// sqliteType is what a type of Postgres is in a file.
var sqliteType = map[string]string{
	"text": "TEXT", "text[]": "TEXT", "jsonb": "TEXT", "timestamp with time zone": "TEXT",
	"bigint": "INTEGER", "boolean": "INTEGER", "bytea": "BLOB", "double precision": "REAL",
}

func TestBothSchemasHaveTheSameTablesAndColumns(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	l, err := sqlite.Open(t.Context(), file, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing of it is needed any more
	var want, views []column
	names := map[string][]string{}
	for _, r := range readCatalog(t, migrated(t)).relations {
		for _, c := range r.columns {
			c.comment = ""
			typ, known := sqliteType[c.Type]
			if !known {
				t.Errorf("%s.%s is a %s, which a file does not have", r.name, c.Name, c.Type)
			}
			c.Type = typ
			if r.kind == "v" { // a view's columns have no type in a file
				views = append(views, column{Relation: c.Relation, Name: c.Name})
			} else {
				want = append(want, c)
			}
		}
		for _, k := range r.constraints {
			if name, _, _ := strings.Cut(k, ": "); !generated.MatchString(name) {
				names[r.name] = append(names[r.name], name)
			}
		}
		for _, i := range r.indexes {
			names[r.name] = append(names[r.name], strings.Fields(strings.Replace(i, "UNIQUE ", "", 1))[2])
		}
	}
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	tables := sqliteColumns(t, db, "table")
	if d := cmp.Diff(want, tables, cmp.AllowUnexported(column{})); d != "" {
		t.Errorf("tables (- Postgres, + SQLite): %s", d)
	}
	var got []column
	for _, c := range sqliteColumns(t, db, "view") {
		if c.Relation != "clock" { // stands for the function reconcile.now()
			got = append(got, column{Relation: c.Relation, Name: c.Name})
		}
	}
	if d := cmp.Diff(views, got, cmp.AllowUnexported(column{})); d != "" {
		t.Errorf("views (- Postgres, + SQLite): %s", d)
	}
	// And the same named constraints and indexes.
	for table, list := range names {
		var text string
		if err := db.QueryRow("SELECT group_concat(sql, ';') FROM sqlite_schema WHERE tbl_name = ?", table).Scan(&text); err != nil {
			t.Fatal(err)
		}
		for _, name := range list {
			if !regexp.MustCompile(`(CONSTRAINT|INDEX) ` + name + `\b`).MatchString(text) {
				t.Errorf("a file has no %s on %s", name, table)
			}
		}
	}
}

// generated are names that Postgres gives to constraints without one.
var generated = regexp.MustCompile(`_(pkey|fkey|check\d*)$`)

func sqliteColumns(t testing.TB, db *sql.DB, kind string) (out []column) {
	t.Helper()
	rows, err := db.Query(`SELECT s.name, c.name, c.type, c."notnull", c.pk > 0 FROM sqlite_schema s, pragma_table_info(s.name) c
		WHERE s.type = ? AND s.name NOT LIKE 'sqlite_%' ORDER BY s.name, c.cid`, kind)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.Relation, &c.Name, &c.Type, &c.NotNull, &c.Key); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	return out
}
