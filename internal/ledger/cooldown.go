package ledger

import (
	"math"
	"time"
)

// Kind is the kind of work that cools down; each on its own.
type Kind string

// The kinds.
const (
	KindCheck    Kind = "check"
	KindRepair   Kind = "repair"
	KindMergeWAL Kind = "merge_wal"
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{KindCheck, KindRepair, KindMergeWAL} }

// CooldownPolicy says when failing work is left alone, and for how long.
type CooldownPolicy struct {
	// After so many failures in a row; 0 means never.
	After int64
	// Base is the length of the first cooldown; each further failure multiplies it by
	// Factor (2 when 0), up to Max.
	Base   time.Duration
	Factor float64
	Max    time.Duration
}

// DefaultCooldown is 10 minutes after the third failure, doubling up to 6 hours.
func DefaultCooldown() CooldownPolicy {
	return CooldownPolicy{After: 3, Base: 10 * time.Minute, Factor: 2, Max: 6 * time.Hour}
}

// DefaultRefetch is 10 minutes after the first failure, doubling up to 24 hours.
func DefaultRefetch() CooldownPolicy {
	return CooldownPolicy{After: 1, Base: 10 * time.Minute, Factor: 2, Max: 24 * time.Hour}
}

// Length of the cooldown that follows so many failures in a row; 0 is none.
func (p CooldownPolicy) Length(failures int64) time.Duration {
	if p.After <= 0 || failures < p.After || p.Base <= 0 {
		return 0
	}
	factor := p.Factor
	if factor < 1 { // also not set
		factor = 2
	}
	d := float64(p.Base) * math.Pow(factor, float64(failures-p.After))
	if d >= float64(p.Max) { // also what overflowed
		return p.Max
	}
	return time.Duration(d)
}

// Failure is an attempt that ran and did not end well.
type Failure struct {
	Kind   Kind
	Target string // canonical URI
	// Class is a word for machines (server_error, conflict, timeout), Text for people.
	Class, Text string
}

// Cooldown is how often work failed in a row, and until when it is left alone.
type Cooldown struct {
	Kind                Kind       `json:"kind"`
	TargetURI           string     `json:"target_uri"`
	Target              *string    `json:"target"`
	Store               *string    `json:"store"`
	ConsecutiveFailures int64      `json:"consecutive_failures"`
	CooldownUntil       *time.Time `json:"cooldown_until"`
	LastError           *string    `json:"last_error"`
	LastErrorClass      *string    `json:"last_error_class"`
	LastFailedAt        *time.Time `json:"last_failed_at"`
	LastSucceededAt     *time.Time `json:"last_succeeded_at"`
	// Active reports that CooldownUntil is not over.
	Active bool `json:"active"`
	// Entered is set by Fail alone: this failure put work on cooldown that was not
	// cooling down. It is what is warned of and counted, once.
	Entered bool `json:"-"`
}

// RefetchFailure is a failed attempt to fetch an object from peers.
type RefetchFailure struct {
	FindingID string
	Target    string // canonical URI
	// PeersSaidNo said explicitly that they do not have the object.
	PeersSaidNo []string
	// Disproved says of peers which copy failed its proof, in the caller's words. Those
	// of earlier failures stay; a later word about the same peer replaces its own.
	Disproved map[string]string
	Text      string
}

// Refetch is the state of an object's attempts.
type Refetch struct {
	FindingID     string
	Attempts      int64
	NextAttemptAt time.Time
	// Due reports that NextAttemptAt has come.
	Due         bool
	PeersSaidNo []string
	// Disproved is as in RefetchFailure, of all failures so far; never nil.
	Disproved map[string]string
	LastError string
}
