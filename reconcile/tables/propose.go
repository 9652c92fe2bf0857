package tables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Propose implements reconcile.Source. Only what the newest version of main names
// can lead to a commit; other scopes get restore or nothing.
func (t *Table) Propose(ctx context.Context, findings []reconcile.Finding, policy reconcile.Policy) ([]reconcile.PlanAction, error) {
	if err := t.fillScopes(ctx, findings); err != nil {
		return nil, err
	}
	p := &proposal{t: t, findings: findings, policy: policy, fragments: map[uint64]*damaged{}}
	p.sort()
	if err := p.readFragments(); err != nil {
		return nil, err
	}
	p.propose()
	if p.destructive() {
		if err := p.interlocks(ctx); err != nil {
			return nil, err
		}
	}
	p.limits()
	p.spareRegistry()
	p.trimBlocks()
	return p.actions()
}

// fillScopes writes, for each damaged object, which versions in scope name it.
func (t *Table) fillScopes(ctx context.Context, findings []reconcile.Finding) error {
	at := map[[16]byte]*reconcile.Finding{}
	for i := range findings {
		f := &findings[i]
		if f.Verdict == reconcile.Superseded {
			continue
		}
		f.Scopes = []string{}
		at[key(f.Ref)] = f
		if len(t.views) == 1 || f.Role == reconcile.RoleWALGeneration || f.Role == reconcile.RoleWALManifest {
			f.Scopes = []string{scopeLatest}
		}
	}
	if len(t.views) == 1 {
		return nil
	}
	for _, v := range t.views {
		for ref, err := range t.viewReferences(ctx, v) {
			if err != nil {
				return err
			}
			f := at[key(ref)]
			if f == nil {
				continue
			}
			f.Version = max(f.Version, ref.Version)
			for _, s := range v.scopes {
				if !slices.Contains(f.Scopes, s) {
					f.Scopes = append(f.Scopes, s)
				}
			}
		}
	}
	return nil
}

// proposal is one target's planning in progress.
type proposal struct {
	t         *Table
	findings  []reconcile.Finding
	policy    reconcile.Policy
	fragments map[uint64]*damaged
	lostData  int64
	open      bool // something stayed undecided or denied
}

// damaged is one fragment of the newest version with findings.
type damaged struct {
	findings []*reconcile.Finding
	live     int64 // live rows, -1 unknown
	physical int64
	sha      string
	files    int // live data files
	lost     int // of them damaged
	drop     bool
}

// latest reports whether the finding concerns the newest version of main.
func latest(f *reconcile.Finding) bool { return slices.Contains(f.Scopes, scopeLatest) }

// gone reports whether the object's bytes cannot serve any reader and nothing but
// a drop is left on this ladder.
func gone(f *reconcile.Finding) bool {
	switch f.Verdict {
	case reconcile.Missing, reconcile.Lost, reconcile.Unreadable:
		return true
	case reconcile.SizeMismatch:
		// Only what is shorter than recorded, and no whole file at its real end.
		return f.ObservedSize != nil && f.ExpectedSize != nil && *f.ObservedSize < *f.ExpectedSize &&
			f.Reason != nil && *f.Reason == reconcile.ReasonBadFooter
	}
	return false
}

func (p *proposal) sort() {
	for i := range p.findings {
		f := &p.findings[i]
		if f.Ref.Harmless {
			continue
		}
		if f.Verdict.Open() {
			p.open = true
		}
		if f.FragmentID == nil || !latest(f) || !f.Verdict.Damaged() {
			continue
		}
		d := p.fragments[*f.FragmentID]
		if d == nil {
			d = &damaged{live: -1, physical: -1}
			p.fragments[*f.FragmentID] = d
		}
		d.findings = append(d.findings, f)
		if f.Role == reconcile.RoleData && gone(f) {
			d.lost++
			p.lostData++
		}
	}
}

// readFragments walks the newest manifest for what the damaged fragments hold.
func (p *proposal) readFragments() error {
	if len(p.fragments) == 0 {
		return nil
	}
	m := p.t.views[0].manifest
	columns, err := readColumns(m)
	if err != nil {
		return err
	}
	for frag, err := range m.Fragments() {
		if err != nil {
			return err
		}
		d := p.fragments[frag.ID]
		if d == nil {
			continue
		}
		sum := sha256.Sum256(frag.Raw)
		d.sha = hex.EncodeToString(sum[:])
		if rows, ok := frag.LiveRows(); ok {
			d.live = rows
		}
		if frag.PhysicalRows > 0 {
			d.physical = frag.PhysicalRows
		}
		for i := range frag.Files {
			if !frag.Files[i].Dead {
				d.files++
			}
		}
		p.nameColumns(d, frag, columns)
	}
	return nil
}

