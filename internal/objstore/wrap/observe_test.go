package wrap_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/objstore/wrap"
)

func TestEveryRequestIsToldWithItsKindAndAnswer(t *testing.T) {
	t.Parallel()
	var got []string
	w := wrap.NewObserveWriter(memstore.New(memstore.Options{Versions: true}), func(o wrap.Observation) {
		word := "ok"
		switch {
		case errors.Is(o.Err, objstore.ErrNotExist):
			word = "missing"
		case errors.Is(o.Err, objstore.ErrExist):
			word = "there"
		case o.Err != nil:
			word = o.Err.Error()
		}
		if o.Took < 0 {
			t.Errorf("%s took %v", o.Op, o.Took)
		}
		got = append(got, o.Op+" "+o.Location.Key+" "+word)
	})
	at := objstore.Location{Scheme: "mem", Bucket: "bucket", Key: "k"}
	ctx := t.Context()
	_, _ = w.Stat(ctx, at)
	_, _ = w.Create(ctx, at, strings.NewReader("x"), 1)
	_, _ = w.Create(ctx, at, strings.NewReader("x"), 1)
	_, _ = w.Probe(ctx, at)
	for range w.List(ctx, at, "") {
	}
	_, _ = w.CreateOverMarker(ctx, at, "v9", strings.NewReader("x"), 1)
	_, _, _ = w.GetVersion(ctx, at, "v9", objstore.Range{})
	_, _ = w.Versioning(ctx, at)
	want := "head k missing,put k ok,put k there,get k ok,list k ok,put k there,get k missing,get k ok"
	if s := strings.Join(got, ","); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
}
