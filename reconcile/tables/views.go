package tables

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

const scopeLatest = "latest"

// view is one manifest in scope. Only the newest one of main keeps its bytes; the
// others are read again for each walk, since all retained versions together may
// not fit in memory.
type view struct {
	scopes []string
	store  *rooted // at the dataset root that holds the manifest (a branch has its own)
	entry  lance.VersionEntry
	// manifest is nil unless kept.
	manifest *lance.Manifest
	// sidecars are those of the version once they were walked; nil before, and when
	// they are too many to keep.
	sidecars []reconcile.Reference
	// lost stands for a manifest that a tag or branch promises and no listing shows.
	lost *reconcile.Reference
}

func (v *view) read(ctx context.Context) (*lance.Manifest, error) {
	if v.manifest != nil {
		return v.manifest, nil
	}
	for try := 1; ; try++ {
		m, err := v.store.readManifest(ctx, v.entry)
		if err == nil || try == manifestTries || ctx.Err() != nil {
			return m, err
		}
	}
}

// openViews fills t.views: the newest version of main first, the others by
// falling version.
func (t *Table) openViews(ctx context.Context, vs *lance.VersionSet, m *lance.Manifest, out *reconcile.Facts) error {
	t.views = []*view{{scopes: []string{scopeLatest}, store: t.main, entry: vs.Newest(), manifest: m}}
	if t.opts.Versions != reconcile.VersionsCurrent {
		if err := t.openPromised(ctx, vs, out); err != nil {
			return err
		}
	}
	if t.opts.Versions == reconcile.VersionsAll {
		for _, e := range vs.Entries {
			t.addView(t.main, e, fmt.Sprintf("version:%d", e.Version))
		}
		if n := int64(len(vs.Detached)); n > 0 {
			out.NotChecked = append(out.NotChecked, reconcile.NotChecked{Role: reconcile.RoleManifest, Count: &n, Reason: "detached versions are not part of the history"})
		}
	}
	slices.SortStableFunc(t.views[1:], func(a, b *view) int {
		switch {
		case a.entry.Version > b.entry.Version:
			return -1
		case a.entry.Version < b.entry.Version:
			return 1
		}
		return 0
	})
	return t.noteIndexes(ctx)
}

// openPromised adds what tags and branches promise.
func (t *Table) openPromised(ctx context.Context, vs *lance.VersionSet, out *reconcile.Facts) error {
	tags, err := lance.Tags(ctx, t.main)
	branches, branchErr := lance.Branches(ctx, t.main)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.noteRefs(ctx, errors.Join(err, branchErr), out)
	return t.addPromised(ctx, vs, tags, branches, out)
}

func (t *Table) addPromised(ctx context.Context, vs *lance.VersionSet, tags []lance.Tag, branches []lance.Branch, out *reconcile.Facts) error {
	stores := map[string]*rooted{"": t.main}
	sets := map[string]*lance.VersionSet{"": vs}
	for _, b := range branches {
		s := newRooted(t.main.r, t.target.Location.Join(b.Root))
		bvs, err := lance.ListVersions(ctx, s)
		scope := "branch:" + b.Name
		switch {
		case err == nil:
			stores[b.Name], sets[b.Name] = s, bvs
			t.addView(s, bvs.Newest(), scope)
			if t.opts.Versions == reconcile.VersionsAll {
				for _, e := range bvs.Entries {
					t.addView(s, e, fmt.Sprintf("%s@version:%d", scope, e.Version))
				}
			}
		case errors.Is(err, lance.ErrNoVersions):
			// The branch file promises at least the version it began with.
			stores[b.Name] = s
			t.addLost(s, b.ParentVersion, scope)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, lance.ErrMixedNaming):
			out.Findings = append(out.Findings, t.metadataFinding(b.Root+"/_versions/", reconcile.Unreadable, reconcile.ReasonMixedNaming, nil))
		default:
			out.Findings = append(out.Findings, t.cannotLook(ctx, b.Root+"/_versions/", err).Findings...)
		}
	}
	for _, tag := range tags {
		s, ok := stores[tag.Branch]
		if !ok {
			out.Findings = append(out.Findings, t.metadataFinding("_refs/tags/"+tag.Name+".json", reconcile.Unreadable, "unknown_branch", nil))
			continue
		}
		scope := "tag:" + tag.Name
		var entries []lance.VersionEntry
		if set := sets[tag.Branch]; set != nil {
			entries = set.Entries
		}
		i := slices.IndexFunc(entries, func(e lance.VersionEntry) bool { return e.Version == tag.Version })
		if i < 0 {
			t.addLost(s, tag.Version, scope)
			continue
		}
		t.addView(s, entries[i], scope)
	}
	return nil
}

