// Package explain tells which damage an engine's error text speaks of.
//
// A text is judged by the object that it names, and by how the engine words what
// happened to it; words inside paths and names decide nothing, so that a store
// called "throttled" or a root with /data/ in it misleads nobody. The answer is a
// hint where to look first. Only a check that asks the store is evidence.
package explain

import (
	"regexp"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
)

// Damage is what an error text says happened. The zero value is DamageUnknown.
type Damage uint8

// The damages; public words in damageNames.
const (
	DamageUnknown Damage = iota
	DamageMissing
	DamageTruncated
	DamageThrottled
	DamageDenied
	DamageConflict
)

var damageNames = [...]string{"unknown", "missing", "truncated", "throttled", "denied", "conflict"}

// String is the public word.
func (d Damage) String() string {
	if int(d) < len(damageNames) {
		return damageNames[d]
	}
	return "invalid"
}

// MarshalText implements encoding.TextMarshaler.
func (d Damage) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Explanation is what a text speaks of. Role is NoRole, Target and Path are
// empty when the text does not tell.
type Explanation struct {
	Role   reconcile.Role
	Damage Damage
	// Target is a target name as commands take it.
	Target string
	// Dataset is the place of the dataset as the text writes it: a URI
	// ("s3://bucket/x.rollout.lance"), an absolute path, or a key, with or without its
	// bucket ("stores/x.rollout.lance"). The library writes local paths without their
	// first slash. Empty when the text does not show the whole of it.
	Dataset string
	// Path is the object below its dataset ("data/x.lance"); the whole name when no
	// dataset can be told.
	Path string
	// NextCommand looks at the target named. Its places to fill in are words in
	// capitals.
	NextCommand string
	// Words says in a sentence or two what is damaged and what it means.
	Words string
}

// maxText bounds what is looked at: an error with its causes fits many times.
const maxText = 16 << 10

// quoted undoes what a text goes through that was put into another one.
var quoted = strings.NewReplacer(`\n`, " ", `\t`, " ", `\"`, `"`)

// Classify explains one error text. It never fails: a text that it does not know
// has damage unknown. It touches neither network nor disk.
func Classify(text string) Explanation {
	if len(text) > maxText {
		text = text[:maxText]
	}
	text = strings.ToValidUTF8(text, "")
	text = strings.Join(strings.Fields(quoted.Replace(text)), " ")
	objects, rest := extract(text)
	obj := choose(objects)
	table := tableName.FindStringSubmatch(text)
	e := Explanation{Role: obj.role, Path: obj.path, Target: obj.target, Dataset: obj.dataset, Damage: damageOf(rest, obj != object{} || table != nil)}
	for _, k := range knownSentences {
		if strings.Contains(rest, k.text) {
			if e.Role == reconcile.NoRole {
				e.Role = k.role
			}
			if e.Damage == DamageUnknown {
				e.Damage = k.damage
			}
		}
	}
	if e.Target == "" && table != nil {
		e.Target, _ = fleet.Name(table[1] + ".lance")
	}
	e.Words = words(e, rest)
	e.NextCommand = nextCommand(e, obj)
	return e
}

