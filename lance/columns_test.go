package lance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// columnFixtures are small tables of every kind of column, written by four releases
// of the real library in every format, with what the newest reads: rows.jsonl, as
// e2e/fixtures/columns.mjs describes it.
const columnFixtures = fixtures + "/columns"

func TestEveryKindOfColumnReadsAsTheLibraryReadsIt(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob(columnFixtures + "/*/*/rows.jsonl")
	if err != nil || len(dirs) < 8 {
		t.Fatalf("%d tables, %v", len(dirs), err)
	}
	for _, rows := range dirs {
		dir := filepath.Dir(rows)
		t.Run(strings.TrimPrefix(dir, columnFixtures+"/"), func(t *testing.T) {
			t.Parallel()
			compareRows(t, dir)
		})
	}
}

// compareRows holds all live rows of the table in dir/t.lance against dir/rows.jsonl.
func compareRows(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "rows.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	var columns [][2]string
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &columns) != nil {
		t.Fatalf("%s begins with %.100q", file.Name(), lines.Text())
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c[0]
	}
	s := dirStore(filepath.Join(dir, "t.lance"))
	_, m := readNewest(t, s)
	c := comparison{t: t, columns: columns, wrong: map[string]int{}}
	for r, err := range m.Scan(t.Context(), s, ScanOptions{}, names...) {
		if err != nil {
			t.Fatal(err)
		}
		c.cells = c.cells[:0]
		for _, a := range r.Columns {
			c.cells = append(c.cells, cellOf(a))
		}
		for i := range r.Len {
			if !lines.Scan() {
				t.Fatalf("more than %d rows: %v", c.rows, lines.Err())
			}
			c.row(r, i, lines.Bytes())
		}
	}
	if lines.Scan() {
		t.Errorf("only %d rows; next is %.200s", c.rows, lines.Bytes())
	}
	if known := m.Summary.LiveRows; known >= 0 && int64(c.rows) != known {
		t.Errorf("%d rows, the manifest says %d", c.rows, known)
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range c.wrong {
			if !yield(name) {
				return
			}
		}
	}) {
		t.Errorf("column %s: %d of %d values are wrong", name, c.wrong[name], c.rows)
	}
	t.Logf("%d rows of %d columns", c.rows, len(columns))
}

type comparison struct {
	t       *testing.T
	columns [][2]string
	rows    int
	wrong   map[string]int
	cells   []cell
	buf     []byte
	ends    []int
}

func (c *comparison) row(r *Rows, i int, want []byte) {
	c.t.Helper()
	b := append(c.buf[:0], '[')
	c.ends = c.ends[:0]
	for k, value := range c.cells {
		if k > 0 {
			b = append(b, ',')
		}
		at := len(b)
		if b = value(b, i); len(b)-at > 200 {
			sum := sha256.Sum256(b[at:])
			b = fmt.Appendf(b[:at], `"sha256:%x"`, sum)
		}
		c.ends = append(c.ends, len(b))
	}
	b = append(b, ']')
	c.buf = b
	if !bytes.Equal(b, want) {
		c.explain(r, i, want)
	}
	c.rows++
}

// explain finds the values that differ.
func (c *comparison) explain(r *Rows, i int, want []byte) {
	c.t.Helper()
	var cells []json.RawMessage
	if err := json.Unmarshal(want, &cells); err != nil || len(cells) != len(c.columns) {
		c.t.Fatalf("row %d: %v in %.200s", c.rows, err, want)
	}
	from := 1
	for k, end := range c.ends {
		got := c.buf[from:end]
		from = end + 1
		name := c.columns[k][0]
		if bytes.Equal(got, cells[k]) || nullBlob(r.Columns[k], i, cells[k]) {
			continue
		}
		if c.wrong[name]++; c.wrong[name] <= 3 {
			c.t.Errorf("row %d (offset %d of fragment %d): %s (%s) is %.200s, want %.200s", c.rows, r.Offsets[i], r.FragmentID, name, r.Columns[k].Type(), got, cells[k])
		}
	}
}

// nullBlob: the library shows the null of a blob in format 2.0 as the descriptor
// that stands for it, {1, 0}, and one that 0.31.0 wrote as one of zeros.
func nullBlob(a *datafile.Array, i int, want []byte) bool {
	d, ok := a.Descriptor(i)
	return ok && d.Null && slices.Contains([]string{`["1","0"]`, `["0","0","0","0",""]`}, string(want))
}

// cell adds value i of an array as columns.mjs writes it.
type cell func(b []byte, i int) []byte

