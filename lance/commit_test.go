package lance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestACommitPutsTheTransactionThenTheManifest(t *testing.T) {
	t.Parallel()
	s, p := aTable(t)
	before := maps.Clone(s.mem.objects)
	if got, err := p.Commit(t.Context(), s); got != Committed || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	if d := cmp.Diff([]string{p.TransactionName, p.ManifestName}, s.puts); d != "" {
		t.Error(d)
	}
	before[p.TransactionName], before[p.ManifestName] = p.Transaction(), p.Manifest()
	if d := cmp.Diff(before, s.mem.objects); d != "" {
		t.Error(d)
	}
	if vs, err := ListVersions(t.Context(), s); err != nil || vs.Newest().Version != 6 {
		t.Errorf("newest is %v, %v", vs, err)
	}
}

// What a store can answer to the PUT of the manifest, and what becomes of it.
func TestTheOutcomeIsWhatIsThere(t *testing.T) {
	t.Parallel()
	_, ours := aTable(t)
	rival := rivalOf(t)
	torn := ours.Manifest()[:100]
	manifest := ours.ManifestName
	never := slices.Repeat([]error{errors.New("HTTP 503")}, 20)
	for _, tc := range []struct {
		about  string
		put    answer
		reads  []error
		want   CommitOutcome
		stored []byte // what is in the place afterwards
	}{
		{about: "stored", put: answer{stores: true}, want: Committed, stored: ours.Manifest()},
		{about: "a rival was first (412, 409)", put: answer{rival: rival, err: errExists}, want: Conflict, stored: rival},
		{about: "a rival's upload ends later (409)", put: answer{rival: rival, later: 2 * time.Second, err: errExists}, want: Conflict, stored: rival},
		{about: "a rival's upload never ends (409)", put: answer{err: errExists}, want: UnknownOutcome},
		{about: "412 although it is stored", put: answer{stores: true, err: errExists}, want: Committed, stored: ours.Manifest()},
		{about: "500 although it is stored", put: answer{stores: true, err: errServer}, want: Committed, stored: ours.Manifest()},
		{about: "500 and stored a little later", put: answer{later: time.Second, err: errServer}, want: Committed, stored: ours.Manifest()},
		{about: "500 and never stored", put: answer{err: errServer}, want: UnknownOutcome},
		{about: "500 and stored when nobody looks any more", put: answer{later: time.Minute, err: errServer}, want: UnknownOutcome},
		{about: "500 and a rival is there", put: answer{rival: rival, err: errServer}, want: Conflict, stored: rival},
		{about: "the reply is lost after the effect", put: answer{stores: true, err: errNoReply}, want: Committed, stored: ours.Manifest()},
		{about: "the request is lost", put: answer{err: errNoReply}, want: UnknownOutcome},
		{about: "denied", put: answer{err: errDenied}, want: NotSent},
		{about: "denied, and a rival is there", put: answer{rival: rival, err: errDenied}, want: NotSent, stored: rival},
		{about: "denied although it is stored", put: answer{stores: true, err: errDenied}, want: Committed, stored: ours.Manifest()},
		{about: "denied, and reading too", put: answer{err: errDenied}, reads: never, want: NotSent},
		{about: "an answer that contradicts itself proves nothing", put: answer{err: errBoth}, want: UnknownOutcome},
		{about: "stored, but it cannot be read back", put: answer{stores: true, err: errServer}, reads: never, want: UnknownOutcome, stored: ours.Manifest()},
		{about: "412, but it cannot be read back", put: answer{rival: rival, err: errExists}, reads: never, want: UnknownOutcome, stored: rival},
		{about: "it can be read back at the third try", put: answer{stores: true, err: errServer}, reads: never[:2], want: Committed, stored: ours.Manifest()},
		{about: "half a manifest tells nothing", put: answer{rival: torn, err: errServer}, want: UnknownOutcome, stored: torn},
		{about: "nor does another one with our transaction", put: answer{rival: tampered(ours), err: errServer}, want: UnknownOutcome, stored: tampered(ours)},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, p := aTable(t)
				s.answers[manifest] = []answer{tc.put}
				s.reads[manifest] = tc.reads
				got, err := p.Commit(t.Context(), s)
				if got != tc.want || (err == nil) != (got == Committed) {
					t.Errorf("%v, %v", got, err)
				}
				if tc.put.err != nil && got != Committed && !errors.Is(err, tc.put.err) {
					t.Errorf("the answer is not in %v", err)
				}
				if c, ok := errors.AsType[*ConflictError](err); ok != (got == Conflict) || ok && (c.Version != 6 || c.Transaction.UUID[:8] != "aaaaaaaa") {
					t.Errorf("the rival is not in %v", err)
				}
				if d := cmp.Diff([]string{p.TransactionName, manifest}, s.puts); d != "" {
					t.Errorf("written: %s", d)
				}
				if s.object(manifest) != string(tc.stored) {
					t.Errorf("%d bytes are stored", len(s.object(manifest)))
				}
				if s.object(p.TransactionName) != string(p.Transaction()) {
					t.Error("the transaction file is gone")
				}
				time.Sleep(2 * time.Minute)
				if n := len(s.puts); n != 2 {
					t.Errorf("%d puts later", n)
				}
				s.reads[manifest] = nil
				version, found, err := FindTransaction(t.Context(), s, p.TransactionUUID, p.Version)
				landed := s.object(manifest) == string(p.Manifest())
				if whole := tc.stored == nil || len(tc.stored) > len(torn); whole && err != nil || found && version != 6 || landed && !found || got == Committed && !found {
					t.Errorf("later: version %d, %v, %v", version, found, err)
				}
			})
		})
	}
}

