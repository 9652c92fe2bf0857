package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rocketkeep/reconcile/reconcile"
)

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "reconcile",
		Short: "Check that every file a Lance table references is in the object store",
		Long: `reconcile compares what the metadata of Lance tables promises with what the object
store holds, proves each difference by two looks apart in time, and writes
everything down. What is provably gone it repairs when told to: within limits,
recorded before it happens, in commits that the Lance library trusts.`,
		Example: `  reconcile demo                        find planted damage, no account needed
  reconcile check s3://bucket/prefix    look at every table below a prefix
  reconcile check /srv/stores --output json
  reconcile explain 'Not found: ...'    which damage does an engine's error mean`,
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(a.stderr, help(cmd))
			return &exitError{code: reconcile.ExitUsage}
		},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			log, err := a.logFlags.logger(a.stderr)
			if err == nil {
				a.log = log
			}
			return err
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _, _ = io.WriteString(cmd.OutOrStdout(), help(cmd)) })
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true}) // -h is the one way
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError("%w", err) })
	a.logFlags.add(root.PersistentFlags())
	setExits(root, reconcile.ExitClean, reconcile.ExitUsage)
	root.AddCommand(a.checkCommand(), a.planCommand(), a.applyCommand(), a.repairCommand(), a.runCommand(), a.probeCommand(), a.explainCommand(), a.demoCommand(),
		a.statusCommand(), a.failuresCommand(), a.diffCommand(), a.ackCommand(), a.undoCommand(), a.migrateCommand(), a.configCommand(), a.versionCommand())
	for _, x := range lists() {
		root.AddCommand(a.listCommand(x))
	}
	return root
}

// ofCobra are commands that cobra adds when it runs.
var ofCobra = []string{"completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}

// wrongCommand is the error of a line that names a command that is not there, whatever
// flags stand around the name: what these mean, -h included, only the command could tell.
func wrongCommand(root *cobra.Command, args []string) (*cobra.Command, error) {
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasAvailableSubCommands() {
		return nil, nil
	}
	word := firstWord(cmd, rest)
	if word == "" || cmd == root && slices.Contains(ofCobra, word) {
		return nil, nil
	}
	return cmd, unknownCommand(cmd, word)
}

// firstWord is the first of the arguments that is neither a flag nor its value; a flag
// that nobody knows takes one.
func firstWord(cmd *cobra.Command, args []string) string {
	cmd.InheritedFlags() // makes Flags whole
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch {
		case word == "--" && len(args) > 0:
			return args[0]
		case !strings.HasPrefix(word, "-") || word == "-":
			return word
		case strings.Contains(word, "=") || !takesValue(cmd.Flags(), word):
		case len(args) > 0:
			args = args[1:]
		}
	}
	return ""
}

func takesValue(fs *pflag.FlagSet, word string) bool {
	name, long := strings.CutPrefix(word, "--")
	if word == "-h" || name == "help" {
		return false
	}
	f := fs.Lookup(name)
	if !long && len(word) == 2 {
		f = fs.ShorthandLookup(word[1:])
	} else if !long {
		return false // its value stands behind its letter
	}
	return f == nil || f.NoOptDefVal == ""
}

// unknownCommand says what there is instead.
func unknownCommand(cmd *cobra.Command, name string) error {
	hint := ""
	if s := cmd.SuggestionsFor(name); len(s) > 0 {
		hint = "; did you mean " + strings.Join(s, " or ") + "?"
	} else {
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		hint = "; this version has " + strings.Join(names, ", ")
	}
	return usageError("unknown command %q%s", name, hint)
}

// wordsOf are the words of a command behind the program's name, which every message begins
// with already.
func wordsOf(cmd *cobra.Command) string {
	_, words, ok := strings.Cut(cmd.CommandPath(), " ")
	if !ok {
		return cmd.CommandPath()
	}
	return words
}

// groupCommand is a command that only holds others.
func groupCommand(use, short string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("%s needs a command", wordsOf(cmd))
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	setExits(c, reconcile.ExitClean, reconcile.ExitUsage)
	return c
}

// logAttrs of every line, so that lines of several runs can be told apart.
func (a *app) withPass(passID string) *slog.Logger { return a.log.With("pass_id", passID) }
