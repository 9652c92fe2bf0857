package blobs_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/blobs/harper"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// nodeFile is a file as a Harper node keeps it: 16 bits of type, 48 of size, a body.
func nodeFile(kind uint16, size int64, body []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(kind)<<48|uint64(size)&(1<<48-1)), body...)
}

func deflated(b []byte) []byte {
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

var content = bytes.Repeat([]byte("content of a blob "), 600) // 10,800 bytes

func nodeFiles(o *blobs.Options) { o.Format = harper.Files() }

// inspect asks about one file of a node, whose record tells a size and a checksum.
func inspect(t *testing.T, file []byte, rec refs.Record, depth reconcile.Depth, change func(*blobs.Options, *faultstore.Store)) (v reconcile.Verdict, reason string, gets int, err error) {
	t.Helper()
	mem := memstore.New(memstore.Options{})
	mem.Put(s3root.Join("0/0/1"), file)
	fault := faultstore.New(mem)
	rec.Key = "0/0/1"
	col := collection(&list{rows: []any{rec}}, nodeFiles, func(o *blobs.Options) {
		o.Stores = faulty{fault}
		if change != nil {
			change(o, fault)
		}
	})
	ref := walk(t, col)[0]
	at, err := mem.Stat(t.Context(), ref.Location)
	if err != nil {
		t.Fatal(err)
	}
	v, reason, err = col.Inspect(t.Context(), ref, at, depth)
	return v, reason, fault.Calls("get"), err
}

func TestNodeFilesAtEachDepth(t *testing.T) {
	t.Parallel()
	size := int64(len(content))
	packed := deflated(content)
	const (
		present    = reconcile.Present
		unreadable = reconcile.Unreadable
		other      = reconcile.SizeMismatch
		wrong      = reconcile.ChecksumMismatch
	)
	for _, tt := range []struct {
		name                         string
		file                         []byte
		head, footer, checksum       reconcile.Verdict
		reason                       string // at depth footer, and checksum
		footerRequests, sumsRequests int
	}{
		{"plain", nodeFile(0, size, content), present, present, present, "", 1, 1},
		{"compressed", nodeFile(1, size, packed), present, present, present, "", 2, 1},
		{"the size is a placeholder", nodeFile(0, -1, content), present, unreadable, unreadable, harper.ReasonUnfinished, 1, 1},
		{"an error's text", nodeFile(0x00ff, 5, []byte("error")), present, unreadable, unreadable, harper.ReasonErrorStub, 1, 1},
		{"the text of a transfer that broke off", nodeFile(0x00fe, 5, []byte("error")), present, unreadable, unreadable, harper.ReasonPendingStub, 1, 1},
		{"type 2", nodeFile(2, size, content), present, unreadable, unreadable, harper.ReasonUnknownType, 1, 1},
		{"cut in the middle", nodeFile(0, size, content[:4000]), present, unreadable, unreadable, harper.ReasonTorn, 1, 1},
		{"nothing but a header", nodeFile(0, size, nil), present, unreadable, unreadable, harper.ReasonTorn, 1, 1},
		{"one byte too many", nodeFile(0, size, append(bytes.Clone(content), 'x')), present, unreadable, unreadable, harper.ReasonOverlong, 1, 1},
		{"agrees with itself and not with the record", nodeFile(0, 8000, content[:8000]), present, other, other, "", 1, 1},
		{"compressed, agrees with itself and not with the record", nodeFile(1, 8000, deflated(content[:8000])), present, other, other, "", 2, 1},
		{"compressed and torn", nodeFile(1, size, packed[:len(packed)-5]), present, unreadable, unreadable, harper.ReasonTorn, 2, 1},
		{"compressed, holds more", nodeFile(1, 8000, packed), present, unreadable, unreadable, harper.ReasonOverlong, 2, 1},
		{"compressed, a bit flipped", nodeFile(1, size, flipped(packed, len(packed)-1)), present, unreadable, unreadable, harper.ReasonTorn, 2, 1},
		{"plain, a bit flipped", nodeFile(0, size, flipped(content, 7)), present, present, wrong, "read " + sums(flipped(content, 7))["sha256"], 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for depth, want := range map[reconcile.Depth]reconcile.Verdict{reconcile.DepthHead: tt.head, reconcile.DepthFooter: tt.footer, reconcile.DepthChecksum: tt.checksum} {
				rec := refs.Record{Size: size, Checksum: sums(content)["sha256"]}
				reason, requests := "", map[reconcile.Depth]int{reconcile.DepthFooter: tt.footerRequests, reconcile.DepthChecksum: tt.sumsRequests}[depth]
				if want != present {
					reason = tt.reason
				}
				v, got, n, err := inspect(t, tt.file, rec, depth, nil)
				if v != want || got != reason || n != requests || err != nil {
					t.Errorf("%s: %s %q %v, %d requests; want %s %q, %d", depth, v, got, err, n, want, reason, requests)
				}
			}
		})
	}
}

