package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// ladder is a real dataset in a bucket, and the configuration of a store with peers.
type ladder struct {
	t      *testing.T
	s      *servertest.Server
	dir    string
	config string
	local  string // the dataset as the library wrote it
	lost   string // a data file of it
}

func newLadder(t *testing.T, s *servertest.Server, peers ...string) *ladder {
	t.Helper()
	l := &ladder{t: t, s: s, dir: t.TempDir()}
	l.local = lancetest.CopyFixture(t, "0.39.0/plain", filepath.Join(l.dir, "real"))
	files, err := filepath.Glob(filepath.Join(l.local, "data", "*.lance"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d data files, %v", len(files), err)
	}
	slices.Sort(files)
	l.lost = "data/" + filepath.Base(files[0])
	l.upload("r/t.lance")
	l.config = filepath.Join(l.dir, "reconcile.yaml")
	text := fmt.Sprintf("database: %q\nwork: {dir: %q}\nstores: [{name: rk, uri: %q, peers: [%s]}]\nverify: {confirm_after: 1s, min_manifest_age: 0s, pending_max_age: 0s}\n%s",
		"sqlite:"+filepath.Join(l.dir, "ledger.db"), filepath.Join(l.dir, "work"), "s3://"+s.Bucket+"/r", strings.Join(peers, ", "), fullAtOnce)
	if err := os.WriteFile(l.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// upload puts the whole dataset below a key.
func (l *ladder) upload(key string) {
	l.t.Helper()
	err := filepath.WalkDir(l.local, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(l.local, name)
		if err != nil {
			return err
		}
		l.s.Put(l.t, key+"/"+filepath.ToSlash(rel), l.read(rel))
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *ladder) read(rel string) []byte {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join(l.local, rel))
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

func (l *ladder) remove(key string) {
	l.t.Helper()
	if _, err := l.s.Client().DeleteObject(l.t.Context(), &s3.DeleteObjectInput{Bucket: &l.s.Bucket, Key: &key}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *ladder) run(args ...string) result {
	l.t.Helper()
	return runIn(l.t, l.dir, l.s.Env(), append([]string{"run", "--config", l.config, "--output", "json", "--request-timeout", "2s"}, args...)...)
}

// healed holds a pass to having brought the file back, byte for byte, without a commit.
func (l *ladder) healed(d document, action, source string) {
	l.t.Helper()
	if len(d.Targets) != 1 || d.Targets[0].State != "repaired" || d.Totals["rows_dropped"].(float64) != 0 {
		l.t.Fatalf("targets %+v, dropped %v", d.Targets, d.Totals["rows_dropped"])
	}
	var applied []string
	for _, r := range d.Repairs {
		if r["state"] == "applied" {
			applied = append(applied, fmt.Sprint(r["action"], " ", r["committed_version"], " ", strings.Contains(fmt.Sprint(r["source"]), source)))
		}
	}
	if !slices.Equal(applied, []string{action + " <nil> true"}) {
		l.t.Errorf("repairs %v", d.Repairs)
	}
	out, err := l.s.Client().GetObject(l.t.Context(), &s3.GetObjectInput{Bucket: &l.s.Bucket, Key: aws.String("r/t.lance/" + l.lost)})
	if err != nil {
		l.t.Fatal(err)
	}
	defer out.Body.Close()
	var got bytes.Buffer
	if _, err := got.ReadFrom(out.Body); err != nil || !bytes.Equal(got.Bytes(), l.read(l.lost)) {
		l.t.Errorf("%d bytes came back, %v", got.Len(), err)
	}
	if again := l.run().exit(0).pass(); len(again.Findings)+len(again.Repairs) > 0 {
		l.t.Errorf("the next pass: %v %v", again.brief(), again.Repairs)
	}
}

// A lost data file comes back from a peer of the same layout; one whose copy is cut or
// has flipped bytes is refused, and the next peer is asked.
func TestALostDataFileComesBackFromAPeer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func([]byte) []byte // nil: the first peer is whole
	}{
		{"a whole copy", nil},
		{"the first peer's copy is cut", func(b []byte) []byte { return b[:len(b)/2] }},
		{"the first peer's copy has flipped bytes", func(b []byte) []byte {
			b = bytes.Clone(b)
			for i := range b {
				b[i] ^= 0x5a
			}
			return b
		}},
		{"the first peer's copy is another file", func([]byte) []byte { return []byte("<html>404 not found</html>") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.S3(t)
			l := newLadder(t, s, "s3://"+s.Bucket+"/p1", "{uri: \"s3://"+s.Bucket+"/p2\"}")
			l.upload("p2/t.lance")
			want := "/p2"
			if c.spoil == nil {
				l.upload("p1/t.lance")
				want = "/p1"
			} else {
				s.Put(t, "p1/t.lance/"+l.lost, c.spoil(l.read(l.lost)))
			}
			l.remove("r/t.lance/" + l.lost)
			l.healed(l.run().exit(0).pass(), "refetch", want)
		})
	}
}

// A web server gives table files too; that it has none lets nothing be dropped.
func TestAWebServerGivesTableFilesAndItsNoDropsNothing(t *testing.T) {
	long(t)
	t.Parallel()
	for _, has := range []bool{true, false} {
		t.Run(fmt.Sprint(has), func(t *testing.T) {
			t.Parallel()
			web := servertest.Web(t)
			l := newLadder(t, servertest.S3(t), fmt.Sprintf("{url: %q}", web.Template()))
			l.remove("r/t.lance/" + l.lost)
			if has {
				web.Put("t.lance/"+l.lost, l.read(l.lost), servertest.Honest)
				l.healed(l.run().exit(0).pass(), "refetch", "127.0.0.1")
				return
			}
			d := l.run().exit(5).pass()
			if len(d.Findings) != 1 || len(d.Findings[0].BlockedBy) == 0 || d.Totals["rows_dropped"].(float64) != 0 {
				t.Errorf("findings %+v", d.Findings)
			}
		})
	}
}

// A peer that gives no answer leaves its rung open: nothing is dropped.
func TestAPeerThatIsDownKeepsARungOpen(t *testing.T) {
	t.Parallel()
	s := servertest.S3(t)
	l := newLadder(t, s, "{uri: \"s3://elsewhere/p\", s3: {endpoint: \"http://127.0.0.1:1\"}}")
	l.remove("r/t.lance/" + l.lost)
	d := l.run().exit(5).pass()
	if len(d.Findings) != 1 || d.Findings[0].Verdict != "missing" || !slices.ContainsFunc(d.Findings[0].BlockedBy, func(b string) bool { return strings.HasPrefix(b, "rung_open:s3://elsewhere@127.0.0.1:1/p") }) {
		t.Errorf("findings %+v", d.Findings)
	}
	if d.Totals["rows_dropped"].(float64) != 0 {
		t.Error("rows were dropped")
	}
}

// Every peer says no: the last rung.
func TestWhatNoPeerHasIsDropped(t *testing.T) {
	long(t)
	t.Parallel()
	s := servertest.S3(t)
	l := newLadder(t, s, "s3://"+s.Bucket+"/p1", "s3://"+s.Bucket+"/p2")
	s.Put(t, "p1/other", []byte("x"))
	s.Put(t, "p2/other", []byte("x"))
	l.remove("r/t.lance/" + l.lost)
	d := l.run("--mode", "restore").exit(3).pass()
	if len(d.Findings) != 1 || d.Findings[0].Verdict != "lost" || len(d.Repairs) != 0 {
		t.Errorf("mode restore: %v %v", d.brief(), d.Repairs)
	}
	d = l.run().exit(0).pass()
	if len(d.Repairs) != 1 || d.Repairs[0]["action"] != "drop_fragment" || d.Repairs[0]["state"] != "applied" {
		t.Errorf("mode full: %v %v", d.brief(), d.Repairs)
	}
}

// On a bucket with versions only a delete marker hides the file.
func TestADeleteMarkerIsUndone(t *testing.T) {
	t.Parallel()
	s := servertest.Versitygw(t)
	if _, err := s.Client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &s.Bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}}); err != nil {
		t.Fatal(err)
	}
	l := newLadder(t, s)
	l.remove("r/t.lance/" + l.lost)
	l.healed(l.run().exit(0).pass(), "restore", "version ")
}
