package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/servertest"
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
	long(t)
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

// A store that answers at once is not one that is too slow: what is said of it is its own
// cause, and what to do about that.
func TestTheAdviceNamesWhyTheStoreDidNotLetUs(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	keys := []string{"AWS_ACCESS_KEY_ID=someone", "AWS_SECRET_ACCESS_KEY=secret", "AWS_REGION=us-east-1"}
	for _, tt := range []struct {
		name     string
		prefix   string
		rule     servertest.Rule
		env      []string
		reason   string
		says     string
		saysNone string
	}{
		{"nobody listens", "a", servertest.Rule{}, append(slices.Clone(keys), "AWS_ENDPOINT_URL=http://"+nobody.Addr().String()), "unreachable", "Compare the endpoint", "in time"},
		{"nobody to sign as", "b", servertest.Rule{}, []string{"AWS_ENDPOINT_URL=http://" + nobody.Addr().String(), "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true"}, "no_credentials", "AWS_ACCESS_KEY_ID", "in time"},
		{"a name that no bucket can have", "c", servertest.Rule{Op: "LIST", Key: "c", Status: 400, Code: "InvalidBucketName"}, s.Env(), "bad_request", "HTTP 400 InvalidBucketName", "in time"},
		{"a wrong secret", "d", servertest.Rule{Op: "LIST", Key: "d", Status: 403, Code: "SignatureDoesNotMatch"}, s.Env(), "bad_credentials", "does not take the keys", "rights below"},
		{"an unknown key", "e", servertest.Rule{Op: "LIST", Key: "e", Status: 403, Code: "InvalidAccessKeyId"}, s.Env(), "bad_credentials", "does not take the keys", "rights below"},
		{"a session that has expired", "f", servertest.Rule{Op: "LIST", Key: "f", Status: 400, Code: "ExpiredToken"}, s.Env(), "bad_credentials", "session has expired", "in time"},
		{"a right that is missing", "g", servertest.Rule{Op: "LIST", Key: "g", Status: 403, Code: "AccessDenied"}, s.Env(), "access_denied", "two rights below", "keys"},
	} {
		if tt.rule.Op != "" {
			s.Add(tt.rule)
		}
		r := run(t, tt.env, "check", "s3://"+s.Bucket+"/"+tt.prefix, "--confirm-after", "1s").exit(reconcile.ExitIncomplete)
		said := strings.Join(strings.Fields(r.stdout), " ")
		if !strings.Contains(said, "("+tt.reason+")") || !strings.Contains(said, tt.says) || strings.Contains(said, tt.saysNone) {
			t.Errorf("%s:\n%s", tt.name, r.stdout)
		}
	}
}
