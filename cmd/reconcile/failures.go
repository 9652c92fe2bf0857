package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/explain"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/open"
	"github.com/rocketkeep/reconcile/reconcile"
)

// failuresCommand lists what was handed in; its own command hands in.
func (a *app) failuresCommand() *cobra.Command {
	cmd := a.listCommand(list{
		name: "failures", short: "List failures that other systems handed in, and hand one in",
		long: `failures lists the failures of other systems' tasks that were handed in, the newest
first, with what their texts speak of and what answered them. Without --state it lists
those that no pass has answered yet; all asks for all. The ledger in Postgres also takes
them by INSERT INTO reconcile.task_failures (kind, target, error), as role
reconcile_intake. The next pass looks at their targets first; nothing is ever repaired
because of a text, only because of what the looks proved.`,
		example: "  reconcile failures\n  reconcile failures --target 'generic:*' --state handled --since 7d\n  reconcile failures --state all --output json\n" +
			"  reconcile failures add --kind compact --target exp-1 --error 'Not found: …'",
		states: []string{ledger.FailureOpen, ledger.FailureHandled, stateAll}, usual: []string{ledger.FailureOpen}, show: showFailures,
	})
	cmd.AddCommand(a.addFailureCommand())
	return cmd
}

// failureRow is one handed-in failure with what its text speaks of.
type failureRow struct {
	ledger.TaskFailure
	// Named is the target as it was handed in; nil when only the text names it.
	Named *string `json:"target"`
	Hint  hint    `json:"hint"`
}

// hint is an explanation as lists show it.
type hint struct {
	Role   *string        `json:"role"`
	Damage explain.Damage `json:"damage"`
	Target *string        `json:"target"`
	Path   *string        `json:"path"`
}

func hintOf(e explain.Explanation) hint {
	return hint{known(e.Role.String()), e.Damage, known(e.Target), known(e.Path)}
}

// shortError is how much of a text one line of a list shows.
const shortError = 80

func showFailures(ctx context.Context, a *app, l ledger.Ledger, f ledger.Filter, asJSON bool) error {
	rows, err := failureRows(ctx, l, f)
	if err != nil || asJSON {
		return orJSON(a, rows, err)
	}
	lines := make([][]string, len(rows))
	for i, r := range rows {
		answer := cmp.Or(deref(r.HandledRepairID), deref(r.HandledNote))
		text := []rune(strings.Join(strings.Fields(r.Error), " "))
		if len(text) > shortError {
			text = append(text[:shortError], '…')
		}
		lines[i] = []string{plain(r.ID), r.Kind, cmp.Or(r.Target, deref(r.Hint.Target)), r.Hint.Damage.String(), deref(r.Hint.Role), plain(r.SeenCount), clock(r.LastSeenAt), r.State, answer, string(text)}
	}
	return columns(a.stdout, "FAILURE KIND TARGET DAMAGE ROLE SEEN LAST STATE ANSWER ERROR", lines)
}

// failureRows reads the failures of a filter. One without a target goes by the one
// that its text names.
func failureRows(ctx context.Context, l ledger.Ledger, f ledger.Filter) ([]failureRow, error) {
	all := f
	if len(f.Targets) > 0 {
		all.Targets, all.Limit = nil, 0
	}
	fs, err := l.ListFailures(ctx, all)
	if err != nil {
		return nil, err
	}
	rows := []failureRow{}
	for _, x := range fs {
		e := explain.Classify(x.Error)
		if !f.Matches(ledger.Target{Name: cmp.Or(x.Target, e.Target)}) {
			continue
		}
		x.Error = explain.Redact(x.Error)
		if rows = append(rows, failureRow{x, known(x.Target), hintOf(e)}); f.Limit > 0 && len(rows) == f.Limit {
			break
		}
	}
	return rows, nil
}

// kindOfTask is a word as schedulers name their tasks.
var kindOfTask = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