// addView adds a manifest to the scope, or a scope to a manifest already there.
func (t *Table) addView(s *rooted, e lance.VersionEntry, scope string) {
	for _, v := range t.views {
		if v.store.root == s.root && v.entry.Version == e.Version {
			v.scopes = append(v.scopes, scope)
			return
		}
	}
	t.views = append(t.views, &view{scopes: []string{scope}, store: s, entry: e})
}

// addLost adds a manifest that is promised and that no listing shows. A listing
// proves nothing, so it becomes a reference like any other, under both of the
// names it can have.
func (t *Table) addLost(s *rooted, version uint64, scope string) {
	for _, v := range t.views {
		if v.lost != nil && v.store.root == s.root && v.entry.Version == version {
			v.scopes = append(v.scopes, scope)
			return
		}
	}
	naming, other := lance.V2, lance.V1
	if t.versions.Naming == lance.V1 {
		naming, other = other, naming
	}
	name := lance.ManifestName(version, naming)
	loc := s.root.Join(name)
	rel, _ := loc.Rel(t.target.Location)
	t.views = append(t.views, &view{scopes: []string{scope}, store: s, entry: lance.VersionEntry{Version: version, Name: name},
		lost: &reconcile.Reference{Role: reconcile.RoleManifest, Path: rel, Location: loc, Alternates: []reconcile.Place{{Base: t.target.Location, Location: s.root.Join(lance.ManifestName(version, other))}},
			Base: t.target.Location, Version: version, MinSize: 1, PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}})
}

// References implements reconcile.Source.
func (t *Table) References(ctx context.Context) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		seen := newSeen(len(t.views) > 1)
		for _, v := range t.views {
			for ref, err := range t.viewReferences(ctx, v) {
				if err != nil {
					yield(reconcile.Reference{}, err)
					return
				}
				if seen.before(ref) {
					continue
				}
				if !yield(ref, nil) {
					return
				}
			}
		}
		for ref, err := range t.walReferences(ctx) {
			if !yield(ref, err) || err != nil {
				return
			}
		}
	}
}

// viewReferences streams what one manifest names.
func (t *Table) viewReferences(ctx context.Context, v *view) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		if v.lost != nil {
			yield(*v.lost, nil)
			return
		}
		m, err := v.read(ctx)
		var corrupt *lance.CorruptError
		switch {
		case errors.As(err, &corrupt):
			yield(t.brokenReference(v), nil)
			return
		case err != nil && errors.Is(err, fs.ErrNotExist) && v.manifest == nil:
			return // cleaned up since it was listed: nothing is promised any more
		case err != nil:
			yield(reconcile.Reference{}, fmt.Errorf("read manifest %s: %w", v.entry.Name, err))
			return
		}
		if m.CheckReaderFlags() != nil {
			ref := t.brokenReference(v)
			ref.Location, ref.Reason = objstore.Location{}, reconcile.ReasonUnknownReaderFlags // stays undecided
			yield(ref, nil)
			return
		}
		for f, err := range m.Files() {
			if err != nil {
				yield(reconcile.Reference{}, fmt.Errorf("walk manifest %s: %w", v.entry.Name, err))
				return
			}
			if f.Kind == lance.KindIndex && f.IndexName != lance.FragReuseIndex {
				continue // named below, with the places it may lie at
			}
			if !yield(t.reference(m, v, f), nil) {
				return
			}
		}
		for x, err := range m.Indices() {
			if err != nil {
				yield(reconcile.Reference{}, fmt.Errorf("walk indices of %s: %w", v.entry.Name, err))
				return
			}
			refs, _, err := t.indexReferences(ctx, m, v, x)
			if err != nil {
				yield(reconcile.Reference{}, err)
				return
			}
			for _, ref := range refs {
				if !yield(ref, nil) {
					return
				}
			}
		}
		if !m.HasBlobV2() {
			return
		}
		for ref, err := range t.sidecarReferences(ctx, m, v) {
			if !yield(ref, err) || err != nil {
				return
			}
		}
	}
}

// brokenReference stands for a retained manifest that is no manifest. Its least
// size is beyond any object's, so that the look calls it unreadable when it is
// there at all, and missing when it is not.
func (t *Table) brokenReference(v *view) reconcile.Reference {
	loc := v.store.root.Join(v.entry.Name)
	rel, _ := loc.Rel(t.target.Location)
	return reconcile.Reference{Role: reconcile.RoleManifest, Path: rel, Location: loc, Base: t.target.Location, Version: v.entry.Version,
		MinSize: 1 << 62, Reason: reconcile.ReasonBadManifest, PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}
}