// tampered is a manifest of the same transaction with another content.
func tampered(p *Proposal) []byte {
	b := slices.Clone(p.Manifest())
	i := strings.LastIndex(string(b), "2.1")
	b[i+2] = '2'
	return b
}

func TestWithoutItsTransactionFileNothingIsCommitted(t *testing.T) {
	t.Parallel()
	_, ours := aTable(t)
	never := slices.Repeat([]error{errors.New("HTTP 503")}, 20)
	for _, tc := range []struct {
		about string
		put   answer
		reads []error
		want  CommitOutcome
	}{
		{"denied", answer{err: errDenied}, nil, NotSent},
		{"500 and not stored", answer{err: errServer}, nil, NotSent},
		{"500 although it is stored", answer{stores: true, err: errServer}, nil, Committed},
		{"the reply is lost after the effect", answer{stores: true, err: errNoReply}, nil, Committed},
		{"it is there from an earlier try", answer{stores: true, err: errExists}, nil, Committed},
		{"something else is there", answer{rival: []byte("x"), err: errExists}, nil, NotSent},
		{"it cannot be read back", answer{stores: true, err: errServer}, never, NotSent},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			s, p := aTable(t)
			s.answers[ours.TransactionName] = []answer{tc.put}
			s.reads[ours.TransactionName] = tc.reads
			got, err := p.Commit(t.Context(), s)
			if got != tc.want || (err == nil) != (got == Committed) {
				t.Errorf("%v, %v", got, err)
			}
			if sent := slices.Contains(s.puts, p.ManifestName); sent != (got == Committed) {
				t.Errorf("manifest sent: %v", sent)
			}
		})
	}
}

