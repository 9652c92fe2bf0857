// Package objstore is the storage vocabulary of reconcile: where an object lies
// ([Location]), what a store tells about it ([Attrs]), what can go wrong
// ([Error] and its sentinels), and the one-method interfaces that code asks for.
//
// Looking and writing are different types: a [Reader] cannot write, and nothing
// in this package or below it can delete.
package objstore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"strings"
	"time"
)

// Unknown is the size of an object whose store did not tell it.
const Unknown int64 = -1

// Attrs is what one answer of a store tells about one object. Fields that the
// answer did not carry keep their zero value, Size excepted, which is [Unknown].
type Attrs struct {
	Location Location
	// Size in bytes, or Unknown.
	Size int64
	// ETag without quotes; empty when not told.
	ETag string
	// VersionID is the store's id of this version; empty on stores or buckets without versions.
	VersionID string
	// ModTime is the store's Last-Modified (UTC). Zero when absent or the Unix
	// epoch, which some stores send for "unknown".
	ModTime time.Time
	// StorageClass as the store names it; empty means the default class.
	StorageClass string
	// Archived reports that reading needs a restore from an archive tier first.
	Archived bool
	// Checksums holds the server-kept full-object checksums in the form
	// "sha256:<hex>", "crc32c:<base64>" or "md5:<hex>", keyed by algorithm name.
	Checksums map[string]string
	// DeleteMarker and IsLatest are set by Versions only.
	DeleteMarker bool
	IsLatest     bool
	// ServerTime is the Date header of the answer (UTC); zero when absent.
	ServerTime time.Time
	// RequestID is what support asks for.
	RequestID string
	// Prefix marks an entry of a delimited listing that stands for all objects
	// below Location (whose Key then ends in "/").
	Prefix bool
}

// Agrees compares a recorded checksum, written as in Checksums, with what the store
// told: known is false when it told nothing comparable. An ETag that equals a recorded
// MD5 agrees with it, whatever ETags are on this store; one that differs proves nothing.
func (a Attrs) Agrees(checksum string) (agrees, known bool) {
	alg, value, _ := strings.Cut(checksum, ":")
	if kept, ok := a.Checksums[alg]; ok {
		return kept == checksum, true
	}
	if alg == "md5" && len(value) == 32 && a.ETag == value {
		return true, true
	}
	return false, false
}

// Range selects bytes of an object.
//   - {off, 0}: everything from off; {0, 0} is the whole object
//   - {off, n}: n bytes from off (fewer at the end of the object)
//   - {-n, 0}: the last n bytes (the whole object when it is shorter)
type Range struct{ Offset, Length int64 }

// Bounds resolves the range against an object of the given size: the first byte
// and the first byte after it, begin ≤ end ≤ size. A range that makes no sense
// matches [fs.ErrInvalid].
func (r Range) Bounds(size int64) (begin, end int64, err error) {
	if err := r.Valid(); err != nil {
		return 0, 0, err
	}
	switch {
	case r.Offset < 0:
		return max(0, size+r.Offset), size, nil
	case r.Offset >= size:
		return size, size, nil
	case r.Length == 0 || r.Length >= size-r.Offset:
		return r.Offset, size, nil
	default:
		return r.Offset, r.Offset + r.Length, nil
	}
}

// Valid is nil, or an error that matches [fs.ErrInvalid].
func (r Range) Valid() error {
	if r.Length < 0 || r.Offset < 0 && r.Length != 0 || r.Length > math.MaxInt64-max(0, r.Offset) {
		return fmt.Errorf("range {%d, %d}: %w", r.Offset, r.Length, fs.ErrInvalid)
	}
	return nil
}

// Statter asks for one object's attributes with one HEAD. A missing object is
// an error that matches [ErrNotExist]; because HEAD has no body, a store may
// answer the same for a missing bucket (see [Prober]).
type Statter interface {
	Stat(ctx context.Context, loc Location) (Attrs, error)
}

// Restatter is the second opinion: the same question as [Statter], asked on a
// fresh connection through the vendor's own client.
type Restatter interface {
	Restat(ctx context.Context, loc Location) (Attrs, error)
}

// Prober asks with a one-byte GET, so that the answer carries the store's error
// code: only an explicit "no such object" matches [ErrNotExist]; a missing
// bucket or root matches [ErrNoSuchBucket].
type Prober interface {
	Probe(ctx context.Context, loc Location) (Attrs, error)
}

// Getter reads bytes. The Attrs describe the object that the bytes come from,
// with its full size. The caller closes the reader. A body shorter than what was
// promised is an error of Read, never a silent end. A range that begins at or
// after the end of the object is an empty body, not an error; a range that makes
// no sense matches [fs.ErrInvalid].
type Getter interface {
	Get(ctx context.Context, loc Location, r Range) (io.ReadCloser, Attrs, error)
}

