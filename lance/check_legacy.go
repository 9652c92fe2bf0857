package lance

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// legacyMetadata is the metadata of a file of format 0.1 (source: bytes of files written by
// releases 0.4.20 to 0.39.0, and the public protobuf definitions):
//
//	[ pages ] [ page table ] [ pages and page table of statistics ]
//	[ u32 length | Manifest, of which only the schema counts ]
//	[ u32 length | Metadata {1 manifest at, 2 first row of each batch and their sum,
//	  3 page table at, 5 statistics {1 schema, 2 fields, 3 page table at}} ]
//	[ u64 metadata at | u16 0 | u16 2 | "LANC" ]
//
// A page table holds, field by field from the lowest id to the highest and batch by
// batch, (i64 position, i64 length). Text is its bytes and then length+1 positions.
type legacyMetadata struct {
	fields  []Field
	batches []int64
	pages   int64 // page table
	odd     string
}

const (
	// maxLegacyMetadata bounds what is read of one file, in bytes.
	maxLegacyMetadata = 64 << 20
	legacyText        = 2 // Field.encoding of text and binary
)

func (l *legacyMetadata) rows() int64 {
	if len(l.batches) == 0 {
		return 0
	}
	return l.batches[len(l.batches)-1]
}

// checkLegacy is CheckDataFile of format 0.1.
func (m *Manifest) checkLegacy(ctx context.Context, r datafile.Reader, size int64, d *DataFile, physicalRows int64, values bool, out *FileCheck) error {
	l, err := readLegacy(ctx, r, size)
	if err != nil {
		return err
	}
	if physicalRows > 0 && l.rows() != physicalRows {
		return corrupt("it has %d rows, recorded are %d", l.rows(), physicalRows)
	}
	held := map[int32]bool{}
	for _, f := range l.fields {
		held[f.ID] = true
	}
	for _, id := range d.Fields {
		if id != tombstone && !held[id] {
			return corrupt("its schema lacks the field %d, which the manifest says it holds", id)
		}
	}
	if err := l.check(ctx, r, size, values); err != nil {
		return err
	}
	odd := l.odd
	for want, err := range m.Fields() {
		if err != nil {
			return err
		}
		for _, f := range l.fields {
			if f.ID == want.ID {
				odd = cmp.Or(odd, f.oddBeside(want))
			}
		}
	}
	out.Rows, out.Fields, out.Odd = physicalRows > 0, true, odd
	return nil
}

