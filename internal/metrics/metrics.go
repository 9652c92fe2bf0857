// Package metrics counts what passes do, under the names that dashboards rely on,
// and hands the figures to whoever collects them: a file, a push gateway, or an
// address that answers while the program runs.
//
// A pass is a batch job: counters begin at 0 with each process, and what must
// outlive it (when the last pass succeeded) is carried over by the outputs.
package metrics

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// lastSuccess is the one figure that must outlive the process.
const lastSuccess = "reconcile_last_success_timestamp_seconds"

// Build says which program counts.
type Build struct{ Version, Revision, GoVersion string }

// Set is the program's metrics. It is safe for concurrent use.
type Set struct {
	lastSuccess                               *onceSet
	lastDuration, coverage, rowsAtRisk        prometheus.Gauge
	openFindings, cooldownsActive, pendingWAL *prometheus.GaugeVec
	references, requests, throttled, repairs  *prometheus.CounterVec
	refetched, cooldowns, posts, merges       *prometheus.CounterVec
	fragments, rows, reclaimed                prometheus.Counter
	durations                                 prometheus.Histogram
}

// New makes the metrics and registers them. Registering twice is a programmer's
// mistake and panics.
func New(reg prometheus.Registerer, b Build) *Set {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	s := &Set{
		lastDuration:    gauge("reconcile_last_pass_duration_seconds", "How long the last pass took."),
		coverage:        gauge("reconcile_coverage_ratio", "Share of the references of the last pass that were checked."),
		rowsAtRisk:      gauge("reconcile_rows_at_risk", "Live rows of fragments that are damaged now."),
		openFindings:    gauges("reconcile_open_findings", "References that are not present now.", "verdict"),
		cooldownsActive: gauges("reconcile_cooldowns_active", "Targets whose work of this kind cools down now.", "kind"),
		pendingWAL:      gauges("reconcile_pending_wal_generations", "Pending MemWAL generations of targets over the warning threshold.", "target"),
		references:      counters("reconcile_references_total", "References that were looked at, by what they turned out to be.", "role", "verdict"),
		requests:        counters("reconcile_requests_total", "Requests that were sent to stores, repeated ones included; code is the HTTP status, ok or error where there is none.", "store", "op", "code"),
		throttled:       counters("reconcile_throttled_total", "Requests that were answered with a demand to slow down.", "store"),
		repairs:         counters("reconcile_repairs_total", "Repairs, by what became of them.", "action", "state"),
		refetched:       counters("reconcile_blobs_refetched_total", "Blobs that were fetched from peers.", "peer", "result"),
		cooldowns:       counters("reconcile_cooldowns_total", "Cooldowns that were entered.", "kind"),
		posts:           counters("reconcile_after_repair_posts_total", "Posts after repairs, by what became of them.", "state"),
		merges:          counters("reconcile_wal_merges_total", "Requests to workers to merge pending generations; result is ok or failed.", "result"),
		reclaimed:       counter("reconcile_wal_generations_reclaimed_total", "Generations that workers reclaimed by merges."),
		fragments:       counter("reconcile_fragments_dropped_total", "Fragments that were dropped."),
		rows:            counter("reconcile_rows_dropped_total", "Live rows that were dropped."),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "reconcile_request_duration_seconds",
			Help: "How long requests to stores took.", Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60}}),
	}
	// Not registered before it is known: 0 would read as 1970.
	s.lastSuccess = &onceSet{Gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: lastSuccess, Help: "When the last pass that could judge everything ended (exit code 0 or 3)."})}
	reg.MustRegister(s.durations, s.lastSuccess)
	info := gauges("reconcile_build_info", "Which program this is; always 1.", "version", "revision", "goversion")
	info.WithLabelValues(b.Version, b.Revision, b.GoVersion).Set(1)
	for _, k := range ledger.Kinds() {
		s.cooldowns.WithLabelValues(string(k))
	}
	return s
}

// onceSet shows a gauge only after it was set.
type onceSet struct {
	prometheus.Gauge
	known atomic.Bool
}

// Set implements prometheus.Gauge.
func (o *onceSet) Set(v float64) {
	o.Gauge.Set(v)
	o.known.Store(true)
}

