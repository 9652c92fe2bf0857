package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// seen is an outcome in which these blobs are damaged, with what is recorded of each.
func seen(action reconcile.Action, recorded map[string]int64) *pass.Outcome {
	out := &pass.Outcome{Targets: []reconcile.TargetResult{{Target: "blobs:b", Store: "b", URI: "s3://b", State: reconcile.StateDiverged}}}
	act := reconcile.PlanAction{Target: "blobs:b", URI: "s3://b", Action: action}
	for _, key := range []string{"k", "l"} {
		if size, damaged := recorded[key]; damaged {
			f := reconcile.Finding{Target: "blobs:b", Store: "b", Path: key, Verdict: reconcile.Missing, ProposedAction: action, Ref: reconcile.Reference{Size: size, Checksum: "md5:" + key}}
			out.Findings = append(out.Findings, f)
			act.Files = append(act.Files, key)
		}
	}
	if len(act.Files) > 0 {
		out.Actions = []reconcile.PlanAction{act}
	}
	bindRecords(out)
	return out
}

// A plan to bring objects back is carried out for those of which it still holds, and
// refused when it holds of none.
func TestAPlanToBringObjectsBackHoldsForWhatIsAsItWas(t *testing.T) {
	t.Parallel()
	then := seen(reconcile.ActionRefetch, map[string]int64{"k": 3, "l": 4}).Actions[0]
	if d := cmp.Diff([]string{"3 md5:k", "4 md5:l"}, then.Recorded); d != "" {
		t.Fatalf("recorded (-want +got):\n%s", d)
	}
	gone := seen(reconcile.ActionRefetch, nil)
	gone.Targets[0].State, gone.Targets[0].Reason = reconcile.StateFailed, reconcile.Ptr(reconcile.ReasonNoSuchBucket)
	old := then
	old.Recorded = nil
	for _, tt := range []struct {
		name string
		plan reconcile.PlanAction
		now  *pass.Outcome
		want []string
		why  string
	}{
		{"all as it was", then, seen(reconcile.ActionRefetch, map[string]int64{"k": 3, "l": 4}), []string{"k", "l"}, ""},
		{"one is there again", then, seen(reconcile.ActionRefetch, map[string]int64{"l": 4}), []string{"l"}, ""},
		{"another size is recorded of one", then, seen(reconcile.ActionRefetch, map[string]int64{"k": 5, "l": 4}), []string{"l"}, ""},
		{"another size is recorded of both", then, seen(reconcile.ActionRefetch, map[string]int64{"k": 5, "l": 6}), nil, "another object is recorded as l"},
		{"none is damaged", then, seen(reconcile.ActionRefetch, nil), nil, "not damaged any more"},
		{"one is to be restored instead", then, seen(reconcile.ActionRestore, map[string]int64{"k": 3}), nil, "mended otherwise: restore"},
		{"the collection is gone", then, gone, nil, "nothing is there"},
		{"a plan of a release that kept no records", old, seen(reconcile.ActionRefetch, map[string]int64{"k": 5}), []string{"k"}, ""},
	} {
		got, refusal := holds(tt.now, tt.plan)
		switch {
		case tt.want == nil && (refusal == nil || refusal.Reason != reconcile.RefusedPlanStale || !strings.Contains(refusal.Detail, tt.why)):
			t.Errorf("%s: %v", tt.name, refusal)
		case tt.want == nil && len(got.Files) != 2:
			t.Errorf("%s: the record of the refusal is about %q", tt.name, got.Files)
		case tt.want != nil && refusal != nil:
			t.Errorf("%s: %v", tt.name, refusal)
		case tt.want != nil:
			if d := cmp.Diff(tt.want, got.Files); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, d)
			}
		}
	}
}
