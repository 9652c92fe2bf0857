package main

import (
	"testing"

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
