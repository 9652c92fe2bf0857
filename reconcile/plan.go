package reconcile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// PlanVersion is the version of the plan file that this package writes, and the
// only one that it reads.
const PlanVersion = 1

// PlanLifetime is how long after its making a plan may be carried out. What was
// proven missing a day ago deserves to be looked at anew.
const PlanLifetime = 24 * time.Hour

// planClockSkew is how far the clock of the host that made a plan may be ahead.
const planClockSkew = 10 * time.Minute

// Sentinels of [DecodePlan].
var (
	// ErrPlanAltered: the file is not, byte for byte, what was written.
	ErrPlanAltered = errors.New("plan file is altered or not whole")
	// ErrPlanExpired: the plan is older than PlanLifetime.
	ErrPlanExpired = errors.New("plan has expired")
	// ErrPlanVersion: the file is no plan, or one of another version.
	ErrPlanVersion = errors.New("not a plan file of version 1")
)

// Plan is an immutable list of actions, bound to the bytes that they were made
// from. Whoever carries it out does that or less. The zero value is no plan; see
// [NewPlan] and [DecodePlan].
type Plan struct{ doc planDoc }

// PlanSpec is what a plan is made of.
type PlanSpec struct {
	// ID is a UUIDv7.
	ID string
	// CreatedAt (kept to the microsecond, in UTC).
	CreatedAt   time.Time
	ToolVersion string
	Scope       Scope
	Limits      Limits
	Actions     []PlanAction
}

// planDoc is the file. Its field order is the canonical one.
type planDoc struct {
	PlanVersion int          `json:"plan_version"`
	PlanID      string       `json:"plan_id"`
	CreatedAt   time.Time    `json:"created_at"`
	ExpiresAt   time.Time    `json:"expires_at"`
	ToolVersion string       `json:"tool_version"`
	Scope       Scope        `json:"scope"`
	Limits      Limits       `json:"limits"`
	Actions     []PlanAction `json:"actions"`
	// Digest is the SHA-256 (hex) of this document as compact JSON without it.
	Digest string `json:"digest,omitempty"`
}

// NewPlan makes a plan. It keeps copies, and turns absent lists into empty ones.
func NewPlan(s PlanSpec) (Plan, error) {
	if s.ID == "" || s.CreatedAt.IsZero() {
		return Plan{}, errors.New("a plan needs an id and a time")
	}
	at := s.CreatedAt.UTC().Truncate(time.Microsecond)
	p := Plan{planDoc{
		PlanVersion: PlanVersion, PlanID: s.ID, CreatedAt: at, ExpiresAt: at.Add(PlanLifetime), ToolVersion: s.ToolVersion,
		Scope: copyScope(s.Scope), Limits: s.Limits, Actions: copyActions(s.Actions),
	}}
	digest, err := p.doc.computeDigest()
	if err != nil {
		return Plan{}, err
	}
	p.doc.Digest = digest
	// What cannot be read back must not be written: JSON holds no name that is not
	// valid UTF-8, and a plan must never act on a name that is merely near.
	data, err := p.Encode()
	if err != nil {
		return Plan{}, err
	}
	if _, err := DecodePlan(data, at); err != nil {
		return Plan{}, fmt.Errorf("a plan cannot hold a name that is not valid UTF-8: %w", err)
	}
	return p, nil
}

