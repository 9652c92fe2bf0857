// Package factory opens object stores by location: it is the one place where
// schemes meet implementations, and where the decorators are put around them.
package factory

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/file"
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
}

// Override is what holds below one store root instead of Options.S3.
type Override struct {
	// Root is a URI, as Parse reads it.
	Root string
	S3   S3Options
}

// Options of a set of stores. The zero value reaches AWS and files with defaults.
type Options struct {
	S3 S3Options
	// PerPrefix are the exceptions; the longest root that covers a place wins, the
	// first of equals.
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
	// Open replaces how the raw store of a root is opened (tests, fault injection);
	// answering nil, nil leaves a root to the built-in switch.
	Open   func(ctx context.Context, root objstore.Location) (objstore.Writer, error)
	Logger *slog.Logger
}

// Set opens stores and keeps them. It is safe for concurrent use.
type Set struct {
	opts  Options
	meter wrap.Meter

	mu     sync.Mutex
	stores map[objstore.Location]objstore.Writer
}

// New makes a set. It touches nothing.
func New(opts Options) *Set {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Set{opts: opts, stores: map[objstore.Location]objstore.Writer{}}
}

// Locate reads a URI or path and completes it: the host of a custom endpoint from
// the options or the environment, and for files the symbolic links of the longest
// part of the path that exists. It reads the environment, the shared AWS
// configuration and the disk, never the network.
func (s *Set) Locate(uri string) (objstore.Location, error) {
	loc, err := objstore.Parse(uri)
	if err != nil {
		return loc, err
	}
	if loc.Scheme == "file" {
		return file.Resolve(loc), nil
	}
	return loc, nil
}

// Reader opens the store of root for looking: a store root, a dataset root or a base
// path, as Locate answered it. The Reader serves everything in the same bucket; for
// files, everything below root, which must be a folder: when that is absent every
// answer is [objstore.ErrNoSuchBucket]. Readers are kept and shared.
func (s *Set) Reader(ctx context.Context, root objstore.Location) (objstore.Reader, error) {
	return s.raw(ctx, root)
}

// Writer is Reader for a store that reports are put into. Writes are never repeated.
func (s *Set) Writer(ctx context.Context, root objstore.Location) (objstore.Writer, error) {
	return s.raw(ctx, root)
}

// Counters is what was sent to all stores of the set so far.
func (s *Set) Counters() wrap.Counters { return s.meter.Snapshot() }

// Close gives up idle connections. The set can be used on.
func (s *Set) Close() {}

func (s *Set) raw(ctx context.Context, root objstore.Location) (objstore.Writer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := root
	if root.Scheme != "file" {
		key = root.Container()
	}
	if st := s.stores[key]; st != nil {
		return st, nil
	}
	st, err := s.open(ctx, root)
	if err == nil {
		s.stores[key] = st
	}
	return st, err
}

func (s *Set) open(ctx context.Context, root objstore.Location) (objstore.Writer, error) {
	if s.opts.Open != nil {
		if st, err := s.opts.Open(ctx, root); st != nil || err != nil {
			return st, err
		}
	}
	switch root.Scheme {
	case "file":
		return file.New(root)
	default:
		return nil, &objstore.Error{Op: "open", Location: root, Err: fmt.Errorf("scheme %q: %w", root.Scheme, objstore.ErrUnsupported)}
	}
}
