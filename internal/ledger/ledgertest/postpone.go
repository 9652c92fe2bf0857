package ledgertest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

func testPostpone(t *testing.T, h Harness) {
	b := open(t, h)
	const week = 7 * 24 * time.Hour
	seen, never := targetOf("seen"), targetOf("never")
	overdue := func(clock time.Duration) []string {
		t.Helper()
		h.SetClock(t, clock)
		late, err := b.Postpone(t.Context(), []ledger.Target{never, seen}, week)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, target := range []ledger.Target{never, seen} {
			if at, ok := late[target.URI]; ok {
				names = append(names, target.Name)
				if b.now().Sub(at) < week {
					t.Errorf("%s is overdue since %s", target.Name, at)
				}
			}
		}
		return names
	}
	pass := b.pass()
	if _, err := b.RecordTarget(t.Context(), ledger.TargetRecord{PassID: pass, Target: seen, Result: reconcile.TargetResult{Target: seen.Name, State: reconcile.StateClean}}); err != nil {
		t.Fatal(err)
	}
	if got := overdue(0); len(got) > 0 {
		t.Errorf("at once overdue: %v", got)
	}
	if got := overdue(6 * 24 * time.Hour); len(got) > 0 {
		t.Errorf("overdue after six days: %v", got)
	}
	if d := cmp.Diff([]string{never.Name, seen.Name}, overdue(8*24*time.Hour)); d != "" {
		t.Errorf("after eight days (-want +got)\n%s", d)
	}
	// Being put off is no look: the target stays first in line.
	due, _, err := b.Due(t.Context(), ledger.KindCheck, []string{seen.URI, never.URI})
	if err != nil || len(due) != 2 || due[0] != never.URI {
		t.Errorf("due %v, %v", due, err)
	}
	if _, err := b.RecordTarget(t.Context(), ledger.TargetRecord{PassID: b.pass(), Target: never, Result: reconcile.TargetResult{Target: never.Name, State: reconcile.StateDiverged}}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{seen.Name}, overdue(8*24*time.Hour)); d != "" {
		t.Errorf("after a look (-want +got)\n%s", d)
	}
}
