package harper

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/harperfake"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// pair is two nodes with the same records, the second the first's peer.
func pair(t *testing.T, o harperfake.Options, keys ...string) (a, b *harperfake.Server) {
	t.Helper()
	a = start(t, o)
	o.HealAfter = 0
	b = start(t, o)
	for i, key := range keys {
		for _, s := range []*harperfake.Server{a, b} {
			data := content(key, 9000)
			s.PutVersion("Doc", key, map[string]any{"size": 9000, "sha256": sumOf(data)}, "body", data, 1e12+float64(i))
		}
	}
	a.Peer(b)
	return a, b
}

func operations(s *harperfake.Server, name string) int {
	n := 0
	for _, r := range s.Requests() {
		if r.Operation == name {
			n++
		}
	}
	return n
}

func TestANodeRepairsItselfAndIsBelievedOnlyWhenRead(t *testing.T) {
	t.Parallel()
	a, b := pair(t, harperfake.Options{HealAfter: 300 * time.Millisecond}, "ok", "gone", "cut", "flipped", "both")
	a.Damage("Doc", "gone", "body", harperfake.Deleted)
	a.Damage("Doc", "cut", "body", harperfake.Truncated)
	a.Damage("Doc", "flipped", "body", harperfake.BitsFlipped)
	a.Damage("Doc", "both", "body", harperfake.Deleted)
	b.Damage("Doc", "both", "body", harperfake.Truncated)
	cfg := configOf(a, b)
	cfg.Repair, cfg.RepairWait = true, 3*time.Second
	c := cluster(t, cfg)
	out := lookAt(t, c)
	got := map[string]Healing{}
	for i, h := range c.Heal(t.Context(), out.Findings) {
		got[strings.TrimPrefix(out.Findings[i].Path, "harper://")] = h
	}
	for key, want := range map[string]HealState{"a/Doc/gone.body": Healed, "a/Doc/cut.body": Healed, "a/Doc/flipped.body": HealRefused, "a/Doc/both.body": NotHealed, "b/Doc/both.body": NotHealed} {
		h := got[key]
		if h.State != want || (want == Healed) != (h.Err == nil) || want == Healed && (h.Bytes != 9000 || h.Proof != "checksum sha256") {
			t.Errorf("%s: %s, want %s: %+v", key, h.State, want, h)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d outcomes", len(got))
	}
	if n := operations(a, "repair_blob_data"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	noForbidden(t, a, b)
	if again := words(lookAt(t, c)); again["a/Doc/gone"] != "" {
		t.Errorf("afterwards: %v", again)
	}
}

func TestAnAnswerIsNoEffect(t *testing.T) {
	t.Parallel()
	a, b := pair(t, harperfake.Options{NeverHeals: true}, "ok", "gone")
	a.Damage("Doc", "gone", "body", harperfake.Deleted)
	cfg := configOf(a, b)
	cfg.Repair, cfg.RepairWait = true, 200*time.Millisecond
	c := cluster(t, cfg)
	out := lookAt(t, c)
	for _, h := range c.Heal(t.Context(), out.Findings) {
		if h.State != NotHealed || h.Err == nil {
			t.Errorf("%+v", h)
		}
	}
}

func TestNothingIsAskedForWhere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*Config, *harperfake.Server)
		o      harperfake.Options
		want   string
		state  HealState
		sent   int
	}{
		{"repair is off", func(c *Config, _ *harperfake.Server) { c.Repair = false }, harperfake.Options{}, ErrRepairOff.Error(), HealRefused, 0},
		{"nodes were filled separately", func(c *Config, _ *harperfake.Server) { c.Relation = Independent }, harperfake.Options{}, "filled separately", HealRefused, 0},
		{"there is no operations port", func(c *Config, _ *harperfake.Server) { c.Nodes[0].OperationsURL = "" }, harperfake.Options{}, "no operations_url", HealRefused, 0},
		{"the node knows no repair", func(*Config, *harperfake.Server) {}, harperfake.Options{CoreOnly: true}, "HTTP 400", HealRefused, 1},
		{"the node is ill", func(_ *Config, s *harperfake.Server) { s.Hang(true) }, harperfake.Options{}, "does not serve", HealRefused, 0},
		{"the role may only read", func(c *Config, _ *harperfake.Server) { c.Nodes[0].Authorization = basic("reader", "r") }, harperfake.Options{User: "u", Password: "p", Reader: "reader", ReaderPassword: "r"}, "HTTP 403", HealRefused, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := start(t, tt.o)
			put(a, "ok", 9000)
			put(a, "gone", 9000)
			a.Damage("Doc", "gone", "body", harperfake.Deleted)
			cfg := configOf(a)
			cfg.Repair, cfg.RepairWait = true, 200*time.Millisecond
			cfg.Nodes[0].Control = Control{Path: "Doc", Key: "ok", Attribute: "body"}
			tt.change(&cfg, a)
			c := cluster(t, cfg)
			f := reconcile.Finding{FindingID: "f", Verdict: reconcile.Unreadable, Ref: reconcile.Reference{Location: locate(t, c, "a", "gone"), Size: 9000}}
			h := c.Heal(t.Context(), []reconcile.Finding{f})[0]
			if h.State != tt.state || h.Err == nil || !strings.Contains(h.Err.Error(), tt.want) {
				t.Errorf("%s: %v", h.State, h.Err)
			}
			if n := operations(a, "repair_blob_data"); n != tt.sent {
				t.Errorf("%d operations, want %d", n, tt.sent)
			}
		})
	}
}

