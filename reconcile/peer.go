package reconcile

import (
	"context"
	"errors"
	"io"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Peer is another place that may hold copies of a target's objects. It only reads,
// and is safe for concurrent use.
type Peer interface {
	// Name is how reports, plans and the ledger show the peer. It holds no secret.
	Name() string
	// Ask tells, with the cheapest request that can be trusted, whether the peer holds
	// a copy. An error that matches objstore.ErrNotExist is the peer's explicit "no such
	// object", told by the code of a GET and never by a HEAD alone; ErrNotBelow says that
	// the peer's layout has no place for the object, so that it was not asked; any other
	// error is no answer.
	Ask(ctx context.Context, ref Reference) (objstore.Attrs, error)
	// Fetch streams a whole copy. Attrs.Size is what the peer promises
	// (objstore.Unknown when it promises nothing). A body that ends early, stalls, comes
	// encoded, or is an answer about something else is an error, never a short success.
	Fetch(ctx context.Context, ref Reference) (io.ReadCloser, objstore.Attrs, error)
}

// Copy is a candidate for a lost object, complete in local staging.
type Copy interface {
	io.ReaderAt
	// Size in bytes.
	Size() int64
	// Sum is the digest of the bytes as references record it ("sha256:<hex>",
	// "crc32c:<base64>", "md5:<hex>"); empty for an algorithm that is not known.
	Sum(alg string) string
}

// Prover is a source that can tell whether a copy is the object that a reference
// names.
type Prover interface {
	// Prove returns, in a word for the record, what proves the copy ("checksum sha256",
	// "size, footer, rows"). ErrUnproven: nothing speaks against the copy and nothing
	// proves it, or it could not be judged, for the reason that is wrapped as well. Any
	// other error: it is not the object. It asks nobody about the object; metadata of
	// the target may be read again. It is safe for concurrent use.
	Prove(ctx context.Context, ref Reference, c Copy) (proof string, err error)
}

// Errors of peers and provers.
var (
	// ErrNotBelow: the object lies outside what the peer mirrors.
	ErrNotBelow = errors.New("outside what the peer mirrors")
	// ErrWeakNo: the peer says that it has no copy, and its word is not enough to drop
	// anything for.
	ErrWeakNo = errors.New("a web server says that it has no copy, which is not enough to drop rows")
	// ErrInside: everything recorded agrees with the copy, and something inside it cannot
	// be read. It is not taken; nor does it say that nothing of the object is left.
	ErrInside = errors.New("everything recorded agrees, and not all of it can be read")
	// ErrUnproven: nothing recorded proves the copy, and nothing disproves it.
	ErrUnproven = errors.New("nothing recorded proves the copy")
)