var roles = map[lance.Kind]reconcile.Role{
	lance.KindData: reconcile.RoleData, lance.KindDeletion: reconcile.RoleDeletion, lance.KindOverlay: reconcile.RoleOverlay,
	lance.KindRowIDs: reconcile.RoleRowIDs, lance.KindIndex: reconcile.RoleIndex, lance.KindTransaction: reconcile.RoleTransaction,
}

// reference resolves one file of a manifest.
func (t *Table) reference(m *lance.Manifest, v *view, f lance.File) reconcile.Reference {
	ref := reconcile.Reference{Role: roles[f.Kind], Path: f.Path, Base: v.store.root, Version: v.entry.Version,
		FragmentID: f.FragmentID, HasFragment: f.HasFragment, MinSize: f.MinSize, Size: f.Size, PhysicalRows: f.PhysicalRows, LiveRows: f.LiveRows}
	if f.Dead {
		ref.Harmless, ref.Reason = true, reconcile.ReasonDeadFile
	}
	if f.Kind == lance.KindTransaction {
		ref.Harmless = true
	}
	if f.HasBase {
		at, _ := t.base(m, f.BaseID)
		if at.err != nil {
			ref.Base, ref.Reason = objstore.Location{}, reconcile.ReasonUnknownBase
			return ref
		}
		ref.Base = at.loc
	}
	ref.Location = ref.Base.Join(f.Path)
	return ref
}

// base resolves a base path by id. The error says that metadata does not resolve:
// the id is unknown, or its text names no place that this version can look at.
func (t *Table) base(m *lance.Manifest, id uint32) (baseAt, lance.BasePath) {
	b, ok := m.Base(id)
	if !ok {
		return baseAt{err: fmt.Errorf("base path id %d is not in the manifest", id)}, b
	}
	at, ok := t.bases[b.Path]
	if !ok {
		at.loc, at.err = t.stores.Locate(b.Path)
		at.loc.Key = strings.TrimRight(at.loc.Key, "/")
		t.bases[b.Path] = at
	}
	return at, b
}

// indexDir is the folder of an index below a base (or root).
func indexDir(loc objstore.Location, uuid string, datasetRoot bool) (objstore.Location, string) {
	if datasetRoot {
		return loc.Join("_indices/" + uuid), "_indices/" + uuid
	}
	return loc.Join(uuid), uuid
}

// indexReferences names the files of one index: those recorded or, for releases
// that recorded none, those that an index of its kind certainly has. known is
// false when nothing certain can be said.
//
// Lance gives every index of a branch the newest base id, whose folder need not be
// the one that holds it; therefore the other bases and the root are alternates.
func (t *Table) indexReferences(ctx context.Context, m *lance.Manifest, v *view, x lance.Index) (refs []reconcile.Reference, known bool, err error) {
	if x.Name == lance.MemWALIndex || x.Name == lance.FragReuseIndex {
		return nil, true, nil
	}
	root, isRoot, unknown := v.store.root, true, false
	if x.HasBase {
		at, b := t.base(m, x.BaseID)
		root, isRoot, unknown = at.loc, b.IsDatasetRoot, at.err != nil
	}
	dir, rel := indexDir(root, x.UUID, isRoot)
	files := x.Files
	oneOf := false
	if len(files) == 0 && !unknown {
		if files, oneOf, err = t.unrecorded(ctx, x, root, rel); err != nil {
			return nil, false, err
		}
	}
	for _, f := range files {
		ref := reconcile.Reference{Role: reconcile.RoleIndex, Path: rel + "/" + f.Path, Base: root, Version: v.entry.Version, Size: f.Size,
			IndexUUID: x.UUID, IndexName: x.Name, MinSize: lance.MinFileSize(lance.KindIndex, f.Path), PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}
		if unknown {
			ref.Base, ref.Reason = objstore.Location{}, reconcile.ReasonUnknownBase
			refs = append(refs, ref)
			continue
		}
		ref.Location = dir.Join(f.Path)
		ref.Alternates = t.indexAlternates(m, v, x, ref.Location, f.Path)
		if oneOf {
			ref.Reason = reasonIndexEmpty
		}
		if oneOf && len(refs) == 1 {
			refs[0].Alternates = append(refs[0].Alternates, reconcile.Place{Base: root, Location: ref.Location})
			continue
		}
		refs = append(refs, ref)
	}
	return refs, len(refs) > 0, nil
}

