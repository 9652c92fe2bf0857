package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/explain"
	"github.com/rocketkeep/reconcile/reconcile"
)

// maxErrorText bounds what is read from stdin: an error text, not a log file.
const maxErrorText = 1 << 20

func (a *app) explainCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "explain 'ERROR TEXT'|- [flags]", Short: "Tell which damage an engine's error message speaks of",
		Long: `explain reads an error text of an engine and tells which object it speaks of, what
happened to it, and which command looks at it. It asks no store: what it says is
where to look, not what is true.`,
		Example: `  reconcile explain 'Not found: stores/x.rollout.lance/data/0101.lance'
  tail -1 worker.log | reconcile explain -
  reconcile explain --output json 'LanceError(IO): file size is too small'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("explain needs an error text, or - to read it from stdin")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text := strings.Join(args, " ") // a text that the shell took apart
			if text == "-" {
				b, err := io.ReadAll(io.LimitReader(a.stdin, maxErrorText))
				if err != nil {
					return failure(fmt.Errorf("read stdin: %w", err))
				}
				text = string(b)
			}
			if strings.TrimSpace(text) == "" {
				return usageError("the error text is empty")
			}
			return failure(a.printExplanation(explain.Classify(text), output))
		},
	}
	outputFlag(cmd.Flags(), &output)
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage)
	return cmd
}

func (a *app) printExplanation(e explain.Explanation, output string) error {
	if output == "json" {
		return a.printJSON(struct {
			Role        *string        `json:"role"`
			Damage      explain.Damage `json:"damage"`
			Target      *string        `json:"target"`
			Path        *string        `json:"path"`
			Meaning     string         `json:"meaning"`
			NextCommand string         `json:"next_command"`
		}{known(e.Role.String()), e.Damage, known(e.Target), known(e.Path), e.Words, e.NextCommand})
	}
	width, _ := terminal(a.stdout)
	_, err := io.WriteString(a.stdout, explanation(e, width))
	return err
}

// explanation is the text for people, in lines of a width; 0 breaks none. Names and the
// command stay whole, so that they can be copied.
func explanation(e explain.Explanation, width int) string {
	var b strings.Builder
	say := func(indent, text string) {
		if width == 0 {
			b.WriteString(indent + text + "\n")
			return
		}
		wrapAt(&b, width, indent, indent, text)
	}
	say("", e.Words)
	fmt.Fprintf(&b, "\ndamage  %s\n", e.Damage)
	for _, f := range [][2]string{{"role", e.Role.String()}, {"target", e.Target}, {"path", e.Path}} {
		if f[1] != "" {
			fmt.Fprintf(&b, "%-7s %s\n", f[0], printable(f[1]))
		}
	}
	fmt.Fprintf(&b, "\nNext: %s\n", printable(e.NextCommand))
	if strings.Contains(e.NextCommand, " URI") {
		say("      ", "(URI is the folder or bucket prefix that holds the table; the text does not show it)")
	}
	return b.String()
}

// known is nil for what is not told.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
