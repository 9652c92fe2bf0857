package mancache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// An entry's file: magic (8 bytes), encoding (1) and 7 zeros, key (32), SHA-256 of the
// body (32), length of the body (8, little-endian); then the body, as it is or as one
// zstd stream. The sum makes a torn or altered file known, so that writing needs no
// fsync.
const (
	magic      = "RKMANIF1"
	headerSize = 8 + 8 + 32 + 32 + 8
)

const (
	encodingPlain = 0
	encodingZstd  = 1
)

// compressFrom is the size from which a body is compressed. Below it a file is one
// block of the disk either way.
const compressFrom = 4 << 10

// windowSize bounds the memory of one stream. Paths repeat within a few hundred bytes;
// a larger window finds nothing more.
const windowSize = 256 << 10

// Encoders and decoders are reused: each takes a megabyte or so to set up, and a
// fleet has ten thousand small manifests. Both do all their work in the caller.
var (
	encoders = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowSize), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // options that do not exist
		}
		return e
	}}
	decoders = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowSize))
		if err != nil {
			panic(err) // options that do not exist
		}
		return d
	}}
)

// encode writes an entry. The body is streamed: it is in memory once, the caller's.
func encode(w io.Writer, k key, body []byte) error {
	header := make([]byte, 0, headerSize)
	header = append(header, magic...)
	enc := byte(encodingPlain)
	if len(body) >= compressFrom {
		enc = encodingZstd
	}
	header = append(header, enc, 0, 0, 0, 0, 0, 0, 0)
	header = append(header, k[:]...)
	sum := sha256.Sum256(body)
	header = append(header, sum[:]...)
	header = binary.LittleEndian.AppendUint64(header, uint64(len(body)))
	if _, err := w.Write(header); err != nil {
		return err
	}
	if enc == encodingPlain {
		_, err := w.Write(body)
		return err
	}
	z := encoders.Get().(*zstd.Encoder)
	defer func() {
		z.Reset(nil)
		encoders.Put(z)
	}()
	z.Reset(w)
	if _, err := z.Write(body); err != nil {
		return errors.Join(err, z.Close())
	}
	return z.Close()
}

var errDamaged = errors.New("damaged")

func damaged(why string) error { return fmt.Errorf("%w: %s", errDamaged, why) }

// decode reads the entry of a key whose body is size bytes long.
func decode(r io.Reader, k key, size int64) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, damaged("short header")
	}
	enc, rest := header[8], header[9:16]
	switch {
	case string(header[:8]) != magic:
		return nil, damaged("magic")
	case enc > encodingZstd || !bytes.Equal(rest, make([]byte, 7)):
		return nil, damaged("encoding")
	case !bytes.Equal(header[16:48], k[:]):
		return nil, damaged("key")
	case binary.LittleEndian.Uint64(header[80:]) != uint64(size):
		return nil, damaged("length")
	}
	if enc == encodingZstd {
		z := decoders.Get().(*zstd.Decoder)
		defer func() {
			_ = z.Reset(nil) // lets go of r; nothing is read
			decoders.Put(z)
		}()
		if err := z.Reset(r); err != nil {
			return nil, damaged(err.Error())
		}
		r = z
	}
	// The header names this very key, and with it the size: what is allocated is what
	// the listing says, never what a broken file says.
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, damaged("body: " + err.Error())
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return nil, damaged("body does not end where it should")
	}
	if sum := sha256.Sum256(body); !bytes.Equal(header[48:80], sum[:]) {
		return nil, damaged("sum")
	}
	return body, nil
}
