package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// printedCommands are the lines that a text tells its reader to run, each once.
func printedCommands(text, verb string) []string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "reconcile "+verb+" ") && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// pasted runs a printed line by a shell, as a person does.
func pasted(t *testing.T, dir, home, line string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(bin, "reconcile")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + home}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the code says what the error does
	return result{t: t, args: []string{line}, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// Whoever pastes one printed command after the other ends with a repaired table: each
// looks as the first did, at tables that are too young for the default as well.
func TestPrintedCommandsLeadToTheRepair(t *testing.T) {
	t.Parallel()
	dir, home, stores := t.TempDir(), t.TempDir(), demoStores(t)
	check := pasted(t, dir, home, "reconcile check "+stores+" --confirm-after 1s --min-manifest-age 0s")
	plans := printedCommands(check.stdout, "plan")
	if len(plans) == 0 {
		t.Fatalf("no plan is proposed:\n%s", check.stdout)
	}
	applied := 0
	name := regexp.MustCompile(`-o plan\.json$`)
	for _, line := range plans {
		// Another name than the proposed one: the next step must speak of the file that is there.
		plan := pasted(t, dir, home, name.ReplaceAllString(line, "-o plan2.json"))
		next := printedCommands(plan.stdout, "apply")
		if strings.Contains(plan.stdout, "plan plan2.json: 0 steps") {
			if len(next) > 0 {
				t.Errorf("an empty plan is to be carried out:\n%s", plan.stdout)
			}
			continue
		}
		if len(next) != 1 || !strings.HasPrefix(next[0], "reconcile apply plan2.json ") {
			t.Errorf("after a plan: %q, and not to apply it:\n%s", next, plan.stdout)
			continue
		}
		done := pasted(t, dir, home, next[0])
		if done.code != int(reconcile.ExitClean) && done.code != int(reconcile.ExitDivergence) || strings.Contains(done.stdout, "refused") {
			t.Errorf("%s: exit %d\n%s%s", next[0], done.code, done.stdout, done.stderr)
		}
		if strings.Contains(done.stdout, "applied") {
			applied++
		}
	}
	if applied == 0 {
		t.Errorf("nothing was repaired by %q", plans)
	}
}
