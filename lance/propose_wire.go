package lance

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

func protoNumber(o Operation) protowire.Number { return protowire.Number(o) }

func uintText(n uint64) string { return strconv.FormatUint(n, 10) }

// appendUint leaves out zero, as proto3 does for fields without presence.
func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return appendOptional(b, num, v)
}

// appendOptional writes zero too.
func appendOptional(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendMessage(b []byte, num protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), body)
}

func appendPacked(b []byte, num protowire.Number, vs []uint64) []byte {
	size := 0
	for _, v := range vs {
		size += protowire.SizeVarint(v)
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
	for _, v := range vs {
		b = protowire.AppendVarint(b, v)
	}
	return b
}

// sizeOfMessage is the length of a length-delimited field.
func sizeOfMessage(num protowire.Number, body int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(body)
}

// fragmentID reads the id out of a DataFragment message.
func fragmentID(raw []byte) (id uint64, err error) {
	id, _, err = fragmentHead(raw)
	return id, err
}

// fragmentHead reads of a DataFragment message what deriving a version needs.
func fragmentHead(raw []byte) (id uint64, deletion bool, err error) {
	for b := raw; len(b) > 0; {
		var f wireField
		if f, b, err = cutField(b); err != nil {
			return 0, false, err
		}
		switch f.num {
		case 1:
			if err = f.uint64(&id); err != nil {
				return 0, false, err
			}
		case 3:
			deletion = true
		}
	}
	return id, deletion, nil
}
