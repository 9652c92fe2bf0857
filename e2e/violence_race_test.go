package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/reconcile"
)

// rival is the real library at work on a table in another process.
type rival struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}

	mu sync.Mutex
	// added and deleted are acknowledged.
	added, deleted map[string]bool
	commits        int
	refused        map[string]int
	ready          chan struct{}
	answers        chan rivalLine
	last           rivalLine
}

// rivalLine is one line of race.mjs.
type rivalLine struct {
	Ready     bool                `json:"ready"`
	Added     []string            `json:"added"`
	Deleted   []string            `json:"deleted"`
	Compacted *int                `json:"compacted"`
	Failed    string              `json:"failed"`
	Error     string              `json:"error"`
	Version   uint64              `json:"version"`
	Fragments map[string][]string `json:"fragments"`
	Commits   int                 `json:"commits"`
	Keys      []string            `json:"keys"`
	Versions  []uint64            `json:"versions"`
}

func startRival(t *testing.T, env []string, root string, commits int) *rival {
	t.Helper()
	lib := lancetest.Library(t)
	v := &rival{t: t, added: map[string]bool{}, deleted: map[string]bool{}, refused: map[string]int{}, ready: make(chan struct{}), answers: make(chan rivalLine, 1), ended: make(chan struct{})}
	v.cmd = exec.CommandContext(t.Context(), "node", "fixtures/race.mjs", "--lib", lib, root, strconv.Itoa(commits))
	v.cmd.Env = append(os.Environ(), env...)
	v.cmd.Stderr = os.Stderr
	stdin, err1 := v.cmd.StdinPipe()
	stdout, err2 := v.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, v.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	v.stdin = stdin
	go v.listen(stdout)
	t.Cleanup(func() {
		_ = v.cmd.Process.Kill() // it may have ended
		<-v.ended
	})
	return v
}

func (v *rival) listen(out io.Reader) {
	defer func() {
		_ = v.cmd.Wait() // what it said is what counts
		close(v.ended)
	}()
	in := bufio.NewReader(out)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var l rivalLine
		if err := json.Unmarshal(text, &l); err != nil {
			v.t.Errorf("the rival said %q", text)
			return
		}
		v.note(l)
	}
}

func (v *rival) note(l rivalLine) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range l.Added {
		v.added[k] = true
	}
	for _, k := range l.Deleted {
		v.deleted[k] = true
	}
	switch {
	case l.Ready:
		close(v.ready)
	case l.Fragments != nil, l.Failed == "fragments":
		v.answers <- l
	case l.Failed != "":
		// What the library cannot read it neither deletes from nor compacts.
		v.refused[l.Failed]++
	case l.Keys != nil:
		v.last = l
	default:
		v.commits++
	}
}

// fragments asks for the keys of each fragment of the newest version.
func (v *rival) fragments() rivalLine {
	v.t.Helper()
	if _, err := io.WriteString(v.stdin, "fragments\n"); err != nil {
		v.t.Fatal(err)
	}
	select {
	case l := <-v.answers:
		return l
	case <-v.ended:
	case <-time.After(time.Minute):
	}
	v.t.Fatal("the rival does not answer")
	return rivalLine{}
}

// finish lets it come to its end.
func (v *rival) finish() rivalLine {
	v.t.Helper()
	if _, err := io.WriteString(v.stdin, "end\n"); err != nil {
		v.t.Fatal(err)
	}
	select {
	case <-v.ended:
	case <-time.After(2 * time.Minute):
		v.t.Fatal("the rival does not end")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// arena is where the race happens: a folder or a server.
type arena struct {
	uri    string
	env    []string
	read   func(name string) []byte // nil when it is gone
	remove func(name string)
	list   func(folder string) []string
}

func fileArena(t *testing.T) arena {
	root := filepath.Join(t.TempDir(), "t.lance")
	return arena{
		uri: root,
		read: func(name string) []byte {
			b, err := os.ReadFile(filepath.Join(root, name))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return b
		},
		remove: func(name string) {
			if err := os.Remove(filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		},
		list: func(folder string) []string {
			entries, err := os.ReadDir(filepath.Join(root, folder))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, folder+"/"+e.Name())
			}
			return names
		},
	}
}

func s3Arena(t *testing.T) arena {
	s := servertest.Versitygw(t)
	return arena{
		uri: s.URI("r/t.lance"), env: s.Env(),
		read:   func(name string) []byte { return object(t, s, "r/t.lance/"+name) },
		remove: func(name string) { s.Remove(t, "r/t.lance/"+name) },
		list: func(folder string) []string {
			keys := s.Keys(t, "r/t.lance/"+folder+"/")
			for i := range keys {
				keys[i] = strings.TrimPrefix(keys[i], "r/t.lance/")
			}
			return keys
		},
	}
}

// files names the one data file of each fragment of a version.
func (a arena) files(t *testing.T, version uint64) map[uint64]string {
	t.Helper()
	for _, name := range a.list("_versions") {
		v, _, kind := lance.ParseManifestName(name)
		if kind != lance.ManifestFile || v != version {
			continue
		}
		m, err := lance.DecodeManifest(a.read(name))
		if err != nil {
			t.Fatal(err)
		}
		out := map[uint64]string{}
		for f, err := range m.Fragments() {
			if err != nil || len(f.Files) != 1 {
				t.Fatalf("fragment %d: %d files, %v", f.ID, len(f.Files), err)
			}
			out[f.ID] = f.Files[0].Path
		}
		return out
	}
	t.Fatalf("no version %d", version)
	return nil
}

// While the real library appends, deletes and compacts, twenty lost fragments are
// dropped, each alone, and nothing else is lost: row by row.
func TestRepairsRaceWithTheRealLibrary(t *testing.T) {
	long(t)
	t.Parallel()
	for name, make := range map[string]func(*testing.T) arena{"files": fileArena, "s3": s3Arena} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			race(t, make(t), 20, 200)
		})
	}
}

