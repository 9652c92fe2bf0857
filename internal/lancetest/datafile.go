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
	var schema []byte
	for i, name := range names {
		schema = appendBytes(schema, 1, encodeField(name, int32(i)))
	}
	descriptor := appendUint(appendBytes(nil, 1, schema), 2, rows)

	out := descriptor
	var columns []byte // table
	firstColumn := start + uint64(len(out))
	for i := range names {
		meta := constantColumn(rows, values[i])
		columns = binary.LittleEndian.AppendUint64(columns, start+uint64(len(out)))
		columns = binary.LittleEndian.AppendUint64(columns, uint64(len(meta)))
		out = append(out, meta...)
	}
	columnTable := start + uint64(len(out))
	out = append(out, columns...)
	globalTable := start + uint64(len(out))
	out = binary.LittleEndian.AppendUint64(out, start)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(descriptor)))

	for _, n := range []uint64{firstColumn, columnTable, globalTable} {
		out = binary.LittleEndian.AppendUint64(out, n)
	}
	out = binary.LittleEndian.AppendUint32(out, 1)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(names)))
	out = binary.LittleEndian.AppendUint16(out, 2)
	out = binary.LittleEndian.AppendUint16(out, 2)
	return append(out, "LANC"...)
}

// constantColumn is a ColumnMetadata with one page of rows equal values.
func constantColumn(rows uint64, value int32) []byte {
	// Encoding{direct{Any{type_url, value}}}
	direct := func(typeURL string, msg []byte) []byte {
		holder := appendBytes(appendString(nil, 1, typeURL), 2, msg)
		return appendBytes(nil, 2, appendBytes(nil, 1, holder))
	}
	const allValidItem = 1
	layout := appendBytes(nil, 5, []byte{allValidItem})
	layout = appendBytes(layout, 6, binary.LittleEndian.AppendUint32(nil, uint32(value)))
	page := appendUint(nil, 3, rows)
	page = appendBytes(page, 4, direct("/lance.encodings21.PageLayout", appendBytes(nil, 2, layout)))

	column := appendBytes(nil, 1, direct("/lance.encodings.ColumnEncoding", appendBytes(nil, 1, nil)))
	return appendBytes(column, 2, page)
}

// dataFile is the generated content of a data file with the given fields: every
// value equals its field id. Tombstoned fields keep their column.
func (b *Builder) dataFile(rows uint64, fields []int32) []byte {
	names, values := make([]string, len(fields)), make([]int32, len(fields))
	for i, id := range fields {
		values[i] = id
		if id >= 0 && int(id) < len(b.columns) {
			names[i] = b.columns[id]
		} else {
			names[i] = fmt.Sprintf("gone_%d", i)
		}
	}
	return DataFile(rows, names, values)
}
