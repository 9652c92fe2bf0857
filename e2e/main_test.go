// Package e2e drives the built binary as a user does and looks at what a user
// sees: exit code, stdout, stderr, the bucket and the reports.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "reconcile-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "reconcile")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "github.com/rocketkeep/reconcile/cmd/reconcile")...).CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// result is one run of the program.
type result struct {
	t              *testing.T
	args           []string
	code           int
	stdout, stderr string
	took           time.Duration
}

// runTimeout ends a run that hangs: no test waits longer on purpose.
const runTimeout = 2 * time.Minute

// run runs the program with an environment of its own: only PATH and a home that
// is a temporary folder, and env on top.
func run(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return runIn(t, t.TempDir(), env, args...)
}

// runIn runs the program in a working directory.
func runIn(t *testing.T, dir string, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	cmd := command(ctx, t, dir, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	r := result{t: t, args: args, stdout: stdout.String(), stderr: stderr.String(), took: time.Since(start)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		t.Fatalf("%v did not end within %v\n%s", args, runTimeout, r.stderr)
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil:
		t.Fatalf("%v: %v", args, err)
	}
	return r
}

func command(ctx context.Context, t *testing.T, dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	home := t.TempDir()
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + filepath.Join(home, "state"), "TMPDIR=" + os.TempDir()}, env...)
	return cmd
}

// exit fails the test when the program ended with another code.
func (r result) exit(want reconcile.ExitCode) result {
	r.t.Helper()
	if r.code != int(want) {
		r.t.Errorf("%v: exit %d, want %d\n--- stdout\n%s--- stderr\n%s", r.args, r.code, want, clip(r.stdout), clip(r.stderr))
	}
	return r
}

// pass is the JSON document on stdout, whose exit code must be the process's own.
func (r result) pass() document {
	r.t.Helper()
	var d document
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		r.t.Fatalf("%v: stdout is not one JSON document: %v\n--- stdout\n%s--- stderr\n%s", r.args, err, clip(r.stdout), clip(r.stderr))
	}
	if d.Exit.Code != r.code {
		r.t.Errorf("%v: exit %d, the document says %d", r.args, r.code, d.Exit.Code)
	}
	return d
}

func clip(s string) string {
	if len(s) > 4000 {
		return s[:4000] + "…\n"
	}
	return s
}

// document is the pass as scripts read it, decoded apart from the program's own
// types so that a change of a public name shows.
type document struct {
	PassID string `json:"pass_id"`
	Exit   struct {
		Code int    `json:"code"`
		Name string `json:"name"`
	} `json:"exit"`
	Coverage struct {
		References int64    `json:"references"`
		Checked    int64    `json:"checked"`
		Ratio      *float64 `json:"ratio"`
	} `json:"coverage"`
	Totals   map[string]any   `json:"totals"`
	Targets  []target         `json:"targets"`
	Findings []finding        `json:"findings"`
	Repairs  []map[string]any `json:"repairs"`
}

type target struct {
	Target     string  `json:"target"`
	State      string  `json:"state"`
	Reason     *string `json:"reason"`
	Registry   *string `json:"registry"`
	Version    *uint64 `json:"version"`
	References int64   `json:"references"`
	Checked    int64   `json:"checked"`
	NotChecked []struct {
		Role   string `json:"role"`
		Count  *int64 `json:"count"`
		Reason string `json:"reason"`
	} `json:"not_checked"`
}

type finding struct {
	FindingID      string   `json:"finding_id"`
	Target         string   `json:"target"`
	Role           string   `json:"role"`
	Path           string   `json:"path"`
	URL            string   `json:"url"`
	Verdict        string   `json:"verdict"`
	Reason         *string  `json:"reason"`
	HTTPStatus     *int     `json:"http_status"`
	ErrorCode      *string  `json:"error_code"`
	RowsAtRisk     *int64   `json:"rows_at_risk"`
	Scopes         []string `json:"scopes"`
	ProposedAction string   `json:"proposed_action"`
	BlockedBy      []string `json:"blocked_by"`
	PeersAsked     []string `json:"peers_asked"`
}

// brief is "target role verdict path" of each finding, in the document's order.
func (d document) brief() []string {
	out := []string{}
	for _, f := range d.Findings {
		out = append(out, strings.Join([]string{f.Target, f.Role, f.Verdict, f.Path}, " "))
	}
	return out
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// long marks a test that takes a good part of a minute. `make e2e` asks for those
// with RECONCILE_TEST_E2E=all; `make test` passes over them.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("RECONCILE_TEST_E2E") != "all" {
		t.Skip("long; make e2e runs it")
	}
}
