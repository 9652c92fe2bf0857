package mend

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// candidate is one place that may hold a good copy.
type candidate struct {
	action reconcile.Action
	source string
	peer   reconcile.Peer // nil for a version
	open   func(ctx context.Context) (io.ReadCloser, objstore.Attrs, error)
	copy   *staged
	// etag is that of the copy that was fetched last, and disproved that of one that
	// failed its proof each time it was fetched; empty when not told, or not the same.
	etag, disproved string
	// silent: the last fetch ended without a whole answer.
	silent bool
}

// choice is what became of the candidates.
type choice struct {
	chosen *candidate
	proof  string
	agreed bool
	// unproven: some copy is neither proven nor disproven.
	unproven  bool
	saidNo    []string
	disproved map[string]string
	silent    []string
	refused   []Attempt
	errs      []error
}

func (c *choice) why() error { return errors.Join(c.errs...) }

// fetchTries is how often a copy that fails its proof is fetched: a body spoiled on
// the way is not the peer's word.
const fetchTries = 2

// choose takes the first candidate with a proven copy: older versions first, the
// newest of them before the others, then peers. Failing that, two peers that hold the
// same unproven bytes agree, which may fill an absent object. One copy at a time is
// staged.
func (m *Mender) choose(ctx context.Context, w objstore.Writer, job Job) (c choice, err error) {
	candidates, err := m.candidates(ctx, w, job)
	c.disproved = map[string]string{}
	var opinions opinions
	for i := range candidates {
		cand := &candidates[i]
		proof, perr := m.fetch(ctx, job, cand)
		disproved := cand.disproved // of a copy that never passed: a later look at it may differ
		if perr == nil && cand.peer != nil && !strings.HasPrefix(proof, checksumProof) {
			proof, perr = m.contradicted(ctx, job, cand, proof, candidates)
		}
		switch {
		case ctx.Err() != nil:
			cand.drop()
			return c, context.Cause(ctx)
		case perr == nil:
			c.chosen, c.proof = cand, proof
			return c, nil
		case errors.Is(perr, reconcile.ErrUnproven):
			c.unproven = true
			if cand.copy == nil {
				break // disputed
			}
			if cerr := tellsApart(ctx, job.Finding.Ref, cand.peer); cerr != nil {
				perr = fmt.Errorf("%w; %w", perr, cerr)
			} else if other := opinions.agrees(cand); other != "" {
				c.chosen, c.agreed, c.proof = cand, true, "agreement of "+other+" and "+cand.source
				return c, nil
			}
			cand.drop()
		case errors.Is(perr, objstore.ErrNotExist) && !errors.Is(perr, objstore.ErrNoSuchBucket), errors.Is(perr, errDisproved):
			if cand.peer != nil && !errors.Is(perr, reconcile.ErrInside) {
				c.saidNo = append(c.saidNo, cand.source)
				if disproved != "" {
					c.disproved[cand.source] = disproved
				}
			}
		}
		if cand.peer != nil && cand.silent {
			c.silent = append(c.silent, cand.source)
		}
		c.errs = append(c.errs, fmt.Errorf("%s: %w", cand.source, perr))
		c.refused = append(c.refused, Attempt{cand.action, cand.source, perr})
		m.opts.Logger.Info("a copy is not taken", "target", job.Target.Name, "path", job.Finding.Path, "source", cand.source, "err", perr)
	}
	if len(candidates) == 0 {
		c.errs = append(c.errs, errNoSource)
	}
	return c, err
}

// checksumProof begins the word of a proof that a recorded checksum gives. Any other
// leaves values open that nothing recorded speaks of.
const checksumProof = "checksum"

// errDisputed: two peers hold copies that both pass for the object, and differ.
var errDisputed = fmt.Errorf("%w: another peer holds other bytes that pass for the object as well", reconcile.ErrUnproven)

// contradicted asks the other peers for the digest of their copies, where what is
// recorded proves a copy by its form alone: values that flipped show only there. The
// same bytes elsewhere, or no other copy that passes, settle it.
func (m *Mender) contradicted(ctx context.Context, job Job, cand *candidate, proof string, all []candidate) (string, error) {
	size, held := cand.copy.Size(), cand.copy.hex()
	var differ []*candidate
	for i := range all {
		other := &all[i]
		if other.peer == nil || other.source == cand.source {
			continue
		}
		sum, n, err := digest(ctx, other, size)
		switch {
		case ctx.Err() != nil:
			cand.drop()
			return "", context.Cause(ctx)
		case err != nil || n != size: // no opinion
		case sum == held:
			return proof + ", and the same at " + other.source, nil
		default:
			differ = append(differ, other)
		}
	}
	for _, other := range differ {
		// One copy is staged at a time: ours is given up while the other is proven.
		cand.drop()
		_, perr := m.fetch(ctx, job, other)
		other.drop()
		if perr == nil {
			return "", errDisputed
		}
		if _, err := m.fetch(ctx, job, cand); err != nil {
			return "", err
		}
		if cand.copy.hex() != held {
			cand.drop()
			return "", fmt.Errorf("%w: the peer served other bytes the second time", errDisproved)
		}
	}
	return proof, nil
}

