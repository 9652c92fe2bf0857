package metrics_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/metrics"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

func newSet() (*metrics.Set, *prometheus.Registry) {
	reg := prometheus.NewRegistry()
	return metrics.New(reg, metrics.Build{Version: "v1", Revision: "abc", GoVersion: "go1"}), reg
}

// aPass found two damaged files, dropped one fragment and was refused another.
func aPass(code reconcile.ExitCode) reconcile.Pass {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	return reconcile.Pass{
		StartedAt: start, FinishedAt: start.Add(90 * time.Second), Exit: reconcile.Exit{Code: code, Name: code.Name()},
		Coverage: reconcile.Coverage{References: 4, Checked: 3, Ratio: reconcile.Ptr(0.75)},
		Totals:   reconcile.Totals{RowsAtRisk: 7},
		Findings: []reconcile.Finding{{Role: reconcile.RoleData, Verdict: reconcile.Missing}, {Role: reconcile.RoleDeletion, Verdict: reconcile.Missing}},
		Targets:  []reconcile.TargetResult{{Target: "a", PendingGenerations: reconcile.Ptr(int64(300))}, {Target: "b", PendingGenerations: reconcile.Ptr(int64(3))}},
		Repairs: []reconcile.RepairOutcome{
			{Action: reconcile.ActionDropFragment, State: ledger.StateApplied, RowsDropped: reconcile.Ptr(int64(10)), Fragments: make([]reconcile.RepairFragment, 2)},
			{Action: reconcile.ActionDropFragment, State: ledger.StateRefused, Fragments: make([]reconcile.RepairFragment, 5)},
		},
	}
}

