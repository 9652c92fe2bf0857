package ledger

import (
	"errors"
	"fmt"
	"time"
)

// What a caller decides by.
var (
	// ErrFenced: the lease is not mine any more. Nothing was written, and nothing may be.
	ErrFenced = errors.New("lock was lost")
	// ErrLocked: somebody else works on the target; see LockedError.
	ErrLocked = errors.New("target is locked")
	// ErrUnreachable: the database gives no answer, or none that lets us write. After
	// it, a write may or may not have happened.
	ErrUnreachable = errors.New("ledger is unreachable")
	// ErrNotMigrated: the schema is not there or lacks steps; `reconcile migrate up`.
	ErrNotMigrated = errors.New("ledger needs `reconcile migrate up`")
	// ErrPooler: a pooler hands out server connections by the transaction.
	ErrPooler = errors.New("transaction-mode pooler between reconcile and its ledger; connect to the server itself or to a session-mode pool")
	// ErrNotFound: the ledger has no such pass, finding or repair.
	ErrNotFound = errors.New("not in the ledger")
	// ErrUnsettled: the target has a repair whose effect is not known yet.
	ErrUnsettled = errors.New("target has an unsettled repair")
	// ErrSettled: the repair has another outcome already.
	ErrSettled = errors.New("repair is settled otherwise")
	// ErrIncomplete: the record lacks what would be needed to settle or undo it.
	ErrIncomplete = errors.New("repair record is incomplete")
)

// LockedError says who holds a lock.
type LockedError struct {
	URI, Owner string
	// Until is when the lock may be taken if its holder does not renew it.
	Until time.Time
}

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("target %s is locked by %s until %s", e.URI, e.Owner, e.Until.UTC().Format(time.RFC3339))
}

// Is reports that it is an ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }
