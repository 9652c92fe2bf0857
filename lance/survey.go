package lance

import (
	"hash/maphash"
	"math"
)

// survey walks everything once, so that what is wrong shows before anything is
// told, and adds up what callers ask for first.
func (m *Manifest) survey() error {
	if err := m.surveyFields(); err != nil {
		return err
	}
	s := surveyor{m: m, sum: &m.Summary, paths: pathSet{seed: maphash.MakeSeed()}, ascending: true}
	for f, err := range m.walk(false) {
		if err != nil {
			return err
		}
		if err := s.fragment(f); err != nil {
			return err
		}
	}
	s.finish()
	for x, err := range m.Indices() {
		if err != nil {
			return err
		}
		m.memWAL = m.memWAL || x.Name == MemWALIndex
	}
	return nil
}

// surveyor adds up fragments.
type surveyor struct {
	m                  *Manifest
	sum                *Summary
	paths              pathSet
	lastID             uint64
	ascending          bool
	noPhysical, noLive bool
}

func (s *surveyor) fragment(f *Fragment) error {
	sum := s.sum
	s.ascending = s.ascending && (sum.Fragments == 0 || f.ID > s.lastID)
	s.lastID = f.ID
	sum.Fragments++
	for i := range f.Files {
		d := &f.Files[i]
		sum.DataFiles++
		if d.Dead {
			sum.DeadFiles++
		} else {
			s.m.blobV2 = s.m.blobV2 || s.m.holdsBlobs(d)
		}
		s.m.repeatedPaths = s.m.repeatedPaths || !s.paths.add(d)
	}
	for i := range f.Overlays {
		sum.Overlays++
		s.m.repeatedPaths = s.m.repeatedPaths || !s.paths.add(&f.Overlays[i])
	}
	if len(f.External) > 0 {
		sum.ExternalFiles += int64(len(f.External))
		s.m.repeatedPaths = true // several fragments may share such a file
	}
	if f.Deletion != nil {
		sum.DeletionFiles++
		if base, ok := s.m.Base(f.Deletion.BaseID); f.Deletion.HasBase && ok && !base.IsDatasetRoot {
			return corrupt("the deletion file of fragment %d lies below base path %d, which is no dataset root", f.ID, base.ID)
		}
	}
	s.rows(f)
	return nil
}

func (s *surveyor) rows(f *Fragment) {
	live, known := f.LiveRows()
	s.noPhysical = s.noPhysical || f.PhysicalRows == 0 || s.sum.PhysicalRows > math.MaxInt64-f.PhysicalRows
	s.noLive = s.noLive || s.noPhysical || !known
	if !s.noPhysical {
		s.sum.PhysicalRows += f.PhysicalRows
	}
	if !s.noLive {
		s.sum.LiveRows += live
	}
}

func (s *surveyor) finish() {
	if s.noPhysical {
		s.sum.PhysicalRows = -1
	}
	if s.noLive {
		s.sum.LiveRows = -1
	}
	if s.ascending {
		return
	}
	seen := make(map[uint64]struct{}, 64)
	for f := range s.m.walk(false) {
		if _, twice := seen[f.ID]; twice {
			s.sum.DuplicateIDs, s.m.repeatedPaths = true, true
			return
		}
		seen[f.ID] = struct{}{}
	}
}

// pathSet remembers the hashes of data file names, eight bytes each, so that one
// walk over a million files can tell whether any is named twice. Two names with
// one hash only cost the exact comparison that a repeated name costs. The seed is
// random, so nobody can make a manifest whose names collide.
type pathSet struct {
	seed  maphash.Seed
	slots []uint64 // 0 is free
	n     int
}

// add reports whether the file's hash is new.
func (p *pathSet) add(d *DataFile) bool {
	if p.n*2 >= len(p.slots) {
		p.grow()
	}
	h := maphash.Bytes(p.seed, d.path)
	if d.HasBase {
		h ^= (uint64(d.BaseID) + 1) * 0x9e3779b97f4a7c15
	}
	if !p.insert(max(h, 1)) {
		return false
	}
	p.n++
	return true
}

func (p *pathSet) insert(h uint64) bool {
	mask := uint64(len(p.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch p.slots[i] {
		case h:
			return false
		case 0:
			p.slots[i] = h
			return true
		}
	}
}

func (p *pathSet) grow() {
	old := p.slots
	p.slots = make([]uint64, max(2*len(old), 64))
	for _, h := range old {
		if h != 0 {
			p.insert(h)
		}
	}
}
