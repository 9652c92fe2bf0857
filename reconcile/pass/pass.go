// Package pass is the engine: it looks at every reference of every target with a
// bounded pool of HEADs, proves each difference by a second look that is apart in
// time and guarded by controls, and says what could be done about it.
//
// The engine reads only; its stores are objstore.Readers. It knows no format: a
// target is a reconcile.Source.
//
//	open → references → HEAD ─┬─ present
//	                          └─ suspect → (wait) → metadata again → controls →
//	                             HEAD again → GET for the code → controls → verdict
package pass

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Stores gives a read-only store for a place. It is safe for concurrent use.
type Stores interface {
	// Reader opens the store of a dataset root or base path.
	Reader(ctx context.Context, root objstore.Location) (objstore.Reader, error)
}

// Clock is time as the engine sees it, so that tests can move it.
type Clock interface {
	Now() time.Time
	// Sleep waits for d or until ctx ends; then it returns the context's cause.
	Sleep(ctx context.Context, d time.Duration) error
}

// Sink takes results while the pass runs. Its methods are called by one goroutine
// at a time. An error ends the pass.
type Sink interface {
	// References is called for every reference looked at, when the sink asks for it
	// (WantsReferences), in no particular order.
	References(ctx context.Context, seen []Seen) error
	WantsReferences() bool
	Findings(ctx context.Context, findings []reconcile.Finding) error
	Target(ctx context.Context, t reconcile.TargetResult) error
}

// Seen is one reference with the verdict of the first look.
type Seen struct {
	Target, Store string
	Ref           reconcile.Reference
	Verdict       reconcile.Verdict
	// ObservedSize in bytes, objstore.Unknown when not told; HTTPStatus 0 = unknown.
	ObservedSize int64
	HTTPStatus   int
}

// Progress is a moment of a running pass.
type Progress struct {
	Phase                            string // "look", "wait", "confirm", "plan"
	Targets, TargetsDone             int
	References, Checked, SuspectsNow int64
	// WaitUntil is set in phase "wait".
	WaitUntil time.Time
}

// Budget is how much a look may cost. Once it is spent no further target is begun;
// what was begun is looked at to its end, at least one target. A bound of 0 is none.
type Budget struct {
	Duration time.Duration
	Requests int64
	// Sent is how many requests were sent so far; set when Requests is.
	Sent func() int64
}

// Options say how to look. Every field must be set, except where noted.
type Options struct {
	// Open makes the source of a target; it does not touch the network.
	Open   func(reconcile.Target) reconcile.Source
	Stores Stores
	Depth  reconcile.Depth
	// ConfirmAfter is the least time between the two looks at a suspect.
	ConfirmAfter time.Duration
	// MinManifestAge protects what no version that old names; 0 protects nothing.
	MinManifestAge time.Duration
	// PendingMaxAge does the same for blobs.
	PendingMaxAge time.Duration
	// TargetTimeout bounds the first look at one target and, again, the second.
	TargetTimeout time.Duration
	// Concurrency is the most HEADs in flight over all targets.
	Concurrency int
	// TargetConcurrency is how many targets are open at once; 0 = 8.
	TargetConcurrency int
	Policy            reconcile.Policy
	Clock             Clock
	Logger            *slog.Logger
	// Problems are places that discovery could not list, with their findings; each
	// is reported as a target of its own.
	Problems        []reconcile.TargetResult
	ProblemFindings []reconcile.Finding
	// Recall is the memory of earlier passes; the zero value has none.
	Recall Recall
	// Peers are the places that may hold copies of a target's objects, the best first;
	// nil when there are none anywhere.
	Peers func(reconcile.Target) []reconcile.Peer
	// Budget bounds how many targets are begun; the zero value bounds nothing.
	Budget Budget
	// Registered reads the registries again and says what they say of each target now:
	// reconcile.RegistryOK, reconcile.RegistryURIDiffers, or "" without a row. It is
	// asked about targets that a row named (Target.Row) and may be nil when none is.
	Registered func(ctx context.Context, targets []reconcile.Target) ([]string, error)
	// Sink and Progress may be nil. Progress is called often and must be quick.
	Sink     Sink
	Progress func(Progress)
}

// Outcome is what a pass found.
type Outcome struct {
	Targets  []reconcile.TargetResult
	Findings []reconcile.Finding
	// Actions are what a full repair would do, with everything blocked left out.
	Actions []reconcile.PlanAction
	// Totals without Requests, which the caller's stores count.
	Totals reconcile.Totals
	// Repairs are what Apply did, in order.
	Repairs []reconcile.RepairOutcome
	// Deferred are the targets that the budget left for the next pass: nothing was
	// looked at there, and they stand in no total but Deferred.
	Deferred []reconcile.Target
	// Nowhere are targets that were named and that nothing is there of, nor ever was as
	// far as anybody knows: they are in no total, and nothing is recorded of them.
	Nowhere []Nowhere
	// Interrupted is the cause when the context ended before the pass did.
	Interrupted error

	// targets and bases are kept of targets with findings, so that a repair can ask
	// the same controls again; by canonical URI.
	targets map[string]reconcile.Target
	bases   map[string]map[objstore.Location]*base
	// codes are exit codes that no target's state tells.
	codes []reconcile.ExitCode
	// failedRepairs are the targets that are failed because a repair of theirs was: a
	// code tells of them. By canonical URI.
	failedRepairs map[string]bool
}

// Nowhere is a target that a user named by mistake.
type Nowhere struct {
	Target reconcile.Target
	// NoRoot: the bucket, or the folder of files, is absent.
	NoRoot bool
}

// Exit is the exit code of a look, interruption excluded.
func (o *Outcome) Exit() reconcile.ExitCode {
	codes := slices.Clone(o.codes)
	if len(o.Nowhere) > 0 {
		codes = append(codes, reconcile.ExitFailed)
	}
	for _, t := range o.Targets {
		if t.State == reconcile.StateFailed && o.failedRepairs[t.URI] {
			continue
		}
		codes = append(codes, exitOf(t.State))
		if t.Registry != nil && *t.Registry != reconcile.RegistryOK {
			codes = append(codes, reconcile.ExitDivergence) // whatever the store's own state
		}
	}
	if len(o.Targets) > 0 && o.Totals.TargetsByState[reconcile.StateLocked] == int64(len(o.Targets)) {
		return reconcile.WorstExit(append(o.codes, reconcile.ExitLocked)...)
	}
	if len(o.Targets) == 0 {
		codes = append(codes, reconcile.ExitFailed)
	}
	return reconcile.WorstExit(codes...)
}

func exitOf(s reconcile.State) reconcile.ExitCode {
	switch s {
	case reconcile.StateLocked:
		return reconcile.ExitIncomplete // all of them locked is Exit's matter
	case reconcile.StateClean, reconcile.StateRepaired:
		return reconcile.ExitClean
	case reconcile.StateDiverged, reconcile.StateRolledBack, reconcile.StateCoolingDown:
		return reconcile.ExitDivergence
	case reconcile.StateRefused:
		return reconcile.ExitRefused
	case reconcile.StateFailed:
		return reconcile.ExitFailed
	default: // incomplete, unreadable, pending, half_deleted
		return reconcile.ExitIncomplete
	}
}

// SystemClock is the real clock (UTC).
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now().UTC() }

// Sleep implements Clock.
func (SystemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
