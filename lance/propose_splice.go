package lance

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// change is what a commit does. One of drop, add and dropIndex is set.
type change struct {
	operation Operation
	body      []byte // of the operation's message in the transaction
	drop      []uint64
	add       []newFragment // by ascending id
	dropIndex []byte        // the raw IndexMetadata message
}

// newFragment is a fragment that a change adds.
type newFragment struct {
	id       uint64
	raw      []byte
	deletion bool
}

// propose derives the next version and holds it against the one that it came from.
func (m *Manifest) propose(c change, info CommitInfo) (*Proposal, error) {
	if err := info.check(); err != nil {
		return nil, err
	}
	if err := m.checkWritable(); err != nil {
		return nil, err
	}
	p := &Proposal{
		ReadVersion: m.Version, Version: m.Version + 1, Operation: c.operation, TransactionUUID: info.UUID,
		TransactionName: transactionsDir + transactionName(m.Version, info.UUID), ManifestName: ManifestName(m.Version+1, info.Naming),
		naming: info.Naming, baseSize: int64(len(m.file)), transaction: encodeTransaction(m.Version, c, info),
	}
	file, err := m.splice(c, info, p.transaction)
	if err != nil {
		return nil, err
	}
	p.manifest = file
	if err := m.verify(p, c, info); err != nil {
		return nil, err
	}
	return p, nil
}

// replacement is a field of the Manifest message that the new version has instead
// of the old one's; raw is empty when it has none.
type replacement struct {
	num protowire.Number
	raw []byte
}

// splice writes the new manifest file: the bytes in front of the old transaction
// at their offsets, the new transaction, then the message, in which fields are
// replaced and everything else is copied as it stands.
func (m *Manifest) splice(c change, info CommitInfo, txn []byte) ([]byte, error) {
	head, indexOffset, err := m.head(c)
	if err != nil {
		return nil, err
	}
	inline := len(txn) <= maxInlineTransaction
	var txnOffset *uint64
	if inline {
		at := uint64(len(head))
		txnOffset = &at
	}
	replaced, err := m.replacements(c, info, indexOffset, txnOffset)
	if err != nil {
		return nil, err
	}
	size := len(head) + 4 + len(txn) + 4 + len(m.msg) + footerSize
	for _, r := range replaced {
		size += len(r.raw)
	}
	for _, f := range c.add {
		size += sizeOfMessage(2, len(f.raw))
	}
	if size > maxManifestSize || len(txn) > math.MaxUint32 {
		return nil, refuse("the new manifest would be too large")
	}
	out := append(make([]byte, 0, size), head...)
	if inline {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(txn)))
		out = append(out, txn...)
	}
	pos := len(out)
	out = append(out, 0, 0, 0, 0)
	if out, err = m.spliceMessage(out, c, replaced); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(out[pos:], uint32(len(out)-pos-4))
	out = binary.LittleEndian.AppendUint64(out, uint64(pos))
	out = binary.LittleEndian.AppendUint16(out, m.FooterMajor)
	out = binary.LittleEndian.AppendUint16(out, m.FooterMinor)
	return append(out, magic...), nil
}

// head is what lies in front of the new transaction: what lay there, or, when an
// index entry goes, what lay in front of the index section and a new section.
// Without entries there is no section, as the library has it.
func (m *Manifest) head(c change) (head []byte, indexOffset *uint64, err error) {
	if c.dropIndex == nil {
		return m.file[:m.cut()], m.indexOffset, nil
	}
	if end := int(*m.indexOffset) + 4 + len(m.indexSection); end != m.cut() {
		return nil, nil, refuse("there are bytes behind the index section that belong to nothing known")
	}
	var section []byte
	for b := m.indexSection; len(b) > 0; {
		f, rest, err := cutField(b)
		if err != nil {
			return nil, nil, err
		}
		// The very bytes, not equal ones: another entry may look the same.
		if f.num != 1 || len(f.body) == 0 || &f.body[0] != &c.dropIndex[0] {
			section = append(section, b[:len(b)-len(rest)]...)
		}
		b = rest
	}
	head = slices.Clone(m.file[:*m.indexOffset])
	if len(section) == 0 {
		return head, nil, nil
	}
	head = binary.LittleEndian.AppendUint32(head, uint32(len(section)))
	return append(head, section...), m.indexOffset, nil
}

// replacements are the fields that a new version never takes over as they are, by
// number. Fields 4 and 8 belong to one commit and are left out.
func (m *Manifest) replacements(c change, info CommitInfo, indexOffset, txnOffset *uint64) ([]replacement, error) {
	reader, writer, err := m.newFlags(c)
	if err != nil {
		return nil, err
	}
	highest, err := m.maxFragmentID()
	if err != nil {
		return nil, err
	}
	now := info.Now.UTC()
	stamp := appendUint(appendUint(nil, 1, uint64(now.Unix())), 2, uint64(now.Nanosecond()))
	return []replacement{
		{3, appendUint(nil, 3, m.Version+1)},
		{4, nil},
		{6, optional(6, indexOffset)},
		{7, appendMessage(nil, 7, stamp)},
		{8, nil},
		{9, appendUint(nil, 9, reader)},
		{10, appendUint(nil, 10, writer)},
		{11, optional(11, highest)},
		{12, appendText(nil, 12, transactionName(m.Version, info.UUID))},
		{21, optional(21, txnOffset)},
	}, nil
}

func optional[T uint32 | uint64](num protowire.Number, v *T) []byte {
	if v == nil {
		return nil
	}
	return appendOptional(nil, num, uint64(*v))
}

