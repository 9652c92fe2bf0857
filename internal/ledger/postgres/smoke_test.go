package postgres

import (
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/servertest"
)

func TestSmoke(t *testing.T) {
	start := time.Now()
	url := servertest.Postgres(t)
	t.Log(time.Since(start))
	if _, err := Open(t.Context(), url); err == nil { t.Fatal("opened") } else { t.Log(err) }
	start = time.Now()
	m, err := NewMigrator(t.Context(), url, "test")
	if err != nil { t.Fatal(err) }
	st, err := m.Up(t.Context())
	t.Log(st, err, time.Since(start))
	if err != nil { t.Fatal(err) }
	start = time.Now()
	l, err := Open(t.Context(), url)
	if err != nil { t.Fatal(err) }
	t.Log(l.Location(), time.Since(start))
	t.Log(l.Now(t.Context()))
	l.Close(); m.Close()
}
