package main

import (
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/rocketkeep/reconcile/reconcile/pass"
)

const (
	// muchDamage is from how many suspects on memory matters more than time: a healthy
	// pass never gets there, and one over a table that is gone waits for the store anyway.
	muchDamage = 20_000
	// thriftyGC is how much garbage may lie about then, in percent of what is in use.
	thriftyGC = 40
)

// thrifty passes progress on, and makes the collector thrifty once much is damaged. What
// $GOGC says stands.
func thrifty(show func(pass.Progress)) func(pass.Progress) {
	var done atomic.Bool
	return func(m pass.Progress) {
		if m.SuspectsNow >= muchDamage && !done.Swap(true) && os.Getenv("GOGC") == "" {
			debug.SetGCPercent(thriftyGC)
		}
		show(m)
	}
}