// cellOf looks at what the array is once, for all its values.
func cellOf(a *datafile.Array) cell {
	value := valueOf(a)
	return func(b []byte, i int) []byte {
		if d, ok := a.Descriptor(i); ok {
			return appendDescriptor(b, a, d)
		}
		if a.Null(i) {
			return append(b, "null"...)
		}
		return value(b, i)
	}
}

func valueOf(a *datafile.Array) cell {
	kind, rest, _ := strings.Cut(a.Type(), ":")
	if kind == "dict" {
		kind, _, _ = strings.Cut(rest, ":")
	}
	switch kind {
	case "bool":
		return func(b []byte, i int) []byte {
			v, ok := a.Bool(i)
			if !ok {
				return append(b, "no bool"...)
			}
			return strconv.AppendBool(b, v)
		}
	case "int8", "int16", "int32", "int64", "date32", "date64", "time32", "time64", "timestamp", "duration":
		return func(b []byte, i int) []byte {
			v, ok := a.Int(i)
			return appendNumber(b, strconv.FormatInt(v, 10), ok)
		}
	case "uint8", "uint16", "uint32", "uint64":
		return func(b []byte, i int) []byte {
			v, ok := a.Uint(i)
			return appendNumber(b, strconv.FormatUint(v, 10), ok)
		}
	case "halffloat", "float", "double":
		return func(b []byte, i int) []byte {
			v, ok := a.Float(i)
			return appendNumber(b, floatBits(kind, v), ok)
		}
	case "decimal":
		return func(b []byte, i int) []byte { return appendNumber(b, decimalText(a.Bytes(i)), true) }
	case "string", "large_string", "json":
		return func(b []byte, i int) []byte { return appendJSON(b, a.Bytes(i)) }
	case "binary", "large_binary", "fixed_size_binary":
		return func(b []byte, i int) []byte {
			return append(hex.AppendEncode(append(b, '"'), a.Bytes(i)), '"')
		}
	case "struct":
		return structOf(a)
	case "list", "large_list", "list.struct", "large_list.struct", "fixed_size_list", "map":
		item := cellOf(a.Items())
		return func(b []byte, i int) []byte {
			b = append(b, '[')
			_, lo, hi := a.List(i)
			for k := lo; k < hi; k++ {
				if k > lo {
					b = append(b, ',')
				}
				b = item(b, k)
			}
			return append(b, ']')
		}
	}
	return func(b []byte, _ int) []byte { return fmt.Appendf(b, "a %s", a.Type()) }
}

func structOf(a *datafile.Array) cell {
	var children []cell
	for _, name := range a.Names() {
		children = append(children, cellOf(a.Child(name)))
	}
	return func(b []byte, i int) []byte {
		b = append(b, '[')
		for k, child := range children {
			if k > 0 {
				b = append(b, ',')
			}
			b = child(b, i)
		}
		return append(b, ']')
	}
}

func appendNumber(b []byte, v string, ok bool) []byte {
	if !ok {
		return append(b, "no number"...)
	}
	return append(append(append(b, '"'), v...), '"')
}

func appendDescriptor(b []byte, a *datafile.Array, d datafile.Descriptor) []byte {
	if d.Null {
		return append(b, "null"...)
	}
	if a.Type() == "large_binary" {
		return fmt.Appendf(b, `["%d","%d"]`, d.Position, d.Size)
	}
	return fmt.Appendf(b, `["%d","%d","%d","%d",%q]`, d.Kind, d.Position, d.Size, d.ID, d.URI)
}

func floatBits(kind string, v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case kind == "double":
		return fmt.Sprintf("%016x", math.Float64bits(v))
	case kind == "float":
		return fmt.Sprintf("%08x", math.Float32bits(float32(v)))
	}
	return fmt.Sprintf("%04x", halfBits(v))
}

// halfBits is the float of 16 bits that is exactly v.
func halfBits(v float64) uint16 {
	sign := uint16(math.Float64bits(v) >> 63 << 15)
	v = math.Abs(v)
	switch {
	case math.IsInf(v, 0):
		return sign | 31<<10
	case v < 1.0/16384:
		return sign | uint16(v*(1<<24))
	}
	frac, exp := math.Frexp(v)
	return sign | uint16(exp+14)<<10 | uint16((2*frac-1)*1024)
}

// decimalText is a little endian two's complement number.
func decimalText(b []byte) string {
	digits := slices.Clone(b)
	slices.Reverse(digits)
	n := new(big.Int).SetBytes(digits)
	if len(digits) > 0 && digits[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n.String()
}

// appendJSON quotes text as JavaScript's JSON.stringify does.
func appendJSON(b, text []byte) []byte {
	b = append(b, '"')
	if !utf8.Valid(text) {
		return append(b, "no UTF-8"...)
	}
	for _, c := range text {
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			if c < 0x20 {
				b = fmt.Appendf(b, `\u%04x`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}
