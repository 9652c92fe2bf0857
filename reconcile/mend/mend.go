// Package mend brings lost bytes back: from an older version of the same object, or
// from a peer that holds a copy. It knows no format: what proves a copy is the
// source's to say.
//
// Nothing of an object is touched before a copy is whole in local staging and proven.
// An absent object is created only while it is absent; a present one is replaced only
// by a copy that something recorded proves, only while it is the one that was seen,
// and only when its old bytes stay retrievable. There is no way to delete.
package mend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Options of a Mender. Every field must be set, except where noted.
type Options struct {
	// Writer opens the store of a base for writing, Reader for reading.
	Writer func(ctx context.Context, base objstore.Location) (objstore.Writer, error)
	// Allowed are the places that may be written below.
	Allowed []objstore.Location
	// Dir is where copies are staged; Max the most bytes of all copies that are staged
	// at a time, and so of one. Bytes that go to quarantine pass through Dir beside them,
	// one object of at most Max at a time.
	Dir string
	Max int64
	// Quarantine is where replaced bytes are kept when the bucket keeps no versions; the
	// zero Location keeps none.
	Quarantine objstore.Location
	// PendingMaxAge is how old a present object must be before it is replaced: a younger
	// one may still be on its way.
	PendingMaxAge time.Duration
	Logger        *slog.Logger
}

// Job is one damaged object to bring back.
type Job struct {
	Target  reconcile.Target
	Finding reconcile.Finding
	Prover  reconcile.Prover
	// Peers are those that said they hold a copy, the best first.
	Peers []reconcile.Peer
	// StillNamed asks the metadata again, just before the write, whether it still says
	// the same of the object.
	StillNamed func(ctx context.Context) (bool, error)
}

// Outcome is how far a job came. The zero value is Failed.
type Outcome uint8

// The outcomes: nothing was written and no copy is good enough; a rule forbids the
// write; the object is back; another writer was first; whether it is back is unknown.
const (
	Failed Outcome = iota
	Refused
	Restored
	Conflict
	Uncertain
)

// Result is what became of a job.
type Result struct {
	Outcome Outcome
	Action  reconcile.Action
	// Source names where the bytes come from: a version or a peer.
	Source string
	Bytes  int64
	// Proof says what proved the copy, and SHA256 (hex) is its digest.
	Proof, SHA256 string
	Duration      time.Duration
	// Reason is a word of Finding.BlockedBy, or superseded, when Refused.
	Reason string
	Err    error
	// SaidNo are the peers that turned out not to hold a good copy: an explicit no, or
	// twice a copy that is not the object.
	SaidNo []string
	// Disproved are those of SaidNo that served the same copy each time it was fetched
	// and failed its proof: peer and ETag (objstore.Attrs). Never a copy that is merely
	// unproven, disputed or unreadable inside (reconcile.ErrInside), nor one without an ETag.
	Disproved map[string]string
	// Silent are the peers whose answer was none, or ended before the copy was whole.
	Silent []string
	// Refused are the copies that were tried before the one that was taken, or all of
	// them when none was.
	Refused []Attempt
}

// Attempt is one copy that was not taken.
type Attempt struct {
	Action reconcile.Action
	Source string
	Err    error
}

// ReasonSuperseded: the metadata no longer says the same of the object.
const ReasonSuperseded = "superseded"

// Mender carries out jobs. It is safe for concurrent use.
type Mender struct {
	opts    Options
	staging *semaphore.Weighted
}

// New makes a Mender. It does not touch the network.
func New(opts Options) *Mender {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Mender{opts: opts, staging: semaphore.NewWeighted(opts.Max)}
}

// Prepared is a proven copy that may be written. Close gives its staging up.
type Prepared struct {
	m      *Mender
	job    Job
	copy   *staged
	writer objstore.Writer
	result Result
	begun  time.Time
	// agreed: only the agreement of two peers speaks for the copy.
	agreed bool
}

// Close removes the staged copy.
func (p *Prepared) Close() { p.copy.Close() }

// Prepare finds and proves a copy. It writes to local staging only. Without a good
// copy, Prepared is nil and the Result says why.
func (m *Mender) Prepare(ctx context.Context, job Job) (*Prepared, Result) {
	begun := time.Now()
	done := func(r Result) (*Prepared, Result) {
		r.Duration = time.Since(begun)
		return nil, r
	}
	loc := job.Finding.Ref.Location
	if loc == (objstore.Location{}) || !m.allowed(loc) {
		return done(Result{Outcome: Refused, Reason: reconcile.BlockedOutsideRoot, Err: fmt.Errorf("%s lies outside what this invocation may write to", job.Finding.Path)})
	}
	w, err := m.opts.Writer(ctx, job.Finding.Ref.Base)
	if err != nil {
		return done(Result{Err: err})
	}
	c, err := m.choose(ctx, w, job)
	if c.chosen == nil {
		if ctx.Err() != nil {
			return done(Result{Err: context.Cause(ctx)})
		}
		r := Result{Err: errors.Join(err, c.why()), SaidNo: c.saidNo, Disproved: c.disproved, Silent: c.silent, Refused: c.refused}
		if err == nil && (c.unproven || present(job.Finding.Verdict)) {
			// Bytes that are there stay, whatever else turned up.
			r.Outcome, r.Reason = Refused, reconcile.BlockedReplaceUnproven
			r.Err = errors.Join(errors.New("no copy is proven by what is recorded"), r.Err)
		}
		return done(r)
	}
	p := &Prepared{m: m, job: job, copy: c.chosen.copy, writer: w, begun: begun, agreed: c.agreed,
		result: Result{Action: c.chosen.action, Source: c.chosen.source, Bytes: c.chosen.copy.Size(), Proof: c.proof, SHA256: c.chosen.copy.hex(), SaidNo: c.saidNo, Disproved: c.disproved, Refused: c.refused}}
	return p, p.result
}

// present reports whether the verdict is about an object that is there.
func present(v reconcile.Verdict) bool {
	return v == reconcile.SizeMismatch || v == reconcile.ChecksumMismatch || v == reconcile.Unreadable
}

// allowed reports whether a place may be written. On a disk a name with ".." in it may
// lead anywhere.
func (m *Mender) allowed(loc objstore.Location) bool {
	if loc.Scheme == "file" && slices.Contains(strings.Split(loc.Key, "/"), "..") {
		return false
	}
	for _, base := range m.opts.Allowed {
		if name, below := loc.Rel(base); below && name != "" {
			return true
		}
	}
	return false
}
