package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/reconcile"
)

// build says which program this is.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	// Modified: the working tree held changes that the revision does not.
	Modified  bool   `json:"modified"`
	Time      string `json:"time"`
	GoVersion string `json:"go_version"`
	Platform  string `json:"platform"`
}

// thisBuild reads what the Go linker recorded. Unknown is an empty string; the
// version of a build from a working tree without tags is "devel".
func thisBuild() build {
	b := build{Version: "devel", GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version [flags]", Short: "Print which build this is",
		Long:    "version prints the version, the revision of its source and the Go release that it was built with.",
		Example: "  reconcile version\n  reconcile version --output json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if output == "json" {
				return failure(a.printJSON(b))
			}
			revision := b.Revision
			if revision == "" {
				revision = "unknown"
			} else if b.Modified {
				revision += " (modified)"
			}
			_, err := fmt.Fprintf(a.stdout, "reconcile %s\nrevision  %s\ngo        %s %s\n", b.Version, revision, b.GoVersion, b.Platform)
			return failure(err)
		},
	}
	outputFlag(cmd.Flags(), &output)
	setExits(cmd, reconcile.ExitClean, reconcile.ExitUsage)
	return cmd
}

// printJSON writes one document to stdout.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// noArguments refuses words that are no flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("%s takes no arguments, and %q is one", wordsOf(cmd), args[0])
	}
	return nil
}