func TestAContextThatEndedBeginsNoRepair(t *testing.T) {
	t.Parallel()
	a, b := pair(t, harperfake.Options{}, "ok", "gone")
	a.Damage("Doc", "gone", "body", harperfake.Deleted)
	cfg := configOf(a, b)
	cfg.Repair = true
	c := cluster(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := reconcile.Finding{Verdict: reconcile.Unreadable, Ref: reconcile.Reference{Location: locate(t, c, "a", "gone")}}
	if h := c.Heal(ctx, []reconcile.Finding{f})[0]; h.State != HealRefused || !errors.Is(h.Err, context.Canceled) {
		t.Errorf("%+v", h)
	}
	if n := operations(a, "repair_blob_data"); n != 0 {
		t.Errorf("%d operations", n)
	}
}

func TestARecordWrittenMeanwhileIsNotCalledHealed(t *testing.T) {
	t.Parallel()
	a, b := pair(t, harperfake.Options{HealAfter: 50 * time.Millisecond}, "ok", "gone")
	a.Damage("Doc", "gone", "body", harperfake.Deleted)
	cfg := configOf(a, b)
	cfg.Repair, cfg.RepairWait = true, time.Second
	c := cluster(t, cfg)
	out := lookAt(t, c)
	put(a, "gone", 9000)
	if h := c.Heal(t.Context(), out.Findings); len(h) != 1 || h[0].State != HealSuperseded {
		t.Errorf("%+v", h)
	}
}

func TestPeersAnswerOnlyForWhatTheyReadWhole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dialect harperfake.Dialect
		damage  harperfake.Damage
		want    string
	}{
		{harperfake.Old, harperfake.None, "has"}, {harperfake.New, harperfake.None, "has"},
		{harperfake.Old, harperfake.Deleted, "no answer"}, {harperfake.New, harperfake.Deleted, "no"},
		{harperfake.Old, harperfake.Truncated, "no answer"}, {harperfake.New, harperfake.Truncated, "no answer"},
		{harperfake.Old, harperfake.BitsFlipped, "no answer"}, {harperfake.New, harperfake.BitsFlipped, "no answer"},
		{harperfake.New, harperfake.Writing, "no answer"}, {harperfake.New, harperfake.LateFailure, "no answer"},
	} {
		a, b := pair(t, harperfake.Options{Dialect: tt.dialect}, "ok", "asked")
		b.Damage("Doc", "asked", "body", tt.damage)
		cfg := configOf(a, b)
		cfg.Nodes[0].Role = Check
		c := cluster(t, cfg)
		peers := c.Peers()
		if len(peers) != 1 || peers[0].Name() != "harper://b" {
			t.Fatalf("peers %v", peers)
		}
		ref := reconcile.Reference{Location: locate(t, c, "a", "asked"), Size: 9000, Checksum: "sha256:" + sumOf(content("asked", 9000))}
		at, err := peers[0].Ask(t.Context(), ref)
		got := "no answer"
		switch {
		case err == nil && at.Size == 9000:
			got = "has"
		case errors.Is(err, objstore.ErrNotExist):
			got = "no"
		}
		if got != tt.want {
			t.Errorf("dialect %d, %s: %s (%v), want %s", tt.dialect, tt.damage, got, err, tt.want)
		}
		if tt.damage == harperfake.None {
			body, _, err := peers[0].Fetch(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if data, err := io.ReadAll(body); err != nil || "sha256:"+sumOf(data) != ref.Checksum {
				t.Errorf("fetched %d bytes, %v", len(data), err)
			}
			body.Close()
		}
		ref.Location = locate(t, c, "b", "asked")
		if _, err := peers[0].Ask(t.Context(), ref); !errors.Is(err, reconcile.ErrNotBelow) {
			t.Errorf("its own blob: %v", err)
		}
		ref.Location = objstore.Location{Scheme: "s3", Bucket: "b", Key: "Doc/asked.body"}
		if _, _, err := peers[0].Fetch(t.Context(), ref); !errors.Is(err, reconcile.ErrNotBelow) {
			t.Errorf("another store's object: %v", err)
		}
	}
}

// A node that says no to everything says nothing.
func TestANoWithoutAControlIsNoAnswer(t *testing.T) {
	t.Parallel()
	a, b := pair(t, harperfake.Options{Dialect: harperfake.New}, "ok", "asked")
	cfg := configOf(a, b)
	cfg.Nodes[0].Role = Check
	cfg.Nodes[1].Control = Control{Path: "Doc", Key: "ok", Attribute: "body"}
	c := cluster(t, cfg)
	b.Fail(404)
	_, err := c.Peers()[0].Ask(t.Context(), reconcile.Reference{Location: locate(t, c, "a", "asked"), Size: 9000})
	if err == nil || errors.Is(err, objstore.ErrNotExist) || !errors.Is(err, ErrNodeUnhealthy) {
		t.Error(err)
	}
}
