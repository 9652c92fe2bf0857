package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

// master takes posts after repairs.
type master struct {
	mu     sync.Mutex
	status int
	bodies []string
	heads  []http.Header
	url    string
}

func startMaster(t *testing.T) *master {
	t.Helper()
	m := &master{status: http.StatusAccepted}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.bodies, m.heads = append(m.bodies, r.URL.RequestURI()+" "+string(body)), append(m.heads, r.Header)
		w.WriteHeader(m.status)
		fmt.Fprintf(w, "you said %s", r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

func (m *master) answer(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = status
}

func (m *master) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.bodies
	m.bodies = nil
	return out
}

const compactAfter = `after_repair:
- post: MASTER/api/v1/tasks?token=${POST_TOKEN}
  headers: {Authorization: "Bearer ${POST_TOKEN}"}
  body: '{"kind":"compact","target":{{json .Target}},"dropped":{{json .Fragments}},"rows":{{json .RowsDropped}},"from":{{json .ReadVersion}},"to":{{json .CommittedVersion}},"why":"{{.Trigger}}","what":"{{.Action}}","store":{{json .Store}},"of":"{{.Kind}}"}'
`

const postToken = "s3cr3t-token"

// told is a fleet whose repairs a master is told of.
func told(t *testing.T, m *master, more string) *fleet {
	t.Helper()
	return newFleet(t, nil, fullAtOnce+strings.ReplaceAll(compactAfter, "MASTER", m.url)+more)
}

func (f *fleet) lose(table string, fragment uint64) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, "r", table, fourFragments().DataName(fragment, 0))); err != nil {
		f.t.Fatal(err)
	}
}

// runTold is run with the token in its environment.
func (f *fleet) runTold(want reconcile.ExitCode, words ...string) (afterDoc, result) {
	f.t.Helper()
	r := runIn(f.t, f.dir, []string{"POST_TOKEN=" + postToken}, f.args(append(words, "--output", "json", "--log-level", "debug")...)...).exit(want)
	if strings.Contains(r.stdout, postToken) || strings.Contains(r.stderr, postToken) {
		f.t.Errorf("%v: the token is told\n%s\n%s", words, clip(r.stdout), clip(r.stderr))
	}
	var d afterDoc
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		f.t.Fatalf("%v\n%s", err, clip(r.stderr))
	}
	return d, r
}

// posts is "target state attempts status" of each post.
func (d afterDoc) posts() []string {
	out := []string{}
	for _, p := range d.Posts {
		out = append(out, fmt.Sprint(p["target"], " ", p["state"], " ", p["attempts"], " ", p["status"]))
	}
	return out
}

func TestOthersAreToldOfARepairOnce(t *testing.T) {
	t.Parallel()
	m := startMaster(t)
	f := told(t, m, "")
	f.lose("exp-1.rollout.lance", 1)
	f.lose("orders.generic.lance", 2)
	if d, _ := f.runTold(reconcile.ExitDivergence, "run", "--dry-run"); len(m.take()) != 0 || len(d.Posts) != 0 {
		t.Error("told of what was not done")
	}
	d, _ := f.runTold(reconcile.ExitClean, "run")
	want := []string{
		`/api/v1/tasks?token=` + postToken + ` {"kind":"compact","target":"exp-1","dropped":[1],"rows":10,"from":3,"to":4,"why":"schedule","what":"drop_fragment","store":"rk","of":"rollout"}`,
		`/api/v1/tasks?token=` + postToken + ` {"kind":"compact","target":"generic:orders","dropped":[2],"rows":10,"from":3,"to":4,"why":"schedule","what":"drop_fragment","store":"rk","of":"generic"}`,
	}
	if d := cmp.Diff(want, m.take()); d != "" {
		t.Errorf("posted (-want +got)\n%s", d)
	}
	for _, h := range m.heads {
		if h.Get("Authorization") != "Bearer "+postToken || h.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", h)
		}
	}
	if diff := cmp.Diff([]string{"exp-1 delivered 1 202", "generic:orders delivered 1 202"}, d.posts()); diff != "" {
		t.Errorf("the document: %s", diff)
	}
	if u := d.Posts[0]["url"]; u != m.url+"/api/v1/tasks" {
		t.Errorf("shown as %v", u)
	}
	// Not again; and a repair by name is told of like any.
	f.lose("small.rollout.lance", 0)
	if _, r := f.runTold(reconcile.ExitClean, "repair", "small"); len(m.take()) != 1 {
		t.Errorf("told otherwise than once\n%s", clip(r.stderr))
	}
	if d, _ := f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 0 || len(d.Posts) != 0 {
		t.Errorf("told again: %+v", d.Posts)
	}
	// Nothing secret is in the ledger, in no form.
	for _, name := range []string{"ledger.db", "ledger.db-wal"} {
		data, err := os.ReadFile(filepath.Join(f.dir, name))
		if err == nil && strings.Contains(string(data), postToken) {
			t.Errorf("the token is in %s", name)
		}
	}
}

