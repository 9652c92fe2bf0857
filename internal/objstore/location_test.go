package objstore_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

func s3loc(bucket, key string) objstore.Location {
	return objstore.Location{Scheme: "s3", Bucket: bucket, Key: key}
}

func fileloc(key string) objstore.Location { return objstore.Location{Scheme: "file", Key: key} }

func TestParse(t *testing.T) {
	t.Parallel()
	wd, err := filepath.Abs("")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, uri string
		want      objstore.Location
	}{
		{"a bucket and a key", "s3://b/x.lance/data/f.lance", s3loc("b", "x.lance/data/f.lance")},
		{"a bucket alone", "s3://b", s3loc("b", "")},
		{"a bucket with a slash", "s3://b/", s3loc("b", "")},
		{"s3a is s3", "s3a://b/k", s3loc("b", "k")},
		{"s3n is s3", "s3n://b/k", s3loc("b", "k")},
		{"schemes have no case", "S3://b/k", s3loc("b", "k")},
		{"a key is not decoded", "s3://b/a%20b+c", s3loc("b", "a%20b+c")},
		{"a key is not cleaned", "s3://b/a//b/../c/./", s3loc("b", "a//b/../c/./")},
		{"a key may begin with a slash", "s3://b//k", s3loc("b", "/k")},
		{"a key may hold what URLs give meaning to", "s3://b/a?b#c&d", s3loc("b", "a?b#c&d")},
		{"a key may be of any letters", "s3://b/ü 🙂", s3loc("b", "ü 🙂")},
		{"a file URI", "file:///data/x.lance", fileloc("/data/x.lance")},
		{"a file URI is percent-decoded", "file:///a%20b/%C3%BC", fileloc("/a b/ü")},
		{"a file URI of localhost", "file://localhost/data", fileloc("/data")},
		{"a file URI with one slash", "file:/data", fileloc("/data")},
		{"a trailing slash of a file is dropped", "file:///data/", fileloc("/data")},
		{"a file path is cleaned", "file:///a//b/../c/.", fileloc("/a/c")},
		{"the root of the disk", "file:///", fileloc("/")},
		{"a plain path", "/data/x", fileloc("/data/x")},
		{"a plain path is not decoded", "/data/a%20b", fileloc("/data/a%20b")},
		{"a relative path", "x/y", fileloc(filepath.ToSlash(wd) + "/x/y")},
		{"a path with a colon", "/data/a:b", fileloc("/data/a:b")},
		{"memory", "mem://b/k", objstore.Location{Scheme: "mem", Bucket: "b", Key: "k"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := objstore.Parse(tt.uri)
			if err != nil || got != tt.want {
				t.Errorf("Parse(%q) = %+v, %v; want %+v", tt.uri, got, err, tt.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, uri   string
		unsupported bool
		says        string
	}{
		{"nothing", "", false, "empty"},
		{"no bucket", "s3:///k", false, "names no bucket"},
		{"a host in a file URI", "file://host/path", false, "three slashes"},
		{"a bad escape", "file:///a%zz", false, "percent escape"},
		{"a NUL", "/a\x00b", false, "NUL"},
		{"an escaped NUL", "file:///a%00b", false, "NUL"},
		{"a port in a bucket", "s3://host:9000/b/k", false, "environment or the configuration"},
		{"azure", "az://c/p", true, "Azure"},
		{"azure by its older name", "abfss://c@a.dfs.core.windows.net/p", true, "Azure"},
		{"google", "gs://b/p", true, "Google"},
		{"a commit store", "s3+ddb://b/p?ddbTableName=t", true, "DynamoDB"},
		{"a web page", "https://example.com/x", true, "unknown scheme"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := objstore.Parse(tt.uri)
			var pe *objstore.ParseError
			if !errors.As(err, &pe) || got != (objstore.Location{}) {
				t.Fatalf("Parse(%q) = %+v, %v; want a ParseError", tt.uri, got, err)
			}
			if errors.Is(err, objstore.ErrUnsupported) != tt.unsupported || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Parse(%q): %v", tt.uri, err)
			}
		})
	}
}

func TestParseErrorsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "wJalr/XUtnFEMI"
	for _, uri := range []string{
		"s3://AKIAEXAMPLE:" + secret + "@bucket/key",
		"https://user:" + secret + "@host/path",
		"https://host/path?X-Amz-Signature=" + secret,
		"s3+ddb://b/k?token=" + secret,
		"user:" + secret + "@host/\x00",
		"file://user:" + secret + "@host/p",
	} {
		_, err := objstore.Parse(uri)
		if err == nil {
			t.Errorf("Parse(%q) worked", uri)
			continue
		}
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
			if strings.Contains(text, secret) || strings.Contains(text, "XUtnFEMI") || strings.Contains(text, "AKIAEXAMPLE") {
				t.Errorf("the error of %q tells a secret: %s", uri, text)
			}
		}
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	custom := s3loc("b", "k/")
	custom.Endpoint = "127.0.0.1:7070"
	whole := custom
	whole.Key = ""
	for _, tt := range []struct {
		loc       objstore.Location
		str, want string
	}{
		{s3loc("b", "k"), "s3://b/k", "s3://b/k"},
		{s3loc("b", "k/"), "s3://b/k/", "s3://b/k"},
		{s3loc("b", ""), "s3://b/", "s3://b"},
		{custom, "s3://b/k/", "s3://b@127.0.0.1:7070/k"},
		{whole, "s3://b/", "s3://b@127.0.0.1:7070"},
		{fileloc("/data/x"), "file:///data/x", "file:///data/x"},
		{fileloc("/data/x/"), "file:///data/x/", "file:///data/x"},
		{fileloc("/a b?c#d%"), "file:///a%20b%3Fc%23d%25", "file:///a%20b%3Fc%23d%25"},
		{fileloc("/"), "file:///", "file:///"},
		{objstore.Location{}, "", ""},
	} {
		if got := tt.loc.String(); got != tt.str {
			t.Errorf("%+v.String() = %q, want %q", tt.loc, got, tt.str)
		}
		if got := tt.loc.Canonical(); got != tt.want {
			t.Errorf("%+v.Canonical() = %q, want %q", tt.loc, got, tt.want)
		}
	}
}

