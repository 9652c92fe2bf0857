package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var planTime = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600))

func drawPlan(t *rapid.T) Plan {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab/é<&>\"\\\u2028 .-1")), 0, 12, -1)
	rows := rapid.Ptr(rapid.Int64Range(0, 1<<40), true)
	fragment := rapid.Custom(func(t *rapid.T) PlanFragment {
		return PlanFragment{ID: rapid.Uint64().Draw(t, "id"), MessageSHA256: text.Draw(t, "sha"), Files: rapid.SliceOfN(text, 0, 2).Draw(t, "files"), PhysicalRows: rows.Draw(t, "rows"), LiveRows: rows.Draw(t, "live")}
	})
	action := rapid.Custom(func(t *rapid.T) PlanAction {
		return PlanAction{
			Target: text.Draw(t, "target"), URI: text.Draw(t, "uri"), Action: Action(rapid.IntRange(0, 4).Draw(t, "action")), ReadVersion: rapid.Uint64().Draw(t, "version"),
			Fragments: rapid.SliceOfN(fragment, 0, 2).Draw(t, "fragments"), IndexUUID: rapid.Ptr(text, true).Draw(t, "index"), Source: rapid.Ptr(text, true).Draw(t, "source"),
			ExpectedEffect: text.Draw(t, "effect"), Files: rapid.SliceOfN(text, 0, 2).Draw(t, "files"),
		}
	})
	p, err := NewPlan(PlanSpec{
		ID: "0190b5c0-0000-7000-8000-000000000000", CreatedAt: planTime.Add(time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "at"))), ToolVersion: text.Draw(t, "tool"),
		Scope:   Scope{Versions: Versions(rapid.IntRange(0, 2).Draw(t, "versions")), Depth: Depth(rapid.IntRange(0, 2).Draw(t, "depth")), Roles: rapid.SliceOfN(rapid.SampledFrom(Roles()), 0, 3).Draw(t, "roles"), TargetsFilter: rapid.SliceOfN(text, 0, 2).Draw(t, "filter")},
		Limits:  Limits{MaxFragments: rapid.Int64().Draw(t, "mf"), MaxFraction: rapid.Float64Range(0, 1).Draw(t, "fraction")},
		Actions: rapid.SliceOfN(action, 0, 3).Draw(t, "actions"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPlanFileIsReadBackAsItWasAndInNoOtherForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		data, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		now := p.CreatedAt().Add(time.Duration(rapid.Int64Range(0, int64(PlanLifetime)-1).Draw(t, "age")))
		got, err := DecodePlan(data, now)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if d := cmp.Diff(p, got, cmp.AllowUnexported(Plan{}, planDoc{})); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		at := rapid.IntRange(0, len(data)-1).Draw(t, "byte")
		flip := bytes.Clone(data)
		flip[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if _, err := DecodePlan(flip, now); err == nil {
			t.Fatalf("accepted with byte %d (%q) turned into %q:\n%s", at, data[at], flip[at], flip)
		}
		cut := rapid.IntRange(0, len(data)-1).Draw(t, "cut")
		if _, err := DecodePlan(data[:cut], now); err == nil {
			t.Fatalf("accepted the first %d of %d bytes", cut, len(data))
		}
	})
}

func TestEveryBitOfAPlanFileCounts(t *testing.T) {
	t.Parallel()
	p := examplePlan(t)
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := range 8 {
			flip := bytes.Clone(data)
			flip[i] ^= 1 << bit
			_, err := DecodePlan(flip, planTime)
			if !errors.Is(err, ErrPlanAltered) && !errors.Is(err, ErrPlanVersion) {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			}
		}
	}
}