// newFlags are the feature words of the new version. What is not derived here is
// kept, above all the flag of stable row ids, which no writer would set again.
func (m *Manifest) newFlags(c change) (reader, writer uint64, err error) {
	deletions, err := m.hasDeletions(c)
	if err != nil {
		return 0, 0, err
	}
	covering, err := m.keepsCovering(c)
	if err != nil {
		return 0, 0, err
	}
	derive := func(word uint64) uint64 {
		word &^= flagDeletionFiles | flagNoTxnFiles // a transaction file is written
		if deletions {
			word |= flagDeletionFiles
		}
		if len(m.Config) == 0 {
			word &^= flagConfig
		}
		if !covering {
			word &^= flagCoveringIndices
		}
		return word
	}
	return derive(m.ReaderFlags), derive(m.WriterFlags), nil
}

// hasDeletions reports whether a fragment of the new version has a deletion file.
func (m *Manifest) hasDeletions(c change) (bool, error) {
	for _, f := range c.add {
		if f.deletion {
			return true, nil
		}
	}
	for raw, err := range m.fragmentMessages() {
		if err != nil {
			return false, err
		}
		id, deletion, err := fragmentHead(raw)
		if err != nil {
			return false, err
		}
		if deletion && !c.drops(id) {
			return true, nil
		}
	}
	return false, nil
}

// keepsCovering reports whether the flag of covering indices stays: the change
// removes no entry, or one that is left has covering fields.
func (m *Manifest) keepsCovering(c change) (bool, error) {
	if c.dropIndex == nil {
		return true, nil
	}
	for b, err := range messages(m.indexSection, 1) {
		if err != nil {
			return false, err
		}
		if len(b) > 0 && &b[0] == &c.dropIndex[0] {
			continue
		}
		for b := b; len(b) > 0; {
			f, rest, err := cutField(b)
			if err != nil {
				return false, err
			}
			if f.num == coveringFields {
				return true, nil
			}
			b = rest
		}
	}
	return false, nil
}

// coveringFields is the number of IndexMetadata.covering_fields.
const coveringFields = 11

func (c *change) drops(id uint64) bool {
	_, found := slices.BinarySearch(c.drop, id)
	return found
}

// splicer copies a message, run by run.
type splicer struct {
	out      []byte
	run      []byte // fields that are kept and not yet copied
	replaced []replacement
	add      []newFragment
	left     int64 // fragments of the old list that are still to come
	dropped  int
}

// spliceMessage appends the new Manifest message to out.
func (m *Manifest) spliceMessage(out []byte, c change, replaced []replacement) ([]byte, error) {
	s := &splicer{out: out, replaced: replaced, add: c.add, left: m.Summary.Fragments}
	for b := m.msg; len(b) > 0; {
		f, rest, err := cutField(b)
		if err != nil {
			return nil, err
		}
		raw := b[:len(b)-len(rest)]
		if f.num > 2 && s.left == 0 {
			s.addBefore(math.MaxUint64)
		}
		for len(s.replaced) > 0 && s.replaced[0].num < f.num {
			s.replace()
		}
		switch {
		case f.num == 2:
			if err := s.fragment(f.body, raw, &c); err != nil {
				return nil, err
			}
		case isReplaced(replaced, f.num):
			s.flush()
		default:
			s.keep(raw)
		}
		b = rest
	}
	s.addBefore(math.MaxUint64)
	for len(s.replaced) > 0 {
		s.replace()
	}
	s.flush()
	if s.dropped != len(c.drop) {
		return nil, m.absent(c)
	}
	return s.out, nil
}

func isReplaced(replaced []replacement, num protowire.Number) bool {
	return slices.ContainsFunc(replaced, func(r replacement) bool { return r.num == num })
}

// keep extends the run. Whatever is not kept ends it, so that the bytes of what is
// kept next follow on it.
func (s *splicer) keep(raw []byte) {
	if s.run == nil {
		s.run = raw
		return
	}
	s.run = s.run[:len(s.run)+len(raw)]
}

func (s *splicer) flush() {
	s.out = append(s.out, s.run...)
	s.run = nil
}

func (s *splicer) replace() {
	s.flush()
	s.out = append(s.out, s.replaced[0].raw...)
	s.replaced = s.replaced[1:]
}

// fragment keeps or drops one fragment, after the new ones that go in front of it.
func (s *splicer) fragment(body, raw []byte, c *change) error {
	id, err := fragmentID(body)
	if err != nil {
		return err
	}
	s.left--
	s.addBefore(id)
	if c.drops(id) {
		s.flush()
		s.dropped++
		return nil
	}
	s.keep(raw)
	return nil
}

// addBefore writes the new fragments whose ids are below id: readers look
// fragments up by binary search.
func (s *splicer) addBefore(id uint64) {
	for len(s.add) > 0 && s.add[0].id < id {
		s.flush()
		s.out = appendMessage(s.out, 2, s.add[0].raw)
		s.add = s.add[1:]
	}
}

// absent says which ids to be dropped the manifest does not have.
func (m *Manifest) absent(c change) error {
	missing := slices.Clone(c.drop)
	for raw, err := range m.fragmentMessages() {
		if err != nil {
			return err
		}
		id, err := fragmentID(raw)
		if err != nil {
			return err
		}
		if i, found := slices.BinarySearch(missing, id); found {
			missing = slices.Delete(missing, i, i+1)
		}
	}
	return refuse("version %d has no fragment %d", m.Version, missing[0])
}
