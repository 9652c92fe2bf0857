package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Tests remember nothing in the home of whoever runs them.
func TestMain(m *testing.M) {
	state, err := os.MkdirTemp("", "reconcile-cmd-")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_STATE_HOME", state)
	os.Setenv("XDG_CACHE_HOME", state)
	code := m.Run()
	os.RemoveAll(state)
	os.Exit(code)
}

// here is this folder, whatever folder a test goes to.
var here, _ = os.Getwd()

// invoke runs the program in this process.
func invoke(t *testing.T, stdin string, args ...string) (code reconcile.ExitCode, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	c := run(args, strings.NewReader(stdin), &out, &err)
	return reconcile.ExitCode(c), out.String(), err.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join(here, "testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; go test -update writes it anew):\n%s", file, d)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"check"}, {"plan"}, {"apply"}, {"repair"}, {"run"}, {"probe"}, {"findings"}, {"repairs"}, {"cooldowns"}, {"passes"}, {"targets"}, {"status"}, {"diff"}, {"ack"}, {"undo"}, {"failures"}, {"failures", "add"},
		{"migrate"}, {"migrate", "up"}, {"migrate", "status"}, {"explain"}, {"demo"}, {"config"}, {"config", "validate"}, {"version"}} {
		name := "help/" + strings.Join(append([]string{"reconcile"}, args...), "-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := invoke(t, "", append(args, "-h")...)
			if code != reconcile.ExitClean || errs != "" {
				t.Errorf("exit %d, stderr %q", code, errs)
			}
			golden(t, name, out)
			for _, must := range []string{"\nUsage:\n", "\nExamples:\n", "\nExit codes:\n    0  clean"} {
				if !strings.Contains(out, must) {
					t.Errorf("no %q in\n%s", must, out)
				}
			}
			for line := range strings.Lines(out) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > helpWidth {
					t.Errorf("%d characters: %s", n, line)
				}
			}
		})
	}
}

