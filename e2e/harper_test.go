package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/harperfake"
)

// nodes are two Harper nodes with the same records, and a configuration of them.
type nodes struct {
	t      *testing.T
	a, b   *harperfake.Server
	dir    string
	config string
}

const nodeRecords = 6

func newNodes(t *testing.T, repair string, opts harperfake.Options) *nodes {
	t.Helper()
	opts.User, opts.Password = "admin", "s3cret"
	n := &nodes{t: t, a: harperfake.Start(t, opts), b: harperfake.Start(t, opts), dir: t.TempDir()}
	n.a.Peer(n.b)
	for _, s := range []*harperfake.Server{n.a, n.b} {
		s.Table("data", "Doc", "id")
		for i := range nodeRecords {
			data := []byte(strings.Repeat(fmt.Sprintf("blob %d ", i), 2000+i))
			sum := sha256.Sum256(data)
			s.PutVersion("Doc", fmt.Sprintf("k%d", i), map[string]any{"size": len(data), "sha256": hex.EncodeToString(sum[:])}, "body", data, float64(1_790_000_000_000+i))
		}
	}
	n.config = filepath.Join(n.dir, "reconcile.yaml")
	text := fmt.Sprintf(`database: %q
work: {dir: %q}
blobs:
  - name: docs
    references:
      harper:
        nodes:
          - {name: a, url: %q, operations_url: %q, credentials: "admin:${NODE_PASSWORD}", role: check, max_requests_per_second: 500, control: {path: Doc, key: k0, attribute: body}}
          - {name: b, url: %q, operations_url: %q, credentials: "admin:${NODE_PASSWORD}", role: donor, max_requests_per_second: 500}
        sets: [{database: data, table: Doc, attributes: [body], size: size, digest: sha256}]
        repair: %s
        repair_wait: 10s
        timers: {first_byte: 1s, stall: 1s}
verify: {confirm_after: 1s, pending_max_age: 0s}
repair: {mode: restore}
`, "sqlite:"+filepath.Join(n.dir, "ledger.db"), filepath.Join(n.dir, "work"), n.a.URL, n.a.OperationsURL, n.b.URL, n.b.OperationsURL, repair)
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *nodes) run() result {
	n.t.Helper()
	r := runIn(n.t, n.dir, []string{"NODE_PASSWORD=s3cret"}, "run", "--config", n.config, "--output", "json")
	if strings.Contains(r.stdout+r.stderr, "s3cret") {
		n.t.Error("the password is shown")
	}
	return r
}

// Blobs on nodes are looked at by reading them, and what is damaged is reported.
func TestBlobsOnNodesAreJudged(t *testing.T) {
	long(t)
	t.Parallel()
	n := newNodes(t, "off", harperfake.Options{Dialect: harperfake.New})
	n.a.Damage("Doc", "k1", "body", harperfake.Deleted)
	n.a.Damage("Doc", "k2", "body", harperfake.BitsFlipped)
	n.a.Damage("Doc", "k3", "body", harperfake.Truncated)
	d := n.run().exit(3).pass()
	var got []string
	for _, f := range d.Findings {
		got = append(got, fmt.Sprintf("%s %s %s", f.Path, f.Verdict, f.ProposedAction))
	}
	slices.Sort(got)
	want := []string{"harper://a/Doc/k1.body missing none", "harper://a/Doc/k2.body checksum_mismatch none", "harper://a/Doc/k3.body unreadable none"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got)\n%s", diff)
	}
	if d.Coverage.References != nodeRecords || d.Coverage.Checked != nodeRecords {
		t.Errorf("coverage %+v", d.Coverage)
	}
}

// A node that may repair itself is asked to, and believed only when the blobs read well.
func TestANodeIsAskedToRepairItself(t *testing.T) {
	long(t)
	t.Parallel()
	for name, never := range map[string]bool{"it does": false, "it says so and does nothing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNodes(t, "operation", harperfake.Options{Dialect: harperfake.New, HealAfter: time.Second, NeverHeals: never})
			n.a.Damage("Doc", "k1", "body", harperfake.Deleted)
			n.a.Damage("Doc", "k4", "body", harperfake.Deleted)
			want, state := 0, "applied"
			if never {
				want, state = 3, "failed"
			}
			r := n.run()
			d := r.pass()
			var states []string
			for _, rep := range d.Repairs {
				states = append(states, fmt.Sprint(rep["action"], " ", rep["state"]))
			}
			if diff := cmp.Diff([]string{"refetch " + state, "refetch " + state}, states); diff != "" || r.code != want {
				t.Errorf("exit %d, repairs %v, findings %+v\n%s", r.code, d.Repairs, d.Findings, clip(r.stderr))
			}
		})
	}
}

// A node that hangs trips its control, and nothing is said of its blobs.
func TestAHungNodeYieldsUndecided(t *testing.T) {
	long(t)
	t.Parallel()
	n := newNodes(t, "off", harperfake.Options{Dialect: harperfake.Old})
	n.a.Damage("Doc", "k1", "body", harperfake.Deleted)
	n.run().exit(3) // the node answers for everything else
	n.a.Hang(true)
	d := n.run().exit(4).pass()
	for _, f := range d.Findings {
		if f.Verdict != "undecided" {
			t.Errorf("%s %s", f.Path, f.Verdict)
		}
	}
	if len(d.Targets) != 1 || d.Targets[0].State != "incomplete" {
		t.Errorf("targets %+v", d.Targets)
	}
}
