package blobs_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
)

// sums are a body's checksums, made apart from the code that is tested.
func sums(b []byte) map[string]string {
	s, m := sha256.Sum256(b), md5.Sum(b)
	c := binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return map[string]string{"sha256": "sha256:" + hex.EncodeToString(s[:]), "md5": "md5:" + hex.EncodeToString(m[:]), "crc32c": "crc32c:" + base64.StdEncoding.EncodeToString(c)}
}

// copied is a copy in memory.
type copied []byte

func (c copied) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(c).ReadAt(p, off) }
func (c copied) Size() int64                             { return int64(len(c)) }
func (c copied) Sum(alg string) string                   { return sums(c)[alg] }

var body = []byte("123456789")

func TestKnownChecksums(t *testing.T) {
	t.Parallel()
	if got := sums(body)["crc32c"]; got != "crc32c:4waSgw==" { // 0xE3069283, the check value of CRC-32C
		t.Error(got)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	other := bytes.Repeat([]byte("x"), len(body))
	cases := []struct {
		name     string
		there    []byte
		size     int64
		checksum string
		depth    reconcile.Depth
		fault    faultstore.Rule
		etag     string
		want     reconcile.Verdict
		err      bool
		reads    int
	}{
		{"the right bytes by sha256", body, 9, sums(body)["sha256"], reconcile.DepthChecksum, faultstore.Rule{}, "", reconcile.Present, false, 1},
		{"the right bytes by md5", body, 9, sums(body)["md5"], reconcile.DepthChecksum, faultstore.Rule{}, "", reconcile.Present, false, 1},
		{"the right bytes by crc32c", body, 9, sums(body)["crc32c"], reconcile.DepthChecksum, faultstore.Rule{}, "", reconcile.Present, false, 1},
		{"the right bytes without a size", body, 0, sums(body)["sha256"], reconcile.DepthChecksum, faultstore.Rule{}, "", reconcile.Present, false, 1},
		{"other bytes", other, 9, sums(body)["sha256"], reconcile.DepthChecksum, faultstore.Rule{}, "", reconcile.ChecksumMismatch, false, 1},
		{"other bytes at depth head are not read", other, 9, sums(body)["sha256"], reconcile.DepthHead, faultstore.Rule{}, "", reconcile.Present, false, 0},
		{"other bytes at depth footer are not read", other, 9, sums(body)["sha256"], reconcile.DepthFooter, faultstore.Rule{}, "", reconcile.Present, false, 0},
		{"no checksum is recorded", other, 9, "", reconcile.DepthChecksum, faultstore.Rule{}, "", reconcile.Present, false, 0},
		{"a body that breaks off", body, 9, sums(body)["sha256"], reconcile.DepthChecksum, faultstore.Rule{Op: "get", Effect: faultstore.ShortBody(3)}, "", reconcile.Undecided, true, 1},
		{"no answer", body, 9, sums(body)["sha256"], reconcile.DepthChecksum, faultstore.Rule{Op: "get", Effect: faultstore.Status(503, "SlowDown")}, "", reconcile.Undecided, true, 1},
		{"gone in the meantime", body, 9, sums(body)["sha256"], reconcile.DepthChecksum, faultstore.Rule{Op: "get", Effect: faultstore.NotExist()}, "", reconcile.Undecided, true, 1},
		{"another object in the meantime", other, 9, sums(body)["sha256"], reconcile.DepthChecksum, faultstore.Rule{}, "the one before", reconcile.Undecided, true, 1},
		{"another size than recorded tells nothing", body[:4], 9, sums(body)["sha256"], reconcile.DepthHead, faultstore.Rule{}, "", reconcile.Undecided, true, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mem := memstore.New(memstore.Options{})
			loc := s3root.Join("k")
			mem.Put(loc, c.there)
			at, err := mem.Stat(t.Context(), loc)
			if err != nil {
				t.Fatal(err)
			}
			if c.etag != "" {
				at.ETag = c.etag
			}
			fault := faultstore.New(mem)
			if c.fault.Op != "" {
				fault.Add(c.fault)
			}
			throttled := 0
			col := collection(&list{}, func(o *blobs.Options) {
				o.Stores = faulty{fault}
				o.Throttle = func(_ context.Context, n int) error { throttled += n; return nil }
			})
			ref := reconcile.Reference{Role: reconcile.RoleBlob, Path: "k", Location: loc, Base: s3root, Size: c.size, Checksum: c.checksum}
			v, reason, err := col.Inspect(t.Context(), ref, at, c.depth)
			if v != c.want || (err != nil) != c.err {
				t.Errorf("%s %q %v, want %s", v, reason, err, c.want)
			}
			if v == reconcile.ChecksumMismatch && reason != "read "+sums(c.there)["sha256"] {
				t.Errorf("reason %q", reason)
			}
			if n := fault.Calls("get"); n != c.reads {
				t.Errorf("read %d times, want %d", n, c.reads)
			}
			if v == reconcile.Present && c.reads > 0 && throttled < len(body) {
				t.Errorf("%d bytes were asked of the throttle", throttled)
			}
		})
	}
}

type faulty struct{ *faultstore.Store }

func (f faulty) Reader(context.Context, objstore.Location) (objstore.Reader, error) {
	return f.Store, nil
}
func (f faulty) Locate(uri string) (objstore.Location, error) { return objstore.Parse(uri) }

func TestAThrottleThatIsTiredOfWaitingEndsTheRead(t *testing.T) {
	t.Parallel()
	mem := memstore.New(memstore.Options{})
	loc := s3root.Join("k")
	mem.Put(loc, body)
	at, _ := mem.Stat(t.Context(), loc)
	tired := errors.New("tired")
	col := collection(&list{}, func(o *blobs.Options) {
		o.Stores = stores{mem}
		o.Throttle = func(context.Context, int) error { return tired }
	})
	v, _, err := col.Inspect(t.Context(), reconcile.Reference{Location: loc, Base: s3root, Checksum: sums(body)["md5"]}, at, reconcile.DepthChecksum)
	if v != reconcile.Undecided || !errors.Is(err, tired) {
		t.Errorf("%s %v", v, err)
	}
}

func TestProve(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size     int64
		checksum string
		copied   []byte
		proof    string // "" = none
		unproven bool
	}{
		"sha256":                              {9, sums(body)["sha256"], body, "checksum sha256", false},
		"md5":                                 {9, sums(body)["md5"], body, "checksum md5", false},
		"crc32c":                              {9, sums(body)["crc32c"], body, "checksum crc32c", false},
		"a checksum without a size":           {0, sums(body)["sha256"], body, "checksum sha256", false},
		"the size alone proves nothing":       {9, "", body, "", true},
		"nothing is recorded":                 {0, "", body, "", true},
		"a checksum that nobody computes":     {9, "sha512:00", body, "", true},
		"another size":                        {9, "", body[:8], "", false},
		"another size, whatever the checksum": {9, sums(body[:8])["sha256"], body[:8], "", false},
		"another checksum":                    {9, sums(body[:8])["sha256"], body, "", false},
		"an empty copy of a recorded one":     {9, sums(body)["sha256"], nil, "", false},
		"an empty copy of an empty one":       {0, sums(nil)["sha256"], nil, "checksum sha256", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proof, err := collection(&list{}).Prove(t.Context(), reconcile.Reference{Size: c.size, Checksum: c.checksum}, copied(c.copied))
			if proof != c.proof || (err == nil) != (c.proof != "") || errors.Is(err, reconcile.ErrUnproven) != c.unproven {
				t.Errorf("%q %v", proof, err)
			}
		})
	}
}
