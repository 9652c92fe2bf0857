package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Between a plan and its apply a record goes, changes, or the object comes back. What
// still holds is carried out, never more; a plan of which nothing holds is refused, and the
// ledger has that.
func TestACopyPlanThatNoLongerHoldsIsRefused(t *testing.T) {
	t.Parallel()
	older, newer := bytes.Repeat([]byte("o"), 4000), bytes.Repeat([]byte("n"), 4100)
	for _, tt := range []struct {
		name string
		// keys are missing when the plan is made; now is what becomes of the first.
		keys []string
		now  string
		code reconcile.ExitCode
		// repairs are "action state files".
		repairs []string
		stored  []string
	}{
		{"one record is removed", []string{"k"}, "removed", reconcile.ExitRefused, []string{"refetch refused [k]"}, nil},
		{"one record changed", []string{"k"}, "changed", reconcile.ExitRefused, []string{"refetch refused [k]"}, nil},
		{"one object came back", []string{"k"}, "healed", reconcile.ExitRefused, []string{"refetch refused [k]"}, []string{"k"}},
		{"nothing changed", []string{"k"}, "", reconcile.ExitClean, []string{"refetch applied [k]"}, []string{"k"}},
		{"one of two records is removed", []string{"k", "l"}, "removed", reconcile.ExitClean, []string{"refetch applied [l]"}, []string{"l"}},
		{"one of two records changed", []string{"k", "l"}, "changed", reconcile.ExitDivergence, []string{"refetch applied [l]"}, []string{"l"}},
		{"one of two objects came back", []string{"k", "l"}, "healed", reconcile.ExitClean, []string{"refetch applied [l]"}, []string{"k", "l"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put := func(name string, data []byte) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			refs := func(recorded map[string][]byte) {
				t.Helper()
				var out strings.Builder
				out.WriteString("key,size,checksum\n")
				for _, k := range append([]string{"ok"}, tt.keys...) {
					if data, named := recorded[k]; named {
						sum := sha256.Sum256(data)
						fmt.Fprintf(&out, "%s,%d,sha256:%s\n", k, len(data), hex.EncodeToString(sum[:]))
					}
				}
				put("refs.csv", []byte(out.String()))
			}
			put("att/ok", older)
			recorded := map[string][]byte{"ok": older}
			for _, k := range tt.keys {
				put("peer/"+k, older)
				recorded[k] = older
			}
			refs(recorded)
			put("c.yaml", fmt.Appendf(nil, "blobs:\n  - name: b\n    uri: %q\n    references: {csv: {uri: %q, key: key, size: size, checksum: checksum}}\n    peers: [%q]\nverify: {confirm_after: 1s, pending_max_age: 0s}\ndatabase: %q\n",
				dir+"/att", dir+"/refs.csv", dir+"/peer", "sqlite:"+dir+"/ledger.db"))
			runIn(t, dir, nil, "plan", "--config", "c.yaml", "-o", "plan.json").exit(reconcile.ExitDivergence)
			switch tt.now {
			case "removed":
				delete(recorded, "k")
				refs(recorded)
			case "changed":
				recorded["k"] = newer
				refs(recorded)
				put("peer/k", newer) // what a repair without the plan would bring back
			case "healed":
				put("att/k", older)
			}
			doc := runIn(t, dir, nil, "apply", "plan.json", "--config", "c.yaml", "--output", "json").exit(tt.code).pass()
			var repairs []string
			for _, r := range doc.Repairs {
				repairs = append(repairs, fmt.Sprintf("%v %v %v", r["action"], r["state"], r["files"]))
				if why, _ := r["error"].(string); r["state"] == "refused" && !strings.HasPrefix(why, "plan_stale: ") {
					t.Errorf("refused for %q", why)
				}
			}
			if d := cmp.Diff(tt.repairs, repairs); d != "" {
				t.Errorf("repairs (-want +got):\n%s", d)
			}
			listed := runIn(t, dir, nil, "repairs", "--config", "c.yaml", "--output", "json").exit(reconcile.ExitClean).stdout
			if strings.Count(listed, `"repair_id"`) != len(tt.repairs) {
				t.Errorf("the ledger lists %s", listed)
			}
			if tt.now == "" {
				r := runIn(t, dir, nil, "undo", doc.Repairs[0]["repair_id"].(string), "--config", "c.yaml").exit(reconcile.ExitUsage)
				if strings.Contains(r.stderr, "index") || !strings.Contains(r.stderr, "refetch: it gave nothing up") {
					t.Errorf("the undo of a copy says %s", r.stderr)
				}
			}
			var stored []string
			for _, k := range tt.keys {
				if data, err := os.ReadFile(filepath.Join(dir, "att", k)); err == nil {
					stored = append(stored, k)
					if !bytes.Equal(data, older) {
						t.Errorf("%s is not what was planned", k)
					}
				}
			}
			if !slices.Equal(tt.stored, stored) {
				t.Errorf("stored are %q, want %q", stored, tt.stored)
			}
		})
	}
}
