package tables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// The write-ahead log of a table: rows that were acknowledged and are not in the base
// table yet. Each flushed generation is a dataset of its own that the newest manifest
// of its shard names; a lost one is lost rows, and no commit to the base mends that.

// Reasons of findings about the write-ahead log.
const (
	reasonMerged       = "already_merged"    // its rows are in the base table
	reasonGenerationUp = "generation_gone"   // no manifest of the generation was found
	reasonHinted       = "named_by_hint"     // the shard's hint names this manifest
	reasonEntry        = "pending_wal_entry" // a log entry that no generation holds yet
)

// walState is what the first look read of the log.
type walState struct {
	shards []lance.Shard
	merged map[string]uint64
	// unlisted: the shards could not be listed.
	unlisted bool
}

// maxEntries bounds how many entries of one shard are looked at; writers flush long
// before.
const maxEntries = 1000

// openWAL reads the shards, and then the newest base manifest again: what is merged
// while this looks leaves the shard first and is in the base by then.
func (t *Table) openWAL(ctx context.Context, vs *lance.VersionSet, m *lance.Manifest, out *reconcile.Facts) (*lance.VersionSet, *lance.Manifest, *reconcile.Facts, error) {
	t.wal = walState{}
	if !m.HasMemWAL() {
		return vs, m, nil, nil
	}
	shards, err := t.main.readShards(ctx)
	if ctx.Err() != nil {
		return nil, nil, nil, context.Cause(ctx)
	}
	if err != nil {
		t.walUnread(ctx, out, "_mem_wal/", err)
		t.wal.unlisted = true
	}
	if again, err := lance.ListVersions(ctx, t.main); err != nil || again.Newest() != vs.Newest() || vs.Newest().ETag == "" {
		var facts *reconcile.Facts
		if vs, m, facts = t.newest(ctx); facts != nil {
			return nil, nil, facts, nil
		}
	}
	t.wal.shards = shards
	if t.wal.merged, err = m.MergedGenerations(); err != nil {
		facts := t.corrupt(vs.Newest(), err)
		return nil, nil, &facts, nil
	}
	return vs, m, nil, t.noteWAL(ctx, out)
}

// gone are the shards of which the base table has merged rows and of which nothing is
// left: what they held since is hidden, and nothing else would tell.
func (w walState) gone() []string {
	if w.unlisted {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.merged)), func(id string) bool {
		return slices.ContainsFunc(w.shards, func(sh lance.Shard) bool { return sh.ID == id })
	})
}

// walUnread says that the log, or a shard of it, could not be read.
func (t *Table) walUnread(ctx context.Context, out *reconcile.Facts, name string, err error) {
	for _, f := range t.cannotLook(ctx, name, err).Findings {
		out.Findings = append(out.Findings, t.asWAL(f))
	}
	out.NotChecked = append(out.NotChecked, reconcile.NotChecked{Role: reconcile.RoleWALGeneration, Reason: "the write-ahead log could not be read: " + name})
}

// asWAL gives a finding about metadata the role of a shard manifest.
func (t *Table) asWAL(f reconcile.Finding) reconcile.Finding {
	f.Role, f.Ref.Role = reconcile.RoleWALManifest, reconcile.RoleWALManifest
	f.FindingID = reconcile.FindingIDOf(t.target, f.Ref)
	return f
}

// noteWAL counts what is pending and what was left behind, and finds what speaks of a
// shard manifest that is gone.
func (t *Table) noteWAL(ctx context.Context, out *reconcile.Facts) error {
	var pending int64
	known := len(out.NotChecked) == 0
	for _, id := range t.wal.gone() {
		known = false
		out.Findings = append(out.Findings, t.asWAL(t.metadataFinding("_mem_wal/"+id+"/manifest/", reconcile.Undecided, reconcile.ReasonHigherVersionTrace, nil)))
	}
	for _, sh := range t.wal.shards {
		pending += int64(len(sh.Generations))
		if sh.Sealed && !slices.Contains(out.Blocks, reconcile.BlockedWALSealed) {
			out.Blocks = append(out.Blocks, reconcile.BlockedWALSealed)
		}
		if sh.ManifestName == "" && (sh.HasLog || len(sh.Folders) > 0 || sh.Hint > 0) {
			known = false
		}
		if sh.Err != nil {
			known = false
			out.NotChecked = append(out.NotChecked, reconcile.NotChecked{Role: reconcile.RoleWALGeneration, Reason: "shard " + sh.ID + " has an unreadable manifest"})
		}
		if hidden := hiddenBehind(sh); hidden != "" {
			f := t.asWAL(t.metadataFinding(hidden, reconcile.Undecided, reconcile.ReasonHigherVersionTrace, nil))
			out.Findings = append(out.Findings, f)
		}
		if sh.LastSeen-min(sh.LastSeen, sh.ReplayAfter) > maxEntries {
			out.NotChecked = append(out.NotChecked, reconcile.NotChecked{Role: reconcile.RoleWALManifest, Reason: fmt.Sprintf("shard %s names more than %d pending log entries; the first ones were looked at", sh.ID, maxEntries)})
		}
	}
	if known {
		out.PendingGenerations = &pending
	}
	return t.countLeaked(ctx, out)
}

