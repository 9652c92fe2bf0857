package harper

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rocketkeep/reconcile/internal/harperfake"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// walkAll is everything that an enumeration yields.
func walkAll(t testing.TB, c *Cluster, after string) (recs []refs.Record, rows []*refs.RowError) {
	t.Helper()
	for rec, err := range c.Records().Records(t.Context(), after) {
		var row *refs.RowError
		switch {
		case errors.As(err, &row):
			rows = append(rows, row)
		case err != nil:
			t.Fatal(err)
		default:
			recs = append(recs, rec)
		}
	}
	return recs, rows
}

// byLength orders keys as no byte order does, since a node's order is its own.
func byLength(a, b any) int {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	return cmp.Or(cmp.Compare(len(y), len(x)), -strings.Compare(x, y))
}

func TestEnumerationPagesThroughEveryKeyOnce(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{Less: byLength})
	odd := []string{"a.b", "a.body", "..", ".", "ü/ö", "50%", "a+b", " ", "/lead", "a&b=c", "x?y#z", "select(id)", "日本"}
	for i := range 521 - len(odd) {
		put(s, fmt.Sprintf("key-%d", i*7919%100000), 10)
	}
	for _, k := range odd {
		put(s, k, 9000)
	}
	cfg := configOf(s)
	cfg.Sets[0].PageSize = 100
	c := cluster(t, cfg)
	recs, rows := walkAll(t, c, "")
	if len(recs) != 521 || len(rows) != 0 {
		t.Fatalf("%d records, %v", len(recs), rows)
	}
	seen := map[string]bool{}
	for _, r := range recs {
		seen[r.Record] = true
		if r.Size <= 0 || !strings.HasPrefix(r.Checksum, "sha256:") || !strings.HasPrefix(r.Key, "harper://a/Doc/") {
			t.Errorf("%+v", r)
		}
	}
	if len(seen) != 521 {
		t.Errorf("%d different keys", len(seen))
	}
	for _, k := range odd {
		if !seen[k] {
			t.Errorf("%q was not enumerated", k)
		}
		if _, err := store(t, c).Stat(t.Context(), locate(t, c, "a", k)); err != nil {
			t.Errorf("%q: %v", k, err)
		}
	}
	pages := 0
	for _, r := range s.Requests() {
		if strings.HasPrefix(r.Query, "id=gt=&") || strings.Contains(r.Query, "sort(") || strings.Contains(r.Query, "body") {
			t.Errorf("asked %s", r.Query)
		}
		if strings.Contains(r.Query, "limit(") {
			pages++
		}
	}
	if pages != 6 {
		t.Errorf("%d pages, want 6", pages)
	}
	// Going on after any record gives exactly the rest.
	for _, i := range []int{0, 99, 100, 300, 520} {
		rest, _ := walkAll(t, c, recs[i].Position)
		if d := gocmp.Diff(recs[i+1:], rest); d != "" && len(rest)+len(recs[i+1:]) > 0 {
			t.Errorf("after %d (-want +got):\n%s", i, d)
		}
	}
	for _, bad := range []string{"Doc", "Other?x", "Doc?a.b", "Doc?%zz"} {
		for _, err := range c.Records().Records(t.Context(), bad) {
			if !errors.Is(err, refs.ErrPositionGone) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

func TestNumbersAreKeysToo(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	for i := range 25 {
		data := content(fmt.Sprint(i), 9000)
		s.Put("Doc", float64(i), map[string]any{"size": "9000", "sha256": "SHA256:" + strings.ToUpper(sumOf(data))}, "body", data)
	}
	cfg := configOf(s)
	cfg.Sets[0].PageSize = 10
	c := cluster(t, cfg)
	recs, rows := walkAll(t, c, "")
	if len(recs) != 25 || len(rows) != 0 || recs[24].Record != "24" || recs[24].Size != 9000 {
		t.Fatalf("%d records, %v, last %+v", len(recs), rows, recs[len(recs)-1])
	}
	if at, err := store(t, c).Stat(t.Context(), locate(t, c, "a", "24")); err != nil || at.Checksums["sha256"] != recs[24].Checksum {
		t.Errorf("%+v, %v", at, err)
	}
}

func TestWhatARecordSaysWrongly(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	s.Put("Doc", "a", map[string]any{"size": -3, "sha256": "zz"}, "body", content("a", 9000))
	s.Put("Doc", "b", map[string]any{"size": 1.5, "sha256": 7}, "body", content("b", 9000))
	s.Put("Doc", "c", map[string]any{"size": nil}, "body", content("c", 9000))
	recs, rows := walkAll(t, cluster(t, configOf(s)), "")
	var got []string
	for _, r := range rows {
		got = append(got, r.Reason+": "+r.Detail)
		if !r.Partial {
			t.Errorf("%v is told as if its blob were not looked at", r)
		}
	}
	want := []string{refs.ReasonSize + ": size of record a, node a", refs.ReasonChecksum + ": sha256 of record a, node a",
		refs.ReasonSize + ": size of record b, node a", refs.ReasonChecksum + ": sha256 of record b, node a"}
	if d := gocmp.Diff(want, got); d != "" || len(recs) != 3 {
		t.Errorf("%d records (-want +got):\n%s", len(recs), d)
	}
	for _, r := range recs {
		if r.Size != refs.Unknown || r.Checksum != "" {
			t.Errorf("%+v", r)
		}
	}
}

// The union of the nodes' keys is enumerated whole, each key once, in whatever order the
// nodes have, and what only some of them hold is told.
func TestTheUnionOfNodesIsWhole(t *testing.T) {
	t.Parallel()
	var all []*harperfake.Server
	for range 3 {
		all = append(all, start(t, harperfake.Options{Less: byLength}))
	}
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 3).Draw(rt, "nodes")
		keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c.]{1,3}`), 0, 25, rapid.ID).Draw(rt, "keys")
		servers := all[:nodes]
		want := map[string]bool{}
		partial := 0
		for _, s := range servers {
			s.Table("data", "Doc", "id") // empty again
		}
		for _, k := range keys {
			mask := rapid.IntRange(1, 1<<nodes-1).Draw(rt, "on")
			if mask != 1<<nodes-1 {
				partial++
			}
			for i, s := range servers {
				if mask&(1<<i) != 0 {
					put(s, k, 10)
					want[string(rune('a'+i))+" "+k] = true
				}
			}
		}
		cfg := configOf(servers...)
		for i := range cfg.Nodes {
			cfg.Nodes[i].OperationsURL = ""
		}
		cfg.Sets[0].PageSize = rapid.IntRange(1, 6).Draw(rt, "page")
		c := cluster(t, cfg)
		recs, rows := walkAll(t, c, "")
		got := map[string]bool{}
		for _, r := range recs {
			node, _, _ := strings.Cut(strings.TrimPrefix(r.Key, "harper://"), "/")
			id := node + " " + r.Record
			if got[id] {
				rt.Fatalf("%s twice", id)
			}
			got[id] = true
		}
		if d := gocmp.Diff(want, got); d != "" {
			rt.Fatalf("(-want +got):\n%s", d)
		}
		if len(rows) != partial {
			rt.Fatalf("%d row errors, %d records on some nodes only: %v", len(rows), partial, rows)
		}
		if len(recs) == 0 {
			return
		}
		// Resuming anywhere loses nothing.
		i := rapid.IntRange(0, len(recs)-1).Draw(rt, "resume")
		rest, _ := walkAll(t, c, recs[i].Position)
		for _, r := range recs[:i+1] {
			got[r.Key] = true
		}
		for _, r := range rest {
			got[r.Key] = true
		}
		for _, r := range recs {
			if !got[r.Key] {
				rt.Fatalf("going on after %d misses %s", i, r.Key)
			}
		}
	})
}

func TestTheNodeWithMostFailuresIsFirst(t *testing.T) {
	t.Parallel()
	var nodes []*harperfake.Server
	for _, n := range []int64{3, 0, 700} {
		s := start(t, harperfake.Options{})
		put(s, "k", 10)
		s.BlobFailures(n)
		nodes = append(nodes, s)
	}
	core := start(t, harperfake.Options{CoreOnly: true})
	put(core, "k", 10)
	nodes = append(nodes, core)
	recs, _ := walkAll(t, cluster(t, configOf(nodes...)), "")
	var got []string
	for _, r := range recs {
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(r.Key, "harper://"), "/Doc/k.body"))
	}
	if want := []string{"c", "a", "b", "d"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestConfirmReadsRecordsAgain(t *testing.T) {
	t.Parallel()
	s := start(t, harperfake.Options{})
	put(s, "kept", 9000)
	put(s, "gone", 9000)
	put(s, "null", 9000)
	put(s, "new", 9000)
	c := cluster(t, configOf(s))
	recs, _ := walkAll(t, c, "")
	s.Forget("Doc", "gone")
	s.Damage("Doc", "null", "body", harperfake.NullAttribute)
	put(s, "new", 9001)
	keys := []string{"harper://elsewhere/Doc/x.body"}
	for _, r := range recs {
		keys = append(keys, r.Key)
	}
	got, err := c.Records().Confirm(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["harper://a/Doc/kept.body"].Size != 9000 || got["harper://a/Doc/new.body"].Size != 9001 {
		t.Errorf("%+v", got)
	}
	s.Hang(true) // then what was said before holds, and the look finds the node ill
	if got, err := c.Records().Confirm(t.Context(), keys[1:2]); err != nil || len(got) != 1 {
		t.Errorf("of a hung node: %+v, %v", got, err)
	}
	if _, err := cluster(t, configOf(s)).Records().Confirm(t.Context(), keys[1:2]); err == nil {
		t.Error("of a hung node, with nothing to fall back on, no error")
	}
}

func TestANodeThatCannotBeEnumeratedIsTold(t *testing.T) {
	t.Parallel()
	a, b := start(t, harperfake.Options{}), start(t, harperfake.Options{})
	for i := range 3 {
		put(a, fmt.Sprint("k", i), 10)
	}
	b.Fail(500)
	recs, rows := walkAll(t, cluster(t, configOf(a, b)), "")
	if len(recs) != 6 || len(rows) != 1 || rows[0].Reason != ReasonNotEnumerated || rows[0].Count != 3 {
		t.Errorf("%d records, %v", len(recs), rows)
	}
	a.Fail(500)
	for _, err := range cluster(t, configOf(a, b)).Records().Records(t.Context(), "") {
		if err == nil || errors.As(err, new(*refs.RowError)) {
			t.Errorf("no node answers: %v", err)
		}
	}
}

// A node that ignores conditions, as one does whose key attribute is another, would be
// walked for ever.
func TestANodeThatIgnoresWhereToBeginIsAnError(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"id":"a"},{"id":"b"}]`)
	}))
	t.Cleanup(s.Close)
	cfg := Config{Name: "c", Nodes: []Node{{Name: "a", URL: s.URL}}, Sets: []Set{{Database: "d", Table: "Doc", Attributes: []string{"body"}, PageSize: 2}}}
	var last error
	n := 0
	for _, err := range cluster(t, cfg).Records().Records(t.Context(), "") {
		if last = err; err == nil {
			n++
		}
	}
	if !errors.Is(last, errSamePage) || n > 2 {
		t.Errorf("%d records, %v", n, last)
	}
}
