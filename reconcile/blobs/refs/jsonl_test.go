package refs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJSONLinesAreReadAsTheyStand(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		about, text string
		want        []string
	}{
		{"empty", "", nil},
		{"members in any order, others beside", "\ufeff" + `{"x":{"key":"no","l":["]"]},"size":5,"record_id":"r1","key":"a","checksum":"` + sum1 + `"}` + "\r\n\n  {\"key\" : \"b\" , \"size\" : \"7\" }\t\n{\"key\":\"c\"}", []string{"a 5 " + sum1 + " r1", "b 7  ", "c -1  "}},
		{"nulls and numbers", `{"key":"a","size":null,"checksum":null,"record_id":12}` + "\n" + `{"key":"b","size":1.0e2,"record_id":{"x":1}}`, []string{"a -1  12", "b 100  "}},
		{"no key", `{"key":null}` + "\n{}\n" + `{"key":""}` + "\n" + `{"Key":"a"}`, []string{"! row 1: no key", "! row 2: no key", "! row 3: no key", "! row 4: no key"}},
		{"no object", "{\"key\":\"a\"\n[1]\n\"x\"\nnull\n{\"key\":\"b\"} x\n{\"key\":\"c\"}", []string{"! row 1: malformed row: no JSON object", "! row 2: malformed row: no JSON object", "! row 3: malformed row: no JSON object",
			"! row 4: malformed row: no JSON object", "! row 5: malformed row: no JSON object", "c -1  "}},
		{"keys that are no text", `{"key":5}` + "\n" + `{"key":["a"]}` + "\n{\"key\":\"\xff\"}\n" + `{"key":"\ud800"}` + "\n" + `{"key":"\udc00x"}` + "\n" + `{"key":"\ud83d\u0041"}`, []string{
			"! row 1: malformed row: the key is no string", "! row 2: malformed row: the key is no string", "! row 3: malformed row: no JSON object",
			"! row 4: malformed row: the key is no string", "! row 5: malformed row: the key is no string", "! row 6: malformed row: the key is no string"}},
		{"escapes", `{"key":"a\/b\"\\\u00e9\ud83d\ude00\\ud800\ufffd"}`, []string{"a/b\"\\é😀\\ud800\ufffd -1  "}},
		{"a member twice", `{"key":"a","key":"b"}` + "\n" + `{"key":"a","x":1,"x":2}`, []string{"! row 1: malformed row: two members \"key\"", "a -1  "}},
		{"sizes and checksums that are none", `{"key":"a","size":1.5,"checksum":7}` + "\n" + `{"key":"b","size":{},"checksum":"x"}`, []string{
			"! row 1: bad size: \"1.5\" (partial)", "! row 1: unknown checksum: \"7\" (partial)", "a -1  ",
			"! row 2: bad size: \"{}\" (partial)", "! row 2: unknown checksum: \"x\" (partial)", "b -1  "}},
	} {
		for _, chunk := range []int{0, 1, 5} {
			if d := cmp.Diff(tc.want, resumes(t, JSONLines(stored(tc.text), refsAt, all, Options{chunk: chunk}))); d != "" {
				t.Errorf("%s, %d bytes a request: %s", tc.about, chunk, d)
			}
		}
	}
}

func TestMembersAreFoundByTheirWholeNames(t *testing.T) {
	t.Parallel()
	got := lines(t.Context(), JSONLines(stored(`{"a.b":"k","a":{"b":"no"}}`), refsAt, Columns{Key: "a.b"}, Options{}), "")
	if d := cmp.Diff([]string{"k -1  "}, got); d != "" {
		t.Error(d)
	}
}

// FuzzJSONLine holds what is taken out of a line to what encoding/json finds there.
func FuzzJSONLine(f *testing.F) {
	for _, s := range []string{`{"key":"a","size":1}`, `{"x":[{"key":"}"}],"key":"\u0061\ud83d\ude00","size":"1e1"}`, `{ "size" : -1 , "key" : null } `, `{"key":"\ud800"}`, `{"k\u0065y":"a"}`, `{"key":"a","key":"b"}`, `{"a":"\\","key":"\\\""}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsAny(s, "\n") || len(s) > 1<<12 {
			return
		}
		got := lines(t.Context(), JSONLines(stored(s+"\n"), refsAt, Columns{Key: "key"}, Options{}), "")
		if len(got) != 1 || !strings.HasSuffix(got[0], " -1  ") {
			return
		}
		var v struct {
			Key *string `json:"key"`
		}
		// That package takes names in any case, and the last of equal ones.
		var names map[string]json.RawMessage
		if json.Unmarshal([]byte(strings.TrimPrefix(s, "\ufeff")), &names) != nil {
			t.Fatalf("%q was read from what is no JSON", got)
		}
		one, err := json.Marshal(map[string]json.RawMessage{"key": names["key"]})
		if err != nil || json.Unmarshal(one, &v) != nil || v.Key == nil || fmt.Sprintf("%s -1  ", *v.Key) != got[0] {
			t.Fatalf("read %q of %s", got, names["key"])
		}
	})
}
