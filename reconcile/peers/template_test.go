package peers

import (
	"errors"
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestAddressesOfNames(t *testing.T) {
	t.Parallel()
	const tmpl = "https://h/blobs/{key}"
	for _, tt := range []struct{ template, name, want string }{
		{tmpl, "a/b.bin", "https://h/blobs/a/b.bin"},
		{tmpl, "a b", "https://h/blobs/a%20b"},
		{tmpl, "50%", "https://h/blobs/50%25"},
		{tmpl, "%2F%2e%2e", "https://h/blobs/%252F%252e%252e"},
		{tmpl, "a+b", "https://h/blobs/a%2Bb"},
		{tmpl, "ü/日本", "https://h/blobs/%C3%BC/%E6%97%A5%E6%9C%AC"},
		{tmpl, "\xff\x00\r\n", "https://h/blobs/%FF%00%0D%0A"},
		{tmpl, "/lead", "https://h/blobs//lead"},
		{tmpl, "//evil.example/x", "https://h/blobs///evil.example/x"},
		{tmpl, "trail/", "https://h/blobs/trail/"},
		{tmpl, "a//b", "https://h/blobs/a//b"},
		{tmpl, "a/../b", "https://h/blobs/a/%2E%2E/b"},
		{tmpl, "./b", "https://h/blobs/%2E/b"},
		{tmpl, ".", "https://h/blobs/%2E"},
		{tmpl, "...", "https://h/blobs/..."},
		{tmpl, ".a/b..", "https://h/blobs/.a/b.."},
		{tmpl, "a?b#c&d=e;f", "https://h/blobs/a%3Fb%23c%26d%3De%3Bf"},
		{tmpl, "user@evil.example:80", "https://h/blobs/user%40evil.example%3A80"},
		{tmpl, "http://evil.example/", "https://h/blobs/http%3A//evil.example/"},
		{"https://h/{key}", "/evil.example", "https://h//evil.example"},
		{"https://h/a%2Fb%20c/{key}/raw?x=1&y=%41", "k", "https://h/a%2Fb%20c/k/raw?x=1&y=%41"},
		{"https://h/get?t=1&name={key}&z", "a/../../ü&x=y", "https://h/get?t=1&name=a/%2E%2E/%2E%2E/%C3%BC%26x%3Dy&z"},
		{"https://h?{key}", "k", "https://h/?k"},
		{"https://h/key0/{key}", "k", "https://h/key0/k"},
	} {
		tm, err := parseTemplate(tt.template)
		if err != nil {
			t.Fatal(err)
		}
		u, err := tm.url(tt.name)
		if err != nil || u.String() != tt.want {
			t.Errorf("%s with %q: %v, %v; want %s", tt.template, tt.name, u, err, tt.want)
		}
	}
}

func TestNamesThatLeadOutOfTheFolder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ template, name string }{
		{"https://h/blobs/{key}", ".."},
		{"https://h/blobs/{key}", "../x"},
		{"https://h/blobs/{key}", "a/../../x"},
		{"https://h/blobs/{key}", "a/.././../x"},
		{"https://h/blobs/{key}", "/../x"},
		{"https://h/blobs/{key}", "a//../../x"},
		{"https://h/blobs/{key}", `..\x`},
		{"https://h/blobs/{key}", `a\..\..\x`},
		{"https://h/blobs/.{key}", "./x"},
		{"https://h/blobs/{key}.", "."},
		{"https://h/{key}", "../x"},
	} {
		tm, err := parseTemplate(tt.template)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := tm.url(tt.name); !errors.Is(err, errClimbs) {
			t.Errorf("%s with %q: %v, %v", tt.template, tt.name, u, err)
		}
	}
}

// FuzzTemplate: whatever a name holds, the address keeps scheme, host and folder, and
// the name comes back from it byte for byte.
func FuzzTemplate(f *testing.F) {
	for _, tmpl := range []string{"https://h/blobs/{key}", "http://h:1/a/x-{key}/raw?q=1", "https://h/get?n={key}&z=1", "https://h?{key}", "http://0/0//{key}", "https://h/a%2Fb%20c/.{key}."} {
		for _, name := range []string{"a b", "../x", "a/../../x", "//evil.example/", "/..", `..\..\x`, "%2e%2e/%2E", "ü+?#&=;@:", "\xff\x00\n", ".", "", "http://u:p@evil/"} {
			f.Add(tmpl, name)
		}
	}
	f.Fuzz(func(t *testing.T, tmpl, name string) {
		tm, err := parseTemplate(tmpl)
		if err != nil {
			return
		}
		u, err := tm.url(name)
		if err != nil {
			if tm.inQuery || !errors.Is(err, errClimbs) {
				t.Fatalf("%q with %q: %v", tmpl, name, err)
			}
			return
		}
		back, err := url.Parse(u.String())
		if err != nil {
			t.Fatalf("%q with %q: %q is no URL: %v", tmpl, name, u, err)
		}
		if back.Scheme != tm.scheme || back.Host != tm.host || back.User != nil || back.Fragment != "" || strings.ContainsAny(u.RequestURI(), " \r\n\t") {
			t.Fatalf("%q with %q leads to %q", tmpl, name, u)
		}
		got, before, after := back.RawQuery, tm.query, tm.queryEnd
		if !tm.inQuery {
			got, before, after = back.EscapedPath(), tm.path, tm.pathEnd
			if back.RawQuery != tm.query {
				t.Fatalf("%q with %q has the query %q", tmpl, name, back.RawQuery)
			}
		}
		got, ok1 := strings.CutPrefix(got, before)
		got, ok2 := strings.CutSuffix(got, after)
		plain, err := url.PathUnescape(got)
		if !ok1 || !ok2 || err != nil || plain != name {
			t.Fatalf("%q with %q: %q has the name %q (%v)", tmpl, name, u, plain, err)
		}
		// A server that decodes first and resolves then stays in the folder.
		folder, _ := url.PathUnescape(tm.path[:strings.LastIndexByte(tm.path, '/')+1]) // it was parsed before
		folder = strings.ReplaceAll(folder, `\`, "/")
		if clean := strings.TrimRight(path.Clean(folder), "/") + "/"; !tm.inQuery {
			resolved := path.Clean(strings.ReplaceAll(back.Path, `\`, "/")) + "/"
			if !strings.HasPrefix(resolved, clean) {
				t.Fatalf("%q with %q: %q resolves to %q", tmpl, name, u, resolved)
			}
		}
	})
}
