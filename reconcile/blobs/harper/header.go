package harper

import (
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Header is the first eight bytes of a blob's file: a type and a length.
type Header struct {
	Type uint16
	// Size of the content in bytes; -1 when the writer never finished it.
	Size int64
}

const (
	typePlain     = 0
	typeDeflate   = 1
	sizeUndefined = 1<<48 - 1
)

// ParseHeader reads a header: 16 bits of type and 48 of size, big endian.
func ParseHeader(b [headerSize]byte) Header {
	v := binary.BigEndian.Uint64(b[:])
	h := Header{Type: uint16(v >> 48), Size: int64(v & sizeUndefined)}
	if h.Size == sizeUndefined {
		h.Size = -1
	}
	return h
}

// Reasons of [JudgeFile].
const (
	ReasonTooShortForHeader = "too_short"
	ReasonUnfinished        = "unfinished"
	ReasonErrorStub         = "error_stub"
	ReasonPendingStub       = "pending_stub"
	ReasonUnknownType       = "unknown_type"
	ReasonTorn              = "torn"
	ReasonOverlong          = "overlong"
)

// JudgeFile judges a file of size bytes as a node keeps it on disk, where it can be seen:
// Present, Unreadable, or SizeMismatch when it agrees with itself and not with recorded
// (the length that the record tells; 0 is not told). Flipped bits it cannot see, unless
// the content is compressed. An error means that r could not be read.
func JudgeFile(r io.ReaderAt, size, recorded int64) (reconcile.Verdict, string, error) {
	if size < headerSize {
		return reconcile.Unreadable, ReasonTooShortForHeader, nil
	}
	var b [headerSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return reconcile.Undecided, "", fmt.Errorf("read a blob's header: %w", err)
	}
	h, body := ParseHeader(b), size-headerSize
	switch {
	case h.Type == typeError:
		return reconcile.Unreadable, ReasonErrorStub, nil
	case h.Type == typePending:
		return reconcile.Unreadable, ReasonPendingStub, nil
	case h.Type > typeDeflate:
		return reconcile.Unreadable, ReasonUnknownType, nil
	case h.Size < 0:
		return reconcile.Unreadable, ReasonUnfinished, nil
	case h.Type == typePlain && body < h.Size:
		return reconcile.Unreadable, ReasonTorn, nil
	case h.Type == typePlain && body > h.Size:
		return reconcile.Unreadable, ReasonOverlong, nil
	}
	if h.Type == typeDeflate {
		switch reason, err := judgeDeflated(io.NewSectionReader(r, headerSize, body), h.Size); {
		case err != nil:
			return reconcile.Undecided, "", err
		case reason != "":
			return reconcile.Unreadable, reason, nil
		}
	}
	if recorded > 0 && h.Size != recorded {
		return reconcile.SizeMismatch, "", nil
	}
	return reconcile.Present, "", nil
}

// judgeDeflated inflates content, never beyond the length that it should have.
func judgeDeflated(r *io.SectionReader, size int64) (string, error) {
	in := &readErr{r: r}
	z, err := zlib.NewReader(in)
	if err == nil {
		var n int64
		if n, err = io.Copy(io.Discard, io.LimitReader(z, size+1)); err == nil && n != size {
			if n > size {
				return ReasonOverlong, nil
			}
			return ReasonTorn, nil
		}
	}
	if in.err != nil {
		return "", fmt.Errorf("read a blob: %w", in.err)
	}
	if err != nil {
		return ReasonTorn, nil
	}
	return "", nil
}

// readErr remembers an error of reading, as opposed to one of what was read.
type readErr struct {
	r   io.Reader
	err error
}

func (e *readErr) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		e.err = err
	}
	return n, err
}
