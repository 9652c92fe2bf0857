package refs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// JSONLines reads a file of one JSON object a line. Columns are names of members of
// that object. A key is a string; a size a number, or a string of digits; a record id a
// string or a number. What is null or absent is not recorded. Empty lines are passed
// over.
func JSONLines(r objstore.Reader, at objstore.Location, cols Columns, opts Options) Reader {
	return &unsorted{src: &textFile{r: r, at: at, cols: cols, opts: opts, start: startJSON}, opts: opts}
}

type jsonRows struct {
	t    *text
	cols Columns
	line int64 // lines that were read
}

func startJSON(f *textFile, t *text) (opened, error) { return &jsonRows{t: t, cols: f.cols}, nil }

func (j *jsonRows) tag() string { return j.t.o.tag }
func (j *jsonRows) close()      {}

func (j *jsonRows) each(yield func(*row) bool) error {
	var r row
	for {
		b, ok, err := j.t.line()
		if !ok {
			return err
		}
		j.line++
		r.reset(j.line)
		if err == nil {
			if b = bytes.Trim(b, " \t\r"); len(b) == 0 {
				continue
			}
			err = j.parse(b, &r)
		} else if !errors.Is(err, errTooLong) {
			return err
		}
		if err != nil {
			r.reset(j.line)
			r.broken, r.detail = ReasonMalformed, err.Error()
		}
		if !yield(&r) {
			return nil
		}
	}
}

var errNoObject = errors.New("no JSON object")

// parse reads one line. Its error says why it cannot be taken apart.
func (j *jsonRows) parse(b []byte, r *row) error {
	// encoding/json puts U+FFFD in the place of what is not UTF-8, and keys are exact.
	if !utf8.Valid(b) || !json.Valid(b) || b[0] != '{' {
		return errNoObject
	}
	var key, size, sum, record []byte
	for name, value := range members(b) {
		for _, m := range [...]struct {
			name string
			at   *[]byte
		}{{j.cols.Key, &key}, {j.cols.Size, &size}, {j.cols.Checksum, &sum}, {j.cols.Record, &record}} {
			if m.name == "" || m.name != name {
				continue
			}
			if *m.at != nil {
				return fmt.Errorf("two members %s", short(name))
			}
			*m.at = value
		}
	}
	text, ok := jsonText(key, false)
	if !ok {
		return errors.New("the key is no string")
	}
	r.setKey(text)
	if text, ok = jsonText(size, true); !ok {
		text = string(size)
	}
	r.setSize(text)
	if text, ok = jsonText(sum, false); !ok {
		text = string(sum)
	}
	r.setChecksum(text)
	if text, ok = jsonText(record, true); !ok {
		text = "" // an object or a list is no id
	}
	r.rec.Record = text
	return nil
}

// jsonText reads a string, a number where that will do, and null or nothing as "".
func jsonText(v []byte, number bool) (string, bool) {
	switch {
	case len(v) == 0 || v[0] == 'n':
		return "", true
	case v[0] == '"':
		if bytes.IndexByte(v, '\\') < 0 {
			return string(v[1 : len(v)-1]), true
		}
		var s string
		if loneSurrogate(v) || json.Unmarshal(v, &s) != nil {
			return "", false
		}
		return s, true
	case number && (v[0] == '-' || v[0] >= '0' && v[0] <= '9'):
		return string(v), true
	}
	return "", false
}

// loneSurrogate reports whether a JSON string escapes half a character, which names
// nothing.
func loneSurrogate(v []byte) bool {
	code := func(i int) uint64 { // of the escape at i; 0 when there is none
		if i+6 > len(v) || v[i] != '\\' || v[i+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(v[i+2:i+6]), 16, 16) // it is valid JSON
		return n
	}
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' {
			continue
		}
		switch c := code(i); {
		case c >= 0xdc00 && c <= 0xdfff:
			return true
		case c >= 0xd800 && c <= 0xdbff:
			if low := code(i + 6); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 6
		}
		i++ // what the backslash stands before
	}
	return false
}