func TestNothingIsWrittenOverAnotherNewestVersion(t *testing.T) {
	t.Parallel()
	rival := rivalOf(t)
	for _, tc := range []struct {
		about string
		spoil func(*commitStore)
		want  CommitOutcome
		is    func(error) bool
	}{
		{"the next version is there", func(s *commitStore) { s.mem.objects[ManifestName(6, V2)] = rival }, Conflict, func(err error) bool {
			c, ok := errors.AsType[*ConflictError](err)
			return ok && c.Version == 6 && c.Transaction.Operation == OpDelete && c.Transaction.UUID[:8] == "aaaaaaaa"
		}},
		{"the next version is there and cannot be read", func(s *commitStore) {
			s.mem.objects[ManifestName(6, V2)] = rival
			s.reads[ManifestName(6, V2)] = []error{errServer}
		}, UnknownOutcome, func(err error) bool { return errors.Is(err, errServer) }},
		{"the next version is there and is not whole", func(s *commitStore) { s.mem.objects[ManifestName(6, V2)] = rival[:99] }, UnknownOutcome, isCorrupt},
		{"the next version is cleaned up after the listing", func(s *commitStore) {
			s.mem.objects[ManifestName(6, V2)] = rival
			s.reads[ManifestName(6, V2)] = []error{fs.ErrNotExist}
		}, Conflict, func(err error) bool {
			c, ok := errors.AsType[*ConflictError](err)
			return ok && c.Version == 6 && c.Transaction.UUID == ""
		}},
		{"it came and was cleaned up", func(s *commitStore) { s.mem.objects[ManifestName(7, V2)] = []byte("x") }, Conflict, func(err error) bool {
			c, ok := errors.AsType[*ConflictError](err)
			return ok && c.Version == 7
		}},
		{"it was made anew", func(s *commitStore) { s.mem.objects[ManifestName(5, V2)] = []byte("x") }, Conflict, func(err error) bool {
			c, ok := errors.AsType[*ConflictError](err)
			return ok && c.Version == 5
		}},
		{"it is lost", func(s *commitStore) { delete(s.mem.objects, ManifestName(5, V2)) }, NotSent, func(err error) bool { return errors.Is(err, ErrRolledBack) }},
		{"all are lost", func(s *commitStore) { clear(s.mem.objects) }, NotSent, func(err error) bool { return errors.Is(err, ErrNoVersions) }},
		{"names of both schemes", func(s *commitStore) { s.mem.objects[ManifestName(5, V1)] = []byte("x") }, NotSent, func(err error) bool { return errors.Is(err, ErrMixedNaming) }},
		{"names of the other scheme", func(s *commitStore) {
			delete(s.mem.objects, ManifestName(4, V2))
			delete(s.mem.objects, ManifestName(5, V2))
			s.mem.objects[ManifestName(5, V1)] = plainFile()
		}, NotSent, isRefused},
		{"another store decides", func(s *commitStore) {
			s.mem.objects["_versions/18446744073709551609.manifest-"+commitUUID] = []byte("x")
		}, NotSent, isRefused},
		{"the listing fails", func(s *commitStore) { s.mem.listErr = map[string]error{"_versions/": errServer} }, NotSent, func(err error) bool { return errors.Is(err, errServer) }},
	} {
		s, p := aTable(t)
		tc.spoil(s)
		got, err := p.Commit(t.Context(), s)
		if got != tc.want || !tc.is(err) || len(s.puts) > 0 {
			t.Errorf("%s: %v, %v, %q", tc.about, got, err, s.puts)
		}
	}
}

func TestACommitFindsItsOwnVersionAgain(t *testing.T) {
	t.Parallel()
	s, p := aTable(t)
	for range 2 {
		if got, err := p.Commit(t.Context(), s); got != Committed || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
	}
	next := propose(t)(mustDecode(t, p.Manifest()).ProposeDelete([]uint64{0}, "", func() CommitInfo {
		info := commitInfo()
		info.UUID = "bbbbbbbb-3c0e-4b3f-9d0e-0123456789ab"
		return info
	}()))
	if got, err := next.Commit(t.Context(), s); got != Committed || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := p.Commit(t.Context(), s); got != Committed || err != nil {
		t.Errorf("with a version on top: %v, %v", got, err)
	}
	if len(s.puts) != 4 {
		t.Errorf("written: %q", s.puts)
	}
}

func TestOfManyOnlyOneCommits(t *testing.T) {
	t.Parallel()
	s, _ := aTable(t)
	outcomes := make([]CommitOutcome, 16)
	var wg sync.WaitGroup
	for i := range outcomes {
		info := commitInfo()
		info.UUID = fmt.Sprintf("%08x-3c0e-4b3f-9d0e-0123456789ab", i)
		p := propose(t)(mustDecode(t, plainFile()).ProposeDelete([]uint64{2}, "", info))
		wg.Go(func() { outcomes[i], _ = p.Commit(t.Context(), s) })
	}
	wg.Wait()
	count := map[CommitOutcome]int{}
	for _, o := range outcomes {
		count[o]++
	}
	if count[Committed] != 1 || count[Conflict] != 15 {
		t.Errorf("%v", count)
	}
}

