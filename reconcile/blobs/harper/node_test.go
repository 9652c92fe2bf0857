package harper

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/harperfake"
	"github.com/rocketkeep/reconcile/internal/objstore"
)

func TestAHungNodeTripsItsControlAndNothingIsSaidOfItsBlobs(t *testing.T) {
	t.Parallel()
	for _, dialect := range []harperfake.Dialect{harperfake.Old, harperfake.New} {
		s := start(t, harperfake.Options{Dialect: dialect})
		put(s, "good", 9000)
		put(s, "gone", 9000)
		put(s, "other", 9000)
		s.Damage("Doc", "gone", "body", harperfake.Deleted)
		c := cluster(t, configOf(s))
		r := store(t, c)
		if _, err := r.Stat(t.Context(), locate(t, c, "a", "good")); err != nil {
			t.Fatal(err)
		}
		s.Hang(true)
		before := len(s.Requests())
		for _, key := range []string{"gone", "other", "good"} {
			if _, err := r.Stat(t.Context(), locate(t, c, "a", key)); said(err) != "undecided node_unhealthy" || !errors.Is(err, ErrNodeUnhealthy) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if n := len(s.Requests()) - before; n != 2 { // one blob and one control; then the node is left alone
			t.Errorf("%d requests to a hung node, want 2", n)
		}
		if got := c.Halted(); len(got) != 1 || got[0].Bucket != "a" {
			t.Errorf("halted: %v", got)
		}
	}
}

func TestANodeThatRecoversIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{Dialect: harperfake.New})
	put(s, "good", 9000)
	put(s, "gone", 9000)
	s.Damage("Doc", "gone", "body", harperfake.Deleted)
	cfg := configOf(s)
	cfg.LeaveAlone = 50 * time.Millisecond
	cfg.Nodes[0].Control = Control{Path: "Doc", Key: "good", Attribute: "body"}
	c := cluster(t, cfg)
	r := store(t, c)
	s.Fail(500)
	if _, err := r.Stat(t.Context(), locate(t, c, "a", "gone")); said(err) != "undecided node_unhealthy" {
		t.Errorf("while it fails: %v", err)
	}
	s.Fail(0)
	time.Sleep(100 * time.Millisecond)
	if _, err := r.Stat(t.Context(), locate(t, c, "a", "gone")); said(err) != "missing" {
		t.Errorf("after it recovered: %v", err)
	}
}

// In a whole pass one hung node leaves the others' verdicts as they are.
func TestOneHungNodeDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	a, b := start(t, harperfake.Options{}), start(t, harperfake.Options{})
	for i, key := range []string{"g1", "bad", "g2"} {
		for _, s := range []*harperfake.Server{a, b} {
			data := content(key, 9000)
			s.PutVersion("Doc", key, map[string]any{"size": 9000, "sha256": sumOf(data)}, "body", data, 1e12+float64(i))
		}
	}
	a.Damage("Doc", "bad", "body", harperfake.Deleted)
	b.Hang(true)
	cfg := configOf(a, b)
	cfg.Nodes[1].Control = Control{Path: "Doc", Key: "g1", Attribute: "body"}
	out := lookAt(t, cluster(t, cfg))
	want := map[string]string{"a/Doc/bad": "unreadable no_response",
		"b/Doc/g1": "undecided node_unhealthy", "b/Doc/bad": "undecided node_unhealthy", "b/Doc/g2": "undecided node_unhealthy"}
	if d := cmp.Diff(want, words(out)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestANodeThatIsDownIsUndecided(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	put(s, "good", 9000)
	closed := httptest.NewServer(nil)
	closed.Close()
	cfg := configOf(s)
	cfg.Nodes[0].URL = closed.URL
	cfg.Nodes[0].Control = Control{Path: "Doc", Key: "good", Attribute: "body"}
	c := cluster(t, cfg)
	if _, err := store(t, c).Stat(t.Context(), locate(t, c, "a", "good")); said(err) != "undecided node_unhealthy" {
		t.Error(err)
	}
}

func TestCredentialsThatAreNotEnoughAreDenied(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{User: "admin", Password: "hunter2", Reader: "reader", ReaderPassword: "hunter3", Stranger: "stranger"})
	put(s, "good", 9000)
	for _, tt := range []struct{ authorization, want string }{
		{"", "denied"}, {basic("reader", "wrong"), "denied"}, {basic("stranger", "hunter3"), "denied"}, {basic("reader", "hunter3"), "present"}, {basic("admin", "hunter2"), "present"},
	} {
		cfg := configOf(s)
		cfg.Nodes[0].Authorization = tt.authorization
		c := cluster(t, cfg)
		_, err := store(t, c).Stat(t.Context(), locate(t, c, "a", "good"))
		if said(err) != tt.want {
			t.Errorf("%s: %v", tt.authorization, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("a secret: %v", err)
		}
		for _, err := range c.Records().Records(t.Context(), "") {
			if errors.Is(err, objstore.ErrDenied) != (tt.want == "denied") {
				t.Errorf("enumerating: %v", err)
			}
		}
	}
}

func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

// What stands before a node and answers in its place says nothing of a blob.
func TestAnswersThatNoNodeGivesAreUndecided(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	put(s, "good", 9000)
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   string
	}{
		{"a redirect", func(w http.ResponseWriter) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(302)
		}, "undecided no_answer"},
		{"a page", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<html>Maintenance</html>")
		}, "undecided no_answer"},
		{"compressed bytes", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "\x1f\x8b")
		}, "undecided no_answer"},
		{"slow down", func(w http.ResponseWriter) { w.WriteHeader(429) }, "throttled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.EscapedPath() == "/Doc/asked.body" {
					tt.answer(w)
					return
				}
				resp, err := http.Get(s.URL + r.URL.RequestURI())
				if err != nil {
					w.WriteHeader(502)
					return
				}
				defer resp.Body.Close()
				w.Header().Set("ETag", resp.Header.Get("ETag"))
				w.WriteHeader(resp.StatusCode)
				_, _ = io.Copy(w, resp.Body)
			}))
			t.Cleanup(front.Close)
			cfg := configOf(s)
			cfg.Nodes[0].URL = front.URL
			cfg.Nodes[0].Control = Control{Path: "Doc", Key: "good", Attribute: "body"}
			c := cluster(t, cfg)
			_, err := store(t, c).Stat(t.Context(), locate(t, c, "a", "asked"))
			if got := said(err); got != tt.want && !(tt.want == "throttled" && errors.Is(err, objstore.ErrThrottled)) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestARecordThatIsWrittenBetweenTheLooksVoidsTheFinding(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	put(s, "good", 9000)
	put(s, "bad", 9000)
	s.Damage("Doc", "bad", "body", harperfake.Deleted)
	c := cluster(t, configOf(s))
	r := store(t, c)
	if _, err := r.Stat(t.Context(), locate(t, c, "a", "good")); err != nil {
		t.Fatal(err)
	}
	at := locate(t, c, "a", "bad")
	if _, err := r.Stat(t.Context(), at); said(err) != "unreadable no_response" {
		t.Errorf("first: %v", err)
	}
	s.Touch("Doc", "bad")
	if _, err := r.Restat(t.Context(), at); said(err) != "superseded version_moved" {
		t.Errorf("second: %v", err)
	}
	s.Forget("Doc", "bad")
	if _, err := r.Restat(t.Context(), at); said(err) != "missing" {
		t.Errorf("its record gone: %v", err)
	}
}

