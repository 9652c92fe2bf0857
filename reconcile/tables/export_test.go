package tables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
)

// Digest is how a plan names a fragment's bytes.
func Digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// fataler is what a testing.T and a rapid.T share.
type fataler interface {
	Fatalf(format string, args ...any)
}

// StoreOf shows the objects below a root as package lance wants them.
func StoreOf(r objstore.Reader, root objstore.Location) lance.Store { return newRooted(r, root) }

// ReadNewest reads the newest manifest below a root.
func ReadNewest(t fataler, r objstore.Reader, root objstore.Location) (*lance.Manifest, uint64) {
	s := StoreOf(r, root)
	vs, err := lance.ListVersions(context.Background(), s)
	if err != nil {
		t.Fatalf("list versions: %v", err)
		return nil, 0
	}
	m, err := lance.ReadManifest(context.Background(), s, vs.Newest())
	if err != nil {
		t.Fatalf("read manifest: %v", err)
		return nil, 0
	}
	return m, m.Version
}
