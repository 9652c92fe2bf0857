// Package refs reads references to blobs from where an application keeps them: the
// rows of a CSV, JSON-lines or Parquet file, of a Lance table, or of a Postgres query.
//
// A reader streams records in constant memory, but for a digest of each key by which
// it notices keys that come twice. What is wrong with a row is told beside the records
// as a [RowError] and never ends the walk; keys are exact, nothing in them is decoded
// or cleaned. Readers only read, and there is no judgement of any object here.
package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Unknown is the size of a record that tells none.
const Unknown int64 = -1

// Record is one reference to a blob.
type Record struct {
	// Key names the blob as the source spells it: a key, or an absolute URI.
	Key string
	// Size in bytes, or Unknown. A recorded 0 is Unknown too.
	Size int64
	// Checksum is "sha256:<hex>", "crc32c:<base64>" or "md5:<hex>"; empty when not
	// recorded.
	Checksum string
	// Record is the id of the application's record that names the blob; empty when not
	// told.
	Record string
	// Position, handed back to Records, goes on after this record. Opaque.
	Position string
}

// Reader reads the references of one collection. Its methods may be called by several
// goroutines; each call sees the source as it is then.
type Reader interface {
	// Records streams all records behind the position after ("" = from the start). A
	// row that cannot be used as it stands is a *RowError, after which the sequence
	// goes on; any other error ends it, and what came before is then not the whole.
	// ErrPositionGone: the source is no longer the one that the position was made in;
	// begin anew. It touches the network.
	Records(ctx context.Context, after string) iter.Seq2[Record, error]
	// Confirm reads the records of these keys again, now: a key that is not returned is
	// not named any more. Of a key whose rows contradict each other, what they
	// contradict each other in is returned as not recorded. An error says nothing about
	// any key. It touches the network.
	Confirm(ctx context.Context, keys []string) (map[string]Record, error)
	// NamedSince is a time, by the store's own clock, since when everything that
	// Records yields now has been named at least; zero when that is not known. It
	// touches the network.
	NamedSince(ctx context.Context) (time.Time, error)
	// Resumable reports whether Position means anything.
	Resumable() bool
	// Close frees what the reader holds. Running calls must have ended.
	Close() error
}

// Counter is a Reader that counts. All readers of this package are.
type Counter interface {
	// Counts of the newest call of Records, as far as it came.
	Counts() Counts
}

// Counts say what became of the rows behind the position that a walk began at.
type Counts struct {
	// Rows that were read; Records that were yielded.
	Rows, Records int64
	// Unnamed rows name no blob, and need not (a null in a column of a Lance table, a
	// row that the filter leaves out).
	Unnamed int64
	// Doubled rows say the same as an earlier row with their key, and Contradicting
	// ones something else.
	Doubled, Contradicting int64
	// Unremembered keys came when the memory for keys was full: if they come again,
	// that goes unnoticed, and they are yielded again.
	Unremembered int64
	// Bad rows were told as a RowError without a record.
	Bad int64
}

// ErrPositionGone: the source changed since the position was made.
var ErrPositionGone = errors.New("the references changed since the position was recorded; begin anew")

// ErrChanged: the source changed while it was read.
var ErrChanged = errors.New("the references changed while they were read")

// Reasons of row errors. They are few, so that they can be counted.
const (
	// ReasonNoKey: the row has a null or an empty key.
	ReasonNoKey = "no key"
	// ReasonMalformed: the row cannot be taken apart (ragged, bad quotes, no JSON, too
	// long).
	ReasonMalformed = "malformed row"
	// ReasonSize: the size is no whole number of bytes; the record comes without it.
	ReasonSize = "bad size"
	// ReasonChecksum: the checksum is of no known form; the record comes without it.
	ReasonChecksum = "unknown checksum"
	// ReasonDoubled: rows say the same as an earlier one. Told once, at the end.
	ReasonDoubled = "doubled key"
	// ReasonConflict: rows with one key give other sizes or checksums.
	ReasonConflict = "conflicting records"
)

// RowError says what is wrong with a row, or with several.
type RowError struct {
	// Row is the line of a CSV or JSON-lines file at which the row begins, counted from
	// 1, the ordinal of a row elsewhere, and 0 where rows have none (Postgres).
	Row int64
	// Reason is one of the Reason words, Detail what there is to say beyond it.
	Reason, Detail string
	// Count of rows that this stands for; at least 1.
	Count int64
	// Partial means that the key is looked at nevertheless: its record was yielded
	// before, or comes next without what is wrong.
	Partial bool
	// Position goes on after this row, as in [Record]; empty when the position of the
	// record before is the one to keep.
	Position string
}

// Error implements error.
func (e *RowError) Error() string {
	s := e.Reason
	if e.Row > 0 {
		s = fmt.Sprintf("row %d: %s", e.Row, s)
	}
	if e.Count > 1 {
		s = fmt.Sprintf("%s (%d rows)", s, e.Count)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Columns name where in a row things stand. Names are exact.
type Columns struct {
	// Key is required. The others are not recorded when empty; a name that is not there
	// is an error.
	Key, Size, Checksum, Record string
}
