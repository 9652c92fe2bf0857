package harper

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"strings"
)

func newHash(alg string) hash.Hash {
	switch alg {
	case "sha256":
		return sha256.New()
	case "md5":
		return md5.New()
	case "crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	}
	return nil
}

func sumText(alg string, h hash.Hash) string {
	if alg == "crc32c" {
		return alg + ":" + base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	return alg + ":" + hex.EncodeToString(h.Sum(nil))
}

// parseDigest gives the one spelling of a digest attribute: with or without the name of
// its algorithm, which alg is otherwise.
func parseDigest(s, alg string) (string, bool) {
	if a, value, found := strings.Cut(s, ":"); found {
		alg, s = strings.ToLower(a), value
	}
	var b []byte
	var err error
	if alg == "crc32c" {
		b, err = base64.StdEncoding.Strict().DecodeString(s)
	} else {
		b, err = hex.DecodeString(s)
		s = strings.ToLower(s)
	}
	h := newHash(alg)
	if err != nil || h == nil || len(b) != h.Size() {
		return "", false
	}
	return alg + ":" + s, true
}
