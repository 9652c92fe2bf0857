package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Versions is the part of the suite about versions alone, for stores that cannot run
// all of it with versions on.
func Versions(t *testing.T, s objstore.Writer, h Helper) {
	loc := h.put(t, s, "k", "one")
	if h.Odd == nil || h.Odd("k/below") {
		h.put(t, s, "k/below", "other")
	}
	other := h.put(t, s, "k2", "other")
	if got := collect(t, s, h.Root.Join("never")); len(got) != 0 {
		t.Errorf("versions of a key that never was: %+v", got)
	}
	if !h.Versions {
		withoutVersions(t, s, h, loc)
		return
	}
	a, err := s.Stat(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace(t.Context(), loc, a.ETag, strings.NewReader("second"), 6); err != nil {
		t.Fatal(err)
	}
	h.Remove(t, loc)
	got := collect(t, s, loc)
	if len(got) != 3 {
		t.Fatalf("%d versions, want 3: %+v", len(got), got)
	}
	if !got[0].DeleteMarker || !got[0].IsLatest || got[1].Size != 6 || got[2].Size != 3 || got[1].IsLatest || got[2].IsLatest || got[1].DeleteMarker {
		t.Errorf("versions: %+v", got)
	}
	ids := map[string]bool{got[0].VersionID: true, got[1].VersionID: true, got[2].VersionID: true}
	if len(ids) != 3 || ids[""] {
		t.Errorf("version ids: %v", ids)
	}
	if got[2].ETag != a.ETag {
		t.Errorf("ETag of the first version %q, want %q", got[2].ETag, a.ETag)
	}
	if v, err := s.Versioning(t.Context(), loc); v != objstore.VersioningEnabled || err != nil {
		t.Errorf("versioning %q, %v", v, err)
	}
	getVersions(t, s, loc, got, collect(t, s, other)[0].VersionID)
}

func collect(t testing.TB, s objstore.Versioner, loc objstore.Location) (got []objstore.Attrs) {
	t.Helper()
	for a, err := range s.Versions(t.Context(), loc) {
		if err != nil {
			t.Fatalf("versions: %v", err)
		}
		if a.Location != loc {
			t.Errorf("a version of %s", a.Location)
		}
		got = append(got, a)
	}
	return got
}

// withoutVersions is what holds where none are kept.
func withoutVersions(t *testing.T, s objstore.Writer, h Helper, loc objstore.Location) {
	if got := collect(t, s, loc); len(got) > 1 {
		t.Errorf("a store without versions has several: %+v", got)
	}
	if v, err := s.Versioning(t.Context(), loc); v != objstore.VersioningNever || err != nil {
		t.Errorf("versioning %q, %v", v, err)
	}
	rc, _, err := s.GetVersion(t.Context(), loc, "another", objstore.Range{})
	if err == nil {
		_ = rc.Close() // the test has failed
		t.Error("a store without versions has one of any name")
	}
	h.Remove(t, loc)
	if got := collect(t, s, loc); len(got) != 0 {
		t.Errorf("a store without versions kept one: %+v", got)
	}
	if _, err := s.CreateOverMarker(t.Context(), loc, "marker", strings.NewReader("x"), 1); err == nil {
		t.Error("a store without versions has a delete marker")
	}
	if _, err := s.Stat(t.Context(), loc); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("after a put over no marker: %v", err)
	}
}

