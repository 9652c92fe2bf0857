package lance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// places finds the objects of a version in the stores that they lie in.
type places struct {
	m      *Manifest
	own    Store
	opts   ScanOptions
	opened map[uint32]Store
}

// store is the place of a base path, or the dataset's own, and the folder of files
// of one kind there.
func (p *places) store(ctx context.Context, folder string, id uint32, hasBase bool) (s Store, dir string, err error) {
	if !hasBase {
		return p.own, folder, nil
	}
	base, ok := p.m.Base(id)
	if !ok {
		return nil, "", corrupt("the manifest lacks base path %d", id)
	}
	if !base.IsDatasetRoot {
		folder = ""
	}
	if s, ok := p.opened[id]; ok {
		return s, folder, nil
	}
	if p.opts.Bases == nil {
		return nil, "", fmt.Errorf("it lies below base path %d, and nothing opens base paths here", id)
	}
	if s, err = p.opts.Bases(ctx, base); err != nil {
		return nil, "", fmt.Errorf("open base path %d: %w", id, err)
	}
	if p.opened == nil {
		p.opened = map[uint32]Store{}
	}
	p.opened[id] = s
	return s, folder, nil
}

// openData opens a data file. name is what errors call it; it is set in any case.
func (p *places) openData(ctx context.Context, d *DataFile) (f *datafile.File, name string, err error) {
	name = dataDir + d.Path
	if d.Legacy() {
		return nil, name, datafile.ErrLegacy
	}
	s, dir, err := p.store(ctx, dataDir, d.BaseID, d.HasBase)
	if err != nil {
		return nil, name, err
	}
	name = dir + d.Path
	r := &objectReader{s: s, name: name, size: d.Size}
	if r.size == 0 {
		if err := r.measure(ctx); err != nil {
			return nil, name, err
		}
	}
	f, err = datafile.Open(ctx, r, r.size)
	return f, name, err
}

// deletions reads the deletion file of a fragment of so many rows; nil without one.
func (p *places) deletions(ctx context.Context, f *Fragment, rows int64) (*Deletions, error) {
	d := f.Deletion
	if d == nil {
		return nil, nil
	}
	name := deletionsDir + d.Name // a base that holds deletion files is a dataset root
	s, _, err := p.store(ctx, deletionsDir, d.BaseID, d.HasBase)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if rows == 0 {
		rows = 1 << 28 // not recorded
	}
	// An Arrow file holds four bytes a row, a bitmap fewer; either has a frame.
	b, _, err := readObject(ctx, s, name, 1<<20+4*min(rows, math.MaxUint32))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return DecodeDeletionFile(name, b)
}

// tailLen is the first read of a data file whose size is not known: what opening
// it reads anyway.
const tailLen = 64 << 10

// objectReader reads ranges of one object.
type objectReader struct {
	s    Store
	name string
	size int64
	tail []byte // the last bytes, when they were read to learn the size
}

// measure learns the size with one read of the object's end.
func (r *objectReader) measure(ctx context.Context) error {
	body, o, err := r.s.Get(ctx, r.name, -tailLen, -1)
	if err != nil {
		return err
	}
	r.tail, err = io.ReadAll(io.LimitReader(body, tailLen+1))
	if err = errors.Join(err, body.Close()); err != nil {
		return err
	}
	r.size = o.Size
	if r.size < 0 && len(r.tail) < tailLen {
		r.size = int64(len(r.tail))
	}
	if r.size < int64(len(r.tail)) {
		return fmt.Errorf("the store does not tell the size of an object, and neither does the manifest")
	}
	return nil
}

// ReadAt implements datafile.Reader.
func (r *objectReader) ReadAt(ctx context.Context, off, n int64) ([]byte, error) {
	if from := off - (r.size - int64(len(r.tail))); from >= 0 && from+n <= int64(len(r.tail)) {
		return r.tail[from : from+n : from+n], nil
	}
	body, o, err := r.s.Get(ctx, r.name, off, n)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // all of the range was read, or there is an error
	if o.Size >= 0 && o.Size != r.size {
		return nil, corrupt("it has %d bytes, recorded are %d", o.Size, r.size)
	}
	// Only what a store is known to have is made room for at once.
	if o.Size < 0 {
		b, err := io.ReadAll(io.LimitReader(body, n))
		if err == nil && int64(len(b)) < n {
			err = io.ErrUnexpectedEOF
		}
		return b, err
	}
	if off > o.Size || n > o.Size-off {
		return nil, corrupt("it has %d bytes, and %d at %d are asked for", o.Size, n, off)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(body, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // an empty body is as short as any other
		}
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, off, err)
	}
	return b, nil
}
