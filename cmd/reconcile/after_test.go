package main

import (
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/hook"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// A post that was not sent is shown where it would have gone, and a template is never
// taken for an address.
func TestWhereAPostThatWasNotSentGoes(t *testing.T) {
	t.Parallel()
	const post = "http://m:1/tasks/{{path .Target}}?token=s3cr3t"
	h, wrong := hook.New(post, "", nil)
	if len(wrong) > 0 {
		t.Fatal(wrong[0])
	}
	p := ledger.Post{URL: h.Shown(), Repair: ledger.Repair{RepairOutcome: reconcile.RepairOutcome{Action: reconcile.ActionDropFragment}}}
	p.Repair.Where.Name = "generic:a b"
	if got, want := addressOf(h, p), "http://m:1/tasks/generic:a%20b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := addressOf(nil, p), "template http://m:1/tasks/{{path .Target}}"; got != want {
		t.Errorf("of a hook that is gone: %q, want %q", got, want)
	}
	p.URL = "http://m:1/tasks"
	if got := addressOf(nil, p); got != p.URL {
		t.Errorf("of one without a template: %q", got)
	}
}

func TestHowOftenEachPostOfAHookIsTried(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	q := postQueue{until: now.Add(time.Minute), now: func() time.Time { return now }}
	step := func(want int, r *ledger.PostResult) {
		t.Helper()
		if got := q.tries(); got != want {
			t.Errorf("%d tries, want %d", got, want)
		}
		q.note(r)
	}
	failed, taken, refused := &ledger.PostResult{State: ledger.PostOpen}, &ledger.PostResult{State: ledger.PostDelivered}, &ledger.PostResult{State: ledger.PostRefused}
	step(postAttempts, failed)
	step(postAttempts, nil) // another pass sends it
	step(postAttempts, failed)
	step(1, failed) // each gets its try all the same
	step(1, failed)
	step(1, taken) // and the endpoint is back
	step(postAttempts, failed)
	step(postAttempts, refused)
	step(postAttempts, failed)
	step(postAttempts, failed)
	now = now.Add(2 * time.Minute)
	step(0, nil)
	step(0, nil)
}
