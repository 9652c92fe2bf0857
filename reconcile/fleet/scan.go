package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/rocketkeep/reconcile/internal/lancestore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/lance/datafile"
)

// The columns of a registry, all of them not null: two texts, and Unix milliseconds
// as int64.
var registryColumns = []string{"name", "uri", "created_at"}

// errBadRegistry: what is there is no registry.
var errBadRegistry = errors.New("bad registry")

// isBad reports whether an error is about what is stored rather than about reading it.
func isBad(err error) bool {
	var corrupt *lance.CorruptError
	var page *datafile.CorruptError
	var unsupported *datafile.UnsupportedError
	var flags *lance.FlagError
	for _, bad := range []error{errBadRegistry, lance.ErrMixedNaming, lance.ErrNoVersions, lance.ErrNoColumn, datafile.ErrLegacy, fs.ErrNotExist} {
		if errors.Is(err, bad) {
			return true
		}
	}
	return errors.As(err, &corrupt) || errors.As(err, &page) || errors.As(err, &unsupported) || errors.As(err, &flags)
}

// scan is the rowReader of registries as they are stored: Lance tables. It reads the
// newest version and leaves out the rows that deletion files delete.
func scan(ctx context.Context, stores Stores, root objstore.Location, kind string) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		m, s, err := newestRegistry(ctx, stores, root, kind)
		if err != nil {
			yield(row{}, err)
			return
		}
		for rows, err := range m.Scan(ctx, s, lance.ScanOptions{}, registryColumns...) {
			if err != nil {
				yield(row{}, err)
				return
			}
			name, uri, created := rows.Columns[0], rows.Columns[1], rows.Columns[2]
			for i := range rows.Len {
				r := row{}
				if !name.Null(i) {
					r.name = name.String(i)
				}
				if !uri.Null(i) {
					r.uri = uri.String(i)
				}
				if v, ok := created.Int(i); ok && !created.Null(i) {
					r.createdAt = v
				}
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// newestRegistry reads the newest manifest of a registry, and no other: one that
// nobody maintains has tens of thousands.
func newestRegistry(ctx context.Context, stores Stores, root objstore.Location, kind string) (*lance.Manifest, lance.Store, error) {
	// Opened at the root, so that an absent registry is no absent root.
	r, err := stores.Reader(ctx, root)
	if err != nil {
		return nil, nil, err
	}
	s := lancestore.New(r, root.Join(registryFolder(kind)))
	vs, err := lance.ListVersions(ctx, s)
	if errors.Is(err, lance.ErrNoVersions) {
		for _, lerr := range s.List(ctx, "", "") {
			if lerr != nil {
				return nil, nil, lerr
			}
			return nil, nil, fmt.Errorf("%w: %w", errBadRegistry, err) // objects and no manifest
		}
		return nil, nil, errNoRegistry
	}
	if err != nil {
		return nil, nil, err
	}
	m, err := lance.ReadManifest(ctx, s, vs.Newest())
	if err == nil {
		err = m.CheckReaderFlags()
	}
	return m, s, err
}
