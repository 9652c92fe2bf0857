package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/ledgertest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

func TestAServerThatStopsIsUnreachableUntilItIsBack(t *testing.T) {
	t.Parallel()
	s := servertest.NewPostgres(t)
	m, err := NewMigrator(t.Context(), s.URL("postgres"), "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := openURL(t, s.SocketURL("postgres")).Location(), fmt.Sprintf("postgres://postgres@%s:%d/postgres", url.PathEscape(s.Socket), s.Port); got != want {
		t.Errorf("location over a socket %s, want %s", got, want)
	}
	l := openURL(t, s.URL("postgres"))
	lease, err := l.Acquire(t.Context(), "s3://bucket/x", "alice", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	start := time.Now()
	for name, call := range map[string]func() error{
		"now":   func() error { _, err := l.Now(t.Context()); return err },
		"renew": func() error { _, err := l.Renew(t.Context(), lease, time.Minute); return err },
		"list":  func() error { _, err := l.ListPasses(t.Context(), ledger.Filter{}); return err },
		"begin": func() error { _, err := l.BeginPass(t.Context(), reconcile.Pass{PassID: "p"}); return err },
		"open":  func() error { _, err := Open(t.Context(), s.URL("postgres")); return err },
	} {
		if err := call(); !errors.Is(err, ledger.ErrUnreachable) {
			t.Errorf("%s while the server is down: %v", name, err)
		}
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %v to find that out", d)
	}
	s.Start(t)
	if _, err := l.Renew(t.Context(), lease, time.Minute); err != nil {
		t.Errorf("after the server is back: %v", err)
	}
}

func TestAServerThatHangsIsUnreachableWithinTheCallersTime(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	l := openURL(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }() // the test is over
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE reconcile.passes IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := l.BeginPass(ctx, reconcile.Pass{PassID: "p"}); !errors.Is(err, ledger.ErrUnreachable) {
		t.Errorf("no answer in time: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	if _, err := l.BeginPass(ctx, reconcile.Pass{PassID: "p"}); !errors.Is(err, context.Canceled) || errors.Is(err, ledger.ErrUnreachable) {
		t.Errorf("given up by the caller: %v", err)
	}
}

// Every few milliseconds somebody ends the connection that records.
func TestAConnectionThatIsKilledLeavesNoHalfRecord(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	reader := openURL(t, url)
	const n = 1000
	killed, whole := 0, 0
	for i := range 12 {
		l := openURL(t, url+"&application_name=victim")
		pass := fmt.Sprintf("pass-%02d", i)
		if _, err := l.BeginPass(t.Context(), reconcile.Pass{PassID: pass}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 12 * time.Millisecond)
			if err := execSQL(t.Context(), url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'"); err != nil {
				t.Error(err)
			}
		})
		_, err := l.RecordTarget(t.Context(), ledgertest.ManyFindings(pass, n))
		wg.Wait()
		if err != nil {
			killed++
			if !errors.Is(err, ledger.ErrUnreachable) {
				t.Errorf("killed: %v", err)
			}
		}
		ps, listErr := reader.ListPasses(t.Context(), ledger.Filter{Limit: 1})
		if listErr != nil || len(ps) != 1 || ps[0].PassID != pass {
			t.Fatalf("passes %+v, %v", ps, listErr)
		}
		switch seen := ps[0].FindingsSeen; {
		case seen == n:
			whole++
		case seen != 0 || err == nil:
			t.Errorf("%d of %d were left (%v)", seen, n, err)
		}
	}
	t.Logf("of 12 records %d were killed, %d are whole", killed, whole)
	if killed == 0 {
		t.Error("none was killed: nothing was tested")
	}
	open, err := reader.OpenFindings(t.Context(), ledgertest.ManyFindings("", 0).Target.URI)
	if err != nil || len(open) != 0 && len(open) != n {
		t.Errorf("%d findings are open, %v", len(open), err)
	}
}