func TestDamageThatOnlyTheSecondLookMeetsIsUndecided(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{Dialect: harperfake.New})
	put(s, "good", 9000)
	put(s, "bad", 9000)
	s.Damage("Doc", "bad", "body", harperfake.Deleted)
	c := cluster(t, configOf(s)) // without a control, so that one is searched for
	if _, err := store(t, c).Restat(t.Context(), locate(t, c, "a", "bad")); said(err) != "undecided seen_damaged_once" {
		t.Error(err)
	}
}

// Pending becomes damage by age, as the ledger tells it.
func TestPendingThatDies(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{Dialect: harperfake.New})
	put(s, "good", 9000)
	put(s, "stub", 9000)
	s.Damage("Doc", "stub", "body", harperfake.PendingStub)
	for _, tt := range []struct {
		age  time.Duration
		err  error
		want string
	}{{0, nil, "pending in_flight"}, {29 * time.Minute, nil, "pending in_flight"}, {30 * time.Minute, nil, "unreadable dead_pending"}, {0, errors.New("down"), ""}} {
		cfg := configOf(s)
		cfg.Nodes[0].Control = Control{Path: "Doc", Key: "good", Attribute: "body"}
		cfg.Sighted = func(context.Context, objstore.Location) (time.Duration, error) { return tt.age, tt.err }
		c := cluster(t, cfg)
		if _, err := store(t, c).Stat(t.Context(), locate(t, c, "a", "stub")); tt.want != "" && said(err) != tt.want || tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", tt.age, err)
		}
	}
}

// Without a digest anywhere, only other nodes tell that bits flipped.
func TestNodesAreComparedWhereNoDigestIsRecorded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		nodes    int
		relation Relation
		want     map[string]string
	}{
		{"two against one", 3, Replicated, map[string]string{"b/Doc/k3": "checksum_mismatch outvoted"}},
		{"one against one", 2, Replicated, map[string]string{"a/Doc/k3": "undecided nodes_disagree", "b/Doc/k3": "undecided nodes_disagree"}},
		{"nodes that were filled separately", 3, Independent, map[string]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var nodes []*harperfake.Server
			for range tt.nodes {
				s := start(t, harperfake.Options{})
				for i, key := range []string{"k1", "k2", "k3", "k4"} {
					s.PutVersion("Doc", key, nil, "body", content(key, 9000), 1e12+float64(i))
				}
				nodes = append(nodes, s)
			}
			nodes[1].Damage("Doc", "k3", "body", harperfake.BitsFlipped)
			cfg := configOf(nodes...)
			cfg.Sets[0].Size, cfg.Sets[0].Digest, cfg.Relation = "", "", tt.relation
			for i := range cfg.Nodes {
				cfg.Nodes[i].Control = Control{Path: "Doc", Key: "k4", Attribute: "body"}
			}
			out := lookAt(t, cluster(t, cfg))
			if d := cmp.Diff(tt.want, words(out)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			reads := 0
			for _, r := range nodes[0].Requests() {
				if r.Path == "/Doc/k1.body" {
					reads++
				}
			}
			if reads != 1 { // its own look, and all comparisons with it
				t.Errorf("a whole blob was read %d times", reads)
			}
		})
	}
}

