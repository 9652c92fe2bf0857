package refs

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
)

const sum1 = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

func TestCSVRowsAreReadAsTheyStand(t *testing.T) {
	t.Parallel()
	header := "record_id,key,other,size,checksum\n"
	for _, tc := range []struct {
		about, text string
		want        []string
	}{
		{"nothing but a header", header, nil},
		{"a header without its end", "record_id,key,other,size,checksum", nil},
		{"plain rows, the last without its end", header + "r1,a,x,5," + sum1 + "\nr2,b,,,", []string{"a 5 " + sum1 + " r1", "b -1  r2"}},
		{"a byte order mark, line ends of DOS, empty lines", "\ufeff" + strings.ReplaceAll(header, "\n", "\r\n") + "\r\nr1,a,,1,\r\n\n\r\nr2,b,,2,\r", []string{"a 1  r1", "b 2  r2"}},
		{"odd keys are exact", header + "r, a b%20+,,1,\nr,../x,,1,\nr,/lead,,1,\nr,ключ,,1,\nr,\"c,\"\"q\"\"\r\nd\",,1,\nr,\"\"\"\",,1,\n", []string{" a b%20+ 1  r", "../x 1  r", "/lead 1  r", "ключ 1  r", "c,\"q\"\r\nd 1  r", "\" 1  r"}},
		{"ragged rows", header + "r1,a\nr1,a,x,5,,6\nr2,b,,2,\n", []string{"! row 2: malformed row: 2 fields, the header has 5", "! row 3: malformed row: 6 fields, the header has 5", "b 2  r2"}},
		{"a quote where none may be, and one that is not closed", header + "r1,a\"b,,1,\nr2,\"b\"x,,2,\nr3,\"c,,3,\nr4,d,,4,\n", []string{
			"! row 2: malformed row: a quote stands where none may, or is not closed", "! row 3: malformed row: a quote stands where none may, or is not closed",
			"! row 4: malformed row: a quote stands where none may, or is not closed", "d 4  r4"}},
		{"rows are counted as lines", header + "\"r\n\n1\",a,,1,\n,,,,\n", []string{"a 1  r\n\n1", "! row 5: no key"}},
		{"sizes and checksums that are none", header + "r1,a,,big," + sum1 + "\nr2,b,,-2,sha1:00\nr3,c,,0,\n", []string{
			"! row 2: bad size: \"big\" (partial)", "a -1 " + sum1 + " r1", "! row 3: bad size: \"-2\" (partial)", "! row 3: unknown checksum: \"sha1:00\" (partial)", "b -1  r2", "c -1  r3"}},
		{"doubled keys", header + "r1,a,,5,\nr2,a,,5,\nr3,a,," + ",\nr4,a,,6,\nr5,b,,,\nr6,b,,7," + sum1 + "\nr7,b,,8,\n", []string{
			"a 5  r1", "! row 5: conflicting records: an earlier row with the key \"a\" has another size or checksum (partial)", "b -1  r5",
			"! row 8: conflicting records: an earlier row with the key \"b\" has another size or checksum (partial)",
			"! doubled key (3 rows): \"a\" in row 3, \"a\" in row 4, \"b\" in row 7 (partial)"}},
	} {
		for _, chunk := range []int{0, 1, 2, 3, 7} {
			r := CSV(stored(tc.text), refsAt, all, Options{chunk: chunk})
			if d := cmp.Diff(tc.want, resumes(t, r)); d != "" {
				t.Errorf("%s, %d bytes a request: %s", tc.about, chunk, d)
			}
		}
	}
}

func TestCSVCountsItsRows(t *testing.T) {
	t.Parallel()
	r := CSV(stored("key,size\na,1\na,1\na,2\n,3\nb\nc,x\nd,4\n"), refsAt, Columns{Key: "key", Size: "size"}, Options{MaxKeys: 2})
	lines(t.Context(), r, "")
	if d := cmp.Diff(Counts{Rows: 7, Records: 3, Doubled: 1, Contradicting: 1, Unremembered: 1, Bad: 2}, counts(r)); d != "" {
		t.Error(d)
	}
}

