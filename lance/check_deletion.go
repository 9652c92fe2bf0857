package lance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// CheckDeletions says whether deleted rows are those that the fragment records: as
// many, where it records how many, and none beyond its rows, where it records those.
// The error is a *CorruptError.
func (f *Fragment) CheckDeletions(d *Deletions) error {
	if f.Deletion == nil {
		return corrupt("the fragment has no deleted rows")
	}
	if d.Len() == 0 {
		return corrupt("it deletes no row")
	}
	if n := f.Deletion.NumDeleted; n > 0 && int64(d.Len()) != n {
		return corrupt("it deletes %d rows, recorded are %d", d.Len(), n)
	}
	if f.PhysicalRows == 0 {
		return nil
	}
	for v := range d.All() {
		if int64(v) >= f.PhysicalRows {
			return corrupt("it deletes row %d of %d", v, f.PhysicalRows)
		}
	}
	return nil
}

// OddDeletionFile says in what the whole bytes of a deletion file that decodes are
// unlike those that known writers make, which readers do not mind: bytes that nothing
// stands for. Empty when they are in nothing.
func OddDeletionFile(name string, whole []byte) string {
	if strings.HasSuffix(name, ".bin") {
		return oddRoaring(whole)
	}
	return oddArrow(whole)
}

// oddRoaring finds bytes after a bitmap, and places of containers that are not theirs.
func oddRoaring(b []byte) string {
	b = b[:len(b):len(b)]
	containers, err := parseRoaring(b)
	if err != nil {
		return err.Error()
	}
	// A body is a slice of b, so its capacity tells where in b it begins.
	end, head := len(b)-minRoaring, 8
	if cookie := binary.LittleEndian.Uint32(b); cookie != roaringCookie {
		head = 4 + (len(containers)+7)/8
	}
	offsets := b[head+4*len(containers):]
	for i, c := range containers {
		at := len(b) - cap(c.body)
		if c.isRun {
			at -= 2
		}
		if (head == 8 || len(containers) >= roaringNoOffsets) && int(binary.LittleEndian.Uint32(offsets[4*i:])) != at {
			return fmt.Sprintf("container %d lies at %d, and is said to lie elsewhere", i, at)
		}
		end = cap(c.body) - len(c.body)
	}
	if end > 0 {
		return fmt.Sprintf("%d bytes after its end", end)
	}
	return ""
}

// oddArrow finds bytes that are no padding between the parts of an Arrow file: magic,
// schema, batches, end mark, footer.
func oddArrow(b []byte) string {
	footer, blocks, err := arrowFrame(b)
	if err != nil {
		return err.Error()
	}
	at := 6
	for at < len(b) && b[at] == 0 {
		at++
	}
	// The schema's message: a mark since Arrow 0.15, its length, itself.
	if at+8 > footer || at >= 8+64 {
		return "no schema follows its magic"
	}
	if binary.LittleEndian.Uint32(b[at:]) == math.MaxUint32 {
		at += 4
	}
	end := uint64(at) + 4 + uint64(binary.LittleEndian.Uint32(b[at:]))
	for ; len(blocks) > 0; blocks = blocks[24:] {
		offset, message, body, err := arrowBlock(b[:footer], blocks)
		switch {
		case err != nil:
			return err.Error()
		case offset != end:
			return fmt.Sprintf("a batch lies at %d, and what is before it ends at %d", offset, end)
		case !paddedBatch(message, body):
			return "bytes between its buffers that are no padding"
		}
		end = offset + uint64(len(message)) + uint64(len(body))
	}
	if end > uint64(footer) {
		return "its schema runs into the footer"
	}
	if tail := b[end:footer]; len(tail) > 0 && !bytes.Equal(tail, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}) {
		return fmt.Sprintf("%d bytes before its footer", len(tail))
	}
	return ""
}

// paddedBatch reports whether a batch's body is zero wherever no buffer lies.
func paddedBatch(message, body []byte) bool {
	for range 2 {
		if len(message) >= 4 && binary.LittleEndian.Uint32(message) != math.MaxUint32 {
			break
		}
		message = message[min(4, len(message)):]
	}
	if len(message) < 4 {
		return false
	}
	root, ok := flatRoot(message[4:])
	if !ok {
		return false
	}
	batch, ok := root.table(2)
	if !ok {
		return false
	}
	buffers, ok := batch.vector(2, 16)
	end := uint64(0)
	for ; ok && len(buffers) > 0; buffers = buffers[16:] {
		at, size := binary.LittleEndian.Uint64(buffers), binary.LittleEndian.Uint64(buffers[8:])
		if at < end || at > uint64(len(body)) || size > uint64(len(body))-at {
			return false
		}
		ok = zeros(body[end:at])
		end = at + size
	}
	return ok && zeros(body[end:])
}

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
