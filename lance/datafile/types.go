package datafile

import (
	"strconv"
	"strings"
)

type kind uint8

const (
	kindUnknown kind = iota
	kindNull
	kindBool
	kindInt // two's complement: integers, dates, times, timestamps, durations
	kindUint
	kindFloat
	kindBFloat
	kindBytes // of any length
	kindFixedBytes
	kindFixedList // of values of fixed width, in one column
	kindList
	kindStruct
)

// maxWidth is the widest value of fixed width that is believed, in bits: a
// vector of a million doubles.
const maxWidth = 64 << 20

// logical is a parsed logical type.
type logical struct {
	name string
	kind kind
	bits int      // width of one value, 0 when it has none
	item *logical // of a fixed size list
	dim  int      // of a fixed size list
	dict bool     // a declared Arrow dictionary; the rest describes its values
}

var plainTypes = map[string]logical{
	"null": {kind: kindNull}, "bool": {kind: kindBool, bits: 1},
	"int8": {kind: kindInt, bits: 8}, "int16": {kind: kindInt, bits: 16}, "int32": {kind: kindInt, bits: 32}, "int64": {kind: kindInt, bits: 64},
	"uint8": {kind: kindUint, bits: 8}, "uint16": {kind: kindUint, bits: 16}, "uint32": {kind: kindUint, bits: 32}, "uint64": {kind: kindUint, bits: 64},
	"halffloat": {kind: kindFloat, bits: 16}, "float": {kind: kindFloat, bits: 32}, "double": {kind: kindFloat, bits: 64},
	"lance.bfloat16": {kind: kindBFloat, bits: 16},
	"string":         {kind: kindBytes}, "large_string": {kind: kindBytes}, "binary": {kind: kindBytes}, "large_binary": {kind: kindBytes},
	"json": {kind: kindBytes}, "blob": {kind: kindBytes},
	"struct": {kind: kindStruct},
	"list":   {kind: kindList}, "large_list": {kind: kindList}, "list.struct": {kind: kindList}, "large_list.struct": {kind: kindList}, "map": {kind: kindList},
}

// parametric are the widths in bits of types that have parameters.
var parametric = map[string]map[string]int{
	"date32": {"": 32}, "date64": {"": 64}, "time32": {"": 32}, "time64": {"": 64},
	"timestamp": {"": 64}, "duration": {"": 64},
	"decimal": {"32": 32, "64": 64, "128": 128, "256": 256},
}

// parseType reads a logical type; one that is not known has kindUnknown.
func parseType(s string, depth int) *logical {
	t := &logical{name: s}
	head, rest, _ := strings.Cut(s, ":")
	if plain, ok := plainTypes[s]; ok {
		plain.name = s
		return &plain
	}
	if depth > maxDepth {
		return t
	}
	if widths, ok := parametric[head]; ok {
		first, _, _ := strings.Cut(rest, ":")
		if bits := widths[""]; bits != 0 {
			t.kind, t.bits = kindInt, bits
		} else if bits := widths[first]; bits != 0 {
			t.kind, t.bits = kindFixedBytes, bits
		}
		return t
	}
	switch head {
	case "fixed_size_binary":
		if n, err := strconv.Atoi(rest); err == nil && n >= 0 && n <= maxWidth/8 {
			t.kind, t.bits = kindFixedBytes, 8*n
		}
	case "fixed_size_list":
		i := strings.LastIndexByte(rest, ':')
		if i < 0 {
			return t
		}
		item := parseType(rest[:i], depth+1)
		n, err := strconv.Atoi(rest[i+1:])
		if err == nil && n >= 0 && item.bits > 0 && n <= maxWidth/item.bits {
			t.kind, t.item, t.dim, t.bits = kindFixedList, item, n, n*item.bits
		}
	case "dict":
		if parts := strings.Split(rest, ":"); len(parts) >= 3 {
			value := *parseType(strings.Join(parts[:len(parts)-2], ":"), depth+1)
			value.name, value.dict = s, true
			return &value
		}
	}
	return t
}
