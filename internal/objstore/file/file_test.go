package file_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/file"
)

// tree makes files (names ending in "/" are folders; "a -> b" is a link).
func tree(t testing.TB, names ...string) (*file.Store, objstore.Location) {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		n, to, link := strings.Cut(n, " -> ")
		p := filepath.Join(dir, n)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		switch {
		case link:
			must(t, os.Symlink(to, p))
		case strings.HasSuffix(n, "/"):
			must(t, os.MkdirAll(p, 0o755))
		default:
			must(t, os.WriteFile(p, []byte("x"), 0o644))
		}
	}
	return open(t, dir)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var sentinels = []error{
	objstore.ErrNotExist, objstore.ErrExist, objstore.ErrDenied, objstore.ErrThrottled, objstore.ErrNoSuchBucket,
	objstore.ErrUnsupported, objstore.ErrArchived, objstore.ErrNoCredentials,
}

// wantKind wants an error that is exactly one sentinel, or none of them (nil).
func wantKind(t testing.TB, what string, err, want error) {
	t.Helper()
	var e *objstore.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: got %v, want an *objstore.Error", what, err)
		return
	}
	for _, s := range sentinels {
		if errors.Is(err, s) != (s == want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
			return
		}
	}
}

// look asks in all three ways, which must agree.
func look(t testing.TB, s *file.Store, loc objstore.Location) error {
	t.Helper()
	_, err := s.Stat(t.Context(), loc)
	_, err2 := s.Restat(t.Context(), loc)
	_, err3 := s.Probe(t.Context(), loc)
	for _, other := range []error{err2, err3} {
		for _, sentinel := range sentinels {
			if errors.Is(err, sentinel) != errors.Is(other, sentinel) {
				t.Errorf("%s: %v but %v", loc, err, other)
			}
		}
		if (err == nil) != (other == nil) {
			t.Errorf("%s: %v but %v", loc, err, other)
		}
	}
	return err
}

func TestWhatAbsenceProves(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a", "dir/b", "empty/", "link-to-a -> a", "link-to-dir -> dir", "dangling -> nowhere", "away -> /no/such/mount",
		"loop1 -> loop2", "loop2 -> loop1", "chain -> dangling")
	must(t, syscall.Mkfifo(filepath.Join(root.Key, "fifo"), 0o644))
	for _, tt := range []struct {
		name, key string
		want      error // nil with ok: there
		ok        bool
	}{
		{"a file", "a", nil, true},
		{"a file through a link", "link-to-a", nil, true},
		{"a file below a linked folder", "link-to-dir/b", nil, true},
		{"nothing", "nope", objstore.ErrNotExist, false},
		{"nothing in a folder", "dir/nope", objstore.ErrNotExist, false},
		{"nothing below nothing", "no/such/thing", objstore.ErrNotExist, false},
		{"nothing below a linked folder", "link-to-dir/nope", objstore.ErrNotExist, false},
		{"something below a file", "a/b", objstore.ErrNotExist, false},
		{"something below a link to a file", "link-to-a/b", objstore.ErrNotExist, false},
		{"a file with a slash", "a/", objstore.ErrNotExist, false},
		{"a folder", "dir", nil, false},
		{"a folder with a slash", "dir/", nil, false},
		{"a linked folder", "link-to-dir", nil, false},
		{"a pipe, without waiting for its writer", "fifo", nil, false},
		{"a link that leads nowhere proves nothing", "dangling", nil, false},
		{"a link to such a link neither", "chain", nil, false},
		{"nor does a folder on a mount that is away", "away/data/x", nil, false},
		{"nor does a loop", "loop1", nil, false},
		{"nor what is below a loop", "loop1/x", nil, false},
		{"nor does a name too long for the disk", strings.Repeat("x", 300), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := look(t, s, root.Join(tt.key))
			if tt.ok {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			wantKind(t, tt.key, err, tt.want)
		})
	}
}

func TestAnAbsentRootIsNoMissingObject(t *testing.T) {
	t.Parallel()
	_, parent := tree(t, "file", "there/x", "dangling -> nowhere")
	for name, want := range map[string]error{
		"absent": objstore.ErrNoSuchBucket, "absent/deeper": objstore.ErrNoSuchBucket, "file": objstore.ErrNoSuchBucket,
		"file/below": objstore.ErrNoSuchBucket, "dangling": nil,
	} {
		root := parent.Join(name)
		s, err := file.New(root)
		must(t, err)
		wantKind(t, name, look(t, s, root.Join("x/y")), want)
		for _, d := range []string{"", "/"} {
			n := 0
			for _, err := range s.List(t.Context(), root.Dir(), d) {
				n++
				wantKind(t, "list "+name, err, want)
			}
			if n != 1 {
				t.Errorf("list %s: %d entries", name, n)
			}
		}
		_, err = s.Create(t.Context(), root.Join("x"), strings.NewReader(""), 0)
		wantKind(t, "create in "+name, err, want)
		if _, err := os.Stat(parent.Join("absent").Key); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("create made an absent root: %v", err)
		}
	}
	// The root may vanish later.
	root := parent.Join("there")
	s, err := file.New(root)
	must(t, err)
	if err := look(t, s, root.Join("x")); err != nil {
		t.Fatal(err)
	}
	must(t, os.RemoveAll(root.Key))
	wantKind(t, "a root that vanished", look(t, s, root.Join("x")), objstore.ErrNoSuchBucket)
}

