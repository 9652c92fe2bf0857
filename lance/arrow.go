package lance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
)

// arrowMagic frames an Arrow IPC file at both ends.
const arrowMagic = "ARROW1"

// minArrowFile is the magic padded to eight bytes, a footer of at least an offset
// and an empty table, its length, and the magic again.
const minArrowFile = 8 + 8 + 4 + 6

// maxArrowRows bounds what a compressed column may claim to hold: writers turn to
// a bitmap at some thousand rows.
const maxArrowRows = 1 << 24

// maxZstdWindow is the largest window of a zstd frame that is made room for.
const maxZstdWindow = 8 << 20

var (
	errArrowShort  = errors.New("too few bytes for an Arrow file")
	errArrowMagic  = errors.New("not framed by the Arrow magic")
	errArrowFooter = errors.New("the Arrow footer does not fit the file")
	errArrowBlocks = errors.New("a record batch of the Arrow footer lies outside the file")
	errArrowBatch  = errors.New("a record batch is not whole")
	errArrowColumn = errors.New("a record batch is not one column of row offsets")
)

// arrowOffsets reads an Arrow IPC file of one uint32 column, all batches of it, in
// the order of the file:
//
//	"ARROW1" 0 0 | messages | footer (a flatbuffer) | i32 its length | "ARROW1"
//
// Buffers are plain or compressed with zstd; another codec is ErrUnknownFormat.
func arrowOffsets(b []byte) ([]uint32, error) {
	start, blocks, err := arrowFrame(b)
	if err != nil {
		return nil, err
	}
	var offsets []uint32
	for ; len(blocks) > 0; blocks = blocks[24:] {
		_, message, body, err := arrowBlock(b[:start], blocks)
		if err != nil {
			return nil, err
		}
		if offsets, err = appendBatch(offsets, message, body); err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

// arrowBlock cuts the first of the blocks out of what lies before the footer: a message
// that begins at an offset, and its body.
func arrowBlock(b, blocks []byte) (offset uint64, message, body []byte, err error) {
	offset = binary.LittleEndian.Uint64(blocks)
	meta, size := uint64(binary.LittleEndian.Uint32(blocks[8:])), binary.LittleEndian.Uint64(blocks[16:])
	end := uint64(len(b))
	if offset > end || meta > end-offset || size > end-offset-meta {
		return 0, nil, nil, errArrowBlocks
	}
	at := offset + meta
	return offset, b[offset:at], b[at : at+size], nil
}

// arrowFrame finds the footer of an Arrow IPC file, and in it the blocks of its
// record batches (24 bytes each: i64 offset, i32 metadata length, i64 body length).
func arrowFrame(b []byte) (footer int, blocks []byte, err error) {
	if len(b) < minArrowFile {
		return 0, nil, errArrowShort
	}
	n := len(b) - len(arrowMagic)
	if string(b[:len(arrowMagic)]) != arrowMagic || string(b[n:]) != arrowMagic {
		return 0, nil, errArrowMagic
	}
	n -= 4
	size := int64(int32(binary.LittleEndian.Uint32(b[n:])))
	if size < 8 || size > int64(n-8) {
		return 0, nil, errArrowFooter
	}
	footer = n - int(size)
	root, ok := flatRoot(b[footer:n])
	if !ok {
		return 0, nil, errArrowFooter
	}
	const recordBatches = 3
	blocks, ok = root.vector(recordBatches, 24)
	if !ok {
		return 0, nil, errArrowFooter
	}
	return footer, blocks, nil
}

// appendBatch adds the values of one record batch: a Message and its body.
func appendBatch(dst []uint32, message, body []byte) ([]uint32, error) {
	// A length stands in front, and in front of that a mark since Arrow 0.15.
	if len(message) >= 4 && binary.LittleEndian.Uint32(message) == math.MaxUint32 {
		message = message[4:]
	}
	if len(message) < 4 {
		return nil, errArrowBatch
	}
	n := binary.LittleEndian.Uint32(message)
	if message = message[4:]; uint64(n) > uint64(len(message)) {
		return nil, errArrowBatch
	}
	const (
		headerType, header           = 1, 2 // of Message
		length, nodes, buffers, comp = 0, 1, 2, 3
		typeRecordBatch              = 3
	)
	root, ok := flatRoot(message[:n])
	if !ok || root.uint(headerType, 1) != typeRecordBatch {
		return nil, errArrowBatch
	}
	batch, ok := root.table(header)
	if !ok {
		return nil, errArrowBatch
	}
	rows := batch.uint(length, 8)
	columns, okNodes := batch.vector(nodes, 16)
	list, okBuffers := batch.vector(buffers, 16)
	switch {
	case !okNodes || !okBuffers:
		return nil, errArrowBatch
	case len(columns) != 16 || len(list) != 2*16 || binary.LittleEndian.Uint64(columns[8:]) != 0:
		return nil, errArrowColumn // more than one column, or one with nulls
	case rows > maxArrowRows || binary.LittleEndian.Uint64(columns) != rows:
		return nil, errArrowBatch
	}
	at, size := binary.LittleEndian.Uint64(list[16:]), binary.LittleEndian.Uint64(list[24:])
	if at > uint64(len(body)) || size > uint64(len(body))-at {
		return nil, errArrowBatch
	}
	values := body[at : at+size]
	if batch.has(comp) {
		compression, ok := batch.table(comp)
		if !ok {
			return nil, errArrowBatch
		}
		var err error
		if values, err = arrowBuffer(values, compression, 4*rows); err != nil {
			return nil, err
		}
	}
	// Padding may follow the values, up to the 64 bytes that Arrow aligns to.
	if got := uint64(len(values)); got < 4*rows || got >= 4*rows+64 {
		return nil, errArrowColumn
	}
	for values = values[:4*rows]; len(values) > 0; values = values[4:] {
		dst = append(dst, binary.LittleEndian.Uint32(values))
	}
	return dst, nil
}

// arrowBuffer undoes the compression of one buffer: i64 length, then a frame; a
// length of -1 says that the bytes are plain.
func arrowBuffer(b []byte, compression flatTable, want uint64) ([]byte, error) {
	const codec, codecZstd = 0, 1
	if len(b) == 0 && want == 0 {
		return nil, nil
	}
	if len(b) < 8 {
		return nil, errArrowBatch
	}
	size := binary.LittleEndian.Uint64(b)
	switch b = b[8:]; {
	case size == math.MaxUint64:
		return b, nil
	case size < want || size >= want+64:
		return nil, errArrowColumn
	case compression.uint(codec, 1) != codecZstd:
		return nil, fmt.Errorf("buffers of Arrow compression codec %d: %w", compression.uint(codec, 1), ErrUnknownFormat)
	}
	// The library's frames ask for a window of 2 MiB, however small they are.
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(max(size, maxZstdWindow)))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	plain, err := decoder.DecodeAll(b, make([]byte, 0, size))
	if err != nil || uint64(len(plain)) != size {
		return nil, errArrowBatch
	}
	return plain, nil
}

// flatTable is one table of a flatbuffer (source: the format's own description,
// flatbuffers.dev/internals): it begins with the distance back to its vtable, which
// holds its own size, that of the table, and where each field lies in the table.
type flatTable struct {
	b      []byte
	at     int64
	vtable []byte
}

// flatRoot is the table that a flatbuffer begins with the offset of.
func flatRoot(b []byte) (flatTable, bool) {
	at, ok := flatUint(b, 0, 4)
	if !ok {
		return flatTable{}, false
	}
	return flatAt(b, int64(at))
}

func flatAt(b []byte, at int64) (flatTable, bool) {
	back, ok := flatUint(b, at, 4)
	if !ok {
		return flatTable{}, false
	}
	v := at - int64(int32(uint32(back)))
	size, ok := flatUint(b, v, 2)
	if !ok || size < 4 || v+int64(size) > int64(len(b)) {
		return flatTable{}, false
	}
	return flatTable{b: b, at: at, vtable: b[v : v+int64(size)]}, true
}

// flatUint reads n bytes, at most eight, at a place that may be anywhere.
func flatUint(b []byte, at int64, n int) (v uint64, ok bool) {
	if at < 0 || at > int64(len(b)-n) {
		return 0, false
	}
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[at+int64(i)])
	}
	return v, true
}

