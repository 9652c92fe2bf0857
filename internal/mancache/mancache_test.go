package mancache

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

var at = objstore.Location{Scheme: "s3", Bucket: "b", Key: "t.lance/_versions/1.manifest"}

// sized is a body that compresses about as manifests do: random names between much
// that repeats.
func sized(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	var b []byte
	for len(b) < n {
		b = fmt.Appendf(b, "\x0a\x60\x12\x4a\x0a\x38%024b%026x.lance\x12\x02\x00\x01\x1a\x02\x00\x01", r.IntN(1<<24), r.Uint64())
	}
	return b[:n]
}

func open(t *testing.T, dir string, max int64) *Cache {
	t.Helper()
	c := New(Options{Dir: dir, Max: max, Now: time.Now})
	t.Cleanup(c.Close)
	return c
}

func get(t *testing.T, c *Cache, etag string, want []byte) {
	t.Helper()
	if got := c.Get(at, etag, int64(len(want))); !bytes.Equal(got, want) {
		t.Errorf("get %s: %d bytes, want the %d that were put", etag, len(got), len(want))
	}
}

func miss(t *testing.T, c *Cache, loc objstore.Location, etag string, size int) {
	t.Helper()
	if got := c.Get(loc, etag, int64(size)); got != nil {
		t.Errorf("get %v %s %d: %d bytes, want none", loc, etag, size, len(got))
	}
}

// files are the names in the folder and what they take.
func files(t *testing.T, dir string) (names []string, bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name())
		bytes += room(fi.Size())
	}
	return names, bytes
}

func TestWhatWasPutIsThereForTheNextPass(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []int{1, 200, compressFrom - 1, compressFrom, 1 << 20} {
		body, etag := sized(n, 1), fmt.Sprintf("etag-%d", n)
		first := open(t, dir, 1<<30)
		first.Put(at, etag, body)
		first.Close()
		get(t, open(t, dir, 1<<30), etag, body)
	}
	_, size := files(t, dir)
	if want := int64(1<<20) * 6 / 10; size > want {
		t.Errorf("%d bytes on disk, want %d at most: is nothing compressed?", size, want)
	}
}

func TestOnlyTheVeryObjectIsAnswered(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), 1<<20)
	body := sized(100, 1)
	c.Put(at, "e", body)
	get(t, c, "e", body)
	miss(t, c, at, "f", 100)
	miss(t, c, at, "", 100)
	miss(t, c, at, "e", 101)
	miss(t, c, at, "e", -1)
	other := at
	other.Key = "t.lance/_versions/2.manifest"
	miss(t, c, other, "e", 100)
	other = at
	other.Endpoint = "127.0.0.1:9000"
	miss(t, c, other, "e", 100)
}

func TestWhatHasNoStrongETagIsNotKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir, 1<<20)
	for _, loc := range []objstore.Location{{Scheme: "file", Key: "/x"}, {Scheme: "mem", Bucket: "b", Key: "x"}} {
		c.Put(loc, "e", []byte("x"))
		miss(t, c, loc, "e", 1)
	}
	c.Put(at, "", []byte("x"))
	c.Put(at, "e", nil)
	c.Close()
	if _, err := os.Stat(filepath.Join(dir, folder)); !os.IsNotExist(err) {
		t.Errorf("a folder was made for nothing: %v", err)
	}
}

func TestAFlippedBitOnTheWayIsNotKept(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), 1<<20)
	body := sized(5000, 1)
	sum := md5.Sum(body)
	etag := hex.EncodeToString(sum[:])
	minio := at
	minio.Endpoint = "minio:9000"
	bad := bytes.Clone(body)
	bad[77] ^= 1
	c.Put(minio, etag, bad)
	miss(t, c, minio, etag, len(body))
	c.Put(minio, etag, body)
	if !bytes.Equal(c.Get(minio, etag, int64(len(body))), body) {
		t.Error("what the ETag vouches for is not kept")
	}
	// The ETag of an object encrypted with KMS is no sum of it.
	c.Put(at, etag, bad)
	get(t, c, etag, bad)
}

