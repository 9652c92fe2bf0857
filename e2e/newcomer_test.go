package e2e

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// running is a run of the program that is sent signals.
type running struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func start(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: command(t.Context(), t, dir, nil, args...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) signal(sig os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// end waits for the end.
func (r *running) end() result {
	r.t.Helper()
	began := time.Now()
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("ended with %v", err)
	}
	return result{t: r.t, args: r.cmd.Args[1:], code: r.cmd.ProcessState.ExitCode(), stdout: r.stdout.String(), stderr: r.stderr.String(), took: time.Since(began)}
}

func demoStores(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	run(t, nil, "demo", "--keep-damage", "--dir", dir).exit(reconcile.ExitClean)
	return filepath.Join(dir, "stores")
}

// timeout(1) signals the process and then its group, so that two signals arrive at
// once: they are one.
func TestSignalsThatComeAtOnceAreOne(t *testing.T) {
	t.Parallel()
	stores := demoStores(t)
	for _, tt := range []struct {
		name   string
		first  os.Signal
		second os.Signal
		want   reconcile.ExitCode
	}{
		{"SIGTERM twice", syscall.SIGTERM, syscall.SIGTERM, reconcile.ExitTerminated},
		{"SIGINT twice", syscall.SIGINT, syscall.SIGINT, reconcile.ExitInterrupted},
		{"SIGINT, and then SIGTERM", syscall.SIGINT, syscall.SIGTERM, reconcile.ExitInterrupted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, t.TempDir(), "check", stores, "--confirm-after", "90s", "--output", "json")
			time.Sleep(3 * time.Second)
			r.signal(tt.first)
			time.Sleep(time.Millisecond)
			r.signal(tt.second)
			out := r.end().exit(tt.want)
			if d := out.pass(); d.Exit.Name != "interrupted" || len(d.Targets) == 0 {
				t.Errorf("exit %+v, %d targets", d.Exit, len(d.Targets))
			}
			// One line of the log and one at the end say it; no target says it again.
			if n := strings.Count(out.stderr, "\n"); n > 2 || strings.Contains(out.stderr, "canceled") {
				t.Errorf("said in %d lines\n%s", n, out.stderr)
			}
		})
	}
}

// Whoever waited for the end and sends another signal wants it now.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	stores, dir := demoStores(t), t.TempDir()
	reached, done := make(chan struct{}, 1), make(chan struct{})
	gateway := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-done
	}))
	t.Cleanup(gateway.Close)
	t.Cleanup(func() { close(done) })
	config := filepath.Join(dir, "reconcile.yaml")
	if err := os.WriteFile(config, []byte("metrics: {pushgateway: "+gateway.URL+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, "check", stores, "--confirm-after", "90s", "--config", config)
	time.Sleep(3 * time.Second)
	r.signal(syscall.SIGTERM)
	<-reached // the end of the pass is held up
	time.Sleep(1200 * time.Millisecond)
	r.signal(syscall.SIGINT)
	if out := r.end().exit(reconcile.ExitTerminated); out.took > 2*time.Second {
		t.Errorf("ended %v after the second signal", out.took)
	}
}

