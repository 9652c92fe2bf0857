package lance

import (
	"cmp"
	"slices"
)

// ProposeAddFragments derives the version that has dropped fragments back: an
// Append of the very messages (Fragment.Raw) that were taken away. Their ids must
// be free and have been given out before (at most MaxFragmentID); their base paths
// and fields must resolve, every column must be there, and their files must be
// those of no other fragment. Everything else keeps its bytes.
//
// That the objects are there again is for the caller to prove. So is that the
// table was not overwritten or restored to another version in between
// (Transaction.Operation of the versions since): then ids and field ids can mean
// other rows.
//
// intact are the uuids of the index entries that are known to hold the fragments'
// rows: those of the version that the fragments were dropped from. An entry that
// says it covers a returning fragment, or does not say what it covers, must be one
// of them. An index that the library has merged or remapped since may still name the
// fragment, and hold its rows (as Lance 0.22 to 12 do) or not (as Lance 0.17 does),
// and then searches would not find them. It is refused; it can be dropped first
// (ProposeDropIndex) and built again afterwards.
//
// Errors are as those of ProposeDelete.
func (m *Manifest) ProposeAddFragments(raw [][]byte, intact []string, info CommitInfo) (*Proposal, error) {
	if len(raw) == 0 {
		return nil, refuse("no fragment to add")
	}
	schema, err := m.readSchema()
	if err != nil {
		return nil, err
	}
	c := change{operation: OpAppend}
	paths := map[string]struct{}{}
	f := &Fragment{}
	for _, b := range raw {
		if err := f.parse(b); err != nil {
			return nil, err
		}
		if err := m.checkReturning(f, schema); err != nil {
			return nil, err
		}
		for i := range f.Files {
			path := string(f.Files[i].path)
			if _, twice := paths[path]; twice {
				return nil, refuse("data file %.80q is named twice", path)
			}
			paths[path] = struct{}{}
		}
		c.add = append(c.add, newFragment{f.ID, b, f.Deletion != nil})
		c.body = appendMessage(c.body, 1, b)
	}
	slices.SortFunc(c.add, func(a, b newFragment) int { return cmp.Compare(a.id, b.id) })
	for i := 1; i < len(c.add); i++ {
		if c.add[i].id == c.add[i-1].id {
			return nil, refuse("two of the fragments have the id %d", c.add[i].id)
		}
	}
	if err := m.checkFree(c, paths); err != nil {
		return nil, err
	}
	if err := m.checkCoverage(c, intact); err != nil {
		return nil, err
	}
	return m.propose(c, info)
}

// readSchema reads the whole schema.
func (m *Manifest) readSchema() (map[int32]Field, error) {
	schema := map[int32]Field{}
	for f, err := range m.Fields() {
		if err != nil {
			return nil, err
		}
		schema[f.ID] = f
	}
	return schema, nil
}

// checkReturning says whether the table still is one that the fragment fits into.
func (m *Manifest) checkReturning(f *Fragment, schema map[int32]Field) error {
	rowIDs := false
	for b := f.Raw; len(b) > 0; {
		w, rest, err := cutField(b)
		if err != nil {
			return err
		}
		rowIDs = rowIDs || w.num == 5 || w.num == 6
		b = rest
	}
	stable := (m.ReaderFlags|m.WriterFlags)&flagStableRowIDs != 0
	switch {
	case m.MaxFragmentID == nil || f.ID > uint64(*m.MaxFragmentID):
		return refuse("fragment id %d was never given out", f.ID)
	case len(f.Overlays) > 0:
		return refuse("fragment %d has overlay files", f.ID)
	case rowIDs != stable:
		return refuse("stable row ids: table %v, fragment %d %v", stable, f.ID, rowIDs)
	case f.LiveFiles() == 0:
		return refuse("fragment %d has no data file", f.ID)
	}
	if d := f.Deletion; d != nil && d.HasBase {
		if base, ok := m.Base(d.BaseID); !ok || !base.IsDatasetRoot {
			return refuse("base path %d of the deletion file of fragment %d is not there", d.BaseID, f.ID)
		}
	}
	held := map[int32]struct{}{}
	for i := range f.Files {
		d := &f.Files[i]
		if d.HasBase {
			if _, ok := m.Base(d.BaseID); !ok {
				return refuse("base path %d of fragment %d is not there", d.BaseID, f.ID)
			}
		}
		if !m.fitsFormat(d) {
			return refuse("fragment %d has a file of format %d.%d in a table of %q", f.ID, d.Major, d.Minor, m.DataFormat)
		}
		for _, id := range d.Fields {
			held[id] = struct{}{}
		}
	}
	return checkColumns(f.ID, held, schema)
}

