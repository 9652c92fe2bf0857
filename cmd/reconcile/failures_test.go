package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

func TestWhatIsNoFailureIsNotTakenIn(t *testing.T) {
	t.Parallel()
	db := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	for name, tt := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"no kind":                  {"", []string{"--target", "x", "--error", "e"}, "--kind"},
		"a kind of two words":      {"", []string{"--kind", "merge wal", "--target", "x", "--error", "e"}, "no word"},
		"a kind that is an option": {"", []string{"--kind", "-x", "--target", "x", "--error", "e"}, "no word"},
		"a kind without end":       {"", []string{"--kind", strings.Repeat("k", 65), "--target", "x", "--error", "e"}, "no word"},
		"a target of two lines":    {"", []string{"--kind", "compact", "--target", "x\ny", "--error", "e"}, "one line"},
		"no text":                  {"", []string{"--kind", "compact", "--target", "x"}, "--error"},
		"an empty text":            {" \n", []string{"--kind", "compact", "--target", "x", "--error", "-"}, "empty"},
		"nobody that it is about":  {"", []string{"--kind", "compact", "--error", "connection reset"}, "--target"},
		"a word too many":          {"", []string{"--kind", "compact", "--target", "x", "--error", "e", "more"}, "takes no arguments"},
	} {
		code, out, errs := invoke(t, tt.stdin, append([]string{"failures", "add", "--database", db}, tt.args...)...)
		if code != reconcile.ExitUsage || out != "" || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
	if code, _, errs := invoke(t, "", "failures", "--database", db); code != reconcile.ExitFailed || !strings.Contains(errs, "no ledger") {
		t.Errorf("a ledger was made: exit %d, %s", code, errs)
	}
}

func TestFailuresAreHandedInCountedAndListed(t *testing.T) {
	t.Parallel()
	db := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	ok := func(stdin string, args ...string) string {
		t.Helper()
		code, out, errs := invoke(t, stdin, append(args, "--database", db)...)
		if code != reconcile.ExitClean || errs != "" {
			t.Fatalf("%q: exit %d, %s", args, code, errs)
		}
		return out
	}
	text := "lance error: Not found: srv/data/x.generic.lance/_indices/569c6300-b0b7-47ac-89a1-91e285268c69/page_data.lance token=hunter2"
	if out := ok("", "failures", "add", "--kind", "index_id", "--error", text); out != "handed in: index_id of generic:x; the text speaks of: index missing\n" {
		t.Error(out)
	}
	ok(text+"\n", "failures", "add", "--kind", "index_id", "--error", "-", "--output", "json")
	ok("", "failures", "add", "--kind", "scan", "--target", "y", "--error", "first line\nsecond line "+strings.Repeat("long ", 40))
	list := ok("", "failures")
	if n := strings.Count(list, "\n"); n != 3 || !strings.Contains(list, "generic:x") || !strings.Contains(list, "first line second line") || strings.Contains(list, "hunter2") {
		t.Errorf("%d lines:\n%s", n, list)
	}
	var rows []struct {
		Target    *string
		SeenCount int `json:"seen_count"`
		State     string
		HandledAt *string `json:"handled_at"`
		Hint      struct{ Role, Damage, Target, Path string }
	}
	out := ok("", "failures", "--target", "generic:*", "--output", "json")
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 || strings.Contains(out, "hunter2") {
		t.Fatalf("%v\n%s", err, out)
	}
	r := rows[0]
	if r.Target != nil || r.SeenCount != 2 || r.State != "open" || r.HandledAt != nil || r.Hint.Role != "index" || r.Hint.Damage != "missing" || r.Hint.Target != "generic:x" || r.Hint.Path == "" {
		t.Errorf("%+v", r)
	}
	if out := ok("", "failures", "--state", "handled", "--output", "json"); strings.TrimSpace(out) != "[]" {
		t.Error(out)
	}
	if out := ok("", "failures", "--limit", "1", "--target", "*", "--output", "json"); strings.Count(out, "failure_id") != 1 {
		t.Error(out)
	}
}

func TestATextThatNamesDamageAndNoObject(t *testing.T) {
	t.Parallel()
	db := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	code, out, errs := invoke(t, "", "failures", "add", "--kind", "scan", "--target", "x", "--error", "failed to fill whole buffer", "--database", db)
	if want := "handed in: scan of x; the text speaks of: truncated\n"; code != reconcile.ExitClean || out != want {
		t.Errorf("exit %d, %q, want %q\n%s", code, out, want, errs)
	}
}