func TestTheHintOnlyMovesUp(t *testing.T) {
	t.Parallel()
	_, ours := aTable(t)
	for _, tc := range []struct {
		about, hint string
		put         answer
		want        string
		asked       bool
	}{
		{"behind", `{"version":5}`, answer{stores: true}, `{"version":6}`, true},
		{"ahead", `{"version":9}`, answer{stores: true}, `{"version":9}`, false},
		{"already there", `{"version":6}`, answer{stores: true}, `{"version":6}`, false},
		{"garbage", `x`, answer{stores: true}, `{"version":6}`, true},
		{"the store refuses", `{"version":5}`, answer{err: errDenied}, `{"version":5}`, true},
		{"the reply is lost", `{"version":5}`, answer{stores: true, err: errNoReply}, `{"version":6}`, true},
		{"there is none", ``, answer{stores: true}, ``, false},
	} {
		s, p := aTable(t)
		if tc.hint != "" {
			s.mem.objects[hintName] = []byte(tc.hint)
		}
		s.answers["replace "] = []answer{tc.put}
		if got, err := p.Commit(t.Context(), s); got != Committed || err != nil {
			t.Errorf("%s: %v, %v", tc.about, got, err)
		}
		if asked := slices.Contains(s.puts, "replace "+hintName); asked != tc.asked || string(s.mem.objects[hintName]) != tc.want {
			t.Errorf("%s: %q, replaced: %v", tc.about, s.mem.objects[hintName], asked)
		}
	}
	s, p := aTable(t)
	s.mem.objects[hintName] = []byte(`{"version":5}`)
	s.answers[ours.ManifestName] = []answer{{err: errDenied}}
	if got, _ := p.Commit(t.Context(), s); got != NotSent || string(s.mem.objects[hintName]) != `{"version":5}` {
		t.Errorf("without a commit: %v, %s", got, s.mem.objects[hintName])
	}
}

// A context that ends begins no further write; a write that was sent is awaited.
func TestCancelling(t *testing.T) {
	t.Parallel()
	_, ours := aTable(t)
	for _, tc := range []struct {
		about  string
		cancel func(s *commitStore, cancel func())
		put    answer
		want   CommitOutcome
		puts   []string
		took   time.Duration
	}{
		{about: "before anything", cancel: func(_ *commitStore, cancel func()) { cancel() }, want: NotSent},
		{about: "while the versions are listed", cancel: func(s *commitStore, cancel func()) { s.onList = cancel }, want: NotSent},
		{about: "while the transaction is sent", cancel: func(s *commitStore, cancel func()) { s.onPut = func(string) { cancel() } },
			want: NotSent, puts: []string{ours.TransactionName}},
		{about: "while the manifest is sent", cancel: onManifest, put: answer{stores: true}, want: Committed, puts: []string{ours.TransactionName, ours.ManifestName}},
		{about: "while the manifest is sent, and the answer is lost", cancel: onManifest, put: answer{later: 3 * time.Second, err: errNoReply},
			want: Committed, puts: []string{ours.TransactionName, ours.ManifestName}, took: 3250 * time.Millisecond},
		{about: "and no answer comes", cancel: onManifest, put: answer{hangs: true, stores: true, err: errNoReply},
			want: UnknownOutcome, puts: []string{ours.TransactionName, ours.ManifestName}, took: 20 * time.Second},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, p := aTable(t)
				s.mem.objects[hintName] = []byte(`{"version":5}`)
				s.answers[ours.ManifestName] = []answer{tc.put}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tc.cancel(s, cancel)
				start := time.Now()
				got, err := p.Commit(ctx, s)
				if got != tc.want || (err == nil) != (got == Committed) {
					t.Errorf("%v, %v", got, err)
				}
				if got == NotSent && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("it took %v", took)
				}
				if d := cmp.Diff(tc.puts, s.puts); d != "" {
					t.Errorf("written: %s", d)
				}
			})
		})
	}
}

func onManifest(s *commitStore, cancel func()) {
	s.onPut = func(name string) {
		if strings.HasPrefix(name, "_versions/") {
			cancel()
		}
	}
}

func TestADeadlineIsACancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := aTable(t)
		s.answers[p.ManifestName] = []answer{{hangs: true, err: errNoReply}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		got, err := p.Commit(ctx, s)
		if took := time.Since(start); got != UnknownOutcome || !errors.Is(err, errNoReply) || took != 80*time.Second {
			t.Errorf("%v, %v after %v", got, err, took)
		}
	})
}

func TestOutcomeNames(t *testing.T) {
	t.Parallel()
	for o, want := range map[CommitOutcome]string{UnknownOutcome: "unknown", Committed: "committed", Conflict: "conflict", NotSent: "not sent", 9: "unknown"} {
		if o.String() != want {
			t.Errorf("%d is %s", o, o)
		}
	}
}

