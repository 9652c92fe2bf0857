package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// CheckpointLifetime is how long a checkpoint may be gone on from. What was seen
	// present before that is too long ago to be told as seen.
	CheckpointLifetime = 7 * 24 * time.Hour
	// MaxSuspects is how many suspects a checkpoint holds at most.
	MaxSuspects = 100_000
)

// ErrCheckpoint: a checkpoint is not whole, and was not written. The one before it
// stands.
var ErrCheckpoint = errors.New("checkpoint cannot be kept")

// Checkpoint is how far a look at a large collection has come: everything up to
// Position was looked at once, and all of it was present except Suspects.
type Checkpoint struct {
	// Position is where to go on, in the words of the source of references. SourceID is
	// what it is valid for: a caller whose source has another one begins anew.
	Position, SourceID string
	// References up to Position, Checked of them looked at, Present of those present;
	// all three without the suspects, which are looked at again and counted then.
	References, Checked int64
	Present             int64
	// Suspects are the keys up to Position that were not found present: every one of them,
	// those included that an earlier checkpoint held and that were not looked at again
	// yet. One that is left out would count as if it never was. MaxSuspects at most; they
	// come back byte for byte.
	Suspects []string

	// PassID and SavedAt (ledger's clock) are written by the ledger.
	PassID  string
	SavedAt time.Time
}

// Check returns ErrCheckpoint, with what is wrong, when the checkpoint would not let a
// look be gone on with.
func (c Checkpoint) Check() error {
	switch {
	case c.Position == "":
		return fmt.Errorf("%w: it has no position", ErrCheckpoint)
	case c.Present < 0 || c.Checked < c.Present || c.References < c.Checked:
		return fmt.Errorf("%w: %d references, %d of them checked, %d of those present", ErrCheckpoint, c.References, c.Checked, c.Present)
	case len(c.Suspects) > MaxSuspects:
		return fmt.Errorf("%w: %d suspects, and %d can be kept", ErrCheckpoint, len(c.Suspects), MaxSuspects)
	}
	return nil
}

// Checkpoints remembers looks that broke off, one for each target.
type Checkpoints interface {
	// Checkpoint is the target's; nil when there is none or it is older than
	// CheckpointLifetime.
	Checkpoint(ctx context.Context, uri string) (*Checkpoint, error)
	// SaveCheckpoint puts the checkpoint in the place of the target's last one. It is
	// durable before the next, and nothing else of the ledger needs to know of the
	// target or the pass. ErrCheckpoint when it is not whole.
	SaveCheckpoint(ctx context.Context, passID, uri string, c Checkpoint) error
	// DropCheckpoint forgets it: the look came to its end.
	DropCheckpoint(ctx context.Context, uri string) error
}
