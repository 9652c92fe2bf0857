package reconcile

import (
	"context"
	"fmt"
)

// Effect is what a prepared repair will do, with everything that is needed to find
// it again and to undo it. It is recorded before the first byte is sent.
type Effect struct {
	Action Action
	// ReadVersion is the version that it is made from.
	ReadVersion uint64
	// TransactionUUID names the commit.
	TransactionUUID string
	// ManifestName, below the dataset root, and Manifest are the version before.
	ManifestName string
	Manifest     []byte
	// Fragments, with their messages as they stand in the manifest, by id.
	Fragments []RepairFragment
	Messages  map[uint64][]byte
	// IndexUUID and IndexMessage are of a dropped index entry.
	IndexUUID    *string
	IndexMessage []byte
	// RowsDropped is nil when a fragment's live rows are unknown.
	RowsDropped *int64
}

// CommitState is what became of a commit. The zero value is the one that asks for
// care.
type CommitState uint8

// The states: whether it landed is unknown; it landed; somebody else was first and
// nothing of it landed; nothing of it was stored.
const (
	CommitUncertain CommitState = iota
	CommitApplied
	CommitConflict
	CommitFailed
)

// Commit is a prepared repair: proven against the newest version, complete in
// memory, nothing sent.
type Commit interface {
	Effect() Effect
	// Commit sends it. When ctx ends, no new write begins; one that was sent is
	// awaited and read back for up to 20 s. version is set when applied. The error
	// says why it was not.
	Commit(ctx context.Context) (state CommitState, version uint64, err error)
}

// Repairer carries out the actions of one target that end in a commit.
type Repairer interface {
	Target() Target
	// Prepare proves an action against the newest version and builds the commit. It
	// reads only. A *Refusal says that an interlock forbids it or that the action no
	// longer holds; any other error that the proof could not be made.
	Prepare(ctx context.Context, a PlanAction, p Preparation) (Commit, error)
	// Settle finds out what became of a commit: the version that a transaction made,
	// among those after readVersion. found is false when it did not happen.
	Settle(ctx context.Context, transactionUUID string, readVersion uint64) (version uint64, found bool, err error)
	// Verify reads the newest version and returns an error unless the effect holds
	// in it.
	Verify(ctx context.Context, e Effect, committed uint64) error
}

// Preparation is how an action is to be prepared.
type Preparation struct {
	// RepairID goes into the transaction's properties.
	RepairID string
	// TransactionUUID is a fresh one.
	TransactionUUID string
	// Strict refuses the whole action when one planned fragment is not byte-identical
	// in the newest version, as a plan file asks for. Otherwise, after a conflict,
	// such a fragment is left out.
	Strict bool
	// Scheduled asks for the interlocks of unattended runs too.
	Scheduled bool
	// AllowEmptyTable permits dropping the last fragment.
	AllowEmptyTable bool
	// StillBroken looks once more at the damaged objects just before the commit and
	// tells for each whether it is still not as it must be.
	StillBroken func(ctx context.Context, refs []Reference) ([]bool, error)
}

// Refusal says why a repair that was due is not made. Reason is one of the words of
// Finding.BlockedBy, or RefusedPlanStale.
type Refusal struct {
	Reason string
	Detail string
}

// RefusedPlanStale: the planned action no longer holds.
const RefusedPlanStale = "plan_stale"

// Error implements error.
func (e *Refusal) Error() string {
	if e.Detail == "" {
		return e.Reason
	}
	return fmt.Sprintf("%s: %s", e.Reason, e.Detail)
}