// digest reads a candidate's copy without keeping it, up to one byte more than most: it
// is the size of what it is held against.
func digest(ctx context.Context, cand *candidate, most int64) (sum string, size int64, err error) {
	body, at, err := cand.open(ctx)
	if err != nil {
		return "", 0, err
	}
	defer body.Close()
	if at.Size != objstore.Unknown && at.Size != most {
		return "", at.Size, nil
	}
	h := sha256.New()
	size, err = io.Copy(h, io.LimitReader(&untilDone{ctx, body}, most+1))
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// errAnswersAnything: what a peer serves may be the same for every key.
var errAnswersAnything = errors.New("the peer does not say no to a key that cannot exist, so that its copy counts for nothing")

// tellsApart asks a peer for a key beside the object's that cannot exist. One that does
// not say no to it may serve a page of its own under every key, and two of those agree.
func tellsApart(ctx context.Context, ref reconcile.Reference, peer reconcile.Peer) error {
	if peer == nil {
		return nil // a version, which has no opinion
	}
	name := ".reconcile-control-" + rand.Text()
	ref.Location, ref.Path = ref.Location.Parent().Join(name), path.Join(path.Dir(ref.Path), name)
	ref.Alternates, ref.Size, ref.Checksum = nil, 0, ""
	switch _, err := peer.Ask(ctx, ref); {
	case errors.Is(err, reconcile.ErrWeakNo), errors.Is(err, objstore.ErrNotExist) && !errors.Is(err, objstore.ErrNoSuchBucket):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errAnswersAnything, err)
	}
	return errAnswersAnything
}

// opinions are the unproven copies of peers so far: which bytes, by whom first.
type opinions map[opinion]string

type opinion struct {
	size   int64
	sha256 string
}

// agrees names the peer that holds the same bytes as the candidate, which counts from
// now on. Versions of the own store have no opinion, and no peer has two.
func (o *opinions) agrees(cand *candidate) string {
	if cand.peer == nil {
		return ""
	}
	if *o == nil {
		*o = opinions{}
	}
	held := opinion{cand.copy.Size(), cand.copy.hex()}
	other, known := (*o)[held]
	if !known {
		(*o)[held] = cand.source
	}
	if other == cand.source {
		return ""
	}
	return other
}

var (
	// errDisproved: the copy was whole and is not the object.
	errDisproved = errors.New("the copy is not the object")
	// errNoSource: there was nothing to try.
	errNoSource = errors.New("no older version and no peer is left that may hold a copy")
)

// drop gives the staged copy up.
func (c *candidate) drop() {
	if c.copy != nil {
		c.copy.Close()
		c.copy = nil
	}
}

// fetch stages a candidate's copy and proves it. With ErrUnproven the copy is kept.
func (m *Mender) fetch(ctx context.Context, job Job, cand *candidate) (proof string, err error) {
	cand.disproved = ""
	first, same := "", true
	for try := 1; ; try++ {
		proof, err = m.fetchOnce(ctx, job, cand)
		if !errors.Is(err, errDisproved) || ctx.Err() != nil {
			return proof, err
		}
		if try == 1 {
			first = cand.etag
		}
		same = same && cand.etag == first
		if try == fetchTries {
			if same && !errors.Is(err, reconcile.ErrInside) {
				cand.disproved = first
			}
			return proof, err
		}
	}
}

func (m *Mender) fetchOnce(ctx context.Context, job Job, cand *candidate) (proof string, err error) {
	recorded := job.Finding.Ref.Size
	cand.etag, cand.silent = "", false
	room, err := m.room(ctx, recorded)
	if err != nil {
		return "", err
	}
	defer func() {
		if cand.copy == nil {
			room.free()
		}
	}()
	body, at, err := cand.open(ctx)
	if err != nil {
		cand.silent = !errors.Is(err, objstore.ErrNotExist) || errors.Is(err, objstore.ErrNoSuchBucket)
		return "", err
	}
	defer body.Close()
	read := &readErr{r: body}
	cand.etag = at.ETag
	if recorded > 0 && at.Size != objstore.Unknown && at.Size != recorded {
		return "", fmt.Errorf("%w: it has %d bytes, recorded are %d", errDisproved, at.Size, recorded)
	}
	if cand.copy, err = stage(ctx, m.opts.Dir, room.bytes, read, at.Size); err != nil {
		cand.silent = read.err != nil || errors.Is(err, errShort)
		if errors.Is(err, errTooLarge) && recorded > 0 {
			err = fmt.Errorf("%w: it has more than the %d bytes that are recorded", errDisproved, recorded)
		}
		return "", err
	}
	cand.copy.room = room
	proof, err = job.Prover.Prove(ctx, job.Finding.Ref, cand.copy)
	if err != nil && !errors.Is(err, reconcile.ErrUnproven) {
		cand.drop()
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
		out = append(out, candidate{action: reconcile.ActionRefetch, source: p.Name(), peer: p, open: func(ctx context.Context) (io.ReadCloser, objstore.Attrs, error) { return p.Fetch(ctx, ref) }})
	}
	return out, err
}
