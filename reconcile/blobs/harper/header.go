package harper

import (
	"bufio"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
)

// Header is the first eight bytes of a blob's file: a type and a length.
type Header struct {
	Type uint16
	// Size of the content in bytes; -1 when the writer never finished it.
	Size int64
}

// Files are blobs as a node keeps them on disk.
func Files() *blobs.Format {
	return &blobs.Format{Name: "files of a Harper node", HeaderSize: headerSize, Judge: JudgeFile}
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

// Reasons of [JudgeFile]. Unfinished, torn and pending stub are also what a file looks
// like while it is being written: its bytes alone do not tell.
const (
	ReasonTooShortForHeader = reconcile.ReasonTooShort
	ReasonUnfinished        = "unfinished"   // the length was never written over the placeholder
	ReasonErrorStub         = "error_stub"   // an error's text in place of the content
	ReasonPendingStub       = "pending_stub" // the text of a transfer that broke off
	ReasonUnknownType       = "unknown_type"
	ReasonTorn              = "torn"     // less content than the header tells, or it does not inflate
	ReasonOverlong          = "overlong" // more content than the header tells
)

// JudgeFile judges a blob's file as a node keeps it on disk: a header of eight bytes and
// the content, plain or as a zlib stream. r yields the file from its first byte, size is
// its length in bytes, recorded the length of the content that the record tells (0: not
// told). Content goes through digest, inflated; nil wants none, and then plain content is
// not read at all. Compressed content always is, and no further than the length that the
// header tells; what may follow the end of its stream is not looked at. Flipped bits are
// seen in compressed content only.
//
// An error means that r could not be read to where it had to be, an end before size
// bytes included. Of digest only what a Present file gave is of use.
func JudgeFile(r io.Reader, size, recorded int64, digest hash.Hash) (blobs.Judgement, error) {
	unreadable := func(reason string) (blobs.Judgement, error) {
		return blobs.Judgement{Verdict: reconcile.Unreadable, Reason: reason}, nil
	}
	if size < headerSize {
		return unreadable(ReasonTooShortForHeader)
	}
	in := &exact{r: r, left: size}
	var b [headerSize]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return blobs.Judgement{}, fmt.Errorf("read a blob's header: %w", err)
	}
	h := ParseHeader(b)
	switch {
	case h.Type == typeError:
		return unreadable(ReasonErrorStub)
	case h.Type == typePending:
		return unreadable(ReasonPendingStub)
	case h.Type > typeDeflate:
		return unreadable(ReasonUnknownType)
	case h.Size < 0:
		return unreadable(ReasonUnfinished)
	case h.Type == typePlain && in.left < h.Size:
		return unreadable(ReasonTorn)
	case h.Type == typePlain && in.left > h.Size:
		return unreadable(ReasonOverlong)
	}
	reason, err := "", error(nil)
	switch {
	case h.Type == typeDeflate:
		reason, err = inflate(in, h.Size, digest)
	case digest != nil:
		_, err = io.Copy(digest, in)
	}
	switch {
	case err != nil:
		return blobs.Judgement{}, fmt.Errorf("read a blob's content: %w", err)
	case reason != "":
		return unreadable(reason)
	case recorded > 0 && h.Size != recorded:
		return blobs.Judgement{Verdict: reconcile.SizeMismatch, Size: h.Size}, nil
	}
	return blobs.Judgement{Verdict: reconcile.Present, Size: h.Size}, nil
}

// inflateBuffer is how many bytes of a compressed file are asked for at once.
const inflateBuffer = 32 << 10

// inflate reads a zlib stream that should hold size bytes, never more than one byte
// further, and says what is wrong with it.
func inflate(in *exact, size int64, digest hash.Hash) (reason string, err error) {
	var out io.Writer = io.Discard
	if digest != nil {
		out = digest
	}
	z, err := zlib.NewReader(bufio.NewReaderSize(in, inflateBuffer))
	var n int64
	if err == nil {
		n, err = io.Copy(out, io.LimitReader(z, size+1))
	}
	switch {
	case err != nil && in.err != nil:
		return "", in.err
	case err != nil || n < size:
		return ReasonTorn, nil
	case n > size:
		return ReasonOverlong, nil
	}
	return "", nil
}

// exact yields exactly left bytes of r. It remembers an error of reading, an early end
// included, as opposed to one of what was read.
type exact struct {
	r    io.Reader
	left int64
	err  error
}

func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) {
		if err = nil; e.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		e.err = err
	}
	return n, err
}
