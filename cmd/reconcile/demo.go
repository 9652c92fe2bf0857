package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/report"
)

// demoConfirmAfter keeps the demo short; nothing writes to its tables meanwhile.
const demoConfirmAfter = time.Second

func (a *app) demoCommand() *cobra.Command {
	var dir string
	var verbose, keep bool
	cmd := &cobra.Command{
		Use: "demo [flags]", Short: "Damage copies of real tables, find and repair every damage",
		Long: `demo copies small tables, written by several releases of the real Lance library, to
a new temporary folder, damages them as storage does, and then does what check and run
do: it looks, repairs within the limits of the configuration that it writes, records
everything, and looks again. It ends with 0 when it found every planted damage and
nothing else, repaired it, and the last look is clean. It needs no account and no
server, and leaves the folder for a closer look.`,
		Example: "  reconcile demo\n  reconcile demo --dir /tmp/reconcile-demo --verbose\n  reconcile demo --dir /tmp/reconcile-demo --keep-damage",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := demoFolder(dir)
			if err != nil {
				return err
			}
			return a.demo(cmd.Context(), root, verbose, keep)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "put everything below this new or empty `FOLDER`")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list every finding and every target in the text")
	cmd.Flags().BoolVar(&keep, "keep-damage", false, "look only, and leave the damage for you to repair")
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage, reconcile.ExitInterrupted, reconcile.ExitTerminated)
	return cmd
}

// demoFolder is the folder that the demo may fill.
func demoFolder(dir string) (string, error) {
	if dir == "" {
		root, err := os.MkdirTemp("", "reconcile-demo-")
		return root, failure(err)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", failure(err)
		}
	case err != nil:
		return "", usageError("--dir: %w", err)
	case len(entries) > 0:
		return "", usageError("--dir %s: the folder is not empty; the demo damages only what it copied itself", dir)
	}
	root, err := filepath.Abs(dir)
	return root, failure(err)
}

func (a *app) demo(ctx context.Context, root string, verbose, keep bool) error {
	d := &demonstration{app: a, root: root, stores: filepath.Join(root, "stores"), config: filepath.Join(root, "reconcile.yaml"), verbose: verbose}
	// What is dropped is said in the text; on stderr it would be said twice.
	if log, err := (&logFlags{format: a.logFlags.format, level: "error"}).logger(a.stderr); err == nil && a.logFlags.level == "warn" {
		a.log = log
	}
	if err := d.plant(); err != nil {
		return failure(fmt.Errorf("prepare the demo: %w", err))
	}
	p, err := d.check(ctx)
	if err != nil {
		return err
	}
	if err := d.judge(p); err != nil || keep {
		return cmpErr(err, failure(d.pointers(keep)))
	}
	if err := d.repair(ctx); err != nil {
		return err
	}
	return failure(d.pointers(keep))
}

// demonstration is one run of the demo.
type demonstration struct {
	*app
	root, stores, config string
	verbose              bool
	planted              []plantedDamage
}

// demoConfig is the configuration of the demo: as in production, but that nothing
// waits, and that what is only reported by default is repaired as well.
const demoConfig = `database: %s
reports: {uri: %s}
stores:
  - {name: demo, uri: %s, versions: retained}
verify: {confirm_after: %s}
repair:
  mode: full
  drop_after: 0s                  # production waits for a second pass (1h)
  deletion_files: drop_fragment   # only reported by default
  partial_fragments: drop         # only reported by default
`

