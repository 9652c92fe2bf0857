package pass

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

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

// control proves the store under the base at a place, beside an object of interest. nil means
// proven; the answer otherwise says why nothing under the base can be missing.
func (p *engine) control(ctx context.Context, at objstore.Location, b *base, beside objstore.Location) *answer {
	failed := func(a answer) *answer {
		a.verdict, a.reason = reconcile.Undecided, reconcile.ReasonControlsFailed
		return &a
	}
	if len(b.controls) == 0 {
		return failed(answer{err: errNoControl})
	}
	positive := answer{}
	for _, loc := range b.controls {
		if positive = p.askAt(ctx, reconcile.Reference{}, reconcile.Place{Base: at, Location: loc}, statAsker); positive.verdict == reconcile.Present || positive.verdict == reconcile.Archived {
			break
		}
	}
	if positive.verdict != reconcile.Present && positive.verdict != reconcile.Archived {
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
	errNoControl      = errors.New("no object that the metadata names under this place could be read, so that an absence there proves nothing")
	errRandomKeyThere = errors.New("the store answers for a key that cannot exist")
)

// randomName is a key that cannot exist: 128 random bits.
func randomName() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return ".reconcile-control-" + hex.EncodeToString(b[:])
}
