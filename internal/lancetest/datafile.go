package lancetest

import (
	"encoding/binary"
	"fmt"
)

// DataFile gives a complete data file of format 2.2: one int32 column for each
// name, rows long, in which every value of column i is values[i].
//
// Such a column needs no data buffer: its page has the constant layout with the
// value inside. The file is, in this order:
//
//	global buffer 0: FileDescriptor (schema and row count)
//	ColumnMetadata of each column
//	table of (u64 position, u64 size) of the column metadata
//	table of (u64 position, u64 size) of the global buffers
//	u64 position of the first ColumnMetadata, u64 and u64 of the two tables,
//	u32 global buffers, u32 columns, u16 2, u16 2, "LANC"
func DataFile(rows uint64, names []string, values []int32) []byte {
	return dataFileAt(0, rows, names, values)
}

// dataFileAt is a data file whose bytes begin at position start of the object:
// everything in it is addressed absolutely, so that a hole may lie before it.
func dataFileAt(start, rows uint64, names []string, values []int32) []byte {
	var schema []schemaField
	var columns [][]byte
	for i, name := range names {
		schema = append(schema, schemaField{name, "int32"})
		columns = append(columns, constantColumn(rows, values[i]))
	}
	return finishFile(nil, start, rows, schema, columns, [2]uint16{2, 2})
}

// finishFile appends everything that follows the data buffers in out: descriptor,
// column metadata, the two tables and the footer with its version. The first byte
// of out is at position start of the object.
func finishFile(out []byte, start, rows uint64, schema []schemaField, columns [][]byte, version [2]uint16) []byte {
	here := func() uint64 { return start + uint64(len(out)) }
	table := func(table []byte, size int) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(table, here()), uint64(size))
	}
	var fields []byte
	for i, c := range schema {
		fields = appendBytes(fields, 1, encodeField(c, int32(i)))
	}
	descriptor := appendUint(appendBytes(nil, 1, fields), 2, rows)
	globals := table(nil, len(descriptor))
	out = append(out, descriptor...)

	first := here()
	var places []byte
	for _, c := range columns {
		places = table(places, len(c))
		out = append(out, c...)
	}
	columnTable := here()
	out = append(out, places...)
	globalTable := here()
	out = append(out, globals...)
	for _, n := range []uint64{first, columnTable, globalTable} {
		out = binary.LittleEndian.AppendUint64(out, n)
	}
	out = binary.LittleEndian.AppendUint32(out, 1)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(columns)))
	out = binary.LittleEndian.AppendUint16(out, version[0])
	out = binary.LittleEndian.AppendUint16(out, version[1])
	return append(out, "LANC"...)
}

// direct is Encoding{direct{Any{type_url, value}}}.
func direct(typeURL string, msg []byte) []byte {
	holder := appendBytes(appendString(nil, 1, typeURL), 2, msg)
	return appendBytes(nil, 2, appendBytes(nil, 1, holder))
}

// columnMetadata is a ColumnMetadata with one page.
func columnMetadata(page []byte) []byte {
	column := appendBytes(nil, 1, direct("/lance.encodings.ColumnEncoding", appendBytes(nil, 1, nil)))
	return appendBytes(column, 2, page)
}

// constantColumn has one page of rows equal values.
func constantColumn(rows uint64, value int32) []byte {
	const allValidItem = 1
	layout := appendBytes(nil, 5, []byte{allValidItem})
	layout = appendBytes(layout, 6, binary.LittleEndian.AppendUint32(nil, uint32(value)))
	page := appendUint(nil, 3, rows)
	return columnMetadata(appendBytes(page, 4, direct("/lance.encodings21.PageLayout", appendBytes(nil, 2, layout))))
}

// dataFile is the generated content of a data file with the given fields: every
// value equals its field id. Tombstoned fields keep their column.
func (b *Builder) dataFile(rows uint64, fields []int32) []byte {
	names, values := make([]string, len(fields)), make([]int32, len(fields))
	for i, id := range fields {
		values[i] = id
		if id >= 0 && int(id) < len(b.columns) {
			names[i] = b.columns[id].name
		} else {
			names[i] = fmt.Sprintf("gone_%d", i)
		}
	}
	return DataFile(rows, names, values)
}
