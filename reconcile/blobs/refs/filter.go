package refs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// ErrFilter: a filter that is not understood.
var ErrFilter = errors.New("filter not understood; column = 'text', column = 1, column = true, column is null and column is not null, joined by and, are")

// Filter is a conjunction of conditions on columns. The zero value lets all rows pass.
type Filter struct{ terms []filterTerm }

type filterOp uint8

const (
	isNull filterOp = iota
	isNotNull
	equalsText
	equalsInt
	equalsBool
)

type filterTerm struct {
	column string
	op     filterOp
	text   string
	number int64
	truth  bool
}

// ParseFilter reads conditions as SQL has them: names bare (with dots down into
// structs), in double quotes or in backquotes; words in any case; texts in single
// quotes, which are doubled inside. The error matches ErrFilter.
func ParseFilter(s string) (Filter, error) {
	var f Filter
	tokens, err := filterTokens(s)
	if err != nil || len(tokens) == 0 {
		return f, err
	}
	p := filterParser{tokens}
	for {
		term, ok := p.term()
		if !ok {
			return Filter{}, fmt.Errorf("%s: %w", short(s), ErrFilter)
		}
		f.terms = append(f.terms, term)
		if len(p.rest) == 0 {
			return f, nil
		}
		if !p.word("and") {
			return Filter{}, fmt.Errorf("%s: %w", short(s), ErrFilter)
		}
	}
}

type filterToken struct {
	kind byte // w(ord), q(uoted name), t(ext), n(umber), =
	text string
}

func filterTokens(s string) (tokens []filterToken, err error) {
	bad := fmt.Errorf("%s: %w", short(s), ErrFilter)
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeftFunc(s, unicode.IsSpace) {
		switch c := s[0]; {
		case c == '=':
			tokens, s = append(tokens, filterToken{kind: '='}), s[1:]
		case c == '\'', c == '"', c == '`':
			text, rest, ok := filterQuoted(s)
			if !ok {
				return nil, bad
			}
			kind := byte('q')
			if c == '\'' {
				kind = 't'
			}
			tokens, s = append(tokens, filterToken{kind, text}), rest
		default:
			n := strings.IndexFunc(s, func(r rune) bool {
				return r != '_' && r != '.' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
			})
			if n < 0 {
				n = len(s)
			}
			if n == 0 {
				return nil, bad
			}
			kind := byte('w')
			if c == '-' || c >= '0' && c <= '9' {
				kind = 'n'
			} else if strings.Contains(s[:n], "-") {
				return nil, bad // a name that has to be quoted, or a subtraction
			}
			tokens, s = append(tokens, filterToken{kind, s[:n]}), s[n:]
		}
	}
	return tokens, nil
}

// filterQuoted takes the text between quotes.
func filterQuoted(s string) (text, rest string, ok bool) {
	quote := s[:1]
	var b strings.Builder
	for s = s[1:]; ; s = s[1:] {
		before, after, found := strings.Cut(s, quote)
		if !found {
			return "", "", false
		}
		b.WriteString(before)
		if !strings.HasPrefix(after, quote) {
			return b.String(), after, true
		}
		b.WriteString(quote)
		s = after
	}
}

type filterParser struct{ rest []filterToken }

func (p *filterParser) next() filterToken {
	if len(p.rest) == 0 {
		return filterToken{}
	}
	t := p.rest[0]
	p.rest = p.rest[1:]
	return t
}

func (p *filterParser) word(w string) bool {
	if len(p.rest) == 0 || p.rest[0].kind != 'w' || !strings.EqualFold(p.rest[0].text, w) {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *filterParser) term() (t filterTerm, ok bool) {
	name := p.next()
	if name.kind != 'w' && name.kind != 'q' || name.text == "" {
		return t, false
	}
	t.column = name.text
	if p.word("is") {
		if p.word("not") {
			t.op = isNotNull
		}
		return t, p.word("null")
	}
	if p.next().kind != '=' {
		return t, false
	}
	switch v := p.next(); v.kind {
	case 't':
		t.op, t.text = equalsText, v.text
		return t, true
	case 'n':
		n, err := strconv.ParseInt(v.text, 10, 64)
		t.op, t.number = equalsInt, n
		return t, err == nil
	case 'w':
		t.op, t.truth = equalsBool, strings.EqualFold(v.text, "true")
		return t, t.truth || strings.EqualFold(v.text, "false")
	}
	return t, false
}

func (f Filter) columns() (names []string) {
	for _, t := range f.terms {
		names = append(names, t.column)
	}
	return names
}

// over gives the filter of rows whose columns, in the order of columns(), are cols.
func (f Filter) over(cols []*datafile.Array) (keep func(i int) bool, err error) {
	for k, t := range f.terms {
		typ := cols[k].Type()
		ok := true
		switch t.op {
		case equalsText:
			ok = isText(typ) && cols[k].Blob() == datafile.NotBlob
		case equalsInt:
			ok = isWhole(typ)
		case equalsBool:
			ok = typ == "bool"
		}
		if !ok {
			return nil, fmt.Errorf("column %s has the type %s: %w", short(t.column), short(typ), ErrFilter)
		}
	}
	return func(i int) bool {
		for k, t := range f.terms {
			if !t.holds(cols[k], i) {
				return false
			}
		}
		return true
	}, nil
}

// holds is false of a null, as in SQL, where that is not what is asked for.
func (t filterTerm) holds(a *datafile.Array, i int) bool {
	null := a.Null(i)
	switch t.op {
	case isNull:
		return null
	case isNotNull:
		return !null
	case equalsText:
		return !null && string(a.Bytes(i)) == t.text
	case equalsInt:
		n, ok := a.Int(i)
		return ok && n == t.number
	}
	v, ok := a.Bool(i)
	return ok && v == t.truth
}
