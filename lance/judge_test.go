package lance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

// The releases of the library whose tables are repaired, and the newest, which
// judges all of them.
var judgedReleases = []string{"0.10.0", "0.22.3", "0.31.0", newestRelease}

const newestRelease = "0.39.0"

// libraryDir finds the folder of a release of the real library: below
// $RECONCILE_TEST_LANCE_DIR, where e2e/fixtures/make.sh installs all, or in
// e2e/fixtures for the newest. Without one the test is skipped, and failed when
// $RECONCILE_TEST_REQUIRE lists "lance".
func libraryDir(t testing.TB, release string) string {
	t.Helper()
	var places []string
	if dir := os.Getenv("RECONCILE_TEST_LANCE_DIR"); dir != "" {
		places = append(places, filepath.Join(dir, release))
	}
	if cache, err := os.UserCacheDir(); err == nil {
		places = append(places, filepath.Join(cache, "reconcile", "lancedb", release))
	}
	if release == newestRelease {
		places = append(places, "../e2e/fixtures")
	}
	if _, err := exec.LookPath("node"); err == nil {
		for _, dir := range places {
			if _, err := os.Stat(filepath.Join(dir, "node_modules", "@lancedb", "lancedb")); err == nil {
				return dir
			}
		}
	}
	message := fmt.Sprintf("node or @lancedb/lancedb %s not found; set RECONCILE_TEST_LANCE_DIR or run e2e/fixtures/make.sh", release)
	if slices.Contains(strings.Split(os.Getenv("RECONCILE_TEST_REQUIRE"), ","), "lance") {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// judge is one process of one release of the library that answers commands.
type judge struct {
	mu      sync.Mutex
	release string
	in      *json.Encoder
	out     *bufio.Scanner
	said    *os.File // its standard error: the library's warnings and panics
}

// ended is the reason that the process gave.
func (j *judge) ended() string {
	b, err := os.ReadFile(j.said.Name())
	return fmt.Sprintf("%v, stderr: …%s", errors.Join(j.out.Err(), err), b[max(0, len(b)-2000):])
}

func newJudge(t *testing.T, release string) *judge {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "../e2e/fixtures/judge.mjs", libraryDir(t, release))
	cmd.Cancel = func() error { return cmd.Process.Kill() }
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
		_ = said.Close()
	})
	j := &judge{release: release, in: json.NewEncoder(in), out: bufio.NewScanner(out), said: said}
	j.out.Buffer(nil, 16<<20)
	return j
}

// ask sends one command and reads its answer.
func (j *judge) ask(t testing.TB, command, answer any) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.in.Encode(command); err != nil {
		t.Fatalf("ask release %s: %v, %s", j.release, err, j.ended())
	}
	if !j.out.Scan() {
		t.Fatalf("release %s ended: %s", j.release, j.ended())
	}
	if err := json.Unmarshal(j.out.Bytes(), answer); err != nil {
		t.Fatalf("release %s answered %q: %v", j.release, j.out.Text(), err)
	}
}

// command is a line for judge.mjs.
type command struct {
	Do      string   `json:"do"`
	Root    string   `json:"root,omitempty"`
	Branch  string   `json:"branch,omitempty"`
	Old     uint64   `json:"old,omitempty"`
	Absent  []any    `json:"absent,omitempty"`
	Text    string   `json:"text,omitempty"`
	Skip    []string `json:"skip,omitempty"`
	Prepare *prepare `json:"prepare,omitempty"`
	Op      string   `json:"op,omitempty"`
}

type prepare struct {
	Drop      []any  `json:"drop,omitempty"`
	DropIndex string `json:"dropIndex,omitempty"`
}

// verdict is what an engine saw at each step, as JSON.
type verdict struct {
	Error string                     `json:"error"`
	Steps map[string]json.RawMessage `json:"steps"`
}

// step decodes what was seen at one step; failed is the error's text.
func (v verdict) step(t testing.TB, name string) (seen struct {
	Version uint64   `json:"version"`
	Indices []string `json:"indices"`
	Rows    int64    `json:"rows"`
	Keys    []any    `json:"keys"`
	Error   string   `json:"error"`
}) {
	t.Helper()
	if err := json.Unmarshal(v.Steps[name], &seen); err != nil {
		t.Fatalf("step %s: %v in %s%s", name, err, v.Steps[name], v.Error)
	}
	return seen
}

// diskStore commits to a folder as the library does on a local disk.
type diskStore struct{ dirStore }

func (d diskStore) Create(_ context.Context, name string, data []byte) error {
	final := filepath.Join(string(d.dirStore), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return errors.Join(err, ErrNotStored)
	}
	staged := final + "#" + uuid.NewString()
	if err := os.WriteFile(staged, data, 0o644); err != nil {
		return errors.Join(err, ErrNotStored)
	}
	defer func() { _ = os.Remove(staged) }()
	return os.Link(staged, final)
}

func (d diskStore) Replace(_ context.Context, name, _ string, data []byte) error {
	return os.WriteFile(filepath.Join(string(d.dirStore), filepath.FromSlash(name)), data, 0o644)
}

// commitOn proposes from the newest version of a folder and commits.
func commitOn(t testing.TB, root string, make func(m *Manifest, info CommitInfo) (*Proposal, error)) (before, after *Manifest) {
	t.Helper()
	s := diskStore{dirStore(root)}
	vs, m := readNewest(t, s)
	info := CommitInfo{UUID: uuid.NewString(), Naming: vs.Naming, Now: time.Now(), Properties: map[string]string{RepairIDProperty: "judged"}, Message: "repair"}
	p := propose(t)(make(m, info))
	if outcome, err := p.Commit(t.Context(), s); outcome != Committed || err != nil {
		t.Fatalf("%v, %v", outcome, err)
	}
	_, n := readNewest(t, s)
	if n.Version != m.Version+1 {
		t.Fatalf("newest is %d after %d", n.Version, m.Version)
	}
	return m, n
}

// copyTo copies a fixture to a new folder and gives the table's root there.
func copyTo(t *testing.T, name string) string {
	t.Helper()
	return lancetest.CopyFixture(t, name, filepath.Join(t.TempDir(), "db"))
}
