package lance

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// verify holds a proposal against the manifest that it was derived from: read
// again from its bytes, it must be the old version and exactly the change. It
// shares nothing with the code that wrote it but the reading of wire bytes, so
// that a mistake there sends nothing.
func (m *Manifest) verify(p *Proposal, c change, info CommitInfo) error {
	n, err := DecodeManifest(p.manifest)
	if err != nil {
		return fmt.Errorf("verify new version %d: %w", p.Version, err)
	}
	for _, check := range []func(*Manifest, *Proposal, change, CommitInfo) error{
		n.verifyHeader, n.verifyOwn, n.verifyFlags, n.verifyTransaction, n.verifySections, n.verifyKept, n.verifyFragments,
	} {
		if err := check(m, p, c, info); err != nil {
			return fmt.Errorf("verify new version %d: %w", p.Version, err)
		}
	}
	return nil
}

func differs(format string, args ...any) error {
	return fmt.Errorf("the new manifest is not what it must be: "+format, args...)
}

// cursor walks the fields of a message.
type cursor struct {
	rest  []byte
	field wireField
	raw   []byte // the field with its tag; nil at the end
}

func anyField(protowire.Number) bool { return true }

// seek goes to the next field whose number is wanted.
func (c *cursor) seek(wanted func(protowire.Number) bool) (ok bool, err error) {
	for len(c.rest) > 0 {
		f, rest, err := cutField(c.rest)
		if err != nil {
			return false, err
		}
		c.field, c.raw, c.rest = f, c.rest[:len(c.rest)-len(rest)], rest
		if wanted(f.num) {
			return true, nil
		}
	}
	c.field, c.raw = wireField{}, nil
	return false, nil
}

func (m *Manifest) verifyHeader(old *Manifest, p *Proposal, _ change, info CommitInfo) error {
	switch {
	case m.Version != old.Version+1 || m.Version != p.Version || p.ReadVersion != old.Version:
		return differs("version %d after %d", m.Version, old.Version)
	case !m.Timestamp.Equal(info.Now):
		return differs("time %v, not %v", m.Timestamp, info.Now)
	case m.Tag != "":
		return differs("tag %q", m.Tag)
	case m.FooterMajor != old.FooterMajor || m.FooterMinor != old.FooterMinor:
		return differs("footer %d.%d, not %d.%d", m.FooterMajor, m.FooterMinor, old.FooterMajor, old.FooterMinor)
	}
	if version, naming, kind := ParseManifestName(p.ManifestName); version != p.Version || naming != info.Naming || kind != ManifestFile {
		return differs("its name is %s", p.ManifestName)
	}
	return m.verifyHighest(old)
}

// verifyHighest: the highest id is kept, or that of the list where none or a lower
// one was recorded.
func (m *Manifest) verifyHighest(old *Manifest) error {
	want := int64(-1)
	if old.MaxFragmentID != nil {
		want = int64(*old.MaxFragmentID)
	}
	for raw, err := range old.fragmentMessages() {
		if err != nil {
			return err
		}
		id, err := fragmentID(raw)
		if err != nil {
			return err
		}
		want = max(want, int64(id))
	}
	is := int64(-1)
	if m.MaxFragmentID != nil {
		is = int64(*m.MaxFragmentID)
	}
	if is != want {
		return differs("the highest fragment id is %d, not %d", is, want)
	}
	return nil
}

// verifyFlags derives the words anew, from what the new version holds.
func (m *Manifest) verifyFlags(old *Manifest, _ *Proposal, c change, _ CommitInfo) error {
	covering := false
	for b, err := range messages(m.indexSection, 1) {
		if err != nil {
			return err
		}
		entry := cursor{rest: b}
		found, err := entry.seek(func(num protowire.Number) bool { return num == coveringFields })
		if err != nil {
			return err
		}
		covering = covering || found
	}
	for _, w := range [][2]uint64{{old.ReaderFlags, m.ReaderFlags}, {old.WriterFlags, m.WriterFlags}} {
		want := w[0] &^ flagNoTxnFiles &^ flagDeletionFiles
		if m.Summary.DeletionFiles > 0 {
			want |= flagDeletionFiles
		}
		if len(old.Config) == 0 {
			want &^= flagConfig
		}
		if c.dropIndex != nil && !covering {
			want &^= flagCoveringIndices
		}
		if w[1] != want {
			return differs("flags %d became %d, not %d", w[0], w[1], want)
		}
	}
	return m.CheckWriterFlags()
}

// verifyOwn: the fields that belong to one commit stand there once, in the one
// encoding that every reader reads alike.
func (m *Manifest) verifyOwn(_ *Manifest, _ *Proposal, _ change, info CommitInfo) error {
	seen := map[protowire.Number]bool{}
	own := cursor{rest: m.msg}
	for {
		ok, err := own.seek(isOwn)
		if err != nil || !ok {
			return err
		}
		f := own.field
		var want []byte
		switch f.num {
		case 4, 8:
		case 7:
			now := appendUint(nil, 1, uint64(info.Now.Unix()))
			want = appendMessage(nil, 7, appendUint(now, 2, uint64(info.Now.Nanosecond())))
		case 12:
			want = appendText(nil, 12, m.TransactionFile)
		default:
			want = appendOptional(nil, f.num, f.v)
		}
		if seen[f.num] || !bytes.Equal(own.raw, want) {
			return differs("field %d is %x", f.num, own.raw)
		}
		seen[f.num] = true
	}
}