// fitsFormat reports whether a data file has the table's format, which all have
// unless a flag says that they are mixed.
func (m *Manifest) fitsFormat(d *DataFile) bool {
	if m.ReaderFlags&flagMixedVersions != 0 {
		return true
	}
	switch m.DataFormat {
	case "", "0.1":
		return d.Legacy()
	case "2.0":
		return d.Major == 2 && d.Minor == 0 || d.Major == 0 && d.Minor == 3
	}
	return m.DataFormat == uintText(uint64(d.Major))+"."+uintText(uint64(d.Minor))
}

// checkColumns compares the field ids that a fragment holds with the schema: none
// may be of a column that is gone, and each column must be there, itself or as a
// part of one that encloses it. A column that was added since would read as null,
// whatever it was filled with elsewhere.
func checkColumns(fragment uint64, held map[int32]struct{}, schema map[int32]Field) error {
	for id := range held {
		if _, ok := schema[id]; !ok && id >= 0 {
			return refuse("fragment %d holds field %d, which the table has no more", fragment, id)
		}
	}
	parents := map[int32]struct{}{}
	for _, f := range schema {
		parents[f.ParentID] = struct{}{}
	}
	for id, f := range schema {
		if _, inner := parents[id]; inner {
			continue
		}
		for depth := 0; ; depth++ {
			if _, ok := held[f.ID]; ok {
				break
			}
			parent, ok := schema[f.ParentID]
			if !ok || f.ParentID < 0 || depth > len(schema) {
				return refuse("fragment %d lacks field %d, which the table has now", fragment, id)
			}
			f = parent
		}
	}
	return nil
}

// checkFree says whether the ids and the files of the fragments to add are used by
// none that is there.
func (m *Manifest) checkFree(c change, paths map[string]struct{}) error {
	ids := make([]uint64, len(c.add))
	for i, f := range c.add {
		ids[i] = f.id
	}
	for f, err := range m.walk(false) {
		if err != nil {
			return err
		}
		if _, taken := slices.BinarySearch(ids, f.ID); taken {
			return refuse("fragment id %d is taken", f.ID)
		}
		for i := range f.Files {
			if _, used := paths[string(f.Files[i].path)]; used {
				return refuse("data file %.80q is in use by fragment %d", f.Files[i].path, f.ID)
			}
		}
	}
	return nil
}

// checkCoverage says whether every index that answers for a returning fragment has
// its rows.
func (m *Manifest) checkCoverage(c change, intact []string) error {
	for x, err := range m.Indices() {
		if err != nil {
			return err
		}
		if x.Name == MemWALIndex || x.Name == FragReuseIndex || slices.Contains(intact, x.UUID) {
			continue
		}
		if len(x.FragmentBitmap) == 0 {
			return refuse("the coverage of index %.80q (%s) is not known", x.Name, x.UUID)
		}
		for _, f := range c.add {
			has, err := bitmapHas(x.FragmentBitmap, uint32(f.id))
			if err != nil {
				return refuse("the coverage of index %.80q (%s) cannot be read", x.Name, x.UUID)
			}
			if has {
				return refuse("index %.80q (%s) says it covers fragment %d, and is not one that did", x.Name, x.UUID, f.id)
			}
		}
	}
	return nil
}
