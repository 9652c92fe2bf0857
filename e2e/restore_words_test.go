package e2e

import (
	"testing"

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
