package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// allExits are those of the commands that repair.
func allExits() []reconcile.ExitCode {
	var out []reconcile.ExitCode
	for _, d := range reconcile.ExitDocs() {
		out = append(out, d.Code)
	}
	return out
}

func (a *app) repairCommand() *cobra.Command {
	var f lookFlags
	var rf repairFlags
	cmd := &cobra.Command{
		Use: "repair TARGET|URI [flags]", Short: "Look at one target, repair it now, and look again",
		Long: `repair looks at one target, plans, and carries the plan out at once: each repair is
written to the ledger before its effect, made in one commit that only lands if no
other writer was first, read back, and the target is looked at again. It ignores the
target's cooldown and the delay of drops. A target is named by its URI, or by its
name below the stores of the configuration.`,
		Example: `  reconcile repair s3://bucket/prefix/exp-1.rollout.lance
  reconcile repair exp-1 --config reconcile.yaml --reason 'incident 42'
  reconcile repair /srv/stores/t.lance --dry-run
  reconcile repair /srv/stores/t.lance --deletion-files drop_fragment`,
		Args: oneArgument("a target or a URI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.namedTarget(cmd, args[0])
			if err != nil {
				return err
			}
			if err := rf.apply(cmd.Flags(), s, true); err != nil {
				return err
			}
			// Whoever names a target knows that a part of its columns is lost.
			s.policy.DropPartialFragments, s.policy.NamedTarget = true, true
			s.repair.one, s.repair.carry, s.repair.needsLedger = true, true, true
			return a.repairPass(cmd, &f, s)
		},
	}
	f.add(cmd.Flags())
	rf.add(cmd.Flags(), modeFull)
	setExits(cmd, allExits()...)
	return cmd
}

// repairPass carries out one repairing pass and ends the command.
func (a *app) repairPass(cmd *cobra.Command, f *lookFlags, s *settings) error {
	cfg, err := f.loadConfig()
	if err != nil {
		return err
	}
	if s.after, err = afterOf(cmd.Flags(), cfg, s); err != nil {
		return err
	}
	if s.mode != modeOff {
		for _, p := range cfg.Warnings() {
			a.log.Warn("configuration", "key", p.Path, "problem", p.Text)
		}
	}
	var judge func(*pass.Outcome) reconcile.ExitCode
	if s.mode != modeOff && s.repair.plan == nil {
		judge = func(o *pass.Outcome) reconcile.ExitCode { return repairAsked(o, s.mode) }
	}
	l, err := a.look(cmd.Context(), s, newProgress(f.progress, a.logFlags.quiet, a.console, a.console.w), judge)
	return a.conclude(l, err, f, s)
}

