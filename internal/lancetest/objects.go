package lancetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Objects are the objects that the version consists of, by path below the dataset
// root: manifest, transaction file, data, deletion and index files, refs, and the
// version hint where one was asked for. Files under a base path are not among
// them; see [Builder.BaseObjects].
func (b *Builder) Objects() map[string][]byte {
	out := map[string][]byte{b.ManifestName(): b.Manifest()}
	if !b.noTransaction {
		out["_transactions/"+b.TransactionName()] = b.transactionMessage()
	}
	b.eachFile(func(baseID *uint32, name string, data []byte) {
		if baseID == nil {
			out[name] = data
		}
	})
	for _, r := range b.refs {
		out[path.Join("_refs", r.kind, strings.ReplaceAll(r.name, "/", "%2F")+".json")] = b.encodeRef(r)
	}
	if b.hint != 0 {
		out["_versions/latest_version_hint.json"] = fmt.Appendf(nil, `{"version":%d}`, b.hint)
	}
	return out
}

// BaseObjects are the files that lie under base paths, by base path + "/" + path.
// A base that is no dataset root holds data files directly.
func (b *Builder) BaseObjects() map[string][]byte {
	out := map[string][]byte{}
	b.eachFile(func(baseID *uint32, name string, data []byte) {
		if baseID == nil {
			return
		}
		for _, x := range b.bases {
			if x.id != *baseID {
				continue
			}
			if !x.isRoot {
				name = strings.TrimPrefix(strings.TrimPrefix(name, "data/"), "_indices/")
			}
			out[strings.TrimRight(x.path, "/")+"/"+name] = data
			return
		}
	})
	return out
}

// eachFile yields every data, deletion and index file with its name below a
// dataset root.
func (b *Builder) eachFile(yield func(baseID *uint32, name string, data []byte)) {
	for _, f := range b.fragments {
		for _, file := range f.files {
			yield(file.BaseID, "data/"+file.Path, b.content(f, file))
		}
		if d := f.deletion; d != nil {
			data := DeletionArrow(d.offsets)
			if d.bitmap {
				data = DeletionBitmap(d.offsets)
			}
			yield(d.base, deletionName(f), data)
		}
		for msg := range everyField(f.extra, 11) {
			name := firstField(firstField(msg, 1), 1)
			yield(nil, "data/"+string(name), b.dataFile(1, []int32{0}))
		}
		for msg := range everyField(f.extra, 6) {
			yield(nil, string(firstField(msg, 1)), []byte("row ids"))
		}
	}
	for _, x := range b.indices {
		for _, f := range x.files {
			yield(x.base, path.Join("_indices", x.id.String(), f.Path), b.dataFile(1, []int32{0}))
		}
	}
}

func (b *Builder) content(f *fragment, file File) []byte {
	if file.Data != nil {
		return file.Data
	}
	return b.dataFile(f.rows, file.Fields)
}

// encodeRef is the JSON that the real library writes, except that manifest sizes
// of other versions than this one are unknown here and 0.
func (b *Builder) encodeRef(r ref) []byte {
	var parent *string
	if r.parent != "" {
		parent = &r.parent
	}
	var size int
	if r.version == b.version && r.parent == b.branch {
		size = len(b.Manifest())
	}
	stamp := b.timestamp.UTC().Format("2006-01-02T15:04:05.000000000Z")
	var v any
	if r.kind == "tags" {
		v = struct {
			Branch       *string           `json:"branch"`
			Version      uint64            `json:"version"`
			CreatedAt    string            `json:"createdAt"`
			UpdatedAt    string            `json:"updatedAt"`
			ManifestSize int               `json:"manifestSize"`
			Metadata     map[string]string `json:"metadata"`
		}{parent, r.version, stamp, stamp, size, map[string]string{}}
	} else {
		id := fixedUUID("branch", r.name)
		v = struct {
			ParentBranch *string `json:"parentBranch"`
			Identifier   struct {
				VersionMapping [][2]any `json:"version_mapping"`
			} `json:"identifier"`
			ParentVersion uint64            `json:"parentVersion"`
			CreateAt      int64             `json:"createAt"`
			ManifestSize  int               `json:"manifestSize"`
			Metadata      map[string]string `json:"metadata"`
		}{parent, struct {
			VersionMapping [][2]any `json:"version_mapping"`
		}{[][2]any{{r.version, strings.ReplaceAll(id.String(), "-", "")}}}, r.version, b.timestamp.Unix(), size, map[string]string{}}
	}
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("lancetest: encode ref: %v", err))
	}
	return raw
}

