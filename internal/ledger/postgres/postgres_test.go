package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/ledgertest"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// template is a database with the schema; the others are copies of it.
var template struct {
	sync.Mutex
	url string
}

// migrated is the URL of a new database with the schema.
func migrated(t testing.TB) string {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if template.url == "" {
		// It must outlive the test that happens to be the first.
		template.url = makeTemplate(t)
	}
	return servertest.PostgresCopy(t, template.url)
}

func makeTemplate(t testing.TB) string {
	t.Helper()
	url := servertest.PostgresTemplate(t)
	m, err := NewMigrator(t.Context(), url, "test")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	_, err = m.Up(t.Context())
	if err := errors.Join(err, m.Close()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return url
}

func openURL(t testing.TB, url string) ledger.Ledger {
	t.Helper()
	l, err := Open(t.Context(), url)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// execSQL runs one statement on a connection of its own.
func execSQL(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func harness(t testing.TB) ledgertest.Harness {
	t.Helper()
	url := migrated(t)
	return ledgertest.Harness{
		Open: func(t testing.TB) ledger.Ledger { return openURL(t, url) },
		SetClock: func(t testing.TB, offset time.Duration) {
			t.Helper()
			sql := fmt.Sprintf("CREATE OR REPLACE FUNCTION reconcile.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() + interval '%d microseconds' $$", offset.Microseconds())
			if err := execSQL(t.Context(), url, sql); err != nil {
				t.Fatalf("move clock: %v", err)
			}
		},
		Exec: func(ctx context.Context, sql string) error { return execSQL(ctx, url, sql) },
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, harness)
}
