package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/open"
	"github.com/rocketkeep/reconcile/reconcile"
)

func (a *app) diffCommand() *cobra.Command {
	var f ledgerFlags
	cmd := &cobra.Command{
		Use: "diff PASS PASS [flags]", Short: "Compare what two passes saw: new, persisting, resolved",
		Long: `diff compares two passes of the ledger, the earlier with the later whichever is named
first. A pass is named by its id or by a beginning of it that no other has. What the
later pass did not look at is told apart from what is resolved.`,
		Example: "  reconcile diff 0198a1 0198b7\n  reconcile diff 0198a1 0198b7 --output json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError("%s needs two passes; reconcile passes lists them", wordsOf(cmd))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.read(cmd.Context(), func(l ledger.Ledger) error {
				ids := make([]string, 2)
				for i, begin := range args {
					id, err := passID(cmd.Context(), l, begin)
					if err != nil {
						return err
					}
					ids[i] = id
				}
				d, err := l.Diff(cmd.Context(), ids[0], ids[1])
				if err != nil || f.output == "json" {
					return failure(orJSON(a, d, err))
				}
				return failure(a.printDiff(d))
			})
		},
	}
	f.add(cmd.Flags())
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage)
	return cmd
}

// passID completes the beginning of a pass's id.
func passID(ctx context.Context, l ledger.Ledger, begin string) (string, error) {
	ps, err := l.ListPasses(ctx, ledger.Filter{})
	if err != nil {
		return "", failure(err)
	}
	ids := make([]string, len(ps))
	for i, p := range ps {
		ids[i] = p.PassID
	}
	return unique("pass", begin, ids)
}

// unique is the one of ids that begins so.
func unique(what, begin string, ids []string) (string, error) {
	begin = strings.ToLower(begin)
	ids = slices.DeleteFunc(ids, func(id string) bool { return begin == "" || !strings.HasPrefix(id, begin) })
	switch len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", usageError("no %s in the ledger begins with %q", what, begin)
	}
	return "", usageError("%d of what the ledger holds begin with %q, %s and %s among them", len(ids), begin, ids[0], ids[1])
}

