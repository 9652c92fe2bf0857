// Package ledger says what a ledger remembers of passes, findings and repairs, and
// the rules that every ledger keeps. The ledgers themselves are in the packages
// postgres and sqlite below; package open chooses one by its URL.
//
// Rules that hold for all of it
//
//   - Time is the ledger's clock. A time that the caller hands in is evidence and is
//     never compared with one of the ledger's.
//   - A target is known by the canonical URI of its dataset ([Target]); its names are
//     attributes.
//   - What is durable is durable when the method returns nil. A method that returns an
//     error has done all or nothing, except that after [ErrUnreachable] it may have
//     done all: every method that writes may be called again with the same arguments,
//     [Cooldowns.Fail] and [Intake.AddFailure] counting once more.
//   - A repair is intended before its effect and settled after it, under a lock whose
//     epoch every write carries; who lost the lock gets [ErrFenced].
//
// Every method talks to the database and returns [ErrUnreachable] when it cannot.
// Texts are stored as valid UTF-8 without NUL bytes.
package ledger

import (
	"context"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Ledger is everything that a ledger does. Consumers declare the part they need.
type Ledger interface {
	Passes
	Findings
	Repairs
	Locks
	Cooldowns
	Refetches
	Checkpoints
	Intake
	Probes
	Posts
	Reader
	// Now is the ledger's clock (UTC).
	Now(ctx context.Context) (time.Time, error)
	// Location says where the ledger is, without secrets:
	// postgres://user@host:5432/name or sqlite:/path.
	Location() string
	// Close gives up all connections. It touches the network.
	Close() error
}

// Target names what is looked at and repaired.
type Target struct {
	// URI is the canonical URI of the dataset ([objstore.Location.Canonical]): the
	// key of everything that is remembered about the target.
	URI string `json:"target_uri"`
	// Name, Store and Kind are what they are called at the moment.
	Name  string `json:"target"`
	Store string `json:"store"`
	Kind  string `json:"kind"`
}

// TargetOf is the target as the ledger knows it.
func TargetOf(t reconcile.Target) Target {
	return Target{URI: t.Location.Canonical(), Name: t.Name, Store: t.Store, Kind: t.Kind}
}

// Passes records passes.
type Passes interface {
	// BeginPass writes the pass with what is known at its beginning (identity, scope,
	// actor, host, reason) and returns when that was.
	BeginPass(ctx context.Context, p reconcile.Pass) (time.Time, error)
	// FinishPass writes how the pass ended, and its totals. ErrNotFound when the pass
	// never began.
	FinishPass(ctx context.Context, p reconcile.Pass) error
	// Prune forgets what is older than it should be kept: passes with what they said,
	// findings that were resolved, failures that were handled, repairs that are
	// settled or were only planned. Nothing that is open is ever forgotten. Checkpoints
	// past their lifetime go whatever keep says.
	Prune(ctx context.Context, keep Retention) (Pruned, error)
}

// Retention says how long what is kept; 0 is for ever.
type Retention struct{ Passes, Repairs time.Duration }

// Pruned counts what was forgotten.
type Pruned struct{ Passes, Findings, Failures, Repairs int64 }

// Findings records what passes found, and says what they found before.
type Findings interface {
	// RecordTarget writes what a pass found out about one target, in one transaction.
	// It may be called again for the same pass and target, for example after a repair
	// was verified; the last call stands. The pass must have begun (ErrNotFound), and
	// its lease, if it has one, must not be lost (ErrFenced).
	RecordTarget(ctx context.Context, r TargetRecord) (TargetSummary, error)
	// OpenFindings lists the findings of a target that are open: what a pass that
	// looks at the target should answer in TargetRecord.Answers.
	OpenFindings(ctx context.Context, uri string) ([]Finding, error)
	// EachOpenFinding calls take for each of OpenFindings, so that many need no room. When
	// the ledger has to be read again it begins anew: take may get a finding twice.
	EachOpenFinding(ctx context.Context, uri string, take func(Finding)) error
	// Sightings tells what earlier passes saw of these findings; a finding that none
	// ever saw is absent.
	Sightings(ctx context.Context, findingIDs []string) (map[string]Sighting, error)
	// HighestVersion is the highest version that the target ever had, nil when
	// unknown. RecordTarget and Settle raise it.
	HighestVersion(ctx context.Context, uri string) (*uint64, error)
	// AcceptVersion lowers it to the version that a user accepts (--accept-version).
	AcceptVersion(ctx context.Context, t Target, version uint64, actor, reason string) error
	// Acknowledge accepts an open finding until a time of the ledger's clock; a past
	// time takes that back. ErrNotFound when no such finding is open.
	Acknowledge(ctx context.Context, findingID string, until time.Time, reason, actor string) error
}

// Repairs is the write-ahead record of repairs.
type Repairs interface {
	// Note writes a repair that had no effect: planned, refused, or failed before
	// anything was intended. The same repair may be noted again and intended later.
	Note(ctx context.Context, r Repair) error
	// Intend writes the whole record as intended, durably, before the effect. Nothing
	// may be sent to a store when it returns an error: ErrFenced when the lease is lost
	// or has run out, ErrUnsettled when the target has a repair whose effect is
	// unknown, ErrIncomplete when the record would not allow settling or undoing.
	Intend(ctx context.Context, lease Lease, r Repair) error
	// Settle writes the outcome of an intended repair. ErrFenced when the lease was
	// taken over (its successor settles), ErrSettled when it has another outcome,
	// ErrNotFound.
	Settle(ctx context.Context, lease Lease, repairID string, o Outcome) error
	// Verified says that the repaired target was looked at again and is right: the
	// repair is marked, and its target's cooldown of kind repair ends, together.
	Verified(ctx context.Context, lease Lease, repairID string) error
	// Unsettled lists the repairs that are intended or uncertain, of one target or,
	// with an empty URI, of all, oldest first, without their bytes.
	Unsettled(ctx context.Context, uri string) ([]Repair, error)
	// UndoData is the whole record of a repair, its bytes included. ErrNotFound.
	UndoData(ctx context.Context, repairID string) (Repair, error)
}

// Locks keeps two users of a ledger from working on one target.
type Locks interface {
	// Acquire takes the lock of a target for length from now. A *LockedError
	// (ErrLocked) says who has it.
	Acquire(ctx context.Context, uri, owner string, length time.Duration) (Lease, error)
	// Renew prolongs the lease to length from now. ErrFenced when somebody took the
	// lock since; a lease that ran out and that nobody took is renewed.
	Renew(ctx context.Context, l Lease, length time.Duration) (Lease, error)
	// Release gives the lock back. ErrFenced when it is not held any more.
	Release(ctx context.Context, l Lease) error
}

// Cooldowns keeps work that keeps failing from starving work that does not.
type Cooldowns interface {
	// Fail counts an attempt that ran and did not end well, and says what follows.
	// Refused, report-only, locked, throttled and interrupted work is not counted by
	// anybody.
	Fail(ctx context.Context, p CooldownPolicy, f Failure) (Cooldown, error)
	// Succeed ends a cooldown and its count. It is for a verified success of the same
	// kind and for nothing less; that of a repair is said by Repairs.Verified.
	Succeed(ctx context.Context, k Kind, uri string) error
	// Due picks those of the targets whose kind of work is not cooling down, longest
	// unchecked first, never checked before all; those left out are in cooling.
	Due(ctx context.Context, k Kind, uris []string) (due []string, cooling map[string]Cooldown, err error)
	// Postpone notes targets that a pass knows of and does not look at, and returns those
	// that no pass looked at for longer than cycle, by URI: since when. One that was never
	// looked at counts from when a pass first knew of it.
	Postpone(ctx context.Context, targets []Target, cycle time.Duration) (overdue map[string]time.Time, err error)
}

// Refetches remembers objects that could not be fetched from a peer.
type Refetches interface {
	// RefetchFailed counts a failed attempt and returns when the next is due.
	RefetchFailed(ctx context.Context, p CooldownPolicy, f RefetchFailure) (Refetch, error)
	// RefetchDone forgets the attempts for an object that is there again.
	RefetchDone(ctx context.Context, findingID string) error
	// RefetchState tells of those findings that have failed attempts, and whether the
	// next one is due; a finding without any is absent and due.
	RefetchState(ctx context.Context, findingIDs []string) (map[string]Refetch, error)
}

// Intake takes in failures of other systems' tasks. A failure is open until a pass
// answers it; only retention deletes it, and only then.
type Intake interface {
	// AddFailure hands in a failure; one that is open already is counted. The target
	// may be empty, for a text that tells it.
	AddFailure(ctx context.Context, kind, target, text string) error
	// PendingFailures lists the open ones, oldest first; a limit leaves those out that
	// were not handed in for longest, 0 is all.
	PendingFailures(ctx context.Context, limit int) ([]TaskFailure, error)
	// HandleFailure closes one. It stays open, and handled is false, when the same
	// failure was handed in again since f was read: that news has not been looked at.
	HandleFailure(ctx context.Context, f TaskFailure, h Handling) (handled bool, err error)
}

// Probes remembers self-tests of store roots.
type Probes interface {
	// PutProbe records a result.
	PutProbe(ctx context.Context, p Probe) error
	// GetProbe is the last result; nil when there is none or it is older than maxAge.
	GetProbe(ctx context.Context, rootURI, probe string, maxAge time.Duration) (*Probe, error)
}

// Reader answers the commands that read the ledger. Lists are newest first; a
// Filter that matches nothing gives an empty list.
type Reader interface {
	ListFindings(ctx context.Context, f Filter) ([]Finding, error)
	ListRepairs(ctx context.Context, f Filter) ([]Repair, error)
	ListCooldowns(ctx context.Context, f Filter) ([]Cooldown, error)
	ListPasses(ctx context.Context, f Filter) ([]PassRow, error)
	ListTargets(ctx context.Context, f Filter) ([]TargetHealth, error)
	// ListFailures matches patterns with the target as it was handed in.
	ListFailures(ctx context.Context, f Filter) ([]TaskFailure, error)
	// Status is the state of everything on one screen.
	Status(ctx context.Context) (Status, error)
	// Diff compares what two passes saw, in the order in which they began.
	// ErrNotFound when the ledger does not hold one of them.
	Diff(ctx context.Context, passA, passB string) (Diff, error)
}

// Migrator brings the schema of a ledger up to date.
type Migrator interface {
	// Up applies what is missing, one step a transaction; two at once take turns.
	Up(ctx context.Context) (MigrationStatus, error)
	// Status says what is applied.
	Status(ctx context.Context) (MigrationStatus, error)
	// Location as of a Ledger.
	Location() string
	Close() error
}

// MigrationStatus is what a ledger's schema is made of.
type MigrationStatus struct {
	// Applied and Pending are names like 001_tables, in order.
	Applied []Migration `json:"applied"`
	Pending []string    `json:"pending"`
	// Unknown are applied steps of a newer program; they do no harm.
	Unknown []string `json:"unknown"`
	// Notices are what the database had to say, such as a role it may not create.
	Notices []string `json:"notices"`
}

// Migration is one applied step.
type Migration struct {
	Name        string    `json:"name"`
	ToolVersion string    `json:"tool_version"`
	AppliedAt   time.Time `json:"applied_at"`
	// New means that this call applied it.
	New bool `json:"new"`
}
