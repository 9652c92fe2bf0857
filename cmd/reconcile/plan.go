package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

func (a *app) planCommand() *cobra.Command {
	var f lookFlags
	var rf repairFlags
	var to string
	cmd := &cobra.Command{
		Use: "plan [URI...] -o FILE [flags]", Short: "Look, then write down what a repair would do",
		Long: `plan looks as check does and writes a plan: the steps that a repair may carry out,
bound to the bytes that they were made from. It changes no table. What an interlock
forbids is not in the plan, and the command then ends with code 5. A plan lives for
24 hours; apply carries it out.`,
		Example: `  reconcile plan s3://bucket/prefix -o plan.json
  reconcile plan s3://bucket/prefix --target exp-1 --mode restore -o plan.json
  reconcile plan /srv/stores -o - | jq .actions`,
		RunE: func(cmd *cobra.Command, uris []string) error {
			s, err := f.settings(cmd, uris)
			if err != nil {
				return err
			}
			if err := rf.apply(cmd.Flags(), s, f.namesOne(uris)); err != nil {
				return err
			}
			if err := mayWritePlan(to, f.output, rf.dryRun); err != nil {
				return &exitError{code: reconcile.ExitUsage, err: err}
			}
			judge := func(o *pass.Outcome) reconcile.ExitCode { return repairAsked(o, s.mode) }
			l, err := a.look(cmd.Context(), s, newProgress(f.progress, a.logFlags.quiet, a.console, a.console.w), judge)
			if l == nil {
				return err
			}
			return a.concludePlan(l, err, &f, s, to)
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVarP(&to, "out", "o", "", "write the plan to this `FILE`; - is stdout (required without --dry-run)")
	rf.add(cmd.Flags(), modeFull)
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage, reconcile.ExitDivergence, reconcile.ExitIncomplete, reconcile.ExitRefused, reconcile.ExitInterrupted, reconcile.ExitTerminated)
	return cmd
}

// concludePlan writes the plan, then says what was found. An interrupted look
// makes no plan.
func (a *app) concludePlan(l *looked, lookErr error, f *lookFlags, s *settings, out string) error {
	written := "no plan is written: the look was interrupted"
	switch {
	case l.interrupted != nil:
	case s.repair.dryRun:
		written = "no plan is written: --dry-run"
	default:
		id, err := uuid.NewV7()
		if err != nil {
			return failure(err)
		}
		p, err := reconcile.NewPlan(reconcile.PlanSpec{
			ID: id.String(), CreatedAt: time.Now(), ToolVersion: l.pass.ToolVersion, Scope: l.pass.Scope, Limits: s.policy.Limits, Actions: planned(l.actions, s.mode),
		})
		if err != nil {
			return failure(fmt.Errorf("make plan: %w", err))
		}
		if err := a.writePlan(out, p); err != nil {
			return failure(err)
		}
		written = fmt.Sprintf("plan %s: %s, good until %s, digest %.12s", printable(out), count(p.Len(), "step"), p.ExpiresAt().Format(time.RFC3339), p.Digest())
		s.command.Plan = out
	}
	if out == "-" {
		return a.concludeQuietly(l, lookErr)
	}
	err := a.conclude(l, lookErr, f, s)
	if f.output == "text" {
		if _, werr := fmt.Fprintf(a.stdout, "\n%s\n", written); werr != nil {
			return failure(werr)
		}
	} else {
		fmt.Fprintf(a.stderr, "reconcile: %s\n", written)
	}
	return err
}

// concludeQuietly ends a command whose stdout holds the plan and nothing else.
func (a *app) concludeQuietly(l *looked, lookErr error) error {
	var exit *exitError
	if errors.As(lookErr, &exit) && exit.err != nil {
		return lookErr
	}
	fmt.Fprintf(a.stderr, "reconcile: %s, %s\n", count(len(l.pass.Findings), "finding"), l.pass.Exit.Name)
	return exitWith(l.pass.Exit.Code)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// planned are the actions that the mode allows.
func planned(actions []reconcile.PlanAction, mode string) []reconcile.PlanAction {
	switch mode {
	case modeFull:
		return actions
	case modeOff:
		return nil
	}
	return slices.DeleteFunc(slices.Clone(actions), func(a reconcile.PlanAction) bool { return a.Action.Destructive() })
}

// policyBlocks are decisions of the user, not refusals of an interlock.
var policyBlocks = []string{reconcile.BlockedPartialColumns, reconcile.BlockedDeletionPolicy, reconcile.BlockedDropAfter, reconcile.BlockedCoolingDown, reconcile.BlockedAcknowledged}

// repairAsked is the exit code of a look that was made for a repair: one that was due and that
// an interlock forbids is refused, and the target's state says so.
func repairAsked(o *pass.Outcome, mode string) reconcile.ExitCode {
	refused := map[string]bool{} // by store and target
	key := func(store, target string) string { return store + "\x00" + target }
	for _, f := range o.Findings {
		if slices.Contains(f.BlockedBy, reconcile.BlockedAcknowledged) {
			continue // a user took it on
		}
		due := f.ProposedAction != reconcile.ActionNone && (mode == modeFull || !f.ProposedAction.Destructive())
		if due && slices.ContainsFunc(f.BlockedBy, func(b string) bool { return !slices.Contains(policyBlocks, b) }) {
			refused[key(f.Store, f.Target)] = true
		}
		if f.Reason != nil && *f.Reason == reconcile.ReasonHigherVersionTrace {
			refused[key(f.Store, f.Target)] = true
		}
	}
	codes := []reconcile.ExitCode{o.Exit()}
	for i := range o.Targets {
		t := &o.Targets[i]
		switch {
		case t.State == reconcile.StateRepaired, t.State == reconcile.StateClean:
			// Nothing that is damaged is left of what was found.
		case t.State == reconcile.StateHalfDeleted, t.State == reconcile.StateRolledBack:
			codes = append(codes, reconcile.ExitRefused)
		case refused[key(t.Store, t.Target)]:
			codes = append(codes, reconcile.ExitRefused)
			if t.State == reconcile.StateDiverged {
				moveState(o, t, reconcile.StateRefused, t.Reason)
			}
		}
	}
	return reconcile.WorstExit(codes...)
}

// mayWritePlan refuses, before the look, a place that the plan cannot go to.
func mayWritePlan(to, output string, dryRun bool) error {
	switch {
	case dryRun:
		return nil
	case to == "":
		return errors.New("plan needs -o FILE, the file to write the plan to (- is stdout)")
	case to == "-" && output == "json":
		return errors.New("-o - and --output json both want stdout")
	case to == "-":
		return nil
	case strings.HasSuffix(to, "/"):
		return fmt.Errorf("-o %s: a folder is no file", to)
	}
	return checkPlanFile(to)
}