// nameColumns says which columns of the fragment are lost with the damaged files
// and which are kept in the others.
func (p *proposal) nameColumns(d *damaged, frag *lance.Fragment, columns map[int32]string) {
	names := func(fields []int32) []string {
		out := []string{}
		for _, id := range fields {
			if n, ok := columns[id]; ok && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
		return out
	}
	for _, f := range d.findings {
		if f.Role != reconcile.RoleData {
			continue
		}
		for i := range frag.Files {
			file := &frag.Files[i]
			if !isFile(f, file) || file.Dead {
				continue
			}
			f.ColumnsLost = names(file.Fields)
		}
		for i := range frag.Files {
			file := &frag.Files[i]
			if file.Dead || slices.ContainsFunc(d.findings, func(o *reconcile.Finding) bool {
				return o.Role == reconcile.RoleData && gone(o) && isFile(o, file)
			}) {
				continue
			}
			for _, n := range names(file.Fields) {
				if !slices.Contains(f.ColumnsKept, n) && !slices.Contains(f.ColumnsLost, n) {
					f.ColumnsKept = append(f.ColumnsKept, n)
				}
			}
		}
	}
}

// isFile reports whether a finding is about this data file of its fragment.
func isFile(f *reconcile.Finding, file *lance.DataFile) bool {
	return f.Path == "data/"+file.Path || f.Path == file.Path
}

// readColumns maps every field id to the name of its top-level column.
func readColumns(m *lance.Manifest) (map[int32]string, error) {
	out := map[int32]string{}
	for f, err := range m.Fields() {
		if err != nil {
			return nil, err
		}
		if f.ParentID < 0 {
			out[f.ID] = f.Name
		} else if parent, ok := out[f.ParentID]; ok {
			out[f.ID] = parent // fields come parents first
		}
	}
	return out, nil
}

// propose sets each finding's action and what blocks it.
func (p *proposal) propose() {
	for i := range p.findings {
		f := &p.findings[i]
		f.ProposedAction = p.action(f)
	}
	for _, d := range p.fragments {
		d.drop = slices.ContainsFunc(d.findings, func(f *reconcile.Finding) bool { return f.ProposedAction == reconcile.ActionDropFragment })
	}
	p.shareBlocks()
	everything := p.lostData > 0 && p.lostData >= p.t.dataFiles && !p.policy.AllowEmptyTable
	for i := range p.findings {
		f := &p.findings[i]
		if !f.ProposedAction.Destructive() {
			continue
		}
		if p.open {
			block(f, reconcile.BlockedIncompleteLook)
		}
		if everything && f.ProposedAction == reconcile.ActionDropFragment {
			block(f, reconcile.BlockedEverythingMissing)
		}
	}
}

// shareBlocks puts what blocks the drop for one damage of a fragment on the others:
// a fragment is dropped whole or not at all.
func (p *proposal) shareBlocks() {
	for _, d := range p.fragments {
		var blocks []string
		for _, f := range d.findings {
			if f.ProposedAction == reconcile.ActionDropFragment {
				blocks = append(blocks, f.BlockedBy...)
			}
		}
		for _, f := range d.findings {
			for _, b := range blocks {
				if f.ProposedAction == reconcile.ActionDropFragment {
					block(f, b)
				}
			}
		}
	}
}

func block(f *reconcile.Finding, why string) {
	if !slices.Contains(f.BlockedBy, why) {
		f.BlockedBy = append(f.BlockedBy, why)
	}
}

// action is the ladder's next rung for one finding.
func (p *proposal) action(f *reconcile.Finding) reconcile.Action {
	switch {
	case f.Ref.Harmless:
		return reconcile.ActionNone
	case neverWritten(f.Ref):
		return reconcile.ActionNone
	case f.Restorable && f.Verdict.Damaged() && (f.Reason == nil || *f.Reason != reconcile.ReasonMetadataSizeWrong):
		if _, below := f.Ref.Location.Rel(p.t.target.Location); !below {
			block(f, reconcile.BlockedOutsideRoot)
		}
		switch {
		case p.t.Provable(f.Ref):
		case f.PeersMayAgree():
			return reconcile.ActionRefetch
		default:
			block(f, reconcile.BlockedReplaceUnproven)
		}
		return reconcile.ActionRestore
	case len(f.PeersHaving) > 0 && f.Verdict.Damaged():
		if _, below := f.Ref.Location.Rel(p.t.target.Location); !below {
			block(f, reconcile.BlockedOutsideRoot)
		}
		return reconcile.ActionRefetch
	case !gone(f) || !latest(f):
		return reconcile.ActionNone
	}
	switch f.Role {
	case reconcile.RoleData:
		d := p.fragments[*f.FragmentID]
		if d.files > d.lost && !p.policy.DropPartialFragments {
			block(f, reconcile.BlockedPartialColumns)
		}
		return reconcile.ActionDropFragment
	case reconcile.RoleDeletion:
		if !p.policy.DropForLostDeletionFile {
			block(f, reconcile.BlockedDeletionPolicy)
			return reconcile.ActionNone
		}
		return reconcile.ActionDropFragment
	case reconcile.RoleIndex:
		if f.Ref.Base != p.t.target.Location {
			block(f, reconcile.BlockedOutsideRoot)
			return reconcile.ActionNone
		}
		if slices.Contains(p.t.maintained, f.Ref.IndexName) {
			return reconcile.ActionNone
		}
		return reconcile.ActionDropIndex
	}
	return reconcile.ActionNone
}

func (p *proposal) destructive() bool {
	return slices.ContainsFunc(p.findings, func(f reconcile.Finding) bool { return f.ProposedAction.Destructive() })
}

// limits blocks every drop of the target when together they pass a limit: part of
// a plan that is too big is not a smaller plan, it is a wrong one.
func (p *proposal) limits() {
	var fragments, rows int64
	for _, d := range p.fragments {
		if d.drop {
			fragments++
			rows += max(d.live, 0)
		}
	}
	lim := p.policy.Limits
	over := fragments > lim.MaxFragments || rows > lim.MaxRows
	if fragments > fractionFreeFragments || rows > fractionFreeRows {
		fraction := ratio(fragments, p.t.fragments)
		if total, known := p.t.liveRows, p.t.liveKnown; known {
			fraction = max(fraction, ratio(rows, total))
		}
		over = over || fraction > lim.MaxFraction
	}
	if !over {
		return
	}
	for i := range p.findings {
		if f := &p.findings[i]; f.ProposedAction == reconcile.ActionDropFragment {
			block(f, reconcile.BlockedOverLimit)
		}
	}
}

// Small plans are not bound by a fraction: one of four fragments is 25 %.
const (
	fractionFreeFragments = 3
	fractionFreeRows      = 100_000
)

func ratio(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// forAll are blocks that speak of destructive actions only; a finding that leads
// to none does not carry them.
var forAll = []string{reconcile.BlockedUnknownWriterFlags, reconcile.BlockedExternalCommitStore, reconcile.BlockedRolledBack, reconcile.BlockedHalfDeleted,
	reconcile.BlockedUnconditionalWriter, reconcile.BlockedIncompleteLook, reconcile.BlockedVersionsUnknown, reconcile.BlockedDropAfter, reconcile.BlockedCoolingDown}

func (p *proposal) trimBlocks() {
	for i := range p.findings {
		f := &p.findings[i]
		if f.Role == reconcile.RoleIndex {
			f.RowsAtRisk = reconcile.Ptr(int64(0)) // an index holds no row
		}
		if f.ProposedAction.Destructive() {
			continue
		}
		mends := f.ProposedAction == reconcile.ActionRestore || f.ProposedAction == reconcile.ActionRefetch
		f.BlockedBy = slices.DeleteFunc(f.BlockedBy, func(b string) bool {
			if b == reconcile.BlockedCoolingDown && f.RetryAt != nil {
				return false // of the object itself
			}
			return slices.Contains(forAll, b) || mends && strings.HasPrefix(b, reconcile.BlockedRungOpen)
		})
	}
}

// actions gathers what nothing blocks: one drop for all fragments, one for each
// index, one restore.
func (p *proposal) actions() ([]reconcile.PlanAction, error) {
	base := reconcile.PlanAction{Target: p.t.target.Name, URI: p.t.target.Location.String(), ReadVersion: p.t.version, Fragments: []reconcile.PlanFragment{}, Files: []string{}}
	var out []reconcile.PlanAction
	drop := p.dropFragments(base)
	if drop != nil {
		out = append(out, *drop)
	}
	restore, refetch := base, base
	restore.Action, restore.Files = reconcile.ActionRestore, []string{}
	refetch.Action, refetch.Files = reconcile.ActionRefetch, []string{}
	var from []string
	indexes := map[string]*reconcile.PlanAction{}
	var order []string
	for i := range p.findings {
		f := &p.findings[i]
		if len(f.BlockedBy) > 0 {
			continue
		}
		switch f.ProposedAction {
		case reconcile.ActionRestore:
			restore.Files = append(restore.Files, f.Path)
		case reconcile.ActionRefetch:
			refetch.Files = append(refetch.Files, f.Path)
			if !slices.Contains(from, f.PeersHaving[0]) {
				from = append(from, f.PeersHaving[0])
			}
		case reconcile.ActionDropIndex:
			a := indexes[f.Ref.IndexUUID]
			if a == nil {
				cp := base
				cp.Action, cp.IndexUUID, cp.Files = reconcile.ActionDropIndex, reconcile.Ptr(f.Ref.IndexUUID), []string{}
				cp.ExpectedEffect = fmt.Sprintf("removes the entry of index %s; no row is lost; searches read every row until it is built again", f.Ref.IndexName)
				a = &cp
				indexes[f.Ref.IndexUUID], order = a, append(order, f.Ref.IndexUUID)
			}
			a.Files = append(a.Files, f.Path)
		}
	}
	for _, uuid := range order {
		out = append(out, *indexes[uuid])
	}
	more, err := p.dropUncovered(base, drop, indexes)
	if err != nil {
		return nil, err
	}
	out = append(out, more...)
	if len(restore.Files) > 0 {
		restore.Source = reconcile.Ptr("versions")
		restore.ExpectedEffect = fmt.Sprintf("brings back %d objects from older versions; no row is lost", len(restore.Files))
		out = append(out, restore)
	}
	if len(refetch.Files) > 0 {
		refetch.Source = reconcile.Ptr(strings.Join(from, " "))
		refetch.ExpectedEffect = fmt.Sprintf("brings back %d objects from peers; no row is lost", len(refetch.Files))
		out = append(out, refetch)
	}
	return out, nil
}

// dropFragments is the one drop of all fragments that nothing blocks. A fragment
// is dropped only when every damage of it allows that.
func (p *proposal) dropFragments(base reconcile.PlanAction) *reconcile.PlanAction {
	drop := base
	drop.Action = reconcile.ActionDropFragment
	drop.Fragments = []reconcile.PlanFragment{}
	ids := make([]uint64, 0, len(p.fragments))
	for id, d := range p.fragments {
		blocked := slices.ContainsFunc(d.findings, func(f *reconcile.Finding) bool {
			return len(f.BlockedBy) > 0 && f.ProposedAction == reconcile.ActionDropFragment || f.ProposedAction == reconcile.ActionRestore || f.ProposedAction == reconcile.ActionRefetch
		})
		if d.drop && !blocked {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var rows int64
	known := true
	for _, id := range ids {
		d := p.fragments[id]
		pf := reconcile.PlanFragment{ID: id, MessageSHA256: d.sha, Files: []string{}}
		if d.physical >= 0 {
			pf.PhysicalRows = reconcile.Ptr(d.physical)
		}
		if d.live >= 0 {
			pf.LiveRows = reconcile.Ptr(d.live)
			rows += d.live
		} else {
			known = false
		}
		for _, f := range d.findings {
			// What is still broken just before the commit is asked of these alone: no
			// other damage would have led to the drop.
			if f.ProposedAction == reconcile.ActionDropFragment {
				pf.Files = append(pf.Files, f.Path)
			}
		}
		drop.Fragments = append(drop.Fragments, pf)
	}
	if len(drop.Fragments) == 0 {
		return nil
	}
	lost := fmt.Sprintf("%d live rows are lost", rows)
	if !known {
		lost = "an unknown number of rows is lost"
	}
	drop.ExpectedEffect = fmt.Sprintf("drops %d of %d fragments in a Delete commit; %s; no object is deleted", len(drop.Fragments), p.t.fragments, lost)
	return &drop
}
