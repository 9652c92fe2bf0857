package datafile

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// openFile opens a data file; reads counts its reads when not nil.
func openFile(t testing.TB, path string) *File {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), memory(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// memory is a Reader of bytes.
type memory []byte

func (m memory) ReadAt(_ context.Context, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > int64(len(m)) || n > int64(len(m))-off {
		return nil, fmt.Errorf("read %d bytes at %d of %d", n, off, len(m))
	}
	return append([]byte(nil), m[off:off+n]...), nil
}

// expected is what the library read from a file.
type expected struct {
	Rows    int              `json:"rows"`
	Columns map[string][]any `json:"columns"`
}

func readExpected(t testing.TB, path string) expected {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var e expected
	if err := json.NewDecoder(z).Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e
}

// jsonValue gives value i the way the fixtures have it.
func jsonValue(a *Array, i int) any {
	if a.Null(i) {
		return nil
	}
	if d, ok := a.Descriptor(i); ok && a.Blob() == BlobV1 {
		return map[string]any{"position": strconv.FormatUint(d.Position, 10), "size": strconv.FormatUint(d.Size, 10)}
	}
	switch a.typ.kind {
	case kindBool:
		v, _ := a.Bool(i)
		return v
	case kindInt:
		v, ok := a.Int(i)
		if !ok {
			return "no Int"
		}
		return strconv.FormatInt(v, 10)
	case kindUint:
		v, ok := a.Uint(i)
		if !ok {
			return "no Uint"
		}
		return strconv.FormatUint(v, 10)
	case kindFloat:
		v, ok := a.Float(i)
		if !ok {
			return "no Float"
		}
		return v
	case kindBytes, kindFixedBytes:
		if strings.Contains(a.Type(), "string") {
			return a.String(i)
		}
		return "hex:" + hex.EncodeToString(a.Bytes(i))
	case kindList, kindFixedList:
		items, lo, hi := a.List(i)
		out := []any{}
		for k := lo; k < hi; k++ {
			out = append(out, jsonValue(items, k))
		}
		return out
	case kindStruct:
		out := map[string]any{}
		for _, n := range a.Names() {
			out[n] = jsonValue(a.Child(n), i)
		}
		return out
	}
	return "type " + a.Type()
}

// nothing evens out how a blob with nothing to fetch is told: the library shows a
// null of format 2.0 as it is stored, and does not see those that one release
// stores in version 2 of blobs.
func nothing(values []any) {
	for i, v := range values {
		d, _ := v.(map[string]any)
		if d["blob_uri"] == "" && d["size"] == "0" || d["blob_uri"] == nil && d["size"] == "0" && d["position"] == "1" {
			values[i] = nil
		}
	}
}

// values reads a whole field.
func values(t testing.TB, f *File, field *Field) ([]any, error) {
	t.Helper()
	out := []any{}
	for b, err := range f.Read(t.Context(), []*Field{field}) {
		if err != nil {
			return nil, err
		}
		if b.FirstRow != int64(len(out)) || b.Columns[0].Len() != b.Rows {
			t.Fatalf("batch of %d rows at %d with %d values, want it at %d", b.Rows, b.FirstRow, b.Columns[0].Len(), len(out))
		}
		for i := range b.Rows {
			out = append(out, jsonValue(b.Columns[0], i))
		}
	}
	return out, nil
}

func TestReadsWhatTheLibraryReads(t *testing.T) {
	t.Parallel()
	dir := "testdata"
	if d := os.Getenv("RECONCILE_TEST_DATAFILES"); d != "" {
		dir = d // what e2e/fixtures/datafile.mjs made
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.lance"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no data files: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			f := openFile(t, path)
			want := readExpected(t, strings.TrimSuffix(path, ".lance")+".json.gz")
			if f.Rows != int64(want.Rows) {
				t.Errorf("%d rows, want %d", f.Rows, want.Rows)
			}
			for _, field := range f.Fields() {
				got, err := values(t, f, field)
				if err != nil {
					t.Errorf("%s: %v", field.Name, err)
					continue
				}
				if field.Blob != NotBlob {
					nothing(want.Columns[field.Name])
					nothing(got)
				}
				if reflect.DeepEqual(want.Columns[field.Name], got) {
					continue // cmp takes its time over many rows
				}
				t.Errorf("%s: %s", field.Name, cmp.Diff(want.Columns[field.Name], got))
			}
		})
	}
}
