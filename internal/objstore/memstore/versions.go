package memstore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Versions implements [objstore.Versioner]; without Options.Versions it yields nothing.
func (s *Store) Versions(ctx context.Context, loc objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		if err := s.interrupted(ctx, "versions", loc); err != nil {
			yield(objstore.Attrs{}, err)
			return
		}
		s.mu.RLock()
		if s.gone[loc.Container()] {
			s.mu.RUnlock()
			yield(objstore.Attrs{}, s.fail("versions", loc, 404, "NoSuchBucket", objstore.ErrNoSuchBucket))
			return
		}
		vs := append([]version(nil), s.keys[loc]...)
		s.mu.RUnlock()
		if !s.opts.Versions {
			return
		}
		for i := len(vs) - 1; i >= 0; i-- {
			a := s.answer(loc, vs[i])
			a.IsLatest = i == len(vs)-1
			if !yield(a, nil) {
				return
			}
		}
	}
}

// errNoVersions: the store was made without Options.Versions.
var errNoVersions = fmt.Errorf("this store keeps no versions: %w", objstore.ErrUnsupported)

// GetVersion implements [objstore.VersionGetter].
func (s *Store) GetVersion(ctx context.Context, loc objstore.Location, versionID string, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	refuse := func(err error) (io.ReadCloser, objstore.Attrs, error) {
		return nil, objstore.Attrs{}, &objstore.Error{Op: "getversion", Location: loc, Err: err}
	}
	if !s.opts.Versions {
		return refuse(errNoVersions)
	}
	if versionID == "" {
		return refuse(fmt.Errorf("no version: %w", fs.ErrInvalid))
	}
	if err := r.Valid(); err != nil {
		return refuse(err)
	}
	if err := s.interrupted(ctx, "getversion", loc); err != nil {
		return nil, objstore.Attrs{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.gone[loc.Container()] {
		return nil, objstore.Attrs{}, s.fail("getversion", loc, 404, "NoSuchBucket", objstore.ErrNoSuchBucket)
	}
	for _, v := range s.keys[loc] {
		switch {
		case v.attrs.VersionID != versionID:
		case v.attrs.DeleteMarker:
			e := s.fail("getversion", loc, 405, "MethodNotAllowed", objstore.ErrNotExist)
			e.DeleteMarker = true
			return nil, objstore.Attrs{}, e
		default:
			return s.body(ctx, "getversion", loc, v, r)
		}
	}
	return nil, objstore.Attrs{}, s.fail("getversion", loc, 404, "NoSuchVersion", objstore.ErrNotExist)
}

// Versioning implements [objstore.VersioningTeller].
func (s *Store) Versioning(ctx context.Context, loc objstore.Location) (objstore.Versioning, error) {
	if err := s.interrupted(ctx, "versioning", loc); err != nil {
		return "", err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.gone[loc.Container()]:
		return "", s.fail("versioning", loc, 404, "NoSuchBucket", objstore.ErrNoSuchBucket)
	case s.opts.Versions:
		return objstore.VersioningEnabled, nil
	}
	return objstore.VersioningNever, nil
}

// CreateOverMarker implements [objstore.MarkerCreator]. Looking and putting are one
// step here, so that nothing can come in between.
func (s *Store) CreateOverMarker(ctx context.Context, loc objstore.Location, markerVersionID string, body io.Reader, size int64) (objstore.Attrs, error) {
	refuse := func(err error) (objstore.Attrs, error) {
		return objstore.Attrs{}, &objstore.Error{Op: "overmarker", Location: loc, Err: err}
	}
	if !s.opts.Versions {
		return refuse(errNoVersions)
	}
	if markerVersionID == "" {
		return refuse(fmt.Errorf("no delete marker: %w", fs.ErrInvalid))
	}
	return s.write(ctx, "overmarker", loc, body, size, func(_ version, err error) error {
		if s.gone[loc.Container()] {
			return err
		}
		vs := s.keys[loc]
		if n := len(vs); n > 0 && vs[n-1].attrs.DeleteMarker && vs[n-1].attrs.VersionID == markerVersionID {
			return nil
		}
		return s.fail("overmarker", loc, 412, "PreconditionFailed", objstore.ErrExist)
	})
}
