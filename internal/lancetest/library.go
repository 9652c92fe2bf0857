package lancetest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Probed is what the real library says about a table.
type Probed struct {
	Root    string `json:"root"`
	Version uint64 `json:"version"`
	// Rows is the library's count, Scanned the number of rows that a full read
	// yields; they differ when files are lost or metadata lies.
	Rows    int64 `json:"rows"`
	Scanned int64 `json:"scanned"`
	// Sample holds up to three rows: values as text by column name, nil for null.
	Sample   []map[string]*string `json:"sample"`
	Versions []uint64             `json:"versions"`
	Indexes  []string             `json:"indexes"`
	Tags     map[string]uint64    `json:"tags"`
	Branches map[string]struct {
		Version uint64 `json:"version"`
		Rows    int64  `json:"rows"`
		Scanned int64  `json:"scanned"`
	} `json:"branches"`
	// Error is the first error met, empty when there was none.
	Error string `json:"error"`
}

// Probe asks the newest pinned release of the real library about local tables.
// It needs node and the npm package, found in $RECONCILE_TEST_LANCEDB, in
// e2e/fixtures, or where e2e/fixtures/make.sh installs it. Without them, and with
// -short, the test is skipped; it fails instead when $RECONCILE_TEST_REQUIRE lists
// "lance".
func Probe(t testing.TB, roots ...string) []Probed {
	t.Helper()
	lib, script := library(t)
	cmd := exec.CommandContext(t.Context(), "node", slices.Concat([]string{script, "--lib", lib}, roots)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("probe: %v\n%s", err, stderr.String())
	}
	var out []Probed
	for dec := json.NewDecoder(&stdout); dec.More(); {
		var p Probed
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("probe: decode answer: %v", err)
		}
		out = append(out, p)
	}
	if len(out) != len(roots) {
		t.Fatalf("probe: %d answers for %d tables\n%s", len(out), len(roots), stderr.String())
	}
	return out
}

const newestRelease = "0.39.0"

func library(t testing.TB) (lib, script string) {
	t.Helper()
	module, err := moduleDir()
	if err != nil {
		t.Fatal(err)
	}
	fixtures := filepath.Join(module, "e2e", "fixtures")
	places := []string{os.Getenv("RECONCILE_TEST_LANCEDB"), fixtures}
	if cache, err := os.UserCacheDir(); err == nil {
		places = append(places, filepath.Join(cache, "reconcile", "lancedb", newestRelease))
	}
	required := slices.Contains(strings.Split(os.Getenv("RECONCILE_TEST_REQUIRE"), ","), "lance")
	if testing.Short() && !required {
		t.Skip("the real library is not asked with -short")
	}
	_, noNode := exec.LookPath("node")
	for _, dir := range places {
		if dir == "" || noNode != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "node_modules", "@lancedb", "lancedb")); err == nil {
			return dir, filepath.Join(fixtures, "probe.mjs")
		}
	}
	if required {
		t.Fatal("the real library is required but node or @lancedb/lancedb is not found; set RECONCILE_TEST_LANCEDB or run npm install --no-save in e2e/fixtures")
	}
	t.Skip("node or @lancedb/lancedb not found; set RECONCILE_TEST_LANCEDB or run npm install --no-save in e2e/fixtures")
	return "", ""
}

// Library is the folder of the newest pinned release of the real library. Without
// one the test is skipped or fails, as in Probe.
func Library(t testing.TB) string {
	t.Helper()
	lib, _ := library(t)
	return lib
}