// Lister yields objects whose key begins with the key of prefix, in the store's
// order. With delimiter "/" it yields one level: objects, and entries with
// Attrs.Prefix set. The first error ends the sequence; what was yielded before
// it is then not the whole.
type Lister interface {
	List(ctx context.Context, prefix Location, delimiter string) iter.Seq2[Attrs, error]
}

// Pager is offered, beside [Lister], by stores whose listings are made of single
// requests, so that one page can be limited, counted and asked for again.
// ListPage answers the page that token names ("" is the first one), its entries
// in the store's order, and the token of the next page ("" after the last).
type Pager interface {
	ListPage(ctx context.Context, prefix Location, delimiter, token string) (page []Attrs, next string, err error)
}

// Versioner yields the versions of exactly one key, newest first, delete markers
// included. A store that keeps no versions yields nothing; a bucket without
// versions may list its one object as version "null". An error means that the
// list is not whole. Stores that cannot tell return an error that
// matches [ErrUnsupported].
type Versioner interface {
	Versions(ctx context.Context, loc Location) iter.Seq2[Attrs, error]
}

// VersionGetter reads bytes of exactly one version of a key, as [Getter] reads those
// of the newest. A version that is not there, and one that is a delete marker, match
// [ErrNotExist]; an empty versionID matches [fs.ErrInvalid]. A store that keeps no
// versions answers [ErrUnsupported]. An answer that does not say that it is of the
// version asked for is an error, since stores exist that answer with the newest.
type VersionGetter interface {
	GetVersion(ctx context.Context, loc Location, versionID string, r Range) (io.ReadCloser, Attrs, error)
}

// Versioning is what a bucket does with bytes that are replaced or removed.
type Versioning string

const (
	// VersioningNever: no version but the current one was ever kept.
	VersioningNever Versioning = "never"
	// VersioningEnabled: replaced and removed bytes stay as versions, for as long as
	// the bucket's own rules keep those.
	VersioningEnabled Versioning = "enabled"
	// VersioningSuspended: versions may be left from an earlier time. A write takes the
	// place of the version "null", whose bytes are gone then, and leaves all others.
	VersioningSuspended Versioning = "suspended"
)

// Keeps reports whether the bytes of current stay retrievable when they are replaced.
func (v Versioning) Keeps(current Attrs) bool {
	named := current.VersionID != "" && current.VersionID != NullVersion
	return v == VersioningEnabled || v == VersioningSuspended && named
}

// NullVersion is the id that S3 gives to what is written while versions are not kept.
const NullVersion = "null"

// VersioningTeller tells how the bucket of a location treats versions. It asks for
// the bucket's configuration, which may need a right of its own ([ErrDenied]); a
// store that has no such thing to tell matches [ErrUnsupported].
type VersioningTeller interface {
	Versioning(ctx context.Context, loc Location) (Versioning, error)
}

// Reader is everything that looking needs; there is no way to write through it.
type Reader interface {
	Statter
	Restatter
	Prober
	Getter
	Lister
	Versioner
	VersionGetter
	VersioningTeller
}

// Creator puts an object if, and only if, none is there; otherwise the error
// matches [ErrExist] and the stored object is untouched. body must yield exactly
// size bytes, or nothing is put. Only an error that matches ErrExist, or one with
// a status below 500, says that nothing was put; after any other the outcome is
// unknown until somebody looks.
//
// A body that is an [io.ReadSeeker] is read where it is, from its present position,
// and more than once; any other is copied to memory or a temporary file first.
type Creator interface {
	Create(ctx context.Context, loc Location, body io.Reader, size int64) (Attrs, error)
}

// Replacer overwrites an object whose ETag still is ifMatch; otherwise the error
// matches [ErrExist] (changed) or [ErrNotExist] (gone). An empty ifMatch or "*"
// is refused ([fs.ErrInvalid]): there is no unconditional overwrite. What
// [Creator] says of body, size and unknown outcomes holds here too.
type Replacer interface {
	Replace(ctx context.Context, loc Location, ifMatch string, body io.Reader, size int64) (Attrs, error)
}

// MarkerCreator puts an object over a delete marker, only while that marker is the
// newest version of the key: otherwise the error matches [ErrExist] and nothing was
// put. Where the store's create-if-absent does not look through markers, there is no
// write that is conditional on one, so the versions are listed again afterwards: when
// another version came in between, the error matches [ErrConflict] (and ErrExist).
// Then both versions are there, ours named by the error's text, and nothing is taken
// away: somebody must look. Stores without versions answer [ErrUnsupported]. What
// [Creator] says of body, size and unknown outcomes holds here too.
type MarkerCreator interface {
	CreateOverMarker(ctx context.Context, loc Location, markerVersionID string, body io.Reader, size int64) (Attrs, error)
}

// Writer is a Reader that can also put. There is no Delete.
type Writer interface {
	Reader
	Creator
	Replacer
	MarkerCreator
}
