package ledger

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Filter chooses rows of a list. The zero value chooses all.
type Filter struct {
	// Targets are patterns as path.Match has them, except that * also matches "/". A
	// row is chosen when one of them matches its target's name, its name with the
	// store and "/" in front, or its URI.
	Targets []string
	// Since leaves out what was last touched before (ledger's clock).
	Since time.Time
	// States are, for findings: open, resolved, acknowledged, or a verdict; for
	// repairs: their states; for cooldowns: active, inactive; for targets: their last
	// state; for passes: running, or the name of an exit code; for failures: open,
	// handled. Any of them chooses.
	States []string
	// Limit 0 is no limit.
	Limit int
}

// ErrBadPattern: a pattern of a Filter cannot be read.
var ErrBadPattern = errors.New("bad target pattern")

// Validate returns ErrBadPattern, naming the pattern, when one cannot be read.
func (f Filter) Validate() error {
	for _, p := range f.Targets {
		if _, err := path.Match(flat(p), ""); err != nil {
			return fmt.Errorf("%w %q", ErrBadPattern, p)
		}
	}
	return nil
}

// Matches reports whether a target is chosen by name.
func (f Filter) Matches(t Target) bool {
	if len(f.Targets) == 0 {
		return true
	}
	for _, p := range f.Targets {
		for _, name := range []string{t.Name, t.Store + "/" + t.Name, t.URI} {
			if ok, err := path.Match(flat(p), flat(name)); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// flat makes path.Match treat "/" as any other character.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x01") }

// PassRow is one pass as the ledger holds it. The totals are nil until it finished.
type PassRow struct {
	PassID           string     `json:"pass_id"`
	Mode             string     `json:"mode"`
	ToolVersion      string     `json:"tool_version"`
	Actor            string     `json:"actor"`
	Host             string     `json:"host"`
	Reason           *string    `json:"reason"`
	StartedAt        time.Time  `json:"started_at"`
	FinishedAt       *time.Time `json:"finished_at"`
	ExitCode         *int64     `json:"exit_code"`
	ExitName         *string    `json:"exit_name"`
	ScopeVersions    string     `json:"scope_versions"`
	ScopeDepth       string     `json:"scope_depth"`
	CoverageRatio    *float64   `json:"coverage_ratio"`
	Targets          *int64     `json:"targets"`
	Checked          *int64     `json:"checked"`
	RowsAtRisk       *int64     `json:"rows_at_risk"`
	RowsDropped      *int64     `json:"rows_dropped"`
	FindingsSeen     int64      `json:"findings_seen"`
	FindingsResolved int64      `json:"findings_resolved"`
	Repairs          int64      `json:"repairs"`
	RepairsApplied   int64      `json:"repairs_applied"`
	ReportURI        *string    `json:"report_uri"`
}

// TargetHealth is how one target stands.
type TargetHealth struct {
	Target
	// State is that of the last pass that met it; nil when there is none on record.
	State               *string    `json:"state"`
	Reason              *string    `json:"reason"`
	Version             *int64     `json:"version"`
	HighestVersion      *int64     `json:"highest_version"`
	LastSeenAt          time.Time  `json:"last_seen_at"`
	LastCheckedAt       *time.Time `json:"last_checked_at"`
	OpenFindings        int64      `json:"open_findings"`
	DamagedObjects      int64      `json:"damaged_objects"`
	Acknowledged        int64      `json:"acknowledged"`
	RowsAtRisk          *int64     `json:"rows_at_risk"`
	DamagedSince        *time.Time `json:"damaged_since"`
	CheckCooldownUntil  *time.Time `json:"check_cooldown_until"`
	RepairCooldownUntil *time.Time `json:"repair_cooldown_until"`
	UnsettledRepairs    int64      `json:"unsettled_repairs"`
	LastRepairedAt      *time.Time `json:"last_repaired_at"`
	RowsDropped         int64      `json:"rows_dropped"`
}

// Status is the state of everything.
type Status struct {
	Now     time.Time `json:"now"`
	Targets int64     `json:"targets"`
	// OpenByVerdict counts the open findings that are not harmless; Acknowledged and
	// DamagedObjects are among them.
	OpenByVerdict   map[reconcile.Verdict]int64 `json:"open_by_verdict"`
	DamagedObjects  int64                       `json:"damaged_objects"`
	DamagedTargets  int64                       `json:"damaged_targets"`
	Acknowledged    int64                       `json:"acknowledged"`
	RowsAtRisk      int64                       `json:"rows_at_risk"`
	ActiveCooldowns map[Kind]int64              `json:"active_cooldowns"`
	Unsettled       int64                       `json:"unsettled_repairs"`
	PendingFailures int64                       `json:"pending_failures"`
	// OpenPosts are to be sent still; FailedPosts were refused or given up in the last
	// seven days.
	OpenPosts   int64 `json:"open_posts"`
	FailedPosts int64 `json:"failed_posts"`
	// Locked lists the targets that somebody works on.
	Locked []LockRow `json:"locked"`
	// LastPass is the newest. LastClean is the newest that ended with exit code 0 of
	// those that had targets and were not narrowed to some of them (an empty
	// Scope.TargetsFilter).
	LastPass  *PassRow `json:"last_pass"`
	LastClean *PassRow `json:"last_clean_pass"`
}

// LockRow is a lock that is held.
type LockRow struct {
	TargetURI  string    `json:"target_uri"`
	Owner      string    `json:"owner"`
	Epoch      int64     `json:"epoch"`
	AcquiredAt time.Time `json:"acquired_at"`
	LeaseUntil time.Time `json:"lease_until"`
}

// Diff is what changed between two passes. Each finding stands in one list.
type Diff struct {
	From PassRow `json:"from"`
	To   PassRow `json:"to"`
	// New: seen by To and not by From. Persisting: seen by both. Resolved: seen by
	// From, and seen resolved since, by To at the latest.
	New        []Finding `json:"new"`
	Persisting []Finding `json:"persisting"`
	Resolved   []Finding `json:"resolved"`
	// NotLookedAt: seen by From, and nothing that To saw tells.
	NotLookedAt []Finding `json:"not_looked_at"`
}

// States of a handed-in failure.
const (
	FailureOpen    = "open"
	FailureHandled = "handled"
)

// TaskFailure is a handed-in failure.
type TaskFailure struct {
	ID   int64  `json:"failure_id"`
	Kind string `json:"kind"`
	// Target is what its system calls it; empty when only the text tells.
	Target string `json:"target"`
	Error  string `json:"error"`
	// State is FailureOpen or FailureHandled.
	State string `json:"state"`
	// SeenCount is how often it was handed in.
	SeenCount   int64     `json:"seen_count"`
	FirstSeenAt time.Time `json:"first_seen_at"`
	LastSeenAt  time.Time `json:"last_seen_at"`
	// The rest is nil while it is open.
	HandledAt       *time.Time `json:"handled_at"`
	HandledPassID   *string    `json:"handled_pass_id"`
	HandledRepairID *string    `json:"handled_repair_id"`
	HandledNote     *string    `json:"handled_note"`
}

// Handling says what answered a handed-in failure. Each may be empty.
type Handling struct {
	// PassID is the pass whose look answered it.
	PassID string
	// RepairID is the verified repair that mended what it speaks of.
	RepairID string
	Note     string
}

// ProbeConditionalPut names the conditional-write test of a store root.
const ProbeConditionalPut = "conditional_put"

// ProbeLifetime is how long its result stands.
const ProbeLifetime = 24 * time.Hour

// Probe is the result of a self-test.
type Probe struct {
	// RootURI is canonical.
	RootURI string
	// Name of the test, such as ProbeConditionalPut.
	Name   string
	Passed bool
	// Detail may be empty.
	Detail, Host, ToolVersion string
	// ProbedAt is set by the ledger.
	ProbedAt time.Time
}