// WriteTo puts the version's objects, damaged as asked, in the order of their
// names. It panics when a damage hits nothing, because a test that breaks nothing
// proves nothing.
func (b *Builder) WriteTo(put func(name string, data []byte), damages ...Damage) {
	objects := b.Objects()
	if err := damageAll(objects, damages); err != nil {
		panic("lancetest: " + err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		put(name, objects[name])
	}
}

// WriteDir writes the version below the folder root (made when absent), damaged
// as asked.
func (b *Builder) WriteDir(t testing.TB, root string, damages ...Damage) {
	t.Helper()
	b.WriteTo(func(name string, data []byte) {
		if err := writeFile(filepath.Join(root, filepath.FromSlash(name)), data); err != nil {
			t.Fatalf("write table: %v", err)
		}
	}, damages...)
}

// Damage says what is broken: which objects, by path below the root or by a
// pattern as of [path.Match], and how.
type Damage struct {
	what     string
	patterns []string
	apply    func(data []byte) (_ []byte, keep bool)
}

// Missing takes objects away.
func Missing(names ...string) Damage {
	return Damage{"missing", names, func([]byte) ([]byte, bool) { return nil, false }}
}

// Truncate keeps the first n bytes of an object.
func Truncate(name string, n int) Damage {
	return Damage{"truncate", []string{name}, func(data []byte) ([]byte, bool) { return data[:min(n, len(data))], true }}
}

// Empty leaves an object without a byte.
func Empty(name string) Damage { return Truncate(name, 0) }

// Corrupt flips every bit of the byte at offset at (from the end when negative).
func Corrupt(name string, at int) Damage {
	return Damage{"corrupt", []string{name}, func(data []byte) ([]byte, bool) {
		data = bytes.Clone(data)
		if at < 0 {
			at += len(data)
		}
		data[at] ^= 0xff
		return data, true
	}}
}

// DamageDir applies damages to the files below root. A damage that hits nothing
// fails the test.
func DamageDir(t testing.TB, root string, damages ...Damage) {
	t.Helper()
	objects := map[string][]byte{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		objects[filepath.ToSlash(rel)], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatalf("damage: %v", err)
	}
	before := maps.Clone(objects)
	if err := damageAll(objects, damages); err != nil {
		t.Fatal(err)
	}
	for name, old := range before {
		file := filepath.Join(root, filepath.FromSlash(name))
		now, kept := objects[name]
		switch {
		case !kept:
			err = os.Remove(file)
		case !bytes.Equal(old, now):
			err = os.WriteFile(file, now, 0o644)
		}
		if err != nil {
			t.Fatalf("damage: %v", err)
		}
	}
}

func damageAll(objects map[string][]byte, damages []Damage) error {
	for _, d := range damages {
		for _, pattern := range d.patterns {
			hit := false
			for _, name := range slices.Sorted(maps.Keys(objects)) {
				ok, err := path.Match(pattern, name)
				if err != nil {
					return fmt.Errorf("damage %s %q: %w", d.what, pattern, err)
				}
				if !ok && name != pattern {
					continue
				}
				hit = true
				if data, keep := d.apply(objects[name]); keep {
					objects[name] = data
				} else {
					delete(objects, name)
				}
			}
			if !hit {
				return fmt.Errorf("damage %s %q: no such object", d.what, pattern)
			}
		}
	}
	return nil
}

// everyField yields the values of a length-delimited field.
func everyField(msg []byte, num protowire.Number) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(msg) > 0 {
			n, typ, tag := protowire.ConsumeTag(msg)
			if tag < 0 {
				panic("lancetest: broken message")
			}
			size := protowire.ConsumeFieldValue(n, typ, msg[tag:])
			if size < 0 {
				panic("lancetest: broken message")
			}
			if n == num && typ == protowire.BytesType {
				v, _ := protowire.ConsumeBytes(msg[tag:])
				if !yield(v) {
					return
				}
			}
			msg = msg[tag+size:]
		}
	}
}

func firstField(msg []byte, num protowire.Number) []byte {
	for v := range everyField(msg, num) {
		return v
	}
	return nil
}

func hasField(msg []byte, num protowire.Number) bool {
	for range everyField(msg, num) {
		return true
	}
	return false
}
