package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

func testLocks(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	ctx := t.Context()
	uri := targetOf("x").URI
	now := a.now()
	lease, err := a.Acquire(ctx, uri, "alice", time.Minute)
	if err != nil || lease.Epoch < 1 || lease.Target != uri || !near(lease.Until, now.Add(time.Minute)) {
		t.Fatalf("acquired %+v, %v", lease, err)
	}
	_, err = b.Acquire(ctx, uri, "bob", time.Minute)
	wantErr(t, "what is locked", err, ledger.ErrLocked)
	var held *ledger.LockedError
	if !errors.As(err, &held) || held.Owner != "alice" || held.URI != uri || held.Until.Sub(lease.Until).Abs() > time.Millisecond {
		t.Errorf("locked by %+v", held)
	}
	if _, err := b.Acquire(ctx, targetOf("y").URI, "bob", time.Minute); err != nil {
		t.Errorf("another target: %v", err)
	}
	h.SetClock(t, 50*time.Second)
	if lease, err = a.Renew(ctx, lease, time.Minute); err != nil {
		t.Fatal(err)
	}
	h.SetClock(t, 100*time.Second)
	_, err = b.Acquire(ctx, uri, "bob", time.Minute)
	wantErr(t, "what was renewed", err, ledger.ErrLocked)
	h.SetClock(t, 4*time.Minute)
	if _, err = a.Renew(ctx, lease, time.Minute); err != nil {
		t.Errorf("a lease that ran out and that nobody took: %v", err)
	}
	h.SetClock(t, 8*time.Minute)
	next, err := b.Acquire(ctx, uri, "bob", time.Minute)
	if err != nil || next.Epoch <= lease.Epoch {
		t.Fatalf("took over %+v, %v", next, err)
	}
	_, err = a.Renew(ctx, lease, time.Minute)
	wantErr(t, "renew what was taken", err, ledger.ErrFenced)
	wantErr(t, "release what was taken", a.Release(ctx, lease), ledger.ErrFenced)
	if err := b.Release(ctx, next); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(ctx, next); err != nil {
		t.Errorf("release again: %v", err)
	}
	_, err = b.Renew(ctx, next, time.Minute)
	wantErr(t, "renew what was released", err, ledger.ErrFenced)
	wantErr(t, "intend under what was released", b.Intend(ctx, next, drop("x")), ledger.ErrFenced)
	third, err := a.Acquire(ctx, uri, "alice", time.Minute)
	if err != nil || third.Epoch <= next.Epoch {
		t.Errorf("after release %+v, %v", third, err)
	}
	if _, err := a.Acquire(ctx, uri, "alice", 0); err == nil {
		t.Error("a lease of no length")
	}
}

func testFenced(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	ctx := t.Context()
	// A holder intends, is paused past its lease, and wakes up after another took over.
	lease := a.lock("x")
	r := a.intend(lease, drop("x"))
	h.SetClock(t, 2*time.Minute)
	wantErr(t, "a new effect under a lease that ran out", a.Intend(ctx, lease, restore("x", "data/1.lance")), ledger.ErrFenced)
	next := b.lock("x")
	wantErr(t, "settle after another took over", a.Settle(ctx, lease, r.RepairID, applied(8)), ledger.ErrFenced)
	wantErr(t, "intend after another took over", a.Intend(ctx, lease, drop("x")), ledger.ErrFenced)
	if got := b.repair(r.RepairID); got.State != ledger.StateIntended || got.CommittedVersion != nil {
		t.Errorf("the paused holder wrote %+v", got.RepairOutcome)
	}
	if err := b.Settle(ctx, next, r.RepairID, applied(8)); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "verify after another took over", a.Verified(ctx, lease, r.RepairID), ledger.ErrFenced)
	// A lease that ran out and that nobody took still completes its own record.
	one := b.intend(next, drop("x"))
	h.SetClock(t, 10*time.Minute)
	if err := b.Settle(ctx, next, one.RepairID, applied(9)); err != nil {
		t.Errorf("complete a record after the lease ran out: %v", err)
	}
	wantErr(t, "a lease of nobody", b.Intend(ctx, ledger.Lease{Target: targetOf("x").URI, Epoch: 99}, drop("x")), ledger.ErrFenced)
	y := drop("y")
	wantErr(t, "a lock that never was", b.Intend(ctx, ledger.Lease{Target: targetOf("y").URI, Epoch: 1}, y), ledger.ErrFenced)
}

