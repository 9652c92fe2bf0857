package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// A collection whose bucket or folder is not there is what a store is whose root is not
// there: the place is wrong, and nothing is said of its blobs. The others are looked at
// all the same. A root that is there and holds none of them says nothing either, and the
// place may well be right.
func TestACollectionWithoutItsRootCouldNotBeLookedAt(t *testing.T) {
	t.Parallel()
	failed := []string{"blobs:gone blob undecided "}
	each := []string{"blobs:gone blob undecided a", "blobs:gone blob undecided b"}
	for _, tt := range []struct {
		name, uri string // of DIR and BUCKET
		exit      reconcile.ExitCode
		state     string
		reason    string
		findings  []string
	}{
		{"a folder that is absent", "DIR/gone", 1, "failed", "no_such_bucket", failed},
		{"a folder below one that is absent", "DIR/gone/deeper", 1, "failed", "no_such_bucket", failed},
		{"a file in the place of the folder", "DIR/refs.csv", 1, "failed", "no_such_bucket", failed},
		{"a bucket that is absent", "s3://nowhere/att", 1, "failed", "no_such_bucket", failed},
		{"a bucket that is absent, without a prefix", "s3://nowhere", 1, "failed", "no_such_bucket", failed},
		{"a folder that is empty", "DIR/empty", 4, "incomplete", "controls_failed", each},
		{"a prefix that holds nothing", "s3://BUCKET/empty", 4, "incomplete", "controls_failed", each},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, dir := servertest.S3(t), t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
				t.Fatal(err)
			}
			write("refs.csv", "key\na\nb\n")
			write("here/a", "x")
			write("here/b", "x")
			uri := strings.NewReplacer("DIR", dir, "BUCKET", s.Bucket).Replace(tt.uri)
			write("reconcile.yaml", fmt.Sprintf(`database: %q
blobs:
  - {name: gone, uri: %q, references: {csv: {uri: %q, key: key}}}
  - {name: here, uri: %q, references: {csv: {uri: %q, key: key}}}
verify: {confirm_after: 1s, pending_max_age: 0s}
`, "sqlite:"+filepath.Join(dir, "ledger.db"), uri, filepath.Join(dir, "refs.csv"), filepath.Join(dir, "here"), filepath.Join(dir, "refs.csv")))
			for _, args := range [][]string{{"check"}, {"run", "--mode", "full"}} {
				d := runIn(t, dir, s.Env(), append(args, "--config", filepath.Join(dir, "reconcile.yaml"), "--output", "json", "--request-timeout", "2s")...).exit(tt.exit).pass()
				states := map[string]string{}
				for _, x := range d.Targets {
					states[x.Target] = strings.TrimSpace(x.State + " " + text(x.Reason))
				}
				want := map[string]string{"blobs:gone": tt.state + " " + tt.reason, "blobs:here": "clean"}
				if diff := cmp.Diff(want, states); diff != "" {
					t.Errorf("%v: targets (-want +got)\n%s", args, diff)
				}
				if diff := cmp.Diff(tt.findings, d.brief()); diff != "" {
					t.Errorf("%v: findings (-want +got)\n%s", args, diff)
				}
			}
		})
	}
}
