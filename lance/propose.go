package lance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// CommitInfo is what a commit says about itself.
type CommitInfo struct {
	// UUID of the transaction, in hyphenated lower-case form. It must be a fresh
	// one: it is how the commit is known again.
	UUID string
	// Naming of the version set that the manifest came from.
	Naming Naming
	// Now is the time of the new version, and must be set.
	Now time.Time
	// Properties go into the transaction, for example RepairIDProperty. Keys that
	// begin with "__lance" are the library's own.
	Properties map[string]string
	// Message goes into the transaction as the library's commit message; it may be
	// empty.
	Message string
}

// Proposal is one new version of a dataset, complete in memory. Nothing has been
// sent. It is immutable and safe for concurrent use.
type Proposal struct {
	// ReadVersion is the version that it was derived from, Version the one that it
	// would be: the next.
	ReadVersion, Version uint64
	// Operation is what the transaction says: OpDelete, OpCreateIndex or OpAppend.
	Operation Operation
	// TransactionUUID is CommitInfo.UUID.
	TransactionUUID string
	// TransactionName and ManifestName are relative to the dataset root:
	// "_transactions/{read version}-{uuid}.txn", "_versions/….manifest".
	TransactionName, ManifestName string

	naming      Naming
	baseSize    int64
	transaction []byte
	manifest    []byte
}

// Transaction is the content of the transaction file. It must not be changed.
func (p *Proposal) Transaction() []byte { return p.transaction }

// Manifest is the content of the manifest file. It must not be changed.
func (p *Proposal) Manifest() []byte { return p.manifest }

// RefusedError says why no new version is derived from a manifest: something is
// not as it must be for a commit that changes nothing else. Nothing was sent.
type RefusedError struct {
	// Reason in a few words.
	Reason string
}

// Error implements error.
func (e *RefusedError) Error() string { return "refused: " + e.Reason }

func refuse(format string, args ...any) *RefusedError {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// maxVersion: numbers with the highest bit set are those of detached versions.
const maxVersion = 1<<63 - 1

// ProposeDelete derives the version in which the fragments with these ids are
// gone, as the library does when a delete hits every row of them: they leave the
// list, and everything else keeps its bytes, the indices included, whose coverage
// the library cuts with the fragments that are there. No object is deleted.
// predicate is free text that stands in the transaction; it may be empty.
//
// The error is a *FlagError when a feature flag forbids it (see CheckWriterFlags);
// a *RefusedError when the manifest cannot be written on for another reason, when
// it has two fragments with one id, or when an id is not in it; any other error
// means that the result was not what it must be.
func (m *Manifest) ProposeDelete(fragmentIDs []uint64, predicate string, info CommitInfo) (*Proposal, error) {
	ids := slices.Clone(fragmentIDs)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return nil, refuse("no fragment to drop")
	}
	if !utf8.ValidString(predicate) {
		return nil, errors.New("propose delete: the predicate is not UTF-8")
	}
	body := appendPacked(nil, 2, ids)
	if predicate != "" {
		body = appendText(body, 3, predicate)
	}
	return m.propose(change{operation: OpDelete, body: body, drop: ids}, info)
}

// ProposeDropIndex derives the version that lacks the index entry (one segment of
// an index) with this uuid, as the library does when it drops an index: a
// CreateIndex that creates none and removes one. The index section is written
// anew from the bytes of the other entries; no row is lost, and no object deleted.
//
// It refuses the library's own entries (the MemWAL's among them), an index that
// the MemWAL maintains, and a uuid that does not name exactly one entry. Errors
// are as those of ProposeDelete.
func (m *Manifest) ProposeDropIndex(uuid string, info CommitInfo) (*Proposal, error) {
	var entry *Index
	maintained, err := m.MaintainedIndexes()
	if err != nil {
		return nil, err
	}
	for x, err := range m.Indices() {
		if err != nil {
			return nil, err
		}
		if x.UUID != uuid {
			continue
		}
		if entry != nil {
			return nil, refuse("two index entries have the uuid %s", uuid)
		}
		entry = &x
	}
	switch {
	case entry == nil:
		return nil, refuse("version %d has no index entry %.80q", m.Version, uuid)
	case strings.HasPrefix(entry.Name, "__lance"):
		return nil, refuse("%s is an entry of the library itself", entry.Name)
	case slices.Contains(maintained, entry.Name):
		return nil, refuse("the MemWAL maintains the index %.80q", entry.Name)
	}
	return m.propose(change{operation: OpCreateIndex, body: appendMessage(nil, 2, entry.Raw), dropIndex: entry.Raw}, info)
}

// SameFragments tells which of the fragments that a lists are in b the same byte
// for byte, with their files under the same base paths, so that what was found
// out about them from a holds for b. The answer is in the order of ids. An id that
// a does not list is never among them.
//
// It refuses manifests with two fragments of one id. That the same bytes stand in
// both says nothing about rows when the table was overwritten or restored between
// the two: see Transaction.Operation of the versions after a.
func SameFragments(a, b *Manifest, ids []uint64) (identical []uint64, err error) {
	if a.Summary.DuplicateIDs || b.Summary.DuplicateIDs {
		return nil, refuse("two fragments have one id")
	}
	wanted := make(map[uint64][]byte, len(ids))
	for _, id := range ids {
		wanted[id] = nil
	}
	for raw, err := range a.fragmentMessages() {
		if err != nil {
			return nil, err
		}
		id, err := fragmentID(raw)
		if err != nil {
			return nil, err
		}
		if _, ok := wanted[id]; ok {
			wanted[id] = raw
		}
	}
	same := make(map[uint64]bool, len(ids))
	f := &Fragment{}
	for raw, err := range b.fragmentMessages() {
		if err != nil {
			return nil, err
		}
		id, err := fragmentID(raw)
		if err != nil {
			return nil, err
		}
		if other := wanted[id]; other == nil || string(other) != string(raw) {
			continue
		}
		if err := f.parse(raw); err != nil {
			return nil, err
		}
		same[id] = sameBases(a, b, f)
	}
	for _, id := range ids {
		if same[id] {
			identical = append(identical, id)
		}
	}
	return identical, nil
}

