package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/rocketkeep/reconcile/internal/servertest"
)

// blob is one referenced object.
type blob struct {
	key  string
	data []byte
}

func (b blob) sum() string {
	h := sha256.Sum256(b.data)
	return "sha256:" + hex.EncodeToString(h[:])
}

// collection is a blob collection in a bucket with its references in a CSV file.
type collection struct {
	t      *testing.T
	s      *servertest.Server
	dir    string
	config string
	blobs  []blob
}

// newCollection makes n blobs and their references; none is stored yet. peers and more
// go into the configuration.
func newCollection(t *testing.T, n int, peers string, more string) *collection {
	t.Helper()
	c := &collection{t: t, s: servertest.S3(t), dir: t.TempDir()}
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range n {
		data := make([]byte, 200+i)
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		c.blobs = append(c.blobs, blob{fmt.Sprintf("a b/%d%%/ü+%d.bin", i%3, i), data})
	}
	c.references(func(b blob) string { return b.sum() })
	c.config = filepath.Join(c.dir, "reconcile.yaml")
	text := fmt.Sprintf(`database: %q
work: {dir: %q}
blobs:
  - name: att
    uri: "s3://%s/att"
    references: {csv: {uri: %q, key: key, size: size, checksum: checksum, record: record}}
    peers: %s
verify: {confirm_after: 1s, pending_max_age: 0s}
repair: {mode: restore}
%s`, "sqlite:"+filepath.Join(c.dir, "ledger.db"), filepath.Join(c.dir, "work"), c.s.Bucket, filepath.Join(c.dir, "refs.csv"), strings.ReplaceAll(peers, "BUCKET", c.s.Bucket), more)
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// references writes the CSV file anew.
func (c *collection) references(checksum func(blob) string) {
	c.t.Helper()
	var out strings.Builder
	out.WriteString("key,size,checksum,record\n")
	for i, b := range c.blobs {
		fmt.Fprintf(&out, "%s,%d,%s,r%d\n", b.key, len(b.data), checksum(b), i)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "refs.csv"), []byte(out.String()), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *collection) run(args ...string) result {
	c.t.Helper()
	return runIn(c.t, c.dir, c.s.Env(), append([]string{"run", "--config", c.config, "--output", "json", "--request-timeout", "2s"}, args...)...)
}

// stored is what lies under a key now; nil when nothing does.
func (c *collection) stored(b blob) []byte {
	c.t.Helper()
	out, err := c.s.Client().GetObject(c.t.Context(), &s3.GetObjectInput{Bucket: &c.s.Bucket, Key: aws.String("att/" + b.key)})
	var none *types.NoSuchKey
	if errors.As(err, &none) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(out.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}

// 344 of 345 blobs are gone: 300 are on peer A, 20 more on peer B, 24 nowhere.
func TestLostBlobsComeBackFromPeers(t *testing.T) {
	long(t)
	t.Parallel()
	c := newCollection(t, 345, `["s3://BUCKET/A", {uri: "s3://BUCKET/B"}]`, "")
	for i, b := range c.blobs {
		switch {
		case i == 0:
			c.s.Put(t, "att/"+b.key, b.data)
		case i <= 300:
			c.s.Put(t, "A/"+b.key, b.data)
		case i <= 320:
			c.s.Put(t, "B/"+b.key, b.data)
		}
	}
	c.s.Put(t, "A/x", []byte("x")) // both peers are there
	c.s.Put(t, "B/x", []byte("x"))
	d := c.run().exit(3).pass()
	applied, lost := 0, 0
	for _, r := range d.Repairs {
		if r["state"] == "applied" && r["action"] == "refetch" && r["proof"] == "checksum sha256" {
			applied++
		}
	}
	for _, f := range d.Findings {
		if f.Verdict == "lost" {
			if lost++; len(f.PeersAsked) != 2 {
				t.Errorf("%s: asked %v", f.Path, f.PeersAsked)
			}
		}
	}
	if applied != 320 || lost != 24 {
		t.Errorf("%d brought back, %d lost", applied, lost)
	}
	for i, b := range c.blobs {
		if got := c.stored(b); i <= 320 && !bytes.Equal(got, b.data) || i > 320 && got != nil {
			t.Fatalf("%s holds %d bytes", b.key, len(got))
		}
	}
	// A second pass at once asks no peer for the 24.
	c.s.ClearLog()
	d = c.run().exit(3).pass()
	for _, r := range c.s.Requests() {
		if !strings.HasPrefix(r.Key, "att/") && r.Key != "" && r.Key != "att" {
			t.Fatalf("a peer was asked: %s", r)
		}
	}
	if len(d.Findings) != 24 || len(d.Repairs) != 0 {
		t.Errorf("second pass: %d findings, %d repairs", len(d.Findings), len(d.Repairs))
	}
	// What is acknowledged leaves the exit code.
	for _, f := range d.Findings {
		runIn(t, c.dir, nil, "ack", f.FindingID, "--until", "2099-01-01", "--reason", "lost for good", "--config", c.config).exit(0)
	}
	if d = c.run().exit(0).pass(); len(d.Findings) != 24 {
		t.Errorf("after ack: %d findings", len(d.Findings))
	}
}

// Whatever a web server answers that is no copy, nothing is written, the reason is
// recorded, and the pass goes on to what it can have.
func TestAPeerThatMisbehavesGivesNothing(t *testing.T) {
	long(t)
	t.Parallel()
	for name, manner := range map[string]servertest.Manner{
		"closes half way": servertest.ClosesHalfWay, "stalls": servertest.Stalls, "answers 200 with an error page": servertest.ErrorPage,
		"answers 200 with an error text": servertest.ErrorText, "redirects": servertest.Redirects, "gzips": servertest.Gzips, "gzips silently": servertest.GzipsSilently,
		"promises more": servertest.PromisesMore, "promises less": servertest.PromisesLess, "denies": servertest.Denies, "fails": servertest.Fails,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := servertest.Web(t)
			c := newCollection(t, 3, fmt.Sprintf(`[{url: %q, headers: {Authorization: "${TOKEN}"}}]`, web.Template()), "")
			c.s.Put(t, "att/"+c.blobs[0].key, c.blobs[0].data)
			web.Put(c.blobs[1].key, c.blobs[1].data, manner)
			web.Put(c.blobs[2].key, c.blobs[2].data, servertest.Honest)
			r := runIn(t, c.dir, append(c.s.Env(), "TOKEN=Bearer s3cret-token"), "run", "--config", c.config, "--output", "json", "--request-timeout", "2s")
			d := r.exit(3).pass()
			if strings.Contains(r.stdout+r.stderr, "s3cret") {
				t.Error("the token is shown")
			}
			if got := c.stored(c.blobs[1]); got != nil {
				t.Errorf("%d bytes were written", len(got))
			}
			if !bytes.Equal(c.stored(c.blobs[2]), c.blobs[2].data) {
				t.Error("what the peer serves well is not back")
			}
			told := slices.ContainsFunc(d.Findings, func(f finding) bool {
				return f.Path == c.blobs[1].key && slices.ContainsFunc(f.BlockedBy, func(b string) bool { return strings.HasPrefix(b, "rung_open:") })
			})
			for _, rep := range d.Repairs {
				if rep["state"] != "applied" {
					told = told || rep["error"] != nil
				}
			}
			if !told {
				t.Errorf("no reason: %v %v", d.brief(), d.Repairs)
			}
		})
	}
}

