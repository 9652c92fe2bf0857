package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/explain"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
)

const lostFile = "data/000101101010001100110101c7ddb541a4be9d99d6a3cd3b5e.lance"

// storesAlike is a pass over stores with tables of one name.
func storesAlike(t *testing.T) *work {
	t.Helper()
	set := factory.New(factory.Options{})
	t.Cleanup(set.Close)
	w := &work{s: &settings{}, set: set, found: &foundTargets{}}
	for _, x := range []struct{ store, uri string }{
		{"rk", "/srv/data/x.rollout.lance"}, {"rk", "/srv/data/x.generic.lance"}, {"rk", "/srv/data/only.datagen.lance"}, {"rk", "/srv/data/plain.lance"},
		{"dr", "/dr/data/x.rollout.lance"}, {"dr", "/srv/x/data/x.rollout.lance"},
	} {
		loc, err := objstore.Parse(x.uri)
		if err != nil {
			t.Fatal(err)
		}
		name, kind := fleet.Name(loc.Base())
		w.found.targets = append(w.found.targets, reconcile.Target{Name: name, Store: x.store, Kind: kind, Location: loc})
	}
	w.found.targets = append(w.found.targets, reconcile.Target{Name: "x", Store: "s3", Kind: "rollout", Location: objstore.Location{Scheme: "s3", Endpoint: "minio:9000", Bucket: "bucket", Key: "data/x.rollout.lance"}})
	return w
}

