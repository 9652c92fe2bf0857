// Package wrap holds decorators of object stores, one concern each: asking again
// ([NewRetry]), limiting ([NewLimit]), slowing down when told to ([NewAdaptive])
// and counting ([NewCount]).
//
// Each has a twin for writers (NewRetryWriter, …). What goes in as a Reader comes
// out as a type that has no method to write with.
package wrap

import "sync/atomic"

// Counters is how many requests were sent to stores, attempts that were repeated
// included: Head by Stat and Restat, Get by Probe, Get, GetVersion and Versioning, List
// by each page of List and each call of Versions, Put by each call of Create, Replace
// and CreateOverMarker, whatever it takes to carry that out. Throttled is how many of
// them were answered with a demand to slow down, Retried how many were repetitions.
type Counters struct {
	Head, Get, List, Put, Throttled, Retried int64
}

// Meter counts. The zero value is ready; it is safe for concurrent use and may be
// shared by any number of stores.
type Meter struct {
	head, get, list, put, throttled, retried atomic.Int64
}

// Snapshot is the count so far.
func (m *Meter) Snapshot() Counters {
	return Counters{
		Head: m.head.Load(), Get: m.get.Load(), List: m.list.Load(), Put: m.put.Load(),
		Throttled: m.throttled.Load(), Retried: m.retried.Load(),
	}
}