// isOwn reports whether a field of the Manifest message belongs to one commit.
func isOwn(num protowire.Number) bool {
	switch num {
	case 3, 4, 6, 7, 8, 9, 10, 11, 12, 21:
		return true
	}
	return false
}

func (m *Manifest) verifyTransaction(old *Manifest, p *Proposal, c change, info CommitInfo) error {
	t, err := DecodeTransaction(p.transaction)
	if err != nil {
		return err
	}
	switch {
	case t.UUID != info.UUID || t.ReadVersion != old.Version || t.Operation != c.operation:
		return differs("transaction %s of version %d says %v", t.UUID, t.ReadVersion, t.Operation)
	case !OwnTransaction(t):
		return differs("the transaction is not marked as one's own")
	case c.operation == OpDelete && !slices.Equal(t.DeletedFragmentIDs, c.drop), len(t.UpdatedFragmentIDs) > 0:
		return differs("the transaction names other fragments")
	case transactionsDir+m.TransactionFile != p.TransactionName:
		return differs("it names the transaction file %s", m.TransactionFile)
	case m.txnSection == nil && len(p.transaction) <= maxInlineTransaction, m.txnSection != nil && !bytes.Equal(m.txnSection, p.transaction):
		return differs("the transaction inside is not the transaction")
	}
	return nil
}

// verifySections holds what lies in front of the message against the old file.
func (m *Manifest) verifySections(old *Manifest, _ *Proposal, c change, _ CommitInfo) error {
	cut, oldCut := m.cut(), old.cut()
	if m.txnOffset != nil && cut+4+len(m.txnSection) != m.pos {
		return differs("the transaction does not end where the message begins")
	}
	if c.dropIndex == nil {
		if !bytes.Equal(m.file[:cut], old.file[:oldCut]) || !bytes.Equal(m.indexSection, old.indexSection) {
			return differs("the bytes in front of the transaction changed")
		}
		return nil
	}
	front := int(*old.indexOffset)
	if cut < front || !bytes.Equal(m.file[:front], old.file[:front]) {
		return differs("the bytes in front of the index section changed")
	}
	a, b := cursor{rest: old.indexSection}, cursor{rest: m.indexSection}
	removed := 0
	for {
		wasOK, err := a.seek(anyField)
		if err != nil {
			return err
		}
		if wasOK && a.field.num == 1 && bytes.Equal(a.field.body, c.dropIndex) {
			removed++
			continue
		}
		isOK, err := b.seek(anyField)
		if err != nil {
			return err
		}
		if wasOK != isOK || !bytes.Equal(a.raw, b.raw) {
			return differs("another index entry changed")
		}
		if !wasOK {
			break
		}
	}
	if removed != 1 {
		return differs("%d index entries are gone", removed)
	}
	return nil
}

// verifyKept compares every field that a new version takes over, in order.
func (m *Manifest) verifyKept(old *Manifest, _ *Proposal, _ change, _ CommitInfo) error {
	kept := func(num protowire.Number) bool { return num != 2 && !isOwn(num) }
	a, b := cursor{rest: old.msg}, cursor{rest: m.msg}
	for {
		wasOK, err := a.seek(kept)
		if err != nil {
			return err
		}
		isOK, err := b.seek(kept)
		if err != nil {
			return err
		}
		if wasOK != isOK || !bytes.Equal(a.raw, b.raw) {
			return differs("a field that is none of a commit's changed")
		}
		if !wasOK {
			return nil
		}
	}
}

// verifyFragments: the old list without the dropped ones is the new list without
// the added ones.
func (m *Manifest) verifyFragments(old *Manifest, _ *Proposal, c change, _ CommitInfo) error {
	isFragment := func(num protowire.Number) bool { return num == 2 }
	a, b := cursor{rest: old.msg}, cursor{rest: m.msg}
	dropped, added := 0, 0
	for {
		wasOK, err := a.seek(isFragment)
		if err != nil {
			return err
		}
		if wasOK {
			id, err := fragmentID(a.field.body)
			if err != nil {
				return err
			}
			if c.drops(id) {
				dropped++
				continue
			}
		}
		isOK, err := b.seek(isFragment)
		for err == nil && isOK && added < len(c.add) && bytes.Equal(b.field.body, c.add[added].raw) {
			added++
			isOK, err = b.seek(isFragment)
		}
		if err != nil {
			return err
		}
		if wasOK != isOK || !bytes.Equal(a.raw, b.raw) {
			return differs("another fragment changed")
		}
		if !wasOK {
			break
		}
	}
	if dropped != len(c.drop) || added != len(c.add) {
		return differs("%d fragments are gone and %d new", dropped, added)
	}
	return nil
}
