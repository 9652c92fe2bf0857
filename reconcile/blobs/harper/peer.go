package harper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// peer is a node as a place that may hold copies of other nodes' blobs.
type peer struct {
	c *Cluster
	n *node
}

var _ reconcile.Peer = (*peer)(nil)

// Name implements reconcile.Peer.
func (p *peer) Name() string { return Scheme + "://" + p.n.cfg.Name }

// here is the same blob on this node.
func (p *peer) here(ref reconcile.Reference) (unit, error) {
	u, err := p.c.unit(ref.Location)
	if err != nil || u.attr == "" || u.node == p.n {
		return u, reconcile.ErrNotBelow
	}
	u.node = p.n
	return u, nil
}

// Ask implements reconcile.Peer by a full GET: a node's lighter answers tell nothing. A
// copy that is not of the recorded size and checksum is no copy, and no explicit no.
func (p *peer) Ask(ctx context.Context, ref reconcile.Reference) (objstore.Attrs, error) {
	u, err := p.here(ref)
	if err != nil {
		return objstore.Attrs{}, err
	}
	j := &judging{c: p.c, op: "stat", loc: p.c.location(u), u: u}
	fail := func(err error) (objstore.Attrs, error) { return objstore.Attrs{}, j.fail(0, "", err) }
	if err := p.n.open(ctx, p.c.cfg.LeaveAlone); err != nil {
		return fail(err)
	}
	algs := []string{u.set.Algorithm}
	if alg, _, ok := strings.Cut(ref.Checksum, ":"); ok && reconcile.NewHash(alg) != nil {
		algs[0] = alg
	}
	l := p.n.lookAt(ctx, u, how{}, algs)
	if l.outcome == whole {
		switch {
		case ref.Size > 0 && l.got != ref.Size:
			return fail(fmt.Errorf("its copy has %d bytes, recorded are %d", l.got, ref.Size))
		case ref.Checksum != "" && l.sums[algs[0]] != ref.Checksum:
			return fail(fmt.Errorf("its copy has the checksum %s, recorded is %s", l.sums[algs[0]], ref.Checksum))
		}
		p.n.learn(u, l)
		return j.attrs(l), nil
	}
	if l.outcome != absent {
		return objstore.Attrs{}, j.fail(l.status, "", fmt.Errorf("it has no whole copy: %w", noCopy(l)))
	}
	if err := p.n.prove(ctx, l.since, p.c.cfg.LeaveAlone); err != nil {
		return fail(err)
	}
	return objstore.Attrs{}, j.fail(l.status, "NoSuchBlob", objstore.ErrNotExist)
}

var errDamagedThere = errors.New("damaged there as well")

func noCopy(l look) error {
	if l.err != nil {
		return l.err
	}
	switch l.outcome {
	case denied:
		return objstore.ErrDenied
	case throttled, inFlight:
		return objstore.ErrThrottled
	}
	return errDamagedThere
}

// Fetch implements reconcile.Peer.
func (p *peer) Fetch(ctx context.Context, ref reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	u, err := p.here(ref)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	return (&Store{p.c}).Get(ctx, p.c.location(u), objstore.Range{})
}
