package main

import (
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// The modes: nothing is repaired; nothing that loses a row; everything.
const (
	modeOff     = "off"
	modeRestore = "restore"
	modeFull    = "full"
)

// leastConfirmAfter is how far apart the looks that a repair rests on are at least.
const leastConfirmAfter = time.Second

// repairFlags shape what a command may repair.
type repairFlags struct {
	mode            string
	dryRun, force   bool
	maxFragments    int64
	maxRows         int64
	maxFraction     float64
	allowMassDrop   bool
	allowEmptyTable bool
	deletionFiles   string
	acceptVersion   uint64
	writersStopped  bool
	reason          string
}

// add defines the flags. Those that the user left out follow the configuration.
func (f *repairFlags) add(fs *pflag.FlagSet, mode string) {
	d := config.Default().Repair
	usage := "what to repair: off, restore (never loses a row), full"
	if mode == "" {
		usage += "; else the configuration's"
	}
	fs.Var(newChoice(&f.mode, mode, modeOff, modeRestore, modeFull), "mode", usage)
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would be done, and do nothing")
	fs.BoolVar(&f.force, "force", false, "ignore cooldowns")
	fs.Int64Var(&f.maxFragments, "max-fragments", d.MaxFragments, "drop at most `N` fragments of one target")
	fs.Int64Var(&f.maxRows, "max-rows", d.MaxRows, "drop at most `N` rows of one target")
	fs.Float64Var(&f.maxFraction, "max-fraction", d.MaxFraction, "drop at most this `SHARE` of one target")
	fs.BoolVar(&f.allowMassDrop, "allow-mass-drop", false, "lift the limits, for exactly one target that is named")
	fs.BoolVar(&f.allowEmptyTable, "allow-empty-table", false, "the named target may lose its last fragment")
	fs.Var(newChoice(&f.deletionFiles, d.DeletionFiles, "report", "drop_fragment"), "deletion-files", "what to do about a lost deletion file")
	fs.Uint64Var(&f.acceptVersion, "accept-version", 0, "version `N` of the named target is the newest, though a higher one is known of")
	fs.BoolVar(&f.writersStopped, "writers-stopped", false, "no writer is running that commits without a condition")
	fs.StringVar(&f.reason, "reason", "", "`TEXT` that stands in the ledger and the report")
}

// apply puts the flags that were given over the configuration's. named reports
// whether the command line names exactly one target.
func (f *repairFlags) apply(fs *pflag.FlagSet, s *settings, named bool) error {
	if s.confirmAfter < leastConfirmAfter {
		return usageError("--confirm-after %s: a repair is made of two looks that are at least %s apart", config.Duration(s.confirmAfter), config.Duration(leastConfirmAfter))
	}
	lim := &s.policy.Limits
	if fs.Changed("max-fragments") {
		lim.MaxFragments = f.maxFragments
	}
	if fs.Changed("max-rows") {
		lim.MaxRows = f.maxRows
	}
	if fs.Changed("max-fraction") {
		lim.MaxFraction = f.maxFraction
	}
	if lim.MaxFragments < 0 || lim.MaxRows < 0 || !(lim.MaxFraction >= 0 && lim.MaxFraction <= 1) {
		return usageError("limits are numbers from 0 on, and --max-fraction is at most 1")
	}
	for flag, given := range map[string]bool{"allow-mass-drop": f.allowMassDrop, "allow-empty-table": f.allowEmptyTable, "accept-version": fs.Changed("accept-version")} {
		if given && !named {
			return usageError("--%s is for exactly one target that is named: give its URI, or --target NAME without a pattern", flag)
		}
		s.repair.one = s.repair.one || given
	}
	if f.allowMassDrop {
		*lim = reconcile.Limits{MaxFragments: math.MaxInt64, MaxRows: math.MaxInt64, MaxFraction: 1, MaxPassTargets: 1, MaxPassFragments: math.MaxInt64, MaxPassRows: math.MaxInt64}
	}
	s.policy.AllowEmptyTable = f.allowEmptyTable
	if fs.Changed("deletion-files") {
		s.policy.DropForLostDeletionFile = f.deletionFiles == "drop_fragment"
	}
	if fs.Changed("accept-version") {
		s.repair.acceptVersion = &f.acceptVersion
	}
	if f.mode != "" {
		s.mode = f.mode
	}
	s.reason, s.writersStopped = f.reason, f.writersStopped
	s.repair.dryRun, s.repair.force = f.dryRun, f.force
	return nil
}

// namesOne reports whether the command line names exactly one target: by the URI of
// a dataset, or by one --target that is no pattern.
func (f *lookFlags) namesOne(uris []string) bool {
	if len(f.targets) == 1 && !strings.ContainsAny(f.targets[0], `*?[\`) {
		return true
	}
	return len(f.targets) == 0 && len(uris) == 1 && strings.HasSuffix(strings.TrimRight(uris[0], "/"), ".lance")
}

// stricter is the smaller of each limit.
func stricter(a, b reconcile.Limits) reconcile.Limits {
	return reconcile.Limits{
		MaxFragments: min(a.MaxFragments, b.MaxFragments), MaxRows: min(a.MaxRows, b.MaxRows), MaxFraction: min(a.MaxFraction, b.MaxFraction),
		MaxPassTargets: min(a.MaxPassTargets, b.MaxPassTargets), MaxPassFragments: min(a.MaxPassFragments, b.MaxPassFragments), MaxPassRows: min(a.MaxPassRows, b.MaxPassRows),
	}
}

// retention is how long the ledger remembers; forever is 0 there.
func retention(c config.Retention) ledger.Retention {
	std := func(d config.Duration) time.Duration {
		if d == config.Forever {
			return 0
		}
		return d.Std()
	}
	return ledger.Retention{Passes: std(c.Passes), Repairs: std(c.Repairs)}
}

// isPlace reports whether an argument that could be the name of a target is a URI
// or a path instead.
func isPlace(arg string) bool {
	for _, p := range []string{"/", "./", "../"} {
		if strings.HasPrefix(arg, p) {
			return true
		}
	}
	return arg == "." || arg == ".." || strings.Contains(arg, "://") || strings.HasPrefix(arg, "file:/") || strings.HasSuffix(strings.TrimRight(arg, "/"), ".lance")
}

// exactly is a pattern that matches one name.
func exactly(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// namedTarget turns the argument of repair into places to look below and a filter.
func (f *lookFlags) namedTarget(cmd *cobra.Command, arg string) (*settings, error) {
	if isPlace(arg) {
		if _, err := objstore.Parse(arg); err != nil {
			return nil, failure(err)
		}
		return f.settings(cmd, []string{arg})
	}
	s, err := f.settings(cmd, nil)
	if err != nil {
		return nil, err
	}
	s.filter.Include = []string{exactly(arg)}
	return s, nil
}