// plant copies the tables, damages them, and says so.
func (d *demonstration) plant() error {
	var err error
	if d.planted, err = plantDemo(d.stores); err != nil {
		return err
	}
	quote := func(s string) string { return strconv.Quote(strings.ReplaceAll(s, "$", "$$")) }
	text := fmt.Sprintf(demoConfig, quote("sqlite:"+filepath.Join(d.root, "ledger.db")), quote(filepath.Join(d.root, "reports")), quote(d.stores), demoConfirmAfter)
	if err := os.WriteFile(d.config, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(d.stdout, "Copied %d tables that the real Lance library wrote to\n  %s\n\nThen storage went wrong:\n", len(demoTables), d.stores)
	for _, p := range d.planted {
		fmt.Fprintf(d.stdout, "  %-20s %s\n    %s\n", p.target, p.told, p.path)
	}
	for _, t := range healthyDemoTargets() {
		fmt.Fprintf(d.stdout, "  %-20s stays whole\n", t)
	}
	_, err = fmt.Fprintln(d.stdout)
	return err
}

// check is "reconcile check --config …", its result printed.
func (d *demonstration) check(ctx context.Context) (reconcile.Pass, error) {
	s, err := d.settings(d.checkCommand())
	if err != nil {
		return reconcile.Pass{}, err
	}
	return d.pass(ctx, "check", s, nil)
}

// settings are those that a command has with the demo's configuration and no flag.
func (d *demonstration) settings(cmd *cobra.Command) (*settings, error) {
	f := &lookFlags{}
	own := &cobra.Command{Use: cmd.Name()}
	f.add(own.Flags())
	if err := own.ParseFlags([]string{"--config", d.config}); err != nil {
		return nil, err
	}
	if cmd.Name() != "run" {
		return f.settings(own, nil)
	}
	rf := &repairFlags{}
	rf.add(own.Flags(), "")
	return runSettings(own, f, rf)
}

// pass carries out a command and prints it as that command would.
func (d *demonstration) pass(ctx context.Context, name string, s *settings, judge func(*pass.Outcome) reconcile.ExitCode) (reconcile.Pass, error) {
	s.command = report.Command{Flags: []string{"--config=" + d.config}}
	fmt.Fprintf(d.stdout, "$ %s\n", report.ShellLine("reconcile", name, "--config", d.config))
	l, err := d.look(ctx, s, newProgress("auto", d.logFlags.quiet, d.console, d.console.w), judge)
	if l == nil {
		return reconcile.Pass{}, err
	}
	if err := d.printPass(l.pass, &lookFlags{output: "text", verbose: d.verbose}, s); err != nil {
		return l.pass, failure(err)
	}
	if l.interrupted != nil || err != nil {
		return l.pass, cmpErr(failure(err), exitWith(l.pass.Exit.Code))
	}
	return l.pass, nil
}

// repair is "reconcile run --config …" and a last look.
func (d *demonstration) repair(ctx context.Context) error {
	s, err := d.settings(d.runCommand())
	if err != nil {
		return err
	}
	fmt.Fprintln(d.stdout)
	p, err := d.pass(ctx, "run", s, func(o *pass.Outcome) reconcile.ExitCode { return repairAsked(o, s.mode) })
	if err != nil {
		return err
	}
	if p.Exit.Name != exitRepaired {
		fmt.Fprintf(d.stdout, "\nThe demo failed: what it planted was not repaired.\n")
		return exitWith(reconcile.ExitFailed)
	}
	fmt.Fprintln(d.stdout)
	if p, err = d.check(ctx); err != nil {
		return err
	}
	if p.Exit.Code != reconcile.ExitClean {
		fmt.Fprintf(d.stdout, "\nThe demo failed: damage is left after the repairs.\n")
		return exitWith(reconcile.ExitFailed)
	}
	_, err = fmt.Fprintf(d.stdout, "\nAll %d damages were repaired, each in a commit of its own, and the last look is clean.\n", len(d.planted))
	return failure(err)
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// judge says whether the look found what was planted, and nothing else.
func (d *demonstration) judge(p reconcile.Pass) error { return d.judgeDemo(d.planted, p.Findings) }

// pointers say where everything lies, and what reads it.
func (d *demonstration) pointers(keep bool) error {
	line := func(words ...string) string { return "  " + report.ShellLine(words...) + "\n" }
	next := line("reconcile", "repairs", "--config", d.config) + line("reconcile", "findings", "--config", d.config, "--state", "resolved")
	if keep {
		next = line("reconcile", "run", "--config", d.config) + line("reconcile", "plan", d.stores, "-o", filepath.Join(d.root, "plan.json"), "--confirm-after", "1s")
	}
	next += line("reconcile", "status", "--config", d.config) +
		line("reconcile", "explain", "Not found: "+strings.TrimPrefix(d.stores, "/")+"/exp-0001.rollout.lance/"+d.planted[0].path) +
		line("duckdb", "-c", "SELECT target, role, verdict, path FROM '"+filepath.Join(d.root, "reports", "report=findings", "*", "*", "*.parquet")+"'") +
		line("rm", "-r", d.root)
	_, err := fmt.Fprintf(d.stdout, `
Where everything lies:
  tables         %s
  configuration  %s
  ledger         %s
  reports        %s

Look further:
%s`, d.stores, d.config, filepath.Join(d.root, "ledger.db"), filepath.Join(d.root, "reports"), next)
	if err == nil && runByGo() {
		_, err = fmt.Fprintln(d.stdout, "\nNo binary is installed: read \"reconcile\" as \"go run ./cmd/reconcile\".")
	}
	return err
}

// judgeDemo compares what was found with what was planted.
func (a *app) judgeDemo(planted []plantedDamage, findings []reconcile.Finding) error {
	var wrong []string
	left := slices.Clone(planted)
	for _, f := range findings {
		i := slices.IndexFunc(left, func(p plantedDamage) bool { return p.target == f.Target && p.path == f.Path })
		switch {
		case i < 0:
			wrong = append(wrong, fmt.Sprintf("found, and not planted: %s %s is %s", f.Target, f.Path, f.Verdict))
		case left[i].verdict != f.Verdict || left[i].role != f.Role:
			wrong = append(wrong, fmt.Sprintf("%s %s: found %s %s, planted %s %s", f.Target, f.Path, f.Role, f.Verdict, left[i].role, left[i].verdict))
			fallthrough
		default:
			left = slices.Delete(left, i, i+1)
		}
	}
	for _, p := range left {
		wrong = append(wrong, fmt.Sprintf("planted, and not found: %s %s", p.target, p.path))
	}
	if len(wrong) > 0 {
		fmt.Fprintf(a.stdout, "\nThe demo failed:\n  %s\n", strings.Join(wrong, "\n  "))
		return exitWith(reconcile.ExitFailed)
	}
	_, err := fmt.Fprintf(a.stdout, "\nAll %d planted damages were found, and nothing else.\n", len(planted))
	return failure(err)
}

// runByGo reports whether "go run" built this program for this one run.
func runByGo() bool {
	return strings.Contains(os.Args[0], string(filepath.Separator)+"go-build") && !strings.HasSuffix(os.Args[0], ".test")
}
