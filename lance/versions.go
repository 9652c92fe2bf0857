package lance

import (
	"context"
	"time"
)

// Naming is how manifests are named. The zero value is no scheme.
type Naming uint8

// The naming schemes: V1 is the decimal version, V2 is 2^64-1-version in exactly
// twenty digits, so that the newest version is listed first.
const (
	V1 Naming = 1
	V2 Naming = 2
)

// NameKind is what a name below _versions is.
type NameKind uint8

// The kinds of names. OtherName is what readers pass over: temporary files, the
// version hint, anything else.
const (
	OtherName NameKind = iota
	ManifestFile
	DetachedManifest
	StagedManifest
)

// VersionEntry is one manifest object.
type VersionEntry struct {
	Version uint64
	// Name relative to the dataset root: "_versions/…".
	Name    string
	Size    int64
	ETag    string
	ModTime time.Time
}

// VersionSet is what a whole listing of _versions showed.
type VersionSet struct {
	Naming Naming
	// Entries, newest first.
	Entries []VersionEntry
	// Detached manifests are not part of the history; Staged ones
	// ("*.manifest-<uuid>") are a sign of an external commit store.
	Detached, Staged []string
	// Others counts what is no manifest.
	Others int
}

// Newest is the entry of the highest version.
func (v *VersionSet) Newest() VersionEntry { return v.Entries[0] }

// ListVersions lists _versions to its end.
func ListVersions(ctx context.Context, s Store) (*VersionSet, error) { panic("todo") }

// ManifestName is the name of the manifest of version v: "_versions/…".
func ManifestName(v uint64, n Naming) string { panic("todo") }

// ParseManifestName reads a name below _versions, with or without that folder.
func ParseManifestName(name string) (version uint64, naming Naming, kind NameKind) { panic("todo") }
