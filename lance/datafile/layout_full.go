package datafile

// sink takes the values of a full zip page one by one.
type sink interface {
	add(v []byte) error
	null() error // a null that has no bytes
	array() (*Array, error)
}

// plainSink takes values as they are, or decodes their bytes first.
type plainSink struct {
	d    *decoder
	f    *Field
	e    *encoding // of the values
	fsst *fsst
	b    *builder
}

func (s *plainSink) add(v []byte) error { return s.decode(s.e, v) }

func (s *plainSink) decode(e *encoding, v []byte) (err error) {
	switch {
	case e.kind == encGeneral && len(v) == 0:
		return s.decode(e.inner, v)
	case e.kind == encGeneral:
		if v, err = s.d.decompress(e.scheme, v); err != nil {
			return err
		}
		return s.decode(e.inner, v)
	case e.kind == encFsst:
		if e.inner.kind != encVariable {
			return unsupported("fsst of %s", e.inner.name())
		}
		if s.fsst == nil {
			if s.fsst, err = parseFsst(e.symbols); err != nil {
				return err
			}
		}
		if s.b.bits != 0 {
			return corrupt("fsst of values of fixed width")
		}
		return s.fsst.add(s.b, v)
	case e.kind == encVariable:
		if s.b.bits != 0 {
			return corrupt("values of any width where %d bits are due", s.b.bits)
		}
		return s.b.addVar(v)
	case e.kind == encFixedList:
		if e.inner.kind != encFlat {
			return unsupported("fixed size list of %s", e.inner.name())
		}
		n := 0
		if e.nulls {
			n = (e.items + 7) / 8
			if len(v) < n {
				return corrupt("validity of %d items in %d bytes", e.items, len(v))
			}
			if err := s.b.itemsValid(v[:n], e.items); err != nil {
				return err
			}
		}
		return s.b.add(v[n:], 1)
	case e.kind == encFlat, e.kind == encPacked:
		return s.b.add(v, 1)
	}
	return unsupported("%s in a full zip page", e.name())
}

func (s *plainSink) null() error {
	if s.b.bits == 0 {
		return s.b.addVar(nil)
	}
	if s.e.kind == encFixedList && s.e.nulls {
		if err := s.b.itemsValid(make([]byte, (s.e.items+7)/8), s.e.items); err != nil {
			return err
		}
	}
	if s.b.bits > maxNull {
		return unsupported("nulls of %d bits", s.b.bits)
	}
	return s.b.add(make([]byte, (s.b.bits+7)/8), 1)
}

// maxNull is how many bits a null may become that has none in the page.
const maxNull = 1 << 20

func (s *plainSink) array() (*Array, error) { return leafArray(s.f, s.b, s.e) }

// structSink takes the values of a variable packed struct: its children one after
// the other, those of any width with their length before them.
type structSink struct {
	f     *Field
	e     *encoding
	names []string
	kids  []sink
	n     int
}

func (s *structSink) add(v []byte) error {
	s.n++
	for i, p := range s.e.parts {
		n := uint64(p.bits / 8)
		if p.length {
			if len(v) < p.bits/8 {
				return corrupt("a packed struct that ends before its part %d", i)
			}
			n, v = lengthOf(v, p.bits/8), v[p.bits/8:]
		}
		if n > uint64(len(v)) {
			return corrupt("a packed struct that ends within its part %d", i)
		}
		if err := s.kids[i].add(v[:n:n]); err != nil {
			return err
		}
		v = v[n:]
	}
	return nil
}

func (s *structSink) null() error {
	s.n++
	for _, k := range s.kids {
		if err := k.null(); err != nil {
			return err
		}
	}
	return nil
}

func (s *structSink) array() (*Array, error) {
	a := &Array{typ: parseType(s.f.LogicalType, 0), blob: s.f.Blob, form: formStruct, n: s.n, names: s.names}
	for _, k := range s.kids {
		kid, err := k.array()
		if err != nil {
			return nil, err
		}
		a.kids = append(a.kids, kid)
	}
	return a, nil
}

// lengthOf reads a little-endian number of w bytes.
func lengthOf(b []byte, w int) (n uint64) {
	for i := range w {
		n |= uint64(b[i]) << (8 * i)
	}
	return n
}

