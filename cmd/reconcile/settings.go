package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/report"
)

// defaultRequestTimeout is far above what a store needs for a HEAD and far below
// what a person waits for one key that hangs.
const defaultRequestTimeout = config.Duration(15 * time.Second)

// settings are what a look is asked for: flags over configuration over defaults.
type settings struct {
	// places are looked at; each keeps the words of the user.
	places []place
	filter fleet.Filter
	// narrowed are the words of the command line that ask for a part of what this
	// program is configured for, or for single datasets.
	narrowed []string

	depth          reconcile.Depth
	confirmAfter   time.Duration
	minManifestAge time.Duration
	targetTimeout  time.Duration
	requestTimeout time.Duration
	concurrency    int
	policy         reconcile.Policy

	stores factory.Options
	// writeAs takes the place of stores.PerPrefix for what is written.
	writeAs    []factory.Override
	reportURI  string
	references bool
	command    report.Command
	// writersStopped lifts an interlock; reason stands in the report.
	writersStopped bool
	reason         string
	mode           string

	// database is the ledger's URL, empty when none is named.
	database config.Secret
	cooldown ledger.CooldownPolicy
	metrics  config.Metrics
	warnWAL  int64
	work     config.Work
	budget   config.Budget
	verify   config.Verify
	// collections are the blob collections to look at, peers the configured stores that
	// may have some.
	collections []config.Blobs
	peered      []config.Store
	quarantine  string
	repair      repairSettings
	after       afterSettings
}

// repairSettings are what a command that repairs is asked for. The zero value is a
// look.
type repairSettings struct {
	// carry: what is planned is carried out. dryRun shows it instead.
	carry, dryRun bool
	// scheduled: nobody asked for this target now, so that cooldowns hold and drops
	// wait for dropAfter. force ignores cooldowns.
	scheduled, force bool
	dropAfter        time.Duration
	acceptVersion    *uint64
	// one: exactly one target may be found.
	one bool
	// needsLedger: without one nothing is done.
	needsLedger bool
	quiet       time.Duration
	retention   ledger.Retention
	// plan is the one to carry out; nil makes one from the look.
	plan *reconcile.Plan
}

// place is one root to look below.
type place struct {
	uri string
	// name is the configured name of the store, empty for a URI of the command line.
	name string
	// discover is how targets are found below it: a URI of the command line is listed.
	discover fleet.Mode
	// registries is the configured root whose registries name what lies at a URI of the
	// command line; empty when none does.
	registries string
	// s3 is how a configured store is reached.
	s3           factory.S3Options
	versions     reconcile.Versions
	external     bool // commits go through another store
	noVersioning bool // the bucket keeps no object versions
}

// settings puts flags, configuration and defaults together. Everything that can
// be wrong about what the user wrote is wrong here, before any store is asked.
func (f *lookFlags) settings(cmd *cobra.Command, uris []string) (*settings, error) {
	if f.concurrency < 1 {
		return nil, usageError("--concurrency %d: at least one request must be in flight", f.concurrency)
	}
	if f.confirmAfter == config.Forever {
		return nil, usageError("--confirm-after must end: a second look that never comes proves nothing")
	}
	if f.requestTimeout == 0 {
		return nil, usageError("--request-timeout 0s leaves no time for an answer")
	}
	cfg, err := f.loadConfig()
	if err != nil {
		return nil, err
	}
	s := &settings{
		filter: fleet.Filter{Include: f.targets, Exclude: f.exclude}, policy: cfg.Repair.Policy(), mode: "off",
		targetTimeout: cfg.Verify.TargetTimeout.Std(), requestTimeout: f.requestTimeout.Std(),
		reportURI: cfg.Reports.URI, references: cfg.Reports.References,
		command:  report.Command{URIs: uris, Flags: givenFlags(cmd.Flags(), new(lookFlags).add), RepairFlags: givenFlags(cmd.Flags(), repairFlagsToRepeat)},
		database: cfg.Database, metrics: cfg.Metrics, warnWAL: cfg.WAL.WarnGenerations, work: cfg.Work, budget: cfg.Budget, verify: cfg.Verify, peered: cfg.Stores, quarantine: cfg.Repair.Quarantine,
		cooldown: ledger.CooldownPolicy{After: cfg.Cooldown.After, Base: cfg.Cooldown.Base.Std(), Max: cfg.Cooldown.Max.Std()},
	}
	s.repair.quiet = cfg.Repair.Quiet.Std()
	if cmd.Flags().Changed("database") {
		s.database = f.database
	}
	if err := s.filter.Validate(); err != nil {
		return nil, usageError("%w", err)
	}
	f.override(cmd.Flags(), cfg, s)
	named := len(uris) > 0
	s.narrowed = narrowedTo(cfg, uris)
	if uris, err = s.chooseCollections(cfg, uris); err != nil {
		return nil, err
	}
	if err := s.choosePlaces(cmd, cfg, uris, named, f.versions); err != nil {
		return nil, err
	}
	if s.reportURI != "" {
		if _, err := objstore.Parse(s.reportURI); err != nil {
			return nil, usageError("--report: %w", err)
		}
	}
	s.stores = factory.Options{RequestTimeout: s.requestTimeout, MaxRequestsPerSecond: cfg.Verify.MaxRequestsPerSecond, HeadOracle: f.sdkHead}
	for _, st := range cfg.Stores {
		s.signAs(st.URI, st.S3, st.WriteS3, factory.Override{})
		s.signPeers(st.Peers)
	}
	for _, b := range cfg.Blobs {
		s.signAs(b.URI, b.S3, b.WriteS3, factory.Override{S3: factory.S3Options{Checksums: true}})
		s.signPeers(b.Peers)
	}
	return s, nil
}

