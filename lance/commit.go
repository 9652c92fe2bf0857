package lance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"
)

// CommitStore is what a commit needs beside [Store]. There is no way to delete.
type CommitStore interface {
	Store
	// Create puts an object if, and only if, none of that name is there, whole or
	// not at all. What its error says about the object:
	//
	//	nil                       it is stored
	//	matches fs.ErrExist       one was there (HTTP 409 and 412 alike), so that
	//	                          this request stored nothing; what was there may be
	//	                          an earlier try of the same call, or a rival's
	//	                          upload that is not finished
	//	matches ErrNotStored      it is proved that no try of this call stored
	//	                          anything or still will: denied, a request that the
	//	                          store calls wrong, one that never left
	//	anything else             the outcome is open: no answer, a broken
	//	                          connection, a failure on the store's side (5xx)
	Create(ctx context.Context, name string, data []byte) error
	// Replace overwrites an object whose ETag still is etag. It is used for the
	// version hint only, and its failure harms nobody.
	Replace(ctx context.Context, name, etag string, data []byte) error
}

// ErrNotStored is matched by an error of CommitStore.Create that proves that
// nothing was stored.
var ErrNotStored = errors.New("nothing was stored")

// ErrRolledBack: the newest version is lower than the one that a proposal was made
// from.
var ErrRolledBack = errors.New("the newest version went down")

// CommitOutcome is what became of a commit.
type CommitOutcome uint8

// The outcomes. The zero value is the one that asks for care.
const (
	// UnknownOutcome: the manifest was sent, by this call or an earlier one, and
	// whether it is there could not be found out. FindTransaction settles it later;
	// until then nothing may be assumed.
	UnknownOutcome CommitOutcome = iota
	// Committed: the new version is there, as stored or as read back.
	Committed
	// Conflict: another version is where this one would be. Nothing of the proposal
	// is in the table.
	Conflict
	// NotSent: nothing of the proposal is in the table, and nothing will be.
	NotSent
)

// String is a word for messages.
func (o CommitOutcome) String() string {
	if o > NotSent {
		o = UnknownOutcome
	}
	return [...]string{"unknown", "committed", "conflict", "not sent"}[o]
}

// ConflictError says whose version is where a proposal's would be.
type ConflictError struct {
	// Version is the newest version that was seen.
	Version uint64
	// Transaction of the version in the proposal's place; zero when it was not read
	// or has none.
	Transaction Transaction
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Transaction.UUID == "" {
		return fmt.Sprintf("version %d is already there", e.Version)
	}
	return fmt.Sprintf("version %d is already there: %v %s", e.Version, e.Transaction.Operation, e.Transaction.UUID)
}

// commitGrace is how long requests of a commit go on after its context ended: a
// write that was sent is awaited and read back. It is the same twenty seconds that
// an interrupted program is given to finish.
const commitGrace = 20 * time.Second

// Commit makes the proposal the newest version of the dataset that s is the root
// of: it lists the versions, puts the transaction file, puts the manifest if none
// of that name is there, and, where there is a version hint, moves it up.
//
// Nothing is written when the newest version is not the one that the proposal was
// made from. After any answer to the manifest's PUT but success it is read back,
// and what is there decides: a manifest with this transaction is Committed, one
// with another is a Conflict. Nothing there is NotSent when the answer proves it;
// otherwise it is looked at again for some seconds before the outcome is called
// unknown. Nothing is ever deleted: a transaction file that a lost race leaves
// behind harms nobody, and is known by OwnTransaction.
//
// When ctx ends, no further write begins, and the requests under way, with the
// reading back of a manifest that was sent, go on for at most 20 s; the caller
// need not outlive its own context for that, only wait for Commit.
//
// The error is nil if, and only if, the outcome is Committed. With Conflict it
// wraps a *ConflictError. Commit may be called again after NotSent, and finds a
// version that an earlier call brought in unseen.
func (p *Proposal) Commit(ctx context.Context, s CommitStore) (CommitOutcome, error) {
	late, done := withGrace(ctx, commitGrace)
	defer done()
	outcome, err := p.commit(ctx, late, s)
	if err != nil {
		return outcome, fmt.Errorf("commit version %d: %w", p.Version, err)
	}
	return Committed, nil
}

func (p *Proposal) commit(ctx, late context.Context, s CommitStore) (CommitOutcome, error) {
	versions, err := p.checkNewest(ctx, s)
	if rival, ok := errors.AsType[*ConflictError](err); ok {
		return p.settleConflict(ctx, s, versions, rival)
	}
	if err != nil {
		return NotSent, err
	}
	if err := p.putTransaction(ctx, late, s); err != nil {
		return NotSent, err
	}
	if err := ctx.Err(); err != nil {
		return NotSent, err
	}
	if err := s.Create(late, p.ManifestName, p.manifest); err != nil {
		if outcome, err := p.settle(late, s, fmt.Errorf("put %s: %w", p.ManifestName, err)); err != nil {
			return outcome, err
		}
	}
	if versions.hint && ctx.Err() == nil {
		p.moveHint(late, s)
	}
	return Committed, nil
}

// withGrace is a context that ends some time after ctx does.
func withGrace(ctx context.Context, grace time.Duration) (late context.Context, done func()) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-late.Done():
		}
	})
	return late, func() {
		stop()
		cancel()
	}
}