// Wrong words end with 2, say what is wrong and where to read on, and put nothing
// on stdout.
func TestUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("RECONCILE_CONFIG", "")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad.yaml", "verify:\n  depth: deep\n  concurrency: 0\n")

	write("empty.yaml", "")
	write("one.yaml", "stores: [{name: a, uri: /x}]\n")
	write("full.yaml", "stores: [{name: a, uri: /x}]\nrepair: {mode: full}\n")
	write("merge.yaml", "stores: [{name: a, uri: /x}]\nmerge_wal: {endpoints: ['http://h'], sole_scheduler: true}\n")
	write("hook.yaml", "stores: [{name: a, uri: /x}]\nafter_repair: [{post: 'http://h/p', body: '{{json .Tarjet}}'}]\n")
	write("other.json", "{\"plan_version\": 7}\n")
	write("notes.txt", "somebody's work\n")
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"no command", nil, []string{"Commands:", "Exit codes:"}},
		{"a command of another version", []string{"verify", "x"}, []string{`unknown command "verify"`, "check"}},
		{"a mistyped command", []string{"chek"}, []string{"did you mean check?"}},
		{"a mistyped command of a group", []string{"config", "valdate"}, []string{"did you mean validate?"}},
		{"a group alone", []string{"config"}, []string{"reconcile: config needs a command"}},
		{"a repair of nothing", []string{"repair"}, []string{"reconcile: repair needs a target or a URI", "See 'reconcile repair -h'."}},
		{"two plans", []string{"apply", "a", "b"}, []string{"reconcile: apply takes one argument"}},
		{"nothing to look at", []string{"check"}, []string{"nothing to look at", "s3://bucket/prefix", "--config"}},
		{"a configuration without stores", []string{"check", "--config", "empty.yaml"}, []string{"nothing to look at"}},
		{"an unknown flag", []string{"check", "/x", "--frobnicate"}, []string{"--frobnicate", "See 'reconcile check -h'"}},
		{"a negative duration", []string{"check", "/x", "--confirm-after", "-1s"}, []string{"negative"}},
		{"a negative age", []string{"check", "/x", "--min-manifest-age=-1h"}, []string{"negative"}},
		{"a negative time-out", []string{"check", "/x", "--request-timeout=-1s"}, []string{"negative"}},
		{"no time for an answer", []string{"check", "/x", "--request-timeout=0s"}, []string{"--request-timeout"}},
		{"a duration without a unit", []string{"check", "/x", "--confirm-after", "60"}, []string{"90s, 15m"}},
		{"a second look that never comes", []string{"check", "/x", "--confirm-after", "forever"}, []string{"must end"}},
		{"a depth that is none", []string{"check", "/x", "--depth", "deep"}, []string{"head, footer, checksum"}},
		{"versions that are none", []string{"check", "/x", "--versions", "some"}, []string{"current, retained, all"}},
		{"an output that is none", []string{"check", "/x", "--output", "yaml"}, []string{"text, json"}},
		{"a progress that is none", []string{"check", "/x", "--progress", "bar"}, []string{"auto, always, never"}},
		{"a log format that is none", []string{"check", "/x", "--log-format", "xml"}, []string{"text, json"}},
		{"a log level that is none", []string{"check", "/x", "--log-level", "loud"}, []string{"debug, info, warn, error"}},
		{"no request at all", []string{"check", "/x", "--concurrency", "0"}, []string{"--concurrency 0"}},
		{"a ledger that is none", []string{"check", "/x", "--database", "mysql://u:hunter2@h/d"}, []string{"postgres://… or sqlite:FILE"}},
		{"a scheme that is not built", []string{"check", "az://c/p"}, []string{"az:// (Azure) is not built"}},
		{"a scheme that nobody knows", []string{"check", "foo://c/p"}, []string{"unknown scheme foo://"}},
		{"a report where nothing can be written", []string{"check", "/x", "--report", "gs://b/p"}, []string{"--report", "not built"}},
		{"a pattern that cannot be read", []string{"check", "/x", "--target", "["}, []string{"bad target pattern"}},
		{"a configuration that is not there", []string{"check", "--config", "none.yaml"}, []string{"none.yaml"}},
		{"a configuration with mistakes", []string{"check", "--config", "bad.yaml"}, []string{"bad.yaml:2: verify.depth", "bad.yaml:3: verify.concurrency"}},
		{"a plan without a file", []string{"plan", "/x"}, []string{"-o FILE"}},
		{"a plan over somebody's work", []string{"plan", "/x", "-o", "notes.txt"}, []string{"notes.txt", "not overwritten"}},
		{"a plan into a folder that is not there", []string{"plan", "/x", "-o", "none/plan.json"}, []string{"none"}},
		{"a plan over a folder", []string{"plan", "/x", "-o", "."}, []string{"a folder is no file"}},
		{"a plan and JSON on one stdout", []string{"plan", "/x", "-o", "-", "--output", "json"}, []string{"both want stdout"}},
		{"a plan from looks too near", []string{"plan", "/x", "-o", "p.json", "--confirm-after", "999ms"}, []string{"at least 1s apart"}},
		{"a mode that is none", []string{"plan", "/x", "-o", "p.json", "--mode", "on"}, []string{"off, restore, full"}},
		{"limits lifted for whatever is found", []string{"plan", "/x", "-o", "p.json", "--allow-mass-drop"}, []string{"--allow-mass-drop", "exactly one target"}},
		{"limits lifted for a pattern", []string{"run", "--config", "one.yaml", "--target", "x*", "--allow-mass-drop"}, []string{"--allow-mass-drop", "exactly one target"}},
		{"empty tables allowed for whatever is found", []string{"plan", "/x", "-o", "p.json", "--allow-empty-table"}, []string{"--allow-empty-table", "exactly one target"}},
		{"a version accepted for whatever is found", []string{"plan", "/x", "-o", "p.json", "--accept-version=3"}, []string{"--accept-version", "exactly one target"}},
		{"a repair of nothing", []string{"repair"}, []string{"needs a target"}},
		{"a repair of two", []string{"repair", "a", "b"}, []string{"takes one argument"}},
		{"a repair by name without stores", []string{"repair", "exp-1"}, []string{"nothing to look at"}},
		{"a repair from looks too near", []string{"repair", "/x/t.lance", "--confirm-after", "0s"}, []string{"at least 1s apart"}},
		{"a run from looks too near", []string{"run", "--config", "one.yaml", "--confirm-after", "10ms"}, []string{"at least 1s apart"}},
		{"a run that repairs without a ledger", []string{"run", "--config", "one.yaml", "--mode", "full"}, []string{"needs a ledger", "--database"}},
		{"a run that repairs by its configuration without a ledger", []string{"run", "--config", "full.yaml"}, []string{"needs a ledger"}},
		{"a run of a place", []string{"run", "/x"}, []string{"takes no arguments"}},
		{"merges without a ledger", []string{"run", "--config", "merge.yaml"}, []string{"merge_wal.endpoints need a ledger"}},
		{"a hook that cannot be filled in", []string{"run", "--config", "hook.yaml"}, []string{"hook.yaml:2: after_repair[0].body", "Tarjet"}},
		{"a plan that is not there", []string{"apply", "none.json"}, []string{"none.json"}},
		{"a plan that is none", []string{"apply", "notes.txt"}, []string{"notes.txt", "altered"}},
		{"a plan of another kind", []string{"apply", "other.json"}, []string{"not a plan file of version 1"}},
		{"a limit that is none", []string{"plan", "/x", "-o", "p.json", "--max-fraction", "2"}, []string{"at most 1"}},
		{"a limit below nothing", []string{"plan", "/x", "-o", "p.json", "--max-rows=-1"}, []string{"from 0 on"}},
		{"explain without a text", []string{"explain"}, []string{"needs an error text"}},
		{"explain with an empty text", []string{"explain", " "}, []string{"is empty"}},
		{"explain with an empty stdin", []string{"explain", "-"}, []string{"is empty"}},
		{"version with a word", []string{"version", "x"}, []string{"takes no arguments"}},
		{"validate without a file", []string{"config", "validate"}, []string{"no configuration"}},
		{"validate with mistakes", []string{"config", "validate", "--config", "bad.yaml"}, []string{"bad.yaml:2: verify.depth", "bad.yaml:3: verify.concurrency"}},
		{"a demo over somebody's work", []string{"demo", "--dir", "."}, []string{"not empty"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := invoke(t, "", tt.args...)
			if code != reconcile.ExitUsage || out != "" {
				t.Errorf("exit %d, stdout %q\n%s", code, out, errs)
			}
			for _, w := range tt.want {
				if !strings.Contains(errs, w) {
					t.Errorf("no %q in\n%s", w, errs)
				}
			}
			if strings.Contains(errs, "hunter2") {
				t.Errorf("a password is printed:\n%s", errs)
			}
		})
	}
	if b, err := os.ReadFile("notes.txt"); err != nil || string(b) != "somebody's work\n" {
		t.Errorf("notes.txt: %q, %v", b, err)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	const text = "lance error: Not found: rk/exp-0001.rollout.lance/_deletions/1-5-7.arrow, /a/src/local.rs:273:40"
	code, out, errs := invoke(t, text+"\n", "explain", "-")
	if code != reconcile.ExitClean || errs != "" {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
	golden(t, "explain/text", out)
	if _, again, _ := invoke(t, "", "explain", text); again != out {
		t.Errorf("from the command line:\n%s\nfrom stdin:\n%s", again, out)
	}
	if _, apart, _ := invoke(t, "", append([]string{"explain"}, strings.Fields(text)...)...); apart != out {
		t.Errorf("not quoted:\n%s", apart)
	}
	_, out, _ = invoke(t, "", "explain", "--output", "json", text)
	golden(t, "explain/json", out)
	code, out, _ = invoke(t, "", "explain", "--output=json", "the dog ate it")
	var doc map[string]any
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"role", "target", "path"} {
		if v, has := doc[k]; !has || v != nil {
			t.Errorf("%s is %v, want null", k, v)
		}
	}
	if doc["damage"] != "unknown" || code != reconcile.ExitClean {
		t.Errorf("damage %v, exit %d", doc["damage"], code)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("RECONCILE_CONFIG", "")
	if err := os.WriteFile("reconcile.yaml", []byte("stores: [{name: a, uri: s3://a, discover: registry, peers: [s3://b]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := invoke(t, "", "config", "validate")
	if code != reconcile.ExitClean || errs != "" || !strings.HasPrefix(out, "reconcile.yaml: ok\n") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if err := os.WriteFile("bad.yaml", []byte("verify:\n  depht: head\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = invoke(t, "", "config", "validate", "--output", "json", "--config", "bad.yaml")
	if code != reconcile.ExitUsage || errs != "" {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
	golden(t, "config/bad.json", out)
	_, out, _ = invoke(t, "", "config", "validate", "--output", "json")
	golden(t, "config/good.json", out)
	if err := os.WriteFile("absent.yaml", []byte("repair: {quarantine: /absent/folder}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = invoke(t, "", "config", "validate", "--config", "absent.yaml")
	if code != reconcile.ExitClean || out != "absent.yaml: ok\n" || !strings.HasPrefix(errs, "absent.yaml: warning: repair.quarantine: folder /absent/folder: no such file") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	_, out, _ = invoke(t, "", "config", "validate", "--output", "json", "--config", "absent.yaml")
	golden(t, "config/warned.json", out)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, errs := invoke(t, "", "version")
	if code != reconcile.ExitClean || errs != "" || !strings.HasPrefix(out, "reconcile ") || !strings.Contains(out, "\ngo        go1.") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	_, out, _ = invoke(t, "", "version", "--output", "json")
	var doc map[string]any
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"version", "revision", "modified", "time", "go_version", "platform"} {
		if _, has := doc[k]; !has {
			t.Errorf("no %s in %s", k, out)
		}
	}
}

func TestFlagsMayFollowArguments(t *testing.T) {
	t.Parallel()
	code, _, errs := invoke(t, "", "check", filepath.Join(t.TempDir(), "none"), "--quiet", "--output", "json")
	if code != reconcile.ExitFailed {
		t.Errorf("exit %d\n%s", code, errs)
	}
}

func TestTheDemoFindsWhatItPlanted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	code, out, errs := invoke(t, "", "demo", "--dir", dir)
	if code != reconcile.ExitClean || errs != "" {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, w := range []string{"All 6 planted damages were found, and nothing else.", "exp-0004             stays whole", "Repaired (exit 0, repaired): 6 of 8 targets repaired and verified.",
		"All 6 damages were repaired", "Clean (exit 0, clean)", "reconcile repairs --config " + dir, "ledger         " + dir} {
		if !strings.Contains(out, w) {
			t.Errorf("no %q in\n%s", w, out)
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "reports", "report=findings", "*", "*", "_SUCCESS"))
	if err != nil || len(found) != 3 {
		t.Errorf("finished reports of findings: %q, %v", found, err)
	}
	if code, _, errs := invoke(t, "", "demo", "--dir", dir); code != reconcile.ExitUsage || !strings.Contains(errs, "not empty") {
		t.Errorf("a second demo in the same folder: exit %d, %s", code, errs)
	}
}

func TestTheDemoFailsWhenFindingsAreNotWhatWasPlanted(t *testing.T) {
	t.Parallel()
	planted := []plantedDamage{{"a", "", "data/x", reconcile.RoleData, reconcile.Missing}}
	right := reconcile.Finding{Target: "a", Path: "data/x", Role: reconcile.RoleData, Verdict: reconcile.Missing}
	wrong := right
	wrong.Verdict = reconcile.Recoverable
	more := right
	more.Path = "data/y"
	for _, tt := range []struct {
		name     string
		findings []reconcile.Finding
		want     string
	}{
		{"nothing found", nil, "planted, and not found: a data/x"},
		{"another verdict", []reconcile.Finding{wrong}, "found data recoverable, planted data missing"},
		{"one too many", []reconcile.Finding{right, more}, "found, and not planted: a data/y"},
		{"the same twice", []reconcile.Finding{right, right}, "found, and not planted: a data/x"},
		{"exactly that", []reconcile.Finding{right}, "All 1 planted"},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		err := a.judgeDemo(planted, tt.findings)
		if (err == nil) != (tt.name == "exactly that") || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: %v\n%s", tt.name, err, out.String())
		}
	}
}

func TestAnUnknownCommandIsOneWhateverFlagsStandAroundIt(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, line := range []string{
		"nosuch -h", "-h nosuch", "nosuch --help", "nosuch x -o y", "-o y nosuch", "nosuch --output json", "--log-level debug nosuch -o y", "--log-level=debug nosuch", "--bogus=1 nosuch x",
		"-oy nosuch", "-- nosuch", "failures nosuch -h", "failures nosuch -o y", "failures -h nosuch", "failures --since 7d nosuch", "config nosuch --help", "migrate -x y nosuch", "help nosuch",
	} {
		code, out, errs := invoke(t, "", strings.Fields(line)...)
		word := "nosuch"
		if strings.HasPrefix(line, "help") {
			word = "help"
		}
		if code != reconcile.ExitUsage || out != "" || !strings.HasPrefix(errs, fmt.Sprintf("reconcile: unknown command %q", word)) {
			t.Errorf("%s: exit %d\n%s%s", line, code, out, errs)
		}
	}
	for line, want := range map[string]reconcile.ExitCode{"-h": 0, "check -h": 0, "failures -h": 0, "failures add -h": 0, "--log-level debug version": 0, "completion bash": 0, "__complete che": 0,
		"--bogus nosuch": 2, "": 2, "config": 2} {
		code, _, errs := invoke(t, "", strings.Fields(line)...)
		if code != want || strings.Contains(errs, "unknown command") {
			t.Errorf("%s: exit %d, want %d\n%s", line, code, want, errs)
		}
	}
}
