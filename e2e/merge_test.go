package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// workers are stub workers that count what is in flight for each target.
type workers struct {
	mu      sync.Mutex
	flying  map[string]int
	most    map[string]int
	asked   []string // "worker path", in order
	urls    []string
	answers []http.HandlerFunc
}

func startWorkers(t *testing.T, answers ...http.HandlerFunc) *workers {
	t.Helper()
	ws := &workers{flying: map[string]int{}, most: map[string]int{}, answers: answers}
	for i := range answers {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path := r.URL.EscapedPath()
			ws.mu.Lock()
			ws.asked = append(ws.asked, fmt.Sprintf("%d %s", i, strings.TrimPrefix(path, "/api/v1/")))
			ws.flying[path]++
			ws.most[path] = max(ws.most[path], ws.flying[path])
			answer := ws.answers[i]
			ws.mu.Unlock()
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusMethodNotAllowed)
			} else {
				answer(w, r)
			}
			ws.mu.Lock()
			ws.flying[path]--
			ws.mu.Unlock()
		}))
		t.Cleanup(s.Close)
		ws.urls = append(ws.urls, s.URL)
	}
	return ws
}

func (ws *workers) take() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	out := ws.asked
	ws.asked = nil
	return out
}

func (ws *workers) answer(i int, h http.HandlerFunc) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.answers[i] = h
}

func merged(n int, after time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(after)
		fmt.Fprintf(w, `{"reclaimed":%d}`, n)
	}
}

func answered(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, body) }
}

// fleet is a folder of stores with pending generations and its configuration.
type fleet struct {
	t                    *testing.T
	dir, config, ledgerF string
}