func TestADamagedEntryIsAMissAndGoes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{500, 50_000} { // plain and compressed
		body := sized(n, 1)
		damage := map[string]func(b []byte) []byte{
			"empty":               func([]byte) []byte { return nil },
			"cut in the header":   func(b []byte) []byte { return b[:headerSize-1] },
			"cut after it":        func(b []byte) []byte { return b[:headerSize] },
			"cut by one byte":     func(b []byte) []byte { return b[:len(b)-1] },
			"one byte more":       func(b []byte) []byte { return append(b, 0) },
			"of another key":      func(b []byte) []byte { b[20] ^= 1; return b },
			"a longer body":       func(b []byte) []byte { b[81]++; return b },
			"unknown encoding":    func(b []byte) []byte { b[8] = 9; return b },
			"the other encoding":  func(b []byte) []byte { b[8] ^= 1; return b },
			"of another program":  func(b []byte) []byte { b[7]++; return b },
			"reserved bytes used": func(b []byte) []byte { b[12] = 1; return b },
			"another sum":         func(b []byte) []byte { b[50] ^= 1; return b },
			"a flipped bit":       func(b []byte) []byte { b[headerSize+len(b)/3] ^= 4; return b },
		}
		for name, change := range damage {
			t.Run(fmt.Sprintf("%s, %d bytes", name, n), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				c := open(t, dir, 1<<30)
				c.Put(at, "e", body)
				names, _ := files(t, dir)
				if len(names) != 1 {
					t.Fatalf("files %v", names)
				}
				file := filepath.Join(dir, folder, names[0])
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, change(b), 0o600); err != nil {
					t.Fatal(err)
				}
				miss(t, c, at, "e", n)
				if names, _ := files(t, dir); len(names) != 0 {
					t.Errorf("the damaged file stays: %v", names)
				}
				c.Put(at, "e", body)
				get(t, c, "e", body)
			})
		}
	}
}

func TestWithoutAFolderThereIsNoCacheAndNoError(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Cache{
		"nowhere": New(Options{Max: 1 << 20, Now: time.Now}), "no room": New(Options{Dir: t.TempDir(), Now: time.Now}), "no folder can be": New(Options{Dir: blocked, Max: 1 << 20, Now: time.Now}), "nil": nil,
	} {
		c.Put(at, "e", []byte("x"))
		if c.Get(at, "e", 1) != nil {
			t.Errorf("%s: got something", name)
		}
		c.Close()
	}
}

func TestAFolderThatCannotBeWrittenIsOnlyRead(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root writes everywhere")
	}
	dir := t.TempDir()
	open(t, dir, 1<<20).Put(at, "e", []byte("x"))
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	get(t, open(t, dir, 1<<20), "e", []byte("x"))
}

func TestTheFolderIsPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no such modes")
	}
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil { // as an older umask left it
		t.Fatal(err)
	}
	c := open(t, dir, 1<<20)
	c.Put(at, "e", sized(9000, 1))
	err := filepath.WalkDir(filepath.Join(dir, folder), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err == nil && fi.Mode().Perm() != want {
			t.Errorf("%s is %v, want %v", p, fi.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	// The folder of another user may say anything.
	if err := os.Chown(filepath.Join(dir, folder), 12345, -1); err != nil {
		t.Fatal(err)
	}
	miss(t, open(t, dir, 1<<20), at, "e", 9000)
}

func TestALinkOutOfTheFolderIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir, 1<<20)
	body := sized(100, 1)
	c.Put(at, "e", body)
	names, _ := files(t, dir)
	file, outside := filepath.Join(dir, folder, names[0]), filepath.Join(t.TempDir(), "x")
	if err := os.Rename(file, outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, file); err != nil {
		t.Skip(err)
	}
	miss(t, c, at, "e", 100)
}

// clock is a clock that is moved by hand.
type clock struct{ now time.Time }

func (c *clock) tick() { c.now = c.now.Add(time.Minute) }

func TestWhatWasUsedLongestAgoGoesFirst(t *testing.T) {
	t.Parallel()
	dir, k := t.TempDir(), &clock{time.Now().Add(-100 * time.Hour)}
	pass := func(max int64, use func(*Cache)) {
		k.tick()
		c := New(Options{Dir: dir, Max: max, Now: func() time.Time { return k.now }})
		use(c)
		k.tick()
		c.Close()
	}
	etag := func(i int) string { return fmt.Sprintf("e%d", i) }
	body := func(i int) []byte { return sized(1000, uint64(i)) }
	pass(10*block, func(c *Cache) {
		for i := range 6 {
			k.tick()
			c.Put(at, etag(i), body(i))
		}
	})
	pass(10*block, func(c *Cache) {
		k.tick()
		get(t, c, etag(0), body(0)) // used again, so that 1 is the oldest
	})
	pass(3*block, func(c *Cache) {
		get(t, c, etag(0), body(0))
		get(t, c, etag(5), body(5))
		get(t, c, etag(4), body(4))
		for i := 1; i <= 3; i++ {
			miss(t, c, at, etag(i), 1000)
		}
	})
	if names, size := files(t, dir); size > 3*block {
		t.Errorf("%d files, %d bytes", len(names), size)
	}
}

