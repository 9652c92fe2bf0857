// Package tables is a Lance dataset as a reconcile.Source: which objects its
// versions in scope name, whether a newer version still names them, which of them
// are old enough to be judged, and what could be done about those that are gone.
//
// It reads metadata through package lance and writes nothing.
package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Stores resolves places and gives read-only stores for them.
type Stores interface {
	// Locate reads a URI or path as metadata or a user wrote it. It does not touch
	// the network.
	Locate(uri string) (objstore.Location, error)
	Reader(ctx context.Context, loc objstore.Location) (objstore.Reader, error)
}

// Options of a table.
type Options struct {
	Versions reconcile.Versions
	// WritersStopped lifts unconditional_writer.
	WritersStopped bool
	// AcceptVersion is the newest version that a user takes as right although
	// something names a higher one; nil accepts none.
	AcceptVersion *uint64
	// ExternalCommit: the configuration says that commits go through another store.
	ExternalCommit bool
	Logger         *slog.Logger
}

// Table is one Lance dataset. It is a reconcile.Source.
type Table struct {
	target reconcile.Target
	stores Stores
	opts   Options

	main  *rooted
	views []*view
	// bases resolves base paths, by the text that the metadata gives.
	bases map[string]baseAt
	// indexFiles keeps what index folders showed: several versions share an index.
	indexFiles map[objstore.Location]indexFound
	// first look, kept to compare with
	version   uint64
	versions  *lance.VersionSet
	dataFiles int64
	fragments int64
	liveRows  int64
	liveKnown bool
	// maintained are the indexes that a MemWAL keeps up to date.
	maintained []string
	wal        walState
	// noSidecars are the data files whose blob columns could not be read, with the
	// reason.
	noSidecars map[string]string
	indexNote  []reconcile.NotChecked
	proofs     proofs
}

var _ reconcile.Source = (*Table)(nil)

// baseAt is a base path resolved once.
type baseAt struct {
	loc objstore.Location
	err error
}

// New makes the source of a target. It does not touch the network.
func New(t reconcile.Target, stores Stores, opts Options) *Table {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Table{target: t, stores: stores, opts: opts, bases: map[string]baseAt{}, indexFiles: map[objstore.Location]indexFound{}}
}

// Target implements reconcile.Source.
func (t *Table) Target() reconcile.Target { return t.target }

// manifestTries is how often a manifest that cannot be read whole is fetched
// before it is believed: a body cut short on the wire looks like a truncated
// object.
const manifestTries = 3

// Open implements reconcile.Source.
func (t *Table) Open(ctx context.Context) (reconcile.Facts, error) {
	at := t.target.Location
	if _, below := at.Rel(t.target.Root); below && t.target.Row {
		at = t.target.Root // so that an absent folder of files is no absent root
	}
	r, err := t.stores.Reader(ctx, at)
	if err != nil {
		return reconcile.Facts{}, err
	}
	t.main = newRooted(r, t.target.Location)
	for try := 1; ; try++ {
		facts, overtaken, err := t.open(ctx)
		if err != nil || !overtaken || try == openTries {
			return facts, err
		}
	}
}

// openTries is how often a table is opened anew whose writers were faster than the
// opening.
const openTries = 5

// open reads the newest version. overtaken reports that what speaks of a higher
// version may speak of one that was committed since the listing.
func (t *Table) open(ctx context.Context) (out reconcile.Facts, overtaken bool, err error) {
	vs, m, facts := t.newest(ctx)
	if ctx.Err() != nil {
		return out, false, context.Cause(ctx)
	}
	if facts != nil {
		return *facts, false, nil
	}
	var log reconcile.Facts
	if vs, m, facts, err = t.openWAL(ctx, vs, m, &log); err != nil || facts != nil {
		if facts != nil {
			out = *facts
		}
		return out, false, err
	}
	t.version, t.versions, t.indexNote, t.maintained = m.Version, vs, nil, nil
	out = log
	out.Version, out.Control = reconcile.Ptr(m.Version), t.main.root.Join(vs.Newest().Name)
	if err := m.CheckReaderFlags(); err != nil {
		out.Settled, out.State, out.Reason = true, reconcile.StateUnreadable, reconcile.ReasonUnknownReaderFlags
		t.opts.Logger.Warn("table cannot be read by this version", "target", t.target.Name, "err", err)
		return out, false, nil
	}
	if err := m.CheckWriterFlags(); err != nil {
		out.Blocks = append(out.Blocks, reconcile.BlockedUnknownWriterFlags)
	}
	if t.opts.ExternalCommit || len(vs.Staged) > 0 {
		out.Blocks = append(out.Blocks, reconcile.BlockedExternalCommitStore)
	}
	if err := t.count(m, &out); err != nil {
		return t.corrupt(vs.Newest(), err), false, nil
	}
	doubted, err := t.addTraces(ctx, vs, m, &out)
	if err != nil {
		return reconcile.Facts{}, false, err
	}
	if doubted {
		// A listing that fails says nothing; the doubt stays.
		again, err := lance.ListVersions(ctx, t.main)
		overtaken = err == nil && again.Newest().Version > m.Version
	}
	if err := t.openViews(ctx, vs, m, &out); err != nil {
		return reconcile.Facts{}, false, err
	}
	out.NotChecked = append(out.NotChecked, t.indexNote...)
	return out, overtaken, nil
}

