package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// State of a repair, as in reconcile.RepairOutcome.State.
const (
	StatePlanned   = "planned"
	StateIntended  = "intended"
	StateApplied   = "applied"
	StateConflict  = "conflict"
	StateRefused   = "refused"
	StateFailed    = "failed"
	StateUncertain = "uncertain"
)

// What asked for a repair, as in reconcile.RepairOutcome.Trigger.
const (
	TriggerSchedule = "schedule"
	TriggerManual   = "manual"
	TriggerFailure  = "failure"
)

// MaxManifestBytes is the largest manifest whose bytes are kept. A larger one is kept
// by name, size and digest, and the dropped fragments by their messages.
const MaxManifestBytes = 16 << 20

// Repair is the whole record of a repair. Its JSON is what is written to stderr when
// the ledger is lost after an effect: it holds everything.
type Repair struct {
	// RepairOutcome holds the public members. Its State is set by the method that
	// writes it; Store and Target must be those of Where.
	reconcile.RepairOutcome
	Where Target `json:"where"`

	PassID string  `json:"pass_id"`
	Actor  string  `json:"actor"`
	Host   string  `json:"host"`
	Reason *string `json:"reason"`

	// Manifest is the one that the repair is made from; for drops it must be whole.
	Manifest *Manifest `json:"manifest"`
	// Messages are the DataFragment messages of Fragments as they stand in the
	// manifest, by fragment id; for a dropped fragment required.
	Messages map[uint64][]byte `json:"messages"`
	// IndexUUID and IndexMessage (IndexMetadata as it stands in the manifest) are of
	// the dropped index entry.
	IndexUUID    *string `json:"index_uuid"`
	IndexMessage []byte  `json:"index_message"`

	// The rest is written by the ledger.
	Epoch      *int64     `json:"epoch"`
	CreatedAt  time.Time  `json:"created_at"`
	IntendedAt *time.Time `json:"intended_at"`
	SettledAt  *time.Time `json:"settled_at"`
	VerifiedAt *time.Time `json:"verified_at"`
}

// Manifest is a manifest as it was before a repair.
type Manifest struct {
	// Name is its path below the dataset.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 of its bytes, in hex.
	SHA256 string `json:"sha256"`
	// Bytes are present up to MaxManifestBytes.
	Bytes []byte `json:"bytes"`
}

// ManifestOf is the record of a manifest: its digest, and its bytes where they are kept.
func ManifestOf(name string, data []byte) *Manifest {
	sum := sha256.Sum256(data)
	m := &Manifest{Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	if len(data) <= MaxManifestBytes {
		m.Bytes = data
	}
	return m
}

// Outcome is how an intended repair ended, or that nobody knows.
type Outcome struct {
	// State is applied, conflict, refused, failed or uncertain.
	State            string
	CommittedVersion *uint64
	// RowsDropped may be nil: for an applied drop it is then the sum of the fragments'
	// live rows, where all are known.
	RowsDropped *int64
	// BytesRestored and Source are required of what was applied without a commit. A nil
	// Source, Proof or DurationMS keeps what the record says.
	BytesRestored *int64
	Source        *string
	// Proof says what proved a copy that was brought back; DurationMS is how long the
	// attempt took, in milliseconds.
	Proof      *string
	DurationMS *int64
	// Error is required unless applied.
	Error *string
}

// Commits reports whether the action ends in a commit to the table.
func Commits(a reconcile.Action) bool { return a.Destructive() }

// CheckIntended returns ErrIncomplete, with what is missing, when the record would not
// allow to find the effect again or to undo it.
func (r Repair) CheckIntended() error {
	bad := func(what string) error { return fmt.Errorf("%w: %s: %s", ErrIncomplete, r.RepairID, what) }
	switch {
	case r.RepairID == "" || r.PassID == "" || r.Where.URI == "":
		return bad("no identity, pass or target")
	case r.Action == reconcile.ActionNone:
		return bad("no action")
	case r.Trigger == TriggerFailure && r.TriggerError == nil:
		return bad("no text of the failure that asked for it")
	}
	if r.Manifest != nil {
		if err := r.Manifest.check(); err != nil {
			return bad(err.Error())
		}
	}
	for _, f := range r.Fragments {
		if f.ID > math.MaxInt64 {
			return bad(fmt.Sprintf("fragment id %d is out of range", f.ID))
		}
	}
	if !Commits(r.Action) {
		return nil
	}
	switch {
	case r.TransactionUUID == nil || *r.TransactionUUID == "":
		return bad("no transaction to find the commit by")
	case r.ReadVersion == nil || *r.ReadVersion == 0 || *r.ReadVersion > math.MaxInt64:
		return bad("no version that it is made from")
	case r.Manifest == nil:
		return bad("no manifest to undo it from")
	case r.Action == reconcile.ActionDropFragment && len(r.Fragments) == 0:
		return bad("no fragments")
	case r.Action == reconcile.ActionDropIndex && (r.IndexUUID == nil || len(r.IndexMessage) == 0):
		return bad("no index entry")
	}
	if r.Action == reconcile.ActionDropFragment {
		for _, f := range r.Fragments {
			if len(r.Messages[f.ID]) == 0 {
				return bad(fmt.Sprintf("no message of fragment %d", f.ID))
			}
		}
	}
	return nil
}

func (m *Manifest) check() error {
	if m.Name == "" || m.Size <= 0 || len(m.SHA256) != 2*sha256.Size {
		return fmt.Errorf("manifest without name, size or digest")
	}
	if m.Bytes == nil {
		if m.Size <= MaxManifestBytes {
			return fmt.Errorf("bytes of manifest %s are missing", m.Name)
		}
		return nil
	}
	sum := sha256.Sum256(m.Bytes)
	if int64(len(m.Bytes)) != m.Size || m.Size > MaxManifestBytes || hex.EncodeToString(sum[:]) != m.SHA256 {
		return fmt.Errorf("bytes of manifest %s are not those of its size and digest", m.Name)
	}
	return nil
}

// CheckOutcome returns an error when an outcome does not say what it must.
func (o Outcome) CheckOutcome() error {
	if o.DurationMS != nil && *o.DurationMS < 0 {
		return fmt.Errorf("outcome took %d ms", *o.DurationMS)
	}
	switch o.State {
	case StateApplied:
		if o.CommittedVersion == nil && (o.BytesRestored == nil || o.Source == nil || *o.Source == "") {
			return fmt.Errorf("outcome %s without a version, or bytes and where they came from", o.State)
		}
		return nil
	case StateConflict, StateRefused, StateFailed, StateUncertain:
		if o.Error == nil || *o.Error == "" {
			return fmt.Errorf("outcome %s without a reason", o.State)
		}
		if o.CommittedVersion != nil || o.RowsDropped != nil {
			return fmt.Errorf("outcome %s with an effect", o.State)
		}
		return nil
	}
	return fmt.Errorf("%q is no outcome", o.State)
}