// hiddenBehind is the sign that a shard's newest manifest may be gone, when no hint
// tells: a generation folder that its newest manifest is too old to name, or a shard
// with rows and no manifest. A hint of the same version says that a flush is under
// way, or was broken off.
func hiddenBehind(sh lance.Shard) string {
	switch {
	case sh.Err != nil, sh.Hint > 0 && sh.Hint >= sh.Version:
		return "" // unreadable, up to date, or named below as the object that must be there
	case sh.ManifestName == "" && (sh.HasLog || len(sh.Folders) > 0):
		return "_mem_wal/" + sh.ID + "/manifest/"
	case len(sh.Unnamed()) > 0:
		return "_mem_wal/" + sh.ID + "/" + sh.Unnamed()[0]
	}
	return ""
}

// maxLeaked bounds how many left-over generations are measured.
const maxLeaked = 64

// countLeaked counts generations that merges left behind, and their bytes. They are
// nobody's promise: what cannot be listed is not counted.
func (t *Table) countLeaked(ctx context.Context, out *reconcile.Facts) error {
	var n, bytes int64
	for _, sh := range t.wal.shards {
		for _, folder := range sh.Leaked() {
			if n++; n > maxLeaked || bytes < 0 {
				bytes = -1
				continue
			}
			for o, err := range t.main.List(ctx, "_mem_wal/"+sh.ID+"/"+folder+"/", "") {
				if err != nil || o.Size < 0 {
					bytes = -1
					break
				}
				bytes += o.Size
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	out.LeakedGenerations = &n
	if bytes >= 0 {
		out.LeakedBytes = &bytes
	}
	return nil
}

// generation is a flushed generation that a shard names.
type generation struct {
	lance.Generation
	shard lance.Shard
	// merged: its rows are in the base table as well; it waits to be removed.
	merged bool
	// listed is everything below its folder.
	listed []lance.Object
	err    error
}

func (g *generation) root() string { return g.shard.Root(g.Generation) }

// generationsAtOnce bounds the requests in flight for a table's generations, and how
// many of their manifests are in memory together.
const generationsAtOnce = 8

// walReferences streams what the log promises: the manifests that hints name, the
// entries that no generation holds yet, and the files of every pending generation.
func (t *Table) walReferences(ctx context.Context) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		var gens []*generation
		for _, sh := range t.wal.shards {
			for _, ref := range t.shardReferences(sh) {
				if !yield(ref, nil) {
					return
				}
			}
			for _, g := range sh.Generations {
				gens = append(gens, &generation{Generation: g, shard: sh, merged: g.Number <= t.wal.merged[sh.ID]})
			}
		}
		keyIndex, err := t.listGenerations(ctx, gens)
		if err != nil {
			yield(reconcile.Reference{}, err)
			return
		}
		for chunk := range slices.Chunk(gens, generationsAtOnce) {
			views := t.openGenerations(ctx, chunk)
			for i, g := range chunk {
				for ref, err := range t.generationReferences(ctx, g, views[i], keyIndex) {
					if !yield(ref, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// shardReferences are the objects of a shard itself that must be there.
func (t *Table) shardReferences(sh lance.Shard) []reconcile.Reference {
	var out []reconcile.Reference
	if sh.Err != nil {
		ref := t.walReference(sh.ManifestName, reconcile.RoleWALManifest)
		ref.MinSize, ref.Reason = 1<<62, reconcile.ReasonBadManifest // see brokenReference
		out = append(out, ref)
	}
	if sh.Hint > sh.Version {
		ref := t.walReference(sh.ManifestPath(sh.Hint), reconcile.RoleWALManifest)
		ref.Reason = reasonHinted
		out = append(out, ref)
	}
	// What lies beyond the flushed generations is not merged and not flushed.
	for _, name := range sh.PendingEntries(maxEntries) {
		// Positions are only known to be promised, not to be acknowledged: a lost
		// entry is told and moves no state.
		ref := t.walReference(name, reconcile.RoleWALGeneration)
		ref.Harmless, ref.Reason = true, reasonEntry
		out = append(out, ref)
	}
	return out
}

// walReference is an object of the log, by its name below the table's root.
func (t *Table) walReference(name string, role reconcile.Role) reconcile.Reference {
	return reconcile.Reference{Role: role, Path: name, Location: t.main.root.Join(name), Base: t.main.root, Version: t.version, MinSize: 1,
		PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}
}

// The two files of a generation's key index, which no manifest names and which every
// read needs.
var keyIndexFiles = []string{"_pk_index/page_data.lance", "_pk_index/page_lookup.lance"}

// listGenerations lists the folders of generations. keyIndex reports that this
// table's generations have a key index: releases before it wrote none.
func (t *Table) listGenerations(ctx context.Context, gens []*generation) (keyIndex bool, err error) {
	work := new(errgroup.Group)
	work.SetLimit(generationsAtOnce)
	for _, g := range gens {
		work.Go(func() error {
			prefix := g.root() + "/"
			for o, err := range t.main.List(ctx, prefix, "") {
				if err != nil {
					g.err = fmt.Errorf("list %s: %w", prefix, err)
					return nil
				}
				o.Name = strings.TrimPrefix(o.Name, prefix)
				g.listed = append(g.listed, o)
			}
			return nil
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	for _, g := range gens {
		keyIndex = keyIndex || slices.ContainsFunc(g.listed, func(o lance.Object) bool { return slices.Contains(keyIndexFiles, o.Name) })
	}
	return keyIndex, nil
}

// listedStore answers listings from one that was made.
type listedStore struct {
	*rooted
	objects []lance.Object
}

// List implements lance.Store, for whole listings below a prefix.
func (s listedStore) List(_ context.Context, prefix, _ string) iter.Seq2[lance.Object, error] {
	return func(yield func(lance.Object, error) bool) {
		for _, o := range s.objects {
			if strings.HasPrefix(o.Name, prefix) && !yield(o, nil) {
				return
			}
		}
	}
}

// openGenerations reads the newest manifest of each generation; a generation that
// cannot be read has no view, and its err says why.
func (t *Table) openGenerations(ctx context.Context, gens []*generation) []*view {
	views := make([]*view, len(gens))
	work := new(errgroup.Group)
	for i, g := range gens {
		if g.err != nil {
			continue
		}
		work.Go(func() error {
			root := newRooted(t.main.r, t.main.root.Join(g.root()))
			vs, err := lance.ListVersions(ctx, listedStore{root, g.listed})
			if err != nil {
				g.err = err
				return nil
			}
			v := &view{scopes: []string{scopeLatest}, store: root, entry: vs.Newest()}
			views[i] = v
			v.manifest, g.err = v.read(ctx)
			return nil
		})
	}
	work.Wait()
	return views
}

// generationReferences streams what one generation promises.
func (t *Table) generationReferences(ctx context.Context, g *generation, v *view, keyIndex bool) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		var corrupt *lance.CorruptError
		switch {
		case ctx.Err() != nil:
			yield(reconcile.Reference{}, context.Cause(ctx))
			return
		case errors.Is(g.err, lance.ErrNoVersions):
			yield(t.goneGeneration(g), nil)
			return
		case errors.As(g.err, &corrupt):
			ref := t.brokenReference(v)
			ref.Path = g.root() + "/" + v.entry.Name
			yield(t.ofGeneration(g, ref), nil)
			return
		case g.err != nil:
			// Nothing is known of what it holds: one reference that stays open says so.
			t.opts.Logger.Warn("a pending generation cannot be read", "target", t.target.Name, "generation", g.root(), "err", g.err)
			ref := t.walReference(g.root(), reconcile.RoleWALGeneration)
			ref.Location = objstore.Location{}
			_, ref.Reason = reconcile.JudgeLook(g.err)
			yield(t.ofGeneration(g, ref), nil)
			return
		}
		for ref, err := range t.viewReferences(ctx, v) {
			if err != nil {
				yield(reconcile.Reference{}, err)
				return
			}
			if ref.Role != reconcile.RoleManifest {
				ref.Path = g.root() + "/" + ref.Path
			}
			if !yield(t.ofGeneration(g, ref), nil) {
				return
			}
		}
		if !keyIndex {
			return
		}
		for _, name := range keyIndexFiles {
			ref := t.walReference(g.root()+"/"+name, reconcile.RoleWALGeneration)
			ref.MinSize = lance.MinFileSize(lance.KindIndex, path.Base(name))
			if !yield(t.ofGeneration(g, ref), nil) {
				return
			}
		}
	}
}

// ofGeneration makes a reference one of a generation: its rows are the generation's,
// and the controls of the table's root speak for it.
func (t *Table) ofGeneration(g *generation, ref reconcile.Reference) reconcile.Reference {
	ref.Role, ref.Version, ref.Base = reconcile.RoleWALGeneration, t.version, t.main.root
	ref.FragmentID, ref.HasFragment = 0, false
	ref.IndexUUID, ref.IndexName = "", ""
	ref.PhysicalRows, ref.LiveRows = g.PhysicalRows, g.PhysicalRows
	if g.merged {
		ref.Harmless, ref.Reason, ref.LiveRows = true, reasonMerged, 0 // the base has them
	}
	return ref
}

// goneGeneration stands for a generation of which no manifest is listed. A listing
// proves nothing, so the manifest that every generation begins with is asked for,
// under both of the names it can have.
func (t *Table) goneGeneration(g *generation) reconcile.Reference {
	first := g.root() + "/" + lance.ManifestName(1, lance.V2)
	ref := t.walReference(first, reconcile.RoleWALGeneration)
	ref.Alternates = []reconcile.Place{{Base: t.main.root, Location: t.main.root.Join(g.root() + "/" + lance.ManifestName(1, lance.V1))}}
	if len(g.listed) == 0 {
		ref.Path = g.root()
	}
	ref.Reason = reasonGenerationUp
	return t.ofGeneration(g, ref)
}

// sameShards reports whether another look read the very same shard manifests, which
// are written once.
func (t *Table) sameShards(other *Table) bool {
	return slices.EqualFunc(t.wal.shards, other.wal.shards, func(a, b lance.Shard) bool {
		return a.ID == b.ID && a.ManifestName == b.ManifestName && a.Hint == b.Hint && (a.Err == nil) == (b.Err == nil)
	})
}

// olderWAL tells which objects of the log an old enough shard manifest names: the
// newest one, or the newest of those that are old enough, which is read.
func (t *Table) olderWAL(ctx context.Context, refs []reconcile.Reference, old func(time.Time) bool, out []bool) error {
	reads := 0
	for _, sh := range t.wal.shards {
		var mine []int
		for i, ref := range refs {
			if strings.HasPrefix(ref.Path, "_mem_wal/"+sh.ID+"/") {
				mine = append(mine, i)
			}
		}
		if len(mine) == 0 {
			continue
		}
		named, err := t.namedLongAgo(ctx, sh, old, &reads)
		if err != nil {
			return err
		}
		for _, i := range mine {
			switch ref := refs[i]; {
			case ref.Role == reconcile.RoleWALGeneration:
				out[i] = slices.ContainsFunc(named, func(root string) bool { return ref.Path == root || strings.HasPrefix(ref.Path, root+"/") })
			case ref.Reason == reasonHinted:
				out[i] = old(sh.HintTime)
			default:
				out[i] = len(sh.Manifests) > 0 && old(sh.Manifests[0].ModTime)
			}
		}
	}
	return nil
}

// namedLongAgo are the roots of the generations that an old enough manifest of the
// shard names.
func (t *Table) namedLongAgo(ctx context.Context, sh lance.Shard, old func(time.Time) bool, reads *int) ([]string, error) {
	i := slices.IndexFunc(sh.Manifests, func(e lance.VersionEntry) bool { return old(e.ModTime) })
	if i > 0 && *reads < olderReads {
		*reads++
		was, err := sh.At(ctx, t.main, sh.Manifests[i])
		var corrupt *lance.CorruptError
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.As(err, &corrupt):
			return nil, nil // cleaned up or broken: it shows nothing
		case err != nil:
			return nil, err
		}
		sh, i = was, 0
	}
	if i != 0 {
		return nil, nil
	}
	var roots []string
	for _, g := range sh.Generations {
		roots = append(roots, sh.Root(g))
	}
	return roots, nil
}
