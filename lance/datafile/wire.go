package datafile

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// message is one protobuf message, taken apart once: the fields of the messages
// here are few, except for those of a schema and of column metadata.
type message []wireField

type wireField struct {
	num  protowire.Number
	v    uint64 // a varint
	body []byte // a length-delimited field
}

// parse takes a message apart in place. Groups are refused: proto3 has none.
func parse(b []byte) (message, error) {
	var m message
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, corrupt("broken protobuf tag")
		}
		b = b[n:]
		f := wireField{num: num}
		switch typ {
		case protowire.VarintType:
			f.v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.body, n = protowire.ConsumeBytes(b)
		case protowire.Fixed32Type:
			_, n = protowire.ConsumeFixed32(b)
		case protowire.Fixed64Type:
			_, n = protowire.ConsumeFixed64(b)
		default:
			return nil, corrupt("protobuf field %d has wire type %d", num, typ)
		}
		if n < 0 {
			return nil, corrupt("protobuf field %d runs past its end", num)
		}
		b = b[n:]
		m = append(m, f)
	}
	return m, nil
}

// last gives the last field num, as protobuf wants it for a field that is not
// repeated.
func (m message) last(num protowire.Number) (wireField, bool) {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].num == num {
			return m[i], true
		}
	}
	return wireField{}, false
}

func (m message) has(num protowire.Number) bool { _, ok := m.last(num); return ok }

func (m message) uint(num protowire.Number) uint64 { f, _ := m.last(num); return f.v }

func (m message) bytes(num protowire.Number) []byte { f, _ := m.last(num); return f.body }

func (m message) text(num protowire.Number) string { return string(m.bytes(num)) }

// sub parses the message in field num; an absent one is empty.
func (m message) sub(num protowire.Number) (message, error) { return parse(m.bytes(num)) }

// uints gives the values of a repeated integer, packed or not.
func (m message) uints(num protowire.Number) ([]uint64, error) {
	var out []uint64
	for _, f := range m {
		if f.num != num {
			continue
		}
		if f.body == nil {
			out = append(out, f.v)
			continue
		}
		for b := f.body; len(b) > 0; {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return nil, corrupt("protobuf field %d has a broken varint", num)
			}
			out, b = append(out, v), b[n:]
		}
	}
	return out, nil
}

// anyValue opens the google.protobuf.Any of an Encoding message: what type it
// holds and its bytes. An empty type means that there is no encoding.
func anyValue(encoding []byte) (url string, value []byte, err error) {
	enc, err := parse(encoding)
	if err != nil {
		return "", nil, err
	}
	if enc.has(1) {
		return "", nil, unsupported("an encoding kept elsewhere in the file")
	}
	direct, err := enc.sub(2)
	if err != nil {
		return "", nil, err
	}
	box, err := parse(direct.bytes(1))
	if err != nil {
		return "", nil, err
	}
	return box.text(1), box.bytes(2), nil
}

func wireNumber(n int32) protowire.Number { return protowire.Number(n) }