func TestKeysThatLeaveTheRootAreRefused(t *testing.T) {
	t.Parallel()
	_, parent := tree(t, "root/a", "outside", "root-sibling")
	root := parent.Join("root")
	s, err := file.New(root)
	must(t, err)
	for _, loc := range []objstore.Location{
		parent.Join("outside"), parent.Join("root-sibling"), root.Join("../outside"), root.Join("a/../../outside"), root.Join("./a"), root.Join("x//a"),
		{Scheme: "s3", Bucket: "b", Key: root.Key + "/a"}, {Scheme: "file", Key: "relative"}, {Scheme: "file"}, root.Join("a\x00b"),
	} {
		if err := look(t, s, loc); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("look at %+v: %v", loc, err)
		}
		if _, err := s.Create(t.Context(), loc, strings.NewReader(""), 0); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("create %+v: %v", loc, err)
		}
		if _, err := s.Replace(t.Context(), loc, "tag", strings.NewReader(""), 0); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("replace %+v: %v", loc, err)
		}
	}
	for _, bad := range []objstore.Location{{Scheme: "file", Key: "rel"}, {Scheme: "file", Key: "/a/../b"}, {Scheme: "s3", Bucket: "b", Key: "/a"}, {}} {
		if _, err := file.New(bad); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("New(%+v): %v", bad, err)
		}
	}
}

func list(t testing.TB, s *file.Store, root objstore.Location, name, delimiter string) (got []string, err error) {
	t.Helper()
	for a, e := range s.List(t.Context(), root.Join(name), delimiter) {
		if e != nil {
			return got, e
		}
		rel, _ := a.Location.Rel(root)
		got = append(got, rel)
	}
	return got, nil
}

func TestListFollowsLinksButNotInCircles(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a", "dir/b", "dir/up -> ..", "dir/self -> .", "link -> dir", "file-link -> a", "empty/deeper/", ".hidden", ".reconcile-tmp-XYZ", "tmp/.reconcile-tmp-1")
	must(t, syscall.Mkfifo(filepath.Join(root.Key, "fifo"), 0o644))
	got, err := list(t, s, root, "", "")
	must(t, err)
	if diff := cmp.Diff([]string{".hidden", "a", "dir/b", "file-link", "link/b"}, got); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	got, err = list(t, s, root, "", "/")
	must(t, err)
	if diff := cmp.Diff([]string{".hidden", "a", "dir/", "file-link", "link/"}, got); diff != "" {
		t.Errorf("one level, folders without objects left out (-want +got):\n%s", diff)
	}
}

func TestAListingThatCannotTellEverythingSaysSo(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a", "dangling -> nowhere", "z")
	for _, d := range []string{"", "/"} {
		got, err := list(t, s, root, "", d)
		wantKind(t, "list", err, nil)
		if diff := cmp.Diff([]string{"a", "z"}, got); diff != "" {
			t.Errorf("what can be told (-want +got):\n%s", diff)
		}
	}
	// A folder on a mount that is away is not an empty folder.
	s, root = tree(t, "data -> /no/such/mount")
	_, err := list(t, s, root, "data/", "")
	wantKind(t, "list below a dangling link", err, nil)
}

func TestOddDelimitersAreRefused(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a")
	if _, err := list(t, s, root, "", "."); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestUnknownTimesAreZero(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a")
	must(t, os.Chtimes(root.Join("a").Key, time.Unix(0, 0), time.Unix(0, 0)))
	a, err := s.Stat(t.Context(), root.Join("a"))
	must(t, err)
	if !a.ModTime.IsZero() {
		t.Errorf("ModTime %v", a.ModTime)
	}
}

func TestTheETagSeesAnotherFileOfTheSameSizeAndTime(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a", "b")
	at := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(root.Join("a").Key, at, at))
	must(t, os.Chtimes(root.Join("b").Key, at, at))
	before, err := s.Stat(t.Context(), root.Join("a"))
	must(t, err)
	must(t, os.Rename(root.Join("b").Key, root.Join("a").Key))
	after, err := s.Stat(t.Context(), root.Join("a"))
	must(t, err)
	if before.ETag == after.ETag {
		t.Errorf("both %q", after.ETag)
	}
}

