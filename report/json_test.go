package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

func jsonOf(t *testing.T, p reconcile.Pass) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTheDocumentOfAFullPass(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/pass.json", jsonOf(t, fullPass(t)))
}

// The contract's member names, written out once more: a renamed tag must fail.
func TestTheDocumentHasTheMembersOfTheContract(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal(jsonOf(t, fullPass(t)), &doc); err != nil {
		t.Fatal(err)
	}
	first := func(k string) any { return doc[k].([]any)[0] }
	totals := doc["totals"].(map[string]any)
	for _, c := range []struct {
		name string
		at   any
		want string
	}{
		{"pass", doc, "pass_id mode tool_version actor host reason started_at finished_at exit scope coverage totals targets findings repairs posts merges"},
		{"exit", doc["exit"], "code name"},
		{"scope", doc["scope"], "versions depth roles targets_filter"},
		{"coverage", doc["coverage"], "references checked ratio"},
		{"totals", totals, "targets targets_clean targets_diverged targets_repaired targets_incomplete targets_refused targets_unreadable targets_pending targets_cooling_down targets_half_deleted targets_rolled_back targets_locked targets_failed references checked verdicts flapped deferred refetch_deferred findings_carried rows_at_risk rows_dropped bytes_restored requests"},
		{"verdicts", totals["verdicts"], "present missing recoverable lost size_mismatch checksum_mismatch unreadable archived pending superseded denied undecided"},
		{"requests", totals["requests"], "head get list put throttled retried"},
		{"target", first("targets"), "target store kind uri version state reason references checked findings rows_at_risk live_rows fragments pending_generations leaked_generations leaked_bytes registry not_checked"},
		{"not_checked", first("targets").(map[string]any)["not_checked"].([]any)[0], "role count reason"},
		{"finding", first("findings"), "finding_id target store version scopes role path url fragment_id record verdict reason expected_size observed_size expected_checksum observed_checksum physical_rows rows_at_risk columns_lost columns_kept http_status error_code request_id first_observed_at confirmed_at recoverable_until peers_asked peers_having proposed_action blocked_by"},
		// store stands there beyond the contract: names repeat over stores.
		{"repair", first("repairs"), "repair_id target store action state trigger trigger_error read_version committed_version transaction_uuid fragments files rows_dropped bytes_restored source proof duration_ms error"},
		{"fragment", first("repairs").(map[string]any)["fragments"].([]any)[0], "id physical_rows live_rows missing_files"},
		{"post", first("posts"), "repair_id target store url state attempts status error"},
		{"merge", first("merges"), "target store endpoint status reclaimed error duration_ms"},
	} {
		want := strings.Fields(c.want)
		var got []string
		for k := range c.at.(map[string]any) {
			got = append(got, k)
		}
		slices.Sort(want)
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-contract +document):\n%s", c.name, d)
		}
	}
}

func TestArraysAreNeverNullAndTheCallersPassStaysAsItIs(t *testing.T) {
	t.Parallel()
	p := reconcile.Pass{
		Targets:  []reconcile.TargetResult{{}},
		Findings: []reconcile.Finding{{}},
		Repairs:  []reconcile.RepairOutcome{{}, {Fragments: []reconcile.RepairFragment{{}}}},
	}
	arrays := []string{"roles", "targets_filter", "not_checked", "scopes", "columns_lost", "columns_kept", "peers_asked", "peers_having", "blocked_by", "missing_files", "files"}
	out := jsonOf(t, p)
	for _, a := range arrays {
		if bytes.Contains(out, []byte(`"`+a+`": null`)) || !bytes.Contains(out, []byte(`"`+a+`": [`)) {
			t.Errorf("%s is null or not there", a)
		}
	}
	// A target has a member of this name that is a number.
	if repairs := out[bytes.Index(out, []byte(`"repairs": [`)):]; bytes.Contains(repairs, []byte(`"fragments": null`)) {
		t.Error("fragments of a repair are null")
	}
	for _, a := range []string{"targets", "findings", "repairs", "posts", "merges"} {
		if empty := jsonOf(t, reconcile.Pass{}); !bytes.Contains(empty, []byte(`"`+a+`": []`)) {
			t.Errorf("%s of an empty pass is not []", a)
		}
	}
	if p.Findings[0].Scopes != nil || p.Repairs[1].Fragments[0].MissingFiles != nil || p.Targets[0].NotChecked != nil {
		t.Error("the caller's pass was changed")
	}
}

func TestTimesAreUTCAndUnknownVersionsNull(t *testing.T) {
	t.Parallel()
	out := string(jsonOf(t, fullPass(t)))
	if strings.Contains(out, "-05:00") || !strings.Contains(out, `"started_at": "2026-01-31T04:30:00.123456Z"`) {
		t.Error("a time is not in UTC")
	}
	var doc struct {
		Findings []struct {
			Path    string
			Version *uint64
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.Findings {
		if (f.Path == "x/ü.bin") != (f.Version == nil) {
			t.Errorf("%s has version %v", f.Path, f.Version)
		}
	}
	// A path that looks like the member must not be touched by the rewrite.
	f := reconcile.Finding{Target: `"version":0,`, Path: `"version":0,`}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(b, &back); err != nil || back["path"] != f.Path || back["target"] != f.Target || back["version"] != nil {
		t.Errorf("marshalled as %s (%v)", b, err)
	}
}

func TestFindingsBeyondTenThousandAreCutAndSaidSo(t *testing.T) {
	t.Parallel()
	p := fullPass(t)
	p.ReportURI = ptr("s3://ops/x.parquet")
	one := p.Findings[0]
	for _, c := range []struct {
		n, want   int
		truncated bool
	}{{MaxJSONFindings, MaxJSONFindings, false}, {MaxJSONFindings + 1, MaxJSONFindings, true}} {
		p.Findings = slices.Repeat([]reconcile.Finding{one}, c.n)
		var doc struct {
			Findings  []json.RawMessage `json:"findings"`
			Truncated *bool             `json:"findings_truncated"`
			URI       string            `json:"report_uri"`
		}
		if err := json.Unmarshal(jsonOf(t, p), &doc); err != nil {
			t.Fatal(err)
		}
		if len(doc.Findings) != c.want || (doc.Truncated != nil && *doc.Truncated) != c.truncated || doc.URI != "s3://ops/x.parquet" {
			t.Errorf("%d findings: %d written, truncated %v, report %q", c.n, len(doc.Findings), doc.Truncated, doc.URI)
		}
		if len(p.Findings) != c.n {
			t.Error("the caller's findings were cut")
		}
	}
}

type brokenPipe struct{}

var errPipe = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }

func TestAWriterThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	if err := JSON(brokenPipe{}, cleanPass(t)); !errors.Is(err, errPipe) {
		t.Errorf("json: %v", err)
	}
	if err := Text(brokenPipe{}, cleanPass(t), TextOptions{}); !errors.Is(err, errPipe) {
		t.Errorf("text: %v", err)
	}
}

// Findings are written one by one; the bytes are those of an encoder that has them all.
func TestFindingsAreWrittenAsOneEncoderWouldWriteThem(t *testing.T) {
	t.Parallel()
	full := fullPass(t)
	full.Reason = ptr("\n  \"findings\": []")
	for _, n := range []int{0, 1, len(full.Findings)} {
		p := full
		p.Findings = full.Findings[:n]
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(document(p)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), string(jsonOf(t, p))); diff != "" {
			t.Errorf("with %d findings (-one encoder +got):\n%s", n, diff)
		}
	}
}
