package reconcile

import (
	"encoding"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

func TestTheZeroValueOfEveryEnumIsTheSafeOne(t *testing.T) {
	t.Parallel()
	var v Verdict
	var s State
	var a Action
	var d Depth
	var n Versions
	if v != Undecided || s != StateIncomplete || a != ActionNone || d != DepthHead || n != VersionsCurrent {
		t.Errorf("zero values: %s %s %s %s %s", v, s, a, d, n)
	}
	var f Finding
	if f.Verdict.Damaged() || !f.Verdict.Open() || f.ProposedAction.Destructive() {
		t.Error("an empty finding condemns something")
	}
}

func TestEnumsKeepTheirWords(t *testing.T) {
	t.Parallel()
	type word interface {
		encoding.TextMarshaler
	}
	var all []word
	for _, v := range Verdicts() {
		all = append(all, v)
	}
	for _, r := range Roles() {
		all = append(all, r)
	}
	for _, s := range States() {
		all = append(all, s)
	}
	for _, a := range []Action{ActionNone, ActionRestore, ActionRefetch, ActionDropFragment, ActionDropIndex} {
		all = append(all, a)
	}
	seen := map[string]bool{}
	for _, w := range all {
		b, err := w.MarshalText()
		if err != nil || len(b) == 0 || strings.Contains(string(b), "invalid") {
			t.Errorf("%#v has no word: %q %v", w, b, err)
		}
		var back encoding.TextUnmarshaler
		switch w.(type) {
		case Verdict:
			back = new(Verdict)
		case Role:
			back = new(Role)
		case State:
			back = new(State)
		case Action:
			back = new(Action)
		}
		if err := back.UnmarshalText(b); err != nil {
			t.Errorf("%q: %v", b, err)
		}
		again, _ := back.(encoding.TextMarshaler).MarshalText()
		if string(again) != string(b) {
			t.Errorf("%q came back as %q", b, again)
		}
		seen[string(b)] = true
	}
	if len(Verdicts()) != len(verdictNames) || len(States()) != len(stateNames) || len(Roles()) != len(roleNames)-1 {
		t.Error("a list leaves out a word")
	}
	var v Verdict
	if err := v.UnmarshalText([]byte("gone")); err == nil {
		t.Error("an unknown word was taken")
	}
}

func TestWorstExitFollowsThePrecedence(t *testing.T) {
	t.Parallel()
	order := []ExitCode{130, 143, 2, 1, 6, 5, 4, 3, 10, 0}
	for i, hi := range order {
		for _, lo := range order[i:] {
			if got := WorstExit(lo, hi, lo); got != hi {
				t.Errorf("WorstExit(%d, %d) = %d", lo, hi, got)
			}
		}
	}
	if WorstExit() != ExitClean {
		t.Error("nothing is not clean")
	}
	for _, d := range ExitDocs() {
		if d.Code.Name() != d.Name && d.Code != ExitTerminated {
			t.Errorf("%d: %s, %s", d.Code, d.Code.Name(), d.Name)
		}
	}
}

func TestFindingIDIsTheDocumentedDigest(t *testing.T) {
	t.Parallel()
	ds := objstore.Location{Scheme: "s3", Bucket: "b", Key: "t.lance"}
	obj := objstore.Location{Scheme: "s3", Bucket: "b", Key: "t.lance/data/x.lance"}
	id := FindingID(ds, RoleData, obj)
	// printf 's3://b/t.lance\0data\0s3://b/t.lance/data/x.lance' | sha256sum | cut -c1-32
	if want := "23c625b1edff87f3f23d0fd68249ff33"; len(id) != 32 || id != want {
		t.Errorf("finding id %s, want %s", id, want)
	}
	if FindingID(ds, RoleIndex, obj) == id {
		t.Error("the role is not part of the identity")
	}
	slash := ds
	slash.Key += "/"
	if FindingID(slash, RoleData, obj) != id {
		t.Error("a trailing slash makes another identity")
	}
}

func TestUnknownIsNullNeverZero(t *testing.T) {
	t.Parallel()
	f := NewFinding(Target{Name: "x"}, Reference{Role: RoleData, Path: "data/x", PhysicalRows: UnknownRows, LiveRows: UnknownRows}, time.Unix(0, 0))
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"fragment_id", "reason", "expected_size", "observed_size", "expected_checksum", "observed_checksum", "physical_rows", "rows_at_risk", "http_status", "error_code", "request_id", "confirmed_at", "recoverable_until"} {
		if v, ok := m[k]; !ok || v != nil {
			t.Errorf("%s = %v, want null", k, v)
		}
	}
	for _, k := range []string{"scopes", "columns_lost", "columns_kept", "peers_asked", "peers_having", "blocked_by"} {
		if d := cmp.Diff([]any{}, m[k]); d != "" {
			t.Errorf("%s: %s", k, d)
		}
	}
}

func TestTotalsFlattenStatesAndKeepZeros(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(Totals{Targets: 1, TargetsByState: map[State]int64{StateClean: 1}, Verdicts: map[Verdict]int64{Present: 4}})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if m["targets_clean"] != 1.0 || m["targets_half_deleted"] != 0.0 || m["verdicts"].(map[string]any)["present"] != 4.0 || m["verdicts"].(map[string]any)["missing"] != 0.0 {
		t.Errorf("%s", b)
	}
}
