package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// CreateOverMarker implements [objstore.MarkerCreator].
//
// The versions of the key are listed, and the marker must be the newest. Then the
// object is put with If-None-Match, which on AWS holds over a delete marker. A server
// that answers 412 there is asked for the versions once more; while nothing has
// changed, the object is put without a condition. Either way the versions are listed
// again afterwards: ours must be the newest, the marker must be left, and every other
// version must have been there before.
//
// In a bucket whose versioning is suspended a write takes the place of the version
// "null". Where that is an older object its bytes would be gone, so the write is
// refused; where it is the marker itself, that is replaced.
func (s *Store) CreateOverMarker(ctx context.Context, loc objstore.Location, markerVersionID string, body io.Reader, size int64) (objstore.Attrs, error) {
	const op = "overmarker"
	refuse := func(err error) (objstore.Attrs, error) {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, Err: err}
	}
	if err := s.own(op, loc, true); err != nil {
		return objstore.Attrs{}, err
	}
	if markerVersionID == "" {
		return refuse(fmt.Errorf("no delete marker: %w", fs.ErrInvalid))
	}
	seeker, done, err := twice(ctx, body, size)
	if err != nil {
		return refuse(err)
	}
	defer done()
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return refuse(fmt.Errorf("seek body: %w", err))
	}
	before, err := s.underMarker(ctx, loc, markerVersionID)
	if err != nil {
		return objstore.Attrs{}, err
	}
	a, err := s.put(ctx, op, loc, seeker, size, condition{noneMatch: true})
	var e *objstore.Error
	if errors.As(err, &e) && e.Status == http.StatusPreconditionFailed {
		if err := s.stillUnderMarker(ctx, loc, markerVersionID, before); err != nil {
			return objstore.Attrs{}, err
		}
		if _, err := seeker.Seek(start, io.SeekStart); err != nil {
			return refuse(fmt.Errorf("seek body: %w", err))
		}
		a, err = s.put(ctx, op, loc, seeker, size, condition{})
	}
	if err != nil {
		return objstore.Attrs{}, err
	}
	if err := s.onlyOurs(ctx, loc, markerVersionID, before, a); err != nil {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: loc, RequestID: a.RequestID, Err: err}
	}
	return a, nil
}

// collect is every version of a key.
func (s *Store) collect(ctx context.Context, loc objstore.Location) (all []objstore.Attrs, err error) {
	for a, err := range s.Versions(ctx, loc) {
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// underMarker is the ids of all versions of a key whose newest one is the marker;
// otherwise the error matches [objstore.ErrExist].
func (s *Store) underMarker(ctx context.Context, loc objstore.Location, marker string) (map[string]bool, error) {
	all, err := s.collect(ctx, loc)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 || !all[0].IsLatest || !all[0].DeleteMarker || all[0].VersionID != marker {
		return nil, &objstore.Error{Op: "overmarker", Location: loc, Err: fmt.Errorf("the delete marker %s is not the newest version: %w", marker, objstore.ErrExist)}
	}
	ids := make(map[string]bool, len(all))
	for _, a := range all {
		ids[a.VersionID] = true
	}
	if marker == objstore.NullVersion || !ids[objstore.NullVersion] {
		return ids, nil
	}
	v, err := s.Versioning(ctx, loc)
	if err == nil && v != objstore.VersioningEnabled {
		err = &objstore.Error{Op: "overmarker", Location: loc, Err: fmt.Errorf("%w: versioning is %s, so that a write would take the place of the older version %q", objstore.ErrUnsupported, v, objstore.NullVersion)}
	}
	return ids, err
}

// stillUnderMarker is nil while the versions are those that were seen before.
func (s *Store) stillUnderMarker(ctx context.Context, loc objstore.Location, marker string, before map[string]bool) error {
	now, err := s.underMarker(ctx, loc, marker)
	if err != nil {
		return err
	}
	for id := range now {
		if !before[id] {
			return &objstore.Error{Op: "overmarker", Location: loc, Err: fmt.Errorf("version %s is new: %w", id, objstore.ErrExist)}
		}
	}
	return nil
}

const (
	// afterGrace is how long the look after a write goes on when the context has ended.
	afterGrace = 20 * time.Second
	lookTries  = 3
	lookPause  = 200 * time.Millisecond
)

// onlyOurs is nil when, beside the versions that were there before, there is only what
// was just put, on top, and the marker. Anything else matches [objstore.ErrConflict].
// When the versions cannot be listed, whether there is a conflict is not known: that
// error matches none of the sentinels.
func (s *Store) onlyOurs(ctx context.Context, loc objstore.Location, marker string, before map[string]bool, put objstore.Attrs) error {
	ours := put.VersionID
	if ours == "" {
		ours = objstore.NullVersion // of a bucket whose versioning is suspended
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterGrace)
	defer cancel()
	all, err := s.collect(ctx, loc)
	for n := 1; n < lookTries && err != nil && retryable(err); n++ {
		pause(ctx, time.Duration(n)*lookPause)
		all, err = s.collect(ctx, loc)
	}
	if err != nil {
		return fmt.Errorf("version %s was put; whether another came in between is not known: %v", ours, err)
	}
	if len(all) == 0 || !all[0].IsLatest || all[0].VersionID != ours || all[0].DeleteMarker || all[0].ETag != put.ETag {
		return fmt.Errorf("%w: version %s was put and is not the newest", objstore.ErrConflict, ours)
	}
	left := marker == ours
	for _, a := range all[1:] {
		if !before[a.VersionID] {
			return fmt.Errorf("%w: version %s was put, and %s is new, too", objstore.ErrConflict, ours, a.VersionID)
		}
		left = left || a.VersionID == marker && a.DeleteMarker
	}
	if !left {
		return fmt.Errorf("%w: version %s was put, and the delete marker %s is gone", objstore.ErrConflict, ours, marker)
	}
	return nil
}

func retryable(err error) bool {
	var e *objstore.Error
	return errors.As(err, &e) && e.Retryable()
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