func TestSecretsStandInNoError(t *testing.T) {
	t.Parallel()
	s := servertest.Postgres(t)
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	good := *u
	good.User = url.UserPassword("postgres", "hunter2secret")
	for name, text := range map[string]string{
		"a port that is none":          "postgres://postgres:hunter2secret@127.0.0.1:no/x",
		"a percent sign":               "postgres://postgres:hunter2secret%zz@127.0.0.1:1/x",
		"a slash in the password":      "postgres://postgres:hunter2secret/x@127.0.0.1:1/x",
		"an unknown option":            "postgres://postgres:hunter2secret@127.0.0.1:1/x?sslmode=maybe",
		"nobody there":                 "postgres://postgres:hunter2secret@127.0.0.1:1/x",
		"a password in the options":    "postgres://postgres@127.0.0.1:1/x?password=hunter2secret",
		"a host that is none":          "postgres://postgres:hunter2secret@nowhere.invalid/x",
		"a database that is not there": strings.Replace(good.String(), good.Path, "/nowhere", 1),
		"no schema":                    good.String(),
	} {
		_, err := Open(t.Context(), text)
		if err == nil {
			t.Errorf("%s: opened", name)
			continue
		}
		for e := range walk(err) {
			if strings.Contains(e.Error(), "hunter2") || strings.Contains(fmt.Sprintf("%v", e), "hunter2") {
				t.Errorf("%s: %v", name, e)
			}
		}
	}
	m, err := NewMigrator(t.Context(), good.String()+"&password=hunter2secret", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }() // nothing of it is needed any more
	if want := fmt.Sprintf("postgres://postgres@%s%s", u.Host, u.Path); m.Location() != want {
		t.Errorf("location %s, want %s", m.Location(), want)
	}
}

// walk yields an error and everything that it wraps.
func walk(err error) func(func(error) bool) {
	return func(yield func(error) bool) {
		var visit func(error) bool
		visit = func(e error) bool {
			if e == nil {
				return true
			}
			if !yield(e) {
				return false
			}
			switch w := e.(type) {
			case interface{ Unwrap() error }:
				return visit(w.Unwrap())
			case interface{ Unwrap() []error }:
				for _, one := range w.Unwrap() {
					if !visit(one) {
						return false
					}
				}
			}
			return true
		}
		visit(err)
	}
}

func TestSessionsAreSetUnlessTheURLSetsThem(t *testing.T) {
	t.Parallel()
	databaseURL := migrated(t)
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if err := execSQL(t.Context(), databaseURL, "ALTER DATABASE "+u.Path[1:]+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	db, err := open(t.Context(), databaseURL+"&statement_timeout=7s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	for name, want := range map[string]string{
		"statement_timeout": "7s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "1min", "client_connection_check_interval": "2s",
		"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3",
		"synchronous_commit": "on", "application_name": "reconcile", "TimeZone": "UTC",
	} {
		var got string
		if err := db.pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
	}
	s := servertest.Postgres(t)
	if _, err := Open(t.Context(), strings.Replace(s, "127.0.0.1:", "localhost:", 1)); !errors.Is(err, ledger.ErrNotMigrated) {
		t.Errorf("an empty database: %v", err)
	}
}

func TestRecordingManyFindingsTakesNoTransactionEach(t *testing.T) {
	n := 5_000
	if testing.Short() {
		n = 1_000
	}
	first, again, resolved := ledgertest.Record(t, openURL(t, migrated(t)), n)
	// One transaction each would take longer, on a quiet machine.
	if limit := time.Minute; first > limit || again > limit || resolved > limit {
		t.Errorf("%d findings took %v, again %v, resolved %v", n, first, again, resolved)
	}
}

func BenchmarkRecord1kCleanTargets(b *testing.B) {
	l := openURL(b, migrated(b))
	for b.Loop() {
		ledgertest.RecordClean(b, l, 1000)
	}
}

func BenchmarkRecord100kFindings(b *testing.B) {
	for b.Loop() {
		first, again, resolved := ledgertest.Record(b, openURL(b, migrated(b)), 100_000)
		b.ReportMetric(first.Seconds(), "s-new")
		b.ReportMetric(again.Seconds(), "s-again")
		b.ReportMetric(resolved.Seconds(), "s-resolved")
	}
}

func TestAHungHolderGivesItsRowsUp(t *testing.T) {
	t.Parallel()
	db, err := open(t.Context(), migrated(t)+"&idle_in_transaction_session_timeout=1s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// It takes a lock's row and then neither commits nor goes away.
	if _, _, err := begin(t.Context(), conn.Conn(), pgx.TxOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO reconcile.locks (target_uri, epoch, owner, acquired_at, renewed_at, lease_until) VALUES ('x', 1, 'hung', now(), now(), now())"); err != nil {
		t.Fatal(err)
	}
	l := openURL(t, db.pool.Config().ConnString())
	start := time.Now()
	lease, err := l.Acquire(t.Context(), "x", "alice", time.Minute)
	if err != nil || lease.Epoch != 1 {
		t.Errorf("after %v: %+v, %v", time.Since(start), lease, err)
	}
}