func testLockRace(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	const n = 10
	epoch := int64(0)
	for round := range 5 {
		leases, errs := make([]ledger.Lease, n), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				leases[i], errs[i] = []*bundle{a, b}[i%2].Acquire(t.Context(), targetOf("x").URI, fmt.Sprint(i), time.Minute)
			})
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won >= 0:
				t.Fatalf("round %d: %d and %d hold the lock", round, won, i)
			case err == nil:
				won = i
			case !errors.Is(err, ledger.ErrLocked):
				t.Errorf("round %d: %v", round, err)
			}
		}
		if won < 0 || leases[won].Epoch <= epoch {
			t.Fatalf("round %d: %d won with epoch %d after %d", round, won, leases[max(won, 0)].Epoch, epoch)
		}
		epoch = leases[won].Epoch
		// Half the time the holder dies and its lease runs out.
		if round%2 == 0 {
			if err := a.Release(t.Context(), leases[won]); err != nil {
				t.Fatal(err)
			}
		} else {
			h.SetClock(t, time.Duration(round+1)*time.Hour)
		}
	}
}

func testKeep(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	// Long enough for a machine that is busy with other tests.
	const length = 12 * time.Second
	uri := targetOf("x").URI
	lease, err := a.Acquire(t.Context(), uri, "alice", length)
	if err != nil {
		t.Fatal(err)
	}
	held, stop := ledger.Keep(t.Context(), a, lease, length)
	defer stop()
	until := func() time.Time {
		s, err := b.Status(t.Context())
		if err != nil || len(s.Locked) != 1 {
			t.Fatalf("locked %+v, %v", s.Locked, err)
		}
		return s.Locked[0].LeaseUntil
	}
	first := until()
	for start := time.Now(); !until().After(first); time.Sleep(100 * time.Millisecond) {
		if held.Err() != nil || time.Since(start) > length {
			t.Fatalf("not renewed: %v", context.Cause(held))
		}
	}
	if _, err := b.Acquire(t.Context(), uri, "bob", length); !errors.Is(err, ledger.ErrLocked) {
		t.Errorf("taken while it was kept: %v", err)
	}
	// The clock jumps: the ledger holds the lease for over, and another takes the lock.
	h.SetClock(t, time.Hour)
	if _, err := b.Acquire(t.Context(), uri, "bob", time.Minute); err != nil {
		t.Fatal(err)
	}
	select {
	case <-held.Done():
	case <-time.After(2 * length):
		t.Fatal("works on without the lock")
	}
	wantErr(t, "why it ended", context.Cause(held), ledger.ErrFenced)
	// stop ends the context without a complaint.
	lease, err = a.Acquire(t.Context(), targetOf("y").URI, "alice", length)
	if err != nil {
		t.Fatal(err)
	}
	held, stop = ledger.Keep(t.Context(), a, lease, length)
	stop()
	wantErr(t, "stopped", context.Cause(held), context.Canceled)
}

func fail(b *bundle, k ledger.Kind, name string) ledger.Cooldown {
	b.t.Helper()
	c, err := b.Fail(b.t.Context(), ledger.DefaultCooldown(), ledger.Failure{Kind: k, Target: targetOf(name).URI, Class: "server_error", Text: "boom " + name})
	if err != nil {
		b.t.Fatalf("fail: %v", err)
	}
	return c
}

// isDue reports whether x is picked for a kind of work.
func isDue(b *bundle, k ledger.Kind) bool {
	b.t.Helper()
	due, cooling, err := b.Due(b.t.Context(), k, []string{targetOf("x").URI})
	if err != nil {
		b.t.Fatalf("due: %v", err)
	}
	if len(due)+len(cooling) != 1 {
		b.t.Fatalf("%d due and %d cooling of 1", len(due), len(cooling))
	}
	return len(due) == 1
}

