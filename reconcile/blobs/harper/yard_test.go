package harper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/harperfake"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// Timers of the tests: far above what an answer takes on a busy machine, far below what a
// test may.
var testTimers = Timers{Connect: 2 * time.Second, FirstByte: 1500 * time.Millisecond, Stall: 1500 * time.Millisecond, Total: 30 * time.Second}

const cutAfter = 5 * time.Second // the servers', above Stall as in the field

func content(key string, n int) []byte {
	// Not compressible to nothing, and other bytes for each key.
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", key, i))
		b.WriteString(hex.EncodeToString(sum[:]))
	}
	return b.Bytes()[:n]
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// put stores a record with its size and digest, and returns the blob.
func put(s *harperfake.Server, key string, n int) []byte {
	data := content(key, n)
	s.Put("Doc", key, map[string]any{"size": n, "sha256": sumOf(data)}, "body", data)
	return data
}

// start is a node with the table Doc.
func start(t *testing.T, o harperfake.Options) *harperfake.Server {
	t.Helper()
	if o.CutAfter == 0 {
		o.CutAfter = cutAfter
	}
	s := harperfake.Start(t, o)
	s.Table("data", "Doc", "id")
	return s
}

// configOf is a collection over nodes named a, b, c…
func configOf(nodes ...*harperfake.Server) Config {
	c := Config{Name: "docs", Timers: testTimers, RepairWait: 10 * time.Second,
		Sets: []Set{{Database: "data", Table: "Doc", Attributes: []string{"body"}, Size: "size", Digest: "sha256"}}}
	for i, s := range nodes {
		c.Nodes = append(c.Nodes, Node{Name: string(rune('a' + i)), URL: s.URL, OperationsURL: s.OperationsURL, Concurrency: 64, RequestsPerSecond: -1})
	}
	return c
}

func cluster(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func locate(t *testing.T, c *Cluster, node, key string) objstore.Location {
	t.Helper()
	loc, err := c.Locate("harper://" + node + "/Doc/" + EncodeKey(key) + ".body")
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func store(t *testing.T, c *Cluster) objstore.Reader {
	t.Helper()
	r, err := c.Reader(t.Context(), c.Root())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// said is the verdict of an answer of the store, as the engine takes it.
func said(err error) string {
	var j *reconcile.Judged
	switch {
	case err == nil:
		return "present"
	case errors.As(err, &j):
		return j.Verdict.String() + " " + j.Reason
	case errors.Is(err, objstore.ErrNotExist):
		return "missing"
	case errors.Is(err, objstore.ErrDenied):
		return "denied"
	}
	return err.Error()
}

type handClock struct{}

func (handClock) Now() time.Time                                   { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
func (handClock) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// lookAt is a whole pass over a collection, by the engine.
func lookAt(t *testing.T, c *Cluster) *pass.Outcome {
	t.Helper()
	target := blobs.Target(c.cfg.Name, c.Root())
	out, err := pass.Look(t.Context(), []reconcile.Target{target}, pass.Options{
		Open: func(tg reconcile.Target) reconcile.Source {
			return blobs.New(tg, blobs.Options{Root: c.Root(), Allow: c.Allow(), Records: c.Records(), Stores: c, Sample: 1, Logger: slog.New(slog.DiscardHandler)})
		},
		Stores: c, ConfirmAfter: time.Minute, TargetTimeout: time.Minute, Concurrency: 64, Clock: handClock{}, Logger: slog.New(slog.DiscardHandler),
		Peers:  func(reconcile.Target) []reconcile.Peer { return c.Peers() },
		Policy: reconcile.Policy{Limits: reconcile.DefaultLimits()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// words are the findings of a pass: verdict and reason by node and key.
func words(out *pass.Outcome) map[string]string {
	m := map[string]string{}
	for _, f := range out.Findings {
		reason := ""
		if f.Reason != nil {
			reason = " " + *f.Reason
		}
		m[strings.TrimSuffix(strings.TrimPrefix(f.Path, "harper://"), ".body")] = f.Verdict.String() + reason
	}
	return m
}

// noForbidden fails when a request was sent that must not be.
func noForbidden(t *testing.T, servers ...*harperfake.Server) {
	t.Helper()
	for _, s := range servers {
		for _, r := range s.Requests() {
			if r.Operation == "" && r.Method != "GET" {
				t.Errorf("%s %s was sent to a REST port", r.Method, r.Path)
			}
			for _, h := range []string{"If-None-Match", "If-Match", "If-Modified-Since", "Range"} {
				if r.Header.Get(h) != "" {
					t.Errorf("%s carried %s", r.Path, h)
				}
			}
		}
	}
}
