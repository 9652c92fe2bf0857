package lance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// MemWAL is the write path of tables that are appended to row by row. Below a
// dataset root:
//
//	_mem_wal/{shard}/manifest/{64 binary digits}.binpb   ShardManifest, a bare message;
//	                                                     the name is its version, bits reversed
//	_mem_wal/{shard}/manifest/version_hint.json          a hint, not trusted
//	_mem_wal/{shard}/wal/{64 binary digits}.arrow        entries, named by position alike
//	_mem_wal/{shard}/{8 hex}_gen_{n}/                    a flushed generation: a dataset root
//	                                                     of its own, and the two below
//	    _pk_index/{page_data,page_lookup}.lance, bloom_filter.bin
//
// (layout and numbers as Lance 12 writes them)
const memWALRoot = "_mem_wal/"

// Shard is one shard's folder with what its newest manifest says.
type Shard struct {
	// ID is the folder's name.
	ID string
	// ManifestName is the newest manifest, relative to the dataset root; empty when
	// the folder holds none.
	ManifestName string
	Version      uint64
	// ReplayAfter and LastSeen bound the entries that are not flushed yet.
	ReplayAfter, LastSeen uint64
	// CurrentGeneration is the one being written.
	CurrentGeneration uint64
	// Generations are flushed and not yet merged.
	Generations []Generation
	// Sealed: a drop or a hand-over is under way.
	Sealed bool
	// Hint is the version that the hint names; 0 when there is none.
	Hint uint64
	// Folders are the names of the generation folders that the listing shows.
	Folders []string
}

// Generation is a flushed generation as a shard manifest names it.
type Generation struct {
	Number uint64
	// Path is its folder below the shard's.
	Path string
	// PhysicalRows is -1 when not recorded.
	PhysicalRows int64
}

// Root is the generation's dataset root relative to the base table's.
func (s Shard) Root(g Generation) string { return memWALRoot + s.ID + "/" + g.Path }

// maxShardManifest bounds a shard manifest: a generation takes some 40 bytes, and
// readers refuse shards of more than a few thousand.
const maxShardManifest = 16 << 20

// Shards lists the MemWAL's shards and reads the newest manifest of each. A shard
// manifest that is no such message is a *CorruptError; whatever else goes wrong
// means that the look is not whole.
func Shards(ctx context.Context, s Store) ([]Shard, error) {
	var ids []string
	for o, err := range s.List(ctx, memWALRoot, "/") {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", memWALRoot, err)
		}
		if o.Prefix {
			ids = append(ids, path.Base(strings.TrimRight(o.Name, "/")))
		}
	}
	slices.Sort(ids)
	shards := make([]Shard, 0, len(ids))
	for _, id := range ids {
		sh, err := readShard(ctx, s, id)
		if err != nil {
			return nil, err
		}
		shards = append(shards, sh)
	}
	return shards, nil
}

func readShard(ctx context.Context, s Store, id string) (Shard, error) {
	sh := Shard{ID: id}
	dir := memWALRoot + id + "/"
	for o, err := range s.List(ctx, dir, "/") {
		if err != nil {
			return sh, fmt.Errorf("list %s: %w", dir, err)
		}
		if name := path.Base(strings.TrimRight(o.Name, "/")); o.Prefix && strings.Contains(name, "_gen_") {
			sh.Folders = append(sh.Folders, name)
		}
	}
	slices.Sort(sh.Folders)
	// A manifest may be replaced between the listing and the read; the next listing
	// shows its successor.
	for try := 0; ; try++ {
		name, version, err := newestShardManifest(ctx, s, dir+"manifest/")
		if err != nil || name == "" {
			return sh, err
		}
		b, _, err := readObject(ctx, s, name, maxShardManifest)
		if errors.Is(err, fs.ErrNotExist) && try < 2 {
			continue
		}
		if err != nil {
			return sh, fmt.Errorf("read %s: %w", name, err)
		}
		sh.ManifestName, sh.Version = name, version
		if err := sh.parse(b); err != nil {
			return sh, named(name, err)
		}
		sh.Hint = shardHint(ctx, s, dir)
		return sh, nil
	}
}

func newestShardManifest(ctx context.Context, s Store, dir string) (name string, version uint64, err error) {
	for o, err := range s.List(ctx, dir, "") {
		if err != nil {
			return "", 0, fmt.Errorf("list %s: %w", dir, err)
		}
		if v, ok := ParseReversed(path.Base(o.Name), ".binpb"); ok && v >= version {
			name, version = o.Name, v
		}
	}
	return name, version, nil
}

// ParseReversed reads a name of 64 binary digits, least significant first, and an
// extension: the version of a shard manifest or the position of an entry.
func ParseReversed(name, ext string) (v uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, ext)
	if !ok || len(digits) != 64 {
		return 0, false
	}
	b := []byte(digits)
	slices.Reverse(b)
	v, err := strconv.ParseUint(string(b), 2, 64)
	return v, err == nil
}

// Reversed is the name that ParseReversed reads.
func Reversed(v uint64, ext string) string {
	b := []byte(fmt.Sprintf("%064b", v))
	slices.Reverse(b)
	return string(b) + ext
}

func shardHint(ctx context.Context, s Store, dir string) uint64 {
	t, ok, err := hintTrace(ctx, s, dir+"manifest/version_hint.json", 0)
	if err != nil || !ok {
		return 0 // a hint is never trusted, so that its loss tells nothing
	}
	return t.Version
}

// parse reads a ShardManifest: 1 version, 3 replay_after, 4 last_seen, 6
// current_generation, 8 sstables {1 generation, 2 path, 4 physical_rows}, 15 status.
func (s *Shard) parse(b []byte) error {
	var version, status uint64
	err := fields(b, func(f wireField) error {
		switch f.num {
		case 1:
			return f.uint64(&version)
		case 3:
			return f.uint64(&s.ReplayAfter)
		case 4:
			return f.uint64(&s.LastSeen)
		case 6:
			return f.uint64(&s.CurrentGeneration)
		case 15:
			return f.uint64(&status)
		case 8:
			if err := f.is(protowire.BytesType); err != nil {
				return err
			}
			g, err := parseGeneration(f.body)
			s.Generations = append(s.Generations, g)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if version != s.Version {
		return corrupt("it says version %d and is named as %d", version, s.Version)
	}
	s.Sealed = status == 1
	slices.SortFunc(s.Generations, func(a, b Generation) int { return cmp.Compare(a.Number, b.Number) })
	return nil
}

func parseGeneration(b []byte) (Generation, error) {
	g := Generation{PhysicalRows: -1}
	err := fields(b, func(f wireField) error {
		switch f.num {
		case 1:
			return f.uint64(&g.Number)
		case 2:
			if err := f.is(protowire.BytesType); err != nil {
				return err
			}
			g.Path = string(f.body)
		case 4:
			var rows uint64
			if err := f.uint64(&rows); err != nil {
				return err
			}
			g.PhysicalRows = int64(rows)
		}
		return nil
	})
	if err == nil && (g.Path == "" || strings.Contains(g.Path, "..") || strings.HasPrefix(g.Path, "/")) {
		err = corrupt("generation %d has no folder name", g.Number)
	}
	return g, err
}