func (a *app) addFailureCommand() *cobra.Command {
	var f ledgerFlags
	var kind, target, text string
	cmd := &cobra.Command{
		Use: "add --kind KIND --error TEXT [flags]", Short: "Hand in the failure of a task", Args: noArguments,
		Long: `add hands in the failure of another system's task. The same failure again is counted
while it is open. The next pass of this ledger looks at its target first; when the look
proves damage and a repair is made, the text is the repair's trigger. Signatures and
keys in the text are left out. The target is a name (exp-1, generic:x), a name behind
its store (rocketkeep/exp-1) or a URI; without --target the text must name it.`,
		Example: `  reconcile failures add --kind compact --target exp-1 --error 'Not found: …'
  tail -1 log | reconcile failures add --kind scan --target generic:x --error -
  reconcile failures add --kind scan --error 'Not found: x.lance/data/01.lance'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := a.failureFrom(kind, target, text)
			if err != nil {
				return err
			}
			return f.write(cmd.Context(), func(l ledger.Ledger) error {
				if err := l.AddFailure(cmd.Context(), x.Kind, x.Target, x.Error); err != nil {
					return failure(err)
				}
				return failure(a.printHandedIn(x, f.output))
			})
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&kind, "kind", "", "`KIND` of the task, one word as its system names it: compact, merge_wal, scan (required)")
	cmd.Flags().StringVar(&target, "target", "", "`TARGET` that the task worked on; else the one that the text names")
	cmd.Flags().StringVar(&text, "error", "", "`TEXT` of its failure; - reads it from stdin (required)")
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage)
	return cmd
}

// maxTargetName is what the ledger takes for the target of a failure, in characters.
const maxTargetName = 4096

// failureFrom checks what is handed in.
func (a *app) failureFrom(kind, target, text string) (failureRow, error) {
	var x failureRow
	switch {
	case kind == "":
		return x, usageError("--kind: say which kind of task failed, such as compact")
	case !kindOfTask.MatchString(kind):
		return x, usageError("--kind %q is no word of letters, digits, - _ and . (64 at most)", kind)
	case strings.ContainsAny(target, "\n\r\t\x00") || len([]rune(target)) > maxTargetName:
		return x, usageError("--target is no name or URI of one line")
	}
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(a.stdin, maxErrorText))
		if err != nil {
			return x, failure(fmt.Errorf("read stdin: %w", err))
		}
		text = string(b)
	}
	text = strings.TrimSpace(strings.ToValidUTF8(text, ""))
	if text == "" {
		return x, usageError("--error: the text is empty")
	}
	e := explain.Classify(text)
	target = strings.TrimSpace(target)
	if target == "" && e.Target == "" {
		return x, usageError("--target: name it, for the text does not")
	}
	x.Kind, x.Target, x.Error, x.Named, x.Hint = kind, target, explain.Redact(text), known(target), hintOf(e)
	return x, nil
}

func (a *app) printHandedIn(x failureRow, output string) error {
	if output == "json" {
		return a.printJSON(struct {
			Kind   string  `json:"kind"`
			Target *string `json:"target"`
			Error  string  `json:"error"`
			Hint   hint    `json:"hint"`
		}{x.Kind, x.Named, x.Error, x.Hint})
	}
	name := cmp.Or(x.Target, deref(x.Hint.Target))
	what := "the text names no damage"
	if role := deref(x.Hint.Role); x.Hint.Damage != explain.DamageUnknown {
		what = "the text speaks of: " + strings.TrimSpace(role+" "+x.Hint.Damage.String())
	}
	_, err := fmt.Fprintf(a.stdout, "handed in: %s of %s; %s\n", x.Kind, printable(name), printable(what))
	return err
}

// write opens the ledger for a command that writes to it: a file is made.
func (f *ledgerFlags) write(ctx context.Context, fn func(ledger.Ledger) error) error {
	s, err := f.settings()
	if err != nil {
		return err
	}
	url, _, err := s.ledgerURL()
	if err != nil {
		return ledgerError(err)
	}
	l, err := open.Ledger(ctx, url, thisBuild().Version)
	if err != nil {
		return ledgerError(err)
	}
	return errors.Join(fn(l), failure(l.Close()))
}