func (d *decoder) sink(f *Field, e *encoding) (sink, error) {
	if e.kind != encVariablePacked {
		return &plainSink{d: d, f: f, e: e, b: newBuilder(e.valueBits(), maxDecoded)}, nil
	}
	names, types, err := parts(f, len(e.parts))
	if err != nil {
		return nil, err
	}
	s := &structSink{f: f, e: e, names: names}
	for i, p := range e.parts {
		kid, err := d.sink(&Field{Name: names[i], LogicalType: types[i].name}, p.enc)
		if err != nil {
			return nil, err
		}
		s.kids = append(s.kids, kid)
	}
	return s, nil
}

// fullZip decodes a page of values that lie one by one, each behind a control word
// with its levels and, when it may be of any width, its length.
func (d *decoder) fullZip(f *Field, m message, bufs [][]byte) (*leaf, error) {
	layers, err := parseLayers(m, 8)
	if err != nil {
		return nil, err
	}
	e, err := parseEncoding(m.bytes(7), 0)
	if err != nil {
		return nil, err
	}
	repBits, defBits := m.uint(1), m.uint(2)
	items := m.uint(5)
	if repBits > 16 || defBits > 16 || len(bufs) == 0 || items > maxDecoded {
		return nil, corrupt("a full zip page of %d items in %d buffers, with levels of %d and %d bits", items, len(bufs), repBits, defBits)
	}
	z := zipped{rest: bufs[0], repBits: int(repBits), defBits: int(defBits), top: uint16(maxVisible(layers)), out: &leaf{layers: layers}}
	if z.sink, err = d.sink(f, e); err != nil {
		return nil, err
	}
	if m.has(3) {
		err = z.fixed(m.uint(3), int(items))
	} else {
		err = z.variable(m.uint(4))
	}
	if err != nil {
		return nil, err
	}
	z.out.values, err = z.sink.array()
	return z.out, err
}

// zipped is the data of a full zip page on its way.
type zipped struct {
	rest             []byte
	repBits, defBits int
	top              uint16 // the highest level that has a value
	sink             sink
	out              *leaf
}

// control reads the control word of the next value, and keeps its levels.
func (z *zipped) control() (def uint16, err error) {
	bits := z.repBits + z.defBits
	if bits == 0 {
		return 0, nil
	}
	w := 1
	switch {
	case bits > 16:
		w = 4
	case bits > 8:
		w = 2
	}
	if len(z.rest) < w {
		return 0, corrupt("a page that ends within a control word")
	}
	word := lengthOf(z.rest, w)
	z.rest = z.rest[w:]
	def = uint16(word & (1<<z.defBits - 1))
	if z.defBits > 0 {
		z.out.def = append(z.out.def, def)
	}
	if z.repBits > 0 {
		z.out.rep = append(z.out.rep, uint16(word>>z.defBits&(1<<z.repBits-1)))
	}
	return def, nil
}

func (z *zipped) fixed(bits uint64, items int) error {
	if bits == 0 || bits%8 != 0 || bits > maxWidth+maxWidth/8 {
		return unsupported("full zip values of %d bits", bits)
	}
	w := int(bits / 8)
	for range items {
		def, err := z.control()
		if err != nil {
			return err
		}
		if def > z.top {
			continue
		}
		if len(z.rest) < w {
			return corrupt("a page that ends within a value")
		}
		if err := z.sink.add(z.rest[:w:w]); err != nil {
			return err
		}
		z.rest = z.rest[w:]
	}
	return nil
}

func (z *zipped) variable(bits uint64) error {
	if bits != 8 && bits != 16 && bits != 32 && bits != 64 {
		return unsupported("full zip lengths of %d bits", bits)
	}
	w := int(bits / 8)
	for len(z.rest) > 0 {
		def, err := z.control()
		switch {
		case err != nil:
			return err
		case def > z.top:
			continue
		case def != 0:
			if err := z.sink.null(); err != nil {
				return err
			}
			continue
		}
		if len(z.rest) < w {
			return corrupt("a page that ends within a length")
		}
		n := lengthOf(z.rest, w)
		z.rest = z.rest[w:]
		if n > uint64(len(z.rest)) {
			return corrupt("a value of %d bytes where %d are left", n, len(z.rest))
		}
		if err := z.sink.add(z.rest[:n:n]); err != nil {
			return err
		}
		z.rest = z.rest[n:]
	}
	return nil
}
