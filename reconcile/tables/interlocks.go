package tables

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// writersLookedAt is how many of the newest manifests are asked who wrote them.
const writersLookedAt = 10

// conditionalSince is the first Lance release seen to commit on S3 with
// If-None-Match; older ones overwrite a version that someone else committed.
var conditionalSince = [2]int{0, 39}

// interlocks adds what forbids a commit to this table and is asked only when one
// is proposed, since it reads further manifests.
func (p *proposal) interlocks(ctx context.Context) error {
	if p.t.target.Location.Scheme != "s3" || p.t.opts.WritersStopped {
		return nil
	}
	old, err := p.t.unconditionalWriter(ctx)
	if err != nil || !old {
		return err
	}
	for i := range p.findings {
		if f := &p.findings[i]; f.ProposedAction.Destructive() {
			block(f, reconcile.BlockedUnconditionalWriter)
		}
	}
	return nil
}

// unconditionalWriter reports whether one of the newest versions was written by a
// release that commits without a condition.
func (t *Table) unconditionalWriter(ctx context.Context) (bool, error) {
	entries := t.versions.Entries
	for _, e := range entries[:min(len(entries), writersLookedAt)] {
		m, err := t.main.readManifest(ctx, e)
		if err != nil {
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			continue // cleaned up or broken: it tells nothing of who writes now
		}
		if unconditional(m.WriterVersion) {
			return true, nil
		}
	}
	return false, nil
}

// unconditional reports whether a release of the Lance library writes manifests
// on S3 without a condition. A library of another name or a version that cannot
// be read is taken for one that does not: it is not known to.
func unconditional(w lance.WriterVersion) bool {
	if w.Library != "lance" {
		return false
	}
	parts := strings.SplitN(w.Version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return slices.Compare([]int{major, minor}, conditionalSince[:]) < 0
}