// As "cp -p" writes over a file: the same file, the same length, the same time.
func TestTheETagSeesBytesWrittenOverWithTheirTimeKept(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a")
	at := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(root.Join("a").Key, at, at))
	before, err := s.Stat(t.Context(), root.Join("a"))
	must(t, err)
	time.Sleep(20 * time.Millisecond) // the kernel's clock of files goes by ticks
	must(t, os.WriteFile(root.Join("a").Key, bytes.Repeat([]byte("z"), int(before.Size)), 0o644))
	must(t, os.Chtimes(root.Join("a").Key, at, at))
	after, err := s.Stat(t.Context(), root.Join("a"))
	must(t, err)
	if before.Size != after.Size || before.ETag == after.ETag {
		t.Errorf("%+v and %+v", before, after)
	}
}

func TestABodyWhoseFileShrinksIsShort(t *testing.T) {
	t.Parallel()
	s, root := tree(t)
	p := root.Join("a")
	must(t, os.WriteFile(p.Key, make([]byte, 1<<16), 0o644))
	rc, _, err := s.Get(t.Context(), p, objstore.Range{})
	must(t, err)
	_, err = io.ReadFull(rc, make([]byte, 100))
	must(t, err)
	must(t, os.Truncate(p.Key, 1000))
	if _, err := io.ReadAll(rc); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	must(t, rc.Close())
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "a")
	broken := errors.New("broken pipe")
	_, err := s.Create(t.Context(), root.Join("new"), io.MultiReader(strings.NewReader("abc"), errReader{broken}), 10)
	if !errors.Is(err, broken) {
		t.Errorf("create from a broken body: %v", err)
	}
	a, err := s.Stat(t.Context(), root.Join("a"))
	must(t, err)
	_, err = s.Replace(t.Context(), root.Join("a"), a.ETag, io.MultiReader(strings.NewReader("abc"), errReader{broken}), 10)
	if !errors.Is(err, broken) {
		t.Errorf("replace from a broken body: %v", err)
	}
	_, err = s.Create(t.Context(), root.Join("a"), strings.NewReader("y"), 1)
	wantKind(t, "create over a file", err, objstore.ErrExist)
	must(t, os.Mkdir(root.Join("folder").Key, 0o755))
	_, err = s.Create(t.Context(), root.Join("folder"), strings.NewReader("y"), 1)
	wantKind(t, "create over a folder", err, objstore.ErrExist)
	must(t, os.Symlink("nowhere", root.Join("link").Key))
	_, err = s.Create(t.Context(), root.Join("link"), strings.NewReader("y"), 1)
	wantKind(t, "create over a link that leads nowhere", err, objstore.ErrExist)
	des, err := os.ReadDir(root.Key)
	must(t, err)
	var names []string
	for _, de := range des {
		names = append(names, de.Name())
	}
	if diff := cmp.Diff([]string{"a", "folder", "link"}, names); diff != "" {
		t.Errorf("on the disk (-want +got):\n%s", diff)
	}
	if data, err := os.ReadFile(root.Join("a").Key); err != nil || string(data) != "x" {
		t.Errorf("a is %q, %v", data, err)
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func TestReplaceThroughALinkKeepsTheLink(t *testing.T) {
	t.Parallel()
	s, root := tree(t, "real/a", "a -> real/a")
	at, err := s.Stat(t.Context(), root.Join("a"))
	must(t, err)
	if _, err := s.Replace(t.Context(), root.Join("a"), at.ETag, strings.NewReader("new"), 3); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(root.Join("a").Key); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", fi, err)
	}
	if data, err := os.ReadFile(root.Join("real/a").Key); err != nil || string(data) != "new" {
		t.Errorf("real/a is %q, %v", data, err)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	_, root := tree(t, "real/x", "link -> real", "dangling -> nowhere")
	for key, want := range map[string]string{
		"link": "real", "link/x": "real/x", "link/not/yet": "real/not/yet", "real": "real", "absent/deeper": "absent/deeper",
		"dangling": "dangling", "dangling/x": "dangling/x",
	} {
		if got := file.Resolve(root.Join(key)); got != root.Join(want) {
			t.Errorf("Resolve(%s) = %s, want %s", key, got.Key, want)
		}
	}
	if got := file.Resolve(objstore.Location{Scheme: "file", Key: "/"}); got.Key != "/" {
		t.Errorf("Resolve(/) = %q", got.Key)
	}
}
