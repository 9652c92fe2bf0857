package tables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// RepairOptions of a table's repairs.
type RepairOptions struct {
	Options
	// Roots are the places below which this invocation may write.
	Roots []objstore.Location
	// Quiet is how long a MemWAL table's base must have been left alone before an
	// unattended commit.
	Quiet time.Duration
	// Now is the clock of commit timestamps.
	Now func() time.Time
}

// Repairer commits to one table. It is a reconcile.Repairer.
type Repairer struct {
	target  reconcile.Target
	writers Writers
	opts    RepairOptions
}

var _ reconcile.Repairer = (*Repairer)(nil)

// NewRepairer makes the repairer of a target. It does not touch the network.
func NewRepairer(t reconcile.Target, writers Writers, opts RepairOptions) *Repairer {
	return &Repairer{target: t, writers: writers, opts: opts}
}

// Target implements reconcile.Repairer.
func (r *Repairer) Target() reconcile.Target { return r.target }

// store opens the table's root for commits.
func (r *Repairer) store(ctx context.Context) (*committing, error) {
	w, err := r.writers.Writer(ctx, r.target.Location)
	if err != nil {
		return nil, err
	}
	return &committing{rooted: newRooted(w, r.target.Location), w: w}, nil
}

// Prepare implements reconcile.Repairer.
func (r *Repairer) Prepare(ctx context.Context, a reconcile.PlanAction, p reconcile.Preparation) (reconcile.Commit, error) {
	if !slices.ContainsFunc(r.opts.Roots, func(root objstore.Location) bool {
		_, below := r.target.Location.Rel(root)
		return below || root == r.target.Location
	}) {
		return nil, &reconcile.Refusal{Reason: reconcile.BlockedOutsideRoot, Detail: r.target.Location.String() + " is below no root of this invocation"}
	}
	if err := r.linked(); err != nil {
		return nil, err
	}
	s, err := r.store(ctx)
	if err != nil {
		return nil, err
	}
	t := New(r.target, r.writers, r.opts.Options)
	facts, err := t.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.allowed(ctx, t, facts, a, p); err != nil {
		return nil, err
	}
	c := &commit{repairer: r, store: s, table: t}
	info := lance.CommitInfo{UUID: p.TransactionUUID, Naming: t.versions.Naming, Now: r.opts.Now().UTC(),
		Properties: map[string]string{lance.RepairIDProperty: p.RepairID}}
	switch a.Action {
	case reconcile.ActionDropFragment:
		err = c.prepareDrop(ctx, a, p, info)
	case reconcile.ActionDropIndex:
		err = c.prepareDropIndex(ctx, a, p, info)
	default:
		err = fmt.Errorf("action %s does not end in a commit", a.Action)
	}
	if err != nil {
		return nil, asRefusal(err)
	}
	if err := c.stillThere(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// stillThere looks at the newest and the oldest manifest once more: a table that is
// being deleted loses one of them first.
func (c *commit) stillThere(ctx context.Context) error {
	entries := c.table.versions.Entries
	for _, e := range []lance.VersionEntry{entries[0], entries[len(entries)-1]} {
		_, err := c.store.w.Stat(ctx, c.store.root.Join(e.Name))
		if errors.Is(err, objstore.ErrNotExist) {
			return &reconcile.Refusal{Reason: reconcile.BlockedHalfDeleted, Detail: e.Name + " vanished while the repair was prepared"}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linked refuses a dataset whose folders that a commit writes to are links to
// another place: what is written there is written outside the root.
func (r *Repairer) linked() error {
	if r.target.Location.Scheme != "file" {
		return nil
	}
	for _, name := range []string{"_versions", "_transactions"} {
		dir := r.target.Location.Join(name)
		real, err := r.writers.Locate(dir.String())
		if err != nil {
			return err
		}
		if real != dir {
			return &reconcile.Refusal{Reason: reconcile.BlockedOutsideRoot, Detail: dir.String() + " is a link to " + real.String()}
		}
	}
	return nil
}

// asRefusal turns package lance's refusals into ours.
func asRefusal(err error) error {
	var refused *lance.RefusedError
	var flags *lance.FlagError
	switch {
	case errors.As(err, &flags):
		return &reconcile.Refusal{Reason: reconcile.BlockedUnknownWriterFlags, Detail: flags.Error()}
	case errors.As(err, &refused):
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: refused.Reason}
	}
	return err
}

// allowed asks every interlock that the newest metadata can answer.
func (r *Repairer) allowed(ctx context.Context, t *Table, facts reconcile.Facts, a reconcile.PlanAction, p reconcile.Preparation) error {
	switch {
	case facts.Absent:
		return &reconcile.Refusal{Reason: reconcile.BlockedHalfDeleted, Detail: "nothing is there"}
	case facts.State == reconcile.StateHalfDeleted:
		return &reconcile.Refusal{Reason: reconcile.BlockedHalfDeleted, Detail: facts.Reason}
	case facts.State == reconcile.StateRolledBack || t.version < a.ReadVersion:
		return &reconcile.Refusal{Reason: reconcile.BlockedRolledBack, Detail: fmt.Sprintf("version %d was planned for, the newest is %d %s", a.ReadVersion, t.version, facts.Reason)}
	case facts.Settled:
		return fmt.Errorf("metadata of %s: %s %s", r.target.Name, facts.State, facts.Reason)
	case len(facts.Blocks) > 0:
		return &reconcile.Refusal{Reason: facts.Blocks[0]}
	}
	for _, f := range facts.Findings {
		if f.Verdict.Open() {
			return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: f.Path}
		}
	}
	if t.target.Location.Scheme == "s3" && !r.opts.WritersStopped {
		old, err := t.unconditionalWriter(ctx)
		if err != nil {
			return err
		}
		if old {
			return &reconcile.Refusal{Reason: reconcile.BlockedUnconditionalWriter}
		}
	}
	return r.walAllows(ctx, t, p)
}

// walAllows asks the write-ahead log of a table that has one.
func (r *Repairer) walAllows(ctx context.Context, t *Table, p reconcile.Preparation) error {
	if !t.views[0].manifest.HasMemWAL() {
		return nil
	}
	shards, err := lance.Shards(ctx, t.main)
	if err != nil {
		return fmt.Errorf("read write-ahead log of %s: %w", r.target.Name, err)
	}
	for _, sh := range shards {
		if sh.Err != nil {
			return &reconcile.Refusal{Reason: reconcile.BlockedIncompleteLook, Detail: "shard " + sh.ID + ": " + sh.Err.Error()}
		}
		if sh.Sealed {
			return &reconcile.Refusal{Reason: reconcile.BlockedWALSealed, Detail: "shard " + sh.ID}
		}
	}
	newest := t.versions.Newest().ModTime
	if p.Scheduled && r.opts.Quiet > 0 {
		now := t.main.ServerNow()
		if newest.IsZero() || now.IsZero() || now.Sub(newest) < r.opts.Quiet {
			return &reconcile.Refusal{Reason: reconcile.BlockedBusy, Detail: "its base was committed to within " + r.opts.Quiet.String()}
		}
	}
	return nil
}

// commit is one prepared commit.
type commit struct {
	repairer *Repairer
	store    *committing
	table    *Table
	effect   reconcile.Effect
	proposal *lance.Proposal
}

// Effect implements reconcile.Commit.
func (c *commit) Effect() reconcile.Effect { return c.effect }

// prepareDrop keeps, of the planned fragments, those that are byte-identical in
// the newest version and still broken.
func (c *commit) prepareDrop(ctx context.Context, a reconcile.PlanAction, p reconcile.Preparation, info lance.CommitInfo) error {
	m := c.table.views[0].manifest
	planned := map[uint64]reconcile.PlanFragment{}
	for _, f := range a.Fragments {
		planned[f.ID] = f
	}
	identical := map[uint64]reconcile.RepairFragment{}
	messages := map[uint64][]byte{}
	for f, err := range m.Fragments() {
		if err != nil {
			return err
		}
		want, ok := planned[f.ID]
		if !ok {
			continue
		}
		sum := sha256.Sum256(f.Raw)
		if hex.EncodeToString(sum[:]) != want.MessageSHA256 {
			continue
		}
		rf := reconcile.RepairFragment{ID: f.ID, MissingFiles: slices.Clone(want.Files)}
		if f.PhysicalRows > 0 {
			rf.PhysicalRows = reconcile.Ptr(f.PhysicalRows)
		}
		if live, known := f.LiveRows(); known {
			rf.LiveRows = reconcile.Ptr(live)
		}
		identical[f.ID] = rf
		messages[f.ID] = slices.Clone(f.Raw)
	}
	if p.Strict && len(identical) < len(planned) {
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: fmt.Sprintf("%d of %d planned fragments are not as they were in version %d", len(planned)-len(identical), len(planned), a.ReadVersion)}
	}
	ids, err := c.stillBroken(ctx, identical, p)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "none of the planned fragments is still broken"}
	}
	if int64(len(ids)) >= c.table.fragments && !p.AllowEmptyTable {
		return &reconcile.Refusal{Reason: reconcile.BlockedEverythingMissing}
	}
	if c.proposal, err = m.ProposeDelete(ids, dropPredicate, info); err != nil {
		return err
	}
	rows, known := int64(0), true
	c.effect = c.base(reconcile.ActionDropFragment, info)
	c.effect.Messages = map[uint64][]byte{}
	for _, id := range ids {
		rf := identical[id]
		c.effect.Fragments = append(c.effect.Fragments, rf)
		c.effect.Messages[id] = messages[id]
		if rf.LiveRows == nil {
			known = false
			continue
		}
		rows += *rf.LiveRows
	}
	if known {
		c.effect.RowsDropped = &rows
	}
	return nil
}

