package reconcile

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"hash/crc32"
)

// NewHash is a digest of the algorithm that a recorded checksum names (sha256, md5,
// crc32c); nil for any other.
func NewHash(alg string) hash.Hash {
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

// Checksum spells a digest as references record it: "sha256:<hex>", "md5:<hex>",
// "crc32c:<base64>".
func Checksum(alg string, h hash.Hash) string {
	if alg == "crc32c" {
		return alg + ":" + base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	return alg + ":" + hex.EncodeToString(h.Sum(nil))
}
