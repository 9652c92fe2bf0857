package datafile

// miniLayout is a MiniBlockLayout.
type miniLayout struct {
	rep, def, values, dict *encoding
	dictItems              int
	buffers                int // value buffers a chunk
	items                  int
	large                  bool // four bytes for chunk words and sizes
	layers                 []uint64
	index                  bool // the last buffer is a repetition index
}

func parseMini(m message) (l *miniLayout, err error) {
	l = &miniLayout{large: m.uint(10) != 0, index: m.uint(8) > 0}
	for num, to := range map[int32]**encoding{1: &l.rep, 2: &l.def, 3: &l.values, 4: &l.dict} {
		if !m.has(wireNumber(num)) {
			continue
		}
		if *to, err = parseEncoding(m.bytes(wireNumber(num)), 0); err != nil {
			return nil, err
		}
	}
	if l.values == nil {
		return nil, corrupt("a mini-block page without a value encoding")
	}
	dictItems, buffers, items := m.uint(5), m.uint(7), m.uint(9)
	if dictItems > maxDecoded || buffers == 0 || buffers > 16 || items > maxDecoded {
		return nil, corrupt("a mini-block page of %d items, %d value buffers, %d in the dictionary", items, buffers, dictItems)
	}
	l.dictItems, l.buffers, l.items = int(dictItems), int(buffers), int(items)
	l.layers, err = parseLayers(m, 6)
	return l, err
}

// miniBlock decodes a page of many small chunks.
func (d *decoder) miniBlock(f *Field, m message, p page, bufs [][]byte) (*leaf, error) {
	l, err := parseMini(m)
	if err != nil {
		return nil, err
	}
	want := 2
	if l.dict != nil {
		want++
	}
	if len(bufs) < want {
		return nil, corrupt("a mini-block page of %d buffers", len(bufs))
	}
	out := &leaf{layers: l.layers}
	b := newBuilder(l.values.valueBits(), maxDecoded)
	b.reserve(l.items, len(bufs[1]))
	words, chunks := bufs[0], bufs[1]
	size := 2
	if l.large {
		size = 4
	}
	for len(words) >= size {
		w := loadWord(words, 0, 8*size)
		words = words[size:]
		n := 1 << (w & 15)
		if len(words) < size {
			n = l.items - b.n
		}
		bytes := (int(w>>4) + 1) * 8
		if bytes > len(chunks) || n < 0 || n > l.items-b.n {
			return nil, corrupt("a chunk of %d values in %d of %d bytes", n, bytes, len(chunks))
		}
		if err := d.chunk(l, b, out, chunks[:bytes:bytes], n); err != nil {
			return nil, err
		}
		chunks = chunks[bytes:]
	}
	if b.n != l.items {
		return nil, corrupt("chunks of %d values instead of %d", b.n, l.items)
	}
	if l.dict == nil {
		out.values, err = leafArray(f, b, l.values)
		return out, err
	}
	entries, err := d.block(l.dict, bufs[2], l.dictItems)
	if err != nil {
		return nil, err
	}
	dict, err := entries.array(parseType(f.LogicalType, 0))
	if err != nil {
		return nil, err
	}
	out.values, err = dictionary(b, dict)
	return out, err
}

// reserve makes room for n values, as far as size bytes of input make them
// believable.
func (b *builder) reserve(n, size int) {
	if n = min(n, 8*size); n <= 0 {
		return
	}
	if b.bits == 0 {
		b.offs = append(make([]uint32, 0, n+1), b.offs...)
		b.data = make([]byte, 0, size)
		return
	}
	if b.bits <= 64 {
		b.data = make([]byte, 0, n*b.bits/8+1)
	}
}

// chunk decodes one chunk: sizes, levels, value buffers, each padded to 8 bytes.
func (d *decoder) chunk(l *miniLayout, b *builder, out *leaf, c []byte, n int) error {
	at := 0
	number := func(size int) int {
		if at+size > len(c) {
			at = len(c) + 1
			return 0
		}
		v := loadWord(c[at:], 0, 8*size)
		at += size
		return int(v)
	}
	levels := number(2)
	sizes := make([]int, 0, 4)
	if l.rep != nil {
		sizes = append(sizes, number(2))
	}
	if l.def != nil {
		sizes = append(sizes, number(2))
	}
	nLevels := len(sizes)
	for range l.buffers {
		if l.large {
			sizes = append(sizes, number(4))
		} else {
			sizes = append(sizes, number(2))
		}
	}
	bufs := make([][]byte, 0, 4)
	for _, size := range sizes {
		at = (at + 7) &^ 7
		if at > len(c) || size > len(c)-at {
			return corrupt("a buffer of %d bytes at %d of a chunk of %d", size, at, len(c))
		}
		bufs = append(bufs, c[at:at+size:at+size])
		at += size
	}
	if l.rep != nil {
		v, err := d.levels(l.rep, bufs[0], levels)
		if err != nil {
			return err
		}
		out.rep = append(out.rep, v...)
	}
	if l.def != nil {
		v, err := d.levels(l.def, bufs[nLevels-1], levels)
		if err != nil {
			return err
		}
		out.def = append(out.def, v...)
	}
	return d.mini(b, l.values, bufs[nLevels:], n)
}