func (d planDoc) computeDigest() (string, error) {
	d.Digest = ""
	b, err := marshal(d, "")
	if err != nil {
		return "", fmt.Errorf("digest plan: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// marshal is JSON as it stands in files: without the escapes that are for HTML,
// so that a path reads as it is.
func marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Encode is the plan file. The same plan gives the same bytes.
func (p Plan) Encode() ([]byte, error) {
	if p.doc.PlanVersion == 0 {
		return nil, errors.New("encode plan: the zero plan")
	}
	b, err := marshal(p.doc, "  ")
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return b, nil
}

// DecodePlan reads a plan file at the time now. Only the exact bytes that Encode
// wrote are accepted; anything else is ErrPlanAltered, ErrPlanExpired or
// ErrPlanVersion.
func DecodePlan(data []byte, now time.Time) (Plan, error) {
	var head struct {
		PlanVersion *int `json:"plan_version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Plan{}, fmt.Errorf("decode plan: %w: %w", ErrPlanAltered, err)
	}
	if head.PlanVersion == nil || *head.PlanVersion != PlanVersion {
		return Plan{}, fmt.Errorf("decode plan: %w", ErrPlanVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var p Plan
	if err := dec.Decode(&p.doc); err != nil {
		return Plan{}, fmt.Errorf("decode plan: %w: %w", ErrPlanAltered, err)
	}
	digest, err := p.doc.computeDigest()
	if err != nil {
		return Plan{}, fmt.Errorf("decode plan: %w: %w", ErrPlanAltered, err)
	}
	if digest != p.doc.Digest {
		return Plan{}, fmt.Errorf("decode plan: %w: its digest is of another content", ErrPlanAltered)
	}
	// The digest is of the meaning; the bytes are held to it as well, because JSON
	// has many spellings and each is somebody's edit.
	again, err := p.Encode()
	if err != nil || !bytes.Equal(again, data) {
		return Plan{}, fmt.Errorf("decode plan: %w: it is not spelled as it was written", ErrPlanAltered)
	}
	if !p.doc.ExpiresAt.Equal(p.doc.CreatedAt.Add(PlanLifetime)) {
		return Plan{}, fmt.Errorf("decode plan: %w: it lives longer than plans do", ErrPlanAltered)
	}
	if p.doc.CreatedAt.Sub(now) > planClockSkew {
		return Plan{}, fmt.Errorf("decode plan: %w: it was made in the future, at %s", ErrPlanAltered, p.doc.CreatedAt.Format(time.RFC3339))
	}
	if !now.Before(p.doc.ExpiresAt) {
		return Plan{}, fmt.Errorf("decode plan: %w at %s", ErrPlanExpired, p.doc.ExpiresAt.Format(time.RFC3339))
	}
	return p, nil
}

// LooksLikePlan reports whether data is a plan file of any version,
// altered or not: what a new plan may overwrite.
func LooksLikePlan(data []byte) bool {
	var head struct {
		PlanVersion *int    `json:"plan_version"`
		PlanID      *string `json:"plan_id"`
		Digest      *string `json:"digest"`
	}
	return json.Unmarshal(data, &head) == nil && head.PlanVersion != nil && head.PlanID != nil && head.Digest != nil
}

// CreatedAt is when the plan was made (UTC).
func (p Plan) CreatedAt() time.Time { return p.doc.CreatedAt }

// ExpiresAt is the first moment at which the plan may not be carried out any more.
func (p Plan) ExpiresAt() time.Time { return p.doc.ExpiresAt }

// Scope is what was looked at to make the plan (a copy).
func (p Plan) Scope() Scope { return copyScope(p.doc.Scope) }

// Limits are those that the plan was made under.
func (p Plan) Limits() Limits { return p.doc.Limits }

// Actions are the steps, in their order (a copy).
func (p Plan) Actions() []PlanAction { return copyActions(p.doc.Actions) }

// Len is the number of actions.
func (p Plan) Len() int { return len(p.doc.Actions) }

// Digest is the SHA-256 (hex) that the file carries.
func (p Plan) Digest() string { return p.doc.Digest }

func copyScope(s Scope) Scope {
	s.Roles = copyList(s.Roles)
	s.TargetsFilter = copyList(s.TargetsFilter)
	return s
}

func copyActions(in []PlanAction) []PlanAction {
	out := copyList(in)
	for i := range out {
		a := &out[i]
		a.IndexUUID, a.Source = copyPtr(a.IndexUUID), copyPtr(a.Source)
		a.Files, a.Recorded = copyList(a.Files), slices.Clone(a.Recorded)
		a.Fragments = copyList(a.Fragments)
		for j := range a.Fragments {
			f := &a.Fragments[j]
			f.Files = copyList(f.Files)
			f.PhysicalRows, f.LiveRows = copyPtr(f.PhysicalRows), copyPtr(f.LiveRows)
		}
	}
	return out
}

// copyList is a copy that is never nil.
func copyList[T any](s []T) []T { return append(make([]T, 0, len(s)), s...) }

func copyPtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return Ptr(*p)
}
