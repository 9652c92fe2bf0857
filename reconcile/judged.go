package reconcile

// Judged is the error of a store that has looked inside an object by itself, because
// its answers to lighter questions cannot be trusted: the verdict stands as it is, with
// its reason. Neither Present nor Missing is said this way: attributes say the one,
// objstore.ErrNotExist the other.
type Judged struct {
	Verdict Verdict
	// Reason is for the finding.
	Reason string
	// Err is what was met; it may be nil.
	Err error
}

// Error implements error.
func (j *Judged) Error() string {
	s := j.Verdict.String()
	if j.Reason != "" {
		s += " (" + j.Reason + ")"
	}
	if j.Err != nil {
		s += ": " + j.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (j *Judged) Unwrap() error { return j.Err }

// Retryable is false: asking at once again gets the same, and may do harm.
func (j *Judged) Retryable() bool { return false }
