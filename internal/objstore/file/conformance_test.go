package file_test

import (
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/file"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
)

func open(t testing.TB, dir string) (*file.Store, objstore.Location) {
	t.Helper()
	loc := file.Resolve(objstore.Location{Scheme: "file", Key: filepath.ToSlash(dir)})
	s, err := file.New(loc)
	if err != nil {
		t.Fatal(err)
	}
	return s, loc
}

func TestConformance(t *testing.T) {
	t.Parallel()
	objstoretest.Run(t, func(t testing.TB) (objstore.Writer, objstoretest.Helper) {
		s, root := open(t, t.TempDir())
		absent, absentAt := open(t, filepath.Join(t.TempDir(), "absent"))
		return s, objstoretest.Helper{
			Root: root,
			Remove: func(t testing.TB, loc objstore.Location) {
				if err := os.Remove(loc.Key); err != nil {
					t.Fatal(err)
				}
			},
			Absent: absent, AbsentAt: absentAt,
			Odd: func(key string) bool {
				// "k/below" beside "k" and names over 255 bytes cannot be on a disk.
				return path.Clean(key) == key && len(key) < 255 && key != "k/below"
			},
		}
	})
}
