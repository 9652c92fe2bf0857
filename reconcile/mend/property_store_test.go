package mend_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// sick is the store with faults. It is a pass.Stores, too.
type sick struct {
	*memstore.Store
	c *chaos
}

func (s sick) Reader(context.Context, objstore.Location) (objstore.Reader, error) { return s, nil }
func (s sick) Writer(context.Context, objstore.Location) (objstore.Writer, error) { return s, nil }
func (s sick) Locate(uri string) (objstore.Location, error)                       { return objstore.Parse(uri) }

func unavailable(op string, loc objstore.Location) error {
	return &objstore.Error{Op: op, Location: loc, Status: 503, Err: objstore.ErrThrottled}
}

func (s sick) Stat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	if s.c.fault("stat", l, 30) {
		return objstore.Attrs{}, unavailable("stat", l)
	}
	if s.c.fault("stat lies", l, 30) {
		return objstore.Attrs{}, &objstore.Error{Op: "stat", Location: l, Status: 404, Err: objstore.ErrNotExist}
	}
	return s.Store.Stat(ctx, l)
}

func (s sick) Restat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	if s.c.fault("restat", l, 30) {
		return objstore.Attrs{}, unavailable("restat", l)
	}
	return s.Store.Restat(ctx, l)
}

func (s sick) Probe(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	if s.c.fault("probe", l, 15) {
		return objstore.Attrs{}, unavailable("probe", l)
	}
	return s.Store.Probe(ctx, l)
}

func (s sick) Get(ctx context.Context, l objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if s.c.fault("get", l, 10) {
		return nil, objstore.Attrs{}, unavailable("get", l)
	}
	body, at, err := s.Store.Get(ctx, l, r)
	return s.cut(body, l, err), at, err
}

func (s sick) GetVersion(ctx context.Context, l objstore.Location, id string, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if s.c.fault("getversion", l, 10) {
		return nil, objstore.Attrs{}, unavailable("getversion", l)
	}
	body, at, err := s.Store.GetVersion(ctx, l, id, r)
	return s.cut(body, l, err), at, err
}

// cut breaks a body off now and then.
func (s sick) cut(body io.ReadCloser, l objstore.Location, err error) io.ReadCloser {
	if err != nil || !s.c.fault("cut", l, 15) {
		return body
	}
	return io.NopCloser(io.MultiReader(io.LimitReader(body, 1), failing{io.ErrUnexpectedEOF}))
}

func (s sick) Versions(ctx context.Context, l objstore.Location) iter.Seq2[objstore.Attrs, error] {
	if s.c.fault("versions", l, 12) {
		return func(yield func(objstore.Attrs, error) bool) { yield(objstore.Attrs{}, unavailable("versions", l)) }
	}
	return s.Store.Versions(ctx, l)
}

// write is one conditional write of ours, with what may go wrong around it, held to
// the model.
func (s sick) write(op string, l objstore.Location, body io.Reader, put func(io.Reader) (objstore.Attrs, error)) (objstore.Attrs, error) {
	refuse := func(status int, err error) (objstore.Attrs, error) {
		return objstore.Attrs{}, &objstore.Error{Op: op, Location: l, Status: status, Err: err}
	}
	s.c.rival(l)
	switch {
	case s.c.fault(op+" denied", l, 14):
		return refuse(403, objstore.ErrDenied)
	case s.c.fault(op+" conflict", l, 14):
		return refuse(409, objstore.ErrExist)
	case s.c.fault(op+" fails", l, 14):
		return refuse(500, errors.New("internal"))
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return refuse(0, err)
	}
	at, err := s.c.held(op, l, data, func() (objstore.Attrs, error) { return put(bytes.NewReader(data)) })
	switch {
	case err != nil:
		return at, err
	case s.c.fault(op+" lost", l, 6):
		return refuse(500, errors.New("internal"))
	case s.c.fault(op+" lies", l, 10):
		return refuse(412, objstore.ErrExist)
	}
	return at, nil
}

func (s sick) Create(ctx context.Context, l objstore.Location, body io.Reader, n int64) (objstore.Attrs, error) {
	return s.write("create", l, body, func(b io.Reader) (objstore.Attrs, error) { return s.Store.Create(ctx, l, b, n) })
}

func (s sick) Replace(ctx context.Context, l objstore.Location, etag string, body io.Reader, n int64) (objstore.Attrs, error) {
	return s.write("replace", l, body, func(b io.Reader) (objstore.Attrs, error) { return s.Store.Replace(ctx, l, etag, b, n) })
}

func (s sick) CreateOverMarker(ctx context.Context, l objstore.Location, id string, body io.Reader, n int64) (objstore.Attrs, error) {
	return s.write("overmarker", l, body, func(b io.Reader) (objstore.Attrs, error) { return s.Store.CreateOverMarker(ctx, l, id, b, n) })
}

// held writes, and holds what was written to the model.
func (c *chaos) held(op string, l objstore.Location, data []byte, put func() (objstore.Attrs, error)) (objstore.Attrs, error) {
	before, there := c.store.Data(l)
	at, err := put()
	o := c.things[l]
	if err != nil || l.Base() == pass.ProbeName {
		return at, err
	}
	if _, below := l.Rel(quarantine); below {
		if op != "create" || !c.kept {
			c.wrong("%s in a quarantine", op)
		}
		return at, nil
	}
	if o == nil {
		c.wrong("%s of %s, which nobody asked for", op, l)
		return at, nil
	}
	c.mu.Lock()
	good := o.good
	c.mu.Unlock()
	switch {
	case o.proven() && !bytes.Equal(data, good):
		c.wrong("%s of %s wrote %q, recorded is %q", op, l, data, good)
	case !o.proven() && op == "replace":
		c.wrong("%s was replaced, and nothing proves %q", l, data)
	case !o.proven() && c.opinions(o, data) < 2:
		c.wrong("%s was filled with %q, which not two peers hold", l, data)
	case op != "replace" && there:
		c.wrong("%s of %s found %q there", op, l, before)
	case op == "replace" && bytes.Equal(before, good):
		c.wrong("%s was right and was replaced", l)
	case op == "replace" && !c.retrievable(l, before):
		c.wrong("%s was replaced, and its old bytes are nowhere", l)
	}
	return at, nil
}

// opinions is how many peers may have sent these bytes.
func (c *chaos) opinions(o *thing, data []byte) (n int) {
	for _, p := range c.peers {
		body := p.(*fibber).manners[o.loc].body
		if bytes.Equal(body, data) || bytes.Equal(body[:len(body)/2], data) {
			n++
		}
	}
	return n
}

// retrievable reports whether bytes that were just replaced are kept.
func (c *chaos) retrievable(l objstore.Location, old []byte) bool {
	for _, at := range c.store.Locations() {
		if _, below := at.Rel(quarantine); below {
			if b, _ := c.store.Data(at); bytes.Equal(b, old) {
				return true
			}
		}
	}
	return c.versioned(l, old)
}

// versioned reports whether a version of an object holds these bytes.
func (c *chaos) versioned(l objstore.Location, want []byte) bool {
	for v, err := range c.store.Versions(context.Background(), l) {
		if err != nil || v.DeleteMarker {
			continue
		}
		body, _, err := c.store.GetVersion(context.Background(), l, v.VersionID, objstore.Range{})
		if err != nil {
			continue
		}
		if b, _ := io.ReadAll(body); bytes.Equal(b, want) {
			return true
		}
	}
	return false
}
