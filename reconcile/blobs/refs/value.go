package refs

import (
	"encoding/base64"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// parseSize reads a number of bytes: a decimal that is a whole number, in any of the
// spellings in which databases and JSON write one. Empty and 0 are Unknown.
func parseSize(s string) (size int64, ok bool) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Unknown, true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		whole, fraction, found := strings.Cut(s, ".")
		if found && whole != "" && strings.Trim(fraction, "0") == "" {
			n, err = strconv.ParseInt(whole, 10, 64)
		}
	}
	if err != nil {
		if strings.ContainsAny(s, "xXpP_nNiI") { // hexadecimal, underscores, NaN, Inf
			return Unknown, false
		}
		f, ferr := strconv.ParseFloat(s, 64)
		if ferr != nil {
			return Unknown, false
		}
		return floatSize(f)
	}
	return wholeSize(n)
}

// maxExact is where float64 begins to leave whole numbers out.
const maxExact = 1 << 53

func floatSize(f float64) (int64, bool) {
	if f != math.Trunc(f) || f < 0 || f > maxExact { // NaN is no whole number either
		return Unknown, false
	}
	return wholeSize(int64(f))
}

func wholeSize(n int64) (int64, bool) {
	switch {
	case n < 0:
		return Unknown, false
	case n == 0:
		return Unknown, true
	}
	return n, true
}

// parseChecksum gives the one spelling of a checksum. Sixty-four hexadecimal digits
// alone are a SHA-256. Empty is not recorded.
func parseChecksum(s string) (sum string, ok bool) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", true
	}
	alg, value, found := strings.Cut(s, ":")
	if !found {
		alg, value = "sha256", s
	}
	switch strings.ToLower(alg) {
	case "sha256":
		return hexSum("sha256:", value, 32)
	case "md5":
		return hexSum("md5:", value, 16)
	case "crc32c":
		// Strict: bits beyond the four bytes would be a second spelling.
		b, err := base64.StdEncoding.Strict().DecodeString(value)
		if err != nil || len(b) != 4 || len(value) != 8 {
			return "", false
		}
		return "crc32c:" + value, true
	}
	return "", false
}

func hexSum(prefix, digits string, n int) (string, bool) {
	if len(digits) != 2*n {
		return "", false
	}
	if _, err := hex.DecodeString(digits); err != nil {
		return "", false
	}
	return prefix + strings.ToLower(digits), true
}

// short cuts what comes from a row before it stands in an error.
func short(s string) string {
	const most = 120
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + "…"
}