func TestFindTransaction(t *testing.T) {
	t.Parallel()
	_, p := aTable(t)
	named := mustDecode(t, p.Manifest())
	// A version of an old writer names its transaction by the file only.
	old := manifestFile(fragment(0, vint(4, 1)), vint(3, 7), str(12, "6-bbbbbbbb-3c0e-4b3f-9d0e-0123456789ab.txn"), writer)
	talks := manifestFile(fragment(0, vint(4, 1)), vint(3, 8), pair(16, "repaired by", commitUUID), str(12, "7-x-"+commitUUID+".txn"), writer)
	m5, m6, m7, m8 := plainFile(), p.Manifest(), old, talks
	rival := rivalOf(t)
	for _, tc := range []struct {
		about    string
		versions map[uint64][]byte
		uuid     string
		from     uint64
		version  uint64
		found    bool
		is       error
	}{
		{"committed", map[uint64][]byte{5: m5, 6: m6}, commitUUID, 6, 6, true, nil},
		{"with versions on top", map[uint64][]byte{5: m5, 6: m6, 7: m7, 8: m8}, commitUUID, 6, 6, true, nil},
		{"by the name of its file", map[uint64][]byte{5: m5, 6: m6, 7: m7}, "bbbbbbbb-3c0e-4b3f-9d0e-0123456789ab", 6, 7, true, nil},
		{"never stored", map[uint64][]byte{4: m5, 5: m5}, commitUUID, 6, 0, false, nil},
		{"a rival is in its place", map[uint64][]byte{5: m5, 6: rival}, commitUUID, 6, 0, false, nil},
		{"a version that only speaks of it", map[uint64][]byte{5: m5, 6: rival, 7: m7, 8: m8}, commitUUID, 6, 0, false, nil},
		{"its place was cleaned up", map[uint64][]byte{7: m7, 8: m8}, commitUUID, 6, 0, false, ErrVersionGone},
		{"a place between was cleaned up", map[uint64][]byte{6: rival, 8: m8}, commitUUID, 6, 0, false, ErrVersionGone},
		{"cleaned up, but another is the one", map[uint64][]byte{7: m7, 8: m8}, "bbbbbbbb-3c0e-4b3f-9d0e-0123456789ab", 6, 7, true, nil},
		{"no versions", nil, commitUUID, 6, 0, false, ErrNoVersions},
	} {
		for _, naming := range []Naming{V1, V2} {
			objects := map[string][]byte{}
			for v, b := range tc.versions {
				objects[ManifestName(v, naming)] = b
			}
			version, found, err := FindTransaction(t.Context(), &memStore{objects: objects}, tc.uuid, tc.from)
			if version != tc.version || found != tc.found || !errors.Is(err, tc.is) || tc.is == nil && err != nil {
				t.Errorf("%s: %d, %v, %v", tc.about, version, found, err)
			}
		}
	}
	if !named.madeBy(commitUUID) || named.madeBy("bbbbbbbb-3c0e-4b3f-9d0e-0123456789ab") {
		t.Error("madeBy")
	}
}

func TestFindTransactionTellsNothingFromAFailedLook(t *testing.T) {
	t.Parallel()
	name := ManifestName(6, V2)
	rival := rivalOf(t)
	for about, s := range map[string]*memStore{
		"the listing fails":                  {objects: map[string][]byte{name: rival}, listErr: map[string]error{"_versions/": errServer}},
		"reading fails":                      {objects: map[string][]byte{name: rival}, getErr: map[string]error{name: errServer}},
		"the body ends early":                {objects: map[string][]byte{name: rival}, cut: map[string]int{name: 10}},
		"it is cut short":                    {objects: map[string][]byte{name: rival[:50]}},
		"it is empty":                        {objects: map[string][]byte{name: nil}},
		"it is cleaned up after the listing": {objects: map[string][]byte{name: rival}, getErr: map[string]error{name: fs.ErrNotExist}},
	} {
		if _, found, err := FindTransaction(t.Context(), s, commitUUID, 6); found || err == nil {
			t.Errorf("%s: %v, %v", about, found, err)
		}
	}
	if _, _, err := FindTransaction(t.Context(), &memStore{}, "x", 6); err == nil || errors.Is(err, ErrNoVersions) {
		t.Errorf("no uuid: %v", err)
	}
}