func race(t *testing.T, a arena, repairs, commits int) {
	v := startRival(t, a.env, a.uri, commits)
	select {
	case <-v.ready:
	case <-v.ended:
		t.Fatal("the rival ended at once")
	case <-time.After(2 * time.Minute):
		t.Fatal("the rival never began")
	}
	database := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	lost := map[string]bool{} // rows of dropped fragments
	rescued, conflicts := 0, 0
	for done := 0; done < repairs; {
		if rescued > repairs {
			t.Fatalf("%d damages were mended by the rival, %d by repairs", rescued, done)
		}
		id, keys, path := a.damage(t, v)
		r := run(t, a.env, repairNow("--database", database, "--request-timeout", "20s", a.uri)...).exit(reconcile.ExitClean)
		got := outcome(r.pass())
		if len(got.repairs) == 0 && got.state == "clean" || got.state == "clean" && slices.Equal(got.repairs, []string{"drop_fragment refused"}) {
			rescued++ // a compaction that had read the file was committed first
			continue
		}
		d := r.pass()
		if got.state != "repaired" || !slices.Equal(got.repairs, []string{"drop_fragment applied"}) {
			t.Fatalf("repair of fragment %d (%s): %+v\n%s", id, path, got, clip(r.stderr))
		}
		fs := d.Repairs[0]["fragments"].([]any)
		if len(fs) != 1 || fs[0].(map[string]any)["id"] != float64(id) {
			t.Fatalf("dropped %v, lost was fragment %d", fs, id)
		}
		for _, k := range keys {
			lost[k] = true
		}
		done++
	}
	end := v.finish()
	if end.Keys == nil {
		t.Fatal("the rival gave no end")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range run(t, nil, "repairs", "--database", database, "--output", "json").lines(t) {
		switch s := fmt.Sprint(l["state"]); s {
		case "conflict":
			conflicts++ // planned again
		case "intended", "uncertain", "failed":
			t.Errorf("the ledger has a repair %s", s)
		}
	}
	t.Logf("%d commits of the library, %d repairs, %d conflicts planned again, %d losses that a compaction overtook, refused to the library: %v; %d keys acknowledged, %d deleted, %d dropped, %d left",
		v.commits, repairs, conflicts, rescued, v.refused, len(v.added), len(v.deleted), len(lost), len(end.Keys))
	if v.commits < commits {
		t.Errorf("%d commits, want at least %d", v.commits, commits)
	}
	want := slices.Sorted(maps.Keys(v.added))
	want = slices.DeleteFunc(want, func(k string) bool { return v.deleted[k] || lost[k] })
	if d := cmp.Diff(want, end.Keys); d != "" {
		t.Errorf("keys (-acknowledged and neither deleted nor dropped, +there)\n%s", clip(d))
	}
	for i, n := range end.Versions {
		if n != uint64(i+1) {
			t.Fatalf("versions have a gap: %v", end.Versions)
		}
	}
	if n := uint64(len(end.Versions)); n != end.Version {
		t.Errorf("%d versions, the newest is %d", n, end.Version)
	}
	run(t, a.env, look(a.uri)...).exit(reconcile.ExitClean)
}

// A version that a writer commits between the listing of the versions and the reading of
// what speaks of it is no trace of a lost one: the table is listed again.
func TestAWriterThatCommitsWhileTheTableIsOpenedLeavesNoDoubt(t *testing.T) {
	long(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		spoken *lancetest.Builder
		read   string
	}{
		"a hint": {fourFragments().Hint(4), "r/t.lance/_versions/latest_version_hint.json"},
		"a tag":  {fourFragments().Tag("v4", 4), "r/t.lance/_refs/tags/v4.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.S3(t)
			w := newWire(t, s)
			put(t, s, "r/t.lance", tt.spoken)
			next := fourFragments().Version(4)
			name := "r/t.lance/" + next.ManifestName()
			var once sync.Once
			w.before = func(c call) bool {
				if c.key == tt.read {
					once.Do(func() { s.Put(t, name, next.Objects()[next.ManifestName()]) })
				}
				return true
			}
			d := run(t, w.Env(), look(w.URI("r/t.lance"))...).exit(reconcile.ExitClean).pass()
			if v := d.Targets[0].Version; v == nil || *v != 4 {
				t.Errorf("version %v, want 4", v)
			}
		})
	}
}

// damage removes the data file of one of the smaller fragments and tells its rows.
func (a arena) damage(t *testing.T, v *rival) (id uint64, keys []string, path string) {
	t.Helper()
	for range 20 {
		l := v.fragments()
		if l.Failed != "" || len(l.Fragments) < 5 {
			time.Sleep(time.Second) // compacted just now
			continue
		}
		files := a.files(t, l.Version)
		for text, ks := range l.Fragments {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			// The large one holds what was compacted: the limits would refuse it.
			if len(ks) > 12 {
				continue
			}
			a.remove("data/" + files[n])
			return n, ks, files[n]
		}
	}
	t.Fatal("no fragment to lose")
	return 0, nil, ""
}