func TestFilesThatAreNoneOfOursEndAtOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		about, text, want string
		cols              Columns
	}{
		{"empty", "", "no header line", all},
		{"only line ends", "\n\r\n", "no header line", all},
		{"a column that is not there", "key,size\n", `no column "checksum"; the header has "key,size"`, all},
		{"a column that is there twice", "key,size,key\n", `two columns "key"`, Columns{Key: "key"}},
		{"a header with a bad quote", "a\"b,key\n", "header: a quote", Columns{Key: "key"}},
		{"no key column", "key\n", "no column is named as the key", Columns{Size: "key"}},
		{"UTF-16", "\xff\xfek\x00e\x00y\x00", "UTF-16", all},
		{"compressed", "\x1f\x8b\x08\x00", "compressed", all},
		{"Parquet", "PAR1....PAR1", "Parquet", all},
	} {
		r := CSV(stored(tc.text), refsAt, tc.cols, Options{})
		got := lines(t.Context(), r, "")
		if len(got) != 1 || !strings.HasPrefix(got[0], "!! ") || !strings.Contains(got[0], tc.want) {
			t.Errorf("%s: %q", tc.about, got)
		}
		if _, err := r.Confirm(t.Context(), []string{"a"}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: confirm: %v", tc.about, err)
		}
	}
	for _, r := range []Reader{CSV(memstore.New(memstore.Options{}), refsAt, all, Options{}), JSONLines(memstore.New(memstore.Options{}), refsAt, all, Options{}), Parquet(memstore.New(memstore.Options{}), refsAt, all, Options{})} {
		for _, err := range r.Records(t.Context(), "") {
			if !errors.Is(err, objstore.ErrNotExist) {
				t.Errorf("absent: %v", err)
			}
		}
		if _, err := r.Confirm(t.Context(), []string{"a"}); !errors.Is(err, objstore.ErrNotExist) {
			t.Errorf("absent: confirm: %v", err)
		}
	}
}

func TestARowThatIsTooLongIsLeftOut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxRow)
	text := "key,size\na,1\n" + long + ",2\nb,2\n\"" + strings.Repeat("y\n", maxRow/2) + "\",3\nc,3\n"
	var got []string
	for _, l := range lines(t.Context(), CSV(stored(text), refsAt, Columns{Key: "key", Size: "size"}, Options{}), "") {
		if !strings.Contains(l, "1 fields") { // the lines of the field that is not closed in time
			got = append(got, l)
		}
	}
	want := []string{"a 1  ", "! row 3: malformed row: longer than the 1048576 bytes that are read of one row", "b 2  ",
		"! row 5: malformed row: longer than the 1048576 bytes that are read of one row"}
	if d := cmp.Diff(want, got[:min(len(got), 4)]); d != "" {
		t.Error(d)
	}
	if last := got[len(got)-1]; last != "c 3  " {
		t.Errorf("last: %q", last)
	}
	text = `{"key":"a"}` + "\n" + `{"key":"` + long + `"}` + "\n" + `{"key":"b"}`
	want = []string{"a -1  ", "! row 2: malformed row: longer than the 1048576 bytes that are read of one row", "b -1  "}
	if d := cmp.Diff(want, lines(t.Context(), JSONLines(stored(text), refsAt, Columns{Key: "key"}, Options{chunk: 1000}), "")); d != "" {
		t.Error(d)
	}
}

func TestAPositionGoesWithTheFileItWasMadeIn(t *testing.T) {
	t.Parallel()
	s := stored("key\na\nb\n")
	r := CSV(s, refsAt, Columns{Key: "key"}, Options{})
	var at string
	for rec := range r.Records(t.Context(), "") {
		at = rec.Position
		break
	}
	if got := lines(t.Context(), r, at); !slices.Equal(got, []string{"b -1  "}) {
		t.Errorf("%q", got)
	}
	s.Put(refsAt, []byte("key\nb\nc\n"))
	for _, pos := range []string{at, "nonsense", "7", "x@y", "-1@y", "1@"} {
		n := 0
		for _, err := range r.Records(t.Context(), pos) {
			if n++; !errors.Is(err, ErrPositionGone) || n > 1 {
				t.Errorf("%s: %v", pos, err)
			}
		}
	}
}

