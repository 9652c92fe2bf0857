package datafile

import (
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/zstd"
)

const (
	schemeLz4  = 1
	schemeZstd = 2
	zstdMagic  = 0xFD2FB528
	// maxDecoded is how many bytes one page may decode to.
	maxDecoded = 1 << 30
	// How much one byte can become at most: a block of 128 KiB in zstd has 4 bytes,
	// a length byte of lz4 stands for 255.
	zstdRatio, lz4Ratio = 1 << 16, 256
)

// decoder holds what decoders of pages share. It is for one goroutine.
type decoder struct {
	zstd *zstd.Decoder
}

// decompress undoes general compression of one buffer.
func (d *decoder) decompress(scheme uint64, b []byte) ([]byte, error) {
	switch scheme {
	case schemeLz4:
		if len(b) < 4 {
			return nil, corrupt("lz4 without a length")
		}
		n := binary.LittleEndian.Uint32(b)
		if uint64(n) > uint64(len(b))*lz4Ratio || n > maxDecoded {
			return nil, corrupt("%d bytes of lz4 said to become %d", len(b), n)
		}
		return lz4(b[4:], int(n))
	case schemeZstd:
		return d.unzstd(b)
	}
	return nil, unsupported("compression scheme %d", scheme)
}

// unzstd reads a zstd frame, which may have its decoded length before it.
func (d *decoder) unzstd(b []byte) ([]byte, error) {
	want := int64(-1)
	bare := len(b) < 8 || binary.LittleEndian.Uint32(b) == zstdMagic && b[4]&16 == 0
	if !bare {
		n := binary.LittleEndian.Uint64(b)
		if n > uint64(len(b))*zstdRatio || n > maxDecoded {
			return nil, corrupt("%d bytes of zstd said to become %d", len(b), n)
		}
		want, b = int64(n), b[8:]
	}
	var head zstd.Header
	if err := head.Decode(b); err == nil && head.HasFCS && head.FrameContentSize > uint64(len(b))*zstdRatio {
		return nil, corrupt("%d bytes of zstd said to become %d", len(b), head.FrameContentSize)
	}
	if d.zstd == nil {
		var err error
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDecoded), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
	}
	out, err := d.zstd.DecodeAll(b, nil)
	if err != nil {
		return nil, corrupt("zstd: %v", err)
	}
	if want >= 0 && int64(len(out)) != want {
		return nil, corrupt("%d bytes of zstd said to be %d", len(out), want)
	}
	return out, nil
}

func (d *decoder) close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
}

var errLz4 = errors.New("broken lz4 block")

// lz4 decodes a raw LZ4 block of n bytes.
func lz4(src []byte, n int) ([]byte, error) {
	dst := make([]byte, 0, n)
	for len(src) > 0 {
		token := src[0]
		src = src[1:]
		lit, rest, ok := lz4Length(int(token>>4), src)
		if !ok || lit > len(rest) || lit > n-len(dst) {
			return nil, corrupt("%v", errLz4)
		}
		dst = append(dst, rest[:lit]...)
		if src = rest[lit:]; len(src) == 0 {
			break // the last sequence is literals only
		}
		if len(src) < 2 {
			return nil, corrupt("%v", errLz4)
		}
		back := int(binary.LittleEndian.Uint16(src))
		size, rest, ok := lz4Length(int(token&15), src[2:])
		size += 4
		if !ok || back == 0 || back > len(dst) || size > n-len(dst) {
			return nil, corrupt("%v", errLz4)
		}
		src = rest
		for size > 0 { // a match may overlap what it makes
			k := min(size, back)
			from := len(dst) - back
			dst = append(dst, dst[from:from+k]...)
			size -= k
		}
	}
	if len(dst) != n {
		return nil, corrupt("lz4 block of %d bytes instead of %d", len(dst), n)
	}
	return dst, nil
}

func lz4Length(n int, src []byte) (int, []byte, bool) {
	if n < 15 {
		return n, src, true
	}
	for i, b := range src {
		if n += int(b); b < 255 {
			return n, src[i+1:], true
		}
	}
	return 0, nil, false
}

// fsst is a table of symbols that codes stand for.
type fsst struct {
	on      bool
	n       int
	symbols [256]uint64
	lengths [256]uint8
}

const fsstEscape = 255

// parseFsst reads a symbol table: the number of symbols, a switch, "TSSF", eight
// bytes a symbol, and their lengths.
func parseFsst(b []byte) (*fsst, error) {
	if len(b) < 8 || string(b[4:8]) != "TSSF" {
		return nil, corrupt("fsst table without its mark")
	}
	t := &fsst{n: int(b[0]), on: b[3]&1 != 0}
	if !t.on {
		return t, nil
	}
	if b = b[8:]; len(b) < 9*t.n {
		return nil, corrupt("fsst table of %d symbols in %d bytes", t.n, len(b))
	}
	for i := range t.n {
		t.symbols[i] = binary.LittleEndian.Uint64(b[8*i:])
		if t.lengths[i] = b[8*t.n+i]; t.lengths[i] > 8 || t.lengths[i] == 0 {
			return nil, corrupt("fsst symbol of %d bytes", t.lengths[i])
		}
	}
	return t, nil
}

// add decodes one value and appends it.
func (t *fsst) add(b *builder, v []byte) error {
	if !t.on {
		return b.addVar(v)
	}
	if err := b.room(8 * len(v)); err != nil {
		return err
	}
	at := len(b.data)
	need := at + 8*len(v) + 8
	if cap(b.data) < need {
		grown := make([]byte, at, max(need, 2*cap(b.data)))
		copy(grown, b.data)
		b.data = grown
	}
	out := b.data[:need]
	for i := 0; i < len(v); i++ {
		code := v[i]
		if int(code) < t.n && code != fsstEscape {
			binary.LittleEndian.PutUint64(out[at:], t.symbols[code])
			at += int(t.lengths[code])
			continue
		}
		if code != fsstEscape || i+1 == len(v) {
			return corrupt("fsst code %d of a table of %d symbols", code, t.n)
		}
		i++
		out[at] = v[i]
		at++
	}
	b.data = out[:at]
	b.end()
	return nil
}
