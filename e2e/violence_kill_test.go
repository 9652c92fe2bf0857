package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// stop is a point at which a request is held: before the store is asked, or when it
// has answered and the program does not know.
type stop struct {
	call  func(c call) bool
	after bool
}

// hold makes the first request that is meant wait. reached closes when it is there;
// letting go lets it pass, with true as if nothing had been, with false the
// connection breaks and, held before, the store is never asked.
func (w *wire) hold(s stop) (reached <-chan struct{}, letGo func(pass bool)) {
	at, gone := make(chan struct{}), make(chan bool, 1)
	var held atomic.Bool
	hook := func(c call) bool {
		if !s.call(c) || !held.CompareAndSwap(false, true) {
			return true
		}
		close(at)
		return <-gone
	}
	if s.after {
		w.after = hook
	} else {
		w.before = hook
	}
	var end sync.Once
	return at, func(pass bool) { end.Do(func() { gone <- pass }) }
}

func await(t *testing.T, reached <-chan struct{}, p *process) {
	t.Helper()
	select {
	case <-reached:
	case <-p.done:
		t.Fatalf("it ended before it came there\n%s", clip(p.stderr.String()))
	case <-time.After(time.Minute):
		t.Fatalf("it never came there\n%s", clip(p.stderr.String()))
	}
}

// kill -9 before and after every write to the store, then the same command again.
func TestKilledAtAnyWriteARepairIsMadeOnce(t *testing.T) {
	long(t)
	t.Parallel()
	for n, what := range []string{"test", "second test", "transaction", "manifest"} {
		for _, after := range []bool{false, true} {
			name := what + " before"
			if after {
				name = what + " after"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				x := newScene(t)
				reached, letGo := x.w.hold(stop{func(c call) bool { return c.write == n+1 }, after})
				defer letGo(false)
				x.killAt(reached, letGo)
				x.again(t)
			})
		}
	}
}

// A manifest that was on its way when the process died, and that the store takes
// while the next pass already looks.
func TestAManifestOnItsWayWhenTheProcessDiedIsFound(t *testing.T) {
	long(t)
	t.Parallel()
	x := newScene(t)
	reached, letGo := x.w.hold(stop{call.manifest, false})
	defer letGo(false)
	p := x.start()
	await(t, reached, p)
	p.signal(syscall.SIGKILL)
	<-p.done
	expireLeases(t, x.database)
	q := x.start()
	time.Sleep(4 * time.Second)
	letGo(true)
	r := q.ended(90 * time.Second).exit(reconcile.ExitClean)
	if got := outcome(r.pass()); len(got.repairs) != 1 || got.repairs[0] != "drop_fragment applied" {
		t.Errorf("%+v", got)
	}
	x.settledOnce()
}

// The lease of a process that died runs out by itself: the same command, at once, waits
// for that and goes on.
func TestTheLeaseOfADeadProcessIsWaitedFor(t *testing.T) {
	long(t)
	t.Parallel()
	x := newScene(t)
	reached, letGo := x.w.hold(stop{call.manifest, true})
	defer letGo(false)
	p := x.start()
	await(t, reached, p)
	p.signal(syscall.SIGKILL)
	<-p.done
	r := x.start().ended(110 * time.Second).exit(reconcile.ExitClean)
	if got := outcome(r.pass()); len(got.repairs) != 1 || got.repairs[0] != "drop_fragment applied" {
		t.Errorf("%+v\n%s", got, clip(r.stderr))
	}
	x.settledOnce()
}

// killAt kills a repair at a point, and lets its lease run out.
func (x *scene) killAt(reached <-chan struct{}, letGo func(bool)) {
	x.t.Helper()
	p := x.start()
	await(x.t, reached, p)
	p.signal(syscall.SIGKILL)
	<-p.done
	letGo(false)
	// Until then the table is the dead one's.
	expireLeases(x.t, x.database)
}

// again is the same command once more: the end is as if nothing had been.
func (x *scene) again(t *testing.T) {
	t.Helper()
	q := x.start()
	r := q.ended(2 * time.Minute).exit(reconcile.ExitClean)
	if got := outcome(r.pass()); got.state != "repaired" && got.state != "clean" {
		t.Errorf("%+v\n%s", got, clip(r.stderr))
	}
	x.settledOnce()
	x.readable()
}

// kill -9 at every request from the first write on, reads too: between any two writes
// to the ledger lies one. The lost fragment is dropped once, whatever happens.
func TestKilledAtAnyRequestARepairIsMadeOnce(t *testing.T) {
	long(t)
	t.Parallel()
	calm := newScene(t)
	calm.repair().exit(reconcile.ExitClean)
	first, last := 0, 0
	for _, c := range calm.w.calls() {
		if c.write > 0 && first == 0 {
			first = c.n
		}
		last = c.n
	}
	if first == 0 || last-first < 10 {
		t.Fatalf("requests %d to %d", first, last)
	}
	t.Logf("requests %d to %d", first, last)
	slots := make(chan struct{}, 6)
	for n := first - 2; n <= last; n++ {
		t.Run(fmt.Sprintf("request %d", n), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			x := newScene(t)
			reached, letGo := x.w.hold(stop{func(c call) bool { return c.n == n }, false})
			defer letGo(false)
			x.killAt(reached, letGo)
			q := x.start()
			r := q.ended(2 * time.Minute).exit(reconcile.ExitClean)
			if got := outcome(r.pass()); got.state != "repaired" && got.state != "clean" {
				t.Errorf("%+v\n%s", got, clip(r.stderr))
			}
			x.settledOnce()
		})
	}
}