// getVersions reads what [Versions] made: the marker, "second", "one".
func getVersions(t *testing.T, s objstore.Writer, loc objstore.Location, got []objstore.Attrs, absent string) {
	get := func(id string, r objstore.Range) (string, objstore.Attrs, error) {
		rc, a, err := s.GetVersion(t.Context(), loc, id, r)
		if err != nil {
			return "", a, err
		}
		data, err := io.ReadAll(rc)
		return string(data), a, errors.Join(err, rc.Close())
	}
	for _, tt := range []struct {
		v    objstore.Attrs
		r    objstore.Range
		want string
	}{
		{got[1], objstore.Range{}, "second"}, {got[2], objstore.Range{}, "one"},
		{got[2], objstore.Range{Offset: 1, Length: 1}, "n"}, {got[1], objstore.Range{Offset: 2}, "cond"},
		{got[1], objstore.Range{Offset: -2}, "nd"}, {got[2], objstore.Range{Offset: -9}, "one"}, {got[2], objstore.Range{Offset: 7, Length: 1}, ""},
	} {
		data, a, err := get(tt.v.VersionID, tt.r)
		if err != nil || data != tt.want || a.Size != tt.v.Size || a.ETag != tt.v.ETag || a.VersionID != tt.v.VersionID || a.Location != loc {
			t.Errorf("version %s %+v: %q, %+v, %v; want %q", tt.v.VersionID, tt.r, data, a, err, tt.want)
		}
	}
	for what, id := range map[string]string{"a delete marker": got[0].VersionID, "a version of another key": absent} {
		_, _, err := get(id, objstore.Range{})
		wantError(t, "get "+what, err, objstore.ErrNotExist)
		var e *objstore.Error
		if errors.As(err, &e) && e.DeleteMarker != (id == got[0].VersionID) {
			t.Errorf("get %s: %+v", what, e)
		}
	}
	_, _, err := get("", objstore.Range{})
	wantInvalid(t, "get no version", err)
	_, _, err = get(got[1].VersionID, objstore.Range{Offset: -1, Length: 1})
	wantInvalid(t, "get a range without sense", err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.GetVersion(ctx, loc, got[1].VersionID, objstore.Range{}); !errors.Is(err, context.Canceled) {
		t.Errorf("under an ended context: %v", err)
	}
}

// OverMarkers is the part of the suite about putting objects over delete markers; a
// store without versions passes it by having none.
func OverMarkers(t *testing.T, s objstore.Writer, h Helper) {
	if !h.Versions {
		t.Skip("this store keeps no versions")
	}
	loc := h.put(t, s, "k", "lost")
	h.Remove(t, loc)
	before := collect(t, s, loc)
	marker := before[0].VersionID
	_, err := s.CreateOverMarker(t.Context(), loc, "", strings.NewReader("x"), 1)
	wantInvalid(t, "over no marker", err)
	_, err = s.CreateOverMarker(t.Context(), loc, before[1].VersionID, strings.NewReader("x"), 1)
	wantError(t, "over a version that is no marker", err, objstore.ErrExist)
	_, err = s.CreateOverMarker(t.Context(), h.Root.Join("never"), marker, strings.NewReader("x"), 1)
	wantError(t, "over a marker of another key", err, objstore.ErrExist)
	if _, err = s.CreateOverMarker(t.Context(), loc, marker, strings.NewReader("x"), 2); err == nil {
		t.Error("a body of another size was put")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.CreateOverMarker(ctx, loc, marker, strings.NewReader("x"), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("under an ended context: %v", err)
	}
	if got := collect(t, s, loc); len(got) != 2 || got[0].VersionID != marker {
		t.Fatalf("what was refused left behind: %+v", got)
	}

	a, err := s.CreateOverMarker(t.Context(), loc, marker, io.MultiReader(strings.NewReader("lo"), strings.NewReader("st")), 4)
	if err != nil {
		t.Fatal(err)
	}
	if a.Size != 4 || a.VersionID == "" || a.ETag != before[1].ETag || a.Location != loc {
		t.Errorf("put: %+v", a)
	}
	if data, _ := read(t, s, loc, objstore.Range{}); data != "lost" {
		t.Errorf("the object is now %q", data)
	}
	got := collect(t, s, loc)
	kept := map[string]bool{}
	for _, v := range got {
		kept[v.VersionID] = true
	}
	if len(got) != 3 || got[0].VersionID != a.VersionID || !kept[marker] || !kept[before[1].VersionID] {
		t.Errorf("versions: %+v", got)
	}
	_, err = s.CreateOverMarker(t.Context(), loc, marker, strings.NewReader("x"), 1)
	wantError(t, "over a marker under an object", err, objstore.ErrExist)
	h.Remove(t, loc)
	_, err = s.CreateOverMarker(t.Context(), loc, marker, strings.NewReader("x"), 1)
	wantError(t, "over a marker under another", err, objstore.ErrExist)
	if errors.Is(err, objstore.ErrConflict) {
		t.Errorf("nothing was put, and yet %v", err)
	}
}

// OverMarkerRace is the part of the suite about that under contention: of many that bring back one object at most one may believe that it
// alone did, and nothing older is lost.
func OverMarkerRace(t *testing.T, s objstore.Writer, h Helper) {
	if !h.Versions {
		t.Skip("this store keeps no versions")
	}
	loc := h.put(t, s, "k", "lost")
	h.Remove(t, loc)
	before := collect(t, s, loc)
	won := 0
	for _, err := range race(8, func(i int) error {
		_, err := s.CreateOverMarker(t.Context(), loc, before[0].VersionID, bytes.NewReader(bytes.Repeat([]byte{byte('a' + i)}, 100)), 100)
		return err
	}) {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, objstore.ErrExist):
			t.Errorf("a loser: %v", err)
		}
	}
	if won > 1 {
		t.Errorf("%d believe that they alone put the object", won)
	}
	kept := 0
	for _, v := range collect(t, s, loc) {
		if v.VersionID == before[0].VersionID || v.VersionID == before[1].VersionID {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d of the older versions are left", kept)
	}
}
