package lance

import "fmt"

// Bits of the feature words (source: the format's table.proto, and real
// manifests of npm releases 0.4.20 to 0.39.0 with patched words).
const (
	flagDeletionFiles   = 1 << 0
	flagStableRowIDs    = 1 << 1
	flagV2Files         = 1 << 2 // deprecated
	flagConfig          = 1 << 3
	flagBasePaths       = 1 << 4
	flagNoTxnFiles      = 1 << 5
	flagOverlays        = 1 << 6
	flagCoveringIndices = 1 << 7
	flagMixedVersions   = 1 << 8

	// writableFlags are those under which a new version can be derived without
	// losing or changing what the old one means.
	writableFlags = flagDeletionFiles | flagStableRowIDs | flagV2Files | flagConfig | flagBasePaths |
		flagNoTxnFiles | flagCoveringIndices | flagMixedVersions
	// readableFlags are those under which this package knows every object that a
	// manifest names. Overlays change what rows read as, which is nobody's business
	// here, and name files, which Files yields.
	readableFlags = writableFlags | flagOverlays
)

// FlagError says which bits of a feature word are not understood.
type FlagError struct {
	// Word is "reader" or "writer".
	Word string
	// Unknown are the bits; 0 when HalfSet.
	Unknown uint64
	// HalfSet: bit 256 (mixed data file versions) stands in one word and not in the
	// other, which the Lance library calls a corrupt manifest.
	HalfSet bool
}

// Error implements error.
func (e *FlagError) Error() string {
	if e.HalfSet {
		return "feature flag 256 is set in only one of the reader and writer words"
	}
	return fmt.Sprintf("unknown %s feature flags %d", e.Word, e.Unknown)
}

// CheckReaderFlags says whether Files tells every object of this version. When
// the error, a *FlagError, is not nil, it may not, and no verdict about the table
// can be whole.
func (m *Manifest) CheckReaderFlags() error {
	return checkFlags("reader", m.ReaderFlags, readableFlags, m)
}

// CheckWriterFlags says whether a new version may be derived from this one: every
// bit of both words must be understood, overlays excepted. The error is a *FlagError.
func (m *Manifest) CheckWriterFlags() error {
	if err := checkFlags("reader", m.ReaderFlags, writableFlags, m); err != nil {
		return err
	}
	return checkFlags("writer", m.WriterFlags, writableFlags, m)
}

func checkFlags(word string, bits, known uint64, m *Manifest) error {
	if unknown := bits &^ known; unknown != 0 {
		return &FlagError{Word: word, Unknown: unknown}
	}
	if (m.ReaderFlags^m.WriterFlags)&flagMixedVersions != 0 {
		return &FlagError{Word: word, HalfSet: true}
	}
	return nil
}
