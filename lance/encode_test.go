package lance

import (
	"encoding/binary"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// A protobuf encoder for tests, written from the format and not from the decoder.

// pb concatenates fields to a message.
func pb(fields ...[]byte) []byte {
	var b []byte
	for _, f := range fields {
		b = append(b, f...)
	}
	return b
}

func vint(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func str(num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), s)
}

func sub(num protowire.Number, fields ...[]byte) []byte { return str(num, string(pb(fields...))) }

func packed(num protowire.Number, vs ...int64) []byte {
	var b []byte
	for _, v := range vs {
		b = protowire.AppendVarint(b, uint64(v))
	}
	return str(num, string(b))
}

func pair(num protowire.Number, k, v string) []byte { return sub(num, str(1, k), str(2, v)) }

// prefixed is a message behind its length.
func prefixed(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// manifestFile frames a manifest that has nothing in front of it.
func manifestFile(fields ...[]byte) []byte { return manifestWith(nil, nil, fields...) }

// manifestWith frames a manifest with an index section and an inline transaction,
// each left out when nil.
func manifestWith(index, txn []byte, fields ...[]byte) []byte {
	var b []byte
	if index != nil {
		fields = append(fields, vint(6, uint64(len(b))))
		b = append(b, prefixed(index)...)
	}
	if txn != nil {
		fields = append(fields, vint(21, uint64(len(b))))
		b = append(b, prefixed(txn)...)
	}
	pos := len(b)
	b = append(b, prefixed(pb(fields...))...)
	b = binary.LittleEndian.AppendUint64(b, uint64(pos))
	return append(b, 0, 0, 2, 0, 'L', 'A', 'N', 'C')
}

// dataFile is a DataFile message of format 2.1.
func dataFile(path string, size uint64, fields []int64, more ...[]byte) []byte {
	return pb(append([][]byte{str(1, path), packed(2, fields...), vint(4, 2), vint(5, 1), vint(6, size)}, more...)...)
}

// fragment is a field of a Manifest with one DataFragment.
func fragment(id uint64, fields ...[]byte) []byte {
	return sub(2, append([][]byte{vint(1, id)}, fields...)...)
}

func uuidBytes(hex string) []byte {
	b := make([]byte, 16)
	for i, h := range []byte(strings.Repeat(hex, 16)[:16]) {
		b[i] = h
	}
	return sub(1, str(1, string(b)))
}