// kill -9 at random moments of repairs of a table in a folder.
func TestKilledAtRandomOnFilesARepairIsMadeOnce(t *testing.T) {
	long(t)
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	slots := make(chan struct{}, 6)
	calm := filepath.Join(t.TempDir(), "t.lance")
	b := valueTable()
	b.WriteDir(t, calm, lancetest.Missing(b.DataName(victim, 0)))
	start := time.Now()
	run(t, nil, repairNow(calm)...).exit(reconcile.ExitClean)
	whole := time.Since(start)
	var roots []string
	var mu sync.Mutex
	t.Run("runs", func(t *testing.T) {
		for i := range 12 {
			// The commit lies between the looks: most of the moments are there.
			at := time.Duration(float64(whole) * (0.2 + 0.8*rng.Float64()))
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				dir := t.TempDir()
				root := filepath.Join(dir, "t.lance")
				b := valueTable()
				b.WriteDir(t, root, lancetest.Missing(b.DataName(victim, 0)))
				x := &scene{t: t, dir: dir, database: "sqlite:" + filepath.Join(dir, "ledger.db")}
				args := repairNow("--database", x.database, root)
				p := startProcess(t, dir, nil, args...)
				time.Sleep(at)
				_ = p.cmd.Process.Kill() // it may have ended
				<-p.done
				if _, err := os.Stat(filepath.Join(dir, "ledger.db")); err == nil {
					expireLeases(t, x.database)
				}
				r := startProcess(t, dir, nil, args...).ended(2 * time.Minute).exit(reconcile.ExitClean)
				if got := outcome(r.pass()); got.state != "repaired" && got.state != "clean" {
					t.Errorf("killed after %v: %+v\n%s", at, got, clip(r.stderr))
				}
				found := versionsIn(t, root)
				if diff := cmp.Diff(versionsIn(t, calm), found); diff != "" {
					t.Errorf("killed after %v: versions (-undisturbed +now)\n%s", at, diff)
				}
				applied := 0
				for _, l := range runIn(t, dir, nil, "repairs", "--database", x.database, "--output", "json").lines(t) {
					switch l["state"] {
					case "applied":
						applied++
					case "intended", "uncertain":
						t.Errorf("killed after %v: %v is %v", at, l["repair_id"], l["state"])
					}
				}
				if applied != 1 {
					t.Errorf("killed after %v: %d applied repairs", at, applied)
				}
				mu.Lock()
				defer mu.Unlock()
				kept := filepath.Join(filepath.Dir(calm), fmt.Sprintf("k%d.lance", i))
				if err := os.CopyFS(kept, os.DirFS(root)); err != nil {
					t.Error(err)
				}
				roots = append(roots, kept)
			})
		}
	})
	for i, p := range lancetest.Probe(t, roots...) {
		if p.Error != "" || p.Rows != 9 || p.Scanned != 9 {
			t.Errorf("%s: %+v", roots[i], p)
		}
	}
}

// versionsIn lists the manifests of a table in a folder, and whatever lies with them.
func versionsIn(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "_versions"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".manifest") {
			out = append(out, e.Name())
		}
	}
	return out
}

// lines is a list in JSON on stdout.
func (r result) lines(t *testing.T) []map[string]any {
	t.Helper()
	return decodeList(t, r.stdout)
}

// The first SIGTERM ends the pass: what was sent is awaited and recorded, and no new
// write begins.
func TestTerminatedInACommitNoNewWriteBegins(t *testing.T) {
	long(t)
	t.Parallel()
	for _, tt := range []struct {
		name    string
		call    func(call) bool
		applied bool
	}{{"transaction", call.transaction, false}, {"manifest", call.manifest, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newScene(t)
			reached, letGo := x.w.hold(stop{tt.call, false})
			defer letGo(false)
			p := x.start()
			await(t, reached, p)
			p.signal(syscall.SIGTERM)
			time.Sleep(2 * time.Second)
			before := len(x.w.calls())
			letGo(true)
			r := p.ended(25 * time.Second).exit(reconcile.ExitTerminated)
			for _, c := range x.w.calls()[before:] {
				if c.write > 0 {
					t.Errorf("a write after the signal: %v", c)
				}
			}
			rs := x.ledgerRepairs()
			if len(rs) != 1 {
				t.Fatalf("the ledger has %v", rs)
			}
			if want := map[bool]string{true: "applied", false: "failed"}[tt.applied]; rs[0]["state"] != want {
				t.Errorf("the record says %v, want %s\n%s", rs[0]["state"], want, clip(r.stderr))
			}
			ps := runIn(t, x.dir, nil, "passes", "--output", "json", "--database", x.database).lines(t)
			if len(ps) != 1 || ps[0]["exit_code"] != 143.0 || ps[0]["finished_at"] == nil {
				t.Errorf("the pass: %v", ps)
			}
			// The lock was given back: the next one need not wait.
			x.again(t)
		})
	}
}

// A store that never answers: the program ends within the grace all the same.
func TestTerminatedWhileTheStoreIsSilentItEndsInTime(t *testing.T) {
	long(t)
	t.Parallel()
	x := newScene(t)
	reached, letGo := x.w.hold(stop{call.manifest, true})
	defer letGo(false)
	p := startProcess(t, x.dir, x.w.Env(), x.args("--request-timeout", "2m")...)
	await(t, reached, p)
	p.signal(syscall.SIGTERM)
	p.ended(28 * time.Second).exit(reconcile.ExitTerminated)
	// It was stored: the next pass finds it, whatever the record says by now.
	letGo(true)
	x.again(t)
}
