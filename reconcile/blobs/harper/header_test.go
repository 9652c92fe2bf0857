package harper

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"testing"

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
		{"compressed, not zlib", fileOf(1, 8192, body), 8192, reconcile.Unreadable, ReasonTorn},
	} {
		v, reason, err := JudgeFile(bytes.NewReader(tt.file), int64(len(tt.file)), tt.recorded)
		if v != tt.verdict || reason != tt.reason || err != nil {
			t.Errorf("%s: %s %s %v, want %s %s", tt.name, v, reason, err, tt.verdict, tt.reason)
		}
	}
	broken := errors.New("disk")
	if v, _, err := JudgeFile(failing{broken, fileOf(1, 8192, packed)}, 8300, 8192); v != reconcile.Undecided || !errors.Is(err, broken) {
		t.Errorf("a disk that fails: %s, %v", v, err)
	}
}

// failing reads a header and nothing behind it.
type failing struct {
	err  error
	data []byte
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off < headerSize {
		return copy(p, f.data[off:headerSize]), nil
	}
	return 0, f.err
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
		v, reason, err := JudgeFile(bytes.NewReader(data), int64(len(data)), recorded)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%s %s %v", v, reason, err)
		}
		if v == reconcile.Present && reason != "" {
			t.Errorf("present because of %s", reason)
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
