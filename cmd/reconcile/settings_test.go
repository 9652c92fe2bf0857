package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
)

func parseSettings(t *testing.T, yaml string, args ...string) *settings {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var f lookFlags
	cmd := &cobra.Command{Use: "check"}
	f.add(cmd.Flags())
	if err := cmd.ParseFlags(append(args, "--config", file)); err != nil {
		t.Fatal(err)
	}
	s, err := f.settings(cmd, cmd.Flags().Args())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const twoStores = `
stores:
- {name: a, uri: s3://bucket/a, versions: all, commit: external, s3: {endpoint: "http://h:1", region: eu}}
- {name: b, uri: /srv/b, versioning: none}
verify: {depth: footer, concurrency: 7, confirm_after: 2s, min_manifest_age: 3s, target_timeout: 4s, max_requests_per_second: 5}
reports: {uri: s3://ops/r, references: true}
repair: {max_fragments: 6, deletion_files: drop_fragment}
`

func TestTheConfigurationSpeaksWhereNoFlagDoes(t *testing.T) {
	t.Parallel()
	s := parseSettings(t, twoStores)
	by := factory.S3Options{Endpoint: "http://h:1", Region: "eu"}
	want := []place{
		{uri: "s3://bucket/a", name: "a", s3: by, versions: reconcile.VersionsAll, external: true},
		{uri: "/srv/b", name: "b", noVersioning: true},
	}
	if d := cmp.Diff(want, s.places, cmp.AllowUnexported(place{})); d != "" {
		t.Errorf("places (-want +got):\n%s", d)
	}
	if s.depth != reconcile.DepthFooter || s.concurrency != 7 || s.confirmAfter != 2*time.Second || s.minManifestAge != 3*time.Second || s.targetTimeout != 4*time.Second {
		t.Errorf("%+v", s)
	}
	if s.reportURI != "s3://ops/r" || !s.references || s.policy.Limits.MaxFragments != 6 || !s.policy.DropForLostDeletionFile {
		t.Errorf("%+v", s)
	}
	if s.stores.MaxRequestsPerSecond != 5 {
		t.Errorf("stores %+v", s.stores)
	}
	over := []factory.Override{{Root: "s3://bucket/a", S3: by}}
	if d := cmp.Diff(over, s.stores.PerPrefix); d != "" {
		t.Errorf("overrides (-want +got):\n%s", d)
	}
	if s.scope().Versions != reconcile.VersionsAll {
		t.Errorf("scope %+v", s.scope())
	}
}

func TestFlagsWinOverTheConfiguration(t *testing.T) {
	t.Parallel()
	s := parseSettings(t, twoStores, "s3://bucket/a/deep", "--depth=head", "--concurrency", "9", "--confirm-after=1m", "--min-manifest-age=0s", "--report=/r", "--versions=current", "--target", "x,y", "--exclude", "z")
	want := []place{{uri: "s3://bucket/a/deep", external: true}}
	if d := cmp.Diff(want, s.places, cmp.AllowUnexported(place{})); d != "" {
		t.Errorf("places (-want +got):\n%s", d)
	}
	if s.depth != reconcile.DepthHead || s.concurrency != 9 || s.confirmAfter != time.Minute || s.minManifestAge != 0 || s.reportURI != "/r" {
		t.Errorf("%+v", s)
	}
	sc := s.scope()
	if d := cmp.Diff([]string{"x,y", "!z", "s3://bucket/a/deep"}, sc.TargetsFilter); d != "" {
		t.Errorf("filter (-want +got):\n%s", d)
	}
}

func TestSuggestedCommandsRepeatTheFlagsOfALook(t *testing.T) {
	t.Parallel()
	var f lookFlags
	var p repairFlags
	cmd := &cobra.Command{Use: "plan"}
	f.add(cmd.Flags())
	p.add(cmd.Flags(), modeFull)
	if err := cmd.ParseFlags([]string{"--mode=restore", "--dry-run", "--confirm-after", "5s", "--target", "a", "--target", "b c", "--max-fragments", "3", "--writers-stopped"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"--confirm-after=5s", "--target=a", "--target=b c"}, givenFlags(cmd.Flags(), new(lookFlags).add)); d != "" {
		t.Errorf("of the look (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"--max-fragments=3", "--writers-stopped=true"}, givenFlags(cmd.Flags(), repairFlagsToRepeat)); d != "" {
		t.Errorf("of the repair (-want +got):\n%s", d)
	}
}

func TestAURIFollowsTheNearestStoreThatHoldsIt(t *testing.T) {
	t.Parallel()
	stores := []config.Store{{Name: "outer", URI: "s3://b"}, {Name: "inner", URI: "s3://b/x"}, {Name: "other", URI: "s3://b/xy"}}
	for uri, want := range map[string]string{"s3://b/x/t.lance": "inner", "s3://b/x": "inner", "s3://b/xyz": "outer", "s3://b/xy/": "other", "s3://c/x": "", "/b/x": ""} {
		loc, err := objstore.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if s := coveringStore(stores, loc); s != nil {
			got = s.Name
		}
		if got != want {
			t.Errorf("%s follows %q, want %q", uri, got, want)
		}
	}
}
