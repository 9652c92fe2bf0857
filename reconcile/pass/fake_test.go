package pass

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// scripted is a store whose answers are a function of the key and of how often it
// was asked for; everything else is "no such object".
type scripted struct {
	mu     sync.Mutex
	calls  map[string]int
	answer map[string]func(op string, n int) (objstore.Attrs, error)
	all    func(op, key string) error // asked first, when set
	listed []string
}

func newScripted() *scripted {
	return &scripted{calls: map[string]int{}, answer: map[string]func(string, int) (objstore.Attrs, error){}}
}

func (s *scripted) present(size int64, keys ...string) {
	for _, k := range keys {
		s.answer[k] = func(string, int) (objstore.Attrs, error) { return objstore.Attrs{Size: size}, nil }
	}
}

func notFound() error { return &objstore.Error{Op: "stat", Status: 404, Err: objstore.ErrNotExist} }

func (s *scripted) ask(ctx context.Context, op string, loc objstore.Location) (objstore.Attrs, error) {
	if ctx.Err() != nil {
		return objstore.Attrs{}, ctx.Err()
	}
	s.mu.Lock()
	s.calls[op+" "+loc.Key]++
	n := s.calls[op+" "+loc.Key]
	f := s.answer[loc.Key]
	all := s.all
	s.mu.Unlock()
	if all != nil {
		if err := all(op, loc.Key); err != nil {
			return objstore.Attrs{}, err
		}
	}
	if f == nil {
		return objstore.Attrs{}, notFound()
	}
	at, err := f(op, n)
	at.Location = loc
	return at, err
}

func (s *scripted) Stat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	return s.ask(ctx, "stat", l)
}
func (s *scripted) Restat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	return s.ask(ctx, "restat", l)
}
func (s *scripted) Probe(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	return s.ask(ctx, "probe", l)
}
func (s *scripted) Get(ctx context.Context, l objstore.Location, _ objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	at, err := s.ask(ctx, "get", l)
	return io.NopCloser(strings.NewReader("")), at, err
}
func (s *scripted) List(_ context.Context, prefix objstore.Location, _ string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		for _, key := range s.listed {
			if strings.HasPrefix(key, prefix.Key) && !yield(objstore.Attrs{Location: at(key), Size: 100}, nil) {
				return
			}
		}
	}
}
func (s *scripted) Versions(ctx context.Context, l objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		at, err := s.ask(ctx, "versions", l)
		switch {
		case errors.Is(err, objstore.ErrNotExist):
		case err != nil:
			yield(objstore.Attrs{}, err)
		default:
			yield(at, nil)
		}
	}
}

func (s *scripted) GetVersion(ctx context.Context, l objstore.Location, _ string, _ objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	at, err := s.ask(ctx, "getversion", l)
	return io.NopCloser(strings.NewReader("")), at, err
}
func (s *scripted) Versioning(context.Context, objstore.Location) (objstore.Versioning, error) {
	return "", objstore.ErrUnsupported
}

func (s *scripted) Reader(context.Context, objstore.Location) (objstore.Reader, error) { return s, nil }

// fakeSource is a target with a fixed list of references.
type fakeSource struct {
	target  reconcile.Target
	facts   reconcile.Facts
	openErr error
	refs    []reconcile.Reference
	walkErr error
	rev     func(refs []reconcile.Reference) (reconcile.Revisit, error)
	older   bool
	inspect func(ref reconcile.Reference) (reconcile.Verdict, string, error)
	propose func(fs []reconcile.Finding) []reconcile.PlanAction
}

func (f *fakeSource) Target() reconcile.Target                      { return f.target }
func (f *fakeSource) Open(context.Context) (reconcile.Facts, error) { return f.facts, f.openErr }
func (f *fakeSource) References(context.Context) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		for _, r := range f.refs {
			if !yield(r, nil) {
				return
			}
		}
		if f.walkErr != nil {
			yield(reconcile.Reference{}, f.walkErr)
		}
	}
}
func (f *fakeSource) Unread() []reconcile.NotChecked { return nil }
func (f *fakeSource) Inspect(_ context.Context, ref reconcile.Reference, _ objstore.Attrs, _ reconcile.Depth) (reconcile.Verdict, string, error) {
	if f.inspect == nil {
		return reconcile.Present, "", nil
	}
	return f.inspect(ref)
}
func (f *fakeSource) Revisit(_ context.Context, refs []reconcile.Reference) (reconcile.Revisit, error) {
	if f.rev != nil {
		return f.rev(refs)
	}
	named := make([]bool, len(refs))
	for i := range named {
		named[i] = true
	}
	return reconcile.Revisit{Named: named, Metadata: f.facts.Findings}, nil
}
func (f *fakeSource) Older(_ context.Context, refs []reconcile.Reference, _ time.Duration) ([]bool, error) {
	out := make([]bool, len(refs))
	for i := range out {
		out[i] = f.older
	}
	return out, nil
}
func (f *fakeSource) Propose(_ context.Context, fs []reconcile.Finding, _ reconcile.Policy) ([]reconcile.PlanAction, error) {
	if f.propose == nil {
		return nil, nil
	}
	return f.propose(fs), nil
}

// handClock is moved by hand; onSleep runs inside the wait between the looks.
type handClock struct {
	mu      sync.Mutex
	now     time.Time
	onSleep func()
	slept   []time.Duration
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}
func (c *handClock) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.slept = append(c.slept, d)
	c.mu.Unlock()
	if c.onSleep != nil {
		c.onSleep()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

const root = "t.lance"

func at(key string) objstore.Location { return objstore.Location{Scheme: "mem", Bucket: "b", Key: key} }

func dataRef(name string, size int64) reconcile.Reference {
	return reconcile.Reference{Role: reconcile.RoleData, Path: "data/" + name, Location: at(root + "/data/" + name), Base: at(root),
		Version: 3, HasFragment: true, Size: size, PhysicalRows: 10, LiveRows: 8}
}

// table is a healthy table of three data files, with its manifest as control.
func table(s *scripted) *fakeSource {
	s.present(100, root+"/_versions/3.manifest", root+"/data/a", root+"/data/b", root+"/data/c")
	refs := []reconcile.Reference{dataRef("a", 100), dataRef("b", 100), dataRef("c", 100)}
	for i := range refs {
		refs[i].FragmentID = uint64(i)
	}
	return &fakeSource{target: reconcile.Target{Name: "table:t", Store: "mem://b/", Kind: "table", Location: at(root)}, older: true, refs: refs,
		facts: reconcile.Facts{Version: reconcile.Ptr(uint64(3)), Control: at(root + "/_versions/3.manifest")}}
}

func options(s *scripted, sources ...*fakeSource) (Options, []reconcile.Target, *handClock) {
	byName := map[string]*fakeSource{}
	var targets []reconcile.Target
	for _, src := range sources {
		byName[src.target.Name] = src
		targets = append(targets, src.target)
	}
	clock := &handClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return Options{
		Open: func(t reconcile.Target) reconcile.Source { return byName[t.Name] }, Stores: s, ConfirmAfter: time.Minute, MinManifestAge: 15 * time.Minute,
		TargetTimeout: time.Minute, Concurrency: 8, Policy: reconcile.Policy{Limits: reconcile.DefaultLimits()}, Clock: clock, Logger: slog.New(slog.DiscardHandler),
	}, targets, clock
}