// A wrong recorded checksum over a good object: nothing proves other bytes, and the
// object stays.
func TestAWrongChecksumOverAGoodObjectChangesNothing(t *testing.T) {
	t.Parallel()
	for _, peers := range []string{"[]", `["s3://BUCKET/A"]`} {
		t.Run(peers, func(t *testing.T) {
			t.Parallel()
			c := newCollection(t, 3, peers, "")
			for _, b := range c.blobs {
				c.s.Put(t, "att/"+b.key, b.data)
				c.s.Put(t, "A/"+b.key, b.data)
			}
			wrong := c.blobs[1]
			c.references(func(b blob) string {
				if b.key == wrong.key {
					return blob{data: []byte("other")}.sum()
				}
				return b.sum()
			})
			c.s.ClearLog()
			d := c.run("--depth", "checksum").pass()
			if len(d.Findings) != 1 || d.Findings[0].Verdict != "checksum_mismatch" || !slices.Contains(d.Findings[0].BlockedBy, "replace_unproven") {
				t.Errorf("findings %+v", d.Findings)
			}
			for _, w := range c.s.Writes() {
				if strings.HasPrefix(w.Key, "att/") && !strings.Contains(w.Key, "reconcile-probe") {
					t.Errorf("written: %s", w)
				}
			}
			if !bytes.Equal(c.stored(wrong), wrong.data) {
				t.Error("the object changed")
			}
		})
	}
}

// References that cannot be read say nothing of any blob: the look is incomplete, and
// what was found before stays open.
func TestReferencesThatAreGoneLeaveEverythingOpen(t *testing.T) {
	t.Parallel()
	c := newCollection(t, 3, "[]", "")
	c.s.Put(t, "att/"+c.blobs[0].key, c.blobs[0].data)
	if d := c.run().exit(3).pass(); len(d.Findings) != 2 {
		t.Fatalf("findings %v", d.brief())
	}
	if err := os.Remove(filepath.Join(c.dir, "refs.csv")); err != nil {
		t.Fatal(err)
	}
	d := c.run().exit(4).pass()
	if len(d.Targets) != 1 || d.Targets[0].State != "incomplete" || d.Totals["findings_carried"].(float64) != 2 {
		t.Errorf("targets %+v, carried %v", d.Targets, d.Totals["findings_carried"])
	}
}

// Rows that contradict each other leave their blob damaged: nobody knows which record
// is right, and nothing is brought back.
func TestRecordsThatContradictEachOtherAreNoProof(t *testing.T) {
	t.Parallel()
	c := newCollection(t, 2, `["s3://BUCKET/A"]`, "")
	c.s.Put(t, "att/"+c.blobs[0].key, c.blobs[0].data)
	c.s.Put(t, "A/"+c.blobs[1].key, c.blobs[1].data)
	c.blobs = append(c.blobs, blob{c.blobs[1].key, []byte("something else")})
	c.references(func(b blob) string { return b.sum() })
	r := c.run()
	d := r.pass()
	if len(d.Findings) != 1 || d.Findings[0].Verdict != "missing" || !slices.Contains(d.Findings[0].BlockedBy, "replace_unproven") || len(d.Repairs) != 0 || r.code == 0 {
		t.Errorf("exit %d, findings %+v, repairs %v", r.code, d.Findings, d.Repairs)
	}
}
