package servertest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func sql(ctx context.Context, url, text string) (out string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, text).Scan(&out)
	return out, errors.Join(err, conn.Close(ctx))
}

// Not parallel: it sets the environment.
func TestPostgresMayBeAnotherServer(t *testing.T) {
	s := NewPostgres(t)
	t.Setenv("RECONCILE_TEST_POSTGRES", s.SocketURL("postgres"))
	one, two := Postgres(t), Postgres(t)
	if one == two || !strings.Contains(one, "host=") {
		t.Errorf("%s, %s", one, two)
	}
	if _, err := sql(t.Context(), one, "CREATE TABLE x (); SELECT 'made'"); err == nil {
		t.Error("two statements at once?")
	}
	if got, err := sql(t.Context(), one, "SELECT current_database()"); err != nil || !strings.Contains(one, "/"+got+"?") {
		t.Errorf("%s: %s, %v", one, got, err)
	}
	template := PostgresTemplate(t)
	if _, err := sql(t.Context(), template, "SELECT 'a'::text FROM (SELECT lo_from_bytea(4711, 'x')) q"); err != nil {
		t.Fatal(err)
	}
	if got, err := sql(t.Context(), PostgresCopy(t, template), "SELECT convert_from(lo_get(4711), 'UTF8')"); err != nil || got != "x" {
		t.Errorf("copied %q, %v", got, err)
	}
}

func TestPostgresStopsAndStarts(t *testing.T) {
	t.Parallel()
	s := NewPostgres(t)
	if _, err := sql(t.Context(), s.URL("postgres"), "SELECT lo_from_bytea(4711, 'kept')::text"); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	s.Stop()
	if _, err := sql(t.Context(), s.URL("postgres"), "SELECT 'x'"); err == nil || s.PID() != 0 {
		t.Errorf("it answers while it is stopped: %v", err)
	}
	s.Start(t)
	if got, err := sql(t.Context(), s.URL("postgres"), "SELECT convert_from(lo_get(4711), 'UTF8')"); err != nil || got != "kept" || s.PID() == pid {
		t.Errorf("after the start: %q, %v", got, err)
	}
	s.remove()
	if _, err := os.Stat(s.Socket); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}