// swapped changes its object between two requests.
type swapped struct {
	*memstore.Store
	at   int
	with string
}

func (s *swapped) Get(ctx context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	if s.at--; s.at == 0 {
		s.Put(loc, []byte(s.with))
	}
	return s.Store.Get(ctx, loc, r)
}

func TestAFileThatChangesWhileItIsReadIsNoWhole(t *testing.T) {
	t.Parallel()
	for _, at := range []int{2, 3} {
		s := &swapped{Store: stored("key\na\nb\nc\n"), at: at, with: "key\na\nx\nc\n"}
		got := lines(t.Context(), CSV(s, refsAt, Columns{Key: "key"}, Options{chunk: 4}), "")
		if last := got[len(got)-1]; !strings.Contains(last, ErrChanged.Error()) {
			t.Errorf("%q", got)
		}
	}
	s := &swapped{Store: stored("key\na\nb\nc\n"), at: 2, with: "key\na\nx\nc\n"}
	if _, err := CSV(s, refsAt, Columns{Key: "key"}, Options{chunk: 4}).Confirm(t.Context(), []string{"a"}); !errors.Is(err, ErrChanged) {
		t.Errorf("confirm: %v", err)
	}
}

// broken cuts bodies off so many times.
type broken struct {
	*memstore.Store
	times int
}

func (b *broken) Get(ctx context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	body, a, err := b.Store.Get(ctx, loc, r)
	if b.times > 0 && err == nil {
		b.times--
		return struct {
			io.Reader
			io.Closer
		}{io.LimitReader(body, 3), body}, a, nil
	}
	return body, a, err
}

func TestABodyThatBreaksOffIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for times, want := range map[int]bool{1: true, 2: true, 3: false} {
		got := lines(t.Context(), CSV(&broken{stored("key\na\nb\n"), times}, refsAt, Columns{Key: "key"}, Options{}), "")
		if ok := slices.Equal(got, []string{"a -1  ", "b -1  "}); ok != want {
			t.Errorf("%d times: %q", times, got)
		}
	}
}

