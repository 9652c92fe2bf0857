package wrap

import (
	"context"
	"errors"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// NewCount counts the requests that reach inner, in m.
func NewCount(inner objstore.Reader, m *Meter) objstore.Reader { return around(inner, counting{m}) }

// NewCountWriter is NewCount for a store that can be written.
func NewCountWriter(inner objstore.Writer, m *Meter) objstore.Writer {
	return aroundWriter(inner, counting{m})
}

type counting struct{ m *Meter }

func (c counting) do(ctx context.Context, req request, call func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return req.fail(err)
	}
	switch req.op {
	case "stat", "restat":
		c.m.head.Add(1)
	case "probe", "get", "getversion", "versioning":
		c.m.get.Add(1)
	case "list", "versions":
		c.m.list.Add(1)
	default:
		c.m.put.Add(1)
	}
	err := call(ctx)
	if errors.Is(err, objstore.ErrThrottled) {
		c.m.throttled.Add(1)
	}
	return err
}
