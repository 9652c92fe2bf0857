package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// The table of handed-in failures is made anew by a step: what it held goes along,
// and the same failure is still counted.
func TestHandedInFailuresOutliveAStep(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	l := openFile(t, file)
	ctx := t.Context()
	add := func(l ledger.Ledger, target string) {
		t.Helper()
		if err := l.AddFailure(ctx, "compact", target, "Not found: x"); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"handled", "open", "open"} {
		add(l, target)
	}
	fs, err := l.PendingFailures(ctx, 0)
	if err != nil || len(fs) != 2 {
		t.Fatalf("%+v, %v", fs, err)
	}
	if done, err := l.HandleFailure(ctx, fs[0], ledger.Handling{RepairID: "r", Note: "n"}); err != nil || !done {
		t.Fatalf("%v, %v", done, err)
	}
	before, err := l.ListFailures(ctx, ledger.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMigrator(ctx, file, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }() // nothing of it is needed any more
	if err := m.Down(ctx, 4); err != nil {
		t.Fatal(err)
	}
	again := openFile(t, file) // opening goes up
	after, err := again.ListFailures(ctx, ledger.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("after down and up: %s", d)
	}
	add(again, "open")
	add(again, "new")
	fs, err = again.PendingFailures(ctx, 0)
	if err != nil || len(fs) != 2 || fs[0].SeenCount != 3 || fs[1].ID <= fs[0].ID {
		t.Errorf("%+v, %v", fs, err)
	}
}
