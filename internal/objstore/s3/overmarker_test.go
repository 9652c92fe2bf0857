package s3_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// marked is a versioned bucket with a script in front, in which "k" lies under a
// delete marker.
type marked struct {
	srv    *servertest.Server
	s      *s3.Store
	k      objstore.Location
	marker string
	before []string
}

func underMarker(t *testing.T, upstream *servertest.Server) *marked {
	t.Helper()
	m := &marked{srv: upstream}
	if m.srv.Script == nil {
		m.srv = servertest.Proxy(t, upstream)
	}
	m.srv.EnableVersions(t)
	s, root := bucket(t, client(t, m.srv, s3.Options{}), m.srv.Bucket)
	m.s, m.k = s, root.Join("k")
	m.srv.Put(t, "k", []byte("lost"))
	m.srv.Remove(t, "k")
	vs := m.versions(t)
	if len(vs) != 2 || !vs[0].DeleteMarker {
		t.Fatalf("versions %+v", vs)
	}
	m.marker, m.before = vs[0].VersionID, []string{vs[0].VersionID, vs[1].VersionID}
	m.srv.ClearLog()
	return m
}

func (m *marked) versions(t *testing.T) (all []objstore.Attrs) {
	t.Helper()
	for a, err := range m.s.Versions(t.Context(), m.k) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

func (m *marked) create(t *testing.T) (objstore.Attrs, error) {
	t.Helper()
	return m.s.CreateOverMarker(t.Context(), m.k, m.marker, strings.NewReader("ours"), 4)
}

func (m *marked) ops() (ops []string) {
	for _, r := range m.srv.Requests() {
		ops = append(ops, r.Op)
	}
	return ops
}

// data is the newest bytes; empty when there is no object.
func (m *marked) data(t *testing.T) string {
	t.Helper()
	rc, _, err := m.s.Get(t.Context(), m.k, objstore.Range{})
	if errors.Is(err, objstore.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestBothKindsOfServersOverAMarker: one refuses If-None-Match over a marker, the other
// looks through the marker as AWS does.
func TestBothKindsOfServersOverAMarker(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		start func(testing.TB) *servertest.Server
		want  []string
	}{
		{"create is refused", servertest.Versitygw, []string{"LIST", "PUT", "LIST", "PUT", "LIST"}},
		{"create looks through the marker", servertest.S3, []string{"LIST", "PUT", "LIST"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := underMarker(t, tt.start(t))
			a, err := m.create(t)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, m.ops()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if vs := m.versions(t); m.data(t) != "ours" || len(vs) != 3 || vs[0].VersionID != a.VersionID {
				t.Errorf("versions %+v, data %q", vs, m.data(t))
			}
		})
	}
}

func TestSuiteOfMarkersWhereCreateLooksThroughThem(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.EnableVersions(t)
	s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
	h := objstoretest.Helper{Versions: true, Remove: func(t testing.TB, loc objstore.Location) { srv.Remove(t, loc.Key) }}
	h.Root = root.Join("markers")
	objstoretest.OverMarkers(t, s, h)
	h.Root = root.Join("race")
	objstoretest.OverMarkerRace(t, s, h)
}

// TestWhatComesInBetween: whatever another writer does, and whenever, what was there
// and what it put are kept, and a success means that nobody came in between.
func TestWhatComesInBetween(t *testing.T) {
	t.Parallel()
	list := servertest.Rule{Op: "LIST", Query: "versions", Count: 1}
	put := servertest.Rule{Op: "PUT", Key: "k", Count: 1}
	nth := func(r servertest.Rule, n int) servertest.Rule { r.From = n; return r }
	theirs := func(t *testing.T, m *marked) { m.srv.Put(t, "k", []byte("theirs")) }
	for _, tt := range []struct {
		name   string
		rule   servertest.Rule
		do     func(t *testing.T, m *marked)
		put    bool   // ours was put
		newest string // afterwards
		gone   bool   // the marker is, by the other's hand
	}{
		{"an object before the first look", nth(list, 1), theirs, false, "theirs", false},
		{"an object before the create", nth(put, 1), theirs, false, "theirs", false},
		{"an object before the second look", nth(list, 2), theirs, false, "theirs", false},
		{"an object before the put", nth(put, 2), theirs, true, "ours", false},
		{"an object before the last look", nth(list, 3), theirs, true, "theirs", false},
		{"an object and its removal before the second look", nth(list, 2), func(t *testing.T, m *marked) {
			theirs(t, m)
			m.srv.Remove(t, "k")
		}, false, "", false},
		{"a removal of ours before the last look", nth(list, 3), func(t *testing.T, m *marked) { m.srv.Remove(t, "k") }, true, "", false},
		{"the marker's removal before the second look", nth(list, 2), func(t *testing.T, m *marked) { m.srv.RemoveVersion(t, "k", m.marker) }, false, "lost", true},
		{"the marker's removal before the last look", nth(list, 3), func(t *testing.T, m *marked) { m.srv.RemoveVersion(t, "k", m.marker) }, true, "ours", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := underMarker(t, servertest.Versitygw(t))
			rule := tt.rule
			acted := false
			rule.Before = func() {
				if !acted { // what it does may be selected by the rule itself
					acted = true
					tt.do(t, m)
				}
			}
			m.srv.Add(rule)
			_, err := m.create(t)
			if !acted {
				t.Fatalf("the moment did not come: %v", m.ops())
			}
			if !errors.Is(err, objstore.ErrExist) || errors.Is(err, objstore.ErrConflict) != tt.put || strings.Contains(err.Error(), "conflict") != tt.put {
				t.Errorf("got %v; conflict wanted: %v", err, tt.put)
			}
			if got := m.data(t); got != tt.newest {
				t.Errorf("the newest bytes are %q", got)
			}
			kept := map[string]bool{}
			for _, v := range m.versions(t) {
				kept[v.VersionID] = true
			}
			if !kept[m.before[1]] || kept[m.before[0]] == tt.gone {
				t.Errorf("left of %q: %v", m.before, kept)
			}
		})
	}
}

func TestWhenTheVersionsCannotBeListed(t *testing.T) {
	t.Parallel()
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		m := underMarker(t, servertest.Versitygw(t))
		m.srv.Add(servertest.Rule{Op: "LIST", Status: http.StatusForbidden, Code: "AccessDenied"})
		_, err := m.create(t)
		wantKind(t, "create", err, objstore.ErrDenied)
		if diff := cmp.Diff([]string{"LIST"}, m.ops()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
	t.Run("once afterwards", func(t *testing.T) {
		t.Parallel()
		m := underMarker(t, servertest.Versitygw(t))
		m.srv.Add(servertest.Rule{Op: "LIST", From: 3, Count: 1, Status: http.StatusServiceUnavailable, Code: "SlowDown"})
		if _, err := m.create(t); err != nil {
			t.Error(err)
		}
	})
	t.Run("afterwards", func(t *testing.T) {
		t.Parallel()
		m := underMarker(t, servertest.Versitygw(t))
		m.srv.Add(servertest.Rule{Op: "LIST", From: 3, Status: http.StatusForbidden, Code: "AccessDenied"})
		_, err := m.create(t)
		// The outcome is unknown: neither a refusal nor a conflict.
		if e := wantKind(t, "create", err, nil); e.Status != 0 || errors.Is(err, objstore.ErrDenied) || errors.Is(err, objstore.ErrExist) {
			t.Errorf("got %v", err)
		}
		if m.srv.ClearRules(); m.data(t) != "ours" {
			t.Errorf("the newest bytes are %q", m.data(t))
		}
	})
}

// TestSuspendedVersioning: a write takes the place of the version "null".
func TestSuspendedVersioning(t *testing.T) {
	t.Parallel()
	t.Run("the marker is null", func(t *testing.T) {
		t.Parallel()
		m := underMarker(t, servertest.Versitygw(t))
		m.srv.SuspendVersions(t)
		m.srv.Put(t, "k", []byte("null"))
		m.srv.Remove(t, "k")
		m.marker = m.versions(t)[0].VersionID
		if m.marker != objstore.NullVersion {
			t.Fatalf("marker %q", m.marker)
		}
		if v, err := m.s.Versioning(t.Context(), m.k); v != objstore.VersioningSuspended || err != nil {
			t.Errorf("versioning %q, %v", v, err)
		}
		if _, err := m.create(t); err != nil || m.data(t) != "ours" {
			t.Errorf("%v, data %q", err, m.data(t))
		}
	})
	t.Run("an older object is null", func(t *testing.T) {
		t.Parallel()
		srv := servertest.Proxy(t, servertest.Versitygw(t))
		srv.Put(t, "k", []byte("from before versions"))
		srv.EnableVersions(t)
		srv.Remove(t, "k")
		srv.SuspendVersions(t)
		s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
		m := &marked{srv: srv, s: s, k: root.Join("k")}
		vs := m.versions(t)
		m.marker = vs[0].VersionID
		if len(vs) != 2 || vs[1].VersionID != objstore.NullVersion || m.marker == objstore.NullVersion {
			t.Fatalf("versions %+v", vs)
		}
		_, err := m.create(t)
		wantKind(t, "create", err, objstore.ErrUnsupported)
		if diff := cmp.Diff(len(vs), len(m.versions(t))); diff != "" || m.data(t) != "" {
			t.Errorf("something was put: %+v", m.versions(t))
		}
		// Enabled again, nothing is lost by a write.
		srv.EnableVersions(t)
		if _, err := m.create(t); err != nil || m.data(t) != "ours" || len(m.versions(t)) != 3 {
			t.Errorf("%v, versions %+v", err, m.versions(t))
		}
	})
}

// TestServersThatDoNotKnowVersions answer about something else; that is never a "no".
func TestServersThatDoNotKnowVersions(t *testing.T) {
	t.Parallel()
	m := underMarker(t, servertest.S3(t))
	m.srv.Put(t, "other", []byte("x"))
	old := m.before[1]
	m.srv.Put(t, "k", []byte("newest"))
	m.srv.Add(servertest.Rule{Ignore: []string{"versions", "versionId", "versioning"}})
	for _, err := range m.s.Versions(t.Context(), m.k) {
		if err == nil {
			t.Error("a listing of objects is read as one of versions")
		} else if !strings.Contains(err.Error(), "ListBucketResult") {
			t.Error(err)
		}
	}
	if v, err := m.s.Versioning(t.Context(), m.k); err == nil {
		t.Errorf("versioning %q", v)
	}
	for _, r := range []objstore.Range{{}, {Offset: 1, Length: 2}, {Offset: 100, Length: 1}} {
		rc, a, err := m.s.GetVersion(t.Context(), m.k, old, r)
		if err == nil {
			_ = rc.Close() // the test has failed
			t.Errorf("another version was taken for the one asked for: %+v", a)
		} else if errors.Is(err, objstore.ErrNotExist) {
			t.Errorf("absence from an answer about something else: %v", err)
		}
	}
}
