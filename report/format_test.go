package report

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNumbersAndSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{number(0), "0"}, {number(999), "999"}, {number(1000), "1,000"}, {number(-1234567), "-1,234,567"}, {number(math.MaxInt64), "9,223,372,036,854,775,807"},
		{numberOr(nil, "unknown"), "unknown"}, {numberOr(ptr(int64(0)), "unknown"), "0"},
		{count(1, "row"), "1 row"}, {count(0, "row"), "0 rows"}, {count(2, "index"), "2 indexes"},
		{size(1), "1 byte"}, {size(1023), "1,023 bytes"}, {size(1024), "1,024 bytes (1.0 KiB)"}, {size(12_345), "12,345 bytes (12.1 KiB)"},
		{size(1<<20 - 1), "1,048,575 bytes (1.0 MiB)"}, {size(5 << 40), "5,497,558,138,880 bytes (5.0 TiB)"}, {size(1 << 60), "1,152,921,504,606,846,976 bytes (1024.0 PiB)"},
		{percent(1, 1), "100.00 %"}, {percent(999_999, 1_000_000), "99.99 %"}, {percent(0, 3), "0.00 %"},
		{duration(-1), "an unknown time"}, {duration(1234 * time.Millisecond), "1.23s"}, {duration(3*time.Hour + 1500*time.Millisecond), "3h0m2s"},
		{shorten("short", 5), "short"}, {shorten("abcdefghij", 7), "abc…hij"}, {shorten("üüüüüü", 4), "ü…üü"}, {shorten("abc", 2), "ab"},
		{printable("ä b\x1b\n\xff\u202e"), `ä b\u001b\u000a\xff\u202e`},
	} {
		if got := strings.ReplaceAll(c.got, nbsp, " "); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestWrapKeepsWordsWhole(t *testing.T) {
	t.Parallel()
	got := wrap("one two three averyverylongword x 1"+nbsp+"KiB", "- ", "  ", 11)
	if d := cmp.Diff([]string{"- one two", "  three", "  averyverylongword", "  x 1 KiB"}, got); d != "" {
		t.Error(d)
	}
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-zü]{1,12}`), 1, 40).Draw(t, "words")
		width := rapid.IntRange(1, 80).Draw(t, "width")
		lines := wrap(strings.Join(words, " "), "- ", "  ", width)
		var back []string
		for _, l := range lines {
			ws := strings.Fields(l[2:])
			if runes(l) > width && len(ws) > 1 {
				t.Fatalf("%q is longer than %d", l, width)
			}
			back = append(back, ws...)
		}
		if d := cmp.Diff(words, back); d != "" {
			t.Fatal(d)
		}
	})
}

func TestShortenedNamesFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, width := rapid.String().Draw(t, "s"), rapid.IntRange(0, 40).Draw(t, "width")
		got := shorten(s, width)
		if runes(got) > width || runes(s) <= width && got != s {
			t.Fatalf("%q at %d: %q", s, width, got)
		}
	})
}
