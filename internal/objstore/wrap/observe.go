package wrap

import (
	"context"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Observation is one request that was answered, or was not.
type Observation struct {
	// Op is head, get, list or put.
	Op       string
	Location objstore.Location
	// Err is nil for an answer that gave what was asked for.
	Err  error
	Took time.Duration
}

// NewObserve tells fn of each request that reaches inner. fn must be quick and safe
// for concurrent use.
func NewObserve(inner objstore.Reader, fn func(Observation)) objstore.Reader {
	return around(inner, observing{fn})
}

// NewObserveWriter is NewObserve for a store that can be written.
func NewObserveWriter(inner objstore.Writer, fn func(Observation)) objstore.Writer {
	return aroundWriter(inner, observing{fn})
}

type observing struct{ fn func(Observation) }

func (o observing) do(ctx context.Context, req request, call func(context.Context) error) error {
	began := time.Now()
	err := call(ctx)
	o.fn(Observation{Op: kindOf(req.op), Location: req.loc, Err: err, Took: time.Since(began)})
	return err
}

// kindOf is the kind of request that an operation sends.
func kindOf(op string) string {
	switch op {
	case "stat", "restat":
		return "head"
	case "probe", "get", "getversion", "versioning":
		return "get"
	case "list", "versions":
		return "list"
	}
	return "put"
}
