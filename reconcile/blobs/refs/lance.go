package refs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/lancestore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/lance/datafile"
)

// Stores resolves places and gives read-only stores for them.
type Stores interface {
	Locate(uri string) (objstore.Location, error)
	Reader(ctx context.Context, loc objstore.Location) (objstore.Reader, error)
}

// The columns that name payloads outside of a context table; recognised by themselves.
const (
	payloadURI      = "payload_uri"
	payloadSize     = "payload_size"
	payloadChecksum = "payload_checksum"
	recordID        = "id"
)

// Lance reads columns of the newest version of a Lance table. Columns are named as
// lance.Manifest.Scan has them. A null key names no blob, which is no error; an empty
// one is. Without any column in cols it takes payload_uri, and payload_size,
// payload_checksum and id where the table has them. filter leaves rows out; see
// ParseFilter.
//
// A walk goes on in the version that it was begun in, as long as that is kept: what it
// no longer names there is found out by Confirm, which reads the newest version.
// stores, which may be nil, opens base paths.
func Lance(r objstore.Reader, root objstore.Location, stores Stores, cols Columns, filter string, opts Options) (Reader, error) {
	f, err := ParseFilter(filter)
	if err != nil {
		return nil, err
	}
	root.Key = strings.TrimRight(root.Key, "/")
	return &unsorted{src: &lanceTable{r: r, store: lancestore.New(r, root), stores: stores, cols: cols, filter: f}, opts: opts}, nil
}

type lanceTable struct {
	r      objstore.Reader
	store  *lancestore.Store
	stores Stores
	cols   Columns
	filter Filter
}

// versions lists the versions, and tells the newest time that the store told then.
func (t *lanceTable) versions(ctx context.Context) (*lance.VersionSet, time.Time, error) {
	s := lancestore.New(t.r, t.store.Root()) // which was told no time before
	vs, err := lance.ListVersions(ctx, s)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read %s: %w", t.store.Root(), err)
	}
	return vs, s.ServerNow(), nil
}

func (t *lanceTable) namedSince(ctx context.Context) (time.Time, error) {
	vs, now, err := t.versions(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return namedSince(objstore.Attrs{ModTime: vs.Newest().ModTime, ServerTime: now}), nil
}

func tagOfVersion(e lance.VersionEntry) string {
	return strconv.FormatUint(e.Version, 10) + "-" + tagOf(objstore.Attrs{ETag: e.ETag, Size: e.Size, ModTime: e.ModTime})
}

func (t *lanceTable) open(ctx context.Context, tag string) (opened, error) {
	vs, _, err := t.versions(ctx)
	if err != nil {
		return nil, err
	}
	e := vs.Newest()
	for _, older := range vs.Entries {
		if tag != "" && tagOfVersion(older) == tag {
			e = older
		}
	}
	l := &lanceRows{ctx: ctx, t: t, of: tagOfVersion(e), older: e.Version != vs.Newest().Version}
	if l.m, err = lance.ReadManifest(ctx, t.store, e); err != nil {
		return nil, l.explain(err)
	}
	if l.cols, err = t.columns(l.m); err != nil {
		return nil, fmt.Errorf("read %s: %w", t.store.Root(), err)
	}
	return l, nil
}

// columns are those of the configuration, else the ones that are recognised.
func (t *lanceTable) columns(m *lance.Manifest) (Columns, error) {
	if t.cols.Key != "" {
		return t.cols, nil
	}
	if t.cols != (Columns{}) {
		return t.cols, errNoKeyColumn
	}
	cols := Columns{}
	for f, err := range m.Fields() {
		switch {
		case err != nil:
			return cols, err
		case f.ParentID != -1:
		case f.Name == payloadURI:
			cols.Key = payloadURI
		case f.Name == payloadSize:
			cols.Size = payloadSize
		case f.Name == payloadChecksum:
			cols.Checksum = payloadChecksum
		case f.Name == recordID:
			cols.Record = recordID
		}
	}
	if cols.Key == "" {
		return cols, fmt.Errorf("the table has no column %s; name the column that holds the keys: %w", payloadURI, lance.ErrNoColumn)
	}
	return cols, nil
}

// lanceRows is one version of a table.
type lanceRows struct {
	ctx   context.Context
	t     *lanceTable
	m     *lance.Manifest
	cols  Columns
	of    string
	older bool // than the newest version
}

func (l *lanceRows) tag() string { return l.of }
func (l *lanceRows) close()      {}

// explain says of an error whether it only means that an old version was cleaned up.
func (l *lanceRows) explain(err error) error {
	if l.older && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (%v)", ErrPositionGone, err)
	}
	return fmt.Errorf("read %s: %w", l.t.store.Root(), err)
}

