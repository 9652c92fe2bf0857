package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// says fails the test when a stream does not hold a text.
func (r result) says(stream string, want ...string) result {
	r.t.Helper()
	for _, w := range want {
		if !strings.Contains(stream, w) {
			r.t.Errorf("%v: no %q in\n%s", r.args, w, clip(stream))
		}
	}
	return r
}

func TestHelpEndsInExamplesAndExitCodes(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile(`(?m)^ {2,4}(\d+)  ([a-z_]+): `)
	for _, cmd := range []string{"", "check", "plan", "apply", "repair", "run", "probe", "findings", "repairs", "cooldowns", "passes", "targets", "status", "diff", "ack", "undo",
		"migrate", "migrate up", "migrate status", "explain", "demo", "config", "config validate", "version"} {
		t.Run("help "+cmd, func(t *testing.T) {
			t.Parallel()
			r := run(t, nil, append(strings.Fields(cmd), "-h")...).exit(reconcile.ExitClean)
			if r.stderr != "" {
				t.Errorf("stderr: %s", r.stderr)
			}
			_, tail, ok := strings.Cut(r.stdout, "\nExamples:\n")
			if !ok {
				t.Fatalf("no examples in\n%s", r.stdout)
			}
			rows := code.FindAllStringSubmatch(tail, -1)
			if len(rows) < 2 {
				t.Errorf("exit codes %q in\n%s", rows, tail)
			}
			for _, m := range rows {
				n, err := strconv.Atoi(m[1])
				if err != nil || reconcile.ExitCode(n).Name() != m[2] {
					t.Errorf("exit code %s is called %s", m[1], m[2])
				}
			}
		})
	}
}

func TestWrongWordsEndWithUsageAndTheNextStep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no command":                     {nil, "Commands:"},
		"a command that is not built":    {[]string{"report", "x"}, "this version has"},
		"a failure without its kind":     {[]string{"failures", "add"}, "--kind: say which kind"},
		"a mistyped command":             {[]string{"chekc"}, "did you mean check?"},
		"nothing to look at":             {[]string{"check"}, "reconcile check s3://bucket/prefix"},
		"a negative duration":            {[]string{"check", "x", "--confirm-after", "-5s"}, "negative"},
		"an unknown word":                {[]string{"check", "x", "--depth=deepest"}, "head, footer, checksum"},
		"an unknown flag":                {[]string{"check", "x", "--fix"}, "See 'reconcile check -h'"},
		"a scheme that is not built":     {[]string{"check", "abfss://c@h/p"}, "is not built in this version"},
		"a ledger that is none":          {[]string{"check", "x", "--database", "mysql://h/d"}, "postgres://… or sqlite:FILE"},
		"a plan without a place":         {[]string{"plan", "x"}, "-o FILE"},
		"an end given before it happens": {[]string{"check", "x", "--confirmed-before=2030-01-01"}, "unknown flag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, nil, tt.args...).exit(reconcile.ExitUsage)
			r.says(r.stderr, tt.want)
			if r.stdout != "" {
				t.Errorf("stdout: %s", r.stdout)
			}
		})
	}
}

func TestFlagsMayStandBehindArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := run(t, nil, "check", dir, "--output", "json", "-q").exit(reconcile.ExitFailed)
	if d := r.pass(); d.Exit.Name != "failed" || len(d.Targets) != 0 {
		t.Errorf("%+v", d)
	}
	r.says(r.stderr, "no Lance dataset at or below "+dir)
}

func TestExplainReadsArgumentsAndStdin(t *testing.T) {
	t.Parallel()
	r := run(t, nil, "explain", "lance error: Not found: rk/x.rollout.lance/_indices/6376100b-22cc-4e54-8cfe-1be9b01a3fd5/index.idx", "--output=json").exit(reconcile.ExitClean)
	var doc map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if doc["role"] != "index" || doc["damage"] != "missing" || doc["target"] != "x" {
		t.Errorf("%v", doc)
	}
	cmd := command(t.Context(), t, t.TempDir(), nil, "explain", "-")
	cmd.Stdin = strings.NewReader("status code: 503 Service Unavailable: SlowDown\n")
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "damage  throttled") {
		t.Errorf("%v\n%s", err, out)
	}
	run(t, nil, "explain", "it rains").exit(reconcile.ExitClean).says(run(t, nil, "explain", "it rains").stdout, "damage  unknown")
}

