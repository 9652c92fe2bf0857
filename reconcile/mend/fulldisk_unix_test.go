//go:build unix

package mend_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile/mend"
)

// A disk that is full breaks a copy off; it is nobody's no, and nothing is left of it.
// The limit on file sizes plays the full disk, in a process of its own.
func TestAFullDisk(t *testing.T) {
	if os.Getenv("MEND_TEST_FULL_DISK") == "" {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), "MEND_TEST_FULL_DISK=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestAFullDisk") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	r := newRig(t, false)
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 8, Max: 8}); err != nil {
		t.Skip(err)
	}
	p, q := has("p", good), has("q", good)
	r.peers(p, q)
	res := r.mend(t.Context())
	r.is(res, mend.Failed, "")
	if len(res.SaidNo) != 0 || p.fetched() != 1 {
		t.Errorf("%q said no; fetched %d times", res.SaidNo, p.fetched())
	}
	if !errors.Is(res.Err, syscall.EFBIG) {
		t.Errorf("the reason is not told: %v", res.Err)
	}
	r.wrote()
}