func TestWhomAFailureMeans(t *testing.T) {
	t.Parallel()
	m := storesAlike(t).newMatcher()
	const here, there, deeper, s3 = "file:///srv/data/x.rollout.lance", "file:///dr/data/x.rollout.lance", "file:///srv/x/data/x.rollout.lance", "s3://bucket@minio:9000/data/x.rollout.lance"
	type want struct {
		URIs []string
		Sure bool
	}
	if got := m.byName["s3/x"][0].Location.Canonical(); got != s3 {
		t.Fatalf("canonical %s", got)
	}
	for _, tt := range []struct {
		name, target, text string
		want               want
	}{
		{"a bare name of four tables", "x", "failed to fill whole buffer", want{[]string{here, there, deeper, s3}, false}},
		{"a bare name, and the text shows the place", "x", "Not found: srv/data/x.rollout.lance/" + lostFile, want{[]string{here}, true}},
		{"a bare name, and the text shows a longer place", "x", "Not found: srv/x/data/x.rollout.lance/" + lostFile, want{[]string{deeper}, true}},
		{"a bare name, and the text shows an absolute path", "x", "Not found: /dr/data/x.rollout.lance/" + lostFile, want{[]string{there}, true}},
		{"a bare name, and the text shows a key", "x", "Not found: data/x.rollout.lance/" + lostFile, want{[]string{s3}, true}},
		{"a bare name, and the text shows bucket and key", "x", "GET http://minio:9000/bucket/data/x.rollout.lance/" + lostFile + " 404 Not Found", want{[]string{s3}, true}},
		{"a bare name, and the text shows a place of a worker", "x", "Not found: mnt/worker/x.rollout.lance/" + lostFile, want{[]string{here, there, deeper, s3}, false}},
		{"a name with its store", "rk/x", "failed to fill whole buffer", want{[]string{here}, true}},
		{"a generic name", "generic:x", "", want{[]string{"file:///srv/data/x.generic.lance"}, false}},
		{"a generic name with its store", "rk/generic:x", "", want{[]string{"file:///srv/data/x.generic.lance"}, true}},
		{"a name of one table", "datagen:only", "", want{[]string{"file:///srv/data/only.datagen.lance"}, false}},
		{"the name of a folder", "plain.lance", "", want{[]string{"file:///srv/data/plain.lance"}, false}},
		{"a path", "/dr/data/x.rollout.lance/", "", want{[]string{there}, true}},
		{"a URI", "file:///srv/data/x.rollout.lance", "", want{[]string{here}, true}},
		{"a URI of nobody here", "gs://b/x.rollout.lance", "", want{nil, true}},
		{"no target, and the text names it", "", "Not found: srv/data/x.generic.lance/" + lostFile, want{[]string{"file:///srv/data/x.generic.lance"}, true}},
		{"no target, and the text names only a table", "", "Table 'only.datagen' was not found", want{[]string{"file:///srv/data/only.datagen.lance"}, false}},
		{"the target handed in wins over the text", "generic:x", "Not found: srv/data/x.rollout.lance/" + lostFile, want{[]string{"file:///srv/data/x.generic.lance"}, false}},
		{"a target in words of its own system, and the text shows the place", "worker 7", "Not found: srv/data/x.rollout.lance/" + lostFile, want{[]string{here}, true}},
		{"a target in words of its own system, and the text shows none", "worker 7", "Not found: w/x.rollout.lance/" + lostFile, want{nil, true}},
		{"nothing at all", "", "connection reset by peer", want{nil, true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			uris, sure := m.match(tt.target, explain.Classify(tt.text))
			if d := cmp.Diff(tt.want, want{uris, sure}); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestWhichTextIsTheTrigger(t *testing.T) {
	t.Parallel()
	w := storesAlike(t)
	x := w.found.targets[0]
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(after time.Duration, text string) {
		w.handed = append(w.handed, handedIn{TaskFailure: ledger.TaskFailure{Error: text, LastSeenAt: at.Add(after)}, hint: explain.Classify(text), uris: []string{x.Location.Canonical()}})
	}
	check := func(when, want string) {
		t.Helper()
		if got := deref(w.triggerOf(x)); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	check("nothing was handed in", "")
	add(0, "Error performing GET http://h/b/srv/data/x.rollout.lance/"+lostFile+" - status code: 503 Slow Down")
	add(1, "column foo not found")
	check("no text names damage", "")
	damaged := "Not found: srv/data/x.rollout.lance/" + lostFile
	add(2, damaged)
	check("one names damage", damaged)
	later := "Not found: srv/data/x.rollout.lance/_deletions/1-5-7.arrow"
	add(3, later)
	check("the last of two", later)
	w.known = map[string]knownTarget{x.Location.String(): {findings: []reconcile.Finding{{Path: lostFile}}}}
	check("the one that names what the look found", damaged)
	if w.triggerOf(w.found.targets[1]) != nil {
		t.Error("a trigger for another target")
	}
}

func TestWhatAnswersAFailure(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const index = "_indices/569c6300-b0b7-47ac-89a1-91e285268c69/page_data.lance"
	verified := func(id, uri string, after time.Duration, files ...string) ledger.Repair {
		r := ledger.Repair{Where: ledger.Target{URI: uri}, VerifiedAt: reconcile.Ptr(at.Add(after))}
		r.RepairID, r.Fragments = id, []reconcile.RepairFragment{{MissingFiles: files}}
		return r
	}
	const uri = "file:///srv/data/x.rollout.lance"
	drop := verified("r1", uri, time.Minute, lostFile)
	for _, tt := range []struct {
		name     string
		text     string
		sure     bool
		filter   []string
		state    reconcile.State
		missed   []reconcile.NotChecked
		findings []string
		repairs  []ledger.Repair
		want     *ledger.Handling
	}{
		{name: "a clean look", sure: true, text: "Not found: x.lance/" + lostFile, state: reconcile.StateClean, want: &ledger.Handling{Note: noteClean}},
		{name: "a clean look, and a bare name", text: "boom", state: reconcile.StateClean, want: &ledger.Handling{Note: noteClean}},
		{name: "a clean look at a chosen target, and a bare name", text: "boom", filter: []string{"rk/x"}, state: reconcile.StateClean},
		{name: "a repair in this pass", sure: true, text: "Not found: x.lance/" + lostFile, state: reconcile.StateRepaired, repairs: []ledger.Repair{drop}, want: &ledger.Handling{RepairID: "r1", Note: noteRepaired}},
		{name: "a repair of the pass that died before it said so", sure: true, text: "boom", state: reconcile.StateClean, repairs: []ledger.Repair{drop}, want: &ledger.Handling{RepairID: "r1", Note: noteRepaired}},
		{name: "a repair before it was handed in", sure: true, text: "boom", state: reconcile.StateClean, repairs: []ledger.Repair{verified("r0", uri, -time.Minute, lostFile)}, want: &ledger.Handling{Note: noteClean}},
		{name: "a repair of another target", sure: true, text: "boom", state: reconcile.StateDiverged, repairs: []ledger.Repair{verified("r0", "file:///other", time.Minute, lostFile)}},
		{name: "the repair that names the object, of two", sure: true, text: "Not found: x.lance/" + lostFile, state: reconcile.StateRepaired, repairs: []ledger.Repair{drop, verified("r2", uri, time.Hour, "data/other.lance")}, want: &ledger.Handling{RepairID: "r1", Note: noteRepaired}},
		{name: "damage that is left", sure: true, text: "Not found: x.lance/" + lostFile, state: reconcile.StateDiverged, findings: []string{lostFile}},
		{name: "damage that is left beside the repaired", sure: true, text: "Not found: x.lance/" + lostFile, state: reconcile.StateDiverged, findings: []string{index}, repairs: []ledger.Repair{drop}, want: &ledger.Handling{RepairID: "r1", Note: noteRepaired}},
		{name: "what it names is left beside the repaired", sure: true, text: "Not found: x.lance/" + index, state: reconcile.StateDiverged, findings: []string{index}, repairs: []ledger.Repair{drop}},
		{name: "a look that could not judge", sure: true, text: "boom", state: reconcile.StateIncomplete, repairs: []ledger.Repair{drop}},
		{name: "a look that did not look at what it names", sure: true, text: "Not found: x.lance/" + index, state: reconcile.StateClean, missed: []reconcile.NotChecked{{Role: reconcile.RoleIndex}}},
		{name: "a branch in a look at the newest version", sure: true, text: "Not found: x.lance/tree/dev/" + lostFile, state: reconcile.StateClean},
		{name: "what it names is accepted", sure: true, text: "Not found: x.lance/" + index, state: reconcile.StateClean, findings: []string{index}, want: &ledger.Handling{Note: noteKnown}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &work{s: &settings{}, known: map[string]knownTarget{}}
			w.s.filter.Include = tt.filter
			var fs []reconcile.Finding
			for _, p := range tt.findings {
				fs = append(fs, reconcile.Finding{Path: p})
			}
			w.known["/srv/data/x.rollout.lance"] = knownTarget{findings: fs}
			h := handedIn{TaskFailure: ledger.TaskFailure{LastSeenAt: at}, hint: explain.Classify(tt.text), uris: []string{uri}, sure: tt.sure}
			results := map[string]*reconcile.TargetResult{uri: {URI: "/srv/data/x.rollout.lance", State: tt.state, NotChecked: tt.missed}}
			got, ok := w.answer(h, results, tt.repairs)
			if tt.want == nil {
				if ok {
					t.Errorf("answered by %+v", got)
				}
				return
			}
			if d := cmp.Diff(*tt.want, got); !ok || d != "" {
				t.Errorf("answered %v (-want +got)\n%s", ok, d)
			}
		})
	}
	// One of two targets that a bare name means was not looked at.
	w := &work{s: &settings{}}
	h := handedIn{uris: []string{uri, "file:///other"}}
	if _, ok := w.answer(h, map[string]*reconcile.TargetResult{uri: {State: reconcile.StateClean}}, nil); ok {
		t.Error("answered by half a look")
	}
}