// Nodes that hold different versions of a record may hold different bytes.
func TestVersionsAreComparedWithThemselvesOnly(t *testing.T) {
	t.Parallel()
	var nodes []*harperfake.Server
	for range 3 {
		s := start(t, harperfake.Options{})
		s.PutVersion("Doc", "k1", nil, "body", content("k1", 9000), 1e12)
		nodes = append(nodes, s)
	}
	nodes[1].PutVersion("Doc", "k1", nil, "body", content("newer", 9000), 1e12+1)
	cfg := configOf(nodes...)
	cfg.Sets[0].Size, cfg.Sets[0].Digest = "", ""
	if got := words(lookAt(t, cluster(t, cfg))); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestARecordWithoutABlobNamesNone(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	put(s, "good", 9000)
	put(s, "null", 9000)
	s.Damage("Doc", "null", "body", harperfake.NullAttribute)
	cfg := configOf(s)
	cfg.Nodes[0].Control = Control{Path: "Doc", Key: "good", Attribute: "body"}
	c := cluster(t, cfg)
	if _, err := store(t, c).Stat(t.Context(), locate(t, c, "a", "null")); said(err) != "superseded no_blob" {
		t.Error(err)
	}
}

func TestAContextThatEndsIsNoVerdict(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	put(s, "good", 9000)
	put(s, "bad", 9000)
	s.Damage("Doc", "bad", "body", harperfake.Deleted)
	c := cluster(t, configOf(s))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := store(t, c).Stat(ctx, locate(t, c, "a", "bad")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if got := c.Halted(); len(got) != 0 {
		t.Errorf("halted %v", got)
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	data := put(s, "k", 20000)
	put(s, "short", 20000)
	s.Damage("Doc", "short", "body", harperfake.LateFailure)
	c := cluster(t, configOf(s))
	r := store(t, c)
	for _, tt := range []struct {
		r        objstore.Range
		from, to int
	}{{objstore.Range{}, 0, 20000}, {objstore.Range{Offset: 5, Length: 10}, 5, 15}, {objstore.Range{Offset: -7}, 19993, 20000}, {objstore.Range{Offset: 19990, Length: 100}, 19990, 20000}, {objstore.Range{Offset: 30000}, 0, 0}, {objstore.Range{Offset: 19999}, 19999, 20000}} {
		body, at, err := r.Get(t.Context(), locate(t, c, "a", "k"), tt.r)
		if err != nil {
			t.Errorf("%+v: %v", tt.r, err)
			continue
		}
		got, err := io.ReadAll(body)
		if string(got) != string(data[tt.from:tt.to]) || err != nil || at.Size != 20000 || at.ETag == "" {
			t.Errorf("%+v: %d bytes, %v, %+v", tt.r, len(got), err, at)
		}
		body.Close()
	}
	body, _, err := r.Get(t.Context(), locate(t, c, "a", "short"), objstore.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if n, err := io.Copy(io.Discard, body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body that ends early: %d bytes, %v", n, err)
	}
	if _, _, err := r.Get(t.Context(), locate(t, c, "a", "absent"), objstore.Range{}); err == nil || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("a 404 without a control: %v", err)
	}
}

// Every look is a GET: what the engine asks right after one is answered from it.
func TestAProbeRepeatsTheLastAnswerOnce(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{Dialect: harperfake.New})
	put(s, "good", 9000)
	put(s, "gone", 9000)
	s.Damage("Doc", "gone", "body", harperfake.Deleted)
	c := cluster(t, configOf(s))
	r := store(t, c)
	for _, key := range []string{"good", "gone"} {
		at := locate(t, c, "a", key)
		_, first := r.Stat(t.Context(), at)
		before := len(s.Requests())
		if _, err := r.Probe(t.Context(), at); said(err) != said(first) {
			t.Errorf("%s: %v, and then %v", key, first, err)
		}
		if n := len(s.Requests()) - before; n != 0 {
			t.Errorf("%s: %d requests", key, n)
		}
		if _, err := r.Probe(t.Context(), at); said(err) != said(first) || len(s.Requests()) == before {
			t.Errorf("%s: a second probe asked nothing, or %v", key, err)
		}
	}
}