func (l *lanceRows) each(yield func(*row) bool) error {
	var names []string
	at := [4]int{-1, -1, -1, -1}
	wanted := [4]string{l.cols.Key, l.cols.Size, l.cols.Checksum, l.cols.Record}
	for i, name := range wanted {
		if name != "" {
			at[i] = len(names)
			names = append(names, name)
		}
	}
	first := len(names)
	names = append(names, l.t.filter.columns()...)
	var r row
	n := int64(0)
	for rows, err := range l.m.Scan(l.ctx, l.t.store, lance.ScanOptions{Bases: l.t.base}, names...) {
		if err != nil {
			return l.explain(err)
		}
		b := lanceBatch{names: wanted}
		for i, k := range at {
			if k >= 0 {
				b.cols[i] = rows.Columns[k]
			}
		}
		keep, err := l.t.filter.over(rows.Columns[first:])
		if err == nil {
			err = b.check()
		}
		if err != nil {
			return l.explain(err)
		}
		for i := range rows.Len {
			n++
			r.reset(n)
			if keep(i) {
				b.row(i, &r)
			} else {
				r.unnamed = true
			}
			if !yield(&r) {
				return nil
			}
		}
	}
	return nil
}

// lanceBatch is the columns key, size, checksum and record of some rows; nil where not
// asked for.
type lanceBatch struct {
	names [4]string
	cols  [4]*datafile.Array
}

// isText reports whether a logical type is text, or a dictionary of texts.
func isText(typ string) bool {
	typ, _ = strings.CutPrefix(typ, "dict:")
	typ, _, _ = strings.Cut(typ, ":")
	return typ == "string" || typ == "large_string"
}

// isWhole reports whether a logical type is an integer.
func isWhole(typ string) bool {
	digits, unsigned := strings.CutPrefix(typ, "uint")
	if !unsigned {
		digits, _ = strings.CutPrefix(typ, "int")
	}
	return digits == "8" || digits == "16" || digits == "32" || digits == "64"
}

func isFloat(typ string) bool { return typ == "float" || typ == "double" || typ == "halffloat" }

func (b *lanceBatch) check() error {
	for i, a := range b.cols {
		if a == nil {
			continue
		}
		typ := a.Type()
		ok := isText(typ) && a.Blob() == datafile.NotBlob
		switch i {
		case 1:
			ok = ok || isWhole(typ) || isFloat(typ)
		case 3:
			ok = ok || isWhole(typ)
		}
		if !ok {
			return fmt.Errorf("column %s: its type is %s", short(b.names[i]), short(typ))
		}
	}
	return nil
}

func (b *lanceBatch) row(i int, r *row) {
	if b.cols[0].Null(i) {
		r.unnamed = true
		return
	}
	r.setKey(b.cols[0].String(i))
	if a := b.cols[1]; a != nil && !a.Null(i) {
		b.size(a, i, r)
	}
	if a := b.cols[2]; a != nil && !a.Null(i) {
		r.setChecksum(a.String(i))
	}
	if a := b.cols[3]; a != nil && !a.Null(i) {
		if n, ok := a.Int(i); ok {
			r.rec.Record = strconv.FormatInt(n, 10)
		} else if u, ok := a.Uint(i); ok {
			r.rec.Record = strconv.FormatUint(u, 10)
		} else {
			r.rec.Record = a.String(i)
		}
	}
}

func (b *lanceBatch) size(a *datafile.Array, i int, r *row) {
	if isText(a.Type()) {
		r.setSize(a.String(i))
		return
	}
	n, ok := a.Int(i)
	if ok {
		n, ok = wholeSize(n)
	}
	if ok {
		r.rec.Size = n
		return
	}
	r.badSize = "a number that is no size"
	if f, is := a.Float(i); is {
		r.badSize = strconv.FormatFloat(f, 'g', -1, 64)
	}
}

// base gives package lance the store of a base path.
func (t *lanceTable) base(ctx context.Context, b lance.BasePath) (lance.Store, error) {
	if t.stores == nil {
		return nil, errors.New("nothing opens base paths here")
	}
	at, err := t.stores.Locate(b.Path)
	if err != nil {
		return nil, err
	}
	at.Key = strings.TrimRight(at.Key, "/")
	r, err := t.stores.Reader(ctx, at)
	if err != nil {
		return nil, err
	}
	return lancestore.New(r, at), nil
}
