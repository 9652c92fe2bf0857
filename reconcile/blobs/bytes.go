package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// algorithm is the one that a recorded checksum names.
func algorithm(checksum string) string {
	alg, _, _ := strings.Cut(checksum, ":")
	return alg
}

var errUnmarked = errors.New("nothing in a blob tells where it ends")

// Inspect implements reconcile.Source: at depth checksum it reads the whole object
// where a checksum is recorded. An object of a Format is judged at
// depth footer as well.
func (c *Collection) Inspect(ctx context.Context, ref reconcile.Reference, at objstore.Attrs, depth reconcile.Depth) (reconcile.Verdict, string, error) {
	if ref.Content != nil {
		return c.inspectInside(ctx, ref, at, depth)
	}
	if ref.Size > 0 && at.Size != ref.Size {
		return reconcile.Undecided, "", errUnmarked
	}
	h := reconcile.NewHash(algorithm(ref.Checksum))
	if depth < reconcile.DepthChecksum || h == nil {
		return reconcile.Present, "", nil
	}
	r, err := c.opts.Stores.Reader(ctx, ref.Base)
	if err != nil {
		return reconcile.Undecided, "", err
	}
	body, got, err := r.Get(ctx, ref.Location, objstore.Range{})
	if err != nil {
		return reconcile.Undecided, "", err
	}
	defer body.Close()
	if _, err := io.Copy(h, &paced{ctx, body, c.opts.Throttle}); err != nil {
		return reconcile.Undecided, "", fmt.Errorf("read %s: %w", ref.Location, err)
	}
	if at.ETag != "" && got.ETag != at.ETag {
		return reconcile.Undecided, "", fmt.Errorf("%s changed while it was read", ref.Location)
	}
	if sum := reconcile.Checksum(algorithm(ref.Checksum), h); sum != ref.Checksum {
		return reconcile.ChecksumMismatch, "read " + sum, nil
	}
	return reconcile.Present, "", nil
}

// paced reads no faster than allowed.
type paced struct {
	ctx      context.Context
	r        io.Reader
	throttle func(context.Context, int) error
}

func (p *paced) Read(b []byte) (int, error) {
	if p.throttle != nil {
		b = b[:min(len(b), 64<<10)]
		if err := p.throttle(p.ctx, len(b)); err != nil {
			return 0, err
		}
	}
	return p.r.Read(b)
}

// Provable implements reconcile.ProofTeller. Nodes repair themselves, and prove what they
// keep in their own way.
func (c *Collection) Provable(ref reconcile.Reference) bool {
	return c.opts.Nodes || ref.Content == nil && ref.Checksum != ""
}

// Prove implements reconcile.Prover: only a recorded checksum proves a blob, and
// nothing an object of a Format.
func (c *Collection) Prove(_ context.Context, ref reconcile.Reference, copied reconcile.Copy) (string, error) {
	if ref.Content != nil {
		return "", errNotPlaced
	}
	if ref.Size > 0 && copied.Size() != ref.Size {
		return "", fmt.Errorf("%d bytes, recorded are %d", copied.Size(), ref.Size)
	}
	alg := algorithm(ref.Checksum)
	switch sum := copied.Sum(alg); {
	case ref.Checksum == "" || sum == "":
		return "", reconcile.ErrUnproven
	case sum != ref.Checksum:
		return "", fmt.Errorf("its checksum is %s, recorded is %s", sum, ref.Checksum)
	}
	return "checksum " + alg, nil
}
