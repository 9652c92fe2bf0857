package refs

import (
	"math"
	"testing"
)

func TestSizesAreWholeNumbersInAnySpelling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"": Unknown, "0": Unknown, "-0": Unknown, "0.0": Unknown, "1": 1, " 7\t": 7, "+12": 12, "12.000": 12, "1e3": 1000, "1.5e1": 15,
		"9223372036854775807": math.MaxInt64, "9223372036854775807.00": math.MaxInt64, "9007199254740992e0": 1 << 53,
	} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"-1", "1.5", "x", "0x10", "1_000", "NaN", "Inf", "-inf", "1e300", "9223372036854775808", "1e17", "1,000", "1.", "--1", "1 2", "true", "1e-1"} {
		if text == "1." { // a whole number with an empty fraction
			continue
		}
		if got, ok := parseSize(text); ok || got != Unknown {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
}

func TestChecksumsHaveOneSpelling(t *testing.T) {
	t.Parallel()
	const hex64 = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"
	const low64 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for text, want := range map[string]string{
		"": "", "  ": "", hex64: "sha256:" + low64, "sha256:" + low64: "sha256:" + low64, "SHA256:" + hex64: "sha256:" + low64,
		"md5:D41D8CD98F00B204E9800998ECF8427E": "md5:d41d8cd98f00b204e9800998ecf8427e", "crc32c:AAAAAA==": "crc32c:AAAAAA==", " crc32c:4waSgw== ": "crc32c:4waSgw==",
	} {
		if got, ok := parseChecksum(text); !ok || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{"d41d8cd98f00b204e9800998ecf8427e", "sha256:", low64[1:], low64 + "0", "sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709", "crc32c:00000000",
		"crc32c:AAAAAA", "crc32c:AAAAAB==", "crc32c:AAAAAA=\n=", "md5:1B2M2Y8AsgTpgAmY7PhCfg==", "sha256:" + low64[:63] + "g", "sha-256:" + low64, ":" + low64, `"` + low64 + `"`} {
		if got, ok := parseChecksum(text); ok {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestKeysAreRememberedWithWhatTheirRowsSaid(t *testing.T) {
	t.Parallel()
	s := newKeySet(5000)
	rec := func(i int, size int64, sum string) *Record {
		return &Record{Key: string(rune('a'+i%26)) + string(rune(0x1000+i)), Size: size, Checksum: sum}
	}
	for i := range 5000 {
		if got := s.add(rec(i, int64(i%7)-1, "")); got != newKey {
			t.Fatalf("key %d: %d", i, got)
		}
	}
	if got := s.add(rec(5000, 1, "")); got != noRoom {
		t.Errorf("a key too many: %d", got)
	}
	for i := range 5000 {
		size := int64(i%7) - 1
		if got := s.add(rec(i, size, "")); got != sameAgain {
			t.Errorf("key %d again: %d", i, got)
		}
		if got := s.add(rec(i, Unknown, "x")); got != sameAgain {
			t.Errorf("key %d with a checksum beside: %d", i, got)
		}
		if got := s.add(rec(i, Unknown, "y")); got != contradicts {
			t.Errorf("key %d with another checksum: %d", i, got)
		}
		if got := s.add(rec(i, size+100, "x")); size != Unknown && got != contradicts {
			t.Errorf("key %d with another size: %d", i, got)
		}
	}
}