// checkNewest says whether the proposal still follows on the newest version. A put
// of a name that is free is no proof of it: the next versions may have come and
// been cleaned up since.
func (p *Proposal) checkNewest(ctx context.Context, s Store) (*VersionSet, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	set, err := ListVersions(ctx, s)
	if err != nil {
		return nil, err
	}
	newest := set.Newest()
	switch {
	case newest.Version > p.ReadVersion:
		return set, &ConflictError{Version: newest.Version}
	case newest.Version < p.ReadVersion:
		return nil, fmt.Errorf("version %d is the newest, not %d: %w", newest.Version, p.ReadVersion, ErrRolledBack)
	case set.Naming != p.naming:
		return nil, refuse("manifests are named by scheme %v, not %v", set.Naming, p.naming)
	case newest.Size >= 0 && newest.Size != p.baseSize:
		return set, &ConflictError{Version: newest.Version} // made anew under the same number
	case len(set.Staged) > 0:
		return nil, refuse("%s: another store decides which version is the newest", set.Staged[0])
	}
	return set, nil
}

// settleConflict looks whose version is in the proposal's place: it may be its own,
// from an earlier call.
func (p *Proposal) settleConflict(ctx context.Context, s Store, set *VersionSet, rival *ConflictError) (CommitOutcome, error) {
	for _, e := range set.Entries {
		if e.Version != p.Version {
			continue
		}
		var t Transaction
		stored, err := readBack(ctx, s, e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			break // cleaned up since the listing
		}
		if err == nil {
			t, err = p.compare(stored)
		}
		switch {
		case err != nil:
			return UnknownOutcome, errors.Join(rival, fmt.Errorf("read back: %w", err))
		case t.UUID == p.TransactionUUID:
			return Committed, nil
		}
		rival.Transaction = t
	}
	return Conflict, rival
}

// putTransaction puts the transaction file. Without its manifest it means nothing,
// so that any failure ends the commit before anything is done.
func (p *Proposal) putTransaction(ctx, late context.Context, s CommitStore) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.Create(late, p.TransactionName, p.transaction)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("put %s: %w", p.TransactionName, err)
	b, readErr := readBack(late, s, p.TransactionName)
	if readErr == nil && !bytes.Equal(b, p.transaction) {
		readErr = errors.New("it holds something else")
	}
	if readErr == nil {
		return nil
	}
	return errors.Join(err, fmt.Errorf("read back: %w", readErr))
}

func readBack(ctx context.Context, s Store, name string) ([]byte, error) {
	b, _, err := readObject(ctx, s, name, maxManifestSize)
	return b, err
}

// lookAgain are the pauses before each look at a manifest whose PUT did not
// succeed: a store whose answer left it open may still be at work, and a rival's
// upload that caused a 409 may not be finished.
var lookAgain = [...]time.Duration{0, 250 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// settle finds out what became of a manifest whose PUT ended in err.
func (p *Proposal) settle(ctx context.Context, s Store, err error) (CommitOutcome, error) {
	proved := errors.Is(err, ErrNotStored) && !errors.Is(err, fs.ErrExist)
	var last error
	for _, pause := range lookAgain {
		if !sleep(ctx, pause) {
			break
		}
		stored, readErr := readBack(ctx, s, p.ManifestName)
		if readErr == nil {
			var t Transaction
			switch t, readErr = p.compare(stored); {
			case readErr != nil: // not whole; perhaps not yet
			case t.UUID == p.TransactionUUID:
				return Committed, nil
			case !proved:
				return Conflict, errors.Join(&ConflictError{Version: p.Version, Transaction: t}, err)
			}
		}
		last = fmt.Errorf("read back: %w", readErr)
		if proved {
			break
		}
	}
	if proved {
		return NotSent, err
	}
	return UnknownOutcome, errors.Join(err, last)
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// compare tells whose manifest was read in the proposal's place: UUID of the
// result is the proposal's if it is its own, byte for byte.
func (p *Proposal) compare(stored []byte) (t Transaction, err error) {
	if bytes.Equal(stored, p.manifest) {
		return Transaction{UUID: p.TransactionUUID}, nil
	}
	m, err := DecodeManifest(stored)
	if err != nil {
		return t, named(p.ManifestName, err)
	}
	if m.madeBy(p.TransactionUUID) {
		return t, &CorruptError{Name: p.ManifestName, Reason: "it has this transaction and other bytes"}
	}
	if t, _, err = m.InlineTransaction(); err != nil {
		t = Transaction{} // of an operation that is not known; it is a rival all the same
	}
	return t, nil
}

// madeBy reports whether a transaction made this version, by its inline copy or by
// the name of its file.
func (m *Manifest) madeBy(uuid string) bool {
	if t, ok, err := m.InlineTransaction(); ok && err == nil {
		return t.UUID == uuid
	}
	return transactionFileOf(m.TransactionFile, uuid)
}

// moveHint makes the version hint name this version, unless it names a higher one.
func (p *Proposal) moveHint(ctx context.Context, s CommitStore) {
	b, o, err := readObject(ctx, s, hintName, maxRefSize)
	if err != nil || o.ETag == "" {
		return
	}
	var hint struct {
		Version *uint64 `json:"version"`
	}
	if json.Unmarshal(b, &hint) == nil && hint.Version != nil && *hint.Version >= p.Version {
		return
	}
	// A hint that is behind, or gone, only costs its readers a few more requests.
	_ = s.Replace(ctx, hintName, o.ETag, []byte(`{"version":`+strconv.FormatUint(p.Version, 10)+`}`))
}