// Collect implements prometheus.Collector.
func (o *onceSet) Collect(ch chan<- prometheus.Metric) {
	if o.known.Load() {
		o.Gauge.Collect(ch)
	}
}

// Request counts one request to a store. store is a configured name or a bucket,
// never a path.
func (s *Set) Request(store, op string, err error, took time.Duration) {
	code := "ok"
	var se *objstore.Error
	switch {
	case errors.As(err, &se) && se.Status != 0:
		code = strconv.Itoa(se.Status)
	case errors.Is(err, objstore.ErrNotExist):
		code = "404"
	case err != nil:
		code = "error"
	}
	s.requests.WithLabelValues(store, op, code).Inc()
	s.durations.Observe(took.Seconds())
	if errors.Is(err, objstore.ErrThrottled) {
		s.throttled.WithLabelValues(store).Inc()
	}
}

// Present counts references that are there. The document of a pass does not tell of
// which role they are, so whoever looks does.
func (s *Set) Present(r reconcile.Role, n int64) {
	s.references.WithLabelValues(r.String(), reconcile.Present.String()).Add(float64(n))
}

// CooldownEntered counts work that was put on a cooldown.
func (s *Set) CooldownEntered(k ledger.Kind) { s.cooldowns.WithLabelValues(string(k)).Inc() }

// Pass takes the figures of a pass that has ended. now is what the ledger says of
// everything, nil when there is none: then the pass speaks for itself. warnWAL is
// the number of pending generations from which a target is shown.
func (s *Set) Pass(p reconcile.Pass, now *ledger.Status, warnWAL int64) {
	s.lastDuration.Set(p.FinishedAt.Sub(p.StartedAt).Seconds())
	if p.Exit.Code == reconcile.ExitClean || p.Exit.Code == reconcile.ExitDivergence {
		s.lastSuccess.Set(float64(p.FinishedAt.UnixMilli()) / 1000)
	}
	if p.Coverage.Ratio != nil {
		s.coverage.Set(*p.Coverage.Ratio)
	}
	for _, f := range p.Findings {
		s.references.WithLabelValues(f.Role.String(), f.Verdict.String()).Inc()
	}
	for _, r := range p.Repairs {
		s.repairs.WithLabelValues(r.Action.String(), r.State).Inc()
		if r.State != ledger.StateApplied {
			continue
		}
		if r.Action == reconcile.ActionDropFragment {
			s.fragments.Add(float64(len(r.Fragments)))
		}
		if r.RowsDropped != nil {
			s.rows.Add(float64(*r.RowsDropped))
		}
	}
	for _, t := range p.Targets {
		if n := t.PendingGenerations; n != nil && *n >= warnWAL {
			s.pendingWAL.WithLabelValues(t.Target).Set(float64(*n))
		}
	}
	s.now(p, now)
}

// After takes what a pass did for others after it had ended. now is as in Pass.
func (s *Set) After(p reconcile.Pass, now *ledger.Status) {
	for _, x := range p.Posts {
		s.posts.WithLabelValues(x.State).Inc()
	}
	for _, m := range p.Merges {
		result := "ok"
		if m.Error != nil {
			result = "failed"
		}
		s.merges.WithLabelValues(result).Inc()
		if m.Reclaimed != nil {
			s.reclaimed.Add(float64(*m.Reclaimed))
		}
	}
	s.now(p, now)
}

// now sets what is so at the moment.
func (s *Set) now(p reconcile.Pass, st *ledger.Status) {
	open, rows := map[reconcile.Verdict]int64{}, p.Totals.RowsAtRisk
	for _, f := range p.Findings {
		open[f.Verdict]++
	}
	if st != nil {
		open, rows = st.OpenByVerdict, st.RowsAtRisk
		for _, k := range ledger.Kinds() {
			s.cooldownsActive.WithLabelValues(string(k)).Set(float64(st.ActiveCooldowns[k]))
		}
	}
	for _, v := range reconcile.Verdicts() {
		if v != reconcile.Present {
			s.openFindings.WithLabelValues(v.String()).Set(float64(open[v]))
		}
	}
	s.rowsAtRisk.Set(float64(rows))
}
