package refs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/servertest"
)

// database is a new one, in which sql was run.
func database(t testing.TB, sql string) (databaseURL string, conn *pgx.Conn) {
	t.Helper()
	databaseURL = servertest.Postgres(t)
	conn, err := pgx.Connect(context.Background(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatal(err)
	}
	return databaseURL, conn
}

func mustPostgres(t testing.TB, databaseURL, query string, opts Options) Reader {
	t.Helper()
	r, err := Postgres(databaseURL, query, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const attachments = "CREATE TABLE attachments (key text, bytes numeric, sum text, id int);"

const fromAttachments = "SELECT key, bytes AS size, sum AS checksum, id AS record_id FROM attachments"

func TestPostgresRowsComeInTheOrderOfTheirBytes(t *testing.T) {
	t.Parallel()
	u, _ := database(t, attachments+`
		INSERT INTO attachments VALUES ('b', 5, '`+sum1+`', 1), ('B', 5.0, '', 2), ('é', 0, NULL, 3), ('a b%+', NULL, NULL, NULL), ('../x', -1, 'sha1:1', 5), ('😀', 1.5, NULL, 6),
		('q''"\`+"\n"+`', 9, NULL, 7), ('z`+"\uffff"+`', 1, NULL, 8)`)
	want := []string{"! bad size: key \"../x\": \"-1\" (partial)", "! unknown checksum: key \"../x\": \"sha1:1\" (partial)", "../x -1  5", "B 5  2", "a b%+ -1  ", "b 5 " + sum1 + " 1", "q'\"\\\n 9  7", "z\uffff 1  8", "é -1  3",
		"! bad size: key \"😀\": \"1.5\" (partial)", "😀 -1  6"}
	for _, batch := range []int{0, 1, 3} {
		r := mustPostgres(t, u, fromAttachments, Options{batch: batch})
		if d := cmp.Diff(want, resumes(t, r)); d != "" {
			t.Errorf("%d rows at once: %s", batch, d)
		}
		if since, err := r.NamedSince(t.Context()); err != nil || !since.IsZero() || !r.Resumable() || r.Close() != nil {
			t.Errorf("%v, %v", since, err)
		}
	}
	r := mustPostgres(t, u, fromAttachments, Options{})
	got, err := r.Confirm(t.Context(), []string{"b", "", "b", "q'\"\\\n", "no", "nul\x00", "bad\xff", "É"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]Record{"b": {Key: "b", Size: 5, Checksum: sum1, Record: "1"}, "q'\"\\\n": {Key: "q'\"\\\n", Size: 9, Record: "7"}}, got); d != "" {
		t.Error(d)
	}
}

func TestPostgresTellsNullAndDoubledKeys(t *testing.T) {
	t.Parallel()
	u, _ := database(t, attachments+`
		INSERT INTO attachments VALUES (NULL, 5, NULL, 77), ('', 5, NULL, 78), (NULL, 1, NULL, 79), (NULL, 1, NULL, 80),
		('a', 5, NULL, 1), ('a', NULL, '`+sum1+`', 2), ('a', 5, NULL, 3), ('b', 1, NULL, 4), ('c', 1, NULL, 5), ('c', 2, NULL, 6), ('c', 1, NULL, 7)`)
	want := []string{"a 5 " + sum1 + " 1", "b 1  4", "! conflicting records (3 rows): 3 rows have the key \"c\", with other sizes or checksums (partial)", "c -1  5",
		"! no key (4 rows): 3 null, 1 empty, of the records \"77\", \"78\", \"79\"", "! doubled key (2 rows): \"a\" (partial)"}
	for _, batch := range []int{0, 1, 2} {
		for _, lasts := range []time.Duration{0, time.Nanosecond} {
			r := mustPostgres(t, u, fromAttachments, Options{batch: batch, lasts: lasts})
			got := resumes(t, r)
			// Record ids of equal rows come in any order.
			if d := cmp.Diff(want[2:], got[2:]); d != "" && !strings.HasPrefix(got[3], "c -1 ") || len(got) != len(want) || !strings.HasPrefix(got[0], "a 5 "+sum1) {
				t.Errorf("%d rows at once: %s", batch, d)
			}
			lines(t.Context(), r, "")
			if d := cmp.Diff(Counts{Rows: 11, Records: 3, Doubled: 2, Contradicting: 2, Bad: 4}, counts(r)); d != "" {
				t.Errorf("%d rows at once: %s", batch, d)
			}
		}
	}
	got, err := mustPostgres(t, u, fromAttachments, Options{}).Confirm(t.Context(), []string{"a", "c"})
	if err != nil || got["a"].Size != 5 || got["a"].Checksum != sum1 || got["c"].Size != Unknown {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAQueryNeedsOnlyAKey(t *testing.T) {
	t.Parallel()
	u, _ := database(t, "CREATE DOMAIN name_of_blob AS varchar(50); CREATE TABLE b (key name_of_blob, n bigint); INSERT INTO b VALUES ('a', 1), ('b', 2)")
	for _, query := range []string{
		"SELECT key FROM b", "TABLE b", "SELECT n, key FROM b -- the table\nWHERE true", "(SELECT key FROM b)", "SELECT column1 AS key FROM (VALUES ('a'), ('b')) v", "WITH x AS (SELECT key FROM b) SELECT key FROM x /* c */ WHERE key <> ';'",
		"SELECT key FROM b WHERE key <> $$;)$$ AND key <> E'\\';' AND key <> ')'", "SELECT key, 'x' AS \"a;(\" FROM b ORDER BY n DESC LIMIT 5", "SELECT key, 1 AS insert, 2 AS delete FROM b",
	} {
		r := mustPostgres(t, u, query, Options{})
		if d := cmp.Diff([]string{"a -1  ", "b -1  "}, lines(t.Context(), r, "")); d != "" {
			t.Errorf("%s: %s", query, d)
		}
		if got, err := r.Confirm(t.Context(), []string{"a", "c"}); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", query, got, err)
		}
	}
}

func TestQueriesThatAreNoSubqueryAreRefused(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"": "empty", " \n-- nothing": "empty", "SELECT key FROM b;": "ends in a semicolon", "SELECT 1; DROP TABLE b": "holds a semicolon",
		"SELECT key FROM b -- all": "ends in a comment", "SELECT key FROM b /* all */ ": "ends in a comment", "SELECT key /* FROM b": "comment is not closed", "SELECT /* /* */ key FROM b": "comment is not closed",
		"SELECT key FROM b) q, (SELECT 1": "closes a parenthesis", "SELECT (key FROM b": "opens a parenthesis", "SELECT 'key FROM b": "quote is not closed", `SELECT "key FROM b`: "quote is not closed", "SELECT $a$ FROM $A$": "quote is not closed", "SELECT E'\\'": "quote is not closed",
		"WITH x AS (DELETE FROM b RETURNING key) SELECT key FROM x": "changes data (DELETE)", "WITH x AS MATERIALIZED ( INSERT INTO b VALUES (1) RETURNING key) SELECT key FROM x": "changes data (INSERT)",
		"with x as (update b set key = 1 returning key) select key from x": "changes data (UPDATE)", "DELETE FROM b RETURNING key": "changes data (DELETE)",
		"EXPLAIN SELECT key FROM b": "begins with", "CALL x()": "begins with", "COPY b TO STDOUT": "begins with",
	} {
		_, err := Postgres("postgres://u:hunter2@127.0.0.1/x", query, Options{})
		if !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestWhatTheServerRefusesEndsTheWalk(t *testing.T) {
	t.Parallel()
	u, conn := database(t, "CREATE TABLE b (key text, n int, u uuid, raw bytea, c char(5)); INSERT INTO b VALUES ('a', 1); CREATE SEQUENCE s; CREATE FUNCTION put() RETURNS text LANGUAGE sql AS $$ INSERT INTO b VALUES ('put'); SELECT 'x'::text $$")
	for query, want := range map[string]string{
		"SELECT n FROM b": `no column key; its columns are "n"`, "SELECT u AS key FROM b": "say (…)::text AS key", "SELECT raw AS key FROM b": "not of type text", "SELECT c AS key FROM b": "not of type text", "SELECT NULL::int AS key": "not of type text",
		"SELECT key, key FROM b": "yields 2 columns key", "SELECT key, n AS size, n AS size FROM b": "yields 2 columns size", "SELECT key FROM nowhere": `relation "nowhere" does not exist`,
		"SELECT put() AS key": "read-only transaction", "SELECT nextval('s')::text AS key": "read-only transaction", "SELECT key FROM b FOR UPDATE": "read-only transaction",
		"SELECT key, $1 AS size FROM b": "SQLSTATE", "SELECT (1/0)::text AS key FROM b": "division by zero", "SELECT key INTO x FROM b": "SQLSTATE", "SELECT set_config('transaction_read_only', 'off', true) AS key": "SQLSTATE",
	} {
		r := mustPostgres(t, u, query, Options{pause: time.Millisecond})
		got := lines(t.Context(), r, "")
		if len(got) != 1 || !strings.HasPrefix(got[0], "!! ") || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q", query, got)
		}
		if _, err := r.Confirm(t.Context(), []string{"a"}); err == nil {
			t.Errorf("%s: confirmed", query)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM b").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
}

func TestNoErrorHoldsTheURL(t *testing.T) {
	t.Parallel()
	real, err := url.Parse(servertest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	wrong := *real
	wrong.User = url.UserPassword("nobody", "hunter2")
	for _, u := range []string{
		"postgres://u:hunter2@127.0.0.1:1/secretdb", "postgres://u:hunter2@secrethost.invalid/secretdb", "postgres://u:hunter2@/secretdb?host=/secretdir", "postgres://u:hun%ter2@secrethost/x",
		"://hunter2@secrethost", "host=secrethost password=hunter2 port=x", wrong.String(),
	} {
		r, err := Postgres(u, "SELECT 'a' AS key", Options{pause: time.Millisecond})
		if err == nil {
			got := lines(t.Context(), r, "")
			if len(got) != 1 {
				t.Fatalf("%q", got)
			}
			err = errors.New(got[0])
			if _, cerr := r.Confirm(t.Context(), []string{"a"}); cerr == nil {
				t.Errorf("%s: confirmed", u)
			} else {
				err = errors.Join(err, cerr)
			}
		}
		for _, secret := range []string{"hunter2", "hun%ter2", "secrethost", "secretdb", "secretdir"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", u, err)
			}
		}
	}
}

// many is a table of so many keys.
func many(n int) string {
	return fmt.Sprintf("CREATE TABLE many AS SELECT 'k' || lpad(i::text, 9, '0') AS key, i AS size, 'r' || i AS record_id FROM generate_series(1, %d) i; CREATE INDEX ON many (key COLLATE \"C\"); ANALYZE many", n)
}

func TestALostConnectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	u, conn := database(t, many(100))
	r := mustPostgres(t, u, "SELECT * FROM many", Options{batch: 10, pause: time.Millisecond})
	n, killed := 0, 0
	for rec, err := range r.Records(t.Context(), "") {
		if err != nil {
			t.Fatalf("after %d rows: %v", n, err)
		}
		if n++; rec.Size != int64(n) {
			t.Fatalf("row %d is %+v", n, rec)
		}
		if n%15 == 0 {
			var gone int
			err := conn.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&gone)
			if err != nil {
				t.Fatal(err)
			}
			killed += gone
		}
	}
	if n != 100 || killed < 3 {
		t.Errorf("%d rows, %d connections ended", n, killed)
	}
	if d := cmp.Diff(Counts{Rows: 100, Records: 100}, counts(r)); d != "" {
		t.Error(d)
	}
}

func TestAServerThatIsGoneEndsTheWalkAfterSomeTries(t *testing.T) {
	t.Parallel()
	s := servertest.NewPostgres(t)
	r := mustPostgres(t, s.URL("postgres"), "SELECT i::text AS key FROM generate_series(1, 30) i", Options{batch: 5, pause: time.Millisecond})
	var got []string
	for rec, err := range r.Records(t.Context(), "") {
		got = append(got, line(rec, err))
		if len(got) == 7 {
			s.Stop()
		}
	}
	// What came with the batch is still yielded, the newest row of it excepted.
	if n := len(got); n < 8 || n > 12 || !strings.Contains(got[n-1], ErrUnreachable.Error()) {
		t.Errorf("%q", got)
	}
	if _, err := r.Confirm(t.Context(), []string{"1"}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("confirm: %v", err)
	}
	s.Start(t)
	if got := lines(t.Context(), r, "9"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// open tells how many transactions are open beside the one that asks.
func open(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestATransactionIsClosedWhenItIsOld(t *testing.T) {
	t.Parallel()
	u, conn := database(t, many(50))
	r := mustPostgres(t, u, "SELECT * FROM many", Options{batch: 20, lasts: 300 * time.Millisecond})
	var sizes []int64
	for rec, err := range r.Records(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		switch sizes = append(sizes, rec.Size); len(sizes) {
		case 2:
			if open(t, conn) != 1 {
				t.Errorf("no transaction is open")
			}
			time.Sleep(400 * time.Millisecond)
		case 4: // in the middle of the batch that the caller is slow with
			for wait := 0; open(t, conn) != 0; wait++ {
				if wait > 100 {
					t.Fatal("the transaction is still open")
				}
				time.Sleep(20 * time.Millisecond)
			}
			// What is inserted now is seen by the next transaction.
			if _, err := conn.Exec(t.Context(), "INSERT INTO many VALUES ('k000000040a', 1000, 'new'), ('k000000001a', 1001, 'too late')"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(sizes) != 51 || !slices.Contains(sizes, 1000) || slices.Contains(sizes, 1001) {
		t.Errorf("%d rows: %v", len(sizes), sizes)
	}
	if n := open(t, conn); n != 0 {
		t.Errorf("%d transactions are left open", n)
	}
}

func TestNothingIsLeftBehindWhenTheCallerHasEnough(t *testing.T) {
	t.Parallel()
	u, conn := database(t, many(50))
	r := mustPostgres(t, u, "SELECT * FROM many", Options{batch: 5})
	for range r.Records(t.Context(), "") {
		break
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	n := 0
	for _, err := range r.Records(ctx, "") {
		if n++; n == 3 {
			cancel(enough)
		}
		if n > 3 && !errors.Is(err, enough) {
			t.Errorf("%v", err)
		}
	}
	if n != 4 {
		t.Errorf("%d yields", n)
	}
	for wait := 0; open(t, conn) != 0; wait++ {
		if wait > 100 {
			t.Fatal("a transaction is still open")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestASlowQueryIsEndedByTheServer(t *testing.T) {
	t.Parallel()
	u, _ := database(t, "SELECT 1")
	sep := "?"
	if strings.Contains(u, "?") {
		sep = "&"
	}
	r := mustPostgres(t, u+sep+"statement_timeout=50ms", "SELECT 'a' AS key FROM pg_sleep(5)", Options{})
	got := lines(t.Context(), r, "")
	if len(got) != 1 || !strings.Contains(got[0], "57014") || !strings.Contains(got[0], "index") {
		t.Errorf("%q", got)
	}
}

func TestManyKeysAreConfirmedInChunks(t *testing.T) {
	t.Parallel()
	u, _ := database(t, many(2500))
	r := mustPostgres(t, u, "SELECT * FROM many", Options{})
	var keys []string
	for i := range 5000 {
		keys = append(keys, fmt.Sprintf("k%09d", i+1))
	}
	got, err := r.Confirm(t.Context(), keys)
	if err != nil || len(got) != 2500 || got[keys[2499]].Size != 2500 {
		t.Errorf("%d of them, %v", len(got), err)
	}
}

// FuzzQuery: whatever is in a query, taking it apart ends, and what is accepted stays
// one statement within its parentheses.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"SELECT key FROM b", "WITH x AS (SELECT 1) SELECT $a$;$a$ AS key /* /* */ */ FROM x", "SELECT E'\\'' || \"a\"\"b\" -- c\n", "SELECT (1", "select $1", "SELECT 'a;b'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkQuery(s) != nil {
			return
		}
		if checkQuery(s+";") == nil || checkQuery(s+" ) q; DROP TABLE b") == nil || checkQuery(s+" -- c") == nil || checkQuery("("+s) == nil {
			t.Errorf("%q hides what comes after it", s)
		}
	})
}
