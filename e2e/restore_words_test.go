package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// An object that was overwritten is restored from its older version, whatever lies there
// now: a store tells least of an empty object, which no range of bytes can be read from.
func TestWhatWasOverwrittenComesBackFromAnOlderVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"by nothing at all", []byte{}},
		{"by ten bytes", []byte("0123456789")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Versitygw(t)
			s.EnableVersions(t)
			l := newLadder(t, s)
			s.Put(t, "r/t.lance/"+l.lost, c.data)
			l.healed(l.run().exit(0).pass(), "restore", "version ")
		})
	}
}

// A repair that was refused because it would lose bytes is made by the next pass, once
// there is a place to keep them.
func TestAQuarantineIsEnoughForWhatWasRefused(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	l := newLadder(t, s, "s3://"+s.Bucket+"/p1")
	l.upload("p1/t.lance")
	s.Put(t, "r/t.lance/"+l.lost, []byte("0123456789"))
	d := l.run().exit(5).pass()
	if len(d.Repairs) != 1 || d.Repairs[0]["state"] != "refused" || strings.Count(d.Repairs[0]["error"].(string), "replace_would_lose_bytes") != 1 {
		t.Fatalf("repairs %v", d.Repairs)
	}
	text, err := os.ReadFile(l.config)
	if err != nil {
		t.Fatal(err)
	}
	keeps := strings.Replace(string(text), "repair: {", fmt.Sprintf("repair: {quarantine: %q, ", "s3://"+s.Bucket+"/kept"), 1)
	if err := os.WriteFile(l.config, []byte(keeps), 0o600); err != nil || keeps == string(text) {
		t.Fatalf("the configuration is as it was, %v", err)
	}
	l.healed(l.run().exit(0).pass(), "refetch", "/p1")
}

// A restore whose versions are no good is not tried in every pass, and the text says
// until when it waits.
func TestARestoreThatFailedIsLeftAloneForAWhile(t *testing.T) {
	t.Parallel()
	s := servertest.Versitygw(t)
	s.EnableVersions(t)
	l := newLadder(t, s)
	key := "r/t.lance/" + l.lost
	whole, bad := l.read(l.lost), spoilt(l.read(l.lost))
	l.remove(key)
	for id := range l.versions(key) {
		s.RemoveVersion(t, key, id)
	}
	s.Put(t, key, bad)
	l.remove(key)
	if d := l.run().exit(3).pass(); len(d.Repairs) != 1 || d.Repairs[0]["state"] != "failed" {
		t.Fatalf("the first pass: %v %v", d.brief(), d.Repairs)
	}
	d := l.run().exit(3).pass()
	if len(d.Repairs) != 0 || len(d.Findings) != 1 || d.Findings[0].ProposedAction != "restore" || !slices.Equal(d.Findings[0].BlockedBy, []string{"cooling_down"}) {
		t.Errorf("the second pass: %+v, repairs %v", d.Findings, d.Repairs)
	}
	out := runIn(t, l.dir, s.Env(), "run", "--config", l.config, "--progress", "never").exit(3).stdout
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "the next is due at") || !strings.Contains(out, "reconcile repair "+s.URI("r/t.lance")) {
		t.Errorf("the text does not say when, or what tries at once:\n%s", out)
	}
	byName := []string{"repair", s.URI("r/t.lance"), "--mode", "restore", "--config", l.config, "--output", "json"}
	if d := runIn(t, l.dir, s.Env(), byName...).exit(3).pass(); len(d.Repairs) != 1 {
		t.Errorf("by name: %v %v", d.brief(), d.Repairs)
	}
	s.Put(t, key, whole)
	l.remove(key)
	if d := runIn(t, l.dir, s.Env(), byName...).exit(0).pass(); len(d.Repairs) == 0 {
		t.Errorf("by name, with a good version: %v", d.brief())
	}
	if d := l.run().exit(0).pass(); len(d.Findings) != 0 {
		t.Errorf("at last: %v", d.brief())
	}
}

