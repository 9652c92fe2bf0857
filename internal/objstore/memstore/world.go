package memstore

import (
	"bytes"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Put stores an object whatever is there, as some other program would.
func (s *Store) Put(loc objstore.Location, data []byte) {
	data = bytes.Clone(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(loc, version{data: data, attrs: objstore.Attrs{Size: int64(len(data)), ETag: etag(data)}})
}

// PutSparse stores an object of size zero bytes that takes no memory.
func (s *Store) PutSparse(loc objstore.Location, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(loc, version{sparse: true, attrs: objstore.Attrs{Size: size, ETag: etag([]byte(loc.Key))}})
}

// Remove takes an object away, as some other program would. With versions it puts
// a delete marker on top; otherwise the bytes are gone.
func (s *Store) Remove(loc objstore.Location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Versions {
		s.put(loc, version{attrs: objstore.Attrs{DeleteMarker: true, Size: objstore.Unknown}})
		return
	}
	delete(s.keys, loc)
	s.sorted = nil
}

// Purge takes an object and all its versions away.
func (s *Store) Purge(loc objstore.Location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, loc)
	s.sorted = nil
}

// RemoveBucket makes the bucket of loc absent: everything in it answers
// [objstore.ErrNoSuchBucket].
func (s *Store) RemoveBucket(loc objstore.Location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[loc.Container()] = true
}

// Update changes what is told about the newest version of an object (ModTime,
// StorageClass, Archived, Checksums, Size for a store that lies). It reports
// whether there is one.
func (s *Store) Update(loc objstore.Location, change func(*objstore.Attrs)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	vs := s.keys[loc]
	if len(vs) == 0 {
		return false
	}
	change(&vs[len(vs)-1].attrs)
	return true
}

// Data is the newest bytes of an object; ok is false when there is none.
func (s *Store) Data(loc objstore.Location) (data []byte, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, err := s.newest("data", loc)
	if err != nil {
		return nil, false
	}
	if v.sparse {
		return make([]byte, v.attrs.Size), true
	}
	return bytes.Clone(v.data), true
}

// Locations lists every object that is there, in order.
func (s *Store) Locations() []objstore.Location {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []objstore.Location
	for _, loc := range s.sortedKeys() {
		vs := s.keys[loc]
		if !vs[len(vs)-1].attrs.DeleteMarker {
			out = append(out, loc)
		}
	}
	return out
}