// count takes what the target's line says from the manifest's own survey.
func (t *Table) count(m *lance.Manifest, out *reconcile.Facts) (err error) {
	t.fragments, t.dataFiles = m.Summary.Fragments, m.Summary.DataFiles-m.Summary.DeadFiles
	t.liveRows, t.liveKnown = m.Summary.LiveRows, m.Summary.LiveRows >= 0
	out.Fragments = reconcile.Ptr(t.fragments)
	if t.liveKnown {
		out.LiveRows = reconcile.Ptr(t.liveRows)
	}
	t.maintained, err = m.MaintainedIndexes()
	return err
}

// newest finds and reads the newest manifest of main. Where there is none to be
// read, facts say what that means and are the whole answer.
func (t *Table) newest(ctx context.Context) (*lance.VersionSet, *lance.Manifest, *reconcile.Facts) {
	for try := 1; ; try++ {
		vs, err := lance.ListVersions(ctx, t.main)
		switch {
		case errors.Is(err, lance.ErrNoVersions):
			return nil, nil, t.noManifest(ctx)
		case errors.Is(err, lance.ErrMixedNaming):
			f := t.metadataFinding("_versions/", reconcile.Unreadable, reconcile.ReasonMixedNaming, nil)
			return nil, nil, &reconcile.Facts{Settled: true, State: reconcile.StateUnreadable, Reason: reconcile.ReasonMixedNaming, Findings: []reconcile.Finding{f}}
		case err != nil:
			return nil, nil, t.cannotLook(ctx, "_versions/", err)
		}
		m, err := t.main.readManifest(ctx, vs.Newest())
		if err == nil {
			return vs, m, nil
		}
		if try < manifestTries && ctx.Err() == nil {
			continue
		}
		var corrupt *lance.CorruptError
		if errors.As(err, &corrupt) {
			facts := t.corrupt(vs.Newest(), err)
			return nil, nil, &facts
		}
		if errors.Is(err, fs.ErrNotExist) {
			// Listed and not there, three times over: the listing and the object
			// contradict each other.
			err = fmt.Errorf("manifest is listed and cannot be read: %w", err)
		}
		return nil, nil, t.cannotLook(ctx, vs.Newest().Name, err)
	}
}

// corrupt is the answer about a newest manifest whose bytes are not one.
func (t *Table) corrupt(e lance.VersionEntry, err error) reconcile.Facts {
	f := t.metadataFinding(e.Name, reconcile.Unreadable, reconcile.ReasonBadManifest, err)
	f.Version = e.Version
	f.Scopes = []string{scopeLatest}
	if e.Size >= 0 {
		f.ObservedSize = reconcile.Ptr(e.Size)
	}
	t.opts.Logger.Warn("newest manifest is unreadable", "target", t.target.Name, "err", err)
	return reconcile.Facts{Settled: true, State: reconcile.StateUnreadable, Reason: reconcile.ReasonBadManifest, Version: reconcile.Ptr(e.Version), Findings: []reconcile.Finding{f}}
}

// noManifest tells a half-removed dataset from one that is not there at all.
func (t *Table) noManifest(ctx context.Context) *reconcile.Facts {
	var objects int64
	for o, err := range t.main.List(ctx, "", "") {
		if err != nil {
			return t.cannotLook(ctx, "", err)
		}
		// A name that ends in a slash is the marker of a folder, and empty.
		if !o.Prefix && o.Name != "" && !strings.HasSuffix(o.Name, "/") {
			objects++
		}
		if objects == maxCounted {
			break
		}
	}
	if objects == 0 {
		return &reconcile.Facts{Absent: true}
	}
	more := ""
	if objects == maxCounted {
		more = " or more"
	}
	reason := fmt.Sprintf("no manifest, %d%s objects", objects, more)
	return &reconcile.Facts{Settled: true, State: reconcile.StateHalfDeleted, Reason: reason}
}

// maxCounted bounds how far a dataset without a manifest is listed: the number is
// there to tell "a few left-overs" from "all of it".
const maxCounted = 10_000

