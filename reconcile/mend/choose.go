package mend

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// candidate is one place that may hold a good copy.
type candidate struct {
	action reconcile.Action
	source string
	peer   bool
	open   func(ctx context.Context) (io.ReadCloser, objstore.Attrs, error)
	copy   *staged
}

// choice is what became of the candidates.
type choice struct {
	chosen *candidate
	proof  string
	agreed bool
	// unproven: some copy is neither proven nor disproven.
	unproven bool
	saidNo   []string
	errs     []error
}

func (c *choice) why() error { return errors.Join(c.errs...) }

// fetchTries is how often a copy that fails its proof is fetched: a body spoiled on
// the way is not the peer's word.
const fetchTries = 2

// choose takes the first candidate with a proven copy: older versions first, the
// newest of them before the others, then peers. Failing that, two peers that hold the
// same unproven bytes agree, which may fill an absent object.
func (m *Mender) choose(ctx context.Context, w objstore.Writer, job Job) (c choice, err error) {
	candidates, err := m.candidates(ctx, w, job)
	var open []*candidate // neither proven nor disproven
	defer func() {
		for _, o := range open {
			if c.chosen != o {
				o.copy.Close()
			}
		}
	}()
	for i := range candidates {
		cand := &candidates[i]
		proof, perr := m.fetch(ctx, job, cand)
		switch {
		case ctx.Err() != nil:
			if cand.copy != nil {
				cand.copy.Close()
			}
			return c, context.Cause(ctx)
		case perr == nil:
			c.chosen, c.proof = cand, proof
			return c, nil
		case errors.Is(perr, reconcile.ErrUnproven):
			c.unproven = true
			open = append(open, cand)
			if a, b := agree(open); a != nil {
				c.chosen, c.agreed, c.proof = a, true, "agreement of "+a.source+" and "+b.source
				return c, nil
			}
		case errors.Is(perr, objstore.ErrNotExist), errors.Is(perr, errDisproved):
			if cand.peer {
				c.saidNo = append(c.saidNo, cand.source)
			}
		}
		c.errs = append(c.errs, fmt.Errorf("%s: %w", cand.source, perr))
		m.opts.Logger.Info("a copy is not taken", "target", job.Target.Name, "path", job.Finding.Path, "source", cand.source, "err", perr)
	}
	return c, err
}

// agree finds two peers with the same bytes. Two versions of one store are not two
// opinions.
func agree(open []*candidate) (a, b *candidate) {
	last := open[len(open)-1]
	for _, o := range open[:len(open)-1] {
		if o.peer && last.peer && o.source != last.source && o.copy.Size() == last.copy.Size() && o.copy.hex() == last.copy.hex() {
			return o, last
		}
	}
	return nil, nil
}

// errDisproved: the copy was whole and is not the object.
var errDisproved = errors.New("the copy is not the object")

// fetch stages a candidate's copy and proves it. With ErrUnproven the copy is kept.
func (m *Mender) fetch(ctx context.Context, job Job, cand *candidate) (proof string, err error) {
	for try := 1; ; try++ {
		proof, err = m.fetchOnce(ctx, job, cand)
		if try == fetchTries || !errors.Is(err, errDisproved) || ctx.Err() != nil {
			return proof, err
		}
	}
}

func (m *Mender) fetchOnce(ctx context.Context, job Job, cand *candidate) (proof string, err error) {
	body, at, err := cand.open(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	if cand.copy, err = stage(ctx, m.opts.Dir, m.opts.Max, body, at.Size); err != nil {
		return "", err
	}
	proof, err = job.Prover.Prove(ctx, job.Finding.Ref, cand.copy)
	if err != nil && !errors.Is(err, reconcile.ErrUnproven) {
		cand.copy.Close()
		cand.copy = nil
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errDisproved, err)
		}
	}
	return proof, err
}

// candidates are the versions that may be brought back, the newest first, and the
// peers.
func (m *Mender) candidates(ctx context.Context, w objstore.Writer, job Job) (out []candidate, err error) {
	ref := job.Finding.Ref
	if job.Finding.Restorable {
		for v, verr := range w.Versions(ctx, ref.Location) {
			if verr != nil {
				err = fmt.Errorf("list versions of %s: %w", ref.Location, verr)
				break
			}
			if v.DeleteMarker || v.IsLatest || ref.Size > 0 && v.Size >= 0 && v.Size != ref.Size {
				continue
			}
			out = append(out, candidate{action: reconcile.ActionRestore, source: "version " + v.VersionID, open: func(ctx context.Context) (io.ReadCloser, objstore.Attrs, error) {
				return w.GetVersion(ctx, ref.Location, v.VersionID, objstore.Range{})
			}})
		}
	}
	for _, p := range job.Peers {
		out = append(out, candidate{action: reconcile.ActionRefetch, source: p.Name(), peer: true, open: func(ctx context.Context) (io.ReadCloser, objstore.Attrs, error) { return p.Fetch(ctx, ref) }})
	}
	return out, err
}
