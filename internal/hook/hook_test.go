package hook

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func compiled(t *testing.T, post, body string, headers map[string]string) *Hook {
	t.Helper()
	h, wrong := New(post, body, headers)
	if len(wrong) > 0 {
		t.Fatalf("%q, %q: %v", post, body, wrong)
	}
	return h
}

func TestMistakesAreFoundBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	const ok = "http://master:8090/api/v1/tasks"
	for _, tt := range []struct {
		name, post, body string
		headers          map[string]string
		want             string
	}{
		{"a template that does not parse", ok, "{{json", nil, "body: body:1: unclosed action"},
		{"a field that there is not", ok, `{{json .Tarjet}}`, nil, "body: body:1:7: executing \"body\" at <.Tarjet>: can't evaluate field Tarjet"},
		{"a field that there is not, where something is unknown", ok, `{{if .TriggerError}}1{{else}}{{.Nope}}{{end}}`, nil, "can't evaluate field Nope"},
		{"a value that is not quoted", ok, `{"target":{{.Target}}}`, nil, "is not JSON once it is filled in"},
		{"a value between quotes that a name can break", ok, `{"target":"{{.Target}}"}`, nil, "write values as {{json .Target}}"},
		{"an unknown value as a word", ok, `{"rows":{{.RowsDropped}}}`, nil, "is not JSON"},
		{"an address without a scheme", "master/tasks", "", nil, "post: not an http"},
		{"another scheme", "file:///etc/passwd", "", nil, "post: not an http"},
		{"a host that the data decide", "http://{{.Target}}/x", "", nil, "post: not an http"},
		{"a host that the data can prolong", "http://master{{.Target}}", "", nil, "after the / that follows the host"},
		{"credentials in the address", "http://u:hunter2@h/", "", nil, "post: holds credentials"},
		{"a fragment", "http://h/#x", "", nil, "never sent"},
		{"a value that ends the path", "http://h/{{.Target}}/tasks", "", nil, "{{path .Target}}"},
		{"a header that frames the request", ok, "", map[string]string{"content-length": "3"}, "headers.content-length: is set by the program"},
		{"a header that ends another", ok, "", map[string]string{"X": "a\r\nY: b"}, "headers.X: holds a line break"},
		{"a header without a name", ok, "", map[string]string{"a b": "c"}, "headers.a b: is no name"},
		{"a body without an end", ok, `{{range $i, $_ := .Fragments}}{{range $.Target}}{{end}}{{end}}[{{printf "%2000000d" 1}}]`, nil, "body: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, wrong := New(tt.post, tt.body, tt.headers)
			if len(wrong) != 1 || !strings.Contains(wrong[0].Error(), tt.want) {
				t.Fatalf("%v, want %q", wrong, tt.want)
			}
			if strings.Contains(wrong[0].Error(), "hunter2") {
				t.Errorf("a secret stands in %q", wrong[0])
			}
		})
	}
}

func TestTemplatesAreFilledIn(t *testing.T) {
	t.Parallel()
	d := samples()[0]
	d.Target = `generic:a/b "c"`
	for _, tt := range []struct{ name, post, body, wantURL, wantShown, wantBody string }{
		{"the contract's example", "http://master:8090/api/v1/tasks", `{"kind":"compact","target":{{json .Target}}}`,
			"http://master:8090/api/v1/tasks", "http://master:8090/api/v1/tasks", `{"kind":"compact","target":"generic:a/b \"c\""}`},
		{"a name in the path and in the query", "http://h/t/{{path .Target}}?t={{urlquery .Target}}&token=hunter2", `{{json .Fragments}}`,
			"http://h/t/generic:a%2Fb%20%22c%22?t=generic%3Aa%2Fb+%22c%22&token=hunter2", "http://h/t/generic:a%2Fb%20%22c%22", `[3,5]`},
	} {
		h := compiled(t, tt.post, tt.body, nil)
		r, err := h.Render(d)
		if err != nil || r.url != tt.wantURL || r.Shown != tt.wantShown || string(r.Body) != tt.wantBody {
			t.Errorf("%s: %q %q %s, %v", tt.name, r.url, r.Shown, r.Body, err)
		}
		if strings.Contains(h.Shown(), "hunter2") {
			t.Errorf("%s: shown as %q", tt.name, h.Shown())
		}
	}
}

func TestWithoutABodyEverythingIsSent(t *testing.T) {
	t.Parallel()
	h := compiled(t, "http://h/", "", nil)
	r, err := h.Render(samples()[1])
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(r.Body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"target": "exp-1", "store": "rocketkeep", "uri": "s3://rocketkeep/exp-1.rollout.lance", "kind": "rollout", "action": "drop_fragment",
		"repair_id": "01900000-0000-7000-8000-000000000001", "pass_id": "01900000-0000-7000-8000-000000000002", "read_version": nil, "committed_version": nil,
		"fragments": []any{}, "rows_dropped": nil, "trigger": "schedule", "trigger_error": nil}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAnAddressIsLookedAtOnceItIsFilledIn(t *testing.T) {
	t.Parallel()
	h := compiled(t, "http://h/a{{json .RowsDropped}}", "", nil)
	d := samples()[0]
	d.Target = "@evil/"
	if r, err := compiled(t, "http://h/{{path .Target}}", "", nil).Render(d); err != nil || r.url != "http://h/@evil%2F" {
		t.Errorf("%q, %v", r.url, err)
	}
	if r, err := h.Render(d); err != nil || r.url != "http://h/a100" {
		t.Errorf("%q, %v", r.url, err)
	}
	// Only templates that a sample does not betray come this far.
	h = compiled(t, `http://h/{{if eq .Store "evil"}}{{"\x23x"}}{{end}}`, "", nil)
	d.Store = "evil"
	if _, err := h.Render(d); err == nil {
		t.Error("a fragment is sent")
	}
}

func TestAHookKeepsItsKeyWhenASecretChanges(t *testing.T) {
	t.Parallel()
	key := func(post, body, token string) string {
		return compiled(t, post, body, map[string]string{"Authorization": token}).Key()
	}
	one := key("http://h/x?token=one", "", "Bearer one")
	if len(one) != 32 || key("http://h/x?token=two", "", "Bearer two") != one {
		t.Errorf("key %q changes with a secret", one)
	}
	if key("http://h/y?token=one", "", "") == one || key("http://h/x?token=one", `{"a":1}`, "") == one {
		t.Error("hooks of other addresses or bodies have one key")
	}
}
