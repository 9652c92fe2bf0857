package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/metrics"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/wrap"
	"github.com/rocketkeep/reconcile/reconcile"
)

// pushTimeout bounds how long a push gateway may hold up the end of a pass.
const pushTimeout = 15 * time.Second

// meter counts a pass for those that the configuration names; without any it counts
// nothing. What goes wrong with metrics is warned of and changes no exit code.
type meter struct {
	conf   config.Metrics
	log    *slog.Logger
	warn   int64
	reg    *prometheus.Registry
	set    *metrics.Set // nil: nobody asked
	stores []namedRoot
	stop   func()
}

// namedRoot is a configured store and its name.
type namedRoot struct {
	root objstore.Location
	name string
}

func newMeter(ctx context.Context, s *settings, log *slog.Logger) *meter {
	m := &meter{conf: s.metrics, log: log, warn: s.warnWAL, stop: func() {}}
	if s.metrics == (config.Metrics{}) {
		return m
	}
	b := thisBuild()
	m.reg = prometheus.NewRegistry()
	m.set = metrics.New(m.reg, metrics.Build{Version: b.Version, Revision: b.Revision, GoVersion: b.GoVersion})
	for _, p := range s.places {
		if loc, err := objstore.Parse(p.uri); err == nil && p.name != "" {
			m.stores = append(m.stores, namedRoot{loc, p.name})
		}
	}
	if m.conf.Listen != "" {
		addr, stop, err := metrics.Listen(ctx, m.conf.Listen, m.reg)
		if err != nil {
			log.Warn("no metrics can be asked for", "err", err)
		} else {
			log.Info("metrics can be asked for", "address", addr.String())
			m.stop = stop
		}
	}
	return m
}

func (m *meter) close() { m.stop() }

// observe is told of every request; nil when nobody counts them.
func (m *meter) observer() func(wrap.Observation) {
	if m.set == nil {
		return nil
	}
	return func(o wrap.Observation) { m.set.Request(m.store(o.Location), o.Op, o.Err, o.Took) }
}

// store is the name of the store that a place is in: as configured, else its bucket.
// Of a folder that has no name the scheme has to do: a path is no label.
func (m *meter) store(loc objstore.Location) string {
	for _, s := range m.stores {
		if s.root.Scheme != loc.Scheme || s.root.Bucket != loc.Bucket {
			continue
		}
		root := s.root
		root.Endpoint = loc.Endpoint
		if _, below := loc.Rel(root); below || root.Key == loc.Key {
			return s.name
		}
	}
	if loc.Bucket != "" {
		return loc.Scheme + "://" + loc.Bucket
	}
	return loc.Scheme
}

func (m *meter) cooldownEntered(k ledger.Kind) {
	if m.set != nil {
		m.set.CooldownEntered(k)
	}
}

func (m *meter) present(r reconcile.Role) {
	if m.set != nil {
		m.set.Present(r, 1)
	}
}

// pass takes a pass that has ended and hands everything on.
func (m *meter) pass(ctx context.Context, p reconcile.Pass, l ledger.Ledger) {
	if m.set == nil {
		return
	}
	m.set.Pass(p, m.status(ctx, l), m.warn)
	m.handOn(ctx)
}

// after takes what the pass did for others since, and hands everything on once more.
func (m *meter) after(ctx context.Context, p reconcile.Pass, l ledger.Ledger) {
	if m.set == nil {
		return
	}
	m.set.After(p, m.status(ctx, l))
	m.handOn(ctx)
}

// status is what the ledger says of everything; nil when it says nothing.
func (m *meter) status(ctx context.Context, l ledger.Ledger) *ledger.Status {
	if l == nil {
		return nil
	}
	st, err := l.Status(ctx)
	if err != nil {
		m.log.Warn("metrics show this pass only: the ledger does not answer", "err", err)
		return nil
	}
	return &st
}

// handOn gives the figures to whoever is to have them.
func (m *meter) handOn(ctx context.Context) {
	if m.conf.Textfile != "" {
		if err := m.set.Textfile(m.conf.Textfile, m.reg); err != nil {
			m.log.Warn("metrics are not written", "err", err)
		}
	}
	if to := m.conf.Pushgateway.Reveal(); to != "" {
		pctx, cancel := context.WithTimeout(ctx, pushTimeout)
		defer cancel()
		if err := metrics.Push(pctx, to, m.reg, http.DefaultClient); err != nil {
			m.log.Warn("metrics are not pushed", "err", err)
		}
	}
}
