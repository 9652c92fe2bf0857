package lance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// Store is what this package needs of storage: the objects below one dataset
// root, with names relative to it and "/" between their parts.
type Store interface {
	// Get returns n bytes of an object from offset off: to its end when n < 0; the
	// last -off bytes when off < 0, which is the whole object when it is shorter
	// (n is then ignored). Object describes the whole object. The error of a
	// missing object matches fs.ErrNotExist. A body that ends early is an error of
	// Read, never a silent end.
	Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, Object, error)
	// List yields the objects whose name begins with prefix, in any order. With
	// delimiter "/" it yields one level: objects, and entries with Prefix set whose
	// name ends in "/". The first error ends the sequence, and what came before it
	// is then not the whole.
	List(ctx context.Context, prefix, delimiter string) iter.Seq2[Object, error]
}

// Object is what a store tells about one object.
type Object struct {
	// Name relative to the dataset root.
	Name string
	// Size in bytes; -1 when the store did not tell.
	Size int64
	// ETag is empty when the store has none.
	ETag string
	// ModTime is when the store last wrote the object, and ServerTime the store's
	// own clock at its answer. Zero when not told.
	ModTime, ServerTime time.Time
	// Prefix marks an entry of a delimited listing that stands for everything below Name.
	Prefix bool
}

// Sentinels; match with errors.Is.
var (
	// ErrNoVersions: _versions was listed to its end and holds no manifest.
	ErrNoVersions = errors.New("no manifest in _versions")
	// ErrMixedNaming: manifests of both naming schemes lie in one folder, which the
	// Lance library refuses to open.
	ErrMixedNaming = errors.New("manifests of two naming schemes in one folder")
	// ErrUnknownFormat: the bytes claim a format version that this package does not
	// know. They may be whole; it cannot tell.
	ErrUnknownFormat = errors.New("unknown format version")
)

// CorruptError says that bytes which were read in full are not what they should
// be. It is never returned for a read that failed.
type CorruptError struct {
	// Name of the object; empty when only its bytes were handed in.
	Name string
	// Reason in a few words.
	Reason string
}

// Error implements error.
func (e *CorruptError) Error() string {
	if e.Name == "" {
		return "corrupt: " + e.Reason
	}
	return e.Name + ": corrupt: " + e.Reason
}

func corrupt(format string, args ...any) *CorruptError {
	return &CorruptError{Reason: fmt.Sprintf(format, args...)}
}