func (s *settings) signPeers(peers []config.Peer) {
	for _, p := range peers {
		if p.URI != "" {
			s.signAs(p.URI, p.S3, config.WriteS3{}, factory.Override{Peer: true})
		}
	}
}

// s3Options is how the configuration says that a place is reached.
func s3Options(c config.S3) factory.S3Options {
	if c.PathStyle == "auto" {
		c.PathStyle = "" // the same, and so the same connections
	}
	return factory.S3Options{Endpoint: c.Endpoint, Region: c.Region, Profile: c.Profile, RoleARN: c.RoleARN, PathStyle: c.PathStyle}
}

// signAs gives a place the identity that the configuration says, for reading and for
// writing; o holds what else is said of it. A place that nothing is said of has the
// general identity, and not that of one above it.
func (s *settings) signAs(uri string, read config.S3, write config.WriteS3, o factory.Override) {
	if loc, err := objstore.Parse(uri); err != nil || loc.Scheme != "s3" {
		return // what is wrong with it is told where it is opened
	}
	checksums := o.S3.Checksums // what is compared with those that the store keeps
	o.Root, o.S3 = uri, s3Options(read)
	if write.RoleARN != "" {
		writing := o
		writing.S3.RoleARN = write.RoleARN
		s.writeAs = append(s.writeAs, writing)
	} else {
		s.writeAs = append(s.writeAs, o)
	}
	o.S3.Checksums = checksums
	s.stores.PerPrefix = append(s.stores.PerPrefix, o)
}

// loadConfig reads the configuration that applies; without one it is all defaults.
func (f *lookFlags) loadConfig() (*config.Config, error) {
	path, err := config.Find(f.config)
	if err != nil {
		return nil, configError(err)
	}
	if path == "" {
		return config.Default(), nil
	}
	cfg, err := config.Load(path)
	if err != nil {
		return nil, configError(err)
	}
	return cfg, nil
}

// override lets a flag that was given win over the configuration.
func (f *lookFlags) override(fs *pflag.FlagSet, cfg *config.Config, s *settings) {
	s.depth, s.confirmAfter, s.minManifestAge = cfg.Verify.Depth, cfg.Verify.ConfirmAfter.Std(), cfg.Verify.MinManifestAge.Std()
	s.concurrency = int(cfg.Verify.Concurrency)
	if fs.Changed("depth") {
		_ = s.depth.UnmarshalText([]byte(f.depth)) // the flag takes no other word
	}
	if fs.Changed("confirm-after") {
		s.confirmAfter = f.confirmAfter.Std()
	}
	if fs.Changed("min-manifest-age") {
		s.minManifestAge = f.minManifestAge.Std()
	}
	if fs.Changed("concurrency") {
		s.concurrency = int(f.concurrency)
	}
	if fs.Changed("report") {
		s.reportURI = f.report
	}
}

