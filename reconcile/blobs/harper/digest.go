package harper

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

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
	h := reconcile.NewHash(alg)
	if err != nil || h == nil || len(b) != h.Size() {
		return "", false
	}
	return alg + ":" + s, true
}
