package datafile

import (
	"math"
	"slices"
)

// maxItems is how many values are put together at most, unless the file is large
// enough for more.
const maxItems = 1 << 24

// concat puts arrays of the same field behind each other.
func concat(parts []*Array, depth int) (*Array, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	n := 0
	for _, p := range parts {
		n += p.n
	}
	t := parts[0].typ
	if parts[0].blob != NotBlob {
		return nil, unsupported("blobs in lists")
	}
	if !slices.ContainsFunc(parts, func(p *Array) bool { return p.form != formNull }) {
		all := *parts[0]
		all.n = n
		return &all, nil
	}
	valid := &bitmap{}
	for _, p := range parts {
		for i := range p.n {
			valid.add(!p.Null(i))
		}
	}
	var a *Array
	var err error
	switch t.kind {
	case kindStruct:
		a, err = concatStructs(parts, depth)
	case kindList, kindFixedList:
		a, err = concatLists(parts, depth)
	case kindNull:
		return &Array{typ: t, n: n}, nil
	default:
		a, err = concatValues(t, parts)
	}
	if err != nil {
		return nil, err
	}
	a.typ, a.n, a.valid = t, n, valid.bytes()
	return a, nil
}

func concatValues(t *logical, parts []*Array) (*Array, error) {
	b := newBuilder(t.bits, maxDecoded)
	zero := make([]byte, (t.bits+7)/8)
	for _, p := range parts {
		for i := range p.n {
			v := zero
			switch at := p.at(i); {
			case p.nullAt(at) && t.kind == kindBytes:
				v = nil
			case p.nullAt(at):
			case t.bits == 1:
				v = []byte{byte(p.word(at))}
			default:
				v = p.bytesAt(at)
			}
			err := error(nil)
			if t.kind == kindBytes {
				err = b.addVar(v)
			} else {
				err = b.add(v, 1)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return b.array(t)
}

func concatStructs(parts []*Array, depth int) (*Array, error) {
	a := &Array{form: formStruct, names: parts[0].names, blob: parts[0].blob}
	for k := range a.names {
		kids := make([]*Array, len(parts))
		for i, p := range parts {
			if len(p.kids) != len(a.names) {
				return nil, corrupt("structs of %d and %d children", len(p.kids), len(a.names))
			}
			kids[i] = p.child(k)
		}
		kid, err := concat(kids, depth+1)
		if err != nil {
			return nil, err
		}
		a.kids = append(a.kids, kid)
	}
	return a, nil
}

// concatLists leaves the items where they are when they are whole, and takes the
// place of a fixed size list of nulls by nulls.
func concatLists(parts []*Array, depth int) (*Array, error) {
	t := parts[0].typ
	a := &Array{form: formList, dim: t.dim, offs: []uint32{0}}
	if t.kind == kindFixedList {
		a.form, a.offs = formFixedList, nil
	}
	var items []*Array
	count := 0
	for _, p := range parts {
		var keep []int
		for i := range p.n {
			_, lo, hi := p.List(i)
			for k := lo; k < hi; k++ {
				keep = append(keep, k)
			}
			count += hi - lo
			if t.kind == kindFixedList && hi == lo && t.dim > 0 { // a null
				items = append(items, p.Items().Take(keep), &Array{typ: t.item, n: t.dim})
				keep, count = nil, count+t.dim
			}
			if count > math.MaxUint32 {
				return nil, unsupported("%d items in one page", count)
			}
			if t.kind == kindList {
				a.offs = append(a.offs, uint32(count))
			}
		}
		items = append(items, p.Items().Take(keep))
	}
	var err error
	a.items, err = concat(items, depth+1)
	return a, err
}
