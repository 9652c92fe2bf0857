package refs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// CSV reads a file as RFC 4180 describes it, with a header line, in UTF-8. Quoted
// fields may hold line breaks, which stay as they are. A row that is not as long as
// the header is malformed, and so is one with a quote where none may be; what follows
// is then read from the next line on. Lines without a character are passed over.
func CSV(r objstore.Reader, at objstore.Location, cols Columns, opts Options) Reader {
	return &unsorted{src: &textFile{r: r, at: at, cols: cols, opts: opts, start: startCSV}, opts: opts}
}

// csvRows is a CSV file behind its header.
type csvRows struct {
	t     *text
	line  int64 // of what is read next, from 1
	width int
	// Where the columns are; -1 when not asked for.
	key, size, sum, record int
	fields                 csvFields
}

func startCSV(f *textFile, t *text) (opened, error) {
	c := &csvRows{t: t, line: 1}
	_, ok, problem, err := c.next()
	switch {
	case err != nil:
		return nil, err
	case problem != nil:
		return nil, fmt.Errorf("header: %w", problem)
	case !ok:
		return nil, fmt.Errorf("the file has no header line")
	}
	header := make([]string, c.fields.len())
	for i := range header {
		header[i] = string(c.fields.at(i))
	}
	c.width = len(header)
	for _, col := range []struct {
		name string
		at   *int
	}{{f.cols.Key, &c.key}, {f.cols.Size, &c.size}, {f.cols.Checksum, &c.sum}, {f.cols.Record, &c.record}} {
		*col.at = -1
		if col.name == "" {
			continue
		}
		*col.at = slices.Index(header, col.name)
		switch {
		case *col.at < 0:
			return nil, fmt.Errorf("no column %s; the header has %s", short(col.name), short(strings.Join(header, ",")))
		case slices.Contains(header[*col.at+1:], col.name):
			return nil, fmt.Errorf("two columns %s", short(col.name))
		}
	}
	return c, nil
}

func (c *csvRows) tag() string { return c.t.o.tag }
func (c *csvRows) close()      {}

func (c *csvRows) each(yield func(*row) bool) error {
	var r row
	for {
		line, ok, problem, err := c.next()
		if err != nil || !ok {
			return err
		}
		r.reset(line)
		if problem == nil && c.fields.len() != c.width {
			problem = fmt.Errorf("%d fields, the header has %d", c.fields.len(), c.width)
		}
		if problem != nil {
			r.broken, r.detail = ReasonMalformed, problem.Error()
		} else {
			r.setKey(string(c.fields.at(c.key)))
			if c.size >= 0 {
				r.setSize(string(c.fields.at(c.size)))
			}
			if c.sum >= 0 {
				r.setChecksum(string(c.fields.at(c.sum)))
			}
			if c.record >= 0 {
				r.rec.Record = string(c.fields.at(c.record))
			}
		}
		if !yield(&r) {
			return nil
		}
	}
}

// next splits the next record into c.fields and gives the line at which it begins; ok
// is false after the last. problem says why there are no fields; the record is then
// taken to end with its first line.
func (c *csvRows) next() (line int64, ok bool, problem, err error) {
	for {
		b := c.t.ahead()
		if len(b) == 0 && c.t.end {
			return 0, false, nil, nil
		}
		used, lines, split := c.fields.split(b[:min(len(b), maxRow)], c.t.end && len(b) <= maxRow)
		line = c.line
		switch {
		case split == splitEmpty:
			c.t.pos += used
			c.line += lines
			continue
		case split == splitOK:
			c.t.pos += used
			c.line += lines
			return line, true, nil, nil
		case split == splitMore && len(b) < maxRow:
			if err := c.t.fill(); err != nil {
				return 0, false, nil, err
			}
			continue
		case split == splitMore:
			problem = errTooLong
		default:
			problem = errQuotes
		}
		c.line++
		return line, true, problem, c.t.skipLine()
	}
}

var errQuotes = fmt.Errorf("a quote stands where none may, or is not closed")

// csvFields are the fields of one record.
type csvFields struct {
	buf  []byte // their bytes, without quotes
	ends []int
}

func (f *csvFields) len() int { return len(f.ends) }

func (f *csvFields) at(i int) []byte {
	from := 0
	if i > 0 {
		from = f.ends[i-1]
	}
	return f.buf[from:f.ends[i]]
}

type csvSplit uint8

const (
	splitOK    csvSplit = iota
	splitEmpty          // a line without a character
	splitMore           // the record does not end in what is there
	splitBad
)

// split takes the record at the beginning of b apart. end says that nothing follows b.
// used bytes and lines belong to the record.
func (f *csvFields) split(b []byte, end bool) (used int, lines int64, _ csvSplit) {
	f.buf, f.ends = f.buf[:0], f.ends[:0]
	if n := lineEnd(b, end); n > 0 {
		return n, 1, splitEmpty
	}
	for i := 0; ; {
		var next int
		if i < len(b) && b[i] == '"' {
			var breaks int64
			next, breaks = f.quoted(b, i+1, end)
			lines += breaks
		} else {
			next = f.plain(b, i, end)
		}
		switch next {
		case needMore:
			return 0, 0, splitMore
		case badQuote:
			return 0, 0, splitBad
		}
		f.ends = append(f.ends, len(f.buf))
		if next < len(b) && b[next] == ',' {
			i = next + 1
			continue
		}
		return next + lineEnd(b[next:], true), lines + 1, splitOK
	}
}

const (
	needMore = -1
	badQuote = -2
)

// lineEnd is the length of the line break that b begins with; 0 when it does not.
func lineEnd(b []byte, end bool) int {
	switch {
	case len(b) > 0 && b[0] == '\n':
		return 1
	case len(b) > 1 && b[0] == '\r' && b[1] == '\n':
		return 2
	case len(b) == 1 && b[0] == '\r' && end:
		return 1
	}
	return 0
}

// plain takes a field without quotes and gives where it ends: at a comma, a line break
// or the end.
func (f *csvFields) plain(b []byte, i int, end bool) int {
	n := bytes.IndexAny(b[i:], ",\n\"")
	switch {
	case n < 0 && !end:
		return needMore
	case n < 0:
		n = len(b) - i
	case b[i+n] == '"':
		return badQuote
	}
	if stop := i + n; n > 0 && b[stop-1] == '\r' && (stop == len(b) || b[stop] == '\n') {
		n--
	}
	f.buf = append(f.buf, b[i:i+n]...)
	return i + n
}

// quoted takes the field behind an opening quote and gives where what follows its
// closing one stands.
func (f *csvFields) quoted(b []byte, i int, end bool) (next int, breaks int64) {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			if end {
				return badQuote, 0
			}
			return needMore, 0
		}
		f.buf = append(f.buf, b[i:i+n]...)
		breaks += int64(bytes.Count(b[i:i+n], []byte{'\n'}))
		i += n + 1
		switch {
		case i == len(b) && !end, i+1 == len(b) && b[i] == '\r' && !end:
			return needMore, 0
		case i == len(b), b[i] == ',', lineEnd(b[i:], end) > 0:
			return i, breaks
		case b[i] != '"':
			return badQuote, 0
		}
		f.buf = append(f.buf, '"')
		i++
	}
}