func examplePlan(t *testing.T) Plan {
	t.Helper()
	p, err := NewPlan(PlanSpec{
		ID: "0190b5c0-0000-7000-8000-000000000000", CreatedAt: planTime, ToolVersion: "v1", Limits: DefaultLimits(),
		Actions: []PlanAction{{Target: "x", URI: "s3://b/x.rollout.lance", Action: ActionDropFragment, ReadVersion: 7, ExpectedEffect: "drops fragment 3",
			Fragments: []PlanFragment{{ID: 3, MessageSHA256: "ab", Files: []string{"data/a.lance"}, LiveRows: Ptr(int64(9))}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPlanFileReadsAsTheContractSays(t *testing.T) {
	t.Parallel()
	data, err := examplePlan(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "plan_version": 1,
  "plan_id": "0190b5c0-0000-7000-8000-000000000000",
  "created_at": "2026-03-01T11:00:00.123456Z",
  "expires_at": "2026-03-02T11:00:00.123456Z",
  "tool_version": "v1",
  "scope": {
    "versions": "current",
    "depth": "head",
    "roles": [],
    "targets_filter": []
  },
  "limits": {
    "max_fragments": 16,
    "max_rows": 5000000,
    "max_fraction": 0.05,
    "max_pass_targets": 20,
    "max_pass_fragments": 64,
    "max_pass_rows": 20000000
  },
  "actions": [
    {
      "target": "x",
      "uri": "s3://b/x.rollout.lance",
      "action": "drop_fragment",
      "read_version": 7,
      "fragments": [
        {
          "id": 3,
          "message_sha256": "ab",
          "files": [
            "data/a.lance"
          ],
          "physical_rows": null,
          "live_rows": 9
        }
      ],
      "index_uuid": null,
      "source": null,
      "expected_effect": "drops fragment 3",
      "files": []
    }
  ],
  "digest": "`
	if !strings.HasPrefix(string(data), want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, string(data)))
	}
}

func TestPlansAreRefusedForTheReasonThatIsTrue(t *testing.T) {
	t.Parallel()
	p := examplePlan(t)
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(m map[string]any)) []byte {
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		b, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tests := []struct {
		name string
		data []byte
		at   time.Time
		want error
	}{
		{"one moment before the end", data, p.ExpiresAt().Add(-1), nil},
		{"the end itself", data, p.ExpiresAt(), ErrPlanExpired},
		{"an older version of the format", edit(func(m map[string]any) { m["plan_version"] = 0 }), planTime, ErrPlanVersion},
		{"a newer version of the format", edit(func(m map[string]any) { m["plan_version"] = 2 }), planTime, ErrPlanVersion},
		{"JSON that is no plan", []byte(`{"a": 1}`), planTime, ErrPlanVersion},
		{"a file that is no JSON", []byte("plan"), planTime, ErrPlanAltered},
		{"an empty file", nil, planTime, ErrPlanAltered},
		{"a field that is not known", edit(func(m map[string]any) { m["more"] = 1 }), planTime, ErrPlanAltered},
		{"a later end", edit(func(m map[string]any) { m["expires_at"] = "2030-01-01T00:00:00Z" }), planTime, ErrPlanAltered},
		{"another order of keys", edit(func(map[string]any) {}), planTime, ErrPlanAltered},
		{"something behind it", append(bytes.Clone(data), "{}"...), planTime, ErrPlanAltered},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := DecodePlan(tt.data, tt.at); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestAPlanCannotBeChangedThroughWhatItGivesOrTook(t *testing.T) {
	t.Parallel()
	actions := []PlanAction{{Target: "x", Source: Ptr("s"), Files: []string{"f"}, Fragments: []PlanFragment{{Files: []string{"g"}, LiveRows: Ptr(int64(1))}}}}
	p, err := NewPlan(PlanSpec{ID: "i", CreatedAt: planTime, Actions: actions, Scope: Scope{TargetsFilter: []string{"t"}}})
	if err != nil {
		t.Fatal(err)
	}
	before, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range [][]PlanAction{actions, p.Actions()} {
		a[0].Target, a[0].Files[0], *a[0].Source = "y", "y", "y"
		a[0].Fragments[0].Files[0], *a[0].Fragments[0].LiveRows = "y", 2
	}
	p.Scope().TargetsFilter[0] = "y"
	after, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(before), string(after)); d != "" {
		t.Errorf("the plan changed (-before +after):\n%s", d)
	}
}

func TestOnlyPlansLookLikePlans(t *testing.T) {
	t.Parallel()
	data, err := examplePlan(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{string(data): true, `{"plan_version":9,"plan_id":"x","digest":"y"}`: true, `{"plan_version":1}`: false, "": false, "[]": false, "x": false} {
		if LooksLikePlan([]byte(text)) != want {
			t.Errorf("%.60q: want %v", text, want)
		}
	}
}

func TestAPlanNeedsAnIdentity(t *testing.T) {
	t.Parallel()
	if _, err := NewPlan(PlanSpec{CreatedAt: planTime}); err == nil {
		t.Error("a plan without an id")
	}
	if _, err := NewPlan(PlanSpec{ID: "i", CreatedAt: planTime, Actions: []PlanAction{{Files: []string{"data/\xff.lance"}}}}); err == nil {
		t.Error("a plan with a name that JSON cannot hold")
	}
	if _, err := (Plan{}).Encode(); err == nil {
		t.Error("the zero plan is encoded")
	}
}

func FuzzDecodePlan(f *testing.F) {
	p, err := NewPlan(PlanSpec{ID: "i", CreatedAt: planTime})
	if err != nil {
		f.Fatal(err)
	}
	data, err := p.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePlan(data, planTime)
		if err != nil {
			return
		}
		if again, err := p.Encode(); err != nil || !bytes.Equal(again, data) {
			t.Errorf("accepted a file that it would not write: %q", data)
		}
	})
}

func TestAPlanOfTheFutureIsNoPlan(t *testing.T) {
	t.Parallel()
	p, err := NewPlan(PlanSpec{ID: "i", CreatedAt: planTime, Limits: DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodePlan(data, planTime.Add(-time.Hour)); !errors.Is(err, ErrPlanAltered) {
		t.Errorf("a plan made an hour from now: %v", err)
	}
	if _, err := DecodePlan(data, planTime.Add(-time.Minute)); err != nil {
		t.Errorf("a clock that is a minute ahead: %v", err)
	}
}