func TestExposition(t *testing.T) {
	t.Parallel()
	s, reg := newSet()
	s.Present(reconcile.RoleData, 2)
	s.Request("rk", "head", nil, 30*time.Millisecond)
	s.Request("rk", "head", &objstore.Error{Status: 503, Err: objstore.ErrThrottled}, time.Second)
	s.Request("rk", "get", objstore.ErrNotExist, time.Millisecond)
	s.Request("rk", "put", errors.New("no answer"), time.Millisecond)
	s.CooldownEntered(ledger.KindRepair)
	s.Pass(aPass(reconcile.ExitDivergence), &ledger.Status{OpenByVerdict: map[reconcile.Verdict]int64{reconcile.Missing: 5}, RowsAtRisk: 40,
		ActiveCooldowns: map[ledger.Kind]int64{ledger.KindRepair: 2}}, 256)
	want := `# HELP reconcile_build_info Which program this is; always 1.
# TYPE reconcile_build_info gauge
reconcile_build_info{goversion="go1",revision="abc",version="v1"} 1
# HELP reconcile_cooldowns_active Targets whose work of this kind cools down now.
# TYPE reconcile_cooldowns_active gauge
reconcile_cooldowns_active{kind="check"} 0
reconcile_cooldowns_active{kind="merge_wal"} 0
reconcile_cooldowns_active{kind="repair"} 2
# HELP reconcile_cooldowns_total Cooldowns that were entered.
# TYPE reconcile_cooldowns_total counter
reconcile_cooldowns_total{kind="check"} 0
reconcile_cooldowns_total{kind="merge_wal"} 0
reconcile_cooldowns_total{kind="repair"} 1
# HELP reconcile_coverage_ratio Share of the references of the last pass that were checked.
# TYPE reconcile_coverage_ratio gauge
reconcile_coverage_ratio 0.75
# HELP reconcile_fragments_dropped_total Fragments that were dropped.
# TYPE reconcile_fragments_dropped_total counter
reconcile_fragments_dropped_total 2
# HELP reconcile_last_pass_duration_seconds How long the last pass took.
# TYPE reconcile_last_pass_duration_seconds gauge
reconcile_last_pass_duration_seconds 90
# HELP reconcile_last_success_timestamp_seconds When the last pass that could judge everything ended (exit code 0 or 3).
# TYPE reconcile_last_success_timestamp_seconds gauge
reconcile_last_success_timestamp_seconds 1.76986089e+09
# HELP reconcile_open_findings References that are not present now.
# TYPE reconcile_open_findings gauge
reconcile_open_findings{verdict="archived"} 0
reconcile_open_findings{verdict="checksum_mismatch"} 0
reconcile_open_findings{verdict="denied"} 0
reconcile_open_findings{verdict="lost"} 0
reconcile_open_findings{verdict="missing"} 5
reconcile_open_findings{verdict="pending"} 0
reconcile_open_findings{verdict="recoverable"} 0
reconcile_open_findings{verdict="size_mismatch"} 0
reconcile_open_findings{verdict="superseded"} 0
reconcile_open_findings{verdict="undecided"} 0
reconcile_open_findings{verdict="unreadable"} 0
# HELP reconcile_pending_wal_generations Pending MemWAL generations of targets over the warning threshold.
# TYPE reconcile_pending_wal_generations gauge
reconcile_pending_wal_generations{target="a"} 300
# HELP reconcile_references_total References that were looked at, by what they turned out to be.
# TYPE reconcile_references_total counter
reconcile_references_total{role="data",verdict="missing"} 1
reconcile_references_total{role="data",verdict="present"} 2
reconcile_references_total{role="deletion",verdict="missing"} 1
# HELP reconcile_repairs_total Repairs, by what became of them.
# TYPE reconcile_repairs_total counter
reconcile_repairs_total{action="drop_fragment",state="applied"} 1
reconcile_repairs_total{action="drop_fragment",state="refused"} 1
# HELP reconcile_requests_total Requests that were sent to stores, repeated ones included; code is the HTTP status, ok or error where there is none.
# TYPE reconcile_requests_total counter
reconcile_requests_total{code="404",op="get",store="rk"} 1
reconcile_requests_total{code="503",op="head",store="rk"} 1
reconcile_requests_total{code="error",op="put",store="rk"} 1
reconcile_requests_total{code="ok",op="head",store="rk"} 1
# HELP reconcile_rows_at_risk Live rows of fragments that are damaged now.
# TYPE reconcile_rows_at_risk gauge
reconcile_rows_at_risk 40
# HELP reconcile_rows_dropped_total Live rows that were dropped.
# TYPE reconcile_rows_dropped_total counter
reconcile_rows_dropped_total 10
# HELP reconcile_throttled_total Requests that were answered with a demand to slow down.
# TYPE reconcile_throttled_total counter
reconcile_throttled_total{store="rk"} 1
`
	var names []string
	for line := range strings.Lines(want) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "reconcile_request_duration_seconds"); err != nil || n != 1 {
		t.Errorf("%d histograms, %v", n, err)
	}
}

