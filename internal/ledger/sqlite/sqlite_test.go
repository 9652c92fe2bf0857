package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/ledgertest"
)

func openFile(t testing.TB, file string) ledger.Ledger {
	t.Helper()
	l, err := Open(t.Context(), file, "test")
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

func harness(t testing.TB) ledgertest.Harness {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger.db")
	openFile(t, file)
	raw, err := sql.Open("sqlite", source(file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() }) // nothing of it is needed any more
	exec := func(ctx context.Context, text string) error {
		_, err := raw.ExecContext(ctx, dialect.Replace(text))
		return err
	}
	return ledgertest.Harness{
		Open: func(t testing.TB) ledger.Ledger { return openFile(t, file) },
		SetClock: func(t testing.TB, offset time.Duration) {
			t.Helper()
			text := fmt.Sprintf("DROP VIEW clock; CREATE VIEW clock AS SELECT strftime('%%Y-%%m-%%dT%%H:%%M:%%f000Z', 'now', '%+.3f seconds') AS now", offset.Seconds())
			if err := exec(t.Context(), "BEGIN IMMEDIATE; "+text+"; COMMIT"); err != nil {
				t.Fatalf("move clock: %v", err)
			}
		},
		Exec: exec,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, harness)
}

func TestRecordingManyFindingsTakesNoTransactionEach(t *testing.T) {
	n := 5_000
	if testing.Short() {
		n = 1_000
	}
	first, again, resolved := ledgertest.Record(t, openFile(t, filepath.Join(t.TempDir(), "ledger.db")), n)
	// One transaction each would take longer, on a quiet machine.
	if limit := time.Minute; first > limit || again > limit || resolved > limit {
		t.Errorf("%d findings took %v, again %v, resolved %v", n, first, again, resolved)
	}
}

func BenchmarkRecord1kCleanTargets(b *testing.B) {
	l := openFile(b, filepath.Join(b.TempDir(), "ledger.db"))
	for b.Loop() {
		ledgertest.RecordClean(b, l, 1000)
	}
}

func BenchmarkRecord100kFindings(b *testing.B) {
	for b.Loop() {
		first, again, resolved := ledgertest.Record(b, openFile(b, filepath.Join(b.TempDir(), "ledger.db")), 100_000)
		b.ReportMetric(first.Seconds(), "s-new")
		b.ReportMetric(again.Seconds(), "s-again")
		b.ReportMetric(resolved.Seconds(), "s-resolved")
	}
}