// A look that somebody ends is no failure of what it looked at: three of them leave no
// target alone.
func TestInterruptedLooksCoolNothingDown(t *testing.T) {
	t.Parallel()
	stores, dir := demoStores(t), t.TempDir()
	db := "sqlite:" + filepath.Join(dir, "ledger.db")
	for range 3 {
		r := start(t, dir, "check", stores, "--confirm-after", "90s", "--database", db, "--output", "json")
		time.Sleep(2 * time.Second)
		r.signal(syscall.SIGTERM)
		r.end().exit(reconcile.ExitTerminated)
	}
	if out := run(t, nil, "cooldowns", "--state", "all", "--database", db, "--output", "json").exit(reconcile.ExitClean); strings.Contains(out.stdout, `"last_error": "`) {
		t.Errorf("counted\n%s", out.stdout)
	}
	config := filepath.Join(dir, "reconcile.yaml")
	if err := os.WriteFile(config, []byte("database: "+db+"\nstores: [{name: rk, uri: "+stores+", discover: list}]\nverify: {confirm_after: 1s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range run(t, nil, "run", "--config", config, "--output", "json").pass().Targets {
		if x.State == "cooling_down" || x.References == 0 {
			t.Errorf("%s: %s, %d references", x.Target, x.State, x.References)
		}
	}
}

// A name that nothing is there of is a mistake, said at once, and leaves no target behind.
func TestADatasetThatIsNotThereIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	stores, s := demoStores(t), servertest.S3(t)
	s.Put(t, "p/marked.lance/", nil)
	for _, tt := range []struct{ name, uri, why string }{
		{"below a folder that is there", filepath.Join(stores, "nosuch.lance"), "there is no such folder"},
		{"below a folder that is absent", filepath.Join(stores, "no", "nosuch.lance"), "there is no such folder"},
		{"below a bucket that is there", "s3://" + s.Bucket + "/p/nosuch.lance", "no object lies below it"},
		{"with nothing but the marker of a folder", "s3://" + s.Bucket + "/p/marked.lance", "no object lies below it"},
		{"below a bucket that is absent", "s3://nowhere/p/nosuch.lance", "there is no such bucket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
			for _, words := range [][]string{{"check"}, {"repair"}, {"plan", "-o", filepath.Join(t.TempDir(), "plan.json")}, {"probe"}} {
				if words[0] == "probe" && strings.HasSuffix(tt.uri, "marked.lance") {
					continue // it has a key to ask for
				}
				r := run(t, s.Env(), append(words, tt.uri, "--database", db, "--request-timeout", "5s")...).exit(reconcile.ExitFailed)
				r.says(r.stderr, "reconcile: no dataset at ", filepath.Base(tt.uri), tt.why)
				if r.took > 20*time.Second {
					t.Errorf("%v took %v", words, r.took)
				}
			}
			out := run(t, nil, "targets", "--database", db, "--output", "json").exit(reconcile.ExitClean).stdout
			if strings.TrimSpace(out) != "[]" {
				t.Errorf("recorded\n%s", out)
			}
			// What else is named is looked at all the same.
			d := run(t, s.Env(), "check", tt.uri, filepath.Join(stores, "exp-0004.rollout.lance"), "--database", db, "--output", "json", "--request-timeout", "5s").exit(reconcile.ExitFailed).pass()
			if len(d.Targets) != 1 || d.Targets[0].State != "clean" {
				t.Errorf("targets %+v", d.Targets)
			}
		})
	}
}

// One that was there before is not forgotten when it goes as a whole.
func TestADatasetThatIsGoneIsNotForgotten(t *testing.T) {
	t.Parallel()
	stores, db := demoStores(t), "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")
	at := filepath.Join(stores, "exp-0004.rollout.lance")
	look := func(want reconcile.ExitCode, uri, state string) {
		t.Helper()
		d := run(t, nil, "check", uri, "--target", "exp-0004", "--confirm-after", "1s", "--database", db, "--output", "json").exit(want).pass()
		if len(d.Targets) != 1 || d.Targets[0].State+" "+text(d.Targets[0].Reason) != state {
			t.Errorf("%s: %+v, want %s", uri, d.Targets, state)
		}
	}
	look(reconcile.ExitClean, stores, "clean ")
	if err := os.RemoveAll(at); err != nil {
		t.Fatal(err)
	}
	look(reconcile.ExitFailed, at, "failed no_such_bucket")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	look(reconcile.ExitIncomplete, at, "half_deleted nothing_there")
}

// An endpoint that takes nothing holds up nobody else's posts, and each of its own is
// tried in every pass.
func TestEveryOwedPostIsTriedInEachPass(t *testing.T) {
	long(t)
	t.Parallel()
	away, well := startMaster(t), startMaster(t)
	away.answer(500)
	f := told(t, away, strings.ReplaceAll("- post: MASTER/well\n  body: '{\"target\":{{json .Target}}}'\n", "MASTER", well.url))
	tables := []string{"exp-1", "generic:orders", "small"}
	f.lose("exp-1.rollout.lance", 1)
	f.lose("orders.generic.lance", 2)
	f.lose("small.rollout.lance", 0)
	f.runTold(reconcile.ExitClean, "run")
	for pass := range 2 {
		asked := strings.Join(away.take(), "\n")
		for _, name := range tables {
			if !strings.Contains(asked, `"target":"`+name+`"`) {
				t.Errorf("pass %d: nothing is sent of %s\n%s", pass, name, asked)
			}
		}
		if got := len(well.take()); (pass == 0) != (got > 0) {
			t.Errorf("pass %d: %d posts to the other endpoint", pass, got)
		}
		f.runTold(reconcile.ExitClean, "run")
	}
}
