package reconcile

import (
	"bytes"
	"encoding/json"
	"time"
)

// Pass is the one document of a pass (contract: JSON). Arrays are never null,
// times are UTC, and null means unknown.
type Pass struct {
	PassID            string          `json:"pass_id"`
	Mode              string          `json:"mode"`
	ToolVersion       string          `json:"tool_version"`
	Actor             string          `json:"actor"`
	Host              string          `json:"host"`
	Reason            *string         `json:"reason"`
	StartedAt         time.Time       `json:"started_at"`
	FinishedAt        time.Time       `json:"finished_at"`
	Exit              Exit            `json:"exit"`
	Scope             Scope           `json:"scope"`
	Coverage          Coverage        `json:"coverage"`
	Totals            Totals          `json:"totals"`
	Targets           []TargetResult  `json:"targets"`
	Findings          []Finding       `json:"findings"`
	FindingsTruncated bool            `json:"findings_truncated,omitempty"`
	ReportURI         *string         `json:"report_uri,omitempty"`
	Repairs           []RepairOutcome `json:"repairs"`
	// Posts and Merges are what the pass did for others after its own work.
	Posts  []PostOutcome  `json:"posts"`
	Merges []MergeOutcome `json:"merges"`
}

// Scope is what was asked to be looked at.
type Scope struct {
	Versions      Versions `json:"versions"`
	Depth         Depth    `json:"depth"`
	Roles         []Role   `json:"roles"`
	TargetsFilter []string `json:"targets_filter"`
}

// Coverage is how much of it was looked at. Ratio is null when there was nothing.
type Coverage struct {
	References int64    `json:"references"`
	Checked    int64    `json:"checked"`
	Ratio      *float64 `json:"ratio"`
}

// Totals are the sums of a pass. Targets equals the sum of TargetsByState.
type Totals struct {
	Targets        int64             `json:"targets"`
	TargetsByState map[State]int64   `json:"-"`
	References     int64             `json:"references"`
	Checked        int64             `json:"checked"`
	Verdicts       map[Verdict]int64 `json:"verdicts"`
	Flapped        int64             `json:"flapped"`
	Carried        int64             `json:"findings_carried"`
	// Deferred targets were left for the next pass by the budget, and not looked at.
	Deferred int64 `json:"deferred"`
	// RefetchDeferred objects could be brought back and were left for the next pass by
	// the budget of bytes or objects; restores from older versions count as well.
	RefetchDeferred int64    `json:"refetch_deferred"`
	RowsAtRisk      int64    `json:"rows_at_risk"`
	RowsDropped     int64    `json:"rows_dropped"`
	BytesRestored   int64    `json:"bytes_restored"`
	Requests        Requests `json:"requests"`
}

// Requests counts what was sent to stores.
type Requests struct {
	Head      int64 `json:"head"`
	Get       int64 `json:"get"`
	List      int64 `json:"list"`
	Put       int64 `json:"put"`
	Throttled int64 `json:"throttled"`
	Retried   int64 `json:"retried"`
}

// TargetResult is one target's line of a pass.
type TargetResult struct {
	Target             string  `json:"target"`
	Store              string  `json:"store"`
	Kind               string  `json:"kind"`
	URI                string  `json:"uri"`
	Version            *uint64 `json:"version"`
	State              State   `json:"state"`
	Reason             *string `json:"reason"`
	References         int64   `json:"references"`
	Checked            int64   `json:"checked"`
	Findings           int64   `json:"findings"`
	RowsAtRisk         *int64  `json:"rows_at_risk"`
	LiveRows           *int64  `json:"live_rows"`
	Fragments          *int64  `json:"fragments"`
	PendingGenerations *int64  `json:"pending_generations"`
	// LeakedGenerations are flushed generations that merges left behind: bytes, and no
	// damage.
	LeakedGenerations *int64       `json:"leaked_generations"`
	LeakedBytes       *int64       `json:"leaked_bytes"`
	Registry          *string      `json:"registry"`
	NotChecked        []NotChecked `json:"not_checked"`
}

// NotChecked says that a role exists on the target and was not looked at.
type NotChecked struct {
	Role   Role   `json:"role"`
	Count  *int64 `json:"count"`
	Reason string `json:"reason"`
}

// RepairOutcome is one repair, planned or done.
type RepairOutcome struct {
	RepairID         string           `json:"repair_id"`
	Target           string           `json:"target"`
	Store            string           `json:"store"`
	Action           Action           `json:"action"`
	State            string           `json:"state"`
	Trigger          string           `json:"trigger"`
	TriggerError     *string          `json:"trigger_error"`
	ReadVersion      *uint64          `json:"read_version"`
	CommittedVersion *uint64          `json:"committed_version"`
	TransactionUUID  *string          `json:"transaction_uuid"`
	Fragments        []RepairFragment `json:"fragments"`
	// Files are the objects that are brought back, or those of a dropped index entry, as
	// the metadata names them; what a dropped fragment misses stands in Fragments.
	Files         []string `json:"files"`
	RowsDropped   *int64   `json:"rows_dropped"`
	BytesRestored *int64   `json:"bytes_restored"`
	Source        *string  `json:"source"`
	// Proof says what proved a copy that was brought back; DurationMS (milliseconds) is
	// how long the attempt took. Null for other actions.
	Proof      *string `json:"proof"`
	DurationMS *int64  `json:"duration_ms"`
	Error      *string `json:"error"`
}

// RepairFragment is one fragment of a repair.
type RepairFragment struct {
	ID           uint64   `json:"id"`
	PhysicalRows *int64   `json:"physical_rows"`
	LiveRows     *int64   `json:"live_rows"`
	MissingFiles []string `json:"missing_files"`
}

// MarshalJSON writes a version of 0 as null: versions begin at 1, so 0 means that
// there is none to tell (a blob, a dataset without a manifest). A struct that
// embeds a Finding inherits this method and would lose its own members.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding // without this method
	b, err := json.Marshal(plain(f))
	if err != nil || f.Version != 0 {
		return b, err
	}
	// An unescaped quote cannot stand inside a JSON string, so the first match is
	// the member itself.
	return bytes.Replace(b, []byte(`"version":0,`), []byte(`"version":null,`), 1), nil
}

// MarshalJSON writes one targets_<state> member per state beside the others, and
// one member per verdict, zeros included: sums can be checked by the reader.
func (t Totals) MarshalJSON() ([]byte, error) {
	type plain Totals // without this method
	p := plain(t)
	p.Verdicts = make(map[Verdict]int64, len(verdictNames))
	for _, v := range Verdicts() {
		p.Verdicts[v] = t.Verdicts[v]
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	states := make(map[string]int64, len(stateNames))
	for _, s := range States() {
		states["targets_"+s.String()] = t.TargetsByState[s]
	}
	sb, err := json.Marshal(states)
	if err != nil {
		return nil, err
	}
	b = append(b[:len(b)-1], ',')
	return append(b, sb[1:]...), nil
}
