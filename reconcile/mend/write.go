package mend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Write puts the copy where the object belongs and reads it back. When ctx ends, no
// write begins; one that was sent is awaited for up to sentGrace.
func (p *Prepared) Write(ctx context.Context) Result {
	r := p.write(ctx)
	r.Duration = time.Since(p.begun)
	return r
}

// sentGrace is how long a write that was sent is awaited and read back after ctx
// ended.
const sentGrace = 20 * time.Second

func (p *Prepared) write(ctx context.Context) Result {
	r, loc := p.result, p.job.Finding.Ref.Location
	refuse := func(reason string, err error) Result {
		r.Outcome, r.Reason, r.Err, r.Bytes = Refused, reason, err, 0
		return r
	}
	named, err := p.job.StillNamed(ctx)
	switch {
	case err != nil:
		r.Err, r.Bytes = fmt.Errorf("ask the metadata again: %w", err), 0
		return r
	case !named:
		return refuse(ReasonSuperseded, errors.New("the metadata no longer says the same of the object"))
	}
	now, err := p.writer.Probe(ctx, loc)
	switch {
	case errors.Is(err, objstore.ErrNotExist) && !errors.Is(err, objstore.ErrNoSuchBucket):
		return p.fill(ctx)
	case err != nil:
		r.Err, r.Bytes = fmt.Errorf("look at the object just before the write: %w", err), 0
		return r
	}
	if refusal := p.mayReplace(now); refusal != nil {
		return refuse(refusal.Reason, errors.New(refusal.Detail))
	}
	if !p.keptByVersions(ctx, now) {
		if refusal := p.keep(ctx, now); refusal != nil {
			return refuse(refusal.Reason, errors.New(refusal.Detail))
		}
		// That took its time.
		switch named, err = p.job.StillNamed(ctx); {
		case err != nil:
			r.Err, r.Bytes = fmt.Errorf("ask the metadata again: %w", err), 0
			return r
		case !named:
			return refuse(ReasonSuperseded, errors.New("the metadata no longer says the same of the object"))
		}
	}
	return p.replace(ctx, now)
}

// fill creates an absent object.
func (p *Prepared) fill(ctx context.Context) Result {
	loc := p.job.Finding.Ref.Location
	marker := ""
	for v, err := range p.writer.Versions(ctx, loc) {
		if err == nil && v.DeleteMarker && v.IsLatest {
			marker = v.VersionID
		}
		break
	}
	return p.send(ctx, func(ctx context.Context) (objstore.Attrs, error) {
		if marker != "" {
			return p.writer.CreateOverMarker(ctx, loc, marker, p.copy.body(), p.copy.Size())
		}
		return p.writer.Create(ctx, loc, p.copy.body(), p.copy.Size())
	})
}

func refusal(reason, detail string) *reconcile.Refusal {
	return &reconcile.Refusal{Reason: reason, Detail: detail}
}

// mayReplace holds the rules for overwriting bytes that are there, but for that of
// keeping them.
func (p *Prepared) mayReplace(now objstore.Attrs) *reconcile.Refusal {
	f := p.job.Finding
	switch {
	case f.Verdict == reconcile.Missing || f.Verdict == reconcile.Lost || f.Verdict == reconcile.Recoverable:
		return refusal(ReasonSuperseded, "the object is there again")
	case p.agreed:
		return refusal(reconcile.BlockedReplaceUnproven, "the agreement of peers fills what is absent and replaces nothing")
	case f.ObservedETag == "" || f.ObservedETag != now.ETag:
		return refusal(ReasonSuperseded, "the object is not the one that was seen")
	case now.ModTime.IsZero() || now.ServerTime.IsZero() || now.ServerTime.Sub(now.ModTime) < p.m.opts.PendingMaxAge:
		return refusal(reconcile.BlockedReplaceWouldLose, "the object is young, or its age unknown: it may still be on its way")
	}
	return nil
}

// keep saves bytes that no version keeps.
func (p *Prepared) keep(ctx context.Context, now objstore.Attrs) *reconcile.Refusal {
	if p.m.opts.Quarantine == (objstore.Location{}) {
		return refusal(reconcile.BlockedReplaceWouldLose, "the bucket keeps no versions and no quarantine is configured")
	}
	if err := p.quarantine(ctx, now); err != nil {
		return refusal(reconcile.BlockedReplaceWouldLose, "the old bytes could not be kept: "+err.Error())
	}
	return nil
}

