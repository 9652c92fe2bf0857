// Package reconcile holds the nouns of the tool: what metadata promises
// ([Reference]), what a look at it found ([Verdict], [Finding]), what would be
// done about it ([Action], [Plan]) and what a whole pass says ([Pass]).
//
// The package touches neither network nor disk and knows no file format. Formats
// implement [Source]; the engine in package pass drives them.
package reconcile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// names is the shared behaviour of the closed enums of this package: their words
// are public (JSON, Parquet, SQL), their numbers are not.
type names []string

func (n names) text(i int) string {
	if i < 0 || i >= len(n) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return n[i]
}

func (n names) parse(kind string, b []byte) (int, error) {
	for i, s := range n {
		if s == string(b) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q", kind, b)
}

// Verdict is what one reference turned out to be. The zero value is Undecided:
// whoever forgets to decide has decided nothing.
type Verdict uint8

// The verdicts; contract words in verdictNames.
const (
	Undecided Verdict = iota
	Present
	Missing
	Recoverable
	Lost
	SizeMismatch
	ChecksumMismatch
	Unreadable
	Archived
	Pending
	Superseded
	Denied
)

var verdictNames = names{"undecided", "present", "missing", "recoverable", "lost", "size_mismatch", "checksum_mismatch", "unreadable", "archived", "pending", "superseded", "denied"}

// Verdicts lists every verdict, in the order that reports use.
func Verdicts() []Verdict {
	return []Verdict{Present, Missing, Recoverable, Lost, SizeMismatch, ChecksumMismatch, Unreadable, Archived, Pending, Superseded, Denied, Undecided}
}

// String is the public word.
func (v Verdict) String() string { return verdictNames.text(int(v)) }

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Verdict) UnmarshalText(b []byte) error {
	i, err := verdictNames.parse("verdict", b)
	*v = Verdict(i)
	return err
}

// Damaged reports whether the verdict is divergence: the object is not as
// recorded, and that is known.
func (v Verdict) Damaged() bool {
	switch v {
	case Missing, Recoverable, Lost, SizeMismatch, ChecksumMismatch, Unreadable, Archived:
		return true
	}
	return false
}

// Open reports whether the verdict leaves the question open, so that nothing may
// be destroyed on its account.
func (v Verdict) Open() bool { return v == Undecided || v == Denied }

// Role is what a referenced object is to its target. The zero value is no role.
type Role uint8

// The roles; contract words in roleNames.
const (
	NoRole Role = iota
	RoleData
	RoleDeletion
	RoleIndex
	RoleOverlay
	RoleRowIDs
	RoleTransaction
	RoleManifest
	RoleBlobSidecar
	RoleWALManifest
	RoleWALGeneration
	RoleBlob
)

var roleNames = names{"", "data", "deletion", "index", "overlay", "row_ids", "transaction", "manifest", "blob_sidecar", "wal_manifest", "wal_generation", "blob"}

// Roles lists every role, in the order that reports use.
func Roles() []Role {
	return []Role{RoleData, RoleDeletion, RoleIndex, RoleOverlay, RoleRowIDs, RoleTransaction, RoleManifest, RoleBlobSidecar, RoleWALManifest, RoleWALGeneration, RoleBlob}
}

// String is the public word.
func (r Role) String() string { return roleNames.text(int(r)) }

// MarshalText implements encoding.TextMarshaler.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Role) UnmarshalText(b []byte) error {
	i, err := roleNames.parse("role", b)
	*r = Role(i)
	return err
}

// Action is what could be done about a finding. The zero value is nothing.
type Action uint8

// The actions; contract words in actionNames.
const (
	ActionNone Action = iota
	ActionRestore
	ActionRefetch
	ActionDropFragment
	ActionDropIndex
)

var actionNames = names{"none", "restore", "refetch", "drop_fragment", "drop_index"}

// String is the public word.
func (a Action) String() string { return actionNames.text(int(a)) }

// MarshalText implements encoding.TextMarshaler.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Action) UnmarshalText(b []byte) error {
	i, err := actionNames.parse("action", b)
	*a = Action(i)
	return err
}

// Destructive reports whether the action changes what a table holds.
func (a Action) Destructive() bool { return a == ActionDropFragment || a == ActionDropIndex }

// State is what a target turned out to be. The zero value is Incomplete: a
// target that nobody finished judging is not clean.
type State uint8

// The states; contract words in stateNames.
const (
	StateIncomplete State = iota
	StateClean
	StateDiverged
	StateRepaired
	StateRefused
	StateUnreadable
	StatePending
	StateCoolingDown
	StateHalfDeleted
	StateRolledBack
	StateLocked
	StateFailed
)

var stateNames = names{"incomplete", "clean", "diverged", "repaired", "refused", "unreadable", "pending", "cooling_down", "half_deleted", "rolled_back", "locked", "failed"}

// States lists every state, in the order that reports use.
func States() []State {
	return []State{StateClean, StateDiverged, StateRepaired, StateIncomplete, StateRefused, StateUnreadable, StatePending, StateCoolingDown, StateHalfDeleted, StateRolledBack, StateLocked, StateFailed}
}

// String is the public word.
func (s State) String() string { return stateNames.text(int(s)) }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) error {
	i, err := stateNames.parse("state", b)
	*s = State(i)
	return err
}

// Depth is how closely an object is looked at. The zero value is Head.
type Depth uint8

// The depths, each including the ones before it.
const (
	DepthHead Depth = iota
	DepthFooter
	DepthChecksum
)

var depthNames = names{"head", "footer", "checksum"}

// String is the public word.
func (d Depth) String() string { return depthNames.text(int(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d Depth) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Depth) UnmarshalText(b []byte) error {
	i, err := depthNames.parse("depth", b)
	*d = Depth(i)
	return err
}

// Versions is which versions of a table are looked at. The zero value is Current.
type Versions uint8

// The version scopes: the newest version of main; that plus every tag and every
// branch's newest; every manifest that storage still holds.
const (
	VersionsCurrent Versions = iota
	VersionsRetained
	VersionsAll
)

var versionsNames = names{"current", "retained", "all"}

// String is the public word.
func (v Versions) String() string { return versionsNames.text(int(v)) }

// MarshalText implements encoding.TextMarshaler.
func (v Versions) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Versions) UnmarshalText(b []byte) error {
	i, err := versionsNames.parse("version scope", b)
	*v = Versions(i)
	return err
}

// FindingID is the stable identity of a finding over passes and hosts: the first
// 32 hex digits of SHA-256(canonical dataset URI, 0, role, 0, canonical object URL).
func FindingID(dataset objstore.Location, role Role, object objstore.Location) string {
	h := sha256.New()
	h.Write([]byte(dataset.Canonical()))
	h.Write([]byte{0})
	h.Write([]byte(role.String()))
	h.Write([]byte{0})
	h.Write([]byte(object.Canonical()))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
