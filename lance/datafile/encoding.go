package datafile

// encoding is a parsed CompressiveEncoding of format 2.1 and later.
type encoding struct {
	kind    uint8 // the number of its field in the message, one of the enc constants
	bits    int   // of a value or word; of one row of a packed struct
	width   int   // bits of a word packed out of line
	inner   *encoding
	lengths *encoding // of runs
	symbols []byte    // FSST table
	scheme  uint64
	items   int
	nulls   bool // items have a validity bit each
	parts   []structPart
}

// structPart is a child of a packed struct.
type structPart struct {
	bits   int       // of the value, or of its length
	length bool      // bits is the width of a length before the value
	enc    *encoding // of a variable packed struct only
}

const (
	encFlat           = 1
	encVariable       = 2
	encConstant       = 3
	encOutOfLine      = 4
	encInline         = 5
	encFsst           = 6
	encDictionary     = 7
	encRle            = 8
	encByteStream     = 9
	encGeneral        = 10
	encFixedList      = 11
	encPacked         = 12
	encVariablePacked = 13
	encRange          = 14
	encDelta          = 15
)

var encodingNames = map[uint8]string{
	encConstant: "constant", encDictionary: "dictionary", encRange: "range", encDelta: "delta",
	encFlat: "flat", encVariable: "variable", encOutOfLine: "out-of-line bitpacking", encInline: "inline bitpacking", encFsst: "fsst",
	encRle: "rle", encByteStream: "byte stream split", encGeneral: "general compression", encFixedList: "fixed size list",
	encPacked: "packed struct", encVariablePacked: "variable packed struct",
}

func (e *encoding) name() string { return encodingNames[e.kind] }

// parseEncoding reads a CompressiveEncoding.
func parseEncoding(b []byte, depth int) (*encoding, error) {
	if depth > maxDepth {
		return nil, unsupported("encodings more than %d deep", maxDepth)
	}
	outer, err := parse(b)
	if err != nil {
		return nil, err
	}
	if len(outer) == 0 {
		return nil, corrupt("an encoding that says nothing")
	}
	choice := outer[len(outer)-1]
	m, err := parse(choice.body)
	if err != nil {
		return nil, err
	}
	if choice.num > 255 || encodingNames[uint8(choice.num)] == "" {
		return nil, unsupported("compressive encoding of field number %d", choice.num)
	}
	e := &encoding{kind: uint8(choice.num)}
	switch e.kind {
	case encFlat:
		e.bits, err = width(m.uint(1), maxWidth)
		if m.has(2) && err == nil {
			err = unsupported("flat with buffer compression")
		}
	case encVariable, encOutOfLine, encInline:
		err = e.parseWords(m, depth)
	case encFsst:
		e.symbols = m.bytes(1)
		e.inner, err = parseEncoding(m.bytes(2), depth+1)
	case encRle:
		if e.inner, err = parseEncoding(m.bytes(1), depth+1); err == nil {
			e.lengths, err = parseEncoding(m.bytes(2), depth+1)
		}
	case encByteStream:
		e.inner, err = parseEncoding(m.bytes(1), depth+1)
	case encGeneral:
		var c message
		if c, err = m.sub(1); err == nil {
			e.scheme = c.uint(1)
			e.inner, err = parseEncoding(m.bytes(3), depth+1)
		}
	case encFixedList:
		e.nulls = m.uint(3) != 0
		if e.items, err = width(m.uint(1), maxWidth); err == nil {
			e.inner, err = parseEncoding(m.bytes(2), depth+1)
		}
	case encPacked:
		err = e.parsePacked(m, depth)
	case encVariablePacked:
		err = e.parseVariablePacked(m, depth)
	default:
		return nil, unsupported("%s", e.name())
	}
	return e, err
}

func width(v uint64, limit int) (int, error) {
	if v > uint64(limit) {
		return 0, corrupt("an encoding %d wide", v)
	}
	return int(v), nil
}

func (e *encoding) parseWords(m message, depth int) (err error) {
	if e.kind == encVariable {
		offsets, err := parseEncoding(m.bytes(1), depth+1)
		if err != nil {
			return err
		}
		if offsets.kind != encFlat || offsets.bits != 32 && offsets.bits != 64 {
			return unsupported("variable with %s offsets of %d bits", offsets.name(), offsets.bits)
		}
		e.bits = offsets.bits
		if m.has(2) {
			return unsupported("variable with buffer compression")
		}
		return nil
	}
	if e.bits, err = width(m.uint(1), 64); err != nil {
		return err
	}
	if e.bits != 8 && e.bits != 16 && e.bits != 32 && e.bits != 64 {
		return unsupported("%s of words of %d bits", e.name(), e.bits)
	}
	if e.kind == encInline {
		if m.has(2) {
			return unsupported("inline bitpacking with buffer compression")
		}
		return nil
	}
	packed, err := parseEncoding(m.bytes(3), depth+1)
	if err != nil {
		return err
	}
	if packed.kind != encFlat || packed.bits > e.bits {
		return unsupported("out-of-line bitpacking of %s, %d bits", packed.name(), packed.bits)
	}
	e.width = packed.bits
	return nil
}

func (e *encoding) parsePacked(m message, depth int) error {
	widths, err := m.uints(1)
	if err != nil {
		return err
	}
	for _, w := range widths {
		if w == 0 || w%8 != 0 || w > maxWidth {
			return unsupported("packed struct with a value of %d bits", w)
		}
		e.parts = append(e.parts, structPart{bits: int(w)})
		if e.bits += int(w); e.bits > maxWidth {
			return corrupt("a packed struct %d wide", e.bits)
		}
	}
	e.inner, err = parseEncoding(m.bytes(2), depth+1)
	return err
}

func (e *encoding) parseVariablePacked(m message, depth int) error {
	for _, w := range m {
		if w.num != 1 {
			continue
		}
		if len(e.parts) >= maxFields {
			return corrupt("a struct of more than %d parts", maxFields)
		}
		part, err := parse(w.body)
		if err != nil {
			return err
		}
		p := structPart{length: part.has(3)}
		bits := part.uint(2)
		if p.length {
			bits = part.uint(3)
		}
		if bits == 0 || bits%8 != 0 || bits > maxWidth || p.length && bits > 64 {
			return unsupported("variable packed struct with a part of %d bits", bits)
		}
		p.bits = int(bits)
		if p.enc, err = parseEncoding(part.bytes(1), depth+1); err != nil {
			return err
		}
		e.parts = append(e.parts, p)
	}
	return nil
}

// valueBits says how wide the values of an encoding are; 0 for those of any width.
func (e *encoding) valueBits() int {
	switch e.kind {
	case encFlat, encOutOfLine, encInline, encPacked:
		return e.bits
	case encRle, encByteStream, encGeneral:
		return e.inner.valueBits()
	case encFixedList:
		if bits := e.inner.valueBits(); bits != 0 && e.items <= maxWidth/bits {
			return e.items * bits
		}
	}
	return 0
}