// field is where a field lies; ok is false when the table does not have it.
func (t flatTable) field(id int) (at int64, ok bool) {
	rel, ok := flatUint(t.vtable, int64(4+2*id), 2)
	return t.at + int64(rel), ok && rel != 0
}

func (t flatTable) has(id int) bool {
	_, ok := t.field(id)
	return ok
}

// uint is a number of n bytes, 0 when it is absent or lies outside the buffer.
func (t flatTable) uint(id, n int) uint64 {
	at, ok := t.field(id)
	if !ok {
		return 0
	}
	v, _ := flatUint(t.b, at, n)
	return v
}

// follow is the place that the offset in a field points at.
func (t flatTable) follow(id int) (at int64, ok bool) {
	if at, ok = t.field(id); !ok {
		return 0, false
	}
	rel, ok := flatUint(t.b, at, 4)
	return at + int64(rel), ok
}

func (t flatTable) table(id int) (flatTable, bool) {
	at, ok := t.follow(id)
	if !ok {
		return flatTable{}, false
	}
	return flatAt(t.b, at)
}

// vector is the elements of a vector, size bytes each; none when it is absent.
func (t flatTable) vector(id int, size int64) (elements []byte, ok bool) {
	if !t.has(id) {
		return nil, true
	}
	at, ok := t.follow(id)
	if !ok {
		return nil, false
	}
	n, ok := flatUint(t.b, at, 4)
	if at += 4; !ok || int64(n) > (int64(len(t.b))-at)/size {
		return nil, false
	}
	return t.b[at : at+size*int64(n)], true
}
