package wrap

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

const (
	// floorRate keeps a sweep moving, and lets it notice that the store has recovered.
	floorRate = 5.0
	// cutEvery: the refusals of one second are answers to one overload, not to many.
	cutEvery = time.Second
	// growth per second after a cut, as a share of the rate at which it happened:
	// back there within ten seconds.
	growth = 0.05
	// maxPause bounds what a store may ask for with Retry-After.
	maxPause = 30 * time.Second
)

// Gate slows requests down when a store asks for it: the rate is halved at each
// refusal, at most once a second, and grows back evenly while answers are good. It
// has no limit until the first refusal. It may be shared and is safe for concurrent use.
type Gate struct {
	log  *slog.Logger
	pace pacer

	// Below: guarded by pace.mu.
	cutAt   time.Time // of the last halving
	cutFrom float64   // the rate at the last halving
	// Requests begun in the running and in the last second.
	second     time.Time
	count      int
	lastSecond int
}

// NewGate makes an open gate. log (nil: none) hears when the store's throttling
// begins and ends.
func NewGate(log *slog.Logger) *Gate {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Gate{log: log}
}

// NewAdaptive sends the requests to inner through g.
func NewAdaptive(inner objstore.Reader, g *Gate) objstore.Reader { return around(inner, g) }

// NewAdaptiveWriter is NewAdaptive for a store that can be written.
func NewAdaptiveWriter(inner objstore.Writer, g *Gate) objstore.Writer { return aroundWriter(inner, g) }

func (g *Gate) do(ctx context.Context, req request, call func(context.Context) error) error {
	if err := g.pace.wait(ctx); err != nil {
		return req.fail(err)
	}
	g.begun()
	err := call(ctx)
	var e *objstore.Error
	switch {
	case errors.Is(err, objstore.ErrThrottled):
		var after time.Duration
		if errors.As(err, &e) {
			after = e.RetryAfter
		}
		g.cut(after, req.loc)
	case err == nil || errors.As(err, &e) && e.Status > 0 && e.Status < 500:
		g.grow(req.loc)
	}
	return err
}

func (g *Gate) begun() {
	g.pace.mu.Lock()
	defer g.pace.mu.Unlock()
	switch d := time.Since(g.second); {
	case d >= 2*time.Second:
		g.second, g.lastSecond, g.count = time.Now(), 0, 0
	case d >= time.Second:
		g.second, g.lastSecond, g.count = g.second.Add(time.Second), g.count, 0
	}
	g.count++
}

// cut halves the rate, or what the rate turned out to be where there was none.
func (g *Gate) cut(after time.Duration, loc objstore.Location) {
	g.pace.mu.Lock()
	defer g.pace.mu.Unlock()
	now := time.Now()
	if after = min(after, maxPause); after > 0 {
		if until := now.Add(after); until.After(g.pace.pause) {
			g.pace.pause = until
		}
	}
	if now.Sub(g.cutAt) < cutEvery {
		return
	}
	first := g.pace.rate == 0
	from := g.pace.rate
	if first {
		from = float64(max(g.count, g.lastSecond))
	}
	g.cutAt, g.cutFrom = now, max(from, 2*floorRate)
	g.pace.rate = max(from/2, floorRate)
	if first {
		g.log.Info("store is throttling: slowing down", "container", loc.Container().Canonical(), "requests_per_second", g.pace.rate)
	}
}

// grow adds to the rate so that each second adds the same amount, however many
// requests it has, and opens the gate at twice the rate that was too much.
func (g *Gate) grow(loc objstore.Location) {
	g.pace.mu.Lock()
	defer g.pace.mu.Unlock()
	if g.pace.rate == 0 {
		return
	}
	g.pace.rate += growth * g.cutFrom / g.pace.rate
	if g.pace.rate >= 2*g.cutFrom {
		g.pace.rate = 0
		g.log.Info("store no longer throttles", "container", loc.Container().Canonical())
	}
}
