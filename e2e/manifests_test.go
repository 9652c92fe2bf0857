package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// traffic is what a server's log holds, by kind; manifests are GETs of some.
type traffic struct{ Head, List, Get, Manifests int }

func measured(s *servertest.Server) (out traffic) {
	for _, r := range s.Requests() {
		switch r.Op {
		case "HEAD":
			out.Head++
		case "LIST":
			out.List++
		case "GET":
			out.Get++
			if strings.HasSuffix(r.Key, ".manifest") {
				out.Manifests++
			}
		}
	}
	s.ClearLog()
	return out
}

// warmed is a server and the environment of passes that share a cache.
func warmed(t *testing.T) (*servertest.Server, []string) {
	s := servertest.S3(t)
	return s, append(s.Env(), "XDG_CACHE_HOME="+t.TempDir())
}

// A fleet that has not changed costs its HEADs and listings and no manifest, and the
// second pass says what the first said.
func TestASecondPassReadsNoManifestAgain(t *testing.T) {
	long(t)
	t.Parallel()
	const tables = 200
	s, env := warmed(t)
	b := fourFragments()
	var wg sync.WaitGroup
	names := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range names {
				var damage []lancetest.Damage
				if i%50 == 7 {
					damage = append(damage, lancetest.Missing(b.DataName(1, 0)))
				}
				put(t, s, fmt.Sprintf("r/t%03d.lance", i), b, damage...)
			}
		})
	}
	for i := range tables {
		names <- i
	}
	close(names)
	wg.Wait()
	s.ClearLog()
	pass := func(env []string) (document, traffic) {
		d := run(t, env, look(s.URI("r"))...).exit(reconcile.ExitDivergence).pass()
		return d, measured(s)
	}
	cold, first := pass(env)
	warm, second := pass(env)
	if first.Manifests != tables || second.Manifests != 0 {
		t.Errorf("manifests read: %d, then %d; want %d, then none", first.Manifests, second.Manifests, tables)
	}
	if got := warm.requests("get"); got != cold.requests("get")-tables || got != second.Get {
		t.Errorf("totals.requests.get: %d, then %d; the server saw %d", cold.requests("get"), got, second.Get)
	}
	if d := cmp.Diff([]any{first.Head, first.List}, []any{second.Head, second.List}); d != "" {
		t.Errorf("HEADs and listings differ:\n%s", d)
	}
	if d := cmp.Diff([]any{cold.brief(), cold.Coverage, cold.Totals["verdicts"]}, []any{warm.brief(), warm.Coverage, warm.Totals["verdicts"]}); d != "" {
		t.Errorf("the passes differ:\n%s", d)
	}
	if len(cold.Findings) != 4 {
		t.Errorf("findings %v", cold.brief())
	}
	// Where nothing may be kept everything is read, the second look's too.
	off := filepath.Join(t.TempDir(), "off.yaml")
	if err := os.WriteFile(off, []byte("work: {max: 0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := pass(append(slices.Clone(env), "RECONCILE_CONFIG="+off)); got.Manifests < tables {
		t.Errorf("work.max 0: %d manifests read, want each of %d", got.Manifests, tables)
	}
}

// requests is one of totals.requests.
func (d document) requests(kind string) int {
	n, _ := d.Totals["requests"].(map[string]any)[kind].(float64)
	return int(n)
}

// HEADs are sent whatever is known of a version: what is lost or cut under a version
// that has not changed is found by the pass after.
func TestAWarmPassFindsWhatChangedUnderTheSameVersion(t *testing.T) {
	t.Parallel()
	s, env := warmed(t)
	b := fourFragments()
	put(t, s, "r/t.lance", b)
	run(t, env, look(s.URI("r"))...).exit(reconcile.ExitClean)
	s.Remove(t, "r/t.lance/"+b.DataName(1, 0))
	s.Put(t, "r/t.lance/"+b.DataName(2, 0), []byte("cut"))
	s.ClearLog()
	d := run(t, env, look(s.URI("r"))...).exit(reconcile.ExitDivergence).pass()
	got := measured(s)
	want := []string{"table:t data missing " + b.DataName(1, 0), "table:t data size_mismatch " + b.DataName(2, 0)}
	slices.Sort(want)
	found := d.brief()
	slices.Sort(found)
	if diff := cmp.Diff(want, found); diff != "" || got.Manifests != 0 {
		t.Errorf("%d manifests read\n%s", got.Manifests, diff)
	}
}

