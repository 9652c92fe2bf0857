package refs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Parquet reads columns of a Parquet file, page by page. A column below groups is named
// with dots; one that repeats is refused. Keys, checksums and record ids are texts (a
// record id may be an integer too), sizes integers, floats or decimals.
func Parquet(r objstore.Reader, at objstore.Location, cols Columns, opts Options) Reader {
	return &unsorted{src: &parquetFile{r: r, at: at, cols: cols, opts: opts}, opts: opts}
}

type parquetFile struct {
	r    objstore.Reader
	at   objstore.Location
	cols Columns
	opts Options
}

func (f *parquetFile) namedSince(ctx context.Context) (time.Time, error) {
	a, err := f.r.Stat(ctx, f.at)
	return namedSince(a), err
}

const (
	// parquetRead is what one request reads of a column.
	parquetRead = 1 << 20
	// maxFooter bounds the metadata: some hundred bytes a column and row group.
	maxFooter = 256 << 20
	// parquetBatch is how many values of a column are held at once.
	parquetBatch = 1024
)

func (f *parquetFile) open(ctx context.Context, _ string) (opened, error) {
	if f.cols.Key == "" {
		return nil, errNoKeyColumn
	}
	p := &parquetRows{o: object{ctx: ctx, r: f.r, at: f.at}}
	err := p.open(f.cols, f.opts)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.at, err)
	}
	return p, nil
}

// parquetRows is an opened file.
type parquetRows struct {
	o    object
	file *parquet.File
	cols [4]*parquetColumn // key, size, checksum, record; nil when not asked for
}

type parquetColumn struct {
	name  string
	index int
	scale int // of a decimal
	// unsigned: a number is.
	unsigned bool

	values parquet.ColumnChunkValueReader
	buf    []parquet.Value
	have   []parquet.Value // of buf, not used
}

func (p *parquetRows) tag() string { return p.o.tag }

func (p *parquetRows) close() {
	for _, c := range p.cols {
		if c != nil && c.values != nil {
			_ = guard(c.values.Close) // it was read, or is not wanted any more
			c.values = nil
		}
	}
}

func (p *parquetRows) open(cols Columns, opts Options) error {
	var end [8]byte
	if _, err := p.o.read(end[:], -int64(len(end))); err != nil {
		return err
	}
	size := p.o.size
	if size == objstore.Unknown {
		return errors.New("the store does not tell its size")
	}
	if footer := int64(binary.LittleEndian.Uint32(end[:])); size < 12 || string(end[4:]) != "PAR1" || footer > min(size-12, maxFooter) {
		return errors.New("it is no Parquet file, or encrypted")
	}
	buffer := parquetRead
	if opts.chunk > 0 {
		buffer = opts.chunk
	}
	err := guard(func() (err error) {
		p.file, err = parquet.OpenFile(&p.o, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(buffer))
		return err
	})
	if err != nil {
		return err
	}
	for i, name := range [...]string{cols.Key, cols.Size, cols.Checksum, cols.Record} {
		if name == "" {
			continue
		}
		c, err := p.column(name)
		if err == nil {
			err = c.check(i == 1, i == 3, p.file.Schema())
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", short(name), err)
		}
		p.cols[i] = c
	}
	return nil
}

// column finds a leaf: by its whole name, else by the names on the way to it.
func (p *parquetRows) column(name string) (*parquetColumn, error) {
	schema := p.file.Schema()
	leaf, ok := schema.Lookup(name)
	if !ok {
		leaf, ok = schema.Lookup(strings.Split(name, ".")...)
	}
	if !ok {
		var names []string
		for _, path := range schema.Columns() {
			names = append(names, strings.Join(path, "."))
		}
		return nil, fmt.Errorf("there is none; the file has %s", short(strings.Join(names, ",")))
	}
	if leaf.MaxRepetitionLevel > 0 {
		return nil, errors.New("it repeats within a row")
	}
	return &parquetColumn{name: name, index: leaf.ColumnIndex}, nil
}

