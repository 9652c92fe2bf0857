package reconcile

// ExitCode is the process exit code: public surface, the same in help, docs and
// the Kubernetes failure policy.
type ExitCode int

// The exit codes.
const (
	ExitClean        ExitCode = 0
	ExitFailed       ExitCode = 1
	ExitUsage        ExitCode = 2
	ExitDivergence   ExitCode = 3
	ExitIncomplete   ExitCode = 4
	ExitRefused      ExitCode = 5
	ExitCommitFailed ExitCode = 6
	ExitLocked       ExitCode = 10
	ExitInterrupted  ExitCode = 130
	ExitTerminated   ExitCode = 143
)

// Exit is the code with its name.
type Exit struct {
	Code ExitCode `json:"code"`
	Name string   `json:"name"`
}

// ExitDoc is one line of the table that help and docs print.
type ExitDoc struct {
	Code          ExitCode
	Name, Meaning string
}

// ExitDocs lists every exit code, in numeric order.
func ExitDocs() []ExitDoc {
	return []ExitDoc{
		{ExitClean, "clean", "everything promised is there (`repaired` when something was repaired and verified)"},
		{ExitFailed, "failed", "could not run: bucket or root absent, database or report unreachable, or nothing to check"},
		{ExitUsage, "usage", "wrong command line, configuration or plan file"},
		{ExitDivergence, "divergence", "complete; damage remains"},
		{ExitIncomplete, "incomplete", "something could not be judged"},
		{ExitRefused, "refused", "an interlock refused a repair that was due"},
		{ExitCommitFailed, "commit_failed", "a commit was tried and did not land, or its outcome is unknown or not recorded"},
		{ExitLocked, "locked", "another pass holds every target"},
		{ExitInterrupted, "interrupted", "SIGINT: no new write is begun, what was found is printed; a second signal, a second or more later, ends the process at once"},
		{ExitTerminated, "interrupted", "SIGTERM: the same"},
	}
}

// Name is the public name of a code.
func (c ExitCode) Name() string {
	for _, d := range ExitDocs() {
		if d.Code == c {
			return d.Name
		}
	}
	return "failed"
}

// exitPrecedence: the first of these that applies wins (docs/operations.md).
var exitPrecedence = []ExitCode{ExitInterrupted, ExitTerminated, ExitUsage, ExitFailed, ExitCommitFailed, ExitRefused, ExitIncomplete, ExitDivergence, ExitLocked, ExitClean}

// WorstExit is the code that a process with all these outcomes ends with.
// Without any it is ExitClean.
func WorstExit(codes ...ExitCode) ExitCode {
	for _, p := range exitPrecedence {
		for _, c := range codes {
			if c == p {
				return p
			}
		}
	}
	return ExitClean
}
