package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/reconcile"
)

func (a *app) configCommand() *cobra.Command {
	group := groupCommand("config", "Work on the configuration file")
	group.Long = "config holds commands that work on the configuration file."
	group.Example = "  reconcile config validate --config reconcile.yaml"
	group.AddCommand(a.configValidateCommand())
	return group
}

func (a *app) configValidateCommand() *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use: "validate [flags]", Short: "Say every mistake of the configuration file at once",
		Long: `validate reads the configuration as every command would and prints either ok or
every mistake, with its line and the path of its key. It asks no store and no
database. What it warns of, such as a folder of this host that is absent, is no
mistake and leaves the exit code.`,
		Example: `  reconcile config validate
  reconcile config validate --config /etc/reconcile.yaml --output json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			path, err := config.Find(file)
			if err != nil {
				return failure(err)
			}
			if path == "" {
				return usageError("no configuration: name it with --config or $%s, or put it at ./%s", config.EnvFile, config.DefaultFile)
			}
			cfg, err := config.Load(path)
			var warnings []config.Problem
			if err == nil {
				warnings = cfg.Warnings()
			}
			if output == "json" {
				return a.printValidation(path, err, warnings)
			}
			if err != nil {
				return configError(err)
			}
			for _, w := range warnings {
				fmt.Fprintln(a.stderr, printable(fmt.Sprintf("%s: warning: %s: %s", path, w.Path, w.Text)))
			}
			fmt.Fprintf(a.stdout, "%s: ok\n", printable(path))
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE`; else $"+config.EnvFile+", else ./"+config.DefaultFile+" if there is one")
	outputFlag(cmd.Flags(), &output)
	setExits(cmd, reconcile.ExitClean, reconcile.ExitUsage)
	return cmd
}

// configError: a configuration that cannot be read is a usage error like one that
// is wrong.
func configError(err error) error { return &exitError{code: reconcile.ExitUsage, err: err} }

func (a *app) printValidation(path string, err error, warnings []config.Problem) error {
	type problem struct {
		Line *int    `json:"line"`
		Path *string `json:"path"`
		Text string  `json:"text"`
	}
	doc := struct {
		File     string    `json:"file"`
		OK       bool      `json:"ok"`
		Problems []problem `json:"problems"`
		Warnings []problem `json:"warnings"`
		// NotBuilt is empty: this version does everything that a configuration can ask.
		NotBuilt []string `json:"not_built"`
	}{File: path, OK: err == nil, Problems: []problem{}, Warnings: []problem{}, NotBuilt: []string{}}
	for _, w := range warnings {
		doc.Warnings = append(doc.Warnings, problem{Path: known(w.Path), Text: w.Text})
	}
	var mistakes *config.Error
	switch {
	case errors.As(err, &mistakes):
		for _, p := range mistakes.Problems {
			q := problem{Path: known(p.Path), Text: p.Text}
			if p.Line > 0 {
				q.Line = &p.Line
			}
			doc.Problems = append(doc.Problems, q)
		}
	case err != nil:
		doc.Problems = append(doc.Problems, problem{Text: err.Error()})
	}
	if err := a.printJSON(doc); err != nil {
		return failure(err)
	}
	if !doc.OK {
		return &exitError{code: reconcile.ExitUsage}
	}
	return nil
}
