package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/peers"
)

// What a web server holds for tables is taken as it is; its no lets nothing be dropped, and
// neither does a copy of its that failed its proof, since none is known again.
func TestAWebServerOnlyGivesToTables(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/t.lance/data/a" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", `"e1"`)
		_, _ = w.Write([]byte("bytes")) // a client that went away is no matter
	}))
	t.Cleanup(web.Close)
	root := objstore.Location{Scheme: "mem", Bucket: "b", Key: "r"}
	h, err := peers.NewHTTP(web.URL+"/{key}", peers.HTTPOptions{Options: peers.Options{Mirrors: root, Now: time.Now}})
	if err != nil {
		t.Fatal(err)
	}
	ref := func(name string) reconcile.Reference {
		return reconcile.Reference{Role: reconcile.RoleData, Path: name, Location: root.Join("t.lance/" + name), Base: root.Join("t.lance"), Size: 5}
	}
	etags := func(p reconcile.Peer) []string {
		t.Helper()
		at, err := p.Ask(context.Background(), ref("data/a"))
		if err != nil {
			t.Fatal(err)
		}
		body, of, err := p.Fetch(context.Background(), ref("data/a"))
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		if data, err := io.ReadAll(body); err != nil || string(data) != "bytes" {
			t.Errorf("fetched %q, %v", data, err)
		}
		return []string{at.ETag, of.ETag}
	}
	if got := etags(h); got[0] == "" || got[1] == "" {
		t.Fatalf("the server tells the ETags %q", got)
	}
	if got := etags(giver{h}); got[0] != "" || got[1] != "" {
		t.Errorf("the giver tells the ETags %q", got)
	}
	if _, err := (giver{h}).Ask(context.Background(), ref("data/b")); !errors.Is(err, reconcile.ErrWeakNo) || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("a no is %v", err)
	}
}
