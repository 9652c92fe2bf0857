// Package factory opens object stores by location: it is the one place where
// schemes meet implementations, and where the decorators are put around them.
package factory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/file"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/objstore/wrap"
)

// S3Options say how a store that speaks S3 is reached. Empty fields follow the
// standard AWS environment, files and roles.
type S3Options struct {
	// Endpoint is a URL ("http://127.0.0.1:7070"). Empty: AWS_ENDPOINT_URL_S3, then
	// AWS_ENDPOINT_URL, then the shared configuration's, then AWS itself.
	Endpoint string
	// Region; empty: the environment's, then us-east-1.
	Region string
	// Profile of the shared configuration.
	Profile string
	// RoleARN is a role to assume with the credentials found.
	RoleARN string
	// PathStyle is "auto" (or empty: path style on custom endpoints), "true" or "false".
	PathStyle string
	// Checksums asks for stored checksums with each HEAD below this root, as
	// Options.Checksums does for all.
	Checksums bool
	// MultipartConditions is "auto" (or empty), "true" or "false": whether conditions
	// hold when an upload in parts is completed (see s3.Options). Bodies above 5 GiB are
	// refused where they are not known to.
	MultipartConditions string
}

// Override is what holds below one store root instead of Options.S3.
type Override struct {
	// Root is a URI, as Parse reads it. Roots alike on different endpoints are
	// different places.
	Root string
	S3   S3Options
	// Peer: the place is one that copies come from. A URI that says nothing of an
	// endpoint means it only where no other root covers it.
	Peer bool
}

// Options of a set of stores. The zero value reaches AWS and files with defaults.
type Options struct {
	S3 S3Options
	// PerPrefix are the exceptions; of those that cover a place the longest root at its
	// endpoint wins, the first of equals.
	PerPrefix []Override
	// RequestTimeout ends one attempt of one request; 0 is 15s.
	RequestTimeout time.Duration
	// Attempts per reading request; 0 is 3, 1 never asks again. Writes are sent once.
	Attempts int
	// MaxInFlight and MaxRequestsPerSecond hold per container (scheme, endpoint,
	// bucket); 0 is no limit.
	MaxInFlight          int
	MaxRequestsPerSecond float64
	// HeadOracle answers Stat through the vendor's own client instead of the fast path.
	HeadOracle bool
	// Checksums asks for stored checksums with each HEAD (see s3.Options).
	Checksums bool
	// Open replaces how the raw store of a root is opened (tests, fault injection);
	// answering nil, nil leaves a root to the built-in switch.
	Open func(ctx context.Context, root objstore.Location) (objstore.Writer, error)
	// Observe, when set, is told of every request that is sent. It must be quick and
	// safe for concurrent use.
	Observe func(wrap.Observation)
	Logger  *slog.Logger
}

// Set opens stores and keeps them. It is safe for concurrent use.
type Set struct {
	opts      Options
	overrides []override
	badRoot   error // of an override; told by the first use
	meter     wrap.Meter

	mu      sync.Mutex
	clients map[S3Options]*s3.Client
	shares  map[place]*share
	stores  map[place]objstore.Writer
}

type override struct {
	root objstore.Location
	s3   S3Options
	peer bool
}

// covers reports whether a place lies at or below the root, on whatever endpoint.
func (o override) covers(loc objstore.Location) bool {
	root := strings.TrimRight(o.root.Key, "/")
	return o.root.Scheme == loc.Scheme && o.root.Bucket == loc.Bucket && (root == "" || loc.Key == root || strings.HasPrefix(loc.Key, root+"/"))
}

// before reports whether the options of o hold rather than those of another that covers
// the same place.
func (o override) before(other override) bool {
	if o.peer != other.peer {
		return other.peer
	}
	return len(strings.TrimRight(o.root.Key, "/")) > len(strings.TrimRight(other.root.Key, "/"))
}

// place is where a store is kept: a root and the way to it.
type place struct {
	root objstore.Location
	s3   S3Options
}

// share is what the stores of one container have in common.
type share struct {
	limiter *wrap.Limiter
	gate    *wrap.Gate
}

