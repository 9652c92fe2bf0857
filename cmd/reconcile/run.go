package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// app is one invocation: where it reads and writes, and what every command needs.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	console        *console
	log            *slog.Logger
	logFlags       logFlags
}

// exitError ends the process with a code. A nil err means that everything there
// was to say has been said.
type exitError struct {
	code reconcile.ExitCode
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return e.code.Name()
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitWith is nil for a clean end, else an exitError without a message.
func exitWith(code reconcile.ExitCode) error {
	if code == reconcile.ExitClean {
		return nil
	}
	return &exitError{code: code}
}

func usageError(format string, args ...any) error {
	return &exitError{code: reconcile.ExitUsage, err: fmt.Errorf(format, args...)}
}

// failure is an error of running: a usage error when it is about what the user
// wrote, the signal's code when the work was interrupted, else exit 1.
func failure(err error) error {
	var parse *objstore.ParseError
	var mistakes *config.Error
	var interrupt *interruptError
	var exit *exitError
	switch {
	case err == nil || errors.As(err, &exit):
		return err
	case errors.As(err, &interrupt):
		return &exitError{code: interrupt.exit(), err: err}
	case errors.As(err, &parse), errors.As(err, &mistakes):
		return &exitError{code: reconcile.ExitUsage, err: err}
	}
	return &exitError{code: reconcile.ExitFailed, err: err}
}

// run is the whole program; its answer is the process's exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := withSignals(context.Background(), os.Exit)
	defer stop()
	c := &console{w: stderr}
	a := &app{stdin: stdin, stdout: stdout, stderr: c, console: c, log: slog.New(slog.DiscardHandler)}
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	if cmd, err := wrongCommand(root, args); err != nil {
		return int(a.finish(cmd, err))
	}
	cmd, err := root.ExecuteContextC(ctx)
	return int(a.finish(cmd, err))
}

// finish says what went wrong, and what to do about wrong words.
func (a *app) finish(cmd *cobra.Command, err error) reconcile.ExitCode {
	if err == nil {
		return reconcile.ExitClean
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		// What no command has wrapped is the command line itself.
		exit = &exitError{code: reconcile.ExitUsage, err: err}
	}
	if exit.err != nil {
		var mistakes *config.Error
		if errors.As(err, &mistakes) {
			for _, p := range mistakes.Problems {
				fmt.Fprintln(a.stderr, printable((&config.Error{File: mistakes.File, Problems: []config.Problem{p}}).Error()))
			}
		} else {
			fmt.Fprintf(a.stderr, "reconcile: %s\n", printable(oneLine(exit.err)))
		}
		if exit.code == reconcile.ExitUsage && mistakes == nil {
			fmt.Fprintf(a.stderr, "See '%s -h'.\n", cmd.CommandPath())
		}
	}
	return exit.code
}