func TestNodeFilesOfRecordsThatTellLittle(t *testing.T) {
	t.Parallel()
	short := nodeFile(0, 8000, content[:8000])
	for _, tt := range []struct {
		name string
		rec  refs.Record
		want reconcile.Verdict
	}{
		{"nothing is recorded", refs.Record{Size: refs.Unknown}, reconcile.Present},
		{"a size", refs.Record{Size: 8000}, reconcile.Present},
		{"a checksum", refs.Record{Size: refs.Unknown, Checksum: sums(content[:8000])["md5"]}, reconcile.Present},
		{"another's checksum", refs.Record{Size: refs.Unknown, Checksum: sums(content)["md5"]}, reconcile.ChecksumMismatch},
		{"the checksum of the whole file", refs.Record{Size: refs.Unknown, Checksum: sums(short)["md5"]}, reconcile.ChecksumMismatch},
		{"the length of the whole file", refs.Record{Size: 8008}, reconcile.SizeMismatch},
		{"a checksum that nobody computes", refs.Record{Size: 8000, Checksum: "sha512:00"}, reconcile.Present},
	} {
		if v, reason, _, err := inspect(t, short, tt.rec, reconcile.DepthChecksum, nil); v != tt.want || err != nil {
			t.Errorf("%s: %s %q %v, want %s", tt.name, v, reason, err, tt.want)
		}
	}
}

func TestNodeFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	tired := errors.New("tired")
	size := int64(len(content))
	plain, packed := nodeFile(0, size, content), nodeFile(1, size, deflated(content))
	for _, tt := range []struct {
		name   string
		file   []byte
		depth  reconcile.Depth
		change func(*blobs.Options, *faultstore.Store)
	}{
		{"a header that breaks off", plain, reconcile.DepthFooter, func(_ *blobs.Options, f *faultstore.Store) {
			f.Add(faultstore.Rule{Op: "get", Effect: faultstore.ShortBody(3)})
		}},
		{"content that breaks off", plain, reconcile.DepthChecksum, func(_ *blobs.Options, f *faultstore.Store) {
			f.Add(faultstore.Rule{Op: "get", Effect: faultstore.ShortBody(3000)})
		}},
		{"compressed content that breaks off", packed, reconcile.DepthChecksum, func(_ *blobs.Options, f *faultstore.Store) {
			f.Add(faultstore.Rule{Op: "get", Effect: faultstore.ShortBody(40)})
		}},
		{"no answer", packed, reconcile.DepthFooter, func(_ *blobs.Options, f *faultstore.Store) {
			f.Add(faultstore.Rule{Op: "get", Effect: faultstore.Status(503, "SlowDown")})
		}},
		{"a throttle that is tired of waiting", packed, reconcile.DepthFooter, func(o *blobs.Options, _ *faultstore.Store) {
			o.Throttle = func(context.Context, int) error { return tired }
		}},
	} {
		if v, reason, _, err := inspect(t, tt.file, refs.Record{Size: size, Checksum: sums(content)["sha256"]}, tt.depth, tt.change); v != reconcile.Undecided || reason != "" || err == nil {
			t.Errorf("%s: %s %q %v", tt.name, v, reason, err)
		}
	}
}

