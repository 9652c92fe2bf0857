package wal

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

func target(name, kind string) reconcile.Target {
	return reconcile.Target{Name: name, Store: "rk", Kind: kind, Location: objstore.Location{Scheme: "s3", Bucket: "b", Key: name + ".lance"}}
}

func TestWhereAWorkerIsAsked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, kind, endpoint, want string }{
		{"exp-1", "rollout", "http://w:3000", "http://w:3000/api/v1/internal/merge-wal/exp-1"},
		{"generic:orders", "generic", "http://w:3000/", "http://w:3000/api/v1/generic/orders/merge-wal"},
		{"a b/c?d#é%", "rollout", "http://w/base", "http://w/base/api/v1/internal/merge-wal/a%20b%2Fc%3Fd%23%C3%A9%25"},
		{"generic:generic:x", "generic", "http://w", "http://w/api/v1/generic/generic:x/merge-wal"},
		{"..", "rollout", "http://w", ""},
		{"generic:.", "generic", "http://w", ""},
		{"datagen:x", "datagen", "http://w", ""},
		{"system:_registry.rollout", "system", "http://w", ""},
		{"table:x", "table", "http://w", ""},
	} {
		if got, ok := Address(tt.endpoint, target(tt.name, tt.kind)); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, ok, tt.want)
		}
	}
}

func TestWhichTargetsAreDue(t *testing.T) {
	t.Parallel()
	n := func(i int64) *int64 { return &i }
	unlooked := []reconcile.NotChecked{{Role: reconcile.RoleWALGeneration, Reason: "timeout"}}
	finding := func(target string, role reconcile.Role, v reconcile.Verdict, harmless bool) reconcile.Finding {
		return reconcile.Finding{Store: "rk", Target: target, Role: role, Verdict: v, Ref: reconcile.Reference{Harmless: harmless}}
	}
	type x struct {
		name, kind string
		r          reconcile.TargetResult
		findings   []reconcile.Finding
		due        bool
	}
	list := []x{
		{"enough", "rollout", reconcile.TargetResult{PendingGenerations: n(8)}, nil, true},
		{"generic:most", "generic", reconcile.TargetResult{PendingGenerations: n(900)}, nil, true},
		{"too-few", "rollout", reconcile.TargetResult{PendingGenerations: n(7)}, nil, false},
		{"unknown", "rollout", reconcile.TargetResult{}, nil, false},
		{"table:other", "table", reconcile.TargetResult{PendingGenerations: n(99)}, nil, false},
		{"not-looked-at", "rollout", reconcile.TargetResult{PendingGenerations: n(9), NotChecked: unlooked}, nil, false},
		{"acknowledged", "rollout", reconcile.TargetResult{PendingGenerations: n(9)}, []reconcile.Finding{finding("acknowledged", reconcile.RoleData, reconcile.Missing, false)}, false},
		{"repaired", "rollout", reconcile.TargetResult{PendingGenerations: n(9), State: reconcile.StateRepaired}, []reconcile.Finding{finding("repaired", reconcile.RoleData, reconcile.Missing, false)}, true},
		{"repaired-all-but-its-log", "rollout", reconcile.TargetResult{PendingGenerations: n(9), State: reconcile.StateRepaired},
			[]reconcile.Finding{finding("repaired-all-but-its-log", reconcile.RoleWALGeneration, reconcile.Missing, false)}, false},
		{"a-stale-writer's", "rollout", reconcile.TargetResult{PendingGenerations: n(9)}, []reconcile.Finding{finding("a-stale-writer's", reconcile.RoleTransaction, reconcile.Missing, true)}, true},
		{"overtaken", "rollout", reconcile.TargetResult{PendingGenerations: n(9)}, []reconcile.Finding{finding("overtaken", reconcile.RoleData, reconcile.Superseded, false)}, true},
		{"lost", "rollout", reconcile.TargetResult{PendingGenerations: n(9)}, []reconcile.Finding{finding("lost", reconcile.RoleWALGeneration, reconcile.Missing, false)}, false},
		{"hidden", "rollout", reconcile.TargetResult{PendingGenerations: n(9)}, []reconcile.Finding{finding("hidden", reconcile.RoleWALManifest, reconcile.Undecided, false)}, false},
		{"drained", "rollout", reconcile.TargetResult{PendingGenerations: n(9)}, []reconcile.Finding{finding("drained", reconcile.RoleWALGeneration, reconcile.Missing, true)}, true},
	}
	for i := range list {
		if list[i].r.State == reconcile.StateIncomplete {
			list[i].r.State = reconcile.StateClean
		}
	}
	for _, s := range reconcile.States() {
		if s != reconcile.StateClean && s != reconcile.StateRepaired {
			list = append(list, x{s.String(), "rollout", reconcile.TargetResult{PendingGenerations: n(9), State: s, References: 3}, nil, false})
		}
	}
	var targets []reconcile.Target
	var results []reconcile.TargetResult
	var findings []reconcile.Finding
	want := []string{"generic:most"}
	for _, x := range list {
		tg := target(x.name, x.kind)
		x.r.Target, x.r.Store, x.r.URI = x.name, "rk", tg.Location.String()
		targets, results, findings = append(targets, tg), append(results, x.r), append(findings, x.findings...)
		if x.due && x.name != want[0] && x.name != "enough" {
			want = append(want, x.name)
		}
	}
	want = append(want, "enough")
	var got []string
	for _, d := range Due(targets, results, findings, 8) {
		got = append(got, d.Name)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
