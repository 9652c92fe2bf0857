package lance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// memStore is a Store of named bytes. Faults are set per name.
type memStore struct {
	objects map[string][]byte
	// getErr and listErr are returned for a name or prefix.
	getErr, listErr map[string]error
	// cut ends the body of an object early, with an error as a store must.
	cut map[string]int
	// sizeless hides sizes from Get.
	sizeless bool
	log      []string
}

func (s *memStore) Get(_ context.Context, name string, off, n int64) (io.ReadCloser, Object, error) {
	s.log = append(s.log, "get "+name)
	if err := s.getErr[name]; err != nil {
		return nil, Object{}, err
	}
	b, ok := s.objects[name]
	if !ok {
		return nil, Object{}, &fs.PathError{Op: "get", Path: name, Err: fs.ErrNotExist}
	}
	o := Object{Name: name, Size: int64(len(b)), ETag: "e"}
	if s.sizeless {
		o.Size = -1
	}
	switch {
	case off < 0:
		b = b[max(0, int64(len(b))+off):]
	default:
		b = b[min(off, int64(len(b))):]
		if n >= 0 {
			b = b[:min(n, int64(len(b)))]
		}
	}
	if c, ok := s.cut[name]; ok {
		return io.NopCloser(io.MultiReader(bytes.NewReader(b[:c]), errReader{})), o, nil
	}
	return io.NopCloser(bytes.NewReader(b)), o, nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errReadCut }

var errReadCut = io.ErrUnexpectedEOF

func (s *memStore) List(_ context.Context, prefix, delimiter string) iter.Seq2[Object, error] {
	s.log = append(s.log, "list "+prefix)
	return func(yield func(Object, error) bool) {
		names := make([]string, 0, len(s.objects))
		for n := range s.objects {
			names = append(names, n)
		}
		slices.Sort(names)
		last := ""
		for _, n := range names {
			rest, ok := strings.CutPrefix(n, prefix)
			if !ok {
				continue
			}
			o := Object{Name: n, Size: int64(len(s.objects[n]))}
			if i := strings.Index(rest, "/"); delimiter == "/" && i >= 0 {
				o = Object{Name: prefix + rest[:i+1], Size: -1, Prefix: true}
			}
			if o.Name == last {
				continue
			}
			if last = o.Name; !yield(o, nil) {
				return
			}
		}
		if err := s.listErr[prefix]; err != nil {
			yield(Object{}, err)
		}
	}
}

// dirStore is a Store of a folder.
type dirStore string

func (d dirStore) Get(_ context.Context, name string, off, n int64) (io.ReadCloser, Object, error) {
	f, err := os.Open(filepath.Join(string(d), name))
	if err != nil {
		return nil, Object{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, Object{}, errors.Join(err, f.Close())
	}
	o := Object{Name: name, Size: info.Size(), ETag: "e"}
	if off < 0 {
		off, n = max(0, o.Size+off), -1
	}
	if n < 0 || n > o.Size-off {
		n = max(0, o.Size-off)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, off, n), f}, o, nil
}

func (d dirStore) List(ctx context.Context, prefix, delimiter string) iter.Seq2[Object, error] {
	all := &memStore{objects: map[string][]byte{}}
	err := filepath.WalkDir(string(d), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(string(d), p)
		if err != nil || !strings.HasPrefix(filepath.ToSlash(rel), prefix) {
			return err
		}
		info, err := e.Info()
		if err == nil {
			all.objects[filepath.ToSlash(rel)] = make([]byte, info.Size())
		}
		return err
	})
	if err != nil {
		return func(yield func(Object, error) bool) { yield(Object{}, err) }
	}
	return all.List(ctx, prefix, delimiter)
}
