package harper

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"testing"
	"testing/iotest"

	"github.com/rocketkeep/reconcile/reconcile"
)

func fileOf(kind uint16, size int64, body []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(kind)<<48|uint64(size)&sizeUndefined), body...)
}

func zlibOf(data []byte) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 4
	return b
}

func TestFilesAreJudgedByHeaderLengthAndRecord(t *testing.T) {
	t.Parallel()
	body := content("k", 8192)
	packed := zlibOf(body)
	for _, tt := range []struct {
		name     string
		file     []byte
		recorded int64
		verdict  reconcile.Verdict
		reason   string
	}{
		{"whole", fileOf(0, 8192, body), 8192, reconcile.Present, ""},
		{"whole, with nothing recorded", fileOf(0, 8192, body), 0, reconcile.Present, ""},
		{"a stream that ended at once", fileOf(0, 0, nil), 0, reconcile.Present, ""},
		{"empty", nil, 8192, reconcile.Unreadable, ReasonTooShortForHeader},
		{"seven bytes", fileOf(0, 8192, nil)[:7], 8192, reconcile.Unreadable, ReasonTooShortForHeader},
		{"cut in the middle", fileOf(0, 8192, body[:4000]), 8192, reconcile.Unreadable, ReasonTorn},
		{"one byte too many", fileOf(0, 8192, append(bytes.Clone(body), 'x')), 8192, reconcile.Unreadable, ReasonOverlong},
		{"agrees with itself and not with the record", fileOf(0, 8000, body[:8000]), 8192, reconcile.SizeMismatch, ""},
		{"never finished", fileOf(0, -1, body), 8192, reconcile.Unreadable, ReasonUnfinished},
		{"an error's text", fileOf(0x00ff, 5, []byte("error")), 8192, reconcile.Unreadable, ReasonErrorStub},
		{"the text of a transfer that broke off", fileOf(0x00fe, 5, []byte("error")), 8192, reconcile.Unreadable, ReasonPendingStub},
		{"a type that is not known", fileOf(2, 8192, body), 8192, reconcile.Unreadable, ReasonUnknownType},
		{"compressed", fileOf(1, 8192, packed), 8192, reconcile.Present, ""},
		{"compressed, torn", fileOf(1, 8192, packed[:len(packed)-9]), 8192, reconcile.Unreadable, ReasonTorn},
		{"compressed, too long inside", fileOf(1, 8000, packed), 8000, reconcile.Unreadable, ReasonOverlong},
		{"compressed, too short inside", fileOf(1, 9000, packed), 9000, reconcile.Unreadable, ReasonTorn},
		{"compressed, a bit of its checksum flipped", fileOf(1, 8192, flip(packed, len(packed)-1)), 8192, reconcile.Unreadable, ReasonTorn},
		{"compressed, agrees with itself and not with the record", fileOf(1, 8192, packed), 8000, reconcile.SizeMismatch, ""},
		{"compressed, never finished", fileOf(1, -1, packed), 8192, reconcile.Unreadable, ReasonUnfinished},
		{"compressed, without a byte", fileOf(1, 8192, nil), 8192, reconcile.Unreadable, ReasonTorn},
		{"compressed, empty", fileOf(1, 0, zlibOf(nil)), 0, reconcile.Present, ""},
		{"compressed, not zlib", fileOf(1, 8192, body), 8192, reconcile.Unreadable, ReasonTorn},
	} {
		j, err := JudgeFile(bytes.NewReader(tt.file), int64(len(tt.file)), tt.recorded, nil)
		if j.Verdict != tt.verdict || j.Reason != tt.reason || err != nil {
			t.Errorf("%s: %s %s %v, want %s %s", tt.name, j.Verdict, j.Reason, err, tt.verdict, tt.reason)
		}
		whole := tt.verdict == reconcile.Present || tt.verdict == reconcile.SizeMismatch
		if h := int64(binary.BigEndian.Uint64(append(tt.file, make([]byte, 8)...)) & sizeUndefined); whole && j.Size != h || !whole && j.Size != 0 {
			t.Errorf("%s: %d bytes of content", tt.name, j.Size)
		}
	}
}

// What a flipped bit makes of a stream may end early, or never.
func TestFlippedBitsAreSeenInCompressedContent(t *testing.T) {
	t.Parallel()
	packed := zlibOf(content("k", 8192))
	for i := range len(packed) / 16 {
		file := fileOf(1, 8192, flip(packed, 16*i))
		if j, err := JudgeFile(bytes.NewReader(file), int64(len(file)), 8192, nil); j.Verdict != reconcile.Unreadable || err != nil {
			t.Errorf("byte %d: %+v %v", 16*i, j, err)
		}
	}
}

func TestContentGoesThroughTheDigestInflated(t *testing.T) {
	t.Parallel()
	body := content("k", 100_000)
	want := sha256.Sum256(body)
	for name, file := range map[string][]byte{"plain": fileOf(0, 100_000, body), "compressed": fileOf(1, 100_000, zlibOf(body)),
		"with bytes behind the compressed stream": append(fileOf(1, 100_000, zlibOf(body)), "xyz"...)} {
		digest := sha256.New()
		if j, err := JudgeFile(iotest.OneByteReader(bytes.NewReader(file)), int64(len(file)), 100_000, digest); j.Verdict != reconcile.Present || err != nil || !bytes.Equal(digest.Sum(nil), want[:]) {
			t.Errorf("%s: %+v %v %x", name, j, err, digest.Sum(nil))
		}
	}
}

