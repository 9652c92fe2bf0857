package wrap

import (
	"context"
	"io"
	"iter"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// request is what a policy knows about the call it surrounds.
type request struct {
	op  string
	loc objstore.Location
}

func (r request) writes() bool { return r.op == "create" || r.op == "replace" || r.op == "overmarker" }

// fail is the error of a request that was not made.
func (r request) fail(err error) error {
	return &objstore.Error{Op: r.op, Location: r.loc, Err: err}
}

// policy is one concern: it surrounds each single request to a store. A request ends
// with its answer; neither the body of a Get nor the time between two entries of a
// listing is part of it, so a caller that reads one body while asking for other
// objects cannot wait for itself.
type policy interface {
	do(ctx context.Context, req request, call func(context.Context) error) error
}

// streamer is a policy that also watches over what follows the answer.
type streamer interface {
	get(ctx context.Context, req request, open func(context.Context) (io.ReadCloser, objstore.Attrs, error)) (io.ReadCloser, objstore.Attrs, error)
	list(ctx context.Context, req request, open func(context.Context) iter.Seq2[objstore.Attrs, error]) iter.Seq2[objstore.Attrs, error]
}

// reader puts a policy around every request of inner.
type reader struct {
	inner objstore.Reader
	pager objstore.Pager // nil when inner is none
	p     policy
}

type pagedReader struct{ *reader }

type writer struct {
	*reader
	w objstore.Writer
}

type pagedWriter struct{ writer }

var (
	_ objstore.Reader = (*reader)(nil)
	_ objstore.Pager  = pagedReader{}
	_ objstore.Writer = writer{}
	_ objstore.Writer = pagedWriter{}
	_ objstore.Pager  = pagedWriter{}
)

func around(inner objstore.Reader, p policy) objstore.Reader {
	r := &reader{inner: inner, p: p}
	if pager, ok := inner.(objstore.Pager); ok {
		r.pager = pager
		return pagedReader{r}
	}
	return r
}

func aroundWriter(inner objstore.Writer, p policy) objstore.Writer {
	w := writer{reader: &reader{inner: inner, p: p}, w: inner}
	if pager, ok := inner.(objstore.Pager); ok {
		w.pager = pager
		return pagedWriter{w}
	}
	return w
}

func (r *reader) attrs(ctx context.Context, op string, loc objstore.Location, ask func(context.Context, objstore.Location) (objstore.Attrs, error)) (a objstore.Attrs, err error) {
	err = r.p.do(ctx, request{op, loc}, func(ctx context.Context) error {
		a, err = ask(ctx, loc)
		return err
	})
	if err != nil {
		return objstore.Attrs{}, err
	}
	return a, nil
}

// Stat implements [objstore.Statter].
func (r *reader) Stat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return r.attrs(ctx, "stat", loc, r.inner.Stat)
}

// Restat implements [objstore.Restatter].
func (r *reader) Restat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	return r.attrs(ctx, "restat", loc, r.inner.Restat)
}

// Probe implements [objstore.Prober].
func (r *reader) Probe(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	a, err := r.attrs(ctx, "probe", loc, r.inner.Probe)
	if c, ok := r.p.(counting); ok && err == nil && a.Size == 0 && loc.Scheme == "s3" {
		c.m.head.Add(1) // an empty object takes one, see s3.Store.Probe
	}
	return a, err
}

// Get implements [objstore.Getter].
func (r *reader) Get(ctx context.Context, loc objstore.Location, rng objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return r.get(ctx, request{"get", loc}, func(ctx context.Context) (io.ReadCloser, objstore.Attrs, error) {
		return r.inner.Get(ctx, loc, rng)
	})
}

// GetVersion implements [objstore.VersionGetter].
func (r *reader) GetVersion(ctx context.Context, loc objstore.Location, versionID string, rng objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return r.get(ctx, request{"getversion", loc}, func(ctx context.Context) (io.ReadCloser, objstore.Attrs, error) {
		return r.inner.GetVersion(ctx, loc, versionID, rng)
	})
}

func (r *reader) get(ctx context.Context, req request, open func(context.Context) (io.ReadCloser, objstore.Attrs, error)) (rc io.ReadCloser, a objstore.Attrs, err error) {
	if s, ok := r.p.(streamer); ok {
		return s.get(ctx, req, open)
	}
	err = r.p.do(ctx, req, func(ctx context.Context) error {
		rc, a, err = open(ctx)
		return err
	})
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	return rc, a, nil
}

