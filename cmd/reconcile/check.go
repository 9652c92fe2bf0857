package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/report"
)

func (a *app) checkCommand() *cobra.Command {
	var f lookFlags
	cmd := &cobra.Command{
		Use: "check [URI...] [flags]", Short: "Look at every object that tables reference; never write to a table",
		Long: `check finds the Lance datasets at or below each URI, reads their newest metadata, and
asks the object store for every object that it names. What is not there is looked at
a second time after --confirm-after, on newly read metadata, before it is called
missing. It sends HEAD, GET and LIST only, and needs no configuration. Without a URI
it looks at the stores of the configuration.`,
		Example: `  reconcile check s3://bucket/prefix
  reconcile check /srv/stores --target 'exp-*' --exclude '*-old'
  reconcile check s3://bucket/t.lance --versions retained --depth footer
  reconcile check s3://bucket/prefix --output json --report s3://ops/reconcile
  AWS_ENDPOINT_URL=http://127.0.0.1:9000 reconcile check s3://bucket/`,
		RunE: func(cmd *cobra.Command, uris []string) error {
			s, err := f.settings(cmd, uris)
			if err != nil {
				return err
			}
			l, err := a.look(cmd.Context(), s, newProgress(f.progress, a.logFlags.quiet, a.console, a.console.w), nil)
			return a.conclude(l, err, &f, s)
		},
	}
	f.add(cmd.Flags())
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage, reconcile.ExitDivergence, reconcile.ExitIncomplete, reconcile.ExitInterrupted, reconcile.ExitTerminated)
	return cmd
}

// conclude prints what was found, however the look ended, and gives the command's
// exit code.
func (a *app) conclude(l *looked, err error, f *lookFlags, s *settings) error {
	if l == nil {
		return err
	}
	if perr := a.printPass(l.pass, f, s); perr != nil {
		return failure(fmt.Errorf("print the result: %w", perr))
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "reconcile: %s\n", printable(oneLine(err)))
	}
	var interrupt *interruptError
	if errors.As(l.interrupted, &interrupt) {
		fmt.Fprintf(a.stderr, "reconcile: %v; what was found until then stands above\n", interrupt)
	}
	return exitWith(l.pass.Exit.Code)
}

func (a *app) printPass(p reconcile.Pass, f *lookFlags, s *settings) error {
	if f.output == "json" {
		return report.JSON(a.stdout, p)
	}
	width, tty := terminal(a.stdout) // 0, the usual width, where there is none
	return report.Text(a.stdout, p, report.TextOptions{Width: width, Color: tty && os.Getenv("NO_COLOR") == "", Command: s.command, Verbose: f.verbose, CanRepair: true, CanRestore: true})
}

// oneLine keeps joined errors on the line they are told on.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", ": ") }

// printable replaces what a terminal would act on. Whatever comes from outside (names,
// keys, answers, the ledger, the command line) goes through it on its way to a person;
// JSON keeps it exact, and the log quotes it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
