package harperfake

// Dialect is the generation of nodes that a server answers like.
type Dialect uint8

// The dialects.
const (
	Old Dialect = iota
	New
)

// Damage is what became of a blob's file; one for each row that real nodes were
// watched at.
type Damage uint8

// The kinds of damage. The comments say what a GET of the attribute meets: on an old
// node first, then on a new one.
const (
	// None: 200 and the bytes, on both.
	None Damage = iota
	// Deleted file: no answer; 404.
	Deleted
	// Truncated, header intact: 200, the length promised, half the bytes, then
	// nothing; 500.
	Truncated
	// Emptied to fewer bytes than a header: no answer; 500.
	Emptied
	// BitsFlipped: 200, full length, other bytes, on both.
	BitsFlipped
	// Shorter in header and body than the record says: 200 with the record's length,
	// the short body, cut off by the server after a time; from then on 200 with the
	// short length and a clean end. 500.
	Shorter
	// SentinelWhole: the header was never finished, the body is whole: 200, on both.
	SentinelWhole
	// SentinelShort: the writer died in the middle: 200, chunked, some of the bytes,
	// then nothing; 500.
	SentinelShort
	// SentinelEmpty: the writer died at once: no answer; 500.
	SentinelEmpty
	// ErrorStub holds the text of an error in place of the body: no answer; 500.
	ErrorStub
	// ExtraByte: one byte more than the header says: 200 and the right bytes; 500.
	ExtraByte
	// UnknownType in the header: 200 and the bytes; 500.
	UnknownType
	// PendingStub holds the reason why a transfer broke off: as Shorter, with the stub's
	// text as the body; 503.
	PendingStub
	// Compressed and healthy: 200, the length promised, the compressed bytes, then
	// nothing; 200 and the bytes.
	Compressed
	// Writing goes on right now: 200, chunked, the bytes slowly up to the end; 503.
	Writing
	// LateFailure: 200, the length promised, half the bytes, connection closed, on both.
	LateFailure
	// NullAttribute: the record holds no blob: 404, on both.
	NullAttribute
)

var damageNames = []string{"none", "deleted", "truncated", "emptied", "bits flipped", "shorter", "sentinel whole", "sentinel short", "sentinel empty",
	"error stub", "extra byte", "unknown type", "pending stub", "compressed", "writing", "late failure", "null attribute"}

// String names the damage as tests print it.
func (d Damage) String() string { return damageNames[d] }

// Damages lists all kinds, None first.
func Damages() []Damage {
	out := make([]Damage, len(damageNames))
	for i := range out {
		out[i] = Damage(i)
	}
	return out
}

// healable reports whether a node's own repair sees the damage: it reads headers and
// lengths, not content.
func (d Damage) healable() bool {
	switch d {
	case None, BitsFlipped, SentinelWhole, Compressed, Writing, NullAttribute, LateFailure:
		return false
	}
	return true
}

// newStatus is what a new node answers before the first byte; 0 means that it serves.
func (d Damage) newStatus() int {
	switch d {
	case Deleted, NullAttribute:
		return 404
	case Truncated, Emptied, Shorter, SentinelShort, SentinelEmpty, ErrorStub, ExtraByte, UnknownType:
		return 500
	case PendingStub, Writing:
		return 503
	}
	return 0
}
