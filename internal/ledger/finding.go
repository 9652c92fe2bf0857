package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Look is how a pass looked at a target.
type Look struct {
	Depth    reconcile.Depth
	Versions reconcile.Versions
}

// Answer is what a look says of an open finding that it did not find again. The zero
// value says nothing and resolves nothing.
type Answer uint8

// The answers.
const (
	// Unknown: the object was not looked at, or without a trustworthy answer.
	Unknown Answer = iota
	// Present: the object was looked at and all is well, at the depth of the look.
	Present
	// NotNamed: the metadata was read whole, and no version in the scope of the look
	// names the object.
	NotNamed
)

// String is the word of the ledger.
func (a Answer) String() string {
	switch a {
	case Present:
		return "present"
	case NotNamed:
		return "not_named"
	}
	return "unknown"
}

// Resolves is the rule by which an open finding ends: a look at least as deep as the
// one that found it saw the object present, or a look at least as wide saw nothing
// name it. Anything less leaves it open.
func (l Look) Resolves(found Look, a Answer) bool {
	switch a {
	case Present:
		return l.Depth >= found.Depth
	case NotNamed:
		return l.Versions >= found.Versions
	}
	return false
}

// TargetRecord is what a pass found out about one target.
type TargetRecord struct {
	PassID string
	Target Target
	Result reconcile.TargetResult
	Look   Look
	// Findings are the references that are not present, each once. A superseded one is
	// taken as the answer NotNamed.
	Findings []reconcile.Finding
	// Answers are by finding id, for findings that are open in the ledger and are not
	// among Findings. What is left out is Unknown.
	Answers map[string]Answer
	// Lease is that of the target, when the pass holds one: a holder that lost it
	// records nothing. A pass that only looks has none.
	Lease *Lease
	// CheckSucceeded says that the look itself went well: it ends the count of failed
	// checks with the record, as Succeed would on its own.
	CheckSucceeded bool
}

// TargetSummary is what recording a target changed.
type TargetSummary struct {
	// New findings were never seen, Reopened ones were resolved before.
	New, Reopened, Resolved int64
	// Carried are open findings of earlier passes that this look left as they are.
	Carried int64
	// Stale findings were seen resolved by a pass that began later; they stay so.
	Stale int64
}

// Finding is a finding with its history. Its JSON is that of the finding with the
// members of the history beside.
type Finding struct {
	Finding reconcile.Finding `json:"-"`
	History `json:"-"`
}

// History is what the ledger knows of a finding. Times are the ledger's.
type History struct {
	TargetURI string `json:"target_uri"`
	Harmless  bool   `json:"harmless"`
	// Depth and Versions are those of the deepest and widest look that saw it since it
	// was opened.
	Depth       reconcile.Depth    `json:"depth"`
	Versions    reconcile.Versions `json:"versions"`
	FirstSeenAt time.Time          `json:"first_seen_at"`
	LastSeenAt  time.Time          `json:"last_seen_at"`
	// DamagedSince is when it was first seen damaged since it was opened; nil while it
	// was only pending, denied or undecided.
	DamagedSince *time.Time `json:"damaged_since"`
	SeenCount    int64      `json:"seen_count"`
	FirstPassID  string     `json:"first_pass_id"`
	LastPassID   string     `json:"last_pass_id"`
	// ResolvedAt is nil while it is open; Resolution is present or not_named.
	ResolvedAt     *time.Time `json:"resolved_at"`
	Resolution     *string    `json:"resolution"`
	ResolvedPassID *string    `json:"resolved_pass_id"`
	// Acknowledged reports that AcknowledgedUntil is not over.
	Acknowledged      bool       `json:"acknowledged"`
	AcknowledgedUntil *time.Time `json:"acknowledged_until"`
	AckReason         *string    `json:"ack_reason"`
	AckActor          *string    `json:"ack_actor"`
}

// MarshalJSON joins the members of both parts; neither's own method would.
func (f Finding) MarshalJSON() ([]byte, error) {
	a, err := json.Marshal(f.Finding)
	if err != nil {
		return nil, fmt.Errorf("encode finding: %w", err)
	}
	b, err := json.Marshal(f.History)
	if err != nil {
		return nil, fmt.Errorf("encode finding: %w", err)
	}
	return append(append(a[:len(a)-1], ','), b[1:]...), nil
}

// Sighting is what earlier passes saw of a finding.
type Sighting struct {
	// FirstSeenAt is when any pass first saw the path named and the object not present.
	FirstSeenAt time.Time
	// DamagedSince is when a pass first saw the damage that is open now; nil when none
	// did. A scheduled drop counts from here.
	DamagedSince *time.Time
	// Acknowledged reports that a user accepts it for now.
	Acknowledged bool
}

// SeenNamedFor reports whether an earlier pass saw the path named at least age ago.
// now is the ledger's.
func (s Sighting) SeenNamedFor(age time.Duration, now time.Time) bool {
	return now.Sub(s.FirstSeenAt) >= age
}

// DamagedFor reports whether an earlier pass saw the damage at least age ago. now is
// the ledger's.
func (s Sighting) DamagedFor(age time.Duration, now time.Time) bool {
	return s.DamagedSince != nil && now.Sub(*s.DamagedSince) >= age
}

// CountsAsDamage reports whether a sighting with this verdict starts DamagedSince. An
// archived object is there, and that it cannot be read for now takes nothing away.
func CountsAsDamage(v reconcile.Verdict) bool { return v.Damaged() && v != reconcile.Archived }
