package e2e

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	be "encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

// nodeTree is a folder of files as a Harper node keeps them, the records that speak of
// their content, and a configuration of both.
type nodeTree struct {
	t      *testing.T
	dir    string
	config string
	files  map[string][]byte // by key; nil = none
	body   []byte            // what every record speaks of
}

// nodeFile is a header, 16 bits of type and 48 of size, and a body.
func nodeFile(kind uint16, size int, body []byte) []byte {
	return append(be.BigEndian.AppendUint64(nil, uint64(kind)<<48|uint64(size)&(1<<48-1)), body...)
}

func newNodeTree(t *testing.T, more string) *nodeTree {
	t.Helper()
	n := &nodeTree{t: t, dir: t.TempDir(), body: bytes.Repeat([]byte("what a record holds "), 1000)}
	size := len(n.body)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	if _, err := w.Write(n.body); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	packed := z.Bytes()
	flip := func(b []byte, at int) []byte { b = bytes.Clone(b); b[at] ^= 1; return b }
	n.files = map[string][]byte{
		"0/0/1": nodeFile(0, size, n.body),
		"0/0/2": nodeFile(1, size, packed),
		"0/0/3": nodeFile(0, -1, n.body),
		"0/0/4": nodeFile(0x00ff, 5, []byte("error")),
		"0/0/5": nodeFile(0x00fe, 5, []byte("error")),
		"0/0/6": nodeFile(2, size, n.body),
		"0/0/7": nodeFile(0, size, n.body[:9000]),
		"0/0/8": nodeFile(1, size, packed[:len(packed)-6]),
		"0/0/9": nodeFile(1, size-1, packed),
		"0/0/a": nodeFile(0, size, append(bytes.Clone(n.body), 'x')),
		"0/0/b": nodeFile(0, 9000, n.body[:9000]),
		"0/0/c": nodeFile(1, size, flip(packed, len(packed)-1)),
		"0/0/d": nodeFile(0, size, flip(n.body, 5000)),
		"0/0/e": nodeFile(0, size, nil)[:7],
		"0/0/f": nil,
	}
	sum := sha256.Sum256(n.body)
	refs := "key,size,checksum\n"
	for key, data := range n.files {
		refs += fmt.Sprintf("%s,%d,sha256:%s\n", key, size, hex.EncodeToString(sum[:]))
		if data == nil {
			continue
		}
		for _, root := range []string{"node", "peer"} {
			file := filepath.Join(n.dir, root, key)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if root == "peer" {
				data = nodeFile(0, size, n.body)
			}
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(n.dir, "peer/0/0/f"), nodeFile(0, size, n.body), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "refs.csv"), []byte(refs), 0o600); err != nil {
		t.Fatal(err)
	}
	n.config = filepath.Join(n.dir, "reconcile.yaml")
	text := fmt.Sprintf("work: {dir: %q}\nblobs:\n  - {name: docs, uri: %q, format: harper, references: {csv: {uri: %q, key: key, size: size, checksum: checksum}}%s}\n",
		filepath.Join(n.dir, "work"), filepath.Join(n.dir, "node"), filepath.Join(n.dir, "refs.csv"), strings.ReplaceAll(more, "DIR", n.dir))
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// old makes the records older than a blob may be on its way.
func (n *nodeTree) old() *nodeTree {
	n.t.Helper()
	at := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(n.dir, "refs.csv"), at, at); err != nil {
		n.t.Fatal(err)
	}
	return n
}

