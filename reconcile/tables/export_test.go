package tables

import (
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
)

// ReadNewest reads the newest manifest below a root.
func ReadNewest(t testing.TB, r objstore.Reader, root objstore.Location) (*lance.Manifest, uint64) {
	t.Helper()
	s := &rooted{r: r, root: root}
	vs, err := lance.ListVersions(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lance.ReadManifest(t.Context(), s, vs.Newest())
	if err != nil {
		t.Fatal(err)
	}
	return m, m.Version
}
