package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/report"
)

// demoConfirmAfter keeps the demo short; nothing writes to its tables meanwhile.
const demoConfirmAfter = time.Second

func (a *app) demoCommand() *cobra.Command {
	var dir string
	var verbose bool
	cmd := &cobra.Command{
		Use: "demo [flags]", Short: "Damage copies of real tables and find every damage",
		Long: `demo copies small tables, written by several releases of the real Lance library, to
a new temporary folder, damages them as storage does, and runs the same check as the
check command. It ends with 0 when it found every planted damage and nothing else.
It needs no account and no server, and leaves the folder for a closer look.`,
		Example: "  reconcile demo\n  reconcile demo --dir /tmp/reconcile-demo --verbose",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := demoFolder(dir)
			if err != nil {
				return err
			}
			return a.demo(cmd.Context(), root, verbose)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "put everything below this new or empty `FOLDER`")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list every finding and every target in the text")
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

func (a *app) demo(ctx context.Context, root string, verbose bool) error {
	stores, reports := filepath.Join(root, "stores"), filepath.Join(root, "reports")
	planted, err := plantDemo(stores)
	if err != nil {
		return failure(fmt.Errorf("prepare the demo: %w", err))
	}
	fmt.Fprintf(a.stdout, "Copied %d tables that the real Lance library wrote to\n  %s\n\nThen storage went wrong:\n", len(demoTables), stores)
	for _, p := range planted {
		fmt.Fprintf(a.stdout, "  %-20s %s\n    %s\n", p.target, p.told, p.path)
	}
	for _, t := range healthyDemoTargets() {
		fmt.Fprintf(a.stdout, "  %-20s stays whole\n", t)
	}
	fmt.Fprintln(a.stdout)

	s := demoSettings(stores, reports)
	fmt.Fprintf(a.stdout, "$ reconcile check %s %s\n", stores, strings.Join(s.command.Flags, " "))
	l, err := a.look(ctx, s, newProgress("auto", a.logFlags.quiet, a.console, a.console.w), nil)
	if l == nil {
		return err
	}
	if err := a.printPass(l.pass, &lookFlags{output: "text", verbose: verbose}, s); err != nil {
		return failure(err)
	}
	if l.interrupted != nil || err != nil {
		return cmpErr(failure(err), exitWith(l.pass.Exit.Code))
	}
	return a.judgeDemo(planted, l.pass.Findings, root)
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// demoSettings are those of a plain check of the demo's folder.
func demoSettings(stores, reports string) *settings {
	f := &lookFlags{}
	cmd := &cobra.Command{Use: "check"}
	f.add(cmd.Flags())
	s := &settings{
		places: []place{{uri: stores, versions: reconcile.VersionsRetained}}, mode: "off",
		confirmAfter: demoConfirmAfter, minManifestAge: f.minManifestAge.Std(), requestTimeout: f.requestTimeout.Std(),
		targetTimeout: time.Minute, concurrency: int(f.concurrency), reportURI: reports,
		policy:  reconcile.Policy{Limits: reconcile.DefaultLimits()},
		command: report.Command{URIs: []string{stores}, Flags: []string{"--versions=retained", "--confirm-after=1s"}},
	}
	s.stores.RequestTimeout = s.requestTimeout
	return s
}

// judgeDemo compares what was found with what was planted.
func (a *app) judgeDemo(planted []plantedDamage, findings []reconcile.Finding, root string) error {
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
	stores := filepath.Join(root, "stores")
	findingFiles := filepath.Join(root, "reports", "report=findings", "*", "*", "*.parquet")
	_, err := fmt.Fprintf(a.stdout, `
All %d planted damages were found, and nothing else.

Look further:
  reconcile check %s --output json
  reconcile plan %s -o %s --confirm-after 1s
  reconcile explain 'Not found: %s/exp-0001.rollout.lance/%s'
  duckdb -c "SELECT target, role, verdict, path FROM '%s'"
  rm -r %s
`, len(planted), stores, stores, filepath.Join(root, "plan.json"), strings.TrimPrefix(stores, "/"), planted[0].path, findingFiles, root)
	if err == nil && runByGo() {
		_, err = fmt.Fprintln(a.stdout, "\nNo binary is installed: read \"reconcile\" as \"go run ./cmd/reconcile\".")
	}
	return failure(err)
}

// runByGo reports whether "go run" built this program for this one run.
func runByGo() bool {
	return strings.Contains(os.Args[0], string(filepath.Separator)+"go-build") && !strings.HasSuffix(os.Args[0], ".test")
}
