package reconcile

// PostOutcome is what became of telling one hook of one repair in this pass.
type PostOutcome struct {
	RepairID string `json:"repair_id"`
	Target   string `json:"target"`
	Store    string `json:"store"`
	// URL is without user and query. Of a post that was not sent and whose hook is
	// configured no more it is "template " and what was written.
	URL string `json:"url"`
	// State is open (the next pass tries again), delivered, refused or given_up.
	State string `json:"state"`
	// Attempts are those of this pass.
	Attempts int64   `json:"attempts"`
	Status   *int64  `json:"status"`
	Error    *string `json:"error"`
}

// MergeOutcome is what one worker answered when it was asked to merge the pending
// generations of one target.
type MergeOutcome struct {
	Target   string `json:"target"`
	Store    string `json:"store"`
	Endpoint string `json:"endpoint"`
	// Status is that of the answer; nil when there was none.
	Status *int64 `json:"status"`
	// Reclaimed counts the generations that are merged and gone; 0 also when the
	// worker has none of the target (404); nil when unknown.
	Reclaimed  *int64  `json:"reclaimed"`
	Error      *string `json:"error"`
	DurationMS int64   `json:"duration_ms"`
}
