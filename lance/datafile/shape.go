package datafile

// shape puts the structs and lists of path around the values of a leaf; path[0]
// is the leaf's field, the last one the top-level field. The levels say how:
// level 0 is a value that continues its list, higher ones lie further out.
func (l *leaf) shape(path []*Field, rows int) (*Array, error) {
	extra := 0
	if path[0].Blob == BlobV2 && len(l.layers) == len(path)+1 && !isList(l.layers[0]) {
		extra = 1 // some writers give the descriptor's content a layer of its own
	}
	if len(l.layers) != len(path)+extra {
		return nil, corrupt("%d layers for %d nested fields", len(l.layers), len(path))
	}
	s := shaper{rep: l.rep, def: l.def, toRep: listDepths(l.layers)}
	for _, d := range l.def {
		if int(d) >= len(s.toRep) {
			return nil, corrupt("definition level %d of %d", d, len(s.toRep))
		}
	}
	if l.rep != nil && l.def != nil && len(l.rep) != len(l.def) {
		return nil, corrupt("%d repetition and %d definition levels", len(l.rep), len(l.def))
	}
	cur := l.values
	for k, layer := range l.layers {
		var err error
		switch {
		case isList(layer):
			if k-extra < 1 {
				return nil, corrupt("a leaf with the layer of a list")
			}
			cur, err = s.list(path[k-extra], l.layers, k, cur)
		case k <= extra:
			cur, err = s.item(layer, cur)
		default:
			f := path[k-extra]
			t := parseType(f.LogicalType, 0)
			if t.kind != kindStruct {
				return nil, corrupt("layer %d is a struct and the field %s", k, f.LogicalType)
			}
			inner := path[k-extra-1]
			cur, err = s.item(layer, &Array{typ: t, form: formStruct, n: cur.n, names: []string{inner.Name}, kids: []*Array{cur}})
		}
		if err != nil {
			return nil, err
		}
		if k == 0 {
			if err := cur.checkEntries(); err != nil {
				return nil, err
			}
		}
	}
	if cur.n != rows {
		return nil, corrupt("levels of %d rows instead of %d", cur.n, rows)
	}
	return cur, nil
}

// listDepths says for each definition level within how many lists, counted from
// the inside, its place is.
func listDepths(layers []uint64) []uint16 {
	out := []uint16{0}
	r := uint16(0)
	for _, l := range layers {
		if isList(l) {
			r++
		}
		for range codes[l] {
			out = append(out, r)
		}
	}
	return out
}

// shaper walks the layers from the inside out.
type shaper struct {
	rep, def []uint16
	toRep    []uint16
	cmp      uint16 // levels of the layers done
	depth    uint16 // lists done
}

// item sets the validity of values or structs.
func (s *shaper) item(layer uint64, a *Array) (*Array, error) {
	n := a.n
	if s.def == nil && s.rep != nil {
		n = len(s.rep)
	}
	if s.def != nil {
		valid := &bitmap{b: make([]byte, 0, len(s.def)/8+1)}
		for _, d := range s.def {
			if s.toRep[d] <= s.depth {
				valid.add(d <= s.cmp)
			}
		}
		n = valid.n
		b := *a
		if b.valid == nil {
			b.valid = valid.bytes()
		} else if v := valid.bytes(); v != nil { // the extra layer of a descriptor
			b.valid = and(b.valid, v)
		}
		a = &b
	}
	if n != a.n {
		return nil, corrupt("levels of %d values instead of %d", n, a.n)
	}
	if layer == layerNullItem {
		s.cmp++
	}
	return a, nil
}

func and(a, b []byte) []byte {
	out := make([]byte, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] & b[i]
	}
	return out
}

// list gathers items into lists.
func (s *shaper) list(f *Field, layers []uint64, k int, items *Array) (*Array, error) {
	t := parseType(f.LogicalType, 0)
	if t.kind != kindList {
		return nil, corrupt("layer %d is a list and the field %s", k, f.LogicalType)
	}
	if s.rep == nil {
		return nil, corrupt("lists without repetition levels")
	}
	null, empty := uint16(0xFFFF), uint16(0xFFFF)
	upper := s.cmp + uint16(codes[layers[k]])
	switch layers[k] {
	case layerNullList:
		null = s.cmp + 1
	case layerEmptyList:
		empty = s.cmp + 1
	case layerNullEmptyList:
		null, empty = s.cmp+1, s.cmp+2
	}
	top := upper
	for _, l := range layers[k+1:] {
		if isList(l) {
			break
		}
		top += uint16(codes[l])
	}
	a := &Array{typ: t, form: formList, items: items, offs: []uint32{0}}
	valid := &bitmap{}
	var rep, def []uint16
	count := uint32(0)
	for i, r := range s.rep {
		d := uint16(0)
		if s.def != nil {
			d = s.def[i]
		}
		if r == 0 {
			if valid.n == 0 {
				return nil, corrupt("an item before the first list")
			}
			count++
			continue
		}
		rep, def = append(rep, r-1), append(def, d)
		if d > top {
			continue // of a list further out, which has no list here
		}
		a.offs = append(a.offs, count)
		valid.add(d != null && d <= upper)
		if d != null && d != empty && d <= upper {
			count++
		}
	}
	a.n = valid.n
	// offs holds where each list starts, and one 0 too many in front.
	a.offs = append(a.offs[1:], count)
	if s.def != nil {
		a.valid = valid.bytes()
		s.def = def
	}
	s.rep = rep
	if int(count) != items.n {
		return nil, corrupt("lists of %d items instead of %d", count, items.n)
	}
	s.cmp, s.depth = upper, s.depth+1
	return a, nil
}
