package e2e

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// A server that takes every PUT, condition or not: the test before the first commit
// notices, and nothing but the test's own object is written.
func TestAServerThatIgnoresTheConditionIsRefused(t *testing.T) {
	long(t)
	t.Parallel()
	x := newScene(t)
	x.w.strip = true
	x.s.ClearLog()
	before := facts(t, x.s, "r/t.lance")
	r := x.repair().exit(reconcile.ExitRefused)
	if got := outcome(r.pass()); got.state != "refused" || got.reason != "no_conditional_put" {
		t.Errorf("%+v", got)
	}
	for _, w := range x.s.Writes() {
		if w.Key != "r/.reconcile-probe" {
			t.Errorf("it wrote %v", w)
		}
	}
	if after := facts(t, x.s, "r/t.lance"); after.versions != before.versions {
		t.Errorf("%d versions, were %d", after.versions, before.versions)
	}
	runIn(t, x.dir, x.w.Env(), "probe", "--output", "json", x.w.URI("r")).exit(reconcile.ExitRefused)
}

// The manifest is stored, and the answer is 500; or something on the way sent it
// again, and the answer is that it is there.
func TestAManifestThatWasStoredAndAnsweredOtherwiseIsOurs(t *testing.T) {
	long(t)
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusConflict, http.StatusPreconditionFailed} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			x := newScene(t)
			var once atomic.Bool
			x.w.status = func(c call) int {
				if c.manifest() && once.CompareAndSwap(false, true) {
					return status
				}
				return 0
			}
			r := x.repair().exit(reconcile.ExitClean)
			if got := outcome(r.pass()); got.state != "repaired" {
				t.Errorf("%+v\n%s", got, r.stderr)
			}
			if !once.Load() {
				t.Error("no manifest was put")
			}
			x.settledOnce()
			x.readable()
		})
	}
}

// The reply of each write is lost after its effect, once or every time.
func TestALostReplyOfAnyWriteIsSettled(t *testing.T) {
	long(t)
	t.Parallel()
	const writes = 4 // the conditional-write test twice, transaction, manifest
	for n := 1; n <= writes; n++ {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d always %v", n, always), func(t *testing.T) {
				t.Parallel()
				x := newScene(t)
				var key atomic.Value
				x.w.after = func(c call) bool {
					if c.write == n {
						key.CompareAndSwap(nil, c.key)
						return false
					}
					return !always || c.write == 0 || c.key != key.Load()
				}
				r := x.repair()
				if key.Load() == nil {
					t.Fatalf("there was no write %d:\n%s", n, r.stderr)
				}
				if always && n <= 2 {
					// Nobody can tell whether the store honours conditions: no write to the table.
					r.exit(reconcile.ExitRefused)
					if got := outcome(r.pass()); got.reason != "no_conditional_put" {
						t.Errorf("%+v", got)
					}
					x.w.after = nil
					r = x.repair()
				}
				r.exit(reconcile.ExitClean)
				if got := outcome(r.pass()); got.state != "repaired" {
					t.Errorf("%+v\n%s", got, r.stderr)
				}
				x.settledOnce()
			})
		}
	}
}
