package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/open"
	"github.com/rocketkeep/reconcile/reconcile"
)

// ledgerFlags say which ledger a command works with.
type ledgerFlags struct {
	config   string
	database config.Secret
	output   string
}

func (f *ledgerFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.config, "config", "", "configuration `FILE`; else $"+config.EnvFile+", else ./"+config.DefaultFile+" if there is one")
	fs.Var(&f.database, "database", "ledger `URL` (postgres://…, sqlite:FILE); else the configuration's, else a file of this user")
	outputFlag(fs, &f.output)
}

// settings finds the ledger's URL.
func (f *ledgerFlags) settings() (*settings, error) {
	s := &settings{database: f.database}
	if f.database.Reveal() != "" {
		return s, nil
	}
	path, err := config.Find(f.config)
	if err != nil {
		return nil, configError(err)
	}
	if path != "" {
		cfg, err := config.Load(path)
		if err != nil {
			return nil, configError(err)
		}
		s.database = cfg.Database
	}
	return s, nil
}

// read opens the ledger for a command that only reads: a file that is not there is
// not made.
func (f *ledgerFlags) read(ctx context.Context, fn func(ledger.Ledger) error) error {
	s, err := f.settings()
	if err != nil {
		return err
	}
	url, _, err := s.ledgerURL()
	if err != nil {
		return ledgerError(err)
	}
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		if rest, abs := strings.CutPrefix(file, "//"); abs {
			file = rest
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return failure(errors.New("no ledger at " + file + ": nothing was recorded there yet; --database names another"))
		}
	}
	l, err := open.Ledger(ctx, url, thisBuild().Version)
	if err != nil {
		return ledgerError(err)
	}
	return errors.Join(fn(l), failure(l.Close()))
}

// listFlags choose the rows of a list.
type listFlags struct {
	ledgerFlags
	targets, states []string
	since           string
	limit           int
}

func (f *listFlags) add(fs *pflag.FlagSet, states []string) {
	f.ledgerFlags.add(fs)
	fs.StringArrayVar(&f.targets, "target", nil, "only of targets whose name matches this `GLOB`; may be repeated")
	fs.StringArrayVar(&f.states, "state", nil, "only in this `STATE`; may be repeated: "+strings.Join(states, ", "))
	fs.StringVar(&f.since, "since", "", "only what was touched within this duration or since this `DATE` (7d, 2026-01-31)")
	fs.IntVar(&f.limit, "limit", 0, "at most `N` rows; 0 is all")
}

// filter is what the flags ask for. now is the ledger's clock.
func (f *listFlags) filter(now time.Time, known, usual []string) (ledger.Filter, error) {
	out := ledger.Filter{Targets: f.targets, States: f.states, Limit: f.limit}
	if f.limit < 0 {
		return out, usageError("--limit %d: it is a number from 0 on", f.limit)
	}
	if err := out.Validate(); err != nil {
		return out, usageError("--target: %w", err)
	}
	for _, s := range f.states {
		if !slices.Contains(known, s) {
			return out, usageError("--state %q is not one of %s", s, strings.Join(known, ", "))
		}
	}
	if len(f.states) == 0 {
		out.States = usual
	} else if slices.Contains(f.states, stateAll) {
		out.States = nil
	}
	if f.since == "" {
		return out, nil
	}
	at, err := moment(f.since, now)
	if err != nil {
		return out, usageError("--since: %w", err)
	}
	out.Since = at
	return out, nil
}

// stateAll asks for the rows that a list leaves out by itself.
const stateAll = "all"

// moment reads a duration before now, a day (its beginning, UTC) or a time.
func moment(text string, now time.Time) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil {
		return now.Add(-d.Std()), nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), nil
	}
	return time.Time{}, errors.New(text + " is no duration (7d), day (2026-01-31) or time (2026-01-31T15:04:05Z)")
}

// list is a command that shows one kind of rows.
type list struct {
	name, short, long, example string
	// states can be chosen; usual are those shown when none is chosen.
	states, usual []string
	// show reads and prints; as JSON when asJSON is set.
	show func(ctx context.Context, a *app, l ledger.Ledger, f ledger.Filter, asJSON bool) error
}

func (a *app) listCommand(x list) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: x.name + " [flags]", Short: x.short, Long: x.long, Example: x.example, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.filter(time.Now(), x.states, x.usual); err != nil {
				return err // before any database is asked
			}
			return f.read(cmd.Context(), func(l ledger.Ledger) error {
				now, err := l.Now(cmd.Context())
				if err != nil {
					return failure(err)
				}
				filter, err := f.filter(now, x.states, x.usual)
				if err != nil {
					return err
				}
				return failure(x.show(cmd.Context(), a, l, filter, f.output == "json"))
			})
		},
	}
	f.add(cmd.Flags(), x.states)
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage)
	return cmd
}

func (a *app) statusCommand() *cobra.Command {
	var f ledgerFlags
	cmd := &cobra.Command{
		Use: "status [flags]", Short: "Show how everything stands, by the ledger",
		Long: `status shows on one screen what the ledger knows: damaged targets and rows at risk,
repairs whose outcome is open, work that cools down, who holds locks, and the last
passes. It asks no store.`,
		Example: "  reconcile status\n  reconcile status --database postgres://… --output json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.read(cmd.Context(), func(l ledger.Ledger) error {
				st, err := l.Status(cmd.Context())
				if err != nil {
					return failure(err)
				}
				if f.output == "json" {
					return failure(a.printJSON(st))
				}
				return failure(a.printStatus(st, l.Location()))
			})
		},
	}
	f.add(cmd.Flags())
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage)
	return cmd
}