// check refuses types that hold something else than is read from them.
func (c *parquetColumn) check(size, record bool, schema *parquet.Schema) error {
	leaf, _ := schema.Lookup(schema.Columns()[c.index]...) // it has one
	t := leaf.Node.Type()
	logical := t.LogicalType()
	var inner any
	if logical != nil {
		inner = logical.Value
	}
	kind := t.Kind()
	text := false
	switch l := inner.(type) {
	case *format.IntType:
		c.unsigned = !l.IsSigned
	case *format.DecimalType:
		c.scale = int(l.Scale)
		if c.scale < 0 || c.scale > 18 {
			return fmt.Errorf("its scale is %d", c.scale)
		}
	case nil, *format.StringType, *format.JsonType, *format.EnumType:
		text = true
	default: // a date, a time, a uuid: no text and no number
		return fmt.Errorf("its type is %s", t)
	}
	switch {
	case text && kind == parquet.ByteArray:
		return nil
	case (size || record) && (kind == parquet.Int32 || kind == parquet.Int64):
		return nil
	case size && (kind == parquet.Float || kind == parquet.Double):
		return nil
	}
	return fmt.Errorf("its type is %s", t)
}

// each walks the row groups; the columns of one are read side by side.
func (p *parquetRows) each(yield func(*row) bool) error {
	n := int64(0)
	var r row
	for _, g := range p.file.RowGroups() {
		var rows int64
		err := guard(func() error {
			chunks := g.ColumnChunks()
			rows = g.NumRows()
			for _, c := range p.cols {
				if c != nil {
					c.values, c.have = parquet.NewColumnChunkValueReader(chunks[c.index]), nil
				}
			}
			return nil
		})
		for i := int64(0); err == nil && i < rows; i++ {
			n++
			r.reset(n)
			if err = p.row(&r); err == nil && !yield(&r) {
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("read %s: row %d: %w", p.o.at, n, err)
		}
		p.close()
	}
	return nil
}

func (p *parquetRows) row(r *row) error {
	var text [4]string
	var null [4]bool
	for i, c := range p.cols {
		if c == nil {
			null[i] = true
			continue
		}
		v, err := c.next()
		if err != nil {
			return fmt.Errorf("column %s: %w", short(c.name), err)
		}
		if i == 1 {
			c.size(v, r)
			continue
		}
		text[i], null[i] = c.text(v), v.IsNull()
	}
	r.setKey(text[0])
	r.setChecksum(text[2])
	r.rec.Record = text[3]
	return nil
}

// next gives the value of the next row. Columns that do not repeat have one a row.
func (c *parquetColumn) next() (parquet.Value, error) {
	if len(c.have) == 0 {
		if c.buf == nil {
			c.buf = make([]parquet.Value, parquetBatch)
		}
		n := 0
		err := guard(func() (err error) {
			n, err = c.values.ReadValues(c.buf)
			return err
		})
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = errors.New("it has fewer values than rows")
			}
			return parquet.Value{}, err
		}
		c.have = c.buf[:n]
	}
	v := c.have[0]
	c.have = c.have[1:]
	return v, nil
}

func (c *parquetColumn) text(v parquet.Value) string {
	switch {
	case v.IsNull():
		return ""
	case v.Kind() == parquet.ByteArray:
		return string(v.ByteArray())
	}
	n, negative := c.whole(v)
	if negative {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatUint(n, 10)
}

// whole gives the bits of an integer, and whether they are those of a negative one.
func (c *parquetColumn) whole(v parquet.Value) (n uint64, negative bool) {
	switch {
	case c.unsigned && v.Kind() == parquet.Int32:
		return uint64(v.Uint32()), false
	case c.unsigned:
		return v.Uint64(), false
	case v.Kind() == parquet.Int32:
		return uint64(int64(v.Int32())), v.Int32() < 0
	}
	return v.Uint64(), v.Int64() < 0
}

func (c *parquetColumn) size(v parquet.Value, r *row) {
	if v.IsNull() {
		return
	}
	ok := true
	as := v.String
	switch v.Kind() {
	case parquet.ByteArray:
		r.setSize(string(v.ByteArray()))
		return
	case parquet.Float:
		r.rec.Size, ok = floatSize(float64(v.Float()))
	case parquet.Double:
		r.rec.Size, ok = floatSize(v.Double())
	default:
		as = func() string { return c.text(v) }
		n, negative := c.whole(v)
		for range c.scale {
			ok = ok && n%10 == 0
			n /= 10
		}
		if ok = ok && !negative && n <= math.MaxInt64; ok {
			r.rec.Size, ok = wholeSize(int64(n))
		}
	}
	if !ok {
		r.badSize = as()
	}
}

// guard turns a panic into an error: the decoder trusts what a file says of itself.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("corrupt Parquet file: %v", p)
		}
	}()
	return f()
}
