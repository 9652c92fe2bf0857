package blobs

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Format is of objects that hold a blob's bytes with something around them. What is
// recorded of a blob is then said of the bytes inside, and no such object is ever made
// or replaced.
type Format struct {
	// Name tells formats apart.
	Name string
	// HeaderSize is how many bytes an object of the format has at least; with them it
	// begins, and often no others need be read.
	HeaderSize int64
	// Judge says what an object of size bytes is, which r yields from its first byte.
	// recorded is the length that is recorded of the bytes inside (0: none is); they go
	// through digest (may be nil). An error says that r could not be read.
	Judge func(r io.Reader, size, recorded int64, digest hash.Hash) (Judgement, error)
}

// Judgement is what an object of a [Format] is.
type Judgement struct {
	// Verdict is Present, Unreadable, SizeMismatch (the object agrees with itself and not
	// with what is recorded), or Undecided beside an error.
	Verdict reconcile.Verdict
	// Reason of Unreadable; else empty.
	Reason string
	// Size of what is inside in bytes, when Present or SizeMismatch; else 0.
	Size int64
}

var errNotPlaced = errors.New("objects of this format are looked at, never put in place")

// inside makes a reference one to an object of the format: what is recorded is of the
// bytes inside, and the store's length and checksums are those of the whole object.
func (f *Format) inside(ref *reconcile.Reference) {
	ref.Content = &reconcile.Content{Size: ref.Size, Checksum: ref.Checksum}
	ref.Size, ref.Checksum, ref.MinSize = 0, "", f.HeaderSize
}

// inspectInside judges an object of the format, and at depth checksum compares the
// recorded checksum of the bytes inside.
func (c *Collection) inspectInside(ctx context.Context, ref reconcile.Reference, at objstore.Attrs, depth reconcile.Depth) (reconcile.Verdict, string, error) {
	if depth < reconcile.DepthFooter {
		return reconcile.Present, "", nil
	}
	size, checksum := ref.Recorded()
	alg, header := algorithm(checksum), c.opts.Format.HeaderSize
	r := &reading{c: c, ctx: ctx, ref: ref, at: at, next: []objstore.Range{{}}}
	defer r.close()
	digest := reconcile.NewHash(alg)
	if depth < reconcile.DepthChecksum || digest == nil {
		digest, r.next = nil, []objstore.Range{{Length: header}, {Offset: header}}
	}
	j, err := c.opts.Format.Judge(r, at.Size, size, digest)
	if err == nil && j.Verdict == reconcile.Present && digest != nil {
		if sum := reconcile.Checksum(alg, digest); sum != checksum {
			j.Verdict, j.Reason = reconcile.ChecksumMismatch, "read "+sum
		}
	}
	c.noteContent(ref.Path, j)
	if err != nil {
		return reconcile.Undecided, "", fmt.Errorf("%s: %w", ref.Location, err)
	}
	return j.Verdict, j.Reason, nil
}

// noteContent remembers how long the bytes inside an object are that are whole and not
// what is recorded, for the finding: the store tells the length of the whole object.
func (c *Collection) noteContent(path string, j Judgement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.Verdict == reconcile.SizeMismatch || j.Verdict == reconcile.ChecksumMismatch {
		c.contents[path] = j.Size
	} else {
		delete(c.contents, path)
	}
}

// showContent gives a finding the length of the bytes inside, where noteContent has it.
func (c *Collection) showContent(f *reconcile.Finding) {
	switch f.Verdict {
	case reconcile.SizeMismatch, reconcile.ChecksumMismatch, reconcile.Pending:
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.contents[f.Path]; ok && f.ObservedSize != nil {
		f.ObservedSize = reconcile.Ptr(n)
	}
}

// reading yields the ranges of an object one after the other, each asked for no sooner
// than its bytes are, and read no faster than allowed.
type reading struct {
	c    *Collection
	ctx  context.Context
	ref  reconcile.Reference
	at   objstore.Attrs
	next []objstore.Range
	body io.ReadCloser
}

// Read implements io.Reader.
func (r *reading) Read(p []byte) (int, error) {
	for {
		if r.body == nil {
			if len(r.next) == 0 {
				return 0, io.EOF
			}
			if err := r.open(r.next[0]); err != nil {
				return 0, err
			}
			r.next = r.next[1:]
		}
		n, err := (&paced{r.ctx, r.body, r.c.opts.Throttle}).Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		r.close()
		if n > 0 {
			return n, nil
		}
	}
}

func (r *reading) open(rng objstore.Range) error {
	from, err := r.c.opts.Stores.Reader(r.ctx, r.ref.Base)
	if err != nil {
		return err
	}
	body, got, err := from.Get(r.ctx, r.ref.Location, rng)
	if err != nil {
		return err
	}
	if r.at.ETag != "" && got.ETag != r.at.ETag || got.Size != objstore.Unknown && got.Size != r.at.Size {
		_ = body.Close()
		return errors.New("it changed while it was read")
	}
	r.body = body
	return nil
}

func (r *reading) close() {
	if r.body != nil {
		_ = r.body.Close()
		r.body = nil
	}
}