// A pass over more than fits keeps what came first: the next pass then finds as much
// as fits, where giving way to the newest would leave it nothing.
func TestAPassOverMoreThanFitsFindsAsMuchAsFits(t *testing.T) {
	t.Parallel()
	dir, k := t.TempDir(), &clock{time.Now().Add(-100 * time.Hour)}
	const objects, fit = 50, 20
	hits := 0
	for pass := range 3 {
		k.tick()
		c := New(Options{Dir: dir, Max: fit * block, Now: func() time.Time { return k.now }})
		hits = 0
		for i := range objects {
			k.tick()
			etag, body := fmt.Sprintf("e%d", i), sized(900, uint64(i))
			if c.Get(at, etag, 900) != nil {
				hits++
				continue
			}
			c.Put(at, etag, body)
			if _, size := files(t, dir); size > fit*block {
				t.Fatalf("pass %d: %d bytes, the bound is %d", pass, size, fit*block)
			}
		}
		c.Close()
	}
	if hits < fit-3 {
		t.Errorf("%d hits of the %d that fit", hits, fit)
	}
	// Other tables take the place of those that nobody asks for any more.
	k.tick()
	c := New(Options{Dir: dir, Max: fit * block, Now: func() time.Time { return k.now }})
	defer c.Close()
	c.Put(at, "new", sized(900, 99))
	get(t, c, "new", sized(900, 99))
}

func TestWhatIsLargerThanTheBoundPushesNothingOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir, 10*block)
	c.Put(at, "small", sized(100, 1))
	c.Close()
	c = open(t, dir, 10*block)
	c.Put(at, "large", sized(20*block, 2))
	get(t, c, "small", sized(100, 1))
	miss(t, c, at, "large", 20*block)
}

func TestFilesOfDeadWritersGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir, 1<<20).Put(at, "e", []byte("x"))
	old, fresh, foreign := tempPrefix+"old", tempPrefix+"fresh", "README"
	for _, name := range []string{old, fresh, foreign} {
		if err := os.WriteFile(filepath.Join(dir, folder, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * tempAge)
	if err := os.Chtimes(filepath.Join(dir, folder, old), long, long); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, 1)
	miss(t, c, at, "e", 1)
	left := map[string]bool{}
	names, _ := files(t, dir)
	for _, n := range names {
		left[n] = true
	}
	if left[old] || !left[fresh] || !left[foreign] || len(left) != 2 {
		t.Errorf("left are %v", names)
	}
}

// A large body is in memory once, whether it is written or read.
func TestALargeBodyIsHeldOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	const n = 24 << 20
	c := open(t, t.TempDir(), 1<<30)
	body := bytes.Repeat(sized(1<<20, 1), n>>20)
	allocated := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if got := allocated(func() { c.Put(at, "e", body) }); got > n/4 {
		t.Errorf("put allocates %d MiB", got>>20)
	}
	var out []byte
	if got := allocated(func() { out = c.Get(at, "e", n) }); got > n+n/4 {
		t.Errorf("get allocates %d MiB", got>>20)
	}
	if !bytes.Equal(out, body) {
		t.Error("other bytes")
	}
}

// helperEnv makes a test binary one of several processes that share a folder.
const helperEnv = "RECONCILE_TEST_MANCACHE_DIR"

func TestSeveralProcessesShareAFolder(t *testing.T) {
	if dir := os.Getenv(helperEnv); dir != "" {
		hammer(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestSeveralProcessesShareAFolder$", "-test.count=1")
			cmd.Env = append(os.Environ(), helperEnv+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	hammer(t, dir)
	wg.Wait()
	open(t, dir, hammerMax).Close()
	names, size := files(t, dir)
	if size > hammerMax || len(names) == 0 {
		t.Errorf("%d files, %d bytes", len(names), size)
	}
	for _, n := range names {
		if !isEntry(n) {
			t.Errorf("left over: %s", n)
		}
	}
}

const hammerMax = 40 * block

// hammer reads and writes the same entries as the others do, tears some, and has
// less room than they need.
func hammer(t *testing.T, dir string) {
	for range 6 {
		c := New(Options{Dir: dir, Max: hammerMax, Now: time.Now})
		for range 60 {
			i := rand.IntN(60)
			etag, body := fmt.Sprintf("e%d", i), sized(200+150*i, uint64(i))
			if got := c.Get(at, etag, int64(len(body))); got != nil {
				if !bytes.Equal(got, body) {
					t.Fatal("another's bytes")
				}
				if rand.IntN(20) == 0 {
					_ = os.Truncate(filepath.Join(dir, folder, keyOf(at, etag, int64(len(body))).name()), int64(rand.IntN(100)))
				}
				continue
			}
			c.Put(at, etag, body)
		}
		c.Close()
	}
}

func TestTheDefaultFolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cache, home, want string }{
		{"/c", "/h", "/c/reconcile"},
		{"", "/h", "/h/.cache/reconcile"},
		{"relative", "/h", "/h/.cache/reconcile"},
		{"", "", ""},
	} {
		got := DefaultDir(func(name string) string { return map[string]string{"XDG_CACHE_HOME": c.cache, "HOME": c.home}[name] })
		if got != filepath.FromSlash(c.want) {
			t.Errorf("cache %q, home %q: %q, want %q", c.cache, c.home, got, c.want)
		}
	}
}