// readLegacy reads the metadata of a file whose footer was checked.
func readLegacy(ctx context.Context, r datafile.Reader, size int64) (*legacyMetadata, error) {
	foot, err := r.ReadAt(ctx, size-footerSize, footerSize)
	if err != nil {
		return nil, fmt.Errorf("read footer: %w", err)
	}
	l := &legacyMetadata{}
	if minor := binary.LittleEndian.Uint16(foot[10:]); minor != 2 {
		l.odd = fmt.Sprintf("its footer says 0.%d", minor)
	}
	at := int64(binary.LittleEndian.Uint64(foot))
	meta, end, err := readMessage(ctx, r, at, size-footerSize)
	if err != nil {
		return nil, err
	}
	if end != size-footerSize && l.odd == "" {
		l.odd = "bytes lie between its metadata and its footer"
	}
	var schema uint64
	l.pages = -1
	err = fields(meta, func(f wireField) error {
		switch f.num {
		case 1:
			return f.uint64(&schema)
		case 2:
			return f.varints(func(v uint64) { l.batches = append(l.batches, int64(int32(v))) })
		case 3:
			return f.count(&l.pages, "place of the page table")
		case 5:
			return f.is(protowire.BytesType)
		}
		l.odd = cmp.Or(l.odd, fmt.Sprintf("its metadata has a field %d", f.num))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if schema == 0 || schema > math.MaxInt64 || l.pages < 0 {
		return nil, corrupt("its metadata names neither schema nor pages")
	}
	for i, b := range l.batches {
		if i == 0 && b != 0 || i > 0 && b <= l.batches[i-1] {
			return nil, corrupt("its batches begin at rows %v", l.batches[:i+1])
		}
	}
	raw, end, err := readMessage(ctx, r, int64(schema), at)
	if err != nil {
		return nil, err
	}
	if end != at && l.odd == "" {
		l.odd = "bytes lie between its schema and its metadata"
	}
	for b, err := range messages(raw, 1) {
		var f Field
		if err == nil {
			err = f.parse(b)
		}
		if err != nil {
			return nil, err
		}
		l.fields = append(l.fields, f)
	}
	return l, nil
}

// readMessage reads a message with its length before it, which ends at most at limit.
func readMessage(ctx context.Context, r datafile.Reader, at, limit int64) (msg []byte, end int64, err error) {
	if at < 0 || at > limit-4 {
		return nil, 0, corrupt("metadata at %d lies outside the file", at)
	}
	b, err := r.ReadAt(ctx, at, 4)
	if err != nil {
		return nil, 0, fmt.Errorf("read metadata: %w", err)
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > limit-at-4 {
		return nil, 0, corrupt("metadata of %d bytes runs past its end", n)
	}
	if n > maxLegacyMetadata {
		return nil, 0, &datafile.UnsupportedError{Page: -1, Encoding: fmt.Sprintf("%d bytes of metadata", n)}
	}
	if n == 0 {
		return nil, at + 4, nil
	}
	if msg, err = r.ReadAt(ctx, at+4, n); err != nil {
		return nil, 0, fmt.Errorf("read metadata: %w", err)
	}
	return msg, at + 4 + n, nil
}

// check holds the page table against the file: pages lie before it, those of fields in
// no list have the rows of their batch, and text lies where its positions say.
func (l *legacyMetadata) check(ctx context.Context, r datafile.Reader, size int64, values bool) error {
	batches := int64(max(len(l.batches)-1, 0))
	if len(l.fields) == 0 || batches == 0 {
		return nil
	}
	lowest, highest := l.fields[0].ID, l.fields[0].ID
	flat := map[int32]bool{-1: true} // in no list
	for _, f := range l.fields {
		lowest, highest = min(lowest, f.ID), max(highest, f.ID)
		flat[f.ID] = flat[f.ParentID] && (f.LogicalType == "struct" || !isNested(f.LogicalType))
	}
	n := (int64(highest) - int64(lowest) + 1) * batches
	if lowest < 0 || n > maxLegacyMetadata/16 || l.pages > size-16*n {
		return corrupt("a page table of %d pages at %d", n, l.pages)
	}
	table, err := r.ReadAt(ctx, l.pages, 16*n)
	if err != nil {
		return fmt.Errorf("read page table: %w", err)
	}
	for _, f := range l.fields {
		for b := range batches {
			e := table[16*((int64(f.ID)-int64(lowest))*batches+b):]
			at, length := binary.LittleEndian.Uint64(e), binary.LittleEndian.Uint64(e[8:])
			if at > uint64(l.pages) || length > uint64(size)*8 {
				return corrupt("a page of %d values at %d", length, at)
			}
			if f.LogicalType == "struct" || !flat[f.ID] {
				continue
			}
			if rows := uint64(l.batches[b+1] - l.batches[b]); length != rows {
				return corrupt("a page of %d values in a batch of %d rows", length, rows)
			}
			if fieldEncoding(f) != legacyText {
				continue
			}
			first, last, err := checkLegacyText(ctx, r, int64(at), int64(length), l.pages)
			if err == nil && values && isText(f.LogicalType) {
				err = checkUTF8(ctx, r, first, last)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func isNested(logical string) bool {
	switch logical {
	case "struct", "list", "large_list", "list.struct", "large_list.struct", "map":
		return true
	}
	return false
}

// fieldEncoding is Field.encoding; 0 when it is not recorded.
func fieldEncoding(f Field) (e uint64) {
	_ = fields(f.Raw, func(w wireField) error { // it was parsed before
		if w.num == 7 && w.typ == protowire.VarintType {
			e = w.v
		}
		return nil
	})
	return e
}

func isText(logical string) bool { return logical == "string" || logical == "large_string" }

// checkLegacyText holds the positions of n values, which lie before them, in order,
// and gives where the first begins and the last ends.
func checkLegacyText(ctx context.Context, r datafile.Reader, at, n, limit int64) (first, last int64, err error) {
	if n >= math.MaxInt64/16 || 8*(n+1) > limit-at {
		return 0, 0, corrupt("positions of %d values at %d", n, at)
	}
	place, prev := at, uint64(0)
	for left := n + 1; left > 0; {
		k := min(left, 8<<10)
		b, err := r.ReadAt(ctx, place, 8*k)
		if err != nil {
			return 0, 0, fmt.Errorf("read positions: %w", err)
		}
		if place == at {
			first = int64(binary.LittleEndian.Uint64(b))
		}
		for i := range k {
			v := binary.LittleEndian.Uint64(b[8*i:])
			if v < prev || v > uint64(at) {
				return 0, 0, corrupt("a value at %d after one at %d", v, prev)
			}
			prev = v
		}
		place, left = place+8*k, left-k
	}
	return first, int64(prev), nil
}

// checkUTF8 looks at the bytes of text, some at a time.
func checkUTF8(ctx context.Context, r datafile.Reader, from, to int64) error {
	var rest []byte
	for from < to {
		k := min(to-from, 1<<20)
		b, err := r.ReadAt(ctx, from, k)
		if err != nil {
			return fmt.Errorf("read text: %w", err)
		}
		from += k
		b = append(rest, b...)
		cut := len(b)
		for from < to && cut > 0 && len(b)-cut < utf8.UTFMax && !utf8.RuneStart(b[cut-1]) {
			cut-- // a letter goes on in what is read next
		}
		if from < to {
			cut = max(cut-1, 0)
		}
		if !utf8.Valid(b[:cut]) {
			return corrupt("text that is no UTF-8")
		}
		rest = append([]byte(nil), b[cut:]...)
	}
	return nil
}