func TestConfigValidateNamesEveryMistake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "reconcile.yaml")
	if err := os.WriteFile(file, []byte("stores:\n- name: a\n  uri: ftp://x\nverify: {confirm_after: -1s}\nretry: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runIn(t, dir, nil, "config", "validate").exit(reconcile.ExitUsage)
	r.says(r.stderr, "reconcile.yaml:3: stores[0].uri:", "reconcile.yaml:4: verify.confirm_after:", "reconcile.yaml:5: retry: unknown key")
	r = runIn(t, dir, nil, "check").exit(reconcile.ExitUsage)
	r.says(r.stderr, "reconcile.yaml:3:", "reconcile.yaml:4:", "reconcile.yaml:5:")
}

// The configuration that the README shows is valid and asks for nothing that is
// not built.
func TestTheReadmesConfigurationIsValid(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "reconcile.yaml")
	if err := os.WriteFile(file, []byte(readmeBlock(t, "```yaml\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, []string{"RECONCILE_CONFIG=" + file}, "config", "validate").exit(reconcile.ExitClean)
	if r.stdout != file+": ok\n" {
		t.Errorf("stdout: %s", r.stdout)
	}
}

func TestVersionNamesTheBuild(t *testing.T) {
	t.Parallel()
	r := run(t, nil, "version", "--output", "json").exit(reconcile.ExitClean)
	r.says(r.stdout, `"version"`, `"revision"`, `"go_version": "go1.`)
}

// readmeBlock is the first block of the README that begins with mark.
func readmeBlock(t *testing.T, mark string) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), mark)
	if !ok {
		t.Fatalf("no %q in the README", mark)
	}
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("a block of the README does not end")
	}
	return block
}

func TestTheReadmeShowsWhatTheDemoPrints(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	r := run(t, nil, "demo", "--dir", dir).exit(reconcile.ExitClean)
	printed := strings.ReplaceAll(r.stdout, dir, "/tmp/reconcile-demo")
	shown := readmeBlock(t, "-->\n```\n")
	at := 0
	for part := range strings.SplitSeq(shown, "…\n") {
		i := strings.Index(printed[at:], part)
		if i < 0 {
			t.Fatalf("the README shows\n%s\nand the demo prints\n%s", part, printed[at:])
		}
		at += i + len(part)
	}
}

// The demo leaves what it promises: stores that a check finds damaged, and reports.
func TestWhatTheDemoSuggestsWorks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	run(t, nil, "demo", "--keep-damage", "--dir", dir).exit(reconcile.ExitClean)
	plan := filepath.Join(dir, "plan.json")
	r := run(t, nil, "plan", filepath.Join(dir, "stores"), "-o", plan, "--confirm-after", "1s", "--output", "json").exit(reconcile.ExitDivergence)
	d := r.pass()
	if len(d.Findings) != 6 || len(d.Repairs) != 0 {
		t.Errorf("%d findings, %d repairs", len(d.Findings), len(d.Repairs))
	}
	text, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		PlanVersion int `json:"plan_version"`
		Actions     []struct{ Target, Action string }
	}
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range p.Actions {
		got[a.Target] = a.Action
	}
	want := map[string]string{"exp-0001": "drop_fragment", "exp-0003": "drop_fragment", "generic:traces": "drop_index", "datagen:checkpoints": "drop_index"}
	if p.PlanVersion != 1 || len(got) != len(want) {
		t.Errorf("plan version %d, actions %v, want %v", p.PlanVersion, got, want)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: action %q, want %q", k, got[k], v)
		}
	}
	out := run(t, nil, "plan", filepath.Join(dir, "stores"), "-o", "-", "--confirm-after", "1s", "--target", "exp-0004").exit(reconcile.ExitClean).stdout
	if !json.Valid([]byte(out)) || !strings.Contains(out, `"actions": []`) {
		t.Errorf("the plan of a clean table on stdout: %s", out)
	}
}

// A signal ends the wait for the second look; what was found until then is one
// valid document, nobody is called missing, and no report is written.
func TestASignalPrintsWhatWasFoundUntilThen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	run(t, nil, "demo", "--keep-damage", "--dir", dir).exit(reconcile.ExitClean)
	for sig, want := range map[syscall.Signal]reconcile.ExitCode{syscall.SIGINT: reconcile.ExitInterrupted, syscall.SIGTERM: reconcile.ExitTerminated} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			reports := filepath.Join(t.TempDir(), "reports")
			cmd := command(t.Context(), t, t.TempDir(), nil, "check", filepath.Join(dir, "stores"), "--confirm-after", "90s", "--output", "json", "--log-level", "info", "--report", reports)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			logs, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			first := make([]byte, 1)
			if _, err := io.ReadFull(logs, first); err != nil { // the look has begun
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			start := time.Now()
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(logs)
			if err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Fatalf("ended with %v", err)
			}
			r := result{t: t, args: cmd.Args[1:], code: exit.ExitCode(), stdout: stdout.String(), stderr: string(first) + string(rest), took: time.Since(start)}
			d := r.exit(want).pass()
			r.says(r.stderr, "interrupted")
			if r.took > 10*time.Second {
				t.Errorf("ended %v after the signal", r.took)
			}
			if d.Exit.Name != "interrupted" || len(d.Targets) == 0 {
				t.Errorf("exit %+v, %d targets", d.Exit, len(d.Targets))
			}
			for _, f := range d.Findings {
				if f.Verdict != "undecided" {
					t.Errorf("%s %s is %s without a second look", f.Target, f.Path, f.Verdict)
				}
			}
			if done, err := filepath.Glob(filepath.Join(reports, "*", "*", "*", "_SUCCESS")); err != nil || len(done) != 0 {
				t.Errorf("finished reports: %v, %v", done, err)
			}
		})
	}
}
