package lancetest

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
)

// Naming is how manifest files are named.
type Naming int

// The two namings.
const (
	// V2 names a manifest by the inverted version, 20 digits, so that the newest
	// comes first in a listing. It is the default.
	V2 Naming = iota
	// V1 names it by the version, without padding.
	V1
)

// Name is the name in _versions of the manifest of a version.
func (n Naming) Name(version uint64) string {
	if n == V1 {
		return strconv.FormatUint(version, 10) + ".manifest"
	}
	return fmt.Sprintf("%020d.manifest", math.MaxUint64-version)
}

// String is "V1" or "V2".
func (n Naming) String() string {
	if n == V1 {
		return "V1"
	}
	return "V2"
}

// reversedBits is n as 64 binary digits, least significant first: the naming of
// MemWAL files.
func reversedBits(n uint64) string {
	return fmt.Sprintf("%064b", bits.Reverse64(n))
}
