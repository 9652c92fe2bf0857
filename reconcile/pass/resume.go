package pass

import (
	"context"
	"fmt"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// resumable is a source whose walk can go on where an earlier one was broken off.
type resumable interface {
	// Position goes on after everything that the walk yielded so far; empty when the
	// source cannot tell.
	Position() string
	// Resume makes the walk begin there. An error says that the position is not good any
	// more.
	Resume(ctx context.Context, position string) error
	// SourceID names what positions are good in: other references, or others of them,
	// have another.
	SourceID() string
	// Named resolves references by their paths, as the metadata says now; what it no
	// longer names is left out.
	Named(ctx context.Context, paths []string) ([]reconcile.Reference, error)
}

// checkpointEvery is after how many references a walk is recorded.
const checkpointEvery = 10_000

// maxSuspects bounds what a checkpoint holds; a walk with more damage than that is
// begun anew after it was broken off.
const maxSuspects = 100_000

// resume takes up a walk that an earlier pass was broken off in. It returns what that
// pass saw damaged, to be looked at again.
func (p *engine) resume(ctx context.Context, l *look) ([]reconcile.Reference, error) {
	src, ok := l.src.(resumable)
	if !ok || !p.remembers() {
		return nil, nil
	}
	uri := l.target.Location.Canonical()
	cp, err := p.opts.Recall.Memory.Checkpoint(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("%w: where the look at %s stopped: %w", errMemory, l.target.Name, err)
	}
	if cp == nil || cp.SourceID != p.sourceID(src) {
		return nil, nil
	}
	if err := src.Resume(ctx, cp.Position); err != nil {
		p.opts.Logger.Info("the look begins anew", "target", l.target.Name, "err", err)
		return nil, nil
	}
	again, err := src.Named(ctx, cp.Suspects)
	if err != nil {
		return nil, err
	}
	l.result.References, l.result.Checked = cp.References, cp.Checked
	l.verdicts[reconcile.Present] = cp.Present
	l.resumed = true
	p.refs.Add(cp.References)
	p.checked.Add(cp.Checked)
	p.opts.Logger.Info("the look goes on where it stopped", "target", l.target.Name, "references", cp.References, "to_look_at_again", len(again))
	return again, nil
}

// sourceID names what a checkpoint is good for: a deeper look goes on from none of a
// shallow one.
func (p *engine) sourceID(src resumable) string { return p.opts.Depth.String() + " " + src.SourceID() }

// checkpoint records how far a walk came. Nothing of the target is in flight; when ctx
// ended, not all of it was answered.
func (p *engine) checkpoint(ctx context.Context, l *look) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	src, ok := l.src.(resumable)
	if !ok || !p.remembers() || src.Position() == "" {
		return nil
	}
	l.mu.Lock()
	n := int64(l.suspects.n)
	cp := ledger.Checkpoint{Position: src.Position(), SourceID: p.sourceID(src), References: l.result.References - n, Checked: l.result.Checked - n,
		Present: l.verdicts[reconcile.Present], Suspects: make([]string, 0, n)}
	for _, f := range l.suspects.from(0) {
		cp.Suspects = append(cp.Suspects, f.ref.Path)
	}
	l.mu.Unlock()
	if n > maxSuspects {
		return nil
	}
	if err := p.opts.Recall.Memory.SaveCheckpoint(ctx, p.opts.Recall.PassID, l.target.Location.Canonical(), cp); err != nil {
		return fmt.Errorf("%w: record how far the look at %s came: %w", errMemory, l.target.Name, err)
	}
	return nil
}

// forgetCheckpoint ends what a whole walk needs no more.
func (p *engine) forgetCheckpoint(ctx context.Context, l *look) error {
	if _, ok := l.src.(resumable); !ok || !p.remembers() || l.brokenOff != "" {
		return nil
	}
	return p.opts.Recall.Memory.DropCheckpoint(ctx, l.target.Location.Canonical())
}
