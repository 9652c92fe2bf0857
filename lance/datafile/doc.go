// Package datafile reads columns of one Lance data file, format 2.0 to 2.3, in
// pure Go.
//
// A data file holds pages, their metadata column by column, and a schema:
//
//	[ page buffers, aligned ]
//	[ column metadata, one protobuf message a column ]
//	[ table of them: (u64 position, u64 size) a column ]
//	[ table of global buffers; the first buffer holds the schema and the row count ]
//	[ u64 column metadata | u64 its table | u64 global buffers' table
//	| u32 global buffers | u32 columns | u16 major | u16 minor | "LANC" ]
//
// All integers are little endian and all positions absolute. Format 2.0 says 0.3
// in its footer. A field of a schema maps to file columns: in 2.0 every field owns
// one, in 2.1 and later only the leaves do. A page of 2.1 and later is one layout
// (mini-block, full zip, constant, blob) of one leaf, with repetition and
// definition levels for the lists and structs around it.
//
// Everything a file says is untrusted. Counts and slices are held against the
// bytes that are there; what contradicts itself is a *[CorruptError], what this
// package does not know is an *[UnsupportedError], both with column and page.
//
//	f, err := datafile.Open(ctx, reader, size)
//	…
//	for batch, err := range f.Read(ctx, f.Fields()[:1]) {
//		…
//	}
package datafile