// How engines and stores word it, most specific first. What a text says is
// searched with its paths and URLs taken out.
var (
	statusCode = regexp.MustCompile(`(?i)\b(?:status(?: code)?|HTTP(?:/1\.1)?|statuscode)[:= ]+"?(\d{3})\b`)
	statusText = regexp.MustCompile(`\b(401 Unauthorized|403 Forbidden|404 Not Found|409 Conflict|412 Precondition Failed|429 Too Many Requests|503 Service Unavailable|503 Slow Down)\b`)
	tableName  = regexp.MustCompile(`\bTable '([^']+)' was not found`)

	wrongPlace = regexp.MustCompile(`\b(NoSuchBucket|ContainerNotFound|InvalidObjectState|BlobArchived|PermanentRedirect|AuthorizationHeaderMalformed)\b|specified bucket does not exist|base_path id \d+ not found`)
	throttled  = regexp.MustCompile(`\b(SlowDown|ServerBusy|TooManyRequests|ThrottlingException|RequestLimitExceeded|rateLimitExceeded|Too Many Requests)\b|(?i)reduce your request rate`)
	denied     = regexp.MustCompile(`\b(AccessDenied|Access Denied|AllAccessDisabled|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken|AuthenticationFailed|AuthorizationPermissionMismatch|AuthorizationFailure|PermissionDenied|Unauthenticated)\b|(?i)permission denied|lacked the necessary privileges|did not provide valid credentials`)
	conflict   = regexp.MustCompile(`(?i)\bcommit conflict\b|preempted by concurrent transaction|\bconcurrent modification\b|TooMuchWriteContention|too much write contention|\bPreconditionFailed\b|\bConditionalRequestConflict\b|incompatible transaction`)
	gone       = regexp.MustCompile(`\bNoSuchKey\b|\b(?:Blob|Path)NotFound\b|\bNotFound \{|\bFileNotFoundError\b|No such file or directory|\bNo such object\b|(?i)specified (?:key|blob|path) does not exist`)
	notFound   = regexp.MustCompile(`\b[Nn]ot found\b`)
	truncated  = regexp.MustCompile(`failed to fill whole buffer|Invalid range \d+\.\.\d+ for object of size \d+|file size is too small|invalid seek to a negative or overflowing position|Arrow file does not contain correct footer|does not appear to be a Lance file|does not have sufficient data|Requested range was invalid|Requested Range Not Satisfiable|\bInvalidRange\b|Transaction message did not contain an operation|unexpected end of file|UnexpectedEof`)
)

// damageOf judges the wording. named tells that the text names an object or a
// table: columns, functions and users are "not found" too.
func damageOf(rest string, named bool) Damage {
	if wrongPlace.MatchString(rest) {
		return DamageUnknown // nothing is said about the object itself
	}
	code := ""
	for _, m := range statusCode.FindAllStringSubmatch(rest, -1) {
		code = m[1]
	}
	if code == "" {
		for _, m := range statusText.FindAllString(rest, -1) {
			code = m[:3]
		}
	}
	switch code {
	case "404":
		return DamageMissing
	case "401", "403":
		return DamageDenied
	case "429", "503":
		return DamageThrottled
	case "409", "412":
		return DamageConflict
	case "416":
		return DamageTruncated
	}
	switch {
	case throttled.MatchString(rest):
		return DamageThrottled
	case denied.MatchString(rest):
		return DamageDenied
	case strings.HasPrefix(code, "5"):
		return DamageUnknown // the store failed; the object may be whole
	case conflict.MatchString(rest):
		return DamageConflict
	case truncated.MatchString(rest):
		return DamageTruncated
	case gone.MatchString(rest), named && notFound.MatchString(rest):
		return DamageMissing
	}
	return DamageUnknown
}

// knownSentences are texts that tell a role, or a damage, without naming a file.
// Observed on damaged tables of releases 0.22 to 0.39 of the library.
var knownSentences = []struct {
	text   string
	role   reconcile.Role
	damage Damage
}{
	// Only deletion files of tables are Arrow IPC files.
	{"LanceError(Arrow): Io error: invalid seek to a negative or overflowing position", reconcile.RoleDeletion, DamageTruncated},
	{"Parser error: Arrow file does not contain correct footer", reconcile.RoleDeletion, DamageTruncated},
	// A shard manifest of no bytes is a message without fields.
	{"Missing shard_id in ShardManifest", reconcile.RoleWALManifest, DamageTruncated},
	{"Generic S3 error: Range started at 0 and ended at 0", reconcile.RoleManifest, DamageTruncated},
	// A manifest is read from its end: an empty one gives the empty range, one without its tail this text.
	{"Invalid range 0..0 for object of size 0 bytes", reconcile.RoleManifest, DamageTruncated},
	{"LanceError(IO): file size is too small", reconcile.RoleManifest, DamageTruncated},
	{"Transaction message did not contain an operation", reconcile.RoleTransaction, DamageTruncated},
	// An older release lost the index.idx of a vector index and asks for a plugin of that name.
	{"No scalar index plugin found for name vector", reconcile.RoleIndex, DamageMissing},
	{"LanceError(Index): unsupported index version", reconcile.RoleIndex, DamageTruncated},
}