// A listing shows that an object is there, not that the store tells truth about
// absence: the control is asked for by HEAD in this very pass, however well its bytes
// are known. Where it gets no answer nothing is missing.
func TestAWarmPassStillAsksForItsControl(t *testing.T) {
	t.Parallel()
	s, env := warmed(t)
	b := fourFragments()
	put(t, s, "r/t.lance", b)
	run(t, env, look(s.URI("r"))...).exit(reconcile.ExitClean)
	s.ClearLog()
	// Listings go on, and no object is known to HEAD; GET agrees about those referenced.
	gone := servertest.Rule{Op: "GET", Status: 404, Code: "NoSuchKey"}
	data, txn := gone, gone
	data.Key, txn.Key = "/data/", "/_transactions/"
	s.Add(servertest.Rule{Op: "HEAD", Status: 404}, data, txn)
	d := run(t, env, look(s.URI("r"))...).exit(reconcile.ExitIncomplete).pass()
	for _, f := range d.Findings {
		if f.Verdict != "undecided" || text(f.Reason) != reconcile.ReasonControlsFailed {
			t.Errorf("%s is %s, %s", f.Path, f.Verdict, text(f.Reason))
		}
	}
	asked := slices.ContainsFunc(s.Requests(), func(r servertest.Request) bool { return r.Op == "HEAD" && strings.HasSuffix(r.Key, b.ManifestName()) })
	if got := measured(s); !asked || got.Manifests != 0 || len(d.Findings) < 4 {
		t.Errorf("control asked for: %v; %d manifests read, findings %v", asked, got.Manifests, d.brief())
	}
}

// What a commit is made from comes from the store.
func TestAWarmRepairReadsTheManifestBeforeItsCommit(t *testing.T) {
	t.Parallel()
	s, env := warmed(t)
	b := fourFragments()
	put(t, s, "r/t.lance", b, lancetest.Missing(b.DataName(1, 0)))
	run(t, env, look(s.URI("r"))...).exit(reconcile.ExitDivergence)
	s.ClearLog()
	run(t, env, repairNow(s.URI("r/t.lance"))...).exit(reconcile.ExitClean)
	reads := 0
	for _, r := range s.Requests() {
		if strings.HasSuffix(r.Key, b.ManifestName()) && r.Op == "GET" {
			reads++
		}
		if r.Op == "PUT" && strings.Contains(r.Key, "_versions/") {
			if reads == 0 {
				t.Error("a commit was made from a manifest that was not read from the store")
			}
			return
		}
	}
	t.Error("nothing was committed")
}

// A cache that somebody damaged costs a read and says nothing.
func TestADamagedCacheIsReadPast(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	work := t.TempDir()
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "work: {dir: %q, max: 1MiB}\n", work), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(s.Env(), "RECONCILE_CONFIG="+config)
	put(t, s, "r/t.lance", fourFragments())
	run(t, env, look(s.URI("r"))...).exit(reconcile.ExitClean)
	kept, err := filepath.Glob(filepath.Join(work, "manifests", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v, %v", kept, err)
	}
	data, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-9] ^= 1
	if err := os.WriteFile(kept[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} { // read, and kept again
		s.ClearLog()
		r := run(t, env, look(s.URI("r"))...).exit(reconcile.ExitClean)
		if got := measured(s); got.Manifests != want || strings.Contains(r.stderr, "manifest") {
			t.Errorf("%d manifests read, want %d; stderr %s", got.Manifests, want, r.stderr)
		}
	}
}
