package lance

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func refStore(objects map[string]string) *memStore {
	s := &memStore{objects: map[string][]byte{}}
	for n, b := range objects {
		s.objects[n] = []byte(b)
	}
	return s
}

func TestTags(t *testing.T) {
	t.Parallel()
	s := refStore(map[string]string{
		"_refs/tags/keep-2.json": `{"branch":null,"version":2,"createdAt":"2026-11-29T13:00:00Z","manifestSize":1212,"metadata":{}}`,
		"_refs/tags/a.json":      `{"version":18446744073709551615,"manifestSize":1}`,
		"_refs/tags/dev.1.json":  `{"branch":"dev","version":7}`,
		"_refs/tags/m.json":      `{"branch":"main","version":3}`,
		"_refs/tags/.tmpAb1":     `{`,
		"_refs/tags/x.json#1":    `{`,
		"_refs/tags/sub/y.json":  `{`,
	})
	got, err := Tags(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	want := []Tag{{Name: "a", Version: 1<<64 - 1}, {Name: "dev.1", Branch: "dev", Version: 7}, {Name: "keep-2", Version: 2}, {Name: "m", Version: 3}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBranches(t *testing.T) {
	t.Parallel()
	s := refStore(map[string]string{
		"_refs/branches/feat%2Fx.json":    `{"parentBranch":"dev","identifier":{"version_mapping":[[4,"aa"]]},"parentVersion":6,"createAt":1,"manifestSize":1}`,
		"_refs/branches/dev.json":         `{"parentBranch":null,"parentVersion":4}`,
		"_refs/branches/twice%252Fe.json": `{"parentVersion":1}`,
	})
	got, err := Branches(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	want := []Branch{{Name: "dev", ParentVersion: 4, Root: "tree/dev"}, {Name: "feat/x", ParentBranch: "dev", ParentVersion: 6, Root: "tree/feat/x"},
		{Name: "twice/e", ParentVersion: 1, Root: "tree/twice/e"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRefsThatCannotBeReadAreNamedAndTheRestIsTold(t *testing.T) {
	t.Parallel()
	broken := errors.New("no answer")
	for _, tc := range []struct {
		about, name, content string
		fault                func(*memStore)
		corrupt              string
	}{
		{about: "an empty file", name: "_refs/tags/bad.json", corrupt: "_refs/tags/bad.json"},
		{about: "half a file", name: "_refs/tags/bad.json", content: `{"version":`, corrupt: "_refs/tags/bad.json"},
		{about: "no version", name: "_refs/tags/bad.json", content: `{"branch":null}`, corrupt: "_refs/tags/bad.json"},
		{about: "a negative version", name: "_refs/tags/bad.json", content: `{"version":-1}`, corrupt: "_refs/tags/bad.json"},
		{about: "a list", name: "_refs/tags/bad.json", content: `[]`, corrupt: "_refs/tags/bad.json"},
		{about: "a branch without a parent version", name: "_refs/branches/bad.json", content: `{}`, corrupt: "_refs/branches/bad.json"},
		{about: "a branch whose root would lie elsewhere", name: "_refs/branches/..%2F..%2Fx.json", content: `{"parentVersion":1}`, corrupt: "_refs/branches/..%2F..%2Fx.json"},
		{about: "a read that fails", name: "_refs/tags/bad.json", content: `{"version":1}`, fault: func(s *memStore) { s.getErr = map[string]error{"_refs/tags/bad.json": broken} }},
		{about: "a listing that fails", name: "_refs/tags/x", fault: func(s *memStore) { s.listErr = map[string]error{"_refs/tags/": broken} }},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			s := refStore(map[string]string{"_refs/tags/good.json": `{"version":1}`, "_refs/branches/good.json": `{"parentVersion":1}`, tc.name: tc.content})
			if tc.fault != nil {
				tc.fault(s)
			}
			tags, tagErr := Tags(context.Background(), s)
			branches, branchErr := Branches(context.Background(), s)
			err := errors.Join(tagErr, branchErr)
			c, ok := errors.AsType[*CorruptError](err)
			switch {
			case tc.corrupt != "" && (!ok || c.Name != tc.corrupt):
				t.Errorf("error %v, want a *CorruptError of %s", err, tc.corrupt)
			case tc.corrupt == "" && (!errors.Is(err, broken) || ok):
				t.Errorf("error %v, want %v", err, broken)
			}
			if len(tags) != 1 || tags[0].Name != "good" || len(branches) != 1 || branches[0].Name != "good" {
				t.Errorf("tags %v, branches %v", tags, branches)
			}
		})
	}
}

func TestTracesOfAHigherVersion(t *testing.T) {
	t.Parallel()
	broken := errors.New("no answer")
	hint := "_versions/latest_version_hint.json"
	for _, tc := range []struct {
		about   string
		objects map[string]string
		fault   func(*memStore)
		want    []Trace
		err     error
	}{
		{about: "nothing above it", objects: map[string]string{hint: `{"version":4}`, "_refs/tags/a.json": `{"version":4}`,
			"_refs/branches/b.json": `{"parentVersion":4}`, "_transactions/3-u.txn": "", "_transactions/40-u.txn": "", "_transactions/4-u.tmp": ""}},
		{about: "a tag and a branch are strong", objects: map[string]string{"_refs/tags/a.json": `{"version":5}`, "_refs/branches/b.json": `{"parentVersion":9}`},
			want: []Trace{{Kind: TagTrace, Name: "a", Version: 5, Strong: true}, {Kind: BranchTrace, Name: "b", Version: 9, Strong: true}}},
		{about: "refs of another branch speak of other versions", objects: map[string]string{"_refs/tags/a.json": `{"branch":"dev","version":50}`,
			"_refs/branches/b.json": `{"parentBranch":"dev","parentVersion":50}`}},
		{about: "a hint and a transaction that no manifest names are weak", objects: map[string]string{hint: `{"version":6}`, "_transactions/4-u.txn": ""},
			want: []Trace{{Kind: HintTrace, Name: hint, Version: 6}, {Kind: TransactionTrace, Name: "_transactions/4-u.txn", Version: 5}}},
		{about: "the first version of a clone names a transaction with its own number", objects: map[string]string{"_transactions/4-own.txn": ""}},
		{about: "a damaged hint says nothing", objects: map[string]string{hint: `{"version":`}},
		{about: "a hint that cannot be read is an error", objects: map[string]string{hint: `{"version":9}`},
			fault: func(s *memStore) { s.getErr = map[string]error{hint: broken} }, err: broken},
		{about: "what was found is told beside an error", objects: map[string]string{"_refs/tags/a.json": `{"version":5}`},
			fault: func(s *memStore) { s.listErr = map[string]error{"_transactions/4-": broken} }, err: broken,
			want: []Trace{{Kind: TagTrace, Name: "a", Version: 5, Strong: true}}},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			s := refStore(tc.objects)
			s.objects["_versions/4.manifest"] = manifestFile(vint(3, 4), str(12, "4-own.txn"))
			vs, err := ListVersions(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			m, err := ReadManifest(context.Background(), s, vs.Newest())
			if err != nil {
				t.Fatal(err)
			}
			if tc.fault != nil {
				tc.fault(s)
			}
			got, err := Traces(context.Background(), s, vs, m)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if d := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
		})
	}
}