func (a *app) runCommand() *cobra.Command {
	var f lookFlags
	var rf repairFlags
	cmd := &cobra.Command{
		Use: "run [flags]", Short: "One full pass by the configuration: look, repair, record, report",
		Long: `run is what a scheduler starts. It settles repairs that an earlier pass left open,
looks at every target of the configured stores, plans, repairs what repair.mode (or
--mode) allows, looks at the repaired targets again, records everything in the
ledger, and writes the reports. A fragment is dropped only when an earlier pass saw
it damaged repair.drop_after ago; work that keeps failing is left alone for a while.
At its end it tells others of repairs (after_repair) and has workers merge pending
write-ahead generations (merge_wal), where the configuration asks for that.`,
		Example: `  reconcile run --config /etc/reconcile.yaml
  reconcile run --config /etc/reconcile.yaml --mode off
  reconcile run --config /etc/reconcile.yaml --mode full --dry-run
  DATABASE_URL=postgres://… reconcile run --output json --log-format json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := runSettings(cmd, &f, &rf)
			if err != nil {
				return err
			}
			return a.repairPass(cmd, &f, s)
		},
	}
	f.add(cmd.Flags())
	rf.add(cmd.Flags(), "")
	setExits(cmd, allExits()...)
	return cmd
}

// runSettings are those of a scheduled pass: the configuration's, and what flags
// say otherwise.
func runSettings(cmd *cobra.Command, f *lookFlags, rf *repairFlags) (*settings, error) {
	s, err := f.settings(cmd, nil)
	if err != nil {
		return nil, err
	}
	cfg, err := f.loadConfig()
	if err != nil {
		return nil, err
	}
	s.mode = cfg.Repair.Mode
	if err := rf.apply(cmd.Flags(), s, f.namesOne(nil)); err != nil {
		return nil, err
	}
	if s.mode != modeOff && s.database.Reveal() == "" {
		return nil, usageError("run --mode %s needs a ledger: name one with database: in the configuration or with --database", s.mode)
	}
	s.repair.carry, s.repair.scheduled, s.repair.needsLedger = true, true, s.mode != modeOff
	s.repair.dropAfter, s.repair.retention = cfg.Repair.DropAfter.Std(), retention(cfg.Retention)
	return s, nil
}

func (a *app) applyCommand() *cobra.Command {
	var f lookFlags
	var rf repairFlags
	cmd := &cobra.Command{
		Use: "apply FILE [flags]", Short: "Carry out a plan or less, never more",
		Long: `apply reads a plan file, proves each of its steps again by two looks, and carries
out those that still hold. A step whose fragments are not as they were, or not damaged
any more, is refused (plan_stale, code 5); the others go on. The limits are the stricter
ones of the plan and the configuration. - reads the plan from stdin.`,
		Example: `  reconcile plan s3://bucket/prefix -o plan.json && reconcile apply plan.json
  reconcile apply plan.json --dry-run
  reconcile apply plan.json --target exp-1 --reason 'incident 42'`,
		Args: oneArgument("a plan file, or - for stdin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.readPlan(args[0])
			if err != nil {
				return err
			}
			s, err := f.planSettings(cmd, p)
			if err != nil {
				return err
			}
			if err := rf.apply(cmd.Flags(), s, f.namesOne(planNames(p))); err != nil {
				return err
			}
			if rf.allowMassDrop {
				s.policy.Limits = p.Limits()
			} else {
				s.policy.Limits = stricter(s.policy.Limits, p.Limits())
			}
			// The plan holds the steps that were wanted; which others would be proposed
			// is of no concern.
			s.policy.DropPartialFragments, s.policy.DropForLostDeletionFile = true, true
			s.repair.carry, s.repair.needsLedger = true, true
			return a.repairPass(cmd, &f, s)
		},
	}
	f.add(cmd.Flags())
	for _, ofPlan := range []string{"versions", "depth"} {
		cmd.Flags().Lookup(ofPlan).Hidden = true
	}
	rf.add(cmd.Flags(), modeFull)
	setExits(cmd, allExits()...)
	return cmd
}

// maxPlanFile bounds what is read: a plan of a million fragments fits.
const maxPlanFile = 1 << 30

// readPlan reads a plan file. One that is altered or has expired is a usage error.
func (a *app) readPlan(name string) (reconcile.Plan, error) {
	in := a.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return reconcile.Plan{}, &exitError{code: reconcile.ExitUsage, err: fmt.Errorf("read plan: %w", err)}
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPlanFile))
	if err != nil {
		return reconcile.Plan{}, &exitError{code: reconcile.ExitUsage, err: fmt.Errorf("read plan: %w", err)}
	}
	p, err := reconcile.DecodePlan(data, time.Now())
	if err != nil {
		return reconcile.Plan{}, &exitError{code: reconcile.ExitUsage, err: fmt.Errorf("%s: %w", name, err)}
	}
	return p, nil
}

// planNames are the targets that a plan speaks of, each once: datasets by their URIs,
// blob collections by their names.
func planNames(p reconcile.Plan) []string {
	var out []string
	for _, a := range p.Actions() {
		name := a.URI
		if strings.HasPrefix(a.Target, collectionPrefix) {
			name = a.Target
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// planSettings are those of the looks that prove a plan again: at its targets, as
// widely and as deeply as the looks that it was made from.
func (f *lookFlags) planSettings(cmd *cobra.Command, p reconcile.Plan) (*settings, error) {
	for _, name := range []string{"versions", "depth"} {
		if cmd.Flags().Changed(name) {
			return nil, usageError("--%s is the plan's own", name)
		}
	}
	uris := planNames(p)
	s, err := f.settings(cmd, uris)
	var exit *exitError
	if len(uris) == 0 && errors.As(err, &exit) {
		// A plan of nothing needs no place.
		s = &settings{confirmAfter: config.Default().Verify.ConfirmAfter.Std(), policy: config.Default().Repair.Policy(), database: f.database}
	} else if err != nil {
		return nil, err
	}
	if len(uris) == 0 {
		s.places = nil
	}
	scope := p.Scope()
	s.depth = scope.Depth
	for i := range s.places {
		s.places[i].versions = scope.Versions
	}
	s.repair.plan = &p
	return s, nil
}

// oneArgument asks for exactly one word.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return usageError("%s needs %s", wordsOf(cmd), what)
		case 1:
			return nil
		}
		return usageError("%s takes one argument, %s, and %q is one more", wordsOf(cmd), what, args[1])
	}
}