// New makes a set. It touches nothing.
func New(opts Options) *Set {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Set{opts: opts, clients: map[S3Options]*s3.Client{}, shares: map[place]*share{}, stores: map[place]objstore.Writer{}}
	for _, o := range opts.PerPrefix {
		root, err := objstore.Parse(o.Root)
		if err != nil && s.badRoot == nil {
			s.badRoot = fmt.Errorf("root of an override: %w", err)
		}
		s.overrides = append(s.overrides, override{root: root, s3: o.S3, peer: o.Peer})
	}
	return s
}

// way is the options that hold for a place: those of the first override that covers it,
// at the endpoint where one is said, else the general ones.
func (s *Set) way(loc objstore.Location, endpoint *string) S3Options {
	var best *override
	for i := range s.overrides {
		o := &s.overrides[i]
		if o.covers(loc) && (endpoint == nil || s.reaches(o.s3, *endpoint)) && (best == nil || o.before(*best)) {
			best = o
		}
	}
	if best == nil {
		return s.opts.S3
	}
	return best.s3
}

// reaches reports whether options lead to an endpoint. Those that lead nowhere are not
// passed over: their error is to be told.
func (s *Set) reaches(way S3Options, endpoint string) bool {
	// Reading the environment and files has nothing that could be cancelled.
	client, err := s.client(context.TODO(), way)
	return err != nil || client.Host() == endpoint
}

// Locate reads a URI or path and completes it: the host of a custom endpoint from
// the options or the environment, and for files the symbolic links of the longest
// part of the path that exists. It reads the environment, the shared AWS
// configuration and the disk, never the network.
func (s *Set) Locate(uri string) (objstore.Location, error) {
	return s.locate(uri, func(loc objstore.Location) S3Options { return s.way(loc, nil) })
}

// LocateBy is Locate for a place of which it is known how it is reached, whatever else
// the options say of its URI.
func (s *Set) LocateBy(uri string, way S3Options) (objstore.Location, error) {
	return s.locate(uri, func(objstore.Location) S3Options { return way })
}

// LocateNear is Locate for a URI that something at near names: where the options know
// the URI at near's endpoint, it is meant there.
func (s *Set) LocateNear(uri string, near objstore.Location) (objstore.Location, error) {
	return s.locate(uri, func(loc objstore.Location) S3Options {
		known := slices.ContainsFunc(s.overrides, func(o override) bool { return o.covers(loc) && s.reaches(o.s3, near.Endpoint) })
		if near.Scheme != loc.Scheme || !known {
			return s.way(loc, nil)
		}
		return s.way(loc, &near.Endpoint)
	})
}

func (s *Set) locate(uri string, way func(objstore.Location) S3Options) (objstore.Location, error) {
	if s.badRoot != nil {
		return objstore.Location{}, s.badRoot
	}
	loc, err := objstore.Parse(uri)
	if err != nil {
		return objstore.Location{}, err
	}
	switch loc.Scheme {
	case "file":
		return file.Resolve(loc), nil
	case "s3":
		client, err := s.client(context.TODO(), way(loc)) // see reaches
		if err != nil {
			return objstore.Location{}, &objstore.Error{Op: "open", Location: loc, Err: err}
		}
		loc.Endpoint = client.Host()
	}
	return loc, nil
}

// client is the way to a service, made once per set of options.
func (s *Set) client(ctx context.Context, way S3Options) (*s3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[way]; c != nil {
		return c, nil
	}
	c, err := s3.NewClient(ctx, s3.Options{
		Endpoint: way.Endpoint, Region: way.Region, Profile: way.Profile, RoleARN: way.RoleARN, PathStyle: way.PathStyle,
		HeadOracle: s.opts.HeadOracle, Checksums: s.opts.Checksums || way.Checksums, MultipartConditions: way.MultipartConditions,
		MaxIdleConns: max(s.opts.MaxInFlight, 256),
	})
	if err != nil {
		return nil, err
	}
	s.clients[way] = c
	return c, nil
}

