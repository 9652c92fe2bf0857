package tables

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// uncovered are the vector indexes of one segment whose fragments are all among the
// dropped or gone already. Lance 12 keeps such an entry, and its optimize then
// fails on tables that are too small to train it anew; therefore the entry goes
// too, in a commit of its own. An index of unknown coverage is not among them.
func uncovered(m *lance.Manifest, dropped map[uint64]bool) ([]lance.Index, error) {
	live := roaring.New()
	for f, err := range m.Fragments() {
		if err != nil {
			return nil, err
		}
		if !dropped[f.ID] {
			live.Add(uint32(f.ID))
		}
	}
	vectors, err := vectorFields(m)
	if err != nil {
		return nil, err
	}
	segments := map[string]int{}
	var out []lance.Index
	for x, err := range m.Indices() {
		if err != nil {
			return nil, err
		}
		segments[x.Name]++
		if len(x.FragmentBitmap) == 0 || len(x.Fields) == 0 || !vectors[x.Fields[0]] {
			continue
		}
		covers := roaring.New()
		if _, err := covers.ReadFrom(bytes.NewReader(x.FragmentBitmap)); err != nil {
			return nil, fmt.Errorf("read coverage of index %s: %w", x.Name, err)
		}
		if !covers.Intersects(live) {
			out = append(out, x)
		}
	}
	single := out[:0]
	for _, x := range out {
		if segments[x.Name] == 1 {
			single = append(single, x)
		}
	}
	return single, nil
}

// vectorFields are the ids of fields that a vector index can be on.
func vectorFields(m *lance.Manifest) (map[int32]bool, error) {
	out := map[int32]bool{}
	for f, err := range m.Fields() {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(f.LogicalType, "fixed_size_list") {
			out[f.ID] = true
		}
	}
	return out, nil
}

// dropUncovered are the second commits of a drop: entries of vector indexes that it
// leaves without a fragment.
func (p *proposal) dropUncovered(base reconcile.PlanAction, drop *reconcile.PlanAction, planned map[string]*reconcile.PlanAction) ([]reconcile.PlanAction, error) {
	if drop == nil {
		return nil, nil
	}
	dropped := map[uint64]bool{}
	for _, f := range drop.Fragments {
		dropped[f.ID] = true
	}
	indexes, err := uncovered(p.t.views[0].manifest, dropped)
	if err != nil {
		return nil, err
	}
	var out []reconcile.PlanAction
	for _, x := range indexes {
		if planned[x.UUID] != nil || x.HasBase || slices.Contains(p.t.maintained, x.Name) {
			continue
		}
		a := base
		a.Action, a.IndexUUID, a.Files = reconcile.ActionDropIndex, reconcile.Ptr(x.UUID), []string{}
		a.ExpectedEffect = fmt.Sprintf("removes the entry of vector index %s, which the drop leaves without a fragment; no row is lost; build it again when there are rows enough", x.Name)
		out = append(out, a)
	}
	return out, nil
}