func TestEveryByteOfNodeFilesIsThrottled(t *testing.T) {
	t.Parallel()
	size := int64(len(content))
	for _, tt := range []struct {
		name  string
		file  []byte
		depth reconcile.Depth
		want  int
	}{
		{"a header", nodeFile(0, size, content), reconcile.DepthFooter, 8},
		{"compressed content", nodeFile(1, size, deflated(content)), reconcile.DepthFooter, 8 + len(deflated(content))},
		{"plain content", nodeFile(0, size, content), reconcile.DepthChecksum, 8 + len(content)},
		{"compressed content for its checksum", nodeFile(1, size, deflated(content)), reconcile.DepthChecksum, 8 + len(deflated(content))},
	} {
		n := 0
		v, _, _, err := inspect(t, tt.file, refs.Record{Size: size, Checksum: sums(content)["sha256"]}, tt.depth, func(o *blobs.Options, _ *faultstore.Store) {
			o.Throttle = func(_ context.Context, b int) error { n += b; return nil }
		})
		// The end of a body may have to be asked for, by a read of what is left.
		if v != reconcile.Present || err != nil || n < tt.want || n > 2*tt.want {
			t.Errorf("%s: %s %v, %d bytes asked of the throttle, %d are there", tt.name, v, err, n, tt.want)
		}
	}
}

