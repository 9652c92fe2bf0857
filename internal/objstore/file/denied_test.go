//go:build unix

package file_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/file"
)

// TestDenied runs as somebody whom permissions hold: root passes them all, so as
// root the test runs itself again as nobody.
func TestDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		testDenied(t, t.TempDir())
		return
	}
	if os.Getenv("FILE_TEST_DENIED") != "" {
		t.Fatal("still root")
	}
	dir, err := os.MkdirTemp("", "denied")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary folder
	must(t, os.Chmod(dir, 0o777))
	self := filepath.Join(dir, "self") // the built test may lie where nobody gets at it
	data, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(self, data, 0o755))
	cmd := exec.Command(self, "-test.run", "^TestDenied$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
}

func testDenied(t *testing.T, dir string) {
	for _, d := range []string{"open", "closed/deeper", "listed", "entered"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, f := range []string{"open/a", "closed/a", "closed/deeper/a", "listed/a", "entered/a"} {
		must(t, os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(dir, "open", "secret"), []byte("x"), 0))
	must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
	must(t, os.Chmod(filepath.Join(dir, "listed"), 0o444))
	must(t, os.Chmod(filepath.Join(dir, "entered"), 0o111))
	t.Cleanup(func() {
		for _, d := range []string{"closed", "listed", "entered"} {
			must(t, os.Chmod(filepath.Join(dir, d), 0o755))
		}
	})
	s, root := open(t, dir)
	for _, key := range []string{"closed/a", "closed/absent", "closed/deeper/a", "listed/a", "listed/absent"} {
		wantKind(t, key, look(t, s, root.Join(key)), objstore.ErrDenied)
	}
	wantKind(t, "nothing in a folder that may be entered", look(t, s, root.Join("entered/absent")), objstore.ErrNotExist)
	// As an object store refuses the HEAD of what may not be read.
	_, err := s.Stat(t.Context(), root.Join("open/secret"))
	wantKind(t, "stat of what may not be read", err, objstore.ErrDenied)
	_, err = s.Probe(t.Context(), root.Join("open/secret"))
	wantKind(t, "probe of what may not be read", err, objstore.ErrDenied)
	_, _, err = s.Get(t.Context(), root.Join("open/secret"), objstore.Range{})
	wantKind(t, "get of what may not be read", err, objstore.ErrDenied)
	for _, key := range []string{"closed/", "listed/", "entered/", ""} {
		_, err := list(t, s, root, key, "")
		wantKind(t, "list "+key, err, objstore.ErrDenied)
	}
	if got, err := list(t, s, root, "", "/"); err != nil || len(got) != 4 {
		t.Errorf("one level, where what cannot be read may hold objects: %q, %v", got, err)
	}
	_, err = s.Create(t.Context(), root.Join("entered/new"), errReader{}, 0)
	wantKind(t, "create where nothing may be written", err, objstore.ErrDenied)
	inner, err := file.New(root.Join("closed/deeper"))
	must(t, err)
	wantKind(t, "a root that cannot be reached", look(t, inner, root.Join("closed/deeper/a")), objstore.ErrDenied)
}
