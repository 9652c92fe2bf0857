package config

import (
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// DefaultConcurrency is how many requests are in flight. A HEAD costs a store
// tens of milliseconds, so this many keep a few thousand a second going, which is
// just below what one prefix of an S3 bucket answers without throttling.
const DefaultConcurrency = 256

// Default is the configuration of an empty file: the only place where defaults
// are written.
func Default() *Config {
	l := reconcile.DefaultLimits()
	return &Config{
		Reports: Reports{HTML: true},
		Verify: Verify{
			Depth: reconcile.DepthHead, Probe: "head", Concurrency: DefaultConcurrency, Sample: 1,
			ConfirmAfter: Duration(60 * time.Second), MinManifestAge: Duration(15 * time.Minute),
			PendingMaxAge: Duration(30 * time.Minute), TargetTimeout: Duration(15 * time.Minute),
		},
		Budget: Budget{FullCycle: Duration(7 * day)},
		Repair: Repair{
			Mode: "off", DropAfter: Duration(time.Hour),
			MaxFragments: l.MaxFragments, MaxRows: l.MaxRows, MaxFraction: l.MaxFraction,
			MaxPassTargets: l.MaxPassTargets, MaxPassFragments: l.MaxPassFragments, MaxPassRows: l.MaxPassRows,
			DeletionFiles: "report", PartialFragments: "report", Quiet: Duration(2 * time.Minute),
		},
		Cooldown:  Cooldown{After: 3, Base: Duration(10 * time.Minute), Max: Duration(6 * time.Hour)},
		MergeWAL:  MergeWAL{MinGenerations: 8, Timeout: Duration(10 * time.Minute)},
		WAL:       WAL{WarnGenerations: 256},
		Work:      Work{Max: 10 << 30},
		Retention: Retention{Passes: Duration(400 * day), Repairs: Forever},
	}
}

// defaulter is what list elements and optional sections implement when their
// zero value is not their default.
type defaulter interface{ setDefaults() }

// setDefaults implements defaulter. Listing is the default of discovery because
// it needs nothing but the store, as a URI on the command line does.
func (s *Store) setDefaults() {
	s.Discover, s.Versions, s.Versioning, s.Commit = "list", reconcile.VersionsCurrent, "auto", "conditional"
	s.S3.setDefaults()
}

func (s *S3) setDefaults()    { s.PathStyle = "auto" }
func (p *Peer) setDefaults()  { p.S3.setDefaults() }
func (b *Blobs) setDefaults() { b.S3.setDefaults() }