// findings are those of a pass, each in a line, and the exit code.
func (n *nodeTree) findings(want reconcile.ExitCode, args ...string) []string {
	n.t.Helper()
	r := runIn(n.t, n.dir, nil, append(args, "--config", n.config, "--output", "json")...).exit(want)
	if d := r.pass(); d.Coverage.References != 15 || d.Coverage.Checked != 15 || len(d.Repairs) > 0 {
		n.t.Errorf("looked at %d of %d, %d repairs", d.Coverage.Checked, d.Coverage.References, len(d.Repairs))
	}
	var d struct {
		Findings []struct {
			finding
			ExpectedSize     *int64  `json:"expected_size"`
			ObservedSize     *int64  `json:"observed_size"`
			ExpectedChecksum *string `json:"expected_checksum"`
			ObservedChecksum *string `json:"observed_checksum"`
		} `json:"findings"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		n.t.Fatal(err)
	}
	sum := func(b []byte) string {
		h := sha256.Sum256(b)
		return "sha256:" + hex.EncodeToString(h[:])
	}
	var out []string
	for _, f := range d.Findings {
		words := []string{f.Path, f.Verdict}
		if f.Reason != nil {
			words = append(words, *f.Reason)
		}
		if f.ObservedSize != nil {
			words = append(words, fmt.Sprint(*f.ObservedSize))
		}
		if f.ObservedChecksum != nil {
			words = append(words, "read")
			if *f.ObservedChecksum != sum(n.files[f.Path][8:]) {
				n.t.Errorf("%s: read %s", f.Path, *f.ObservedChecksum)
			}
		}
		if f.ExpectedSize == nil || *f.ExpectedSize != int64(len(n.body)) || f.ExpectedChecksum == nil || *f.ExpectedChecksum != sum(n.body) || f.ProposedAction != "none" || len(f.BlockedBy) > 0 {
			n.t.Errorf("%s: recorded %v %v, action %s, blocked by %v", f.Path, f.ExpectedSize, f.ExpectedChecksum, f.ProposedAction, f.BlockedBy)
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return out
}

// what is found of the tree at each depth, where the records are old.
func (n *nodeTree) want(depth string) []string {
	at := func(key string) int { return len(n.files[key]) }
	head := []string{"0/0/e unreadable too_short 7", "0/0/f missing"}
	footer := slices.Concat(head, []string{
		fmt.Sprintf("0/0/3 unreadable unfinished %d", at("0/0/3")),
		"0/0/4 unreadable error_stub 13",
		"0/0/5 unreadable pending_stub 13",
		fmt.Sprintf("0/0/6 unreadable unknown_type %d", at("0/0/6")),
		"0/0/7 unreadable torn 9008",
		fmt.Sprintf("0/0/8 unreadable torn %d", at("0/0/8")),
		fmt.Sprintf("0/0/9 unreadable overlong %d", at("0/0/9")),
		fmt.Sprintf("0/0/a unreadable overlong %d", at("0/0/a")),
		"0/0/b size_mismatch 9000",
		fmt.Sprintf("0/0/c unreadable torn %d", at("0/0/c")),
	})
	out := map[string][]string{"head": head, "footer": footer, "checksum": append(slices.Clone(footer), fmt.Sprintf("0/0/d checksum_mismatch %d read", len(n.body)))}[depth]
	slices.Sort(out)
	return out
}

// The length of a file is not that of its content; its header and content are judged
// where the depth says so.
func TestFilesOfAHarperNode(t *testing.T) {
	t.Parallel()
	n := newNodeTree(t, "").old()
	for _, depth := range []string{"head", "footer", "checksum"} {
		got := n.findings(3, "check", "--depth", depth, "--confirm-after", "0s")
		if d := cmp.Diff(n.want(depth), got); d != "" {
			t.Errorf("%s (-want +got)\n%s", depth, d)
		}
	}
}

// What may still be written is no damage.
func TestYoungFilesOfAHarperNodeArePending(t *testing.T) {
	t.Parallel()
	n := newNodeTree(t, "")
	got := n.findings(0, "check", "--depth", "checksum", "--confirm-after", "0s")
	var want []string
	for _, line := range n.want("checksum") {
		words := strings.Fields(line)
		words[1] = "pending"
		want = append(want, strings.Join(words, " "))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// A node's path may belong to another record after a restart: whatever a peer has,
// nothing is put there.
func TestFilesOfAHarperNodeAreNeverWritten(t *testing.T) {
	t.Parallel()
	n := newNodeTree(t, `, peers: ["DIR/peer"]`).old()
	n.findings(3, "run", "--mode", "full", "--depth", "checksum", "--confirm-after", "1s", "--database", "sqlite:"+filepath.Join(n.dir, "ledger.db"))
	for key, want := range n.files {
		if got, err := os.ReadFile(filepath.Join(n.dir, "node", key)); !bytes.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%s: %d bytes, %v; want %d", key, len(got), err, len(want))
		}
	}
	err := filepath.WalkDir(filepath.Join(n.dir, "node"), func(path string, d os.DirEntry, err error) error {
		if key, _ := filepath.Rel(filepath.Join(n.dir, "node"), path); err == nil && !d.IsDir() && n.files[filepath.ToSlash(key)] == nil {
			t.Errorf("%s was made", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r := runIn(t, n.dir, nil, "plan", "--config", n.config, "--depth", "checksum", "--confirm-after", "1s", "--mode", "full", "-o", filepath.Join(n.dir, "plan.json"), "--database", "sqlite:"+filepath.Join(n.dir, "ledger.db")).exit(3)
	data, err := os.ReadFile(filepath.Join(n.dir, "plan.json"))
	var plan struct {
		Actions []any `json:"actions"`
	}
	if err != nil || json.Unmarshal(data, &plan) != nil || len(plan.Actions) > 0 {
		t.Errorf("plan %v: %s\n%s", err, data, r.stdout)
	}
}