func testCooldown(t *testing.T, h Harness) {
	b := open(t, h)
	const k = ledger.KindRepair
	if !isDue(b, k) {
		t.Fatal("what never failed is not due")
	}
	clock := time.Duration(0)
	for i, want := range []time.Duration{0, 0, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute, 160 * time.Minute, 320 * time.Minute, 6 * time.Hour, 6 * time.Hour, 6 * time.Hour} {
		failures := int64(i + 1)
		now := b.now()
		c := fail(b, k, "x")
		if c.ConsecutiveFailures != failures || *c.LastError != "boom x" || *c.LastErrorClass != "server_error" || !near(*c.LastFailedAt, now) {
			t.Fatalf("failure %d: %+v", failures, c)
		}
		if want == 0 {
			if c.Entered || c.CooldownUntil != nil || c.Active || !isDue(b, k) {
				t.Errorf("after %d failures: %+v", failures, c)
			}
			continue
		}
		if c.CooldownUntil == nil || !near(*c.CooldownUntil, now.Add(want)) || !c.Entered || !c.Active {
			t.Fatalf("after %d failures: until %v, want %v from %v, entered %v", failures, c.CooldownUntil, want, now, c.Entered)
		}
		clock += want - time.Minute
		h.SetClock(t, clock)
		if isDue(b, k) {
			t.Errorf("after %d failures: picked a minute before its time", failures)
		}
		clock += 2 * time.Minute
		h.SetClock(t, clock)
		if !isDue(b, k) {
			t.Errorf("after %d failures: not picked a minute after its time", failures)
		}
	}
	if err := b.Succeed(t.Context(), k, targetOf("x").URI); err != nil {
		t.Fatal(err)
	}
	cs, err := b.ListCooldowns(t.Context(), ledger.Filter{})
	if err != nil || len(cs) != 1 || cs[0].ConsecutiveFailures != 0 || cs[0].Active || cs[0].CooldownUntil != nil || *cs[0].LastError != "boom x" || cs[0].LastSucceededAt == nil {
		t.Errorf("after the success: %+v, %v", cs, err)
	}
	if c := fail(b, k, "x"); c.ConsecutiveFailures != 1 || c.Entered {
		t.Errorf("the first failure after a success: %+v", c)
	}
	// Other figures; and a policy of never.
	p := ledger.CooldownPolicy{After: 2, Base: time.Minute, Factor: 3, Max: 5 * time.Minute}
	for i, want := range []time.Duration{time.Minute, 3 * time.Minute, 5 * time.Minute} {
		now := b.now()
		c, err := b.Fail(t.Context(), p, ledger.Failure{Kind: k, Target: targetOf("x").URI})
		if err != nil || c.CooldownUntil == nil || !near(*c.CooldownUntil, now.Add(want)) {
			t.Errorf("figure %d: until %v, want %v from %v, %v", i, c.CooldownUntil, want, now, err)
		}
		// A named run fails while it cools down: it counts, and nobody is told again.
		if c.Entered != (i == 0) {
			t.Errorf("figure %d: entered %v", i, c.Entered)
		}
	}
	for range 5 {
		c, err := b.Fail(t.Context(), ledger.CooldownPolicy{}, ledger.Failure{Kind: ledger.KindMergeWAL, Target: targetOf("x").URI})
		if err != nil || c.CooldownUntil != nil || c.Entered {
			t.Errorf("a policy of never: %+v, %v", c, err)
		}
	}
	if _, err := b.Fail(t.Context(), p, ledger.Failure{Kind: "compact", Target: "x"}); err == nil {
		t.Error("a kind that is none was counted")
	}
}

// A commit that landed is half a success: what it left may still be broken. Nor does
// anything else than a verified success of the same kind reset the count.
func testHalfSuccess(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	lease := b.lock("x")
	fail(b, ledger.KindRepair, "x")
	fail(b, ledger.KindRepair, "x")
	r := b.intend(lease, drop("x"))
	if err := b.Settle(ctx, lease, r.RepairID, applied(8)); err != nil {
		t.Fatal(err)
	}
	b.record(look{pass: b.pass()}) // a clean look, recorded
	if err := b.Succeed(ctx, ledger.KindCheck, targetOf("x").URI); err != nil {
		t.Fatal(err)
	}
	if err := b.Succeed(ctx, ledger.KindRepair, targetOf("y").URI); err != nil {
		t.Fatal(err)
	}
	fail(b, ledger.KindCheck, "x")
	rec := ledger.TargetRecord{PassID: b.pass(), Target: targetOf("x"), Result: reconcile.TargetResult{Target: "x", State: reconcile.StateClean}, CheckSucceeded: true}
	if _, err := b.RecordTarget(ctx, rec); err != nil {
		t.Fatal(err)
	}
	if fail(b, ledger.KindCheck, "x").ConsecutiveFailures != 1 {
		t.Error("a check that was recorded as a success did not reset its own count")
	}
	c := fail(b, ledger.KindRepair, "x")
	if c.ConsecutiveFailures != 3 || !c.Entered || isDue(b, ledger.KindRepair) {
		t.Fatalf("a half success reset the count: %+v", c)
	}
	wantErr(t, "verified by somebody else", b.Verified(ctx, ledger.Lease{Target: lease.Target, Epoch: lease.Epoch + 1}, r.RepairID), ledger.ErrFenced)
	if isDue(b, ledger.KindRepair) {
		t.Error("a refused verification reset the count")
	}
	if err := b.Verified(ctx, lease, r.RepairID); err != nil {
		t.Fatal(err)
	}
	if !isDue(b, ledger.KindRepair) || fail(b, ledger.KindRepair, "x").ConsecutiveFailures != 1 {
		t.Error("a verified success did not reset the count")
	}
}

