package lancetest

import "google.golang.org/protobuf/encoding/protowire"

// The append functions leave out zero values as proto3 does, except where a name
// ends in Always.

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func appendString(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return appendBytes(b, num, []byte(v))
}

func appendUintAlways(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return appendUintAlways(b, num, v)
}

func appendBool(b []byte, num protowire.Number, v bool) []byte {
	return appendUint(b, num, protowire.EncodeBool(v))
}

// appendInts is a packed repeated int32; a negative value takes ten bytes.
func appendInts(b []byte, num protowire.Number, v []int32) []byte {
	if len(v) == 0 {
		return b
	}
	var p []byte
	for _, n := range v {
		p = protowire.AppendVarint(p, uint64(int64(n)))
	}
	return appendBytes(b, num, p)
}

// appendMap is one entry of a map<string, string or bytes>.
func appendMap(b []byte, num protowire.Number, key string, value []byte) []byte {
	return appendBytes(b, num, appendBytes(appendBytes(nil, 1, []byte(key)), 2, value))
}