func TestNamesOfOnePlaceAreEqual(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{
		{"s3://b/k", "s3a://b/k", "s3n://b/k", "S3A://b/k", "s3://b/k/"},
		{"/data/x", "file:///data/x", "file:/data/x", "file://localhost/data/x/", "/data//y/../x"},
	} {
		want := ""
		for _, name := range names {
			loc, err := objstore.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				want = loc.Canonical()
			}
			if got := loc.Canonical(); got != want {
				t.Errorf("%s is %s, not %s", name, got, want)
			}
		}
	}
}

func TestJoinParentDirBaseRel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ root, name, want objstore.Location }{
		{s3loc("b", ""), s3loc("", "x"), s3loc("b", "x")},
		{s3loc("b", "a"), s3loc("", "x/y"), s3loc("b", "a/x/y")},
		{s3loc("b", "a/"), s3loc("", "x"), s3loc("b", "a/x")},
		{s3loc("b", "a//"), s3loc("", "x"), s3loc("b", "a//x")},
		{s3loc("b", "a"), s3loc("", "../x"), s3loc("b", "a/../x")},
		{fileloc("/a"), s3loc("", "x"), fileloc("/a/x")},
		{fileloc("/"), s3loc("", "x"), fileloc("/x")},
	} {
		if got := tt.root.Join(tt.name.Key); got != tt.want {
			t.Errorf("%+v.Join(%q) = %+v, want %+v", tt.root, tt.name.Key, got, tt.want)
		}
	}
	for _, tt := range []struct {
		loc, parent, dir objstore.Location
		base             string
	}{
		{s3loc("b", "a/b/c"), s3loc("b", "a/b"), s3loc("b", "a/b/c/"), "c"},
		{s3loc("b", "a/b/"), s3loc("b", "a"), s3loc("b", "a/b/"), "b"},
		{s3loc("b", "a"), s3loc("b", ""), s3loc("b", "a/"), "a"},
		{s3loc("b", ""), s3loc("b", ""), s3loc("b", ""), "."},
		{fileloc("/a/b"), fileloc("/a"), fileloc("/a/b/"), "b"},
		{fileloc("/a"), fileloc("/"), fileloc("/a/"), "a"},
		{fileloc("/"), fileloc("/"), fileloc("/"), "."},
	} {
		if got := tt.loc.Parent(); got != tt.parent {
			t.Errorf("%+v.Parent() = %+v, want %+v", tt.loc, got, tt.parent)
		}
		if got := tt.loc.Dir(); got != tt.dir {
			t.Errorf("%+v.Dir() = %+v, want %+v", tt.loc, got, tt.dir)
		}
		if got := tt.loc.Base(); got != tt.base {
			t.Errorf("%+v.Base() = %q, want %q", tt.loc, got, tt.base)
		}
	}
	elsewhere := s3loc("b", "a/x")
	elsewhere.Endpoint = "host"
	for _, tt := range []struct {
		loc, dir objstore.Location
		name     string
		ok       bool
	}{
		{s3loc("b", "a/x/y"), s3loc("b", "a"), "x/y", true},
		{s3loc("b", "a/x/y"), s3loc("b", "a/"), "x/y", true},
		{s3loc("b", "a/x"), s3loc("b", ""), "a/x", true},
		{s3loc("b", "ab/x"), s3loc("b", "a"), "", false},
		{s3loc("b", "a"), s3loc("b", "a"), "", false},
		{s3loc("c", "a/x"), s3loc("b", "a"), "", false},
		{elsewhere, s3loc("b", "a"), "", false},
		{fileloc("/a/x"), fileloc("/"), "a/x", true},
		{fileloc("/a/x"), fileloc("/a"), "x", true},
	} {
		if name, ok := tt.loc.Rel(tt.dir); ok != tt.ok || ok && name != tt.name {
			t.Errorf("%+v.Rel(%+v) = %q, %v", tt.loc, tt.dir, name, ok)
		}
	}
}

// FuzzParse: Parse never panics, and what it accepts has a name that leads back to it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"s3://b/k", "s3a://b//k?x#y", "file:///a%20b/", "file:/x", "/plain/%zz", "rel/../x", "s3://AK:se/cret@b/k", "mem://b/k",
		"az://c", "", "://", "s3://", "file://", "file:", "a\x00b", "FILE:///x", "file:////x//", "s3://b/\xff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		l, err := objstore.Parse(uri)
		if err != nil {
			if l != (objstore.Location{}) || err.Error() == "" {
				t.Errorf("Parse(%q) = %+v with %v", uri, l, err)
			}
			return
		}
		_ = l.Canonical() + l.Base()
		if l.Scheme != "s3" && l.Scheme != "file" {
			return
		}
		if back, err := objstore.Parse(l.String()); err != nil || back != l {
			t.Errorf("Parse(%q) = %+v, its name %q leads to %+v, %v", uri, l, l.String(), back, err)
		}
		if dir := l.Parent(); l.Key != "" && l.Key != "/" && !strings.HasSuffix(l.Key, "/") {
			if name, ok := l.Rel(dir); !ok || dir.Join(name) != l {
				t.Errorf("%+v is not %q below its parent %+v", l, name, dir)
			}
		}
	})
}