func TestWhatIsDoneForOthersIsCounted(t *testing.T) {
	t.Parallel()
	s, reg := newSet()
	p := aPass(reconcile.ExitClean)
	s.Pass(p, nil, 256)
	failed := reconcile.Ptr("answered 500")
	p.Posts = []reconcile.PostOutcome{{State: ledger.PostDelivered}, {State: ledger.PostOpen}, {State: ledger.PostDelivered}}
	p.Merges = []reconcile.MergeOutcome{{Reclaimed: reconcile.Ptr(int64(8))}, {Reclaimed: reconcile.Ptr(int64(0))}, {Error: failed}}
	s.After(p, &ledger.Status{ActiveCooldowns: map[ledger.Kind]int64{ledger.KindMergeWAL: 1}})
	want := `# HELP reconcile_after_repair_posts_total Posts after repairs, by what became of them.
# TYPE reconcile_after_repair_posts_total counter
reconcile_after_repair_posts_total{state="delivered"} 2
reconcile_after_repair_posts_total{state="open"} 1
# HELP reconcile_cooldowns_active Targets whose work of this kind cools down now.
# TYPE reconcile_cooldowns_active gauge
reconcile_cooldowns_active{kind="check"} 0
reconcile_cooldowns_active{kind="merge_wal"} 1
reconcile_cooldowns_active{kind="repair"} 0
# HELP reconcile_repairs_total Repairs, by what became of them.
# TYPE reconcile_repairs_total counter
reconcile_repairs_total{action="drop_fragment",state="applied"} 1
reconcile_repairs_total{action="drop_fragment",state="refused"} 1
# HELP reconcile_wal_generations_reclaimed_total Generations that workers reclaimed by merges.
# TYPE reconcile_wal_generations_reclaimed_total counter
reconcile_wal_generations_reclaimed_total 8
# HELP reconcile_wal_merges_total Requests to workers to merge pending generations; result is ok or failed.
# TYPE reconcile_wal_merges_total counter
reconcile_wal_merges_total{result="failed"} 1
reconcile_wal_merges_total{result="ok"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "reconcile_after_repair_posts_total", "reconcile_cooldowns_active", "reconcile_repairs_total",
		"reconcile_wal_generations_reclaimed_total", "reconcile_wal_merges_total"); err != nil {
		t.Error(err)
	}
}

func TestWithoutALedgerThePassSpeaksForItself(t *testing.T) {
	t.Parallel()
	s, reg := newSet()
	s.Pass(aPass(reconcile.ExitClean), nil, 256)
	want := "# HELP reconcile_rows_at_risk Live rows of fragments that are damaged now.\n# TYPE reconcile_rows_at_risk gauge\nreconcile_rows_at_risk 7\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "reconcile_rows_at_risk"); err != nil {
		t.Error(err)
	}
}

func TestTheTextfileKeepsTheTimeOfTheLastSuccess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "reconcile.prom")
	write := func(code reconcile.ExitCode) string {
		s, reg := newSet()
		s.Pass(aPass(code), nil, 256)
		if err := s.Textfile(file, reg); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const line = "reconcile_last_success_timestamp_seconds 1.76986089e+09\n"
	if text := write(reconcile.ExitIncomplete); strings.Contains(text, "last_success") {
		t.Errorf("a success that never was:\n%s", text)
	}
	if text := write(reconcile.ExitClean); !strings.Contains(text, line) {
		t.Errorf("no success:\n%s", text)
	}
	if text := write(reconcile.ExitIncomplete); !strings.Contains(text, line) {
		t.Errorf("the success is forgotten:\n%s", text)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
	s, reg := newSet()
	if err := s.Textfile(filepath.Join(file, "below", "a.prom"), reg); err == nil {
		t.Error("a file below a file was written")
	}
}

func TestPushAddsToWhatIsThereAndShowsNoPassword(t *testing.T) {
	t.Parallel()
	var method, path, body, user atomic.Value
	var status atomic.Int64
	status.Store(http.StatusOK)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		u, _, _ := r.BasicAuth()
		method.Store(r.Method)
		path.Store(r.URL.Path)
		body.Store(string(b))
		user.Store(u)
		w.WriteHeader(int(status.Load()))
	}))
	defer srv.Close()
	s, reg := newSet()
	s.Pass(aPass(reconcile.ExitIncomplete), nil, 256)
	address := strings.Replace(srv.URL, "http://", "http://me:hunter2@", 1)
	if err := metrics.Push(t.Context(), address, reg, srv.Client()); err != nil {
		t.Fatal(err)
	}
	// POST replaces what is named and nothing else: the last success stays.
	if method.Load() != http.MethodPost || path.Load() != "/metrics/job/reconcile" || user.Load() != "me" || !strings.Contains(body.Load().(string), "reconcile_coverage_ratio") {
		t.Errorf("%v %v by %v", method.Load(), path.Load(), user.Load())
	}
	status.Store(http.StatusInternalServerError)
	err := metrics.Push(t.Context(), address, reg, srv.Client())
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}

func TestListenAnswersUntilItIsStopped(t *testing.T) {
	t.Parallel()
	_, reg := newSet()
	addr, stop, err := metrics.Listen(t.Context(), "127.0.0.1:0", reg)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + addr.String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(text), "reconcile_build_info{") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, _, err := metrics.Listen(t.Context(), addr.String(), reg); err == nil {
		t.Error("one address was taken twice")
	}
	stop()
	if _, err := http.Get("http://" + addr.String() + "/metrics"); err == nil {
		t.Error("it answers after its end")
	}
}
