package lance

import (
	"maps"
	"slices"
	"strings"
)

const (
	// RepairIDProperty is the transaction property that names the repair a commit
	// belongs to.
	RepairIDProperty = "reconcile.repair_id"

	// ownPrefix begins the properties of this program's transactions, one of which
	// every transaction has.
	ownPrefix         = "reconcile."
	operationProperty = ownPrefix + "operation"
	// messageProperty is where the library keeps a commit message.
	messageProperty = "__lance_commit_message"

	// maxInlineTransaction: the library keeps larger transactions in their file only.
	maxInlineTransaction = 20 << 20
)

// OwnTransaction reports whether a transaction was proposed by this package. A
// transaction file that no manifest names and that is not one's own may belong to
// a commit of somebody else that is under way.
func OwnTransaction(t Transaction) bool {
	for key := range t.Properties {
		if strings.HasPrefix(key, ownPrefix) {
			return true
		}
	}
	return false
}

// transactionName is the name of a transaction file below its folder.
func transactionName(readVersion uint64, uuid string) string {
	return uintText(readVersion) + "-" + uuid + ".txn"
}

// encodeTransaction makes the Transaction message, fields in the order of their
// numbers.
func encodeTransaction(readVersion uint64, c change, info CommitInfo) []byte {
	b := appendUint(nil, 1, readVersion)
	b = appendText(b, 2, info.UUID)
	properties := map[string]string{operationProperty: c.operation.String()}
	maps.Copy(properties, info.Properties)
	if info.Message != "" {
		properties[messageProperty] = info.Message
	}
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		b = appendMessage(b, 4, appendText(appendText(nil, 1, key), 2, properties[key]))
	}
	return appendMessage(b, protoNumber(c.operation), c.body)
}
