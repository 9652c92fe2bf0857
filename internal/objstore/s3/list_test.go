package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
)

// canned answers every request with the next of its bodies, the last one for ever.
func canned(t testing.TB, bodies ...string) (*s3.Store, objstore.Location, *[]string) {
	t.Helper()
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := min(len(asked), len(bodies)-1)
		asked = append(asked, r.URL.RawQuery)
		_, _ = fmt.Fprint(w, bodies[i]) // the client will notice
	}))
	t.Cleanup(srv.Close)
	c, err := s3.NewClient(t.Context(), s3.Options{Endpoint: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s, root := bucket(t, c, "bucket")
	return s, root, &asked
}

func page(inner string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name>` + inner + `</ListBucketResult>`
}

func contents(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString("<Contents><Key>" + k + "</Key><Size>1</Size></Contents>")
	}
	return b.String()
}

func keys(t *testing.T, s *s3.Store, prefix objstore.Location, delimiter string) (got []string, err error) {
	t.Helper()
	for a, e := range s.List(t.Context(), prefix, delimiter) {
		if e != nil {
			return got, e
		}
		got = append(got, a.Location.Key)
	}
	return got, nil
}

func TestKeysOfAListing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{"an encoded key", "<EncodingType>url</EncodingType>" + contents("a+b%2Bc%2520%0A%F0%9F%99%82/%26"), []string{"a b+c%20\n🙂/&"}},
		{"a key of a server that does not encode", contents("a+b%2Bc&amp;&lt;&#10;"), []string{"a+b%2Bc&<\n"}},
		{"prefixes between keys", "<EncodingType>url</EncodingType>" + contents("a", "c", "e") + "<CommonPrefixes><Prefix>b%2F/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes>", []string{"a", "b//", "c", "d/", "e"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, root, asked := canned(t, page(tt.body))
			got, err := keys(t, s, root, "/")
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if q := (*asked)[0]; !strings.Contains(q, "encoding-type=url") {
				t.Errorf("asked %s", q)
			}
		})
	}
}

func TestAListingThatDoesNotEndIsAnError(t *testing.T) {
	t.Parallel()
	for name, bodies := range map[string][]string{
		"no token":          {page("<IsTruncated>true</IsTruncated>" + contents("a"))},
		"the token again":   {page("<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>" + contents("a"))},
		"a key of no sense": {page("<EncodingType>url</EncodingType>" + contents("a%zz"))},
		"no XML":            {"<html>hello</ht"},
		"half a page":       {page(contents("a"))[:80]},
		"nothing":           {""},
		"a web page":        {"<html><body><p>Welcome</p></body></html>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root, asked := canned(t, bodies...)
			got, err := keys(t, s, root, "")
			e := wantKind(t, "list", err, nil)
			if len(*asked) > 2 || !e.Retryable() {
				t.Errorf("%q, %v after %d requests", got, err, len(*asked))
			}
		})
	}
}

func versionsPage(inner string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><ListVersionsResult><Name>bucket</Name>` + inner + `</ListVersionsResult>`
}

func entry(kind, key, id, at string, latest bool) string {
	return fmt.Sprintf("<%s><Key>%s</Key><VersionId>%s</VersionId><IsLatest>%v</IsLatest><LastModified>%s</LastModified><Size>3</Size><ETag>&quot;e%s&quot;</ETag></%s>", kind, key, id, latest, at, id, kind)
}

func TestVersionsOfOneKey(t *testing.T) {
	t.Parallel()
	const t0, t1, t2, t3 = "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:02.000Z", "2026-01-01T00:00:03.000Z"
	for _, tt := range []struct {
		name  string
		pages []string
		want  []string
		asks  int
	}{
		{"none", []string{versionsPage("")}, nil, 1},
		{"only of longer keys", []string{versionsPage("<IsTruncated>true</IsTruncated><NextKeyMarker>k2</NextKeyMarker>" + entry("Version", "k2", "x", t0, true))}, nil, 1},
		{"newest first, markers between", []string{versionsPage(entry("Version", "k", "3", t2, false) + entry("Version", "k", "1", t0, false) + entry("DeleteMarker", "k", "4", t3, true) + entry("DeleteMarker", "k", "2", t1, false) + entry("Version", "k/x", "9", t3, true))}, []string{"4", "3", "2", "1"}, 1},
		{"the latest leads among equal times", []string{versionsPage(entry("Version", "k", "1", t1, false) + entry("DeleteMarker", "k", "2", t1, true))}, []string{"2", "1"}, 1},
		{"over pages", []string{
			versionsPage("<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker><NextVersionIdMarker>3</NextVersionIdMarker>" + entry("Version", "k", "3", t3, true)),
			versionsPage("<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker><NextVersionIdMarker>2</NextVersionIdMarker>" + entry("Version", "k", "2", t2, false)),
			versionsPage("<IsTruncated>true</IsTruncated><NextKeyMarker>k2</NextKeyMarker><NextVersionIdMarker>8</NextVersionIdMarker>" + entry("Version", "k", "1", t1, false) + entry("Version", "k2", "8", t1, true)),
			versionsPage(entry("Version", "k", "never asked for", t0, false)),
		}, []string{"3", "2", "1"}, 3},
		{"an encoded key", []string{versionsPage("<EncodingType>url</EncodingType>" + entry("Version", "%6B", "1", t1, true))}, []string{"1"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, root, asked := canned(t, tt.pages...)
			var got []string
			for a, err := range s.Versions(t.Context(), root.Join("k")) {
				if err != nil {
					t.Fatal(err)
				}
				if !a.DeleteMarker && (a.Size != 3 || a.ETag != "e"+a.VersionID) || a.ModTime.IsZero() || a.Location != root.Join("k") {
					t.Errorf("got %+v", a)
				}
				got = append(got, a.VersionID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(*asked) != tt.asks {
				t.Errorf("%d requests (-want +got):\n%s", len(*asked), diff)
			}
		})
	}
}

func TestVersionsThatAreNotWholeAreAnError(t *testing.T) {
	t.Parallel()
	const at = "2026-01-01T00:00:00.000Z"
	for name, body := range map[string]string{
		"no marker":       "<IsTruncated>true</IsTruncated>" + entry("Version", "k", "1", at, true),
		"the same marker": "<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker><NextVersionIdMarker>1</NextVersionIdMarker>" + entry("Version", "k", "1", at, true),
		"a broken key":    "<EncodingType>url</EncodingType>" + entry("Version", "%zz", "1", at, true),
		"nothing":         "",
		"a web page":      "<html><body><p>Welcome</p></body></html>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(body, "Version") {
				body = versionsPage(body)
			}
			s, root, asked := canned(t, body)
			var err error
			for _, e := range s.Versions(t.Context(), root.Join("k")) {
				err = e
			}
			wantKind(t, "versions", err, nil)
			if len(*asked) > 2 {
				t.Errorf("%d requests", len(*asked))
			}
		})
	}
}