func testDue(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	var uris []string
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		uris = append(uris, targetOf(name).URI)
		if name == "d" { // never looked at
			continue
		}
		h.SetClock(t, time.Duration(-i)*time.Minute) // a was looked at last
		r := recordOf(name, look{pass: b.pass()})
		if _, err := b.RecordTarget(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	h.SetClock(t, time.Minute)
	// Met locked is not looked at.
	locked := recordOf("a", look{pass: b.pass()})
	locked.Result = reconcile.TargetResult{State: reconcile.StateLocked}
	if _, err := b.RecordTarget(ctx, recordOf("b", look{pass: b.pass()})); err != nil {
		t.Fatal(err)
	}
	if _, err := b.RecordTarget(ctx, locked); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		fail(b, ledger.KindCheck, "c")
	}
	names := map[string]string{}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		names[targetOf(n).URI] = n
	}
	pick := func() (s string) {
		t.Helper()
		due, cooling, err := b.Due(ctx, ledger.KindCheck, append(uris, uris[0]))
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range due {
			s += names[u]
		}
		s += "/"
		for u, c := range cooling {
			if c.CooldownUntil == nil || c.TargetURI != u || !c.Active {
				t.Errorf("cooling %+v", c)
			}
			s += names[u]
		}
		return s
	}
	if got := pick(); got != "deab/c" {
		t.Errorf("picked %s, want deab/c", got)
	}
	h.SetClock(t, time.Minute+9*time.Minute)
	if got := pick(); got != "deab/c" {
		t.Errorf("before its time picked %s", got)
	}
	h.SetClock(t, time.Minute+11*time.Minute)
	if got := pick(); got != "decab/" {
		t.Errorf("after its time picked %s, want decab/", got)
	}
	if due, cooling, err := b.Due(ctx, ledger.KindCheck, nil); err != nil || len(due) != 0 || len(cooling) != 0 {
		t.Errorf("of nothing: %v, %v, %v", due, cooling, err)
	}
}

func testKinds(t *testing.T, h Harness) {
	b := open(t, h)
	for range 3 {
		fail(b, ledger.KindRepair, "x")
	}
	if isDue(b, ledger.KindRepair) || !isDue(b, ledger.KindCheck) || !isDue(b, ledger.KindMergeWAL) {
		t.Error("a cooled repair keeps from checking or merging")
	}
	for range 3 {
		fail(b, ledger.KindMergeWAL, "x")
	}
	if err := b.Succeed(t.Context(), ledger.KindMergeWAL, targetOf("x").URI); err != nil {
		t.Fatal(err)
	}
	if isDue(b, ledger.KindRepair) || !isDue(b, ledger.KindMergeWAL) {
		t.Error("the success of one kind ended the cooldown of another, or not its own")
	}
}

func testFailRace(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	const n = 12
	entered := make([]bool, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c, err := []*bundle{a, b}[i%2].Fail(t.Context(), ledger.DefaultCooldown(), ledger.Failure{Kind: ledger.KindCheck, Target: targetOf("x").URI, Text: "e"})
			entered[i], errs[i] = c.Entered, err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range entered {
		if e {
			told++
		}
	}
	cs, err := a.ListCooldowns(t.Context(), ledger.Filter{})
	if err != nil || len(cs) != 1 || cs[0].ConsecutiveFailures != n || told != 1 {
		t.Errorf("%d failures counted as %+v, entering told %d times, %v", n, cs, told, err)
	}
}

func testRefetch(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	id := damage("x", 1, reconcile.Missing).FindingID
	other := damage("x", 2, reconcile.Missing).FindingID
	clock := time.Duration(0)
	for i, want := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute} {
		now := b.now()
		r, err := b.RefetchFailed(ctx, ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: id, Target: targetOf("x").URI, PeersSaidNo: []string{"a", "b"}, Text: "404"})
		if err != nil || r.Attempts != int64(i+1) || !near(r.NextAttemptAt, now.Add(want)) || r.Due {
			t.Fatalf("failure %d: %+v, %v", i+1, r, err)
		}
		state := func() ledger.Refetch {
			s, err := b.RefetchState(ctx, []string{id, other})
			if err != nil || len(s) != 1 {
				t.Fatalf("state %v, %v", s, err)
			}
			return s[id]
		}
		h.SetClock(t, clock+want-time.Minute)
		if s := state(); s.Due || len(s.PeersSaidNo) != 2 || s.LastError != "404" {
			t.Errorf("before its time: %+v", s)
		}
		clock += want + time.Minute
		h.SetClock(t, clock)
		if s := state(); !s.Due {
			t.Errorf("after its time: %+v", s)
		}
	}
	if got := ledger.DefaultRefetch().Length(100); got != 24*time.Hour {
		t.Errorf("the longest wait is %v", got)
	}
	if err := b.RefetchDone(ctx, id); err != nil {
		t.Fatal(err)
	}
	if s, err := b.RefetchState(ctx, []string{id}); err != nil || len(s) != 0 {
		t.Errorf("after the fetch: %v, %v", s, err)
	}
}
