package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// number writes n with thousands separators.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// numberOr is number, or a word where the number is unknown: unknown is never 0.
func numberOr(n *int64, unknown string) string {
	if n == nil {
		return unknown
	}
	return number(*n)
}

// count is a number with its noun: "1 object", "2 objects".
func count(n int64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "x"):
		return number(n) + " " + noun + "es"
	}
	return number(n) + " " + noun + "s"
}

// nbsp is a blank at which wrap does not break a line; wrap prints it as a blank.
const nbsp = "\u00a0"

// size is a size in bytes, exact and for the eye. It is made for wrap.
func size(n int64) string {
	s := count(n, "byte")
	if n < 1024 {
		return s
	}
	s = strings.ReplaceAll(s, " ", nbsp)
	f := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f /= 1024; f < 1023.95 {
			return fmt.Sprintf("%s (%.1f"+nbsp+"%s)", s, f, unit)
		}
	}
	return fmt.Sprintf("%s (%.1f"+nbsp+"PiB)", s, f/1024)
}

// percent rounds down, so that 100 % means all.
func percent(part, whole int64) string {
	return fmt.Sprintf("%.2f %%", math.Floor(float64(part)/float64(whole)*1e4)/1e2)
}

func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "an unknown time"
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// printable escapes what a terminal would act on or not show: names come from
// metadata and stores, and anyone may have chosen them.
func printable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// shorten cuts out the middle of s so that it has at most width runes.
func shorten(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	if width < 3 {
		return string(r[:width])
	}
	// The end of a name tells more than its beginning.
	head := (width - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

// wrap breaks text at spaces into lines of at most width runes. A single word that
// is longer stays whole. The first line begins with first, the others with rest.
func wrap(text, first, rest string, width int) []string {
	var lines []string
	line, empty := first, true
	for word := range strings.SplitSeq(text, " ") {
		word = strings.ReplaceAll(word, nbsp, " ")
		if !empty && runes(line)+1+runes(word) > width {
			lines = append(lines, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	return append(lines, line)
}

func runes(s string) int { return utf8.RuneCountInString(s) }

func padRight(s string, width int) string { return s + strings.Repeat(" ", max(0, width-runes(s))) }

func padLeft(s string, width int) string { return strings.Repeat(" ", max(0, width-runes(s))) + s }

// moment is a time in UTC as people write it, made for wrap.
func moment(t time.Time) string {
	return strings.ReplaceAll(t.UTC().Format("2006-01-02 15:04")+" UTC", " ", nbsp)
}
