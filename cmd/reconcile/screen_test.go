package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

func TestLogsGoAboveTheProgressLine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	c := &console{w: &b}
	c.draw("10 %")
	slog.New(slog.NewTextHandler(c, nil)).Warn("careful")
	c.draw("")
	got := b.String()
	if !strings.HasPrefix(got, "\r\x1b[K10 %\r\x1b[Ktime=") || !strings.HasSuffix(got, "careful\n10 %\r\x1b[K") {
		t.Errorf("%q", got)
	}
	b.Reset()
	c.draw("")
	if _, err := c.Write([]byte("x\n")); err != nil || b.String() != "x\n" {
		t.Errorf("without a line: %q, %v", b.String(), err)
	}
}

func TestProgressIsForTerminalsUnlessAskedFor(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	c := &console{w: &b}
	for _, tt := range []struct {
		word  string
		quiet bool
		want  bool
	}{{"auto", false, false}, {"never", false, false}, {"always", false, true}, {"always", true, false}} {
		if got := newProgress(tt.word, tt.quiet, c, &b); (got != nil) != tt.want {
			t.Errorf("%s quiet=%v: %v", tt.word, tt.quiet, got != nil)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newProgress("always", false, c, &b)
	p.now = func() time.Time { return now }
	p.show(pass.Progress{Phase: "look", Targets: 3, TargetsDone: 1, Checked: 12, SuspectsNow: 2})
	p.show(pass.Progress{Phase: "look", Targets: 3, TargetsDone: 2, Checked: 13})
	now = now.Add(lineEvery - 1)
	p.show(pass.Progress{Phase: "look", Targets: 3, TargetsDone: 3, Checked: 14})
	p.show(pass.Progress{Phase: "wait", SuspectsNow: 2, WaitUntil: now.Add(1500 * time.Millisecond)})
	p.done()
	if got, want := b.String(), "looking: 1 of 3 targets, 12 references checked, 2 suspect\nwaiting 2s before the second look at 2 objects\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.Reset()
	now = now.Add(lineEvery)
	p.show(pass.Progress{Phase: "wait", SuspectsNow: 2, WaitUntil: now})
	if got, want := b.String(), "waiting 0s before the second look at 2 objects\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var none *progress
	none.show(pass.Progress{})
	none.done()
}

func TestTheWaitCountsDownOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		c := &console{w: &b}
		p := &progress{console: c, redraw: true, width: 30, now: time.Now, interval: redrawEvery}
		p.show(pass.Progress{Phase: "wait", SuspectsNow: 1, WaitUntil: time.Now().Add(3 * time.Second)})
		time.Sleep(2500 * time.Millisecond)
		p.show(pass.Progress{Phase: "confirm", SuspectsNow: 1})
		time.Sleep(5 * time.Second)
		p.done()
		got := strings.Split(b.String(), "\r\x1b[K")
		want := []string{"", "waiting 3s before the second ", "waiting 2s before the second ", "waiting 1s before the second ", "second look at 1 object", ""}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// Not parallel: it sends this process signals.
func TestTheFirstSignalEndsTheWorkAndTheSecondTheProcess(t *testing.T) {
	for sig, want := range map[syscall.Signal]reconcile.ExitCode{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		exited := make(chan int, 1)
		ctx, stop := withSignals(context.Background(), func(code int) { exited <- code })
		send := func() {
			if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
				t.Fatal(err)
			}
		}
		send()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("%v: the context goes on", sig)
		}
		var interrupt *interruptError
		if !errors.As(context.Cause(ctx), &interrupt) || interrupt.exit() != want {
			t.Errorf("%v: cause %v", sig, context.Cause(ctx))
		}
		var exit *exitError
		if !errors.As(failure(context.Cause(ctx)), &exit) || exit.code != want {
			t.Errorf("%v: failure %v", sig, failure(context.Cause(ctx)))
		}
		for range 3 { // as timeout(1) does
			send()
		}
		select {
		case code := <-exited:
			t.Errorf("%v twice at once: exit %d", sig, code)
		case <-time.After(sameSignal + 100*time.Millisecond):
		}
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil { // the same or another
			t.Fatal(err)
		}
		select {
		case code := <-exited:
			if code != int(want) {
				t.Errorf("%v twice: exit %d", sig, code)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%v twice: the process goes on", sig)
		}
		stop()
	}
}

func TestNoSignalLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	ctx, stop := withSignals(context.Background(), func(int) { t.Error("exit") })
	stop()
	if ctx.Err() == nil {
		t.Error("the context goes on after stop")
	}
}

func TestControlCharactersDoNotReachTheTerminal(t *testing.T) {
	t.Parallel()
	if got := printable("a\x1b[2Jb\né"); got != "a�[2Jb�é" {
		t.Errorf("%q", got)
	}
}

// Whatever the words of a command line, a ledger or a store hold, a terminal is shown
// nothing that it would act on.
func TestNoMessageOfACommandActsOnTheTerminal(t *testing.T) {
	const evil = "a\x1b[31m\nINJECTED\u009bz"
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(config, []byte("stores: [{name: \"a\\e[31m\", uri: \"/nowhere/\\e[31m\", nokey: \"\\e\"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{evil}, {"check", "--" + evil}, {"check", evil}, {"check", dir + "/" + evil + ".lance"}, {"check", dir, "--target", evil}, {"check", dir, "--depth", evil}, {"check", dir, "--config", evil},
		{"apply", evil}, {"undo", evil}, {"probe", dir + "/" + evil}, {"status", "--database", "sqlite:" + dir + "/" + evil + "/x"}, {"findings", "--state", evil}, {"diff", evil, evil},
		{"ack", evil, "--until", "2027-01-01", "--reason", "r"}, {"explain", "Not found: " + evil + "x.lance/data/1.lance"}, {"config", "validate", "--config", config}, {"run", "--config", config},
		{"failures", "add", "--kind", "scan", "--error", "Not found: x" + evil + ".rollout.lance/data/1.lance"}, {"failures"}, {"repair", evil}, {"failures", "add", "--kind", evil, "--error", "x"},
	} {
		_, out, errs := invoke(t, "", args...)
		for _, text := range []string{out, errs} {
			for line := range strings.Lines(text) {
				if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "INJECTED") || strings.ContainsFunc(line, unicode.IsControl) {
					t.Errorf("%q shows %q", args, line)
				}
			}
		}
	}
}