// locate reads the place's URI, a configured one as its store says.
func (p place) locate(set *factory.Set, uri string) (objstore.Location, error) {
	if p.name == "" {
		return set.Locate(uri)
	}
	return set.LocateBy(uri, p.s3)
}

// placed are the stores of a set, as what lies in the place names them.
type placed struct {
	*factory.Set
	place place
}

// Locate reads a URI.
func (p placed) Locate(uri string) (objstore.Location, error) { return p.place.locate(p.Set, uri) }

// narrowedTo are those of the URIs and names of a command line that leave something
// out: any where a configuration says what there is, else those of single datasets.
func narrowedTo(cfg *config.Config, words []string) []string {
	var out []string
	for _, word := range words {
		shown := word
		if loc, err := objstore.Parse(word); err == nil && !strings.HasPrefix(word, collectionPrefix) {
			shown = loc.String() // without credentials
		}
		if len(cfg.Stores)+len(cfg.Blobs) > 0 || strings.HasSuffix(strings.TrimRight(shown, "/"), ".lance") {
			out = append(out, shown)
		}
	}
	return out
}

// choosePlaces are the URIs of the command line, else the configured stores.
// named: something was named, blob collections included.
func (s *settings) choosePlaces(cmd *cobra.Command, cfg *config.Config, uris []string, named bool, versions string) error {
	var given *reconcile.Versions
	if cmd.Flags().Changed("versions") {
		given = new(reconcile.Versions)
		_ = given.UnmarshalText([]byte(versions)) // the flag takes no other word
	}
	for _, u := range uris {
		loc, err := objstore.Parse(u)
		if err != nil {
			return failure(err)
		}
		p := place{uri: u}
		if st := coveringStore(cfg.Stores, loc); st != nil {
			p.versions, p.external, p.noVersioning = st.Versions, st.Commit == "external", st.Versioning == "none"
			if mode, _ := fleet.ParseMode(st.Discover); mode != fleet.List {
				p.registries = st.URI
			}
		}
		s.places = append(s.places, p)
	}
	if !named {
		for _, st := range cfg.Stores {
			mode, _ := fleet.ParseMode(st.Discover) // the configuration takes no other word
			s.places = append(s.places, place{uri: st.URI, name: st.Name, s3: s3Options(st.S3), discover: mode, versions: st.Versions, external: st.Commit == "external", noVersioning: st.Versioning == "none"})
		}
	}
	if len(s.places)+len(s.collections) == 0 {
		return usageError("nothing to look at: name a URI (%s s3://bucket/prefix), or a configuration with stores (--config FILE, $%s, ./%s)", cmd.CommandPath(), config.EnvFile, config.DefaultFile)
	}
	for i := range s.places {
		if given != nil {
			s.places[i].versions = *given
		}
	}
	return nil
}

// coveringStore is the configured store that a place of the command line lies in,
// the nearest of several; nil when none does.
func coveringStore(stores []config.Store, loc objstore.Location) *config.Store {
	var best *config.Store
	depth := -1
	for i := range stores {
		root, err := objstore.Parse(stores[i].URI)
		if err != nil {
			continue
		}
		if _, below := loc.Dir().Rel(root); below && len(root.Key) > depth {
			best, depth = &stores[i], len(root.Key)
		}
	}
	return best
}

// givenFlags are those flags that the user wrote and that define adds, each as one word.
func givenFlags(fs *pflag.FlagSet, define func(*pflag.FlagSet)) []string {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	define(known)
	var out []string
	fs.Visit(func(f *pflag.Flag) {
		if known.Lookup(f.Name) == nil {
			return
		}
		if v, ok := f.Value.(pflag.SliceValue); ok {
			for _, item := range v.GetSlice() {
				out = append(out, "--"+f.Name+"="+item)
			}
			return
		}
		out = append(out, "--"+f.Name+"="+f.Value.String())
	})
	return out
}

// repairFlagsToRepeat are the flags of a repair that a suggested one needs as well. The
// mode and a rehearsal are for the one command that they were given to.
func repairFlagsToRepeat(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(repairFlags).add(all, "")
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name != "mode" && f.Name != "dry-run" {
			fs.AddFlag(f)
		}
	})
}
