package memstore_test

import (
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]bool{"without versions": false, "with versions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objstoretest.Run(t, func(testing.TB) (objstore.Writer, objstoretest.Helper) {
				s := memstore.New(memstore.Options{Versions: versions})
				s.RemoveBucket(objstore.Location{Scheme: "mem", Bucket: "absent"})
				return s, objstoretest.Helper{
					Root:     objstore.Location{Scheme: "mem", Bucket: "bucket", Key: "root"},
					Remove:   func(_ testing.TB, loc objstore.Location) { s.Remove(loc) },
					Absent:   s,
					AbsentAt: objstore.Location{Scheme: "mem", Bucket: "absent", Key: "root"},
					Versions: versions,
				}
			})
		})
	}
}
