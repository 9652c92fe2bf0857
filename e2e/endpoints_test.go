package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/servertest"
)

// A replica often has the bucket's name, on another endpoint: it is another place.
func TestPeersOfTheSameBucketName(t *testing.T) {
	t.Parallel()
	at := func(s *servertest.Server) string {
		return fmt.Sprintf("{uri: %q, s3: {endpoint: %q}}", "s3://"+s.Bucket+"/r", s.Endpoint)
	}
	upload := func(l *ladder, s *servertest.Server) {
		there := *l
		there.s = s
		there.upload("r/t.lance")
	}

	t.Run("a lost file comes from the other endpoint, and nothing is written there", func(t *testing.T) {
		t.Parallel()
		here, there := servertest.S3(t), servertest.S3(t)
		l := newLadder(t, here, at(there))
		upload(l, there)
		l.remove("r/t.lance/" + l.lost)
		before := contents(t, there)
		p := l.run().exit(0).pass()
		if len(p.Repairs) != 1 || p.Repairs[0]["action"] != "refetch" || !bytes.Equal(object(t, here, "r/t.lance/"+l.lost), l.read(l.lost)) {
			t.Errorf("%+v", p.Repairs)
		}
		if after := contents(t, there); !slices.Equal(before, after) {
			t.Errorf("the peer holds %q, and held %q", after, before)
		}
	})

	t.Run("what is gone at both endpoints is dropped here only", func(t *testing.T) {
		t.Parallel()
		here, there := servertest.S3(t), servertest.S3(t)
		l := newLadder(t, here, at(there))
		upload(l, there)
		l.remove("r/t.lance/" + l.lost)
		there.Remove(t, "r/t.lance/"+l.lost)
		before, versions := contents(t, there), len(here.Keys(t, "r/t.lance/_versions/"))
		p := l.run().exit(0).pass()
		if len(p.Repairs) != 1 || p.Repairs[0]["action"] != "drop_fragment" {
			t.Errorf("%+v", p.Repairs)
		}
		if got := len(here.Keys(t, "r/t.lance/_versions/")); got != versions+1 {
			t.Errorf("%d versions, were %d", got, versions)
		}
		if after := contents(t, there); !slices.Equal(before, after) {
			t.Errorf("the peer holds %q, and held %q", after, before)
		}
	})

	t.Run("two replicas of one bucket name are two peers", func(t *testing.T) {
		t.Parallel()
		here, bad, good := servertest.S3(t), servertest.S3(t), servertest.S3(t)
		l := newLadder(t, here, at(bad), at(good))
		upload(l, good)
		bad.Put(t, "r/t.lance/"+l.lost, l.read(l.lost)[:100])
		l.remove("r/t.lance/" + l.lost)
		p := l.run().exit(0).pass()
		if !bytes.Equal(object(t, here, "r/t.lance/"+l.lost), l.read(l.lost)) {
			t.Errorf("%+v", p.Repairs)
		}
		last := p.Repairs[len(p.Repairs)-1]
		if host := strings.TrimPrefix(good.Endpoint, "http://"); !strings.Contains(fmt.Sprint(last["source"]), host) {
			t.Errorf("%+v does not come from %s", last, host)
		}
	})
}

// contents are the keys of a bucket with the length of each object.
func contents(t *testing.T, s *servertest.Server) []string {
	t.Helper()
	var out []string
	for _, key := range s.Keys(t, "") {
		out = append(out, fmt.Sprintf("%s %d", key, len(object(t, s, key))))
	}
	return out
}
