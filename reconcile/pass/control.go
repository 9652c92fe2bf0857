package pass

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// base is one place below which a target's metadata names objects, with what is
// known to be there. Controls under a base prove that the store can tell presence
// from absence there: one object that the metadata names must answer, a random key
// beside it must not.
type base struct {
	// controls are objects seen present; one is enough, three survive a racing
	// clean-up.
	controls []objstore.Location
	// spare are objects that are there and damaged: the store answered for their keys as
	// it does for whole ones, so that they prove as much where nothing else is left.
	spare []objstore.Location
}

const maxControls = 3

// base is the entry of a place; the caller holds l.mu or is alone with l.
func (l *look) base(loc objstore.Location) *base {
	b := l.bases[loc]
	if b == nil {
		b = &base{}
		l.bases[loc] = b
	}
	return b
}

func (b *base) addControl(loc objstore.Location) {
	if len(b.controls) < maxControls {
		b.controls = append(b.controls, loc)
	}
}

// addControlOf makes a control of an object that was seen, where it is one. The caller
// holds l.mu.
func (l *look) addControlOf(ref reconcile.Reference, a answer) {
	if !a.there() {
		return
	}
	at := heldAt(ref, a.attrs)
	b := l.base(at.Base)
	if a.verdict == reconcile.Present {
		b.addControl(at.Location)
	} else if len(b.spare) < maxControls {
		b.spare = append(b.spare, at.Location)
	}
}

// there reports whether the store answered with an object's attributes, and nothing
// that came after gainsaid them. What the object is worth does not matter.
func (a answer) there() bool {
	switch a.verdict {
	case reconcile.Present, reconcile.SizeMismatch, reconcile.ChecksumMismatch, reconcile.Unreadable, reconcile.Archived:
		return a.err == nil
	}
	return false
}

// heldAt is the place that an object was seen at: the reference's own, or one of its
// alternates.
func heldAt(ref reconcile.Reference, at objstore.Attrs) reconcile.Place {
	for _, alt := range ref.Alternates {
		if alt.Location == at.Location {
			return alt
		}
	}
	return reconcile.Place{Base: ref.Base, Location: ref.Location}
}

// control proves the store under the base at a place, beside an object of interest. nil means
// proven; the answer otherwise says why nothing under the base can be missing.
func (p *engine) control(ctx context.Context, at objstore.Location, b *base, beside objstore.Location) *answer {
	failed := func(a answer) *answer {
		a.verdict, a.reason = reconcile.Undecided, reconcile.ReasonControlsFailed
		return &a
	}
	positives := slices.Concat(b.controls, b.spare)
	if len(positives) == 0 {
		return failed(answer{err: errNoControl})
	}
	positive := answer{}
	for _, loc := range positives {
		// Without a record to hold it to, whatever is there answers as well as any other.
		if positive = p.askAt(ctx, reconcile.Reference{}, reconcile.Place{Base: at, Location: loc}, statAsker); positive.err == nil {
			break
		}
	}
	if positive.err != nil {
		return failed(positive)
	}
	negative := p.askAt(ctx, reconcile.Reference{}, reconcile.Place{Base: at, Location: beside.Parent().Join(randomName())}, restatAsker)
	if negative.absent() {
		return nil
	}
	if negative.err == nil {
		negative.err = errRandomKeyThere
	}
	return failed(negative)
}

var (
	errNoControl      = errors.New("no object that the metadata names under this place was seen, so that an absence there proves nothing")
	errRandomKeyThere = errors.New("the store answers for a key that cannot exist")
)

// randomName is a key that cannot exist: 128 random bits.
func randomName() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return ".reconcile-control-" + hex.EncodeToString(b[:])
}
