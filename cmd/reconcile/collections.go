package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/blobs/harper"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// collectionPrefix stands before a blob collection's name on the command line.
const collectionPrefix = "blobs:"

// chooseCollections are the configured blob collections that are meant: all of them
// when nothing is named, else those named "blobs:NAME". It returns the other words.
func (s *settings) chooseCollections(cfg *config.Config, words []string) (uris []string, err error) {
	if len(words) == 0 {
		s.collections = cfg.Blobs
		return nil, nil
	}
	for _, word := range words {
		name, ok := strings.CutPrefix(word, collectionPrefix)
		if !ok {
			uris = append(uris, word)
			continue
		}
		found := false
		for _, b := range cfg.Blobs {
			if b.Name == name {
				s.collections, found = append(s.collections, b), true
			}
		}
		if !found {
			return nil, usageError("%s: the configuration names no such blob collection", word)
		}
	}
	return uris, nil
}

// collection is one blob collection of a pass.
type collection struct {
	cfg    config.Blobs
	root   objstore.Location
	allow  []objstore.Location
	reader refs.Reader
	// cluster is set for a collection on Harper nodes.
	cluster *harper.Cluster
}

// findCollections makes the targets of the chosen collections.
func findCollections(set *factory.Set, s *settings, out *foundTargets) error {
	for _, b := range s.collections {
		root := harperRoot(b.Name)
		if b.References.Harper == nil {
			var err error
			if root, err = set.LocateBy(b.URI, s3Options(b.S3)); err != nil {
				return err
			}
			root.Key = strings.TrimRight(root.Key, "/")
		}
		t := blobs.Target(b.Name, root)
		if !s.filter.Chosen(t) {
			out.filtered++
			continue
		}
		c := &collection{cfg: b, root: root}
		if s.verify.Probe == "get" {
			out.byGet = append(out.byGet, root)
		}
		for _, a := range b.Allow {
			loc, err := set.LocateNear(a, root)
			if err != nil {
				return err
			}
			loc.Key = strings.TrimRight(loc.Key, "/")
			c.allow = append(c.allow, loc)
		}
		if out.collections == nil {
			out.collections = map[string]*collection{}
		}
		if prev := out.collections[root.Canonical()]; prev != nil {
			return usageError("blob collections %s and %s have one uri: give each a folder of its own", prev.cfg.Name, b.Name)
		}
		out.collections[root.Canonical()] = c
		out.targets = append(out.targets, t)
	}
	return nil
}

// openReferences opens what the collections' references are read from.
func (f *foundTargets) openReferences(ctx context.Context, set *factory.Set) error {
	for _, c := range f.collections {
		if c.reader != nil {
			continue // a cluster reads its own
		}
		r, err := openReferences(ctx, set, c.cfg.References)
		if err != nil {
			return fmt.Errorf("references of blobs:%s: %w", c.cfg.Name, err)
		}
		c.reader = r
	}
	return nil
}

// closeReferences frees the readers.
func (f *foundTargets) closeReferences() {
	if f == nil {
		return
	}
	for _, c := range f.collections {
		if c.reader != nil {
			_ = c.reader.Close()
		}
	}
}

// open makes the source of a target.
func (w *work) open(stores lookStores) func(reconcile.Target) reconcile.Source {
	return func(t reconcile.Target) reconcile.Source {
		stores := stores // of this target: others are opened at the same time
		stores.target = t.Location
		c, ok := w.found.collections[t.Location.Canonical()]
		if !ok || t.Kind != blobs.Kind {
			return tables.New(t, stores, w.found.tableOptions(t, w.s, w.log))
		}
		v := w.s.verify
		stores.cluster = c.cluster
		return blobs.New(t, blobs.Options{Root: c.root, Allow: c.allow, Records: c.reader, ID: referencesID(c.cfg.References), Stores: stores,
			PendingMaxAge: v.PendingMaxAge.Std(), Sample: v.Sample, Day: time.Now().UTC(), Throttle: w.throttle(), ReportOnly: reportOnly(c.cfg), Nodes: c.cluster != nil,
			Format: formatOf(c.cfg), Logger: w.log})
	}
}

// formatOf is the format of a collection's objects; nil for the blobs' bytes alone.
func formatOf(b config.Blobs) *blobs.Format {
	if b.Format == config.FormatHarper {
		return harper.Files()
	}
	return nil
}

// referencesID is a digest of where references are read from, secrets included.
func referencesID(r config.BlobReferences) string {
	h := sha256.New()
	switch {
	case r.Postgres != nil:
		fmt.Fprintf(h, "postgres %q %q", r.Postgres.URL.Reveal(), r.Postgres.Query)
	case r.Lance != nil:
		fmt.Fprintf(h, "lance %+v", *r.Lance)
	case r.CSV != nil:
		fmt.Fprintf(h, "csv %+v", *r.CSV)
	case r.JSONL != nil:
		fmt.Fprintf(h, "jsonl %+v", *r.JSONL)
	case r.Parquet != nil:
		fmt.Fprintf(h, "parquet %+v", *r.Parquet)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// throttle is verify.max_bytes_per_second, one bound for the whole process.
func (w *work) throttle() func(context.Context, int) error {
	if w.s.verify.MaxBytesPerSecond <= 0 {
		return nil
	}
	w.paceOnce.Do(func() {
		perSecond := float64(w.s.verify.MaxBytesPerSecond)
		w.pace = rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond), 64<<10))
	})
	return w.pace.WaitN
}

// probing asks with a one-byte GET instead of a HEAD.
type probing struct{ objstore.Reader }

// Stat implements objstore.Statter.
func (p probing) Stat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return p.Probe(ctx, loc)
}

// Restat implements objstore.Restatter.
func (p probing) Restat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return p.Probe(ctx, loc)
}

// openReferences opens the one source that a collection's references are read from.
func openReferences(ctx context.Context, set *factory.Set, r config.BlobReferences) (refs.Reader, error) {
	file := func(f *config.FileReferences, open func(objstore.Reader, objstore.Location, refs.Columns, refs.Options) refs.Reader) (refs.Reader, error) {
		at, err := set.Locate(f.URI)
		if err != nil {
			return nil, err
		}
		reader, err := set.Reader(ctx, at.Parent())
		if err != nil {
			return nil, err
		}
		return open(reader, at, refs.Columns{Key: f.Key, Size: f.Size, Checksum: f.Checksum, Record: f.Record}, refs.Options{}), nil
	}
	switch {
	case r.CSV != nil:
		return file(r.CSV, refs.CSV)
	case r.JSONL != nil:
		return file(r.JSONL, refs.JSONLines)
	case r.Parquet != nil:
		return file(r.Parquet, refs.Parquet)
	case r.Postgres != nil:
		return refs.Postgres(r.Postgres.URL.Reveal(), r.Postgres.Query, refs.Options{})
	}
	l := r.Lance
	at, err := set.Locate(l.URI)
	if err != nil {
		return nil, err
	}
	reader, err := set.Reader(ctx, at)
	if err != nil {
		return nil, err
	}
	return refs.Lance(reader, at, set, refs.Columns{Key: l.Key, Size: l.Size, Checksum: l.Checksum, Record: l.Record}, l.Filter, refs.Options{})
}