func (a *app) printDiff(d ledger.Diff) error {
	fmt.Fprintf(a.stdout, "from %s, begun %s\nto   %s, begun %s\n", d.From.PassID, clock(d.From.StartedAt), d.To.PassID, clock(d.To.StartedAt))
	for _, part := range []struct {
		name string
		list []ledger.Finding
	}{{"new", d.New}, {"persisting", d.Persisting}, {"resolved", d.Resolved}, {"not looked at by the later pass", d.NotLookedAt}} {
		if _, err := fmt.Fprintf(a.stdout, "\n%s: %d\n", part.name, len(part.list)); err != nil {
			return err
		}
		if len(part.list) > 0 {
			if err := columns(a.stdout, findingHead, findingRows(part.list)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) ackCommand() *cobra.Command {
	var f ledgerFlags
	var until, reason string
	var withdraw bool
	cmd := &cobra.Command{
		Use: "ack FINDING --until DATE --reason TEXT [flags]", Short: "Accept a finding: it stays in reports and leaves the exit code",
		Long: `ack accepts an open finding until the end of a day (UTC) or until a time. Until then it
stays in every report, moves no state and no exit code, and nothing is repaired for it.
A finding is named by its id or by a beginning of it that no other open one has.`,
		Example: "  reconcile ack 3f9a17c0 --until 2026-12-31 --reason 'owner restores from tape'\n  reconcile ack 3f9a17c0 --withdraw",
		Args:    oneArgument("a finding; reconcile findings lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var at time.Time
			if !withdraw {
				var err error
				if at, err = endOf(until); err != nil {
					return usageError("--until: %w", err)
				}
				if strings.TrimSpace(reason) == "" {
					return usageError("--reason: say why, for those who read the report")
				}
			}
			return f.read(cmd.Context(), func(l ledger.Ledger) error {
				return a.acknowledge(cmd.Context(), l, args[0], at, reason)
			})
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&until, "until", "", "last `DATE` (2026-12-31), or time, on which it is accepted (required)")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that stands beside it (required)")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "take an acceptance back")
	cmd.Flags().Lookup("output").Hidden = true
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage)
	return cmd
}

// endOf reads a day, which counts whole, or a time.
func endOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, errors.New("name the last day on which it is accepted")
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t.AddDate(0, 0, 1), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no day (2026-12-31) and no time (2026-12-31T15:04:05Z)", text)
	}
	return t.UTC(), nil
}

// acknowledge accepts a finding; the zero time takes that back.
func (a *app) acknowledge(ctx context.Context, l ledger.Ledger, begin string, until time.Time, reason string) error {
	now, err := l.Now(ctx)
	if err != nil {
		return failure(err)
	}
	if !until.IsZero() && !until.After(now) {
		return usageError("--until %s is over, by the ledger's clock %s", clock(until), clock(now))
	}
	open, err := l.ListFindings(ctx, ledger.Filter{States: []string{"open"}})
	if err != nil {
		return failure(err)
	}
	ids := make([]string, len(open))
	for i, x := range open {
		ids[i] = x.Finding.FindingID
	}
	id, err := unique("open finding", begin, ids)
	if err != nil {
		return err
	}
	if err := l.Acknowledge(ctx, id, until, reason, actor()); err != nil {
		return failure(err)
	}
	i := slices.Index(ids, id)
	what := fmt.Sprintf("%s %s %s", open[i].Finding.Target, open[i].Finding.Role, open[i].Finding.Path)
	if until.IsZero() {
		_, err = fmt.Fprintf(a.stdout, "%s counts again: %s\n", id, printable(what))
	} else {
		_, err = fmt.Fprintf(a.stdout, "%s is accepted until %s: %s\n", id, clock(until), printable(what))
	}
	return failure(err)
}

func (a *app) migrateCommand() *cobra.Command {
	group := groupCommand("migrate", "Bring the schema of a ledger up to date")
	group.Long = "migrate holds the commands that work on the schema of a ledger. A ledger in a file is\nbrought up to date by every command that opens it."
	group.Example = "  reconcile migrate up --database postgres://…\n  reconcile migrate status --config reconcile.yaml"
	group.AddCommand(
		a.migrateStep("up", "Apply the steps that are missing", `up applies the steps that are missing, each in a transaction; two at once take turns. It
needs a role that may create a schema, tables and roles.`, func(ctx context.Context, m ledger.Migrator) (ledger.MigrationStatus, error) { return m.Up(ctx) }),
		a.migrateStep("status", "Say which steps are applied", "status says which steps are applied and which are missing. It changes nothing.",
			func(ctx context.Context, m ledger.Migrator) (ledger.MigrationStatus, error) { return m.Status(ctx) }))
	return group
}

func (a *app) migrateStep(use, short, long string, do func(context.Context, ledger.Migrator) (ledger.MigrationStatus, error)) *cobra.Command {
	var f ledgerFlags
	cmd := &cobra.Command{
		Use: use + " [flags]", Short: short, Long: long, Args: noArguments,
		Example: "  reconcile migrate " + use + " --database postgres://reconcile@db/reconcile\n  reconcile migrate " + use + " --output json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.settings()
			if err != nil {
				return err
			}
			url, _, err := s.ledgerURL()
			if err != nil {
				return ledgerError(err)
			}
			m, err := open.Migrator(cmd.Context(), url, thisBuild().Version)
			if err != nil {
				return ledgerError(err)
			}
			st, err := do(cmd.Context(), m)
			where := m.Location()
			if err = errors.Join(err, m.Close()); err != nil || f.output == "json" {
				return failure(orJSON(a, st, err))
			}
			return failure(a.printMigrations(st, where))
		},
	}
	f.add(cmd.Flags())
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage)
	return cmd
}

func (a *app) printMigrations(st ledger.MigrationStatus, where string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "ledger  %s\n", where)
	for _, m := range st.Applied {
		word := "applied"
		if m.New {
			word = "new"
		}
		fmt.Fprintf(&b, "%-7s %s at %s by %s\n", word, m.Name, clock(m.AppliedAt), m.ToolVersion)
	}
	for _, name := range st.Pending {
		fmt.Fprintf(&b, "missing %s\n", name)
	}
	for _, name := range st.Unknown {
		fmt.Fprintf(&b, "newer   %s\n", name)
	}
	for _, n := range st.Notices {
		fmt.Fprintf(&b, "note    %s\n", printable(n))
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}
