package datafile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxPadding is how far a writer rounds the place of a buffer up, in bytes (seen in
// files of releases 0.10.0 to 0.39.0: 64, or not at all).
const maxPadding = 64

// maxChecked is how much column metadata of one file [File.Check] reads.
const maxChecked = 256 << 20

// Checked is what [File.Check] found besides errors.
type Checked struct {
	// Columns is how many columns the file has.
	Columns int
	// Values: every page of every column was decoded.
	Values bool
	// Odd says in what the file is unlike those that known writers make, although it
	// does not contradict itself: it may be damaged, or of a writer that nobody here
	// knows. Empty when it is in nothing.
	Odd string
}

// Check holds what the file says of itself against its bytes: the rows of all columns,
// the place of every buffer, and with values all pages, which are decoded one after the
// other and thrown away, text that is no UTF-8 and the place of blobs included.
//
// The error is a *[CorruptError] for a file that contradicts itself, an
// *[UnsupportedError] for one of too much metadata, or what the Reader or ctx gave. A
// page that this package cannot decode makes the file Odd (those of the unstable format
// 2.3 that it knows of only keep Values from being set). A value that was changed into another legal one
// is not noticed: nothing in a file tells.
func (f *File) Check(ctx context.Context, values bool) (Checked, error) {
	c := checking{file: f, ctx: ctx, out: Checked{Columns: len(f.columns), Values: values}}
	if n := countColumns(f.fields, f.Minor == 0); n != len(f.columns) {
		c.odd("it has %d columns, and its schema stands for %d", len(f.columns), n)
	}
	if err := c.regions(); err != nil {
		return c.out, err
	}
	if err := c.rows(f.fields, nil); err != nil {
		return c.out, err
	}
	if values {
		if err := c.values(); err != nil {
			return c.out, err
		}
	}
	if err := c.tiling(); err != nil {
		return c.out, err
	}
	return c.out, nil
}

type checking struct {
	file *File
	ctx  context.Context
	out  Checked
	// spans are all bytes of the file that something stands for.
	spans []span
	// colRows is how many values each column has.
	colRows []int64
	// unordered are the columns whose pages begin at other rows than the one before
	// ends.
	unordered []int
	// blobs: the file may hold values that no page does. hidden: where they lie is not
	// known.
	blobs, hidden bool
}

func (c *checking) odd(format string, args ...any) {
	if c.out.Odd == "" {
		c.out.Odd = fmt.Sprintf(format, args...)
	}
}

// countColumns is how many columns fields have by the rule of the format.
func countColumns(fields []*Field, v20 bool) (n int) {
	for _, f := range fields {
		if v20 || f.leaf() {
			n++
		}
		if !f.leaf() {
			n += countColumns(f.Children, v20)
		}
	}
	return n
}

// regions collects every range that metadata names, all of which must lie in the file.
func (c *checking) regions() error {
	f := c.file
	foot := f.tail[len(f.tail)-footerLen:]
	start, columns, globals := binary.LittleEndian.Uint64(foot), binary.LittleEndian.Uint64(foot[8:]), binary.LittleEndian.Uint64(foot[16:])
	nGlobals := binary.LittleEndian.Uint32(foot[24:])
	buffers, err := f.table(c.ctx, "global buffers", globals, nGlobals)
	if err != nil {
		return err
	}
	c.add(span{f.size - footerLen, footerLen}, span{int64(columns), 16 * int64(len(f.columns))}, span{int64(globals), 16 * int64(nGlobals)})
	c.add(buffers...)
	c.add(f.columns...)
	if len(f.columns) > 0 && int64(start) != f.columns[0].off {
		c.odd("its footer and its table place the column metadata differently")
	}
	var sum int64
	for i, s := range f.columns {
		if sum += s.n; sum > maxChecked {
			return unsupported("more than %d bytes of column metadata", maxChecked)
		}
		if err := c.column(i); err != nil {
			return fmt.Errorf("metadata of column #%d: %w", i, err)
		}
	}
	return nil
}

func (c *checking) add(spans ...span) {
	for _, s := range spans {
		if s.n > 0 {
			c.spans = append(c.spans, s)
		}
	}
}

// column adds the buffers of a column and of its pages, and notes what its messages
// hold beyond what they are known to.
func (c *checking) column(i int) error {
	col, err := c.file.column(c.ctx, i)
	if err != nil {
		return err
	}
	c.colRows = append(c.colRows, col.rows)
	for _, p := range col.pages {
		c.add(p.buffers...)
	}
	raw, err := c.file.read(c.ctx, c.file.columns[i])
	if err != nil {
		return err
	}
	m, err := parse(raw)
	if err != nil {
		return err
	}
	offs, err := m.uints(3)
	if err != nil {
		return err
	}
	sizes, err := m.uints(4)
	if err != nil {
		return err
	}
	if len(offs) != len(sizes) {
		return corrupt("%d buffers with %d sizes", len(offs), len(sizes))
	}
	for k, off := range offs {
		if off > uint64(c.file.size) || sizes[k] > uint64(c.file.size)-off {
			return corrupt("buffer %d lies outside the file", k)
		}
		c.add(span{int64(off), int64(sizes[k])})
	}
	if !m.only("1234", "") || !knownColumnEncoding(col.encoding) {
		c.odd("the metadata of column #%d says more than is known", i)
	}
	return c.pageMessages(i, m)
}

// pageMessages notes pages that say more than is known, or another first row than
// those before them have rows (source: files of releases 0.10.0 to 0.39.0; items of
// lists in format 2.0 count otherwise).
func (c *checking) pageMessages(i int, column message) error {
	row, inOrder := uint64(0), true
	for _, w := range column {
		if w.num != 2 {
			continue
		}
		m, err := parse(w.body)
		if err != nil {
			return err
		}
		if !m.only("124", "35") {
			c.odd("a page of column #%d says more than is known", i)
		}
		inOrder = inOrder && m.uint(5) == row
		row += m.uint(3)
	}
	if !inOrder {
		c.unordered = append(c.unordered, i)
	}
	return nil
}

// only reports whether a message has no fields but those of the given numbers, as
// bytes or as varints.
func (m message) only(bytes, varints string) bool {
	for _, f := range m {
		known := varints
		if f.body != nil {
			known = bytes
		}
		if f.num > 9 || !strings.ContainsRune(known, rune('0'+f.num)) {
			return false
		}
	}
	return true
}

// knownColumnEncoding reports whether the Encoding of a column as a whole is one of
// those that this package knows: values in pages, a zone index, blobs.
func knownColumnEncoding(encoding []byte) bool {
	enc, err := parse(encoding)
	if err != nil || !enc.only("2", "") {
		return false
	}
	direct, err := enc.sub(2)
	if err != nil || !direct.only("1", "") {
		return false
	}
	box, err := parse(direct.bytes(1))
	if err != nil || !box.only("12", "") || box.text(1) != "/lance.encodings.ColumnEncoding" {
		return false
	}
	choice, err := box.sub(2)
	return err == nil && len(choice) == 1 && choice.only("123", "") && (choice[0].num != 1 || len(choice[0].body) == 0)
}

// FieldMessages gives the Field messages of the file's own schema, as they are.
func (f *File) FieldMessages(ctx context.Context) ([][]byte, error) {
	foot := f.tail[len(f.tail)-footerLen:]
	buffers, err := f.table(ctx, "global buffers", binary.LittleEndian.Uint64(foot[16:]), 1)
	if err != nil {
		return nil, err
	}
	raw, err := f.read(ctx, buffers[0])
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	descriptor, err := parse(raw)
	if err != nil {
		return nil, err
	}
	schema, err := descriptor.sub(1)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, w := range schema {
		if w.num == 1 {
			out = append(out, w.body)
		}
	}
	return out, nil
}

// rows holds the columns of fields that lie in no list against the rows of the file.
// In format 2.1 and later the items of lists are no rows of their own either.
func (c *checking) rows(fields []*Field, above []*Field) error {
	for _, f := range fields {
		path := append([]*Field{f}, above...)
		if f.Column >= 0 && f.Column < len(c.colRows) && c.colRows[f.Column] != c.file.Rows {
			return at(corrupt("pages of %d rows where the file has %d", c.colRows[f.Column], c.file.Rows), pathName(path), -1)
		}
		if slices.Contains(c.unordered, f.Column) {
			c.odd("the pages of column #%d say that they begin at other rows", f.Column)
		}
		if f.leaf() || c.file.Minor == 0 && parseType(f.LogicalType, 0).kind == kindList {
			continue
		}
		if err := c.rows(f.Children, path); err != nil {
			return err
		}
	}
	return nil
}

// values decodes all pages, field by field.
func (c *checking) values() error {
	for _, f := range c.file.fields {
		var unknown *UnsupportedError
		err := c.field(f)
		switch {
		case errors.As(err, &unknown):
			c.out.Values = false
			c.hidden = c.hidden || mayHoldBlobs(f)
			if !slices.Contains(unstable, unknown.Encoding) {
				c.odd("%v", unknown)
			}
		case err != nil:
			return err
		}
	}
	return nil
}

// unstable are the encodings of format 2.3 that this package knows of and does not
// decode.
var unstable = []string{"sparse layout (file 2.3)", encodingNames[encRange], encodingNames[encDelta]}

func mayHoldBlobs(f *Field) bool {
	return f.Blob != NotBlob || slices.ContainsFunc(f.Children, mayHoldBlobs)
}

func (c *checking) field(f *Field) error {
	for batch, err := range c.file.Read(c.ctx, []*Field{f}) {
		if err != nil {
			return err
		}
		if err := c.array(batch.Columns[0]); err != nil {
			return at(err, f.Name, -1)
		}
	}
	return nil
}

// array looks at values that must be more than bytes.
func (c *checking) array(a *Array) error {
	if a.blob != NotBlob {
		return c.descriptors(a)
	}
	switch a.form {
	case formStruct:
		for i := range a.kids {
			if err := c.array(a.child(i)); err != nil {
				return err
			}
		}
	case formList:
		from, to := a.window()
		return c.array(a.items.slice(from, to-from))
	case formDict:
		return c.array(a.dict)
	case formVar:
		if !isText(a.typ.name) {
			return nil
		}
		for i := range a.n {
			if p := a.at(i); !a.nullAt(p) && !utf8.Valid(a.bytesAt(p)) {
				return corrupt("text that is no UTF-8")
			}
		}
	}
	return nil
}

func isText(name string) bool {
	return name == "string" || name == "large_string" || strings.HasPrefix(name, "dict:string:") || strings.HasPrefix(name, "dict:large_string:")
}

// descriptors holds the places of blobs in this file against its size.
func (c *checking) descriptors(a *Array) error {
	c.blobs = true
	for i := range a.n {
		d, ok := a.Descriptor(i)
		switch {
		case !ok:
			c.hidden = true
			return nil
		case d.Null, d.Size == 0:
			continue
		case a.blob == BlobV2 && d.Kind > 4:
			c.odd("a blob of kind %d", d.Kind)
			continue
		case a.blob == BlobV2 && d.Kind != 0:
			continue // beside the file, or elsewhere
		}
		if size := uint64(c.file.size - footerLen); d.Position > size || d.Size > size-d.Position {
			return corrupt("a blob of %d bytes at %d lies outside the file", d.Size, d.Position)
		}
		c.add(span{int64(d.Position), int64(d.Size)})
	}
	return nil
}

// tiling notes bytes that two things stand for, and bytes that nothing stands for: the
// known writers leave none but padding, all of the same byte.
func (c *checking) tiling() error {
	slices.SortFunc(c.spans, func(a, b span) int {
		if d := cmp.Compare(a.off, b.off); d != 0 {
			return d
		}
		return cmp.Compare(a.n, b.n)
	})
	gaps := !c.hidden && (c.out.Values || !slices.ContainsFunc(c.file.fields, mayHoldBlobs))
	end, pad := int64(0), -1
	var last span
	for _, s := range c.spans {
		if s.off < end && !(c.blobs && s == last) { // rows may share a blob
			c.odd("two things are said to lie at %d", s.off)
		}
		if gap := s.off - end; gaps && gap >= maxPadding {
			c.odd("nothing is said of the %d bytes at %d", gap, end)
		} else if gaps && gap > 0 && c.out.Values {
			b, err := c.file.read(c.ctx, span{end, gap})
			if err != nil {
				return err
			}
			if pad < 0 {
				pad = int(b[0])
			}
			if n := bytes.Count(b, []byte{byte(pad)}); n != len(b) {
				c.odd("the %d bytes at %d are no padding", gap, end)
			}
		}
		end, last = max(end, s.off+s.n), s
		if end < 0 || end > math.MaxInt64/2 {
			return corrupt("a range of %d bytes at %d", s.n, s.off)
		}
	}
	return nil
}