func TestAnotherFileInTheMeantimeIsNotJudged(t *testing.T) {
	t.Parallel()
	mem := memstore.New(memstore.Options{})
	loc := s3root.Join("k")
	mem.Put(loc, nodeFile(0, 9, body))
	col := collection(&list{rows: []any{refs.Record{Key: "k", Size: 9}}}, nodeFiles, func(o *blobs.Options) { o.Stores = stores{mem} })
	ref := walk(t, col)[0]
	at, err := mem.Stat(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	mem.Put(loc, nodeFile(0, 4, body[:4]))
	for _, etag := range []string{at.ETag, ""} { // stores exist that tell no ETag
		at.ETag = etag
		if v, _, err := col.Inspect(t.Context(), ref, at, reconcile.DepthFooter); v != reconcile.Undecided || err == nil {
			t.Errorf("ETag %q: %s %v", etag, v, err)
		}
	}
}

// What is recorded is said of the content: stores and passes compare it with nothing,
// findings show it.
func TestReferencesToNodeFiles(t *testing.T) {
	t.Parallel()
	l := &list{state: "s", rows: []any{refs.Record{Key: "k", Size: 9, Checksum: "md5:a"}, rec("s3://elsewhere/x")}}
	c := collection(l, nodeFiles)
	got := walk(t, c)
	ref := got[0]
	if ref.Size != 0 || ref.Checksum != "" || ref.MinSize != 8 {
		t.Errorf("%+v", ref)
	}
	if got[1].Reason != "outside_collection" {
		t.Errorf("%+v", got[1])
	}
	f := reconcile.NewFinding(c.Target(), ref, today)
	if f.ExpectedSize == nil || *f.ExpectedSize != 9 || f.ExpectedChecksum == nil || *f.ExpectedChecksum != "md5:a" {
		t.Errorf("%+v", f)
	}
	named, err := c.Named(t.Context(), []string{"k"})
	if d := cmp.Diff([]reconcile.Reference{ref}, named); d != "" || err != nil {
		t.Errorf("named again: %v %s", err, d)
	}
	plain := collection(l)
	if c.SourceID() == plain.SourceID() {
		t.Error("a walk of plain objects would go on as one of files")
	}
}

func TestRevisitOfNodeFiles(t *testing.T) {
	t.Parallel()
	l := &list{rows: []any{refs.Record{Key: "same", Size: 3, Checksum: "md5:a"}, refs.Record{Key: "size", Size: 3}, refs.Record{Key: "sum", Checksum: "md5:a"}, refs.Record{Key: "gone", Size: 3}, refs.Record{Key: "less", Size: 3}}}
	c := collection(l, nodeFiles)
	asked := walk(t, c)
	l.rows = []any{refs.Record{Key: "same", Size: 3, Checksum: "md5:a"}, refs.Record{Key: "size", Size: 4}, refs.Record{Key: "sum", Checksum: "md5:b"}, refs.Record{Key: "less"}}
	rev, err := c.Revisit(t.Context(), asked)
	if d := cmp.Diff([]bool{true, false, false, false, true}, rev.Named); d != "" || err != nil {
		t.Error(err, d)
	}
}

func TestNodeFilesAreReportedOnly(t *testing.T) {
	t.Parallel()
	file := nodeFile(0, 4, body[:4])
	mem := memstore.New(memstore.Options{})
	mem.Put(s3root.Join("k"), file)
	c := collection(&list{rows: []any{refs.Record{Key: "k", Size: 9, Checksum: sums(body)["sha256"]}}}, nodeFiles, func(o *blobs.Options) { o.Stores = stores{mem} })
	ref := walk(t, c)[0]
	for _, copy := range [][]byte{nodeFile(0, 9, body), body, nil} {
		if proof, err := c.Prove(t.Context(), ref, copied(copy)); proof != "" || err == nil || errors.Is(err, reconcile.ErrUnproven) {
			t.Errorf("%d bytes: %q %v", len(copy), proof, err)
		}
	}
	at, err := mem.Stat(t.Context(), ref.Location)
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err := c.Inspect(t.Context(), ref, at, reconcile.DepthFooter); v != reconcile.SizeMismatch || err != nil {
		t.Fatalf("%s %v", v, err)
	}
	var got []string
	for _, v := range []reconcile.Verdict{reconcile.SizeMismatch, reconcile.Pending, reconcile.Superseded, reconcile.Missing, reconcile.Lost, reconcile.Recoverable, reconcile.Unreadable} {
		f := reconcile.NewFinding(c.Target(), ref, today)
		f.Verdict, f.Restorable, f.PeersHaving = v, true, []string{"p"}
		if v != reconcile.Missing {
			f.ObservedSize = reconcile.Ptr(at.Size)
		}
		fs := []reconcile.Finding{f}
		acts, err := c.Propose(t.Context(), fs, reconcile.Policy{})
		if err != nil || len(acts) > 0 {
			t.Errorf("%s: %+v %v", v, acts, err)
		}
		size := "-"
		if fs[0].ObservedSize != nil {
			size = fmt.Sprint(*fs[0].ObservedSize)
		}
		got = append(got, fmt.Sprint(v, " ", fs[0].ProposedAction, " ", size, " ", fs[0].BlockedBy))
	}
	want := []string{"size_mismatch none 4 []", "pending none 4 []", "superseded none 12 []", "missing none - []", "lost none 12 []", "recoverable none 12 []", "unreadable none 12 []"}
	if !slices.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	// Looked at again and found right, the length that was there is forgotten.
	mem.Put(s3root.Join("k"), nodeFile(0, 9, body))
	if at, err = mem.Stat(t.Context(), ref.Location); err != nil {
		t.Fatal(err)
	}
	if v, _, err := c.Inspect(t.Context(), ref, at, reconcile.DepthChecksum); v != reconcile.Present || err != nil {
		t.Fatalf("%s %v", v, err)
	}
	f := reconcile.NewFinding(c.Target(), ref, today)
	f.Verdict, f.ObservedSize = reconcile.Pending, reconcile.Ptr(at.Size)
	fs := []reconcile.Finding{f}
	if _, err := c.Propose(t.Context(), fs, reconcile.Policy{}); err != nil || *fs[0].ObservedSize != 17 {
		t.Errorf("%v %d", err, *fs[0].ObservedSize)
	}
}
