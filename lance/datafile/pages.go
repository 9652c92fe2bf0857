package datafile

import (
	"cmp"
	"context"
	"slices"
)

const (
	// maxPage is how large a page may be; writers cut at about 8 MB, but a single
	// value may be larger.
	maxPage = 2 << 30
	// maxGap is how many unwanted bytes are read between two buffers to save a read.
	maxGap = 64 << 10
)

// column is the metadata of one file column.
type column struct {
	encoding []byte // Encoding of the column, in 2.0 only of interest for blobs
	pages    []page
	rows     int64 // sum over the pages; items for a list's items in 2.0
}

// page is the metadata of one page.
type page struct {
	buffers  []span
	rows     int64
	encoding []byte // Encoding message
}

// column reads the metadata of file column i.
func (f *File) column(ctx context.Context, i int) (*column, error) {
	if i < 0 || i >= len(f.columns) {
		return nil, corrupt("it has %d columns and the field is said to be in column %d", len(f.columns), i)
	}
	raw, err := f.read(ctx, f.columns[i])
	if err != nil {
		return nil, err
	}
	m, err := parse(raw)
	if err != nil {
		return nil, err
	}
	c := &column{encoding: m.bytes(1)}
	for _, w := range m {
		if w.num != 2 {
			continue
		}
		p, err := f.page(w.body)
		if err != nil {
			return nil, at(err, "", len(c.pages))
		}
		c.rows += p.rows
		c.pages = append(c.pages, p)
	}
	return c, nil
}

func (f *File) page(b []byte) (p page, err error) {
	m, err := parse(b)
	if err != nil {
		return p, err
	}
	offs, err := m.uints(1)
	if err != nil {
		return p, err
	}
	sizes, err := m.uints(2)
	if err != nil {
		return p, err
	}
	if len(offs) != len(sizes) {
		return p, corrupt("%d buffers with %d sizes", len(offs), len(sizes))
	}
	var sum uint64
	for i, off := range offs {
		if off > uint64(f.size) || sizes[i] > uint64(f.size)-off {
			return p, corrupt("buffer %d lies outside the file", i)
		}
		if sum += sizes[i]; sum > uint64(f.size) {
			return p, corrupt("its buffers are longer than the file")
		}
		p.buffers = append(p.buffers, span{int64(off), int64(sizes[i])})
	}
	rows := m.uint(3)
	if rows > 1<<36 {
		return p, corrupt("%d rows", rows)
	}
	p.rows, p.encoding = int64(rows), m.bytes(4)
	return p, nil
}

// load reads the buffers of a page, those close to each other at once.
func (f *File) load(ctx context.Context, buffers []span) ([][]byte, error) {
	out := make([][]byte, len(buffers))
	order := make([]int, len(buffers))
	var sum int64
	for i, b := range buffers {
		order[i] = i
		sum += b.n
	}
	if sum > maxPage {
		return nil, unsupported("a page of %d bytes", sum)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(buffers[a].off, buffers[b].off) })
	for len(order) > 0 {
		run := buffers[order[0]]
		n := 1
		for ; n < len(order); n++ {
			next := buffers[order[n]]
			if next.off > run.off+run.n+maxGap {
				break
			}
			run.n = max(run.n, next.off+next.n-run.off)
		}
		b, ok := f.cached(run)
		if !ok {
			var err error
			if b, err = readExactly(ctx, f.r, run); err != nil {
				return nil, err
			}
		}
		for _, i := range order[:n] {
			from, to := buffers[i].off-run.off, buffers[i].off-run.off+buffers[i].n
			out[i] = b[from:to:to]
		}
		order = order[n:]
	}
	return out, nil
}
