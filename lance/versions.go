package lance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Naming is how manifests are named. The zero value is no scheme.
type Naming uint8

// The naming schemes: V1 is the decimal version; V2 is 2^64-1-version in exactly
// twenty digits, so that an ordered listing shows the newest version first.
const (
	V1 Naming = 1
	V2 Naming = 2
)

// String is "V1" or "V2".
func (n Naming) String() string { return "V" + strconv.Itoa(int(n)) }

// NameKind is what a name below _versions is.
type NameKind uint8

// The kinds of names. OtherName is what readers pass over: temporary files of
// writers, the version hint, anything else.
const (
	OtherName NameKind = iota
	ManifestFile
	DetachedManifest
	StagedManifest
)

const (
	versionsDir    = "_versions/"
	manifestSuffix = ".manifest"
	hintName       = versionsDir + "latest_version_hint.json"
	v2Digits       = 20
)

// VersionEntry is one manifest object.
type VersionEntry struct {
	Version uint64
	// Name relative to the dataset root: "_versions/…".
	Name string
	// Size in bytes; -1 when the listing did not tell.
	Size    int64
	ETag    string
	ModTime time.Time
}

// VersionSet is what a whole listing of _versions showed.
type VersionSet struct {
	Naming Naming
	// Entries, newest first. There is at least one.
	Entries []VersionEntry
	// Detached are manifests outside the history.
	Detached []string
	// Staged ("….manifest-<uuid>") are left behind, or not yet copied, by writers
	// that commit through an external store, where the newest version may be
	// recorded that this listing does not show.
	Staged []string
	// Others counts names that are none of these.
	Others int

	hint bool // the version hint was among Others
}

// Newest is the entry of the highest version. Of two objects that say they are
// the same version it is the one whose name is as writers make it.
func (v *VersionSet) Newest() VersionEntry { return v.Entries[0] }

// ListVersions lists _versions to its end. The version hint is not read.
//
// With ErrNoVersions and ErrMixedNaming the set is returned too, as far as it
// goes. Any other error means that the listing is not whole, and that nothing is
// known about which version is the newest.
func ListVersions(ctx context.Context, s Store) (*VersionSet, error) {
	set := &VersionSet{}
	mixed := false
	for o, err := range s.List(ctx, versionsDir, "/") {
		if errors.Is(err, fs.ErrNotExist) && len(set.Entries) == 0 {
			break // the folder itself is absent, as some stores say it
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", versionsDir, err)
		}
		version, naming, kind := ParseManifestName(o.Name)
		switch {
		case o.Prefix, kind == OtherName:
			set.Others++
			set.hint = set.hint || o.Name == hintName
		case kind == DetachedManifest:
			set.Detached = append(set.Detached, o.Name)
		case kind == StagedManifest:
			set.Staged = append(set.Staged, o.Name)
		default:
			mixed = mixed || set.Naming != 0 && set.Naming != naming
			set.Naming = naming
			set.Entries = append(set.Entries, VersionEntry{version, o.Name, o.Size, o.ETag, o.ModTime})
		}
	}
	switch {
	case mixed:
		return set, ErrMixedNaming
	case len(set.Entries) == 0:
		return set, ErrNoVersions
	}
	slices.SortFunc(set.Entries, func(a, b VersionEntry) int {
		if c := cmp.Compare(b.Version, a.Version); c != 0 {
			return c
		}
		canonical := ManifestName(a.Version, set.Naming)
		if (a.Name == canonical) != (b.Name == canonical) {
			if a.Name == canonical {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return set, nil
}

// ManifestName is the name of the manifest of version v: "_versions/…".
func ManifestName(v uint64, n Naming) string {
	if n == V2 {
		return fmt.Sprintf("%s%0*d%s", versionsDir, v2Digits, math.MaxUint64-v, manifestSuffix)
	}
	return versionsDir + strconv.FormatUint(v, 10) + manifestSuffix
}

// ParseManifestName reads a name below _versions, with or without that folder, as
// the Lance library reads it: a manifest ends in "manifest", its number is the
// text before the first dot, and a name of 29 characters is of scheme V2.
// version and naming are set for a ManifestFile only.
func ParseManifestName(name string) (version uint64, naming Naming, kind NameKind) {
	name = strings.TrimPrefix(name, versionsDir)
	if strings.Contains(name, "/") || strings.HasPrefix(name, ".") {
		return 0, 0, OtherName
	}
	if i := strings.Index(name, manifestSuffix+"-"); i > 0 && isUUID(name[i+len(manifestSuffix)+1:]) {
		return 0, 0, StagedManifest
	}
	if !strings.HasSuffix(name, "manifest") {
		return 0, 0, OtherName
	}
	if strings.HasPrefix(name, "d") {
		return 0, 0, DetachedManifest
	}
	number, _, ok := strings.Cut(name, ".")
	v, err := strconv.ParseUint(number, 10, 64)
	switch {
	case !ok || err != nil:
		return 0, 0, OtherName
	case len(name) == v2Digits+len(manifestSuffix):
		return math.MaxUint64 - v, V2, ManifestFile
	}
	return v, V1, ManifestFile
}

// isUUID reports whether s is a uuid in hyphenated or plain form.
func isUUID(s string) bool {
	digits := 0
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'f', r >= 'A' && r <= 'F':
			digits++
		case r != '-':
			return false
		}
	}
	return digits == 32
}
