package lance

import (
	"encoding/binary"
	"errors"
)

// arrowMagic frames an Arrow IPC file at both ends.
const arrowMagic = "ARROW1"

// minArrowFile is the magic padded to eight bytes, a footer of at least an offset
// and an empty table, its length, and the magic again.
const minArrowFile = 8 + 8 + 4 + 6

var (
	errArrowShort  = errors.New("too few bytes for an Arrow file")
	errArrowMagic  = errors.New("not framed by the Arrow magic")
	errArrowFooter = errors.New("the Arrow footer does not fit the file")
	errArrowBlocks = errors.New("a record batch of the Arrow footer lies outside the file")
)

// checkArrowFile holds the frame and the footer of an Arrow IPC file against its
// length:
//
//	"ARROW1" 0 0 | messages | footer (a flatbuffer) | i32 its length | "ARROW1"
func checkArrowFile(b []byte) error {
	if len(b) < minArrowFile {
		return errArrowShort
	}
	n := len(b) - len(arrowMagic)
	if string(b[:len(arrowMagic)]) != arrowMagic || string(b[n:]) != arrowMagic {
		return errArrowMagic
	}
	n -= 4
	size := int64(int32(binary.LittleEndian.Uint32(b[n:])))
	if size < 8 || size > int64(n-8) {
		return errArrowFooter
	}
	start := n - int(size)
	blocks, ok := footerBlocks(b[start:n])
	if !ok {
		return errArrowFooter
	}
	for ; len(blocks) > 0; blocks = blocks[24:] {
		offset := binary.LittleEndian.Uint64(blocks)
		meta := uint64(binary.LittleEndian.Uint32(blocks[8:]))
		body := binary.LittleEndian.Uint64(blocks[16:])
		end := uint64(start)
		if offset > end || meta > end-offset || body > end-offset-meta {
			return errArrowBlocks
		}
	}
	return nil
}

// footerBlocks finds the vector of record batch blocks (24 bytes each: i64
// offset, i32 metadata length, i64 body length) in a Footer table.
func footerBlocks(fb []byte) (blocks []byte, ok bool) {
	const recordBatches = 3 // the field's position in the table
	u32 := func(at int64) (int64, bool) {
		if at < 0 || at+4 > int64(len(fb)) {
			return 0, false
		}
		return int64(binary.LittleEndian.Uint32(fb[at:])), true
	}
	table, ok := u32(0)
	if !ok {
		return nil, false
	}
	back, ok := u32(table)
	if !ok {
		return nil, false
	}
	vtable := table - int64(int32(back))
	head, ok := u32(vtable)
	if !ok {
		return nil, false
	}
	slot := int64(4 + 2*recordBatches)
	if head&0xffff < slot+2 {
		return nil, true // no record batches
	}
	if vtable+slot+2 > int64(len(fb)) {
		return nil, false
	}
	field := int64(binary.LittleEndian.Uint16(fb[vtable+slot:]))
	if field == 0 {
		return nil, true
	}
	rel, ok := u32(table + field)
	if !ok {
		return nil, false
	}
	vector := table + field + rel
	count, ok := u32(vector)
	if !ok || count > (int64(len(fb))-vector-4)/24 {
		return nil, false
	}
	return fb[vector+4 : vector+4+24*count], true
}