// newFleet has exp-1 with nine pending generations, orders with eight, small with one,
// and real, which a release of the library wrote, with two.
func newFleet(t *testing.T, ws *workers, more string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir()}
	f.config, f.ledgerF = filepath.Join(f.dir, "reconcile.yaml"), filepath.Join(f.dir, "ledger.db")
	f.table("exp-1.rollout.lance", 9)
	f.table("orders.generic.lance", 8)
	f.table("small.rollout.lance", 1)
	if err := os.CopyFS(filepath.Join(f.dir, "r", "real.rollout.lance"), os.DirFS("../testdata/lance/0.39.0/memwal/t.lance")); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("database: %q\nstores: [{name: rk, uri: %q}]\nverify: {confirm_after: 1s, min_manifest_age: 0s}\n%s", "sqlite:"+f.ledgerF, filepath.Join(f.dir, "r"), more)
	if ws != nil {
		urls, err := json.Marshal(ws.urls)
		if err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "WORKERS", string(urls))
	}
	if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) put(name string, data []byte) {
	f.t.Helper()
	file := filepath.Join(f.dir, "r", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func shardOf(name string, generations int) lancetest.Shard {
	s := lancetest.Shard{Name: name, Version: 3}
	for i := range generations {
		s.Generations = append(s.Generations, lancetest.Generation{Number: uint64(i + 1), Rows: 5})
	}
	return s
}

func (f *fleet) table(name string, generations int) {
	put := func(rel string, data []byte) { f.put(name+"/"+rel, data) }
	fourFragments().MemWAL().WriteTo(put)
	s := shardOf(name, generations)
	s.WriteTo(put)
	s.WriteGenerations(put)
}

func (f *fleet) args(words ...string) []string { return append(words, "--config", f.config) }

func (f *fleet) run(words ...string) result {
	f.t.Helper()
	return runIn(f.t, f.dir, nil, f.args(words...)...)
}

// pass is a scheduled pass; merges of its document as "target worker status reclaimed".
func (f *fleet) pass(want reconcile.ExitCode, words ...string) (afterDoc, result) {
	f.t.Helper()
	r := f.run(append([]string{"run", "--output", "json"}, words...)...).exit(want)
	var d afterDoc
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		f.t.Fatalf("%v\n%s", err, clip(r.stderr))
	}
	return d, r
}

// afterDoc is what the document says of work for others.
type afterDoc struct {
	Exit struct {
		Code int    `json:"code"`
		Name string `json:"name"`
	} `json:"exit"`
	Targets []struct {
		Target  string `json:"target"`
		State   string `json:"state"`
		Pending *int64 `json:"pending_generations"`
		Checked int64  `json:"checked"`
	} `json:"targets"`
	Posts  []map[string]any `json:"posts"`
	Merges []struct {
		Target     string  `json:"target"`
		Store      string  `json:"store"`
		Endpoint   string  `json:"endpoint"`
		Status     *int    `json:"status"`
		Reclaimed  *int64  `json:"reclaimed"`
		Error      *string `json:"error"`
		DurationMS *int64  `json:"duration_ms"`
	} `json:"merges"`
}

func (d afterDoc) pending() map[string]int64 {
	out := map[string]int64{}
	for _, t := range d.Targets {
		if t.Pending != nil {
			out[t.Target] = *t.Pending
		}
	}
	return out
}

// exec runs SQL past the program: what time would do.
func (f *fleet) exec(text string) {
	f.t.Helper()
	db, err := sql.Open("sqlite", "file:"+f.ledgerF)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	if _, err := db.ExecContext(f.t.Context(), text); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) cooldowns() []ledger.Cooldown {
	f.t.Helper()
	var cs []ledger.Cooldown
	if err := json.Unmarshal([]byte(f.run("cooldowns", "--state", "all", "--output", "json").exit(reconcile.ExitClean).stdout), &cs); err != nil {
		f.t.Fatal(err)
	}
	return cs
}

const mergeAll = "merge_wal: {endpoints: WORKERS, min_generations: 2, sole_scheduler: true, timeout: 30s}\n"

// Passes that run at once, over and over: no target is ever merged by two workers at
// the same moment, and no pass does again what another did.
func TestWorkersAreAskedOneAfterAnotherWhateverPassesRun(t *testing.T) {
	t.Parallel()
	ws := startWorkers(t, merged(3, 100*time.Millisecond), answered(404, ""), merged(2, 100*time.Millisecond))
	f := newFleet(t, ws, mergeAll+"wal: {warn_generations: 9}\n")
	one := []string{"internal/merge-wal/exp-1", "generic/orders/merge-wal", "internal/merge-wal/real"}
	d, r := f.pass(reconcile.ExitClean)
	if got, want := d.pending(), map[string]int64{"exp-1": 9, "generic:orders": 8, "small": 1, "real": 2}; !cmp.Equal(want, got) {
		t.Errorf("pending: %s", cmp.Diff(want, got))
	}
	var want []string
	for _, target := range one { // most pending first
		want = append(want, "0 "+target, "1 "+target, "2 "+target)
	}
	if d := cmp.Diff(want, ws.take()); d != "" {
		t.Errorf("asked (-want +got)\n%s", d)
	}
	if len(d.Merges) != 9 || d.Merges[1].Target != "exp-1" || d.Merges[1].Store != "rk" || d.Merges[1].Endpoint != ws.urls[1] || *d.Merges[1].Status != 404 || *d.Merges[1].Reclaimed != 0 ||
		*d.Merges[0].Reclaimed != 3 || d.Merges[0].Error != nil || *d.Merges[0].DurationMS < 100 {
		t.Errorf("merges %+v", d.Merges)
	}
	if n := strings.Count(r.stderr, "write-ahead generations are pending"); n != 1 || !strings.Contains(r.stderr, "target=exp-1") {
		t.Errorf("%d warnings\n%s", n, r.stderr)
	}
	// Three at once; whoever comes second finds the lock, or what was done meanwhile.
	var ps []*process
	for range 3 {
		ps = append(ps, startProcess(t, f.dir, nil, f.args("run", "--output", "json")...))
	}
	for _, p := range ps {
		p.ended(time.Minute).exit(reconcile.ExitClean)
	}
	ws.mu.Lock()
	for path, n := range ws.most {
		if n != 1 {
			t.Errorf("%s: %d in flight at once", path, n)
		}
	}
	ws.mu.Unlock()
	asked := ws.take()
	// Passes that began one after the other may each have found the target due.
	for _, target := range one {
		n := 0
		for _, a := range asked {
			if strings.HasSuffix(a, " "+target) {
				n++
			}
		}
		if n < 3 || n%3 != 0 || n > 9 {
			t.Errorf("%s was asked for %d times", target, n)
		}
	}
}

func TestAFailingWorkerCoolsMergesDownAndNothingElse(t *testing.T) {
	long(t)
	t.Parallel()
	ws := startWorkers(t, merged(3, 0), answered(500, "no"), merged(2, 0))
	f := newFleet(t, ws, mergeAll+fmt.Sprintf("metrics: {textfile: %q}\n", filepath.Join(t.TempDir(), "reconcile.prom")))
	for i := range 3 {
		d, r := f.pass(reconcile.ExitClean)
		if asked := ws.take(); len(asked) != 9 { // the third worker is asked all the same
			t.Errorf("pass %d: %v", i+1, asked)
		}
		if m := d.Merges[1]; *m.Status != 500 || m.Reclaimed != nil || m.Error == nil {
			t.Errorf("pass %d: %+v", i+1, m)
		}
		if n := strings.Count(r.stderr, `msg="work on target cools down"`); (n == 3) != (i == 2) || n%3 != 0 {
			t.Errorf("pass %d: %d warnings\n%s", i+1, n, r.stderr)
		}
	}
	cs := f.cooldowns()
	kinds := map[string]int{}
	for _, c := range cs {
		if c.Kind == ledger.KindMergeWAL && c.Active && c.ConsecutiveFailures == 3 {
			kinds[text(c.Target)]++
		} else if c.ConsecutiveFailures > 0 {
			t.Errorf("another cooldown: %+v", c)
		}
	}
	if want := map[string]int{"exp-1": 1, "generic:orders": 1, "real": 1}; !cmp.Equal(want, kinds) {
		t.Errorf("cool down: %v", kinds)
	}
	// Checked and repaired as ever; not merged.
	lost := filepath.Join(f.dir, "r", "exp-1.rollout.lance", fourFragments().DataName(1, 0))
	if err := os.Rename(lost, lost+".away"); err != nil {
		t.Fatal(err)
	}
	d, _ := f.pass(reconcile.ExitDivergence)
	if asked := ws.take(); len(asked) != 0 || len(d.Merges) != 0 {
		t.Errorf("asked %v", asked)
	}
	// A person may insist; what works again is worked with again.
	ws.answer(1, merged(0, 0))
	// But nobody merges into what is damaged.
	if d, _ = f.pass(reconcile.ExitDivergence, "--force"); len(d.Merges) != 6 {
		t.Errorf("forced, with a damaged table: %+v", d.Merges)
	}
	if err := os.Rename(lost+".away", lost); err != nil {
		t.Fatal(err)
	}
	if d, _ = f.pass(reconcile.ExitClean, "--force"); len(d.Merges) != 9 {
		t.Errorf("forced: %+v", d.Merges)
	}
	for _, c := range f.cooldowns() {
		if c.Active || c.ConsecutiveFailures != 0 {
			t.Errorf("after a success: %+v", c)
		}
	}
}

func TestWhatIsNotMerged(t *testing.T) {
	t.Parallel()
	ws := startWorkers(t, merged(1, 0))
	f := newFleet(t, ws, mergeAll)
	lost := func(table, file string) {
		t.Helper()
		if err := os.Remove(filepath.Join(f.dir, "r", table, file)); err != nil {
			t.Fatal(err)
		}
	}
	uri := filepath.Join(f.dir, "r")
	for name, words := range map[string][]string{
		"a check": {"check", uri}, "a dry run": {"run", "--dry-run"}, "a run that is to look only": {"run", "--mode", "off"}, "a named repair": {"repair", "exp-1"},
	} {
		f.run(words...).exit(reconcile.ExitClean)
		if asked := ws.take(); len(asked) != 0 {
			t.Errorf("%s merges: %v", name, asked)
		}
	}
	// A generation that is lost is not merged over; nor is a table without a manifest.
	lost("exp-1.rollout.lance", shardOf("exp-1.rollout.lance", 9).GenerationData(4))
	lost("orders.generic.lance", fourFragments().MemWAL().ManifestName())
	f.pass(reconcile.ExitIncomplete)
	if d := cmp.Diff([]string{"0 internal/merge-wal/real"}, ws.take()); d != "" {
		t.Errorf("asked (-want +got)\n%s", d)
	}
	// One table at a time, by name.
	f.pass(reconcile.ExitClean, "--target", "small")
	if asked := ws.take(); len(asked) != 0 {
		t.Errorf("too few are merged: %v", asked)
	}
}

// A pass dies in the middle of a merge: its lock keeps others away for as long as the
// worker may be at it, and no longer.
func TestKilledInAMergeTheNextPassGoesOn(t *testing.T) {
	long(t)
	t.Parallel()
	began, gone := make(chan struct{}), make(chan struct{})
	ws := startWorkers(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(gone)
	})
	f := newFleet(t, ws, mergeAll)
	p := startProcess(t, f.dir, nil, f.args("run", "--target", "exp-1")...)
	await(t, began, p)
	p.signal(syscall.SIGKILL)
	<-p.done
	<-gone
	ws.answer(0, merged(9, 0))
	ws.take()
	d, _ := f.pass(reconcile.ExitClean, "--target", "exp-1")
	if asked := ws.take(); len(asked) != 0 || len(d.Merges) != 0 {
		t.Errorf("merged under the dead one's lock: %v", asked)
	}
	f.exec("UPDATE locks SET lease_until = '2000-01-01T00:00:00.000000Z'") // a minute later
	d, _ = f.pass(reconcile.ExitClean, "--target", "exp-1")
	if len(d.Merges) != 1 || *d.Merges[0].Reclaimed != 9 {
		t.Errorf("the next pass: %+v", d.Merges)
	}
	if cs := f.cooldowns(); slices.ContainsFunc(cs, func(c ledger.Cooldown) bool { return c.ConsecutiveFailures > 0 }) {
		t.Errorf("a death counts as a failure: %+v", cs)
	}
}

func TestATerminatedPassAwaitsTheMergeThatItSent(t *testing.T) {
	long(t)
	t.Parallel()
	began := make(chan struct{})
	ws := startWorkers(t, func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		time.Sleep(time.Second)
		fmt.Fprint(w, `{"reclaimed":9}`)
	}, merged(1, 0))
	f := newFleet(t, ws, mergeAll)
	p := startProcess(t, f.dir, nil, f.args("run", "--output", "json")...)
	await(t, began, p)
	p.signal(syscall.SIGTERM)
	r := p.ended(30 * time.Second).exit(reconcile.ExitTerminated)
	var d afterDoc
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Merges) != 1 || d.Merges[0].Reclaimed == nil || *d.Merges[0].Reclaimed != 9 || d.Exit.Code != int(reconcile.ExitTerminated) || len(d.Targets) != 4 {
		t.Errorf("%+v", d)
	}
	if asked := ws.take(); len(asked) != 1 {
		t.Errorf("begun after the signal: %v", asked)
	}
}