func TestAPostThatIsNotTakenIsTheNextPassesAndChangesNoExitCode(t *testing.T) {
	long(t)
	t.Parallel()
	m := startMaster(t)
	m.answer(503)
	f := told(t, m, "")
	f.lose("exp-1.rollout.lance", 1)
	d, r := f.runTold(reconcile.ExitClean, "run")
	if diff := cmp.Diff([]string{"exp-1 open 4 503"}, d.posts()); diff != "" || d.Exit.Name != "repaired" {
		t.Errorf("exit %s: %s", d.Exit.Name, diff)
	}
	if n := strings.Count(r.stderr, "a post after a repair was not taken"); n != 1 || !strings.Contains(r.stderr, "level=WARN") {
		t.Errorf("%d warnings\n%s", n, clip(r.stderr))
	}
	if asked := m.take(); len(asked) != 4 || asked[0] != asked[3] || m.heads[0].Get("Idempotency-Key") == "" || m.heads[0].Get("Idempotency-Key") != m.heads[3].Get("Idempotency-Key") {
		t.Errorf("asked %v", asked)
	}
	status := func(open, failed float64) {
		t.Helper()
		var st map[string]any
		if err := json.Unmarshal([]byte(runIn(t, f.dir, []string{"POST_TOKEN=" + postToken}, f.args("status", "--output", "json")...).stdout), &st); err != nil || st["open_posts"] != open || st["failed_posts"] != failed {
			t.Errorf("status: %v, open %v, failed %v", err, st["open_posts"], st["failed_posts"])
		}
	}
	status(1, 0)
	m.answer(200)
	if d, _ = f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 1 {
		t.Errorf("the next pass: %v", d.posts())
	}
	status(0, 0)
	// What is refused is not tried again.
	m.answer(404)
	f.lose("exp-1.rollout.lance", 2)
	if d, r = f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 1 || !cmp.Equal([]string{"exp-1 refused 1 404"}, d.posts()) {
		t.Errorf("refused: %v\n%s", d.posts(), clip(r.stderr))
	}
	if e := fmt.Sprint(d.Posts[0]["error"]); !strings.Contains(e, "you said") {
		t.Errorf("the answer is not told: %s", e)
	}
	if _, _ = f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 0 {
		t.Error("tried again after a refusal")
	}
	status(0, 1)
}

// What is owed is sent whatever the pass may repair; a dry run sends nothing.
func TestAPassThatOnlyLooksSendsWhatIsOwed(t *testing.T) {
	t.Parallel()
	m := startMaster(t)
	m.answer(503)
	f := told(t, m, "")
	f.lose("exp-1.rollout.lance", 1)
	f.runTold(reconcile.ExitClean, "run")
	m.answer(200)
	m.take()
	text, err := os.ReadFile(f.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.config, []byte(strings.Replace(string(text), "mode: full", "mode: off", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"run", "--dry-run"}, {"check"}} {
		if d, _ := f.runTold(reconcile.ExitClean, words...); len(m.take()) != 0 || len(d.Posts) != 0 {
			t.Errorf("%v: %v", words, d.posts())
		}
	}
	if d, _ := f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 1 || !cmp.Equal([]string{"exp-1 delivered 1 200"}, d.posts()) {
		t.Errorf("with repair.mode off: %v", d.posts())
	}
	f.exec("UPDATE repair_posts SET state = 'open', ended_at = NULL")
	if d, _ := f.runTold(reconcile.ExitClean, "run", "--mode", "off"); len(m.take()) != 1 {
		t.Errorf("with --mode off: %v", d.posts())
	}
}

// A pass that dies between its repair and its post owes the post still.
func TestAPostThatADeadPassOwesIsSent(t *testing.T) {
	long(t)
	t.Parallel()
	m := startMaster(t)
	f := told(t, m, "")
	f.lose("exp-1.rollout.lance", 1)
	f.runTold(reconcile.ExitClean, "run")
	m.take()
	// As if it had died just before.
	f.exec("DELETE FROM repair_posts")
	if d, _ := f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 1 || len(d.Posts) != 1 {
		t.Errorf("%v", d.posts())
	}
	// One that died while it sent keeps others away for a minute.
	f.exec("UPDATE repair_posts SET state = 'open', ended_at = NULL, claimed_until = '" + time.Now().UTC().Add(time.Minute).Format("2006-01-02T15:04:05.000000Z") + "'")
	if d, _ := f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 0 || len(d.Posts) != 0 {
		t.Errorf("%v", d.posts())
	}
	f.exec("UPDATE repair_posts SET claimed_until = '2000-01-01T00:00:00.000000Z'")
	if d, _ := f.runTold(reconcile.ExitClean, "run"); len(m.take()) != 1 {
		t.Errorf("%v", d.posts())
	}
	// What nobody takes for a day is given up, and said so.
	f.exec("UPDATE repair_posts SET state = 'open', ended_at = NULL, created_at = '2000-01-01T00:00:00.000000Z'")
	d, r := f.runTold(reconcile.ExitClean, "run")
	if len(m.take()) != 0 || len(d.Posts) != 1 || d.Posts[0]["state"] != "given_up" || !strings.Contains(r.stderr, "was not taken") {
		t.Errorf("%v", d.posts())
	}
}