// keptByVersions reports whether the bucket keeps the bytes that are about to be
// replaced as a version.
func (p *Prepared) keptByVersions(ctx context.Context, now objstore.Attrs) bool {
	for v, err := range p.writer.Versions(ctx, p.job.Finding.Ref.Location) {
		if err != nil {
			return false
		}
		// A bucket that never had versions lists its one object as version "null".
		return v.IsLatest && !v.DeleteMarker && v.ETag == now.ETag && v.VersionID != "" && v.VersionID != "null"
	}
	return false
}

// quarantine keeps the bytes that are about to be replaced, under a name that tells
// the object and its content.
func (p *Prepared) quarantine(ctx context.Context, now objstore.Attrs) error {
	w, err := p.m.opts.Writer(ctx, p.m.opts.Quarantine)
	if err != nil {
		return err
	}
	body, at, err := p.writer.Get(ctx, p.job.Finding.Ref.Location, objstore.Range{})
	if err != nil {
		return err
	}
	defer body.Close()
	if at.ETag != now.ETag {
		return errors.New("the object changed while it was read")
	}
	old, err := stage(ctx, p.m.opts.Dir, p.m.opts.Max, body, at.Size)
	if err != nil {
		return err
	}
	defer old.Close()
	name := sha256.Sum256([]byte(p.job.Finding.Ref.Location.Canonical()))
	loc := p.m.opts.Quarantine.Join(hex.EncodeToString(name[:16]) + "/" + old.hex())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	sctx, stop := graced(ctx, sentGrace)
	defer stop()
	_, perr := w.Create(sctx, loc, old.body(), old.Size())
	// Whatever the answer was: kept is what can be read.
	if same, err := holds(sctx, w, loc, old); !same {
		return errors.Join(perr, err, fmt.Errorf("%s does not hold them", loc))
	}
	p.m.opts.Logger.Warn("kept the bytes that a repair replaces", "object", p.job.Finding.Ref.Location.String(), "kept_as", loc.String())
	return nil
}

func (p *Prepared) replace(ctx context.Context, now objstore.Attrs) Result {
	return p.send(ctx, func(ctx context.Context) (objstore.Attrs, error) {
		return p.writer.Replace(ctx, p.job.Finding.Ref.Location, now.ETag, p.copy.body(), p.copy.Size())
	})
}

// send writes once and finds out what came of it.
func (p *Prepared) send(ctx context.Context, put func(context.Context) (objstore.Attrs, error)) Result {
	r := p.result
	if ctx.Err() != nil {
		r.Err, r.Bytes = context.Cause(ctx), 0
		return r
	}
	sctx, stop := graced(ctx, sentGrace)
	defer stop()
	_, err := put(sctx)
	if err != nil && !errors.Is(err, objstore.ErrExist) && !errors.Is(err, objstore.ErrNotExist) {
		p.m.opts.Logger.Warn("whether a copy was stored is not known yet", "path", p.job.Finding.Path, "err", err)
	}
	same, berr := p.readBack(sctx)
	switch {
	case same:
		// Whatever the answer was, and whoever stored it: the object is what it must be.
		r.Outcome = Restored
	case errors.Is(err, objstore.ErrExist), errors.Is(err, objstore.ErrNotExist):
		r.Outcome, r.Err, r.Bytes = Conflict, err, 0
	case berr != nil && !errors.Is(berr, objstore.ErrNotExist):
		r.Outcome, r.Err = Uncertain, errors.Join(err, fmt.Errorf("read back: %w", berr))
	case err == nil:
		r.Outcome, r.Err = Uncertain, errors.New("the store said that the copy was stored, and it is not there")
	default:
		r.Outcome, r.Err, r.Bytes = Failed, err, 0
	}
	return r
}

// readBack reads the object whole and compares it with the copy.
func (p *Prepared) readBack(ctx context.Context) (same bool, err error) {
	return holds(ctx, p.writer, p.job.Finding.Ref.Location, p.copy)
}

// holds reads an object whole and compares it with a copy.
func holds(ctx context.Context, from objstore.Getter, loc objstore.Location, c *staged) (same bool, err error) {
	body, at, err := from.Get(ctx, loc, objstore.Range{})
	if err != nil {
		return false, err
	}
	defer body.Close()
	if at.Size != objstore.Unknown && at.Size != c.Size() {
		return false, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, body); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == c.hex(), nil
}

// graced is a context that outlives ctx by d.
func graced(ctx context.Context, d time.Duration) (context.Context, func()) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(d, cancel)
		context.AfterFunc(out, func() { t.Stop() })
	})
	return out, func() { stop(); cancel() }
}
