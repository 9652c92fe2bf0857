package pass

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

const (
	// ProbeName is the one object that the conditional-write test writes, below a
	// store root.
	ProbeName = ".reconcile-probe"
	// probeContent is constant, so that whoever writes it, and however often, the
	// object is the same.
	probeContent = "reconcile writes this object to learn whether the store honours If-None-Match. It may be deleted.\n"
)

// ErrUnconditional: a store overwrote an object that it was told not to.
var ErrUnconditional = errors.New("the store ignores If-None-Match: concurrent commits would overwrite each other")

// probeTries bounds how often the test's object is put: twice when every answer comes,
// and once more for an answer that does not.
const probeTries = 3

// ProbeConditional tests that the store below root refuses to create an object
// that is there. It writes the one object <root>/.reconcile-probe.
//
// An answer that was lost proves nothing either way: only the refusal of a create
// proves that conditions hold, and only two that were accepted that they do not.
func ProbeConditional(ctx context.Context, w objstore.Creator, root objstore.Location) error {
	var last error
	accepted := 0
	for range probeTries {
		_, err := w.Create(ctx, root.Join(ProbeName), strings.NewReader(probeContent), int64(len(probeContent)))
		switch {
		case errors.Is(err, objstore.ErrExist):
			return nil
		case err == nil:
			if accepted++; accepted == 2 {
				return ErrUnconditional
			}
		default:
			last = fmt.Errorf("conditional-write test below %s: %w", root, err)
			var answer *objstore.Error
			if ctx.Err() != nil || !errors.As(err, &answer) || !answer.Retryable() {
				return last
			}
		}
	}
	return last
}

// conditionalWrites runs the test once a pass for each root of an object store, and
// not again within a day. The refusal says why nothing may be committed below it.
func (a *applier) conditionalWrites(ctx context.Context, t reconcile.Target) error {
	if t.Location.Scheme == "file" {
		return nil // link(2) needs no test
	}
	if err, done := a.probed[t.Root]; done {
		return err
	}
	err := a.probe(ctx, t.Root)
	if err != nil {
		err = &reconcile.Refusal{Reason: reconcile.BlockedNoConditionalPut, Detail: err.Error()}
	}
	a.probed[t.Root] = err
	return err
}

func (a *applier) probe(ctx context.Context, root objstore.Location) error {
	uri := root.Canonical()
	if old, err := a.opts.Ledger.GetProbe(ctx, uri, ledger.ProbeConditionalPut, ledger.ProbeLifetime); err == nil && old != nil && old.Passed {
		return nil
	}
	w, err := a.opts.Writer(ctx, root)
	if err != nil {
		return err
	}
	err = ProbeConditional(ctx, w, root)
	p := ledger.Probe{RootURI: uri, Name: ledger.ProbeConditionalPut, Passed: err == nil}
	if err != nil {
		p.Detail = err.Error()
	}
	if err == nil || errors.Is(err, ErrUnconditional) {
		if perr := a.opts.Ledger.PutProbe(ctx, p); perr != nil {
			a.opts.Logger.Warn("record the conditional-write test", "root", uri, "err", perr)
		}
	}
	return err
}
