package explain

import (
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// words says what the explanation means for whoever reads it.
func words(e Explanation, rest string) string {
	switch e.Damage {
	case DamageThrottled:
		return "The store asked to slow down. That says nothing about the object: it may well be whole."
	case DamageDenied:
		return "The store refused the access. That says nothing about the object: it may well be there."
	case DamageConflict:
		return "Another writer committed first. Nothing is damaged: the same operation can be tried again."
	case DamageUnknown:
		return unknownWords(e, rest)
	}
	what, ok := roleWords[e.Role]
	if !ok {
		if e.Damage == DamageMissing {
			return "An object is gone, and the text does not say which. A check finds it."
		}
		return "A file is shorter than it should be, and the text does not say which. A check finds it."
	}
	if e.Damage == DamageMissing {
		return what.subject + " is gone. " + what.meaning
	}
	return what.subject + " is shorter than it should be, or not of its format. " + what.meaning
}

var roleWords = map[reconcile.Role]struct{ subject, meaning string }{
	reconcile.RoleData:          {"A data file", "Scans and compaction of that table fail; counts and indexed searches may go on succeeding."},
	reconcile.RoleDeletion:      {"A deletion file", "The rows themselves are whole, but which of them were deleted is not known any more."},
	reconcile.RoleIndex:         {"An index file", "No row is lost; what uses the index fails until the file is back or the index is dropped."},
	reconcile.RoleTransaction:   {"A transaction file", "It breaks nothing but a writer that holds an old version open."},
	reconcile.RoleManifest:      {"A manifest", "That version of the table cannot be read."},
	reconcile.RoleBlobSidecar:   {"A file of blob values beside a data file", "Reading those values and compaction fail; the rows are whole."},
	reconcile.RoleWALManifest:   {"A MemWAL shard manifest", "Rows that were not merged yet may be hidden."},
	reconcile.RoleWALGeneration: {"A file of a pending MemWAL generation", "Its rows live nowhere else, and no commit to the base table can mend it."},
}

func unknownWords(e Explanation, rest string) string {
	switch {
	case strings.Contains(rest, "NoSuchBucket"), strings.Contains(rest, "ContainerNotFound"), strings.Contains(rest, "bucket does not exist"):
		return "The bucket itself is absent or misnamed. That says nothing about the objects in it."
	case strings.Contains(rest, "InvalidObjectState"), strings.Contains(rest, "BlobArchived"):
		return "The object is in an archive tier: it is there, and must be restored from the archive before it can be read."
	case strings.Contains(rest, "PermanentRedirect"), strings.Contains(rest, "AuthorizationHeaderMalformed"):
		return "The store was asked at the wrong address or region. That says nothing about the object."
	case strings.Contains(rest, "base_path id"):
		return "The metadata names a base path that it does not define, so nobody can tell where the file should be."
	case e.Role != reconcile.NoRole:
		return "The text names an object but not what happened to it. A check finds out."
	}
	return "The text does not name an object, and it is none of the messages that are known. It may not be about storage at all; a check of the table tells whether every file is there."
}

// nextCommand is the command that looks at what the text speaks of.
func nextCommand(e Explanation, o object) string {
	var b strings.Builder
	b.WriteString("reconcile check ")
	if o.root != "" {
		b.WriteString(quote(o.root))
	} else {
		b.WriteString("URI")
	}
	if e.Target != "" {
		b.WriteString(" --target " + quote(e.Target))
	}
	switch {
	case e.Damage == DamageTruncated:
		b.WriteString(" --depth footer")
	case e.Damage == DamageThrottled:
		b.WriteString(" --concurrency 16")
	}
	switch {
	case strings.HasPrefix(e.Path, "tree/"), e.Role == reconcile.RoleManifest:
		b.WriteString(" --versions all")
	}
	return b.String()
}

// quote makes s one word of a shell.
func quote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/:._-@%+=,", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
