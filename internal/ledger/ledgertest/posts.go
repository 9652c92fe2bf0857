package ledgertest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

const postAge = 24 * time.Hour

var (
	hookA = ledger.PostHook{Key: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", URL: "http://a/tasks"}
	hookB = ledger.PostHook{Key: "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", URL: "http://b/tasks"}
)

// dropped is a drop that was applied, and verified when asked for.
func (b *bundle) dropped(name string, version uint64, verify bool) ledger.Repair {
	b.t.Helper()
	lease := b.lock(name)
	r := b.intend(lease, drop(name))
	if err := b.Settle(b.t.Context(), lease, r.RepairID, applied(version)); err != nil {
		b.t.Fatal(err)
	}
	if verify {
		if err := b.Verified(b.t.Context(), lease, r.RepairID); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.Release(b.t.Context(), lease); err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bundle) openPosts(want int64, hooks ...ledger.PostHook) {
	b.t.Helper()
	if n, err := b.OpenPosts(b.t.Context(), hooks, []string{targetOf("x").URI, targetOf("y").URI}, postAge); err != nil || n != want {
		b.t.Errorf("opened %d, %v, want %d", n, err, want)
	}
}

// duePosts are those of x and y that are due and those that are given up.
func (b *bundle) duePosts(hooks ...ledger.PostHook) (due, givenUp []ledger.Post) {
	b.t.Helper()
	due, givenUp, err := b.DuePosts(b.t.Context(), hooks, []string{targetOf("x").URI, targetOf("y").URI}, postAge, 3)
	if err != nil {
		b.t.Fatal(err)
	}
	return due, givenUp
}

func (b *bundle) claim(p ledger.Post, want bool) {
	b.t.Helper()
	if ok, err := b.ClaimPost(b.t.Context(), p.Repair.RepairID, p.Hook, time.Minute); err != nil || ok != want {
		b.t.Errorf("claimed %v, %v, want %v", ok, err, want)
	}
}

func (b *bundle) settlePost(p ledger.Post, r ledger.PostResult) {
	b.t.Helper()
	if err := b.SettlePost(b.t.Context(), p.Repair.RepairID, p.Hook, r); err != nil {
		b.t.Fatal(err)
	}
}

func testPosts(t *testing.T, h Harness) {
	b := open(t, h)
	b.openPosts(0, hookA, hookB)
	verified := b.dropped("x", 8, true)
	b.dropped("y", 8, false) // whether it holds is not known
	b.dropped("z", 8, true)  // of no target that is asked for
	b.openPosts(2, hookA, hookB)
	b.openPosts(0, hookA, hookB)
	// A hook that is new says nothing of what was told already.
	b.openPosts(0, ledger.PostHook{Key: "cccccccccccccccccccccccccccccccc", URL: "http://c"})

	due, givenUp := b.duePosts(hookA, hookB)
	if len(due) != 2 || len(givenUp) != 0 {
		t.Fatalf("%d due, %d given up", len(due), len(givenUp))
	}
	p := due[0]
	if p.Hook != hookA.Key || p.URL != hookA.URL || p.State != ledger.PostOpen || p.Passes != 0 || p.Attempts != 0 || p.Status != nil || p.Error != nil || !near(p.CreatedAt, b.now()) {
		t.Errorf("opened as %+v", p)
	}
	want := verified
	want.State, want.CommittedVersion, want.RowsDropped, want.Messages = ledger.StateApplied, reconcile.Ptr(uint64(8)), reconcile.Ptr(int64(100)), nil
	want.Manifest = &ledger.Manifest{Name: want.Manifest.Name, Size: want.Manifest.Size, SHA256: want.Manifest.SHA256}
	if d := cmp.Diff(want, p.Repair, ignoreWritten, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("the repair that is told of: %s", d)
	}
	if only, _ := b.duePosts(hookB); len(only) != 1 || only[0].Hook != hookB.Key {
		t.Errorf("of one hook: %+v", only)
	}

	// Who claims it has it alone, until the claim runs out.
	b.claim(p, true)
	b.claim(p, false)
	if due, _ := b.duePosts(hookA, hookB); len(due) != 1 || due[0].Hook != hookB.Key {
		t.Errorf("due beside a claim: %+v", due)
	}
	h.SetClock(t, 2*time.Minute)
	b.claim(p, true)

	// A failure leaves it open; delivery ends it.
	b.settlePost(p, ledger.PostResult{State: ledger.PostOpen, Attempts: 4, Status: reconcile.Ptr(int64(503)), Error: reconcile.Ptr("503")})
	due, _ = b.duePosts(hookA)
	if len(due) != 1 || due[0].Attempts != 4 || due[0].Passes != 2 || due[0].Status == nil || *due[0].Status != 503 || *due[0].Error != "503" || due[0].LastAttemptAt == nil {
		t.Fatalf("after a failure: %+v", due)
	}
	b.claim(p, true)
	b.settlePost(p, ledger.PostResult{State: ledger.PostDelivered, URL: "http://a/tasks/x", Attempts: 1, Status: reconcile.Ptr(int64(202))})
	wantErr(t, "settle what is ended", b.SettlePost(t.Context(), p.Repair.RepairID, p.Hook, ledger.PostResult{State: ledger.PostOpen, Error: reconcile.Ptr("x")}), ledger.ErrNotFound)
	b.claim(p, false)
	b.openPosts(0, hookA, hookB)
	if due, _ := b.duePosts(hookA); len(due) != 0 {
		t.Errorf("due after delivery: %+v", due)
	}
	for what, r := range map[string]ledger.PostResult{
		"no reason": {State: ledger.PostOpen}, "no answer": {State: ledger.PostDelivered, Attempts: 1}, "no state": {State: "sent", Error: reconcile.Ptr("x")},
	} {
		if err := b.SettlePost(t.Context(), p.Repair.RepairID, hookB.Key, r); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func testPostsEnd(t *testing.T, h Harness) {
	b := open(t, h)
	b.dropped("x", 8, true)
	b.openPosts(2, hookA, hookB)
	due, _ := b.duePosts(hookA, hookB)
	failed := ledger.PostResult{State: ledger.PostOpen, Attempts: 1, Error: reconcile.Ptr("no answer")}
	for range 3 {
		b.claim(due[0], true)
		b.settlePost(due[0], failed)
	}
	if st, err := b.Status(t.Context()); err != nil || st.OpenPosts != 2 || st.FailedPosts != 0 {
		t.Errorf("status %+v, %v", st, err)
	}
	// After three passes; whatever hooks are asked for.
	left, up := b.duePosts()
	if len(left) != 0 || len(up) != 1 || up[0].Hook != hookA.Key || up[0].State != ledger.PostGivenUp || *up[0].Error != "no answer" || up[0].Repair.Target != "x" {
		t.Errorf("left %+v, given up %+v", left, up)
	}
	b.claim(due[0], false)
	// After a day; but not while somebody is at it.
	h.SetClock(t, postAge+time.Minute)
	b.claim(due[1], true)
	if _, up := b.duePosts(hookB); len(up) != 0 {
		t.Errorf("given up while it is sent: %+v", up)
	}
	b.settlePost(due[1], failed)
	if _, up := b.duePosts(hookB); len(up) != 1 || up[0].Hook != hookB.Key {
		t.Errorf("given up after a day: %+v", up)
	}
	if st, err := b.Status(t.Context()); err != nil || st.OpenPosts != 0 || st.FailedPosts != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
	h.SetClock(t, 9*postAge)
	if st, err := b.Status(t.Context()); err != nil || st.FailedPosts != 0 {
		t.Errorf("status after a week %+v, %v", st, err)
	}
	// One that no pass came to send gets its try, unless it is of a hook that is gone or
	// of long ago.
	h.SetClock(t, 0)
	b.dropped("y", 8, true)
	b.openPosts(2, hookA, hookB)
	h.SetClock(t, postAge+time.Minute)
	due, up = b.duePosts(hookA)
	if len(due) != 1 || due[0].Hook != hookA.Key || len(up) != 1 || up[0].Hook != hookB.Key {
		t.Errorf("never tried: due %+v, given up %+v", due, up)
	}
	h.SetClock(t, 7*postAge+time.Minute)
	if due, up = b.duePosts(hookA); len(due) != 0 || len(up) != 1 {
		t.Errorf("never tried for a week: due %+v, given up %+v", due, up)
	}
	// A repair of long ago is told of to nobody.
	h.SetClock(t, 0)
	b.dropped("y", 8, true)
	h.SetClock(t, postAge+time.Minute)
	b.openPosts(0, hookA)
}

// Those that fewest passes tried come first.
func testPostsTakeTurns(t *testing.T, h Harness) {
	b := open(t, h)
	for _, target := range []string{"x", "y"} {
		b.dropped(target, 8, true)
		b.openPosts(1, hookA)
	}
	order := func(want ...string) []ledger.Post {
		t.Helper()
		due, _ := b.duePosts(hookA)
		var got []string
		for _, p := range due {
			got = append(got, p.Repair.Target)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("turns (-want +got)\n%s", d)
		}
		return due
	}
	due := order("x", "y")
	b.claim(due[0], true)
	b.settlePost(due[0], ledger.PostResult{State: ledger.PostOpen, Attempts: 1, Error: reconcile.Ptr("503")})
	order("y", "x")
}

// A process died between its commit and its verification: who settles it finds that
// it landed.
func testPostsOfTheDead(t *testing.T, h Harness) {
	b := open(t, h)
	dead := b.lock("x")
	r := b.intend(dead, drop("x"))
	h.SetClock(t, 2*time.Minute)
	heir := b.lock("x")
	if err := b.Settle(t.Context(), heir, r.RepairID, applied(8)); err != nil {
		t.Fatal(err)
	}
	b.openPosts(1, hookA)
	if due, _ := b.duePosts(hookA); len(due) != 1 || due[0].Repair.RepairID != r.RepairID {
		t.Errorf("due: %+v", due)
	}
}

func testPostRace(t *testing.T, h Harness) {
	b := open(t, h)
	b.dropped("x", 8, true)
	var opened, claimed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		other := open(t, h)
		wg.Go(func() {
			n, err := other.OpenPosts(t.Context(), []ledger.PostHook{hookA}, []string{targetOf("x").URI}, postAge)
			if err != nil {
				t.Error(err)
			}
			opened.Add(n)
			due, _, err := other.DuePosts(t.Context(), []ledger.PostHook{hookA}, []string{targetOf("x").URI}, postAge, 3)
			if err != nil {
				t.Error(err)
			}
			for _, p := range due {
				ok, err := other.ClaimPost(t.Context(), p.Repair.RepairID, p.Hook, time.Minute)
				if err != nil {
					t.Error(err)
				}
				if ok {
					claimed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if opened.Load() != 1 || claimed.Load() != 1 {
		t.Errorf("opened %d, claimed %d", opened.Load(), claimed.Load())
	}
}
