package harper

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/harperfake"
	"github.com/rocketkeep/reconcile/reconcile"
)

// One record for each kind of damage, among healthy ones, and what a pass says of it.
func TestEveryKindOfDamageHasItsVerdict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		dialect harperfake.Dialect
		digest  bool // records hold size and digest
		want    map[harperfake.Damage]string
	}{
		{"an old node, with sizes and digests", harperfake.Old, true, map[harperfake.Damage]string{
			harperfake.Deleted:       "unreadable no_response",
			harperfake.Truncated:     "unreadable incomplete",
			harperfake.Emptied:       "unreadable no_response",
			harperfake.BitsFlipped:   "checksum_mismatch",
			harperfake.Shorter:       "size_mismatch", // the second read ends cleanly
			harperfake.SentinelShort: "pending in_flight",
			harperfake.SentinelEmpty: "unreadable no_response",
			harperfake.ErrorStub:     "unreadable no_response",
			harperfake.PendingStub:   "size_mismatch",
			harperfake.Compressed:    "undecided compressed_unsupported",
			harperfake.LateFailure:   "unreadable incomplete",
			harperfake.NullAttribute: "superseded",
		}},
		{"an old node, with nothing recorded", harperfake.Old, false, map[harperfake.Damage]string{
			harperfake.Deleted:       "unreadable no_response",
			harperfake.Truncated:     "unreadable incomplete",
			harperfake.Emptied:       "unreadable no_response",
			harperfake.Shorter:       "unreadable length_changed",
			harperfake.SentinelShort: "pending in_flight",
			harperfake.SentinelEmpty: "unreadable no_response",
			harperfake.ErrorStub:     "unreadable no_response",
			harperfake.PendingStub:   "unreadable length_changed",
			harperfake.Compressed:    "undecided compressed_unsupported",
			harperfake.Writing:       "pending in_flight",
			harperfake.LateFailure:   "unreadable incomplete",
			harperfake.NullAttribute: "superseded",
		}},
		{"a new node, with sizes and digests", harperfake.New, true, map[harperfake.Damage]string{
			harperfake.Deleted:       "missing",
			harperfake.Truncated:     "unreadable node_reports_damage",
			harperfake.Emptied:       "unreadable node_reports_damage",
			harperfake.BitsFlipped:   "checksum_mismatch",
			harperfake.Shorter:       "unreadable node_reports_damage",
			harperfake.SentinelShort: "unreadable node_reports_damage",
			harperfake.SentinelEmpty: "unreadable node_reports_damage",
			harperfake.ErrorStub:     "unreadable node_reports_damage",
			harperfake.ExtraByte:     "unreadable node_reports_damage",
			harperfake.UnknownType:   "unreadable node_reports_damage",
			harperfake.PendingStub:   "pending in_flight",
			harperfake.Writing:       "pending in_flight",
			harperfake.LateFailure:   "unreadable incomplete",
			harperfake.NullAttribute: "superseded",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, harperfake.Options{Dialect: tt.dialect})
			want := map[string]string{}
			for _, d := range harperfake.Damages() {
				key := strings.ReplaceAll(d.String(), " ", ".") // dots: a key may hold them
				put(s, key, 50000)
				s.Damage("Doc", key, "body", d)
				if w := tt.want[d]; w != "" {
					want["a/Doc/"+EncodeKey(key)] = w
				}
			}
			cfg := configOf(s)
			if !tt.digest {
				cfg.Sets[0].Size, cfg.Sets[0].Digest = "", ""
			}
			began := time.Now()
			out := lookAt(t, cluster(t, cfg))
			got := words(out)
			for k, v := range got { // the digest that was read is in the reason
				if strings.HasPrefix(v, "checksum_mismatch ") {
					got[k] = "checksum_mismatch"
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
			noForbidden(t, s)
			for _, f := range out.Findings {
				if f.Reason != nil && strings.Contains(*f.Reason, "/srv/") {
					t.Errorf("a path of the node's disk: %s", *f.Reason)
				}
			}
		})
	}
}

// On an old node a read of a blob that is too short changes what the node says of it.
func TestADamagedBlobIsReadOnceALook(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	put(s, "good", 20000)
	put(s, "bad", 20000)
	s.Damage("Doc", "bad", "body", harperfake.Truncated)
	lookAt(t, cluster(t, configOf(s)))
	n := 0
	for _, r := range s.Requests() {
		if r.Path == "/Doc/bad.body" {
			n++
		}
	}
	if n != 2 { // two looks; the node itself is no peer of its own blobs
		t.Errorf("read %d times, want 2", n)
	}
}

func TestALostBlobOfNewNodesIsLostWhenEveryNodeSaysNo(t *testing.T) {
	t.Parallel()
	var nodes []*harperfake.Server
	for range 3 {
		s := start(t, harperfake.Options{Dialect: harperfake.New})
		for i, key := range []string{"g1", "gone", "g2", "here"} {
			data := content(key, 9000)
			s.PutVersion("Doc", key, map[string]any{"size": 9000, "sha256": sumOf(data)}, "body", data, 1e12+float64(i))
		}
		s.Damage("Doc", "gone", "body", harperfake.Deleted)
		nodes = append(nodes, s)
	}
	nodes[0].Damage("Doc", "here", "body", harperfake.Deleted)
	out := lookAt(t, cluster(t, configOf(nodes...)))
	want := map[string]string{"a/Doc/gone": "lost", "b/Doc/gone": "lost", "c/Doc/gone": "lost", "a/Doc/here": "missing"}
	if d := cmp.Diff(want, words(out)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, f := range out.Findings {
		switch {
		case f.Verdict == reconcile.Lost && len(f.PeersAsked) != 2:
			t.Errorf("%s: asked %q", f.Path, f.PeersAsked)
		case f.Verdict == reconcile.Missing && len(f.PeersHaving) != 2:
			t.Errorf("%s: held by %q", f.Path, f.PeersHaving)
		}
	}
}
