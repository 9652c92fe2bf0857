package lance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// ErrVersionGone: a version that may have been the one looked for was cleaned up.
var ErrVersionGone = errors.New("a version that could be the one is no more")

// FindTransaction settles an UnknownOutcome: it looks for the version that a
// transaction made, among from (Proposal.Version of the first proposal that
// carried the uuid) and the versions after it, by the inline copy and by the name
// of the transaction file. It lists the versions and reads each manifest up to the
// one it finds.
//
// found is false when all of them are there to be looked at and none is it: then
// the commit did not happen. To be sure that no request is still on its way, ask
// no sooner than a minute after the last one was sent.
//
// When a version between from and the newest is no longer there, cleaned up by the
// library, and no other is the one, the error matches ErrVersionGone: whether the
// transaction was committed cannot be told by its name any more, only by its
// effect in the newest version. ErrNoVersions says that there is no table. Any
// other error means that looking failed.
func FindTransaction(ctx context.Context, s Store, uuid string, from uint64) (version uint64, found bool, err error) {
	if !isUUID(uuid) {
		return 0, false, fmt.Errorf("find transaction: %.80q is no uuid", uuid)
	}
	set, err := ListVersions(ctx, s)
	if err != nil && !errors.Is(err, ErrMixedNaming) {
		return 0, false, fmt.Errorf("find transaction %s: %w", uuid, err)
	}
	there := map[uint64]struct{}{}
	highest := uint64(0)
	for i := len(set.Entries) - 1; i >= 0; i-- {
		e := set.Entries[i]
		highest = max(highest, e.Version)
		if e.Version < from {
			continue
		}
		found, err := isTransactionOf(ctx, s, e.Name, uuid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // cleaned up since the listing
		}
		if err != nil {
			return 0, false, fmt.Errorf("find transaction %s: %w", uuid, err)
		}
		if found {
			return e.Version, true, nil
		}
		there[e.Version] = struct{}{}
	}
	if highest >= from && uint64(len(there)) <= highest-from {
		return 0, false, fmt.Errorf("find transaction %s from version %d: %w", uuid, from, ErrVersionGone)
	}
	return 0, false, nil
}

// isTransactionOf reports whether a manifest object is the version that a
// transaction made. One without the uuid anywhere in its bytes is not, if only it
// is a whole file.
func isTransactionOf(ctx context.Context, s Store, name, uuid string) (bool, error) {
	b, _, err := readObject(ctx, s, name, maxManifestSize)
	if err != nil {
		return false, fmt.Errorf("read manifest %s: %w", name, err)
	}
	m := &Manifest{file: b}
	if err = m.frame(); err == nil && !bytes.Contains(b, []byte(uuid)) {
		return false, nil
	}
	if err == nil {
		m, err = DecodeManifest(b)
	}
	if err != nil {
		return false, named(name, err)
	}
	return m.madeBy(uuid), nil
}

// transactionFileOf reports whether a name is that of a transaction's file.
func transactionFileOf(name, uuid string) bool {
	rest, ok := strings.CutSuffix(name, "-"+uuid+".txn")
	return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
}
