package datafile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readCounter counts the bytes that are read.
type readCounter struct {
	memory
	n int64
}

func (c *readCounter) ReadAt(ctx context.Context, off, n int64) ([]byte, error) {
	c.n += n
	return c.memory.ReadAt(ctx, off, n)
}

func TestCheckFindsNothingOddInRealFiles(t *testing.T) {
	t.Parallel()
	files := 0
	for _, pattern := range []string{"testdata/*.lance", "../../testdata/lance/*/*/*.lance/data/*.lance", "../../testdata/lance/*/*/*/*.lance/data/*.lance", "../../testdata/lance/*/*/*.lance/_indices/*/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := Open(t.Context(), memory(b), int64(len(b)))
			if errors.Is(err, ErrLegacy) || !strings.HasSuffix(path, ".lance") && !strings.HasSuffix(path, ".idx") {
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			files++
			for _, values := range []bool{false, true} {
				c, err := file.Check(t.Context(), values)
				if err != nil || c.Odd != "" || c.Values != values || c.Columns != len(file.columns) {
					t.Errorf("%s, values %v: %+v, %v", path, values, c, err)
				}
			}
		}
	}
	if files < 100 {
		t.Errorf("only %d files", files)
	}
}

func TestCheckReadsNoPageUnlessAsked(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile("../../testdata/lance/0.39.0/densedel/t.lance/data/" + onlyFile(t, "../../testdata/lance/0.39.0/densedel/t.lance/data"))
	if err != nil {
		t.Fatal(err)
	}
	r := &readCounter{memory: memory(whole)}
	file, err := Open(t.Context(), r, int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	file.tail = file.tail[len(file.tail)-600:] // as of a file with much before its metadata
	r.n = 0
	if _, err := file.Check(t.Context(), false); err != nil || r.n > 1000 {
		t.Errorf("%d of %d bytes read, %v", r.n, len(whole), err)
	}
	if _, err := file.Check(t.Context(), true); err != nil || r.n < int64(len(whole))/2 {
		t.Errorf("with values: %d of %d bytes read, %v", r.n, len(whole), err)
	}
}

func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%s: %d entries, %v", dir, len(entries), err)
	}
	return entries[0].Name()
}

func FuzzCheck(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(t.Context(), memory(b), int64(len(b)))
		if err != nil || len(file.fields) > 100 || file.Rows > 1<<20 {
			return
		}
		c, err := file.Check(t.Context(), true)
		typed(t, err)
		if err == nil && c.Values && c.Columns != len(file.columns) {
			t.Fatalf("%+v", c)
		}
		_, err = file.FieldMessages(t.Context())
		typed(t, err)
	})
}
