package lance

import (
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// wireField is one field of a protobuf message, in place.
type wireField struct {
	num protowire.Number
	typ protowire.Type
	// v is the value of a varint, body that of a length-delimited field.
	v    uint64
	body []byte
}

// cutField splits the first field off b. Nothing is copied. Groups are refused:
// proto3 has none, and they are the one wire type that nests without a length.
func cutField(b []byte) (f wireField, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, corrupt("broken protobuf tag")
	}
	f.num, f.typ = num, typ
	var m int
	switch typ {
	case protowire.VarintType:
		f.v, m = protowire.ConsumeVarint(b[n:])
	case protowire.BytesType:
		f.body, m = protowire.ConsumeBytes(b[n:])
	case protowire.Fixed32Type:
		_, m = protowire.ConsumeFixed32(b[n:])
	case protowire.Fixed64Type:
		_, m = protowire.ConsumeFixed64(b[n:])
	default:
		return f, nil, corrupt("protobuf field %d has wire type %d", num, typ)
	}
	if m < 0 {
		return f, nil, corrupt("protobuf field %d runs past its end", num)
	}
	return f, b[n+m:], nil
}

// fields calls fn for each field of a message until one returns an error.
func fields(b []byte, fn func(wireField) error) error {
	for len(b) > 0 {
		f, rest, err := cutField(b)
		if err != nil {
			return err
		}
		if err := fn(f); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// is reports whether f has the wire type that its number stands for.
func (f wireField) is(t protowire.Type) error {
	if f.typ != t {
		return corrupt("protobuf field %d has wire type %d, not %d", f.num, f.typ, t)
	}
	return nil
}

func (f wireField) uint64(dst *uint64) error {
	if err := f.is(protowire.VarintType); err != nil {
		return err
	}
	*dst = f.v
	return nil
}

func (f wireField) uint32(dst *uint32) error {
	if err := f.is(protowire.VarintType); err != nil {
		return err
	}
	*dst = uint32(f.v) // protobuf says: the high bits of a too long varint are dropped
	return nil
}

func (f wireField) int32(dst *int32) error {
	if err := f.is(protowire.VarintType); err != nil {
		return err
	}
	*dst = int32(f.v)
	return nil
}

// count reads an unsigned number of rows or bytes.
func (f wireField) count(dst *int64, what string) error {
	if err := f.is(protowire.VarintType); err != nil {
		return err
	}
	if f.v > math.MaxInt64 {
		return corrupt("%s %d is beyond any object", what, f.v)
	}
	*dst = int64(f.v)
	return nil
}

func (f wireField) bytes(dst *[]byte) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	*dst = f.body[:len(f.body):len(f.body)]
	return nil
}

// text is bytes that must be UTF-8, as proto3 strings must.
func (f wireField) text(dst *[]byte) error {
	if err := f.bytes(dst); err != nil {
		return err
	}
	if !utf8.Valid(f.body) {
		return corrupt("protobuf field %d is not UTF-8", f.num)
	}
	return nil
}

func (f wireField) string(dst *string) error {
	var b []byte
	if err := f.text(&b); err != nil {
		return err
	}
	*dst = string(b)
	return nil
}

// varints calls fn for each number of a repeated field, packed or not.
func (f wireField) varints(fn func(uint64)) error {
	if f.typ == protowire.VarintType {
		fn(f.v)
		return nil
	}
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	for b := f.body; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return corrupt("protobuf field %d holds a broken number", f.num)
		}
		fn(v)
		b = b[n:]
	}
	return nil
}

// mapEntry reads one entry of a map whose keys are strings and whose values are
// strings or bytes.
func (f wireField) mapEntry() (key, value []byte, err error) {
	if err := f.is(protowire.BytesType); err != nil {
		return nil, nil, err
	}
	for b := f.body; len(b) > 0; {
		var e wireField
		if e, b, err = cutField(b); err != nil {
			return nil, nil, err
		}
		switch e.num {
		case 1:
			err = e.text(&key)
		case 2:
			err = e.bytes(&value)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return key, value, nil
}

func (f wireField) intoMap(m *map[string]string) error {
	k, v, err := f.mapEntry()
	if err != nil {
		return err
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[string(k)] = string(v)
	return nil
}
