package refs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrQuery: a query that cannot be read from as a subquery.
var ErrQuery = errors.New("query not usable")

func badQuery(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrQuery, fmt.Sprintf(format, args...))
}

// checkQuery says early and plainly what would not work in parentheses. It takes the
// text apart as Postgres does, and decides nothing about safety: the transaction is
// read-only, and the protocol carries one statement.
func checkQuery(query string) error {
	s := queryScan{text: query}
	depth, words := 0, 0
	before, last := "", ""
	for {
		token, err := s.next()
		if err != nil {
			return err
		}
		if token == "" {
			break
		}
		word := strings.ToLower(token)
		switch {
		case token == ";" && strings.TrimSpace(s.text[s.at:]) == "":
			return badQuery("it ends in a semicolon; leave that out")
		case token == ";":
			return badQuery("it holds a semicolon; one SELECT is read")
		case token == "(":
			depth++
		case token == ")":
			depth--
			if depth < 0 {
				return badQuery("it closes a parenthesis that it does not open")
			}
		case slices.Contains([]string{"insert", "update", "delete", "merge"}, word) && (before == "(" || words == 0):
			return badQuery("it changes data (%s)", strings.ToUpper(word))
		case words == 0 && !slices.Contains([]string{"select", "with", "values", "table"}, word):
			return badQuery("it begins with %s; a SELECT is read", short(token))
		}
		if token != "(" {
			words++
		}
		before, last = word, token
	}
	switch {
	case last == "":
		return badQuery("it is empty")
	case depth > 0:
		return badQuery("it opens a parenthesis that it does not close")
	case s.comment:
		return badQuery("it ends in a comment; put that in front")
	}
	return nil
}

// queryScan gives the tokens of a query, as far as checkQuery asks: words, and all
// other characters one by one. Quoted things are one token each.
type queryScan struct {
	text    string
	at      int
	comment bool // the newest thing that is no space was a comment
}

func (s *queryScan) next() (string, error) {
	for s.at < len(s.text) {
		rest := s.text[s.at:]
		switch c := rest[0]; {
		case strings.ContainsRune(" \t\r\n\f\v", rune(c)):
			s.at++
			continue
		case strings.HasPrefix(rest, "--"):
			s.comment = true
			if n := strings.IndexByte(rest, '\n'); n >= 0 {
				s.at += n + 1
			} else {
				s.at = len(s.text)
			}
			continue
		case strings.HasPrefix(rest, "/*"):
			s.comment = true
			n := blockComment(rest)
			if n < 0 {
				return "", badQuery("a comment is not closed")
			}
			s.at += n
			continue
		}
		s.comment = false
		n, err := tokenLen(rest)
		s.at += n
		return rest[:n], err
	}
	return "", nil
}

// blockComment is the length of a comment, which may hold others; -1 without an end.
func blockComment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

func isWordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// tokenLen is the length of the token that s begins with.
func tokenLen(s string) (int, error) {
	unclosed := badQuery("a quote is not closed: %s", short(s))
	switch c := s[0]; {
	case c == '"' || c == '\'':
		if n := quotedLen(s, c, false); n > 0 {
			return n, nil
		}
		return len(s), unclosed
	case (c == 'e' || c == 'E') && len(s) > 1 && s[1] == '\'':
		if n := quotedLen(s[1:], '\'', true); n > 0 {
			return n + 1, nil
		}
		return len(s), unclosed
	case c == '$':
		n := 1
		for n < len(s) && isWordByte(s[n]) {
			n++
		}
		if n == len(s) || s[n] != '$' || n > 1 && s[1] >= '0' && s[1] <= '9' {
			return n, nil // a parameter; the server will say so
		}
		tag := s[:n+1]
		if end := strings.Index(s[n+1:], tag); end >= 0 {
			return n + 1 + end + len(tag), nil
		}
		return len(s), unclosed
	case isWordByte(c):
		n := 1
		for n < len(s) && (isWordByte(s[n]) || s[n] == '$') {
			n++
		}
		return n, nil
	}
	return 1, nil
}

// quotedLen is the length of a quoted thing; 0 without an end.
func quotedLen(s string, quote byte, backslash bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case backslash && s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return 0
}