// sameBases reports whether every base id that a fragment refers to means the same
// place in both manifests.
func sameBases(a, b *Manifest, f *Fragment) bool {
	same := func(id uint32, has bool) bool {
		x, inA := a.Base(id)
		y, inB := b.Base(id)
		return !has || inA == inB && x.Path == y.Path && x.IsDatasetRoot == y.IsDatasetRoot
	}
	for _, files := range [][]DataFile{f.Files, f.Overlays} {
		for i := range files {
			if !same(files[i].BaseID, files[i].HasBase) {
				return false
			}
		}
	}
	return f.Deletion == nil || same(f.Deletion.BaseID, f.Deletion.HasBase)
}

// check says whether a commit may say this about itself.
func (info *CommitInfo) check() error {
	switch {
	case !isCanonicalUUID(info.UUID):
		return errors.New("propose commit: the uuid is not in hyphenated lower-case form")
	case info.Naming != V1 && info.Naming != V2:
		return errors.New("propose commit: no naming of manifests")
	case info.Now.IsZero():
		return errors.New("propose commit: no time")
	}
	if !utf8.ValidString(info.Message) {
		return errors.New("propose commit: the message is not UTF-8")
	}
	for _, key := range slices.Sorted(maps.Keys(info.Properties)) {
		switch {
		case strings.HasPrefix(key, "__lance") || key == operationProperty:
			return fmt.Errorf("propose commit: property %.80q is reserved", key)
		case !utf8.ValidString(key) || !utf8.ValidString(info.Properties[key]):
			return fmt.Errorf("propose commit: property %.80q is not UTF-8", key)
		}
	}
	return nil
}

// isCanonicalUUID reports whether s is a uuid as the library writes it.
func isCanonicalUUID(s string) bool {
	if len(s) != 36 || !isUUID(s) || strings.ToLower(s) != s {
		return false
	}
	return s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-'
}

// checkWritable says whether a version can be derived from m that keeps all that m
// means.
func (m *Manifest) checkWritable() error {
	if err := m.CheckWriterFlags(); err != nil {
		return err
	}
	switch {
	case m.Version >= maxVersion:
		return refuse("version %d has no next one", m.Version)
	case m.WriterVersion == WriterVersion{}:
		// Before 2023. The library counts rows anew when it meets such a table.
		return refuse("the manifest does not say who wrote it")
	case m.Summary.DuplicateIDs:
		return refuse("two fragments have one id, which the library commits no more")
	case m.Summary.Overlays > 0:
		return refuse("fragments have overlay files, but no flag says so")
	case m.BlobDatasetVersion != 0:
		return refuse("large values lie in a second dataset")
	}
	return m.checkLayout()
}

// checkLayout holds the file against what a derived one keeps: the bytes in front
// of the transaction, at their offsets. What else may lie between the sections is
// not known and would not survive.
func (m *Manifest) checkLayout() error {
	cut := m.cut()
	if m.txnOffset != nil && cut+4+len(m.txnSection) != m.pos {
		return refuse("there are bytes between the transaction and the manifest")
	}
	if m.indexOffset != nil && int(*m.indexOffset)+4+len(m.indexSection) > cut {
		return refuse("the index section lies behind the transaction")
	}
	end := cut
	if m.indexOffset != nil {
		end = int(*m.indexOffset)
	}
	for f, err := range m.Fields() {
		if err != nil {
			return err
		}
		at, err := dictionaryOffset(f.Raw)
		if err != nil {
			return err
		}
		if at > uint64(end) {
			return refuse("the dictionary of field %d lies behind the index section", f.ID)
		}
	}
	return nil
}

// dictionaryOffset is where the values of a legacy dictionary column begin; 0 when
// there are none.
func dictionaryOffset(field []byte) (at uint64, err error) {
	for b, err := range messages(field, 8) {
		if err != nil {
			return 0, err
		}
		err = fields(b, func(f wireField) error {
			if f.num != 1 {
				return nil
			}
			return f.uint64(&at)
		})
		if err != nil {
			return 0, err
		}
	}
	return at, nil
}

// cut is how many bytes of the file lie in front of its transaction.
func (m *Manifest) cut() int {
	if m.txnOffset != nil {
		return int(*m.txnOffset)
	}
	return m.pos
}

// maxFragmentID is the highest id that was ever given, as far as the manifest
// tells; nil when there never was a fragment.
func (m *Manifest) maxFragmentID() (*uint32, error) {
	highest := m.MaxFragmentID
	for raw, err := range m.fragmentMessages() {
		if err != nil {
			return nil, err
		}
		id, err := fragmentID(raw)
		if err != nil {
			return nil, err
		}
		if id > math.MaxUint32 {
			return nil, refuse("fragment id %d does not fit 32 bits", id)
		}
		if highest == nil || id > uint64(*highest) {
			n := uint32(id)
			highest = &n
		}
	}
	return highest, nil
}
