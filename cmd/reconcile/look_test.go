package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rocketkeep/reconcile/reconcile"
)

// demoStores is a folder of damaged stores.
func demoStores(t *testing.T) string {
	t.Helper()
	stores := filepath.Join(t.TempDir(), "stores")
	if _, err := plantDemo(stores); err != nil {
		t.Fatal(err)
	}
	return stores
}

func rows(t *testing.T, reports, kind string) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(reports, "report="+kind, "*", "*", "*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: files %q, %v", kind, files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	p, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return p.NumRows()
}

func TestReportsHoldWhatTheDocumentCounts(t *testing.T) {
	t.Parallel()
	stores, reports := demoStores(t), filepath.Join(t.TempDir(), "deep", "reports")
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "reports: {uri: " + reports + ", references: true}\nstores: [{name: lab, uri: " + stores + "}]\nverify: {confirm_after: 10ms}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := invoke(t, "", "check", "--config", file, "--output", "json")
	if code != reconcile.ExitDivergence || errs != "" {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	var doc struct {
		Mode      string
		ReportURI string `json:"report_uri"`
		Coverage  struct{ References int64 }
		Targets   []struct{ Store string }
		Findings  []struct{ Store string }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Mode != "off" || doc.ReportURI == "" || doc.Coverage.References < 40 {
		t.Errorf("mode %q, report %q, %d references", doc.Mode, doc.ReportURI, doc.Coverage.References)
	}
	for _, x := range append(doc.Targets, doc.Findings...) {
		if x.Store != "lab" {
			t.Errorf("store %q, want the configured name", x.Store)
		}
	}
	for kind, want := range map[string]int64{"findings": int64(len(doc.Findings)), "targets": int64(len(doc.Targets)), "references": doc.Coverage.References, "passes": 1, "repairs": 0} {
		if got := rows(t, reports, kind); got != want {
			t.Errorf("%s: %d rows, the document counts %d", kind, got, want)
		}
	}
}

// A plan judges targets differently from a look; its report says the same as its
// document.
func TestThePlansReportSaysRefused(t *testing.T) {
	t.Parallel()
	stores, out := demoStores(t), filepath.Join(t.TempDir(), "plan.json")
	code, text, errs := invoke(t, "", "plan", stores, "-o", out, "--confirm-after=1s", "--output=json", "--max-fragments=0", "--target=exp-000[13]", "--reason=drill")
	if code != reconcile.ExitRefused {
		t.Errorf("exit %d\n%s", code, errs)
	}
	var doc struct {
		Mode, Reason string
		Targets      []struct{ Target, State string }
		Totals       map[string]any
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	for _, x := range doc.Targets {
		if x.State != "refused" {
			t.Errorf("%s is %s", x.Target, x.State)
		}
	}
	if len(doc.Targets) != 2 || doc.Totals["targets_refused"] != 2.0 || doc.Totals["targets_diverged"] != 0.0 || doc.Mode != "full" || doc.Reason != "drill" {
		t.Errorf("%+v", doc)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := reconcile.DecodePlan(data, time.Now()); err != nil || p.Len() != 0 || p.Limits().MaxFragments != 0 {
		t.Errorf("plan of %d steps, limits %+v, %v", p.Len(), p.Limits(), err)
	}
}

func TestAReportThatCannotBeWrittenIsAFailureAndTheResultIsPrinted(t *testing.T) {
	t.Parallel()
	stores := demoStores(t)
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := invoke(t, "", "check", stores, "--report", filepath.Join(blocked, "reports"), "--target", "exp-0004")
	if code != reconcile.ExitFailed || errs == "" {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestPatternsMayNameAConfiguredStore(t *testing.T) {
	t.Parallel()
	stores := demoStores(t)
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("stores: [{name: lab, uri: "+stores+"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]reconcile.ExitCode{"lab/exp-0004": 0, "lab/table:notes": 0, "exp-0004": 0, "other/*": 1} {
		if code, _, errs := invoke(t, "", "check", "--config", file, "--target", pattern, "--confirm-after=0s"); code != want {
			t.Errorf("%s: exit %d, want %d\n%s", pattern, code, want, errs)
		}
	}
}
