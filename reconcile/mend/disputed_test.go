package mend_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/mend"
)

// byForm proves by the form alone, as a table file is proven: values that flipped pass.
type byForm struct{}

func (byForm) Prove(_ context.Context, ref reconcile.Reference, c reconcile.Copy) (string, error) {
	b := make([]byte, 1)
	if _, err := c.ReadAt(b, 0); err != nil || c.Size() != ref.Size || b[0] == '!' {
		return "", errors.New("not of its form")
	}
	return "size, footer, rows", nil
}

// A copy that its form alone proves is held against what other peers hold.
func TestACopyProvenByItsFormIsHeldAgainstOtherPeers(t *testing.T) {
	t.Parallel()
	broken := slices.Clone(good)
	broken[0] = '!'
	for _, c := range []struct {
		name  string
		peers []reconcile.Peer
		want  mend.Outcome
		from  string
	}{
		{"nobody else has one", []reconcile.Peer{has("p", good), says("q", errAbsent)}, mend.Restored, "p"},
		{"another has the same", []reconcile.Peer{has("p", good), has("q", good)}, mend.Restored, "p"},
		{"another is silent", []reconcile.Peer{has("p", good), says("q", errDown)}, mend.Restored, "p"},
		{"another has one of another size", []reconcile.Peer{has("p", good), has("q", good[:5])}, mend.Restored, "p"},
		{"another has one that is not of its form", []reconcile.Peer{has("p", good), has("q", broken)}, mend.Restored, "p"},
		{"two differ, and both are of its form", []reconcile.Peer{has("p", bad), has("q", good)}, mend.Refused, ""},
		{"of three the one that differs is first", []reconcile.Peer{has("p", bad), has("q", good), has("r", good)}, mend.Restored, "q"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			r.unrecorded()
			r.job.Prover = byForm{}
			r.peers(c.peers...)
			res := r.mend(t.Context())
			if res.Outcome != c.want || c.from != "" && res.Source != c.from {
				t.Fatalf("%+v", res)
			}
			if c.want == mend.Restored {
				r.holds(good)
				return
			}
			if res.Reason != reconcile.BlockedReplaceUnproven || !strings.Contains(res.Err.Error(), "another peer") {
				t.Errorf("%+v", res)
			}
			r.wrote()
		})
	}
}