// No more of a file is read than its judgement needs: of what is said to hold little and
// inflates to much, what it is said to hold.
func TestNoMoreIsReadThanNeeded(t *testing.T) {
	t.Parallel()
	bomb := zlibOf(make([]byte, 64<<20))
	for _, tt := range []struct {
		name    string
		file    []byte
		verdict reconcile.Verdict
		most    int
	}{
		{"plain content without a digest", fileOf(0, 9, []byte("123456789")), reconcile.Present, 8},
		{"a stub", fileOf(0x00fe, 9, []byte("123456789")), reconcile.Unreadable, 8},
		{"a bomb", fileOf(1, 8192, bomb), reconcile.Unreadable, 8 + inflateBuffer},
	} {
		in := &counting{r: bytes.NewReader(tt.file)}
		digest := &countingHash{Hash: sha256.New()}
		var d hash.Hash
		if tt.name == "a bomb" {
			d = digest
		}
		if j, err := JudgeFile(in, int64(len(tt.file)), 0, d); j.Verdict != tt.verdict || err != nil || in.n > tt.most || digest.n > 8193 {
			t.Errorf("%s: %+v %v, %d bytes read, %d inflated", tt.name, j, err, in.n, digest.n)
		}
	}
}

type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

type countingHash struct {
	hash.Hash
	n int
}

func (c *countingHash) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.Hash.Write(p)
}

// What could not be read is no statement about the file.
func TestWhatCannotBeReadIsNotJudged(t *testing.T) {
	t.Parallel()
	body := content("k", 8192)
	broken := errors.New("disk")
	plain, packed := fileOf(0, 8192, body), fileOf(1, 8192, zlibOf(body))
	for _, tt := range []struct {
		name string
		file []byte
		at   int // bytes that can be read
		end  error
		want error
	}{
		{"a header that fails", plain, 3, broken, broken},
		{"a header that ends", plain, 3, io.EOF, io.ErrUnexpectedEOF},
		{"plain content that fails", plain, 4000, broken, broken},
		{"plain content that ends", plain, 4000, io.EOF, io.ErrUnexpectedEOF},
		{"compressed content that fails", packed, 40, broken, broken},
		{"compressed content that ends", packed, 40, io.EOF, io.ErrUnexpectedEOF},
		{"compressed content that ends in its own checksum", packed, len(packed) - 1, io.EOF, io.ErrUnexpectedEOF},
		{"compressed content of which nothing comes", packed, 8, broken, broken},
	} {
		r := io.MultiReader(bytes.NewReader(tt.file[:tt.at]), iotest.ErrReader(tt.end))
		if j, err := JudgeFile(r, int64(len(tt.file)), 8192, sha256.New()); j.Verdict != reconcile.Undecided || !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v %v", tt.name, j, err)
		}
	}
}

func TestAStubServedAsAFileIsNoBlob(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		body []byte
		want outcome
	}{
		{"an error stub", fileOf(0x00ff, 5, []byte("error")), stub},
		{"a pending stub", fileOf(0x00fe, 5, []byte("error")), stub},
		{"bytes that begin like one", fileOf(0x00ff, 6, []byte("error")), whole},
		{"text", []byte("receive interrupted"), whole},
		{"nothing", nil, whole},
	} {
		l := look{promised: int64(len(tt.body))}
		if l.drain(bytes.NewReader(tt.body), []string{"sha256", "md5", "crc32c"}); l.outcome != tt.want || l.got != int64(len(tt.body)) {
			t.Errorf("%s: %d, %d bytes", tt.name, l.outcome, l.got)
		}
	}
}

func FuzzJudgeFile(f *testing.F) {
	f.Add(fileOf(1, 8192, zlibOf(content("k", 8192))), int64(8192))
	f.Add(fileOf(0, 3, []byte("abc")), int64(3))
	f.Add([]byte{0, 0xff}, int64(0))
	f.Fuzz(func(t *testing.T, data []byte, recorded int64) {
		if len(data) > 8 {
			data[2], data[3] = 0, 0 // lengths that a run has time for
		}
		j, err := JudgeFile(bytes.NewReader(data), int64(len(data)), recorded, nil)
		if err != nil {
			t.Fatalf("%+v %v", j, err)
		}
		if (j.Verdict == reconcile.Unreadable) != (j.Reason != "") {
			t.Errorf("%+v", j)
		}
	})
}

func FuzzEncodeKey(f *testing.F) {
	for _, k := range []string{"a.b", "..", "%", "\x00", "ü", "a/b"} {
		f.Add(k)
	}
	c, err := New(Config{Name: "c", Nodes: []Node{{Name: "a", URL: "http://h"}}, Sets: []Set{{Table: "Doc", Attributes: []string{"body"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			return
		}
		loc, err := c.Locate("harper://a/Doc/" + EncodeKey(key) + ".body")
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.unit(loc)
		if err != nil || keyOf(u.name) != key || u.attr != "body" || c.location(u) != loc {
			t.Errorf("%q: %+v, %v", key, u, err)
		}
	})
}
