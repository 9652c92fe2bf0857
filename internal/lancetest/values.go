package lancetest

import (
	"encoding/binary"
	"fmt"
)

// Column is a column with values, for [ValueFile] and [Builder.Values].
type Column struct {
	name    string
	strings []*string
	ints    []int64
}

// Strings is a string column.
func Strings(name string, values ...string) Column {
	c := Column{name: name, strings: make([]*string, len(values))}
	for i := range values {
		c.strings[i] = &values[i]
	}
	return c
}

// Int64s is an int64 column.
func Int64s(name string, values ...int64) Column { return Column{name: name, ints: values} }

// Null makes rows of a string column null.
func (c Column) Null(rows ...int) Column {
	for _, i := range rows {
		c.strings[i] = nil
	}
	return c
}

func (c Column) rows() int { return max(len(c.strings), len(c.ints)) }

func (c Column) logical() string {
	if c.strings != nil {
		return "string"
	}
	return "int64"
}

// ValueFile gives a complete data file of format 2.0 with the columns' values, one
// page for each column. It panics when the columns differ in length.
func ValueFile(columns ...Column) []byte {
	var out []byte
	var schema []schemaField
	var metadata [][]byte
	for _, c := range columns {
		if c.rows() != columns[0].rows() {
			panic(fmt.Sprintf("lancetest: column %s has %d rows, %s has %d", c.name, c.rows(), columns[0].name, columns[0].rows()))
		}
		buffers, encoding := c.page()
		var positions, sizes []int32
		for _, b := range buffers {
			const alignment = 64
			out = align(out, alignment, 0)
			positions, sizes = append(positions, int32(len(out))), append(sizes, int32(len(b)))
			out = append(out, b...)
		}
		page := appendInts(appendInts(nil, 1, positions), 2, sizes)
		page = appendUint(page, 3, uint64(c.rows()))
		metadata = append(metadata, columnMetadata(appendBytes(page, 4, direct("/lance.encodings.ArrayEncoding", encoding))))
		schema = append(schema, schemaField{c.name, c.logical()})
	}
	out = align(out, 64, 0)
	// a 2.0 file says 0.3 in its footer
	return finishFile(out, 0, uint64(columns[0].rows()), schema, metadata, [2]uint16{0, 3})
}

// page gives the buffers of a column and the ArrayEncoding that tells them:
//
//	int64:  nullable{no_nulls{flat 64}}; values
//	string: binary{indices no_nulls{flat 64}, bytes flat 8, null_adjustment}; the
//	        end of each value (plus the adjustment for a null), all bytes
func (c Column) page() (buffers [][]byte, encoding []byte) {
	flat := func(bits, buffer uint64) []byte {
		return appendBytes(nil, 1, appendBytes(appendUint(nil, 1, bits), 2, appendUint(nil, 1, buffer)))
	}
	noNulls := func(values []byte) []byte {
		return appendBytes(nil, 2, appendBytes(nil, 1, appendBytes(nil, 1, values)))
	}
	if c.strings == nil {
		var raw []byte
		for _, v := range c.ints {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
		}
		return [][]byte{raw}, noNulls(flat(64, 0))
	}
	var bytes, ends []byte
	for _, s := range c.strings {
		if s != nil {
			bytes = append(bytes, *s...)
		}
	}
	adjustment := uint64(len(bytes)) + 1
	var end uint64
	for _, s := range c.strings {
		stored := end + adjustment
		if s != nil {
			end += uint64(len(*s))
			stored = end
		}
		ends = binary.LittleEndian.AppendUint64(ends, stored)
	}
	binaryEncoding := appendBytes(appendBytes(nil, 1, noNulls(flat(64, 0))), 2, flat(8, 1))
	return [][]byte{ends, bytes}, appendBytes(nil, 6, appendUint(binaryEncoding, 3, adjustment))
}