// emptyIndex are the files, any one of which an index without details (up to Lance
// 0.19) has: a bitmap or label list's only file first, since an index that lost
// one file and lists empty had only one, then the first file of every other kind.
var emptyIndex = []lance.IndexFile{{Path: "bitmap_page_lookup.lance"}, {Path: "page_lookup.lance"}, {Path: "page_data.lance"}, {Path: "tokens.lance"}, {Path: "invert.lance"},
	{Path: "docs.lance"}, {Path: "metadata.lance"}, {Path: "index.idx"}}

// unrecorded finds what an index that records no files certainly has. oneOf means
// that any one of the files is enough to call the index present: its folder lists
// empty, which proves nothing by itself, and HEADs decide.
func (t *Table) unrecorded(ctx context.Context, x lance.Index, root objstore.Location, rel string) (files []lance.IndexFile, oneOf bool, err error) {
	key := root.Join(rel)
	if found, ok := t.indexFiles[key]; ok {
		return found.files, found.oneOf, nil
	}
	var must []string
	var listed int
	var known bool
	r, err := t.stores.Reader(ctx, root)
	if err == nil {
		must, listed, known, err = x.FindFiles(ctx, newRooted(r, root), rel+"/")
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		t.opts.Logger.Debug("list index folder", "url", key.String(), "err", err)
		must, known = x.Signature(nil)
	}
	for _, name := range must {
		files = append(files, lance.IndexFile{Path: name})
	}
	if !known && listed == 0 && err == nil && x.DetailsType == "" {
		files, oneOf = emptyIndex, true
	}
	t.indexFiles[key] = indexFound{files, oneOf}
	return files, oneOf, nil
}

// reasonIndexEmpty says that the file named is the likeliest of several: the index
// records neither kind nor files, and none of any kind is there.
const reasonIndexEmpty = "no_file_of_index_found"

// indexFound is what unrecorded found.
type indexFound struct {
	files []lance.IndexFile
	oneOf bool
}

// indexAlternates are the other places an index file of a table with base paths
// may lie at.
func (t *Table) indexAlternates(m *lance.Manifest, v *view, x lance.Index, first objstore.Location, name string) []reconcile.Place {
	if len(m.BasePaths) == 0 {
		return nil
	}
	var out []reconcile.Place
	add := func(base objstore.Location, datasetRoot bool) {
		dir, _ := indexDir(base, x.UUID, datasetRoot)
		p := reconcile.Place{Base: base, Location: dir.Join(name)}
		if p.Location != first && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	add(v.store.root, true)
	for _, b := range m.BasePaths {
		if at, _ := t.base(m, b.ID); at.err == nil {
			add(at.loc, b.IsDatasetRoot)
		}
	}
	return out
}

// noteIndexes finds, once, the indexes of the newest version whose files nobody
// can name.
func (t *Table) noteIndexes(ctx context.Context) error {
	v := t.views[0]
	for x, err := range v.manifest.Indices() {
		if err != nil {
			return nil // the walk of References tells it
		}
		if len(x.Files) > 0 {
			continue
		}
		_, known, err := t.indexReferences(ctx, v.manifest, v, x)
		if err != nil {
			return err
		}
		if !known {
			t.indexNote = append(t.indexNote, reconcile.NotChecked{Role: reconcile.RoleIndex,
				Reason: fmt.Sprintf("index %s records no files, its kind names none for certain, and what its folder lists settles nothing", x.Name)})
		}
	}
	return nil
}

// seen remembers which objects were named before, over all versions in scope, in
// 16 bytes each.
type seen struct{ keys map[[16]byte]struct{} }

func newSeen(needed bool) *seen {
	if !needed {
		return &seen{}
	}
	return &seen{keys: map[[16]byte]struct{}{}}
}

func (s *seen) before(ref reconcile.Reference) bool {
	if s.keys == nil {
		return false
	}
	k := key(ref)
	if _, ok := s.keys[k]; ok {
		return true
	}
	s.keys[k] = struct{}{}
	return false
}

// key identifies what a reference names: role and place, or role and name where
// the metadata does not resolve. An index file is known by its index, since the
// versions of a branch need not agree on where that lies.
func key(ref reconcile.Reference) [16]byte {
	h := sha256.New()
	h.Write([]byte{byte(ref.Role)})
	if ref.IndexUUID != "" {
		_, name, _ := strings.Cut(ref.Path, ref.IndexUUID+"/")
		h.Write([]byte(ref.IndexUUID + "/" + name))
	} else if ref.Location != (objstore.Location{}) {
		h.Write([]byte(ref.Location.Canonical()))
	} else {
		h.Write([]byte{0})
		h.Write([]byte(ref.Path))
	}
	return [16]byte(h.Sum(nil)[:16])
}
