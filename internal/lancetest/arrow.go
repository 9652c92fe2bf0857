package lancetest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/klauspost/compress/zstd"
)

// DeletionArrow gives a sparse deletion file: an Arrow IPC file with one batch of
// one non-null uint32 column row_id, its values compressed with zstd as the real
// writer does.
func DeletionArrow(offsets []uint32) []byte {
	var plain []byte
	for _, o := range offsets {
		plain = binary.LittleEndian.AppendUint32(plain, o)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		panic(fmt.Sprintf("lancetest: zstd: %v", err))
	}
	values := binary.LittleEndian.AppendUint64(nil, uint64(len(plain)))
	values = encoder.EncodeAll(plain, values)
	size := len(values)
	body := padTo8(values)

	out := []byte("ARROW1\x00\x00")
	out, _ = appendMessage(out, arrowMessage(1, arrowSchema(), 0))
	at := len(out)
	out, metaLen := appendMessage(out, arrowMessage(3, arrowBatch(len(offsets), size), len(body)))
	out = append(out, body...)
	out = append(out, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	block := table{
		structs(3, 24, le64(uint64(at)), le32(uint32(metaLen)), le32(0), le64(uint64(len(body)))),
		scalar(0, 2, 4), child(1, arrowSchema()),
	}
	footer := flatbuffer(block)
	out = append(out, footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, "ARROW1"...)
}

// DeletionBitmap gives a dense deletion file: the portable roaring bitmap of the
// row offsets.
func DeletionBitmap(offsets []uint32) []byte {
	raw, err := roaring.BitmapOf(offsets...).ToBytes()
	if err != nil {
		panic(fmt.Sprintf("lancetest: encode bitmap: %v", err))
	}
	return raw
}

// appendMessage frames a message; the returned length is what a footer block
// records: prefix and padded metadata.
func appendMessage(out, metadata []byte) ([]byte, int) {
	metadata = padTo8(metadata)
	out = append(out, 0xff, 0xff, 0xff, 0xff)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(metadata)))
	return append(out, metadata...), 8 + len(metadata)
}

func padTo8(b []byte) []byte { return append(b, make([]byte, (8-len(b)%8)%8)...) }

const arrowV5 = 4 // MetadataVersion.V5

func arrowMessage(kind byte, header table, bodyLength int) []byte {
	return flatbuffer(table{scalar(0, 2, arrowV5), scalar(1, 1, uint64(kind)), child(2, header), scalar(3, 8, uint64(bodyLength))})
}

func arrowSchema() table {
	integer := table{scalar(0, 4, 32)} // bitWidth; is_signed false
	const typeInt = 2
	field := table{text(0, "row_id"), scalar(2, 1, typeInt), child(3, integer), tables(5)}
	return table{tables(1, field)}
}

func arrowBatch(rows, valueBytes int) table {
	const zstdCodec = 1
	return table{
		scalar(0, 8, uint64(rows)),
		structs(1, 16, le64(uint64(rows)), le64(0)),
		// validity (absent) and values
		structs(2, 16, le64(0), le64(0), le64(0), le64(uint64(valueBytes))),
		child(3, table{scalar(0, 1, zstdCodec)}),
	}
}

// A small flatbuffers writer, front to back: a table is its vtable, then its
// fields, then what they point at. Offsets count from where they stand.

type table []slot

// slot is one field of a table: a scalar, or something that lies further back.
type slot struct {
	id    int
	size  int // of a scalar: 1, 2, 4 or 8; 0 for an offset
	value uint64
	write func(out []byte) (_ []byte, at int) // appends what an offset points at
}

func scalar(id, size int, value uint64) slot { return slot{id: id, size: size, value: value} }

func child(id int, t table) slot {
	return slot{id: id, write: func(out []byte) ([]byte, int) { return appendTable(out, t) }}
}

func text(id int, s string) slot {
	return slot{id: id, write: func(out []byte) ([]byte, int) {
		out = align(out, 4, 0)
		at := len(out)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(s)))
		return append(append(out, s...), 0), at
	}}
}

func tables(id int, list ...table) slot {
	return slot{id: id, write: func(out []byte) ([]byte, int) {
		out = align(out, 4, 0)
		at := len(out)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(list)))
		first := len(out)
		out = append(out, make([]byte, 4*len(list))...)
		for i, t := range list {
			var pos int
			out, pos = appendTable(out, t)
			binary.LittleEndian.PutUint32(out[first+4*i:], uint32(pos-(first+4*i)))
		}
		return out, at
	}}
}

// structs is a vector of structs of the given size, whose bytes are the parts.
func structs(id, size int, parts ...[]byte) slot {
	raw := slices.Concat(parts...)
	return slot{id: id, write: func(out []byte) ([]byte, int) {
		out = align(out, 8, 4) // so that the first struct is aligned to 8
		at := len(out)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(raw)/size))
		return append(out, raw...), at
	}}
}

func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// align pads until len(out) mod n is rest.
func align(out []byte, n, rest int) []byte {
	for len(out)%n != rest {
		out = append(out, 0)
	}
	return out
}

func flatbuffer(root table) []byte {
	out, at := appendTable(make([]byte, 4), root)
	binary.LittleEndian.PutUint32(out, uint32(at))
	return out
}

func appendTable(out []byte, t table) ([]byte, int) {
	fields := 0
	for _, s := range t {
		fields = max(fields, s.id+1)
	}
	vtableLen := 4 + 2*fields
	// the vtable ends where the table begins, at a multiple of 8
	out = align(out, 8, (8-vtableLen%8)%8)
	vtable := len(out)
	out = append(out, make([]byte, vtableLen)...)
	at := len(out)
	out = binary.LittleEndian.AppendUint32(out, uint32(at-vtable))
	places := make([]int, len(t))
	for i, s := range t {
		size := s.size
		if size == 0 {
			size = 4
		}
		out = align(out, size, 0)
		places[i] = len(out)
		out = append(out, le64(s.value)[:size]...)
		binary.LittleEndian.PutUint16(out[vtable+4+2*s.id:], uint16(places[i]-at))
	}
	binary.LittleEndian.PutUint16(out[vtable:], uint16(vtableLen))
	binary.LittleEndian.PutUint16(out[vtable+2:], uint16(len(out)-at))
	for i, s := range t {
		if s.write == nil {
			continue
		}
		var pos int
		out, pos = s.write(out)
		binary.LittleEndian.PutUint32(out[places[i]:], uint32(pos-places[i]))
	}
	return out, at
}