// dropPredicate is what engines show as the condition of the delete.
const dropPredicate = "reconcile: a file of the fragment is lost in storage"

// base fills what every effect has.
func (c *commit) base(a reconcile.Action, info lance.CommitInfo) reconcile.Effect {
	return reconcile.Effect{Action: a, ReadVersion: c.table.version, TransactionUUID: info.UUID,
		ManifestName: c.table.versions.Newest().Name, Manifest: c.table.views[0].manifest.Raw(), Fragments: []reconcile.RepairFragment{}}
}

// stillBroken looks at the planned fragments' damaged files once more and keeps
// the fragments that have one.
func (c *commit) stillBroken(ctx context.Context, fragments map[uint64]reconcile.RepairFragment, p reconcile.Preparation) ([]uint64, error) {
	var refs []reconcile.Reference
	for ref, err := range c.table.viewReferences(ctx, c.table.views[0]) {
		if err != nil {
			return nil, err
		}
		f, ok := fragments[ref.FragmentID]
		if ref.HasFragment && ok && slices.Contains(f.MissingFiles, ref.Path) {
			refs = append(refs, ref)
		}
	}
	broken, err := p.StillBroken(ctx, refs)
	if err != nil {
		return nil, err
	}
	var ids []uint64
	for i, ref := range refs {
		if broken[i] && !slices.Contains(ids, ref.FragmentID) {
			ids = append(ids, ref.FragmentID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// prepareDropIndex takes out the entry of an index whose planned files are still
// broken.
func (c *commit) prepareDropIndex(ctx context.Context, a reconcile.PlanAction, p reconcile.Preparation, info lance.CommitInfo) error {
	if a.IndexUUID == nil {
		return errors.New("index action without an index")
	}
	m := c.table.views[0].manifest
	var message []byte
	for x, err := range m.Indices() {
		if err != nil {
			return err
		}
		if x.UUID == *a.IndexUUID {
			message = slices.Clone(x.Raw)
			if slices.Contains(c.table.maintained, x.Name) {
				return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "index " + x.Name + " is maintained by a write-ahead log"}
			}
		}
	}
	if message == nil {
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "index " + *a.IndexUUID + " is not in the newest version"}
	}
	if err := c.indexIsLost(ctx, m, a, p); err != nil {
		return err
	}
	var err error
	if c.proposal, err = m.ProposeDropIndex(*a.IndexUUID, info); err != nil {
		return err
	}
	c.effect = c.base(reconcile.ActionDropIndex, info)
	c.effect.IndexUUID, c.effect.IndexMessage, c.effect.RowsDropped = a.IndexUUID, message, reconcile.Ptr(int64(0))
	return nil
}

// indexIsLost returns a Refusal unless the planned files of the index are still
// broken or, for an entry planned without files, no fragment is left that it covers.
func (c *commit) indexIsLost(ctx context.Context, m *lance.Manifest, a reconcile.PlanAction, p reconcile.Preparation) error {
	if len(a.Files) == 0 {
		empty, err := uncovered(m, nil)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(empty, func(x lance.Index) bool { return x.UUID == *a.IndexUUID }) {
			return nil
		}
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "the index covers fragments that are there"}
	}
	var refs []reconcile.Reference
	for ref, err := range c.table.viewReferences(ctx, c.table.views[0]) {
		if err != nil {
			return err
		}
		if ref.IndexUUID == *a.IndexUUID && slices.Contains(a.Files, ref.Path) {
			refs = append(refs, ref)
		}
	}
	broken, err := p.StillBroken(ctx, refs)
	if err != nil {
		return err
	}
	if !slices.Contains(broken, true) {
		return &reconcile.Refusal{Reason: reconcile.RefusedPlanStale, Detail: "the index is whole again"}
	}
	return nil
}

// Commit implements reconcile.Commit.
func (c *commit) Commit(ctx context.Context) (reconcile.CommitState, uint64, error) {
	outcome, err := c.proposal.Commit(ctx, c.store)
	switch outcome {
	case lance.Committed:
		return reconcile.CommitApplied, c.proposal.Version, nil
	case lance.Conflict:
		return reconcile.CommitConflict, 0, err
	case lance.NotSent:
		return reconcile.CommitFailed, 0, err
	}
	return reconcile.CommitUncertain, 0, err
}

// Settle implements reconcile.Repairer.
func (r *Repairer) Settle(ctx context.Context, uuid string, readVersion uint64) (uint64, bool, error) {
	s, err := r.store(ctx)
	if err != nil {
		return 0, false, err
	}
	return lance.FindTransaction(ctx, s, uuid, readVersion+1)
}

// Verify implements reconcile.Repairer.
func (r *Repairer) Verify(ctx context.Context, e reconcile.Effect, committed uint64) error {
	t := New(r.target, r.writers, r.opts.Options)
	facts, err := t.Open(ctx)
	if err != nil {
		return err
	}
	if facts.Settled || facts.Absent {
		return fmt.Errorf("%s after the repair: %s %s", r.target.Name, facts.State, facts.Reason)
	}
	if t.version < committed {
		return fmt.Errorf("version %d was committed and the newest is %d", committed, t.version)
	}
	if v, found, err := lance.FindTransaction(ctx, t.main, e.TransactionUUID, e.ReadVersion+1); err != nil && !errors.Is(err, lance.ErrVersionGone) {
		return err
	} else if err == nil && (!found || v != committed) {
		return fmt.Errorf("version %d is not the one that was committed: overwritten by a writer that commits without a condition?", committed)
	}
	m := t.views[0].manifest
	for f, err := range m.Fragments() {
		if err != nil {
			return err
		}
		if msg, ok := e.Messages[f.ID]; ok && slices.Equal(msg, f.Raw) {
			return fmt.Errorf("fragment %d is in version %d again", f.ID, t.version)
		}
	}
	for x, err := range m.Indices() {
		if err != nil {
			return err
		}
		if e.IndexUUID != nil && x.UUID == *e.IndexUUID {
			return fmt.Errorf("index %s is in version %d again", x.UUID, t.version)
		}
	}
	return nil
}
