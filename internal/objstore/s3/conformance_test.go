package s3_test

import (
	"path"
	"sync/atomic"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// client of a server, by options alone where that is possible; the credentials come
// from the environment, which TestMain clears and sets.
func client(t testing.TB, srv *servertest.Server, opts s3.Options) *s3.Client {
	t.Helper()
	opts.Endpoint = srv.Endpoint
	c, err := s3.NewClient(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func bucket(t testing.TB, c *s3.Client, name string) (*s3.Store, objstore.Location) {
	t.Helper()
	loc := objstore.Location{Scheme: "s3", Endpoint: c.Host(), Bucket: name}
	s, err := c.Bucket(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	return s, loc
}

func helper(t testing.TB, srv *servertest.Server, c *s3.Client, root objstore.Location) objstoretest.Helper {
	absent, absentAt := bucket(t, c, "absent")
	return objstoretest.Helper{
		Root:   root,
		Remove: func(t testing.TB, loc objstore.Location) { srv.Remove(t, loc.Key) },
		Absent: absent, AbsentAt: absentAt, HeadCannotTell: true,
	}
}

func TestConformanceInProcess(t *testing.T) {
	for name, opts := range map[string]s3.Options{"signed HEAD": {}, "HeadObject with checksums": {HeadOracle: true, Checksums: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objstoretest.Run(t, func(t testing.TB) (objstore.Writer, objstoretest.Helper) {
				srv := servertest.S3(t)
				c := client(t, srv, opts)
				s, root := bucket(t, c, srv.Bucket)
				h := helper(t, srv, c, root)
				h.GoneIsExist = true // gofakes3 answers 412, AWS 404
				return s, h
			})
		})
	}
}

func TestConformanceVersitygw(t *testing.T) {
	t.Parallel()
	srv := servertest.Versitygw(t)
	c := client(t, srv, s3.Options{})
	var serial atomic.Int64
	objstoretest.Run(t, func(t testing.TB) (objstore.Writer, objstoretest.Helper) {
		s, root := bucket(t, c, srv.Bucket)
		root.Key = "root-" + string(rune('a'+serial.Add(1)))
		h := helper(t, srv, c, root)
		h.Odd = func(key string) bool { return onPosix(key) && key != "k/below" }
		return s, h
	})
}

// onPosix reports whether a key can be the name of a file, which is how versitygw
// keeps it.
func onPosix(key string) bool {
	return path.Clean(key) == key && key[0] != '.' && key[0] != '/' && len(key) < 255
}
