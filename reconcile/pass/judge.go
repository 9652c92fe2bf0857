package pass

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// answer is what one look at one reference gave.
type answer struct {
	verdict reconcile.Verdict
	reason  string
	attrs   objstore.Attrs
	err     error
}

// absent reports that the store said "no such object" (and nothing else was wrong).
func (a answer) absent() bool { return a.verdict == reconcile.Missing }

// judgeError turns what a store answered instead of attributes into a verdict. A store
// that contradicts itself is nothing that a store says, and known here only.
func judgeError(err error) answer {
	if errors.Is(err, errContradiction) {
		return answer{reason: reconcile.ReasonContradiction, err: err}
	}
	v, reason := reconcile.Judge(err)
	return answer{verdict: v, reason: reason, err: err}
}

// judgeAttrs compares what is there with what is recorded, without opening it.
func judgeAttrs(ref reconcile.Reference, at objstore.Attrs) answer {
	a := answer{verdict: reconcile.Present, attrs: at}
	switch {
	case at.Size == objstore.Unknown:
		a.verdict, a.reason = reconcile.Undecided, reconcile.ReasonNoContentLength
	case ref.Size > 0 && at.Size != ref.Size:
		a.verdict = reconcile.SizeMismatch
	case ref.Size <= 0 && at.Size < ref.MinSize:
		a.verdict, a.reason = reconcile.Unreadable, reconcile.ReasonTooShort
	case at.Archived:
		a.verdict = reconcile.Archived
	case otherChecksum(ref, at) != "":
		a.verdict, a.reason = reconcile.ChecksumMismatch, "the store keeps "+otherChecksum(ref, at)
	}
	return a
}

// otherChecksum is the checksum that the store keeps of the object, where it is of the
// recorded algorithm and not the recorded one.
func otherChecksum(ref reconcile.Reference, at objstore.Attrs) string {
	alg, _, ok := strings.Cut(ref.Checksum, ":")
	if kept := at.Checksums[alg]; ok && kept != "" && kept != ref.Checksum {
		return kept
	}
	return ""
}

// asker is one way to ask for attributes: the hot path or the second opinion.
type asker func(ctx context.Context, r objstore.Reader, loc objstore.Location) (objstore.Attrs, error)

func statAsker(ctx context.Context, r objstore.Reader, loc objstore.Location) (objstore.Attrs, error) {
	return r.Stat(ctx, loc)
}

// restatAsker is the second opinion: the vendor's own HEAD on a fresh connection
// and, since a HEAD has no body, the error code of a one-byte GET. The two must
// agree that there is no such object.
func restatAsker(ctx context.Context, r objstore.Reader, loc objstore.Location) (objstore.Attrs, error) {
	at, err := r.Restat(ctx, loc)
	if err == nil || !errors.Is(err, objstore.ErrNotExist) {
		return at, err
	}
	pat, perr := r.Probe(ctx, loc)
	if perr == nil {
		// The HEAD and the GET contradict each other; take neither's word.
		return objstore.Attrs{}, &objstore.Error{Op: "probe", Location: loc, RequestID: pat.RequestID, Err: errContradiction}
	}
	return objstore.Attrs{}, keepMarker(perr, err)
}

var errContradiction = errors.New("the store contradicts itself about the object")

// keepMarker carries the delete-marker flag of the HEAD over to the GET's error,
// which has the better code.
func keepMarker(perr, herr error) error {
	var pe, he *objstore.Error
	if errors.As(perr, &pe) && errors.As(herr, &he) && he.DeleteMarker {
		pe.DeleteMarker = true
	}
	return perr
}

// ask looks at one reference, its alternates included: an object that any of the
// places holds is present, and it is missing only when every place said so.
func (p *engine) ask(ctx context.Context, ref reconcile.Reference, how asker) answer {
	if ref.Location == (objstore.Location{}) {
		reason := ref.Reason
		if reason == "" {
			reason = reconcile.ReasonUnknownBase
		}
		return answer{reason: reason}
	}
	first := p.askAt(ctx, ref, reconcile.Place{Base: ref.Base, Location: ref.Location}, how)
	if !first.absent() {
		return first
	}
	for _, alt := range ref.Alternates {
		switch a := p.askAt(ctx, ref, alt, how); {
		case a.absent():
		case a.verdict.Open():
			// Not there, and perhaps over there: open.
			first = answer{verdict: reconcile.Undecided, reason: a.reason, err: a.err}
		default:
			return a
		}
	}
	return first
}