// List implements [objstore.Lister]; where inner has pages, each is a request.
func (r *reader) List(ctx context.Context, prefix objstore.Location, delimiter string) iter.Seq2[objstore.Attrs, error] {
	if r.pager != nil {
		return r.listPages(ctx, prefix, delimiter)
	}
	req := request{"list", prefix}
	open := func(ctx context.Context) iter.Seq2[objstore.Attrs, error] {
		return r.inner.List(ctx, prefix, delimiter)
	}
	if s, ok := r.p.(streamer); ok {
		return s.list(ctx, req, open)
	}
	return func(yield func(objstore.Attrs, error) bool) {
		// The request is over with the first entry.
		var p pull
		defer p.close()
		if err := r.p.do(ctx, req, func(ctx context.Context) error { return p.open(open(ctx)) }); err != nil {
			yield(objstore.Attrs{}, err)
			return
		}
		p.rest(yield, p.step)
	}
}

func (r *reader) listPages(ctx context.Context, prefix objstore.Location, delimiter string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		for token := ""; ; {
			page, next, err := r.listPage(ctx, prefix, delimiter, token)
			if err != nil {
				yield(objstore.Attrs{}, err)
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

func (r *reader) listPage(ctx context.Context, prefix objstore.Location, delimiter, token string) (page []objstore.Attrs, next string, err error) {
	err = r.p.do(ctx, request{"list", prefix}, func(ctx context.Context) error {
		page, next, err = r.pager.ListPage(ctx, prefix, delimiter, token)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// ListPage implements [objstore.Pager].
func (r pagedReader) ListPage(ctx context.Context, prefix objstore.Location, delimiter, token string) ([]objstore.Attrs, string, error) {
	return r.listPage(ctx, prefix, delimiter, token)
}

// ListPage implements [objstore.Pager].
func (w pagedWriter) ListPage(ctx context.Context, prefix objstore.Location, delimiter, token string) ([]objstore.Attrs, string, error) {
	return w.listPage(ctx, prefix, delimiter, token)
}

// Versions implements [objstore.Versioner]. The versions of one key are few: they
// are read whole as one request, so that a failure on the way can be repeated.
func (r *reader) Versions(ctx context.Context, loc objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		var all []objstore.Attrs
		err := r.p.do(ctx, request{"versions", loc}, func(ctx context.Context) error {
			all = all[:0]
			for a, err := range r.inner.Versions(ctx, loc) {
				if err != nil {
					return err
				}
				all = append(all, a)
			}
			return nil
		})
		if err != nil {
			yield(objstore.Attrs{}, err)
			return
		}
		for _, a := range all {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// Versioning implements [objstore.VersioningTeller].
func (r *reader) Versioning(ctx context.Context, loc objstore.Location) (v objstore.Versioning, err error) {
	err = r.p.do(ctx, request{"versioning", loc}, func(ctx context.Context) error {
		v, err = r.inner.Versioning(ctx, loc)
		return err
	})
	if err != nil {
		return "", err
	}
	return v, nil
}

// Create implements [objstore.Creator].
func (w writer) Create(ctx context.Context, loc objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	return w.attrs(ctx, "create", loc, func(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
		return w.w.Create(ctx, loc, body, size)
	})
}

// Replace implements [objstore.Replacer].
func (w writer) Replace(ctx context.Context, loc objstore.Location, ifMatch string, body io.Reader, size int64) (objstore.Attrs, error) {
	return w.attrs(ctx, "replace", loc, func(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
		return w.w.Replace(ctx, loc, ifMatch, body, size)
	})
}

// CreateOverMarker implements [objstore.MarkerCreator]. It is one write to policies,
// although a store may have to list versions for it.
func (w writer) CreateOverMarker(ctx context.Context, loc objstore.Location, markerVersionID string, body io.Reader, size int64) (objstore.Attrs, error) {
	return w.attrs(ctx, "overmarker", loc, func(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
		return w.w.CreateOverMarker(ctx, loc, markerVersionID, body, size)
	})
}

// pull is a listing whose first entry has been asked for.
type pull struct {
	next  func() (objstore.Attrs, error, bool)
	stop  func()
	first objstore.Attrs
	some  bool
}

// open begins (again) and waits for the first entry.
func (p *pull) open(seq iter.Seq2[objstore.Attrs, error]) (err error) {
	p.close()
	p.next, p.stop = iter.Pull2(seq)
	p.first, err, p.some = p.next()
	return err
}

func (p *pull) step() (objstore.Attrs, error, bool) { return p.next() }

func (p *pull) close() {
	if p.stop != nil {
		p.stop()
	}
}

// rest yields the first entry and everything that step gives after it.
func (p *pull) rest(yield func(objstore.Attrs, error) bool, step func() (objstore.Attrs, error, bool)) {
	if !p.some || !yield(p.first, nil) {
		return
	}
	for {
		a, err, ok := step()
		if !ok || !yield(a, err) || err != nil {
			return
		}
	}
}
