package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/mancache"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/mend"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/peers"
)

// openPeers makes the peers of every place and collection, each with a breaker of its
// own for the whole pass.
func (w *work) openPeers(ctx context.Context) error {
	w.peers = map[string][]reconcile.Peer{}
	for _, st := range w.s.peered {
		root, err := w.rootBy(st.URI, st.S3)
		if err != nil {
			return err
		}
		for _, p := range st.Peers {
			if err := w.addPeer(ctx, root, p, true); err != nil {
				return fmt.Errorf("peer of store %s: %w", st.Name, err)
			}
		}
	}
	for _, c := range w.found.collections {
		for _, p := range c.cfg.Peers {
			if err := w.addPeer(ctx, c.root, p, false); err != nil {
				return fmt.Errorf("peer of blobs:%s: %w", c.cfg.Name, err)
			}
		}
	}
	return nil
}

func (w *work) rootBy(uri string, s3 config.S3) (objstore.Location, error) {
	root, err := w.set.LocateBy(uri, s3Options(s3))
	root.Key = strings.TrimRight(root.Key, "/")
	return root, err
}

// addPeer adds a peer that mirrors a place; tables: what it may hold are table files.
func (w *work) addPeer(ctx context.Context, mirrors objstore.Location, p config.Peer, tables bool) error {
	opts := peers.Options{Mirrors: mirrors, Now: time.Now}
	var peer reconcile.Peer
	if p.URL != "" {
		headers := map[string]string{}
		for name, secret := range p.Headers {
			headers[name] = secret.Reveal()
		}
		h, err := peers.NewHTTP(p.URL, peers.HTTPOptions{Options: opts, Header: headers})
		if err != nil {
			return err
		}
		peer = h
		if tables {
			peer = giver{h}
		}
	} else {
		root, err := w.rootBy(p.URI, p.S3)
		if err != nil {
			return err
		}
		reader, err := w.set.Reader(ctx, root)
		if err != nil {
			return err
		}
		s, err := peers.NewStore(root, reader, opts)
		if err != nil {
			return err
		}
		peer = s
	}
	key := mirrors.Canonical()
	w.peers[key] = append(w.peers[key], peers.Guard(peer, time.Now, peers.Limits{}))
	return nil
}

// giver is a web server as a peer of tables: what it has is taken, and its no is none. A
// server that answers 404 to everything looks like one that looked, and what follows
// from a no is that rows are dropped. Nor does a copy that failed its proof turn into a no:
// without an ETag none can be told to be the one that failed.
type giver struct{ reconcile.Peer }

// Ask implements reconcile.Peer.
func (g giver) Ask(ctx context.Context, ref reconcile.Reference) (objstore.Attrs, error) {
	at, err := g.Peer.Ask(ctx, ref)
	at.ETag = ""
	if errors.Is(err, objstore.ErrNotExist) {
		return at, reconcile.ErrWeakNo
	}
	return at, err
}

// Fetch implements reconcile.Peer.
func (g giver) Fetch(ctx context.Context, ref reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	body, at, err := g.Peer.Fetch(ctx, ref)
	at.ETag = ""
	return body, at, err
}

// peersOf are those of the nearest configured place that holds the target.
func (w *work) peersOf(t reconcile.Target) []reconcile.Peer {
	if c, ok := w.found.collections[t.Location.Canonical()]; ok {
		return w.peers[c.root.Canonical()]
	}
	for at := t.Location; ; at = at.Parent() {
		if found := w.peers[at.Canonical()]; len(found) > 0 {
			return found
		}
		if at.Parent() == at {
			return nil
		}
	}
}

// mendOptions say how lost bytes are brought back.
func (w *work) mendOptions() (pass.MendOptions, error) {
	dir := filepath.Join(cmp.Or(w.s.work.Dir, mancache.DefaultDir(os.Getenv), os.TempDir()), "staging")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pass.MendOptions{}, fmt.Errorf("make a folder for copies: %w; name another with work.dir", err)
	}
	opts := mend.Options{Writer: func(ctx context.Context, base objstore.Location) (objstore.Writer, error) {
		return w.writers.Writer(ctx, base)
	},
		Dir: dir, Max: int64(w.s.work.Max), PendingMaxAge: w.s.verify.PendingMaxAge.Std(), Logger: w.log}
	opts.Allowed = append(opts.Allowed, w.found.roots...)
	for _, c := range w.found.collections {
		opts.Allowed = append(opts.Allowed, c.root)
	}
	if w.s.quarantine != "" {
		q, err := w.set.Locate(w.s.quarantine)
		if err != nil {
			return pass.MendOptions{}, err
		}
		q.Key = strings.TrimRight(q.Key, "/")
		opts.Quarantine = q
	}
	return pass.MendOptions{Mender: mend.New(opts), MaxBytes: int64(w.s.budget.RefetchBytes), MaxObjects: w.s.budget.RefetchObjects}, nil
}