// versions are the ids of a key's versions and markers.
func (l *ladder) versions(key string) map[string]bool {
	l.t.Helper()
	out, err := l.s.Client().ListObjectVersions(l.t.Context(), &s3.ListObjectVersionsInput{Bucket: &l.s.Bucket, Prefix: &key})
	if err != nil {
		l.t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, v := range out.Versions {
		ids[*v.VersionId] = true
	}
	for _, m := range out.DeleteMarkers {
		ids[*m.VersionId] = true
	}
	return ids
}

// versioned is a real dataset in a bucket that keeps versions.
func versioned(t *testing.T, fixture string) *ladder {
	t.Helper()
	s := servertest.Versitygw(t)
	s.EnableVersions(t)
	l := newLadder(t, s)
	l.local = lancetest.CopyFixture(t, fixture, filepath.Join(l.dir, "other"))
	for _, key := range s.Keys(t, "r/t.lance/") {
		l.remove(key)
		for id := range l.versions(key) {
			s.RemoveVersion(t, key, id)
		}
	}
	l.upload("r/t.lance")
	return l
}

// glob is the first file of the dataset that a pattern names.
func (l *ladder) glob(pattern string) string {
	l.t.Helper()
	files, err := filepath.Glob(filepath.Join(l.local, filepath.FromSlash(pattern)))
	if err != nil || len(files) == 0 {
		l.t.Fatalf("nothing is called %s, %v", pattern, err)
	}
	rel, err := filepath.Rel(l.local, files[0])
	if err != nil {
		l.t.Fatal(err)
	}
	return filepath.ToSlash(rel)
}

// What no repair brings back is not promised: neither by check, nor by the run after it,
// which tries nothing.
func TestOnlyWhatARepairCanRestoreIsPromised(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, fixture, file string
		action              string
		blocked             []string
		text                string
	}{
		{"a generation's manifest", "0.39.0/memwal", "_mem_wal/*/*_gen_*/_versions/*.manifest", "none", []string{}, "aws s3api copy-object --bucket bucket --key r/t.lance/_mem_wal/"},
		{"a generation's key index", "0.39.0/memwal", "_mem_wal/*/*_gen_*/_pk_index/page_data.lance", "restore", []string{"replace_unproven"}, "two peers that hold the same bytes"},
		{"a blob sidecar", "0.39.0/blob", "data/*/*.blob", "restore", []string{"replace_unproven"}, "two peers that hold the same bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := versioned(t, c.fixture)
			file := l.glob(c.file)
			l.remove("r/t.lance/" + file)
			holds := func(d document) {
				t.Helper()
				if len(d.Repairs) != 0 || len(d.Findings) != 1 || d.Findings[0].Verdict != "recoverable" || d.Findings[0].ProposedAction != c.action || !slices.Equal(d.Findings[0].BlockedBy, c.blocked) {
					t.Errorf("%+v, repairs %v", d.Findings, d.Repairs)
				}
			}
			check := []string{"check", "--config", l.config}
			holds(runIn(t, l.dir, l.s.Env(), append(check, "--output", "json")...).exit(3).pass())
			out := strings.Join(strings.Fields(runIn(t, l.dir, l.s.Env(), append(check, "--progress", "never")...).exit(3).stdout), " ")
			if !strings.Contains(out, c.text) || !strings.Contains(out, "aws s3api copy-object") || !strings.Contains(out, "?versionId=") || strings.Contains(out, "Other bytes are there") {
				t.Errorf("the text:\n%s", out)
			}
			holds(l.run().pass())
		})
	}
}

// Whatever became of a repair, the document, the text and the ledger say which object it
// was about; and what came back is not advised to be brought back once more.
func TestRepairsNameTheirObjects(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	l := newLadder(t, s, "s3://"+s.Bucket+"/p1")
	other := l.glob("data/*.lance")
	if other == l.lost {
		files, err := filepath.Glob(filepath.Join(l.local, "data", "*.lance"))
		if err != nil || len(files) < 2 {
			t.Fatalf("%d data files, %v", len(files), err)
		}
		other = "data/" + filepath.Base(files[1])
	}
	s.Put(t, "p1/t.lance/"+l.lost, l.read(l.lost))
	s.Put(t, "p1/t.lance/"+other, spoilt(l.read(other)))
	l.remove("r/t.lance/" + l.lost)
	l.remove("r/t.lance/" + other)
	out := runIn(t, l.dir, s.Env(), "run", "--config", l.config, "--mode", "restore", "--progress", "never").exit(3).stdout
	for _, want := range []string{"nothing is left to do", "Repairs"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("the text does not say %q:\n%s", want, out)
		}
	}
	if repairs := out[strings.Index(out, "\nRepairs"):]; !strings.Contains(repairs, l.lost) || !strings.Contains(repairs, other) {
		t.Errorf("repairs without their objects:\n%s", repairs)
	}
	rows := runIn(t, l.dir, s.Env(), "repairs", "--config", l.config).exit(0).stdout
	for _, line := range []string{l.lost + " brought back from ", other + ": "} {
		if !strings.Contains(rows, line) {
			t.Errorf("reconcile repairs does not say %q:\n%s", line, rows)
		}
	}
	s.Put(t, "r/t.lance/"+other, []byte("0123456789"))
	s.Put(t, "p1/t.lance/"+other, l.read(other))
	d := l.run("--mode", "restore").exit(5).pass()
	if len(d.Repairs) != 1 || d.Repairs[0]["state"] != "refused" || fmt.Sprint(d.Repairs[0]["files"]) != "["+other+"]" {
		t.Errorf("what was refused: %v", d.Repairs)
	}
}
