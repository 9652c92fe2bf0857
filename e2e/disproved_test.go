package e2e

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rocketkeep/reconcile/internal/servertest"
)

// spoilt is a data file that is as long as it was and ends in no footer.
func spoilt(b []byte) []byte {
	b = bytes.Clone(b)
	for i := len(b) - 40; i < len(b); i++ {
		b[i] ^= 0x5a
	}
	return b
}

// refusedOnce makes a dataset with a lost data file whose only peer holds a spoilt copy,
// and holds the first pass to refusing that and dropping nothing.
func refusedOnce(t *testing.T, spoil func([]byte) []byte) *ladder {
	t.Helper()
	s := servertest.S3(t)
	l := newLadder(t, s, "s3://"+s.Bucket+"/p1")
	s.Put(t, "p1/t.lance/"+l.lost, spoil(l.read(l.lost)))
	l.remove("r/t.lance/" + l.lost)
	d := l.run().exit(3).pass()
	if len(d.Findings) != 1 || d.Findings[0].Verdict != "missing" || d.Findings[0].ProposedAction != "refetch" || dropped(d) {
		t.Fatalf("the first pass: %+v, repairs %v", d.Findings, d.Repairs)
	}
	return l
}

func dropped(d document) bool {
	return d.Totals["rows_dropped"].(float64) != 0 || slices.ContainsFunc(d.Repairs, func(r map[string]any) bool { return strings.HasPrefix(r["action"].(string), "drop") })
}

// A copy that failed its proof twice is none: the next pass, which finds the same copy,
// drops the fragment, and only it.
func TestAFileWhoseOnlyCopyIsSpoiltIsDroppedByTheNextPass(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func([]byte) []byte{"a flipped footer": spoilt, "half of it": func(b []byte) []byte { return b[:len(b)/2] }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := refusedOnce(t, spoil)
			d := l.run("--mode", "restore").exit(3).pass()
			if len(d.Findings) != 1 || d.Findings[0].Verdict != "lost" || len(d.Repairs) != 0 {
				t.Errorf("mode restore: %v %v", d.brief(), d.Repairs)
			}
			r := l.run("--log-level", "info").exit(0)
			d = r.pass()
			if len(d.Findings) != 1 || d.Findings[0].Verdict != "lost" || len(d.Findings[0].PeersAsked) != 1 || !strings.HasSuffix(d.Findings[0].PeersAsked[0], "/p1") {
				t.Errorf("findings %+v", d.Findings)
			}
			if len(d.Repairs) != 1 || d.Repairs[0]["action"] != "drop_fragment" || d.Repairs[0]["state"] != "applied" {
				t.Errorf("repairs %v", d.Repairs)
			}
			if !strings.Contains(r.stderr, "counts as having none") || !strings.Contains(r.stderr, l.lost) {
				t.Errorf("the log does not name the copy\n%s", r.stderr)
			}
			if d = l.run().exit(0).pass(); len(d.Findings)+len(d.Repairs) != 0 {
				t.Errorf("the third pass: %v %v", d.brief(), d.Repairs)
			}
		})
	}
}

// What replaces the spoilt copy is asked for anew, good or bad.
func TestACopyThatReplacesASpoiltOneIsTried(t *testing.T) {
	t.Parallel()
	l := refusedOnce(t, spoilt)
	key := "p1/t.lance/" + l.lost
	l.s.Put(t, key, spoilt(spoilt(l.read(l.lost))[1:]))
	if d := l.run().exit(3).pass(); dropped(d) {
		t.Fatalf("another spoilt copy: repairs %v", d.Repairs)
	}
	l.s.Put(t, key, l.read(l.lost))
	l.healed(l.run().exit(0).pass(), "refetch", "/p1")
}

// A drop still waits its time, and a repair that names the table needs not.
func TestASpoiltCopyShortensNoWait(t *testing.T) {
	long(t)
	t.Parallel()
	l := refusedOnce(t, spoilt)
	text, err := os.ReadFile(l.config)
	if err != nil {
		t.Fatal(err)
	}
	waits := strings.Replace(string(text), "drop_after: 0s", "drop_after: 1h", 1)
	if err := os.WriteFile(l.config, []byte(waits), 0o600); err != nil || waits == string(text) {
		t.Fatalf("the configuration is as it was, %v", err)
	}
	d := l.run().pass()
	if dropped(d) || len(d.Findings) != 1 || d.Findings[0].Verdict != "lost" || !slices.Contains(d.Findings[0].BlockedBy, "drop_after") {
		t.Errorf("%+v, repairs %v", d.Findings, d.Repairs)
	}
	r := runIn(t, l.dir, l.s.Env(), "repair", "s3://"+l.s.Bucket+"/r/t.lance", "--config", l.config, "--output", "json").exit(0)
	if d := r.pass(); len(d.Repairs) != 1 || d.Repairs[0]["action"] != "drop_fragment" {
		t.Errorf("by name: %v %v", d.brief(), d.Repairs)
	}
}

// A web server lets no rows be dropped by what it holds either.
func TestASpoiltCopyOfAWebServerDropsNothing(t *testing.T) {
	t.Parallel()
	var body []byte
	var fetched atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		w.Header().Set("ETag", `"e1"`)
		_, _ = w.Write(body) // a client that went away is no matter
	}))
	defer web.Close()
	l := newLadder(t, servertest.S3(t), "{url: \""+web.URL+"/{key}\"}")
	body = spoilt(l.read(l.lost))
	l.remove("r/t.lance/" + l.lost)
	for range 2 {
		d := l.run().exit(3).pass()
		if len(d.Findings) != 1 || d.Findings[0].Verdict != "missing" || dropped(d) {
			t.Errorf("%+v, repairs %v", d.Findings, d.Repairs)
		}
	}
	if fetched.Load() < 4 {
		t.Errorf("the server was asked %d times", fetched.Load())
	}
}