// cannotLook is the answer when the metadata could not be read: nothing is known,
// and nothing is said about any object.
func (t *Table) cannotLook(ctx context.Context, name string, err error) *reconcile.Facts {
	facts := &reconcile.Facts{Settled: true, State: reconcile.StateIncomplete}
	verdict, reason := reconcile.JudgeLook(err)
	if reason == reconcile.ReasonNoSuchBucket {
		facts.State = reconcile.StateFailed
	}
	facts.Reason = reason
	facts.Findings = []reconcile.Finding{t.metadataFinding(name, verdict, reason, err)}
	if ctx.Err() == nil { // else nobody looked, and whoever ended it says so
		t.opts.Logger.Warn("metadata cannot be read", "target", t.target.Name, "err", err)
	}
	return facts
}

// metadataFinding is a finding about a metadata object of this table.
func (t *Table) metadataFinding(name string, v reconcile.Verdict, reason string, err error) reconcile.Finding {
	ref := reconcile.Reference{Role: reconcile.RoleManifest, Path: name, Location: t.main.root.Join(name), Base: t.main.root,
		PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}
	f := reconcile.NewFinding(t.target, ref, time.Time{}) // the engine dates it
	f.Verdict, f.Reason = v, reconcile.Ptr(reason)
	f.SetEvidence(err)
	return f
}

// addTraces looks for signs of a version above the newest. A tag or branch that
// names one proves that the table was rolled back; anything else is a trace that
// leaves the newest version in doubt. doubted reports that there was either.
func (t *Table) addTraces(ctx context.Context, vs *lance.VersionSet, m *lance.Manifest, out *reconcile.Facts) (doubted bool, err error) {
	traces, err := lance.Traces(ctx, t.main, vs, m)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	t.noteRefs(ctx, err, out)
	if a := t.opts.AcceptVersion; a != nil && *a == m.Version {
		return false, nil
	}
	proven := slices.ContainsFunc(traces, func(tr lance.Trace) bool { return tr.Strong })
	for _, tr := range traces {
		if !tr.Strong && proven {
			continue // what is proven needs no traces
		}
		if tr.Kind == lance.TransactionTrace && tr.ServerTime.Sub(tr.ModTime) < commitInFlight && !tr.ModTime.IsZero() {
			continue // a writer in the middle of a commit
		}
		if tr.Kind == lance.TransactionTrace && t.own(ctx, tr.Name) {
			continue // a commit of ours that lost a race; the ledger knows how it ended
		}
		doubted = true
		if tr.Strong {
			out.State = reconcile.StateRolledBack
			kind := "branch"
			if tr.Kind == lance.TagTrace {
				kind = "tag"
			}
			out.Reason = fmt.Sprintf("%s %s names version %d, the newest manifest is %d", kind, tr.Name, tr.Version, m.Version)
			if !slices.Contains(out.Blocks, reconcile.BlockedRolledBack) {
				out.Blocks = append(out.Blocks, reconcile.BlockedRolledBack)
			}
			continue
		}
		f := t.metadataFinding(tr.Name, reconcile.Undecided, reconcile.ReasonHigherVersionTrace, nil)
		f.Version = tr.Version
		out.Findings = append(out.Findings, f)
	}
	return doubted, nil
}

// commitInFlight is how long a transaction file without its manifest is nothing
// but a commit under way: the Lance library gives one 30 s.
const commitInFlight = 30 * time.Second

// own reports whether a transaction file is one that a repair left behind. What
// cannot be read is not known to be.
func (t *Table) own(ctx context.Context, name string) bool {
	body, o, err := t.main.Get(ctx, name, 0, -1)
	if err != nil || o.Size > maxOwnTransaction {
		return false
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxOwnTransaction))
	if err != nil {
		return false
	}
	txn, err := lance.DecodeTransaction(b)
	return err == nil && lance.OwnTransaction(txn)
}

// maxOwnTransaction bounds what is read: ours hold an operation and a list of ids.
const maxOwnTransaction = 4 << 20

// noteRefs turns what kept the refs from being read into findings: a ref that is
// no ref is damage, one that cannot be read leaves the newest version in doubt.
func (t *Table) noteRefs(ctx context.Context, err error, out *reconcile.Facts) {
	if err == nil {
		return
	}
	var corrupt *lance.CorruptError
	if errors.As(err, &corrupt) {
		out.Findings = append(out.Findings, t.metadataFinding(corrupt.Name, reconcile.Unreadable, reasonBadRef, err))
		return
	}
	out.Findings = append(out.Findings, t.cannotLook(ctx, "_refs/", err).Findings...)
}

const reasonBadRef = "bad_ref"