func TestConfirmReadsTheRowsAgain(t *testing.T) {
	t.Parallel()
	s := stored("key,size,checksum,record_id\na,1,,r1\nb,2,,r2\n")
	r := CSV(s, refsAt, all, Options{})
	s.Put(refsAt, []byte("key,size,checksum,record_id\na,7,,r1\nc,1,,r3\nd,1,,r4\nd,2,,r5\nd,1,"+sum1+",r6\ne,,,r7\ne,5,,r8\n,3,,r9\n"))
	got, err := r.Confirm(t.Context(), []string{"a", "b", "d", "e", "zz", "a", ""})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Record{"a": {Key: "a", Size: 7, Record: "r1"}, "d": {Key: "d", Size: Unknown, Checksum: sum1, Record: "r4"}, "e": {Key: "e", Size: 5, Record: "r7"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// A row that cannot be read may name what is not found.
	s.Put(refsAt, []byte("key,size,checksum,record_id\na,7,,r1\nx\n"))
	if got, err := r.Confirm(t.Context(), []string{"a"}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.Confirm(t.Context(), []string{"a", "b"}); err == nil {
		t.Errorf("b is not known to be gone: %v", got)
	}
}

func TestAWalkEndsWithItsContextAndItsCaller(t *testing.T) {
	t.Parallel()
	r := CSV(stored("key\na\nb\nc\n"), refsAt, Columns{Key: "key"}, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	var got []string
	for rec, err := range r.Records(ctx, "") {
		got = append(got, line(rec, err))
		cancel(enough)
	}
	if !slices.Equal(got, []string{"a -1  ", "!! enough"}) {
		t.Errorf("%q", got)
	}
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	for range r.Records(ctx, "") {
		end(enough)
		break // and nothing is yielded after that
	}
	if _, err := r.Confirm(ctx, []string{"a"}); err == nil {
		t.Error("confirmed under an ended context")
	}
}

func TestNamedSinceIsTheStoresWord(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s := memstore.New(memstore.Options{Now: func() time.Time { return now }})
	s.Put(refsAt, []byte("key\n"))
	r := CSV(s, refsAt, all, Options{})
	if got, err := r.NamedSince(t.Context()); err != nil || !got.Equal(now) {
		t.Errorf("%v, %v", got, err)
	}
	s.Update(refsAt, func(a *objstore.Attrs) { a.ModTime = now.Add(time.Hour) })
	if got, err := r.NamedSince(t.Context()); err != nil || !got.IsZero() {
		t.Errorf("in the future: %v, %v", got, err)
	}
	s.Update(refsAt, func(a *objstore.Attrs) { a.ModTime = time.Time{} })
	if got, err := r.NamedSince(t.Context()); err != nil || !got.IsZero() {
		t.Errorf("not told: %v, %v", got, err)
	}
	s.Purge(refsAt)
	if _, err := r.NamedSince(t.Context()); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

// FuzzCSV holds the rows to those of encoding/csv, wherever requests cut the file.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"key\na\n", "key,size\n\"a\"\"b\",1\r\n", "key\n\"a\nb\"\n", "key\na\"b\n", "key,x\n\"a\"b,c\n\n\r\nd,e\r", "key\r\n\"\"\n\"x", "\ufeffkey\n,\n"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, chunk int) {
		if chunk <= 0 || chunk > 64 || len(s) > 1<<10 {
			return
		}
		got := lines(t.Context(), CSV(stored(s), refsAt, Columns{Key: "key"}, Options{chunk: chunk}), "")
		if d := cmp.Diff(lines(t.Context(), CSV(stored(s), refsAt, Columns{Key: "key"}, Options{}), ""), got); d != "" {
			t.Fatalf("cut every %d bytes: %s", chunk, d)
		}
		// What has no fault of form is what encoding/csv reads.
		std := csv.NewReader(bytes.NewReader([]byte(strings.TrimPrefix(s, "\ufeff"))))
		rows, err := std.ReadAll()
		if err != nil || len(rows) == 0 {
			return
		}
		key := slices.Index(rows[0], "key")
		if key < 0 { // a line break of the header's field, which that package changes
			return
		}
		var want []string
		seen := map[string]bool{}
		for _, row := range rows[1:] {
			if k := row[key]; k != "" && !seen[k] {
				seen[k] = true
				want = append(want, fmt.Sprintf("%s -1  ", k))
			}
		}
		var records []string
		for rec, err := range CSV(stored(s), refsAt, Columns{Key: "key"}, Options{}).Records(t.Context(), "") {
			if err == nil {
				records = append(records, line(rec, nil))
			}
		}
		if d := cmp.Diff(want, records); d != "" && !strings.Contains(s, "\r") { // line ends within quotes stay
			t.Fatalf("-encoding/csv +ours: %s", d)
		}
	})
}

// Each object that is brought back is asked for by its key just before it is written.
func TestKeysThatWereConfirmedAreNotReadAgainWhileTheFileIsTheSame(t *testing.T) {
	t.Parallel()
	s := stored("key,size\na,1\nb,2\nc,3\n" + strings.Repeat("filler,9\n", 100))
	counted := faultstore.New(s)
	r := CSV(counted, refsAt, Columns{Key: "key", Size: "size"}, Options{chunk: 64})
	ask := func(keys ...string) (map[string]Record, int) {
		t.Helper()
		before := len(counted.Log())
		got, err := r.Confirm(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		return got, len(counted.Log()) - before
	}
	first, whole := ask("a", "b", "gone")
	if len(first) != 2 || whole < 10 {
		t.Fatalf("%v in %d requests", first, whole)
	}
	clear(first) // the caller's own
	if got, n := ask("b"); got["b"].Size != 2 || n != 1 {
		t.Errorf("%v in %d requests", got, n)
	}
	if got, n := ask("gone"); len(got) != 0 || n != 1 {
		t.Errorf("%v in %d requests", got, n)
	}
	if got, n := ask("b", "c"); len(got) != 2 || n < 10 {
		t.Errorf("a key that was not asked for before: %v in %d requests", got, n)
	}
	s.Put(refsAt, []byte("key,size\nb,7\n"))
	if got, _ := ask("b"); got["b"].Size != 7 {
		t.Errorf("the file changed: %v", got)
	}
}
