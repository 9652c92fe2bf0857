package reconcile

import (
	"context"
	"iter"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Target is what is checked, repaired, locked and cooled down as a unit.
type Target struct {
	// Name as users type and read it: "x", "generic:x", "table:dir/x", "blobs:x".
	Name string
	// Store is the configured name of the store, else the root's URI.
	Store string
	// Kind is rollout, generic, datagen, system, table or blobs.
	Kind string
	// Location is the dataset's root without a trailing slash; its Canonical form
	// is the key of everything that is remembered about the target.
	Location objstore.Location
	// Root is the place that the target was found below: what a write must stay in.
	Root objstore.Location
	// Listed means that a listing showed the target, as opposed to a user naming it: a
	// name over nothing is a mistake, an empty folder is somebody's left-over.
	Listed bool
	// Registry is what the registries say of it: one of the Registry words, empty when
	// none was read or the kind is in none.
	Registry string
	// RegistryURI is, with RegistryURIDiffers, the other place, as a person may read it.
	RegistryURI string
	// Row means that a registry row named it: when nothing is there it is a row
	// without a store, and before a commit the row must still be there.
	Row bool
	// Rows is how many stores the registry names whose row named it; 0 when none did.
	Rows int
	// NoRow means that its registry was read and no row names it: nothing of it is
	// dropped unless a user named it. So does RegistryUnregistered, which is told.
	NoRow bool
	// RegistryUnread means that registries were to be asked about it and could not be
	// read: whether a row names it is unknown, and nothing of it is dropped.
	RegistryUnread bool
}

// What a registry says of a target. The words are public.
const (
	RegistryOK           = "ok"
	RegistryUnregistered = "unregistered"
	RegistryNoStore      = "no_store"
	RegistryURIDiffers   = "uri_differs"
)

// Facts is what a source's metadata says before any referenced object is looked at.
type Facts struct {
	// Version is the newest version; nil when there is none to tell.
	Version *uint64
	// Absent means that nothing at all is there: no metadata and no object. Such a
	// target is none.
	Absent bool
	// Settled means that the metadata alone decides: State and Reason stand, there
	// are no references to walk. (unreadable, half_deleted, a denied manifest)
	Settled bool
	// State is a floor when not settled: StateRolledBack keeps its state whatever
	// the references turn out to be. StateIncomplete (zero) means no floor.
	State  State
	Reason string
	// Findings about metadata objects themselves (role manifest).
	Findings []Finding
	// NotChecked are roles that exist and that this source does not look at.
	NotChecked []NotChecked
	// Fragments and LiveRows of the newest version; nil when unknown.
	Fragments, LiveRows *int64
	// PendingGenerations are the flushed write-ahead generations that the newest shard
	// manifests name; LeakedGenerations those that a merge left behind, and LeakedBytes
	// their size. Nil when unknown or when there is no log.
	PendingGenerations, LeakedGenerations, LeakedBytes *int64
	// Blocks stand in BlockedBy of every finding whose action would be destructive.
	Blocks []string
	// Control is an object that the metadata proves to be there: a listing of this
	// look shows it, in the same store, and its bytes are known. It is the positive
	// control of the target's own root, asked for by HEAD before any absence there is
	// believed. Zero when there is none.
	Control objstore.Location
}

// Revisit is the second look at metadata.
type Revisit struct {
	// Version is the newest version now.
	Version uint64
	// Named tells, for each reference asked about and in its order, whether a
	// version in scope still names it.
	Named []bool
	// RolledBack reports that the newest version is lower than at the first look.
	RolledBack bool
	// Metadata are the findings about metadata objects as they stand now; one that
	// the first look made and that is not here has gone away.
	Metadata []Finding
}

// Source is one target whose promises are being looked at. Open is called first
// and once; the other methods may follow in any order, from one goroutine at a
// time, except Inspect, which must be safe for concurrent use.
//
// An error of any method means that the look is not complete; it is never a
// statement about an object.
type Source interface {
	Target() Target
	// Open reads the newest metadata. It touches the network.
	Open(ctx context.Context) (Facts, error)
	// References streams everything the versions in scope name, each object once.
	References(ctx context.Context) iter.Seq2[Reference, error]
	// Unread are the roles, or parts of them, that the walk of References came to know
	// of and could not name.
	Unread() []NotChecked
	// Inspect looks inside a present object at the given depth and says whether it
	// is of its format. Asked at DepthHead only about an object whose size is not
	// the recorded one. It answers Present, Unreadable or ChecksumMismatch with a
	// reason, SizeMismatch where the content is not of its recorded size, or Undecided
	// with an error.
	Inspect(ctx context.Context, ref Reference, attrs objstore.Attrs, depth Depth) (Verdict, string, error)
	// Revisit reads the newest metadata again.
	Revisit(ctx context.Context, refs []Reference) (Revisit, error)
	// Older tells for each reference whether a retained version at least minAge
	// older than now (the store's own clock) names the same path. It reads at most
	// two further metadata objects. What it cannot show is false.
	Older(ctx context.Context, refs []Reference, minAge time.Duration) ([]bool, error)
	// Propose completes confirmed findings in place (scopes, columns, rows at risk,
	// ProposedAction, BlockedBy) and returns the actions that a full repair would
	// carry out, those that something blocks excluded.
	Propose(ctx context.Context, findings []Finding, policy Policy) ([]PlanAction, error)
}

// Policy is what the user allows of repairs, as far as planning asks for it.
type Policy struct {
	// Limits of one target and of the whole pass.
	Limits Limits `json:"limits"`
	// DropForLostDeletionFile is --deletion-files drop_fragment.
	DropForLostDeletionFile bool `json:"drop_for_lost_deletion_file"`
	// DropPartialFragments: one of several files of a fragment lost drops it.
	DropPartialFragments bool `json:"drop_partial_fragments"`
	// AllowEmptyTable lifts everything_missing for a named target.
	AllowEmptyTable bool `json:"allow_empty_table"`
	// NamedTarget: a user named the one target to repair it now. Then a store without a
	// row of the registry may be dropped from, and a registry itself.
	NamedTarget bool `json:"named_target"`
}

// Limits bound what repairs may take away. The zero value allows nothing.
type Limits struct {
	MaxFragments     int64   `json:"max_fragments"`
	MaxRows          int64   `json:"max_rows"`
	MaxFraction      float64 `json:"max_fraction"`
	MaxPassTargets   int64   `json:"max_pass_targets"`
	MaxPassFragments int64   `json:"max_pass_fragments"`
	MaxPassRows      int64   `json:"max_pass_rows"`
}

// DefaultLimits are the limits of a configuration that names none.
func DefaultLimits() Limits {
	return Limits{MaxFragments: 16, MaxRows: 5_000_000, MaxFraction: 0.05, MaxPassTargets: 20, MaxPassFragments: 64, MaxPassRows: 20_000_000}
}

// PlanAction is one step of a plan, bound to the bytes it was made from.
type PlanAction struct {
	Target      string         `json:"target"`
	URI         string         `json:"uri"`
	Action      Action         `json:"action"`
	ReadVersion uint64         `json:"read_version"`
	Fragments   []PlanFragment `json:"fragments"`
	// IndexUUID is set for ActionDropIndex, Source for ActionRestore and ActionRefetch.
	IndexUUID      *string `json:"index_uuid"`
	Source         *string `json:"source"`
	ExpectedEffect string  `json:"expected_effect"`
	// Files are the objects to bring back, for ActionRestore and ActionRefetch.
	Files []string `json:"files"`
	// Recorded is what the metadata recorded of each of Files when the plan was made, its
	// size and its checksum (see RecordedText); absent in other actions, and in plans of
	// releases that did not keep it.
	Recorded []string `json:"recorded,omitempty"`
}

// PlanFragment is one fragment of a drop.
type PlanFragment struct {
	ID            uint64 `json:"id"`
	MessageSHA256 string `json:"message_sha256"`
	// Files are the damaged objects, as the metadata names them.
	Files        []string `json:"files"`
	PhysicalRows *int64   `json:"physical_rows"`
	LiveRows     *int64   `json:"live_rows"`
}
