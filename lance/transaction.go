package lance

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Operation is what a transaction does: the number of its field in the message.
// Numbers from 100 that are not listed here are operations of later releases.
type Operation int32

// The operations.
const (
	OpAppend            Operation = 100
	OpDelete            Operation = 101
	OpOverwrite         Operation = 102
	OpCreateIndex       Operation = 103
	OpRewrite           Operation = 104
	OpMerge             Operation = 105
	OpRestore           Operation = 106
	OpReserveFragments  Operation = 107
	OpUpdate            Operation = 108
	OpProject           Operation = 109
	OpUpdateConfig      Operation = 110
	OpDataReplacement   Operation = 111
	OpUpdateMemWALState Operation = 112
	OpClone             Operation = 113
	OpUpdateBases       Operation = 114
	OpDataOverlay       Operation = 115
)

// String is the operation's name, or its number.
func (o Operation) String() string {
	names := [...]string{"append", "delete", "overwrite", "create_index", "rewrite", "merge", "restore",
		"reserve_fragments", "update", "project", "update_config", "data_replacement", "update_mem_wal_state",
		"clone", "update_bases", "data_overlay"}
	if i := int(o - OpAppend); i >= 0 && i < len(names) {
		return names[i]
	}
	return "operation " + strconv.Itoa(int(o))
}

// Transaction is what a commit did, or was about to do.
type Transaction struct {
	// ReadVersion is the version that the commit was made from.
	ReadVersion uint64
	// UUID identifies the commit.
	UUID string
	Tag  string
	// Properties are set by the committer; nil when there are none.
	Properties map[string]string
	Operation  Operation
	// DeletedFragmentIDs are fragments that the commit takes away: of a delete, an
	// update, and a rewrite.
	DeletedFragmentIDs []uint64
	// UpdatedFragmentIDs are fragments whose files it changes: of a delete, an
	// update, a merge, a data replacement and an overlay.
	UpdatedFragmentIDs []uint64
	// Predicate of a delete; empty otherwise.
	Predicate string
	// Raw is the message. It must not be changed.
	Raw []byte
}

// DecodeTransaction decodes a transaction message: the content of a .txn file. b
// must not change afterwards. The error is a *CorruptError; a message without an
// operation is one, as it is to the library.
func DecodeTransaction(b []byte) (Transaction, error) {
	t := Transaction{Raw: b}
	err := fields(b, func(f wireField) error {
		switch {
		case f.num == 1:
			return f.uint64(&t.ReadVersion)
		case f.num == 2:
			return f.string(&t.UUID)
		case f.num == 3:
			return f.string(&t.Tag)
		case f.num == 4:
			return f.intoMap(&t.Properties)
		case f.num >= 100 && f.num < 200 && f.typ == protowire.BytesType:
			// Of several the last one counts, as for any oneof.
			t.Operation = Operation(f.num)
			t.DeletedFragmentIDs, t.UpdatedFragmentIDs, t.Predicate = nil, nil, ""
			return t.operation(f.body)
		}
		return nil
	})
	if err != nil {
		return Transaction{}, err
	}
	if t.Operation == 0 {
		return Transaction{}, corrupt("transaction without an operation")
	}
	return t, nil
}

// operation reads which fragments an operation touches.
func (t *Transaction) operation(b []byte) error {
	return fields(b, func(f wireField) error {
		switch {
		case t.Operation == OpDelete && f.num == 1, t.Operation == OpUpdate && f.num == 2,
			t.Operation == OpMerge && f.num == 1, t.Operation == OpDataReplacement && f.num == 1,
			t.Operation == OpDataOverlay && f.num == 1:
			return t.firstNumber(f, &t.UpdatedFragmentIDs)
		case t.Operation == OpDelete && f.num == 2, t.Operation == OpUpdate && f.num == 1:
			return f.varints(func(v uint64) { t.DeletedFragmentIDs = append(t.DeletedFragmentIDs, v) })
		case t.Operation == OpDelete && f.num == 3:
			return f.string(&t.Predicate)
		case t.Operation == OpRewrite && f.num == 1:
			return t.firstNumber(f, &t.DeletedFragmentIDs)
		case t.Operation == OpRewrite && f.num == 3: // a group; its field 1 is the old fragments
			if err := f.is(protowire.BytesType); err != nil {
				return err
			}
			return fields(f.body, func(f wireField) error {
				if f.num != 1 {
					return nil
				}
				return t.firstNumber(f, &t.DeletedFragmentIDs)
			})
		}
		return nil
	})
}

// firstNumber appends field 1 of a message, which is the fragment id in each of
// the messages that operations hold.
func (t *Transaction) firstNumber(f wireField, ids *[]uint64) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	var id uint64
	err := fields(f.body, func(f wireField) error {
		if f.num != 1 {
			return nil
		}
		return f.uint64(&id)
	})
	*ids = append(*ids, id)
	return err
}