func (p *engine) askAt(ctx context.Context, ref reconcile.Reference, at reconcile.Place, how asker) answer {
	r, err := p.opts.Stores.Reader(ctx, at.Base)
	if err != nil {
		return judgeError(err)
	}
	attrs, err := how(ctx, r, at.Location)
	if err != nil {
		return judgeError(err)
	}
	return judgeAttrs(ref, attrs)
}

// inspect looks inside an object where the size or the depth asks for it.
//
// A size that would be damage is asked of the GET as well: some stores and proxies
// tell a Content-Length in answer to a HEAD that is not the object's.
func (p *engine) inspect(ctx context.Context, src reconcile.Source, ref reconcile.Reference, a answer) answer {
	// A verdict that the store gave by itself has no size to compare.
	if a.err == nil && (a.verdict == reconcile.SizeMismatch || a.verdict == reconcile.Unreadable) {
		if other := p.secondSize(ctx, ref, a.attrs); other != nil {
			return *other
		}
	}
	switch {
	case a.verdict == reconcile.SizeMismatch:
		v, reason, err := src.Inspect(ctx, ref, a.attrs, reconcile.DepthHead)
		switch {
		case err != nil:
			// The size alone already differs; what lies inside stays unknown, so no
			// reason that would allow a drop is set.
		case v == reconcile.Present && reason == "":
			a.reason = reconcile.ReasonMetadataSizeWrong
		default:
			a.reason = reason
		}
	case a.verdict == reconcile.Present && p.opts.Depth >= reconcile.DepthFooter:
		v, reason, err := src.Inspect(ctx, ref, a.attrs, p.opts.Depth)
		if err != nil {
			j := judgeError(err)
			if j.absent() {
				j.verdict, j.reason = reconcile.Undecided, reconcile.ReasonNoAnswer // it was there a moment ago
			}
			j.reason = cmp.Or(reason, j.reason)
			j.attrs = a.attrs
			return j
		}
		a.verdict, a.reason = v, reason
	}
	return a
}

// secondSize asks a one-byte GET for the size and returns the answer that replaces
// the HEAD's when the two do not agree.
func (p *engine) secondSize(ctx context.Context, ref reconcile.Reference, at objstore.Attrs) *answer {
	place := heldAt(ref, at)
	r, err := p.opts.Stores.Reader(ctx, place.Base)
	if err != nil {
		a := judgeError(err)
		return &a
	}
	got, err := r.Probe(ctx, place.Location)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return &answer{reason: reconcile.ReasonContradiction, err: err, attrs: at}
	case errors.Is(err, objstore.ErrArchived):
		return nil
	case err != nil:
		a := judgeError(err)
		return &a
	case got.Size != at.Size:
		return &answer{reason: reconcile.ReasonContradiction, err: &objstore.Error{Op: "probe", Location: place.Location, RequestID: got.RequestID, Err: errContradiction}}
	}
	return nil
}

// finding makes the finding of an answer that is not Present.
func (p *engine) finding(t reconcile.Target, ref reconcile.Reference, a answer) reconcile.Finding {
	f := reconcile.NewFinding(t, ref, p.opts.Clock.Now())
	setAnswer(&f, a)
	return f
}

// setAnswer writes what was observed into the finding.
func setAnswer(f *reconcile.Finding, a answer) {
	f.Verdict = a.verdict
	f.Reason = nil
	// What the metadata already knew of the object says more than the answer.
	if reason := cmp.Or(f.Ref.Reason, a.reason); reason != "" {
		f.Reason = reconcile.Ptr(reason)
	}
	f.ObservedSize, f.HTTPStatus, f.ErrorCode, f.RequestID = nil, nil, nil, nil
	f.ObservedETag = a.attrs.ETag
	if a.err == nil && a.verdict != reconcile.Undecided && a.attrs.Size >= 0 {
		f.ObservedSize = reconcile.Ptr(a.attrs.Size)
	}
	if read, ok := strings.CutPrefix(a.reason, "read "); ok && a.verdict == reconcile.ChecksumMismatch {
		f.ObservedChecksum, f.Reason = reconcile.Ptr(read), nil
	}
	if kept := otherChecksum(f.Ref, a.attrs); kept != "" {
		f.ObservedChecksum = reconcile.Ptr(kept)
	}
	if a.attrs.RequestID != "" {
		f.RequestID = reconcile.Ptr(a.attrs.RequestID)
	}
	f.SetEvidence(a.err)
}