// Reader opens the store of root for looking: a store root, a dataset root or a base
// path, as Locate answered it. The Reader serves everything in the same bucket; for
// files, everything below root, which must be a folder: when that is absent every
// answer is [objstore.ErrNoSuchBucket]. Readers are kept and shared.
//
// It may touch the network to get credentials; without any the error matches
// [objstore.ErrNoCredentials]. It does not ask the store. A location whose endpoint
// is not the one configured for it matches [fs.ErrInvalid]; an unknown scheme
// matches [objstore.ErrUnsupported].
func (s *Set) Reader(ctx context.Context, root objstore.Location) (objstore.Reader, error) {
	raw, sh, err := s.raw(ctx, root)
	if err != nil {
		return nil, err
	}
	var r objstore.Reader = raw
	if s.opts.Observe != nil {
		r = wrap.NewObserve(r, s.opts.Observe)
	}
	r = wrap.NewCount(r, &s.meter)
	r = wrap.NewLimit(r, sh.limiter)
	r = wrap.NewAdaptive(r, sh.gate)
	return wrap.NewRetry(r, s.retry()), nil
}

// Writer is Reader for a store that reports are put into. Writes are counted and
// limited like reads, and never repeated.
func (s *Set) Writer(ctx context.Context, root objstore.Location) (objstore.Writer, error) {
	raw, sh, err := s.raw(ctx, root)
	if err != nil {
		return nil, err
	}
	w := raw
	if s.opts.Observe != nil {
		w = wrap.NewObserveWriter(w, s.opts.Observe)
	}
	w = wrap.NewCountWriter(w, &s.meter)
	w = wrap.NewLimitWriter(w, sh.limiter)
	w = wrap.NewAdaptiveWriter(w, sh.gate)
	return wrap.NewRetryWriter(w, s.retry()), nil
}

func (s *Set) retry() wrap.RetryOptions {
	return wrap.RetryOptions{Attempts: s.opts.Attempts, RequestTimeout: s.opts.RequestTimeout, Meter: &s.meter}
}

// Counters is what was sent to all stores of the set so far.
func (s *Set) Counters() wrap.Counters { return s.meter.Snapshot() }

// Close gives up idle connections. The set can be used on.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.Close()
	}
}

// raw is the bare store of a root, opened once, and what it shares.
func (s *Set) raw(ctx context.Context, root objstore.Location) (objstore.Writer, *share, error) {
	if s.badRoot != nil {
		return nil, nil, s.badRoot
	}
	if root.Scheme == "file" {
		root.Key = cleanRoot(root.Key)
	}
	at, container := place{root: root}, place{root: root.Container()}
	if root.Scheme != "file" {
		at.root = root.Container()
	}
	if root.Scheme == "s3" {
		at.s3 = s.way(root, &root.Endpoint)
		container.s3 = at.s3
	}
	s.mu.Lock()
	st, sh := s.stores[at], s.shares[container]
	if sh == nil {
		sh = &share{limiter: wrap.NewLimiter(s.opts.MaxInFlight, s.opts.MaxRequestsPerSecond), gate: wrap.NewGate(s.opts.Logger)}
		s.shares[container] = sh
	}
	s.mu.Unlock()
	if st != nil {
		return st, sh, nil
	}
	// Not under the lock: credentials may come from the network. Two stores of one
	// place do no harm; the first that is kept stays.
	st, err := s.open(ctx, root, at.s3)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.stores[at]; kept != nil {
		return kept, sh, nil
	}
	s.stores[at] = st
	return st, sh, nil
}

func cleanRoot(key string) string {
	if trimmed := strings.TrimRight(key, "/"); trimmed != "" {
		return trimmed
	}
	return key
}

// open is the explicit switch of schemes.
func (s *Set) open(ctx context.Context, root objstore.Location, way S3Options) (objstore.Writer, error) {
	if s.opts.Open != nil {
		if st, err := s.opts.Open(ctx, root); st != nil || err != nil {
			return st, err
		}
	}
	switch root.Scheme {
	case "file":
		return file.New(root)
	case "s3":
		client, err := s.client(ctx, way)
		if err != nil {
			return nil, &objstore.Error{Op: "open", Location: root, Err: err}
		}
		return client.Bucket(ctx, root)
	default:
		return nil, &objstore.Error{Op: "open", Location: root, Err: fmt.Errorf("scheme %q: %w", root.Scheme, objstore.ErrUnsupported)}
	}
}
