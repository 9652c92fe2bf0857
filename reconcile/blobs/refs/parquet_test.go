package refs

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

func duckLines(size func(i int) string) (out []string) {
	for i := 1; i <= 12; i++ {
		sum := fmt.Sprintf("sha256:%064d", i)
		if i%3 == 0 {
			sum = ""
		}
		out = append(out, fmt.Sprintf("k%d %s %s %d", i, size(i), sum, 100+i))
	}
	return out
}

func TestParquetOfDuckDBIsRead(t *testing.T) {
	t.Parallel()
	s, at := disk(t, "testdata/duckdb.parquet")
	number := func(i int) string { return fmt.Sprint(i) }
	for size, want := range map[string]func(int) string{
		"size": func(i int) string {
			if i%4 == 0 {
				return "-1"
			}
			return fmt.Sprint(i)
		},
		"u32": number, "dec9": number, "dec18": number, "dbl": number, "flt": number, "huge": number, "txt": number, "payload.n": number,
	} {
		for _, chunk := range []int{0, 16, 1000} {
			r := Parquet(s, at, Columns{Key: "key", Size: size, Checksum: "checksum", Record: "record_id"}, Options{chunk: chunk})
			if d := cmp.Diff(duckLines(want), resumes(t, r)); d != "" {
				t.Errorf("%s: %s", size, d)
			}
		}
	}
	r := Parquet(s, at, Columns{Key: "payload.uri", Size: "half", Record: "kind"}, Options{})
	got := lines(t.Context(), r, "")
	if d := cmp.Diff([]string{"! row 1: bad size: \"1.5\" (partial)", "s3://b/1 -1  odd", "! row 2: bad size: \"2.5\" (partial)", "s3://b/2 -1  even"}, got[:min(4, len(got))]); d != "" {
		t.Error(d)
	}
	if got, err := r.Confirm(t.Context(), []string{"s3://b/3", "s3://b/13"}); err != nil || len(got) != 1 || got["s3://b/3"].Record != "odd" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestParquetColumnsMustFit(t *testing.T) {
	t.Parallel()
	s, at := disk(t, "testdata/duckdb.parquet")
	for cols, want := range map[Columns]string{
		{Key: "nothing"}: "there is none; the file has \"key,size", {}: "no column is named", {Key: "list.list.element"}: "repeats", {Key: "list"}: "there is none", {Key: "payload"}: "there is none", {Key: "size"}: "its type is",
		{Key: "uid"}: "its type is", {Key: "key", Size: "day"}: "its type is", {Key: "key", Checksum: "size"}: "its type is", {Key: "key", Record: "dbl"}: "its type is",
	} {
		got := lines(t.Context(), Parquet(s, at, cols, Options{}), "")
		if len(got) != 1 || !strings.HasPrefix(got[0], "!! ") || !strings.Contains(got[0], want) {
			t.Errorf("%+v: %q", cols, got)
		}
	}
}

type wide struct {
	Key  *string `parquet:"key,optional"`
	Size *uint64 `parquet:"size,optional"`
	Sum  string  `parquet:"a.b,dict"`
}

func parquetOf[T any](t testing.TB, rows []T, opts ...parquet.WriterOption) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, opts...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestParquetRowGroupsAndNulls(t *testing.T) {
	t.Parallel()
	p := func(s string) *string { return &s }
	n := func(n uint64) *uint64 { return &n }
	text := parquetOf(t, []wide{{p("a"), n(5), ""}, {nil, n(5), ""}, {p(""), nil, ""}, {p("b"), n(math.MaxUint64), "x"}, {p("c"), n(0), sum1}, {p("a"), n(5), ""}, {p("a"), n(6), ""}}, parquet.MaxRowsPerRowGroup(2))
	r := Parquet(stored(text), refsAt, Columns{Key: "key", Size: "size", Checksum: "a.b"}, Options{})
	want := []string{"a 5  ", "! row 2: no key", "! row 3: no key", "! row 4: bad size: \"18446744073709551615\" (partial)", "! row 4: unknown checksum: \"x\" (partial)", "b -1  ", "c -1 " + sum1 + " ",
		"! row 7: conflicting records: an earlier row with the key \"a\" has another size or checksum (partial)", "! doubled key: \"a\" in row 6 (partial)"}
	if d := cmp.Diff(want, resumes(t, r)); d != "" {
		t.Error(d)
	}
	if got := lines(t.Context(), Parquet(stored(parquetOf(t, []wide(nil))), refsAt, Columns{Key: "key"}, Options{}), ""); len(got) != 0 {
		t.Errorf("no rows: %q", got)
	}
}

// What is cut or changed is an error or a record, never a panic; the decoder's own
// checks say which.
func TestParquetThatIsDamagedEndsTheWalk(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile("testdata/duckdb.parquet")
	if err != nil {
		t.Fatal(err)
	}
	walk := func(b []byte) []string {
		return lines(t.Context(), Parquet(stored(string(b)), refsAt, Columns{Key: "key", Size: "size", Checksum: "checksum", Record: "record_id"}, Options{}), "")
	}
	for n := range whole {
		if n%31 == 0 || n < 16 || n > len(whole)-16 {
			if got := walk(whole[:n]); len(got) != 1 || !strings.HasPrefix(got[0], "!! ") {
				t.Errorf("cut to %d bytes: %q", n, got)
			}
		}
	}
	failed := 0
	for i := 0; i < len(whole); i += 3 {
		b := bytes.Clone(whole)
		b[i] ^= 0x55
		if got := walk(b); len(got) > 0 && strings.HasPrefix(got[len(got)-1], "!! ") {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no change of a byte was noticed")
	}
	t.Logf("%d of %d changed bytes end the walk", failed, len(whole)/3)
}
