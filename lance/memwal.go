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
	"time"

	"golang.org/x/sync/errgroup"
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
	// Err says why the newest manifest is no shard manifest (a *CorruptError); what it
	// would say is then unknown.
	Err error
	// Manifests are all that the listing shows, by falling version.
	Manifests []VersionEntry
	// ReplayAfter and LastSeen bound the entries that are not flushed yet.
	ReplayAfter, LastSeen uint64
	// CurrentGeneration is the one being written.
	CurrentGeneration uint64
	// Generations are flushed and not yet merged.
	Generations []Generation
	// Sealed: a drop or a hand-over is under way.
	Sealed bool
	// Hint is the version that the hint names, and HintTime when the store last wrote
	// it; zero when there is none.
	Hint     uint64
	HintTime time.Time
	// HasLog: the listing shows entries of the log.
	HasLog bool
	// Folders are the names of the generation folders that the listing shows.
	Folders []string
}

// Leaked are the generation folders that the manifest does not name and that no
// writer can be at work on: what a merge left behind. A folder of the generation
// being written, or of a later one, is not among them.
func (s Shard) Leaked() []string {
	return slices.DeleteFunc(slices.Clone(s.Folders), func(folder string) bool {
		n, ok := generationNumber(folder)
		return !ok || s.Err != nil || s.ManifestName == "" || n >= s.CurrentGeneration || s.names(folder)
	})
}

// Unnamed are the generation folders from the one being written on that the manifest
// does not name: a flush under way or one that was broken off, or the sign of a newer
// manifest that is gone.
func (s Shard) Unnamed() []string {
	return slices.DeleteFunc(slices.Clone(s.Folders), func(folder string) bool {
		n, ok := generationNumber(folder)
		return !ok || n < s.CurrentGeneration && s.ManifestName != "" && s.Err == nil || s.names(folder)
	})
}

func (s Shard) names(folder string) bool {
	return slices.ContainsFunc(s.Generations, func(g Generation) bool { return g.Path == folder })
}

func generationNumber(folder string) (uint64, bool) {
	_, digits, ok := strings.Cut(folder, generationMark)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil
}

// generationMark stands in the name of every generation's folder, before its number.
const generationMark = "_gen_"

// ManifestPath is the name of a version of the shard's manifest below the dataset root.
func (s Shard) ManifestPath(version uint64) string {
	return memWALRoot + s.ID + "/manifest/" + Reversed(version, ".binpb")
}

// PendingEntries are the entries of the log, below the dataset root, that the manifest says
// were written and are in no generation yet; at most limit of them.
func (s Shard) PendingEntries(limit int) []string {
	var out []string
	for at := s.ReplayAfter + 1; at <= s.LastSeen && at != 0 && len(out) < limit; at++ {
		out = append(out, memWALRoot+s.ID+"/wal/"+Reversed(at, ".arrow"))
	}
	return out
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

// shardsAtOnce bounds the requests in flight for a table's shards.
const shardsAtOnce = 8

// Shards lists the MemWAL's shards and reads the newest manifest of each. A shard
// manifest that is no such message stands in the shard's Err; whatever else goes
// wrong means that the look is not whole, and is the error.
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
	shards := make([]Shard, len(ids))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(shardsAtOnce)
	for i, id := range ids {
		g.Go(func() (err error) {
			shards[i], err = readShard(gctx, s, id)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
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
		name := path.Base(strings.TrimRight(o.Name, "/"))
		switch {
		case o.Prefix && strings.Contains(name, generationMark):
			sh.Folders = append(sh.Folders, name)
		case o.Prefix && name == "wal":
			sh.HasLog = true
		}
	}
	slices.Sort(sh.Folders)
	// A manifest may be replaced between the listing and the read; the next listing
	// shows its successor.
	for try := 0; ; try++ {
		var err error
		if sh.Manifests, err = shardManifests(ctx, s, dir+"manifest/"); err != nil {
			return sh, err
		}
		sh.Hint, sh.HintTime = shardHint(ctx, s, dir)
		if len(sh.Manifests) == 0 {
			return sh, nil
		}
		err = sh.read(ctx, s, sh.Manifests[0])
		var bad *CorruptError
		switch {
		case try < 2 && (errors.Is(err, fs.ErrNotExist) || errors.As(err, &bad)):
			continue // a body cut short on the wire is no broken manifest either
		case errors.As(err, &bad):
			sh.Err = err
			return sh, nil
		}
		return sh, err
	}
}

// At is the shard as one of its older manifests says. Errors are those of Shards; a
// manifest that is no such message is a *CorruptError.
func (s Shard) At(ctx context.Context, store Store, e VersionEntry) (Shard, error) {
	old := Shard{ID: s.ID}
	err := old.read(ctx, store, e)
	return old, err
}

func (s *Shard) read(ctx context.Context, store Store, e VersionEntry) error {
	b, _, err := readObject(ctx, store, e.Name, maxShardManifest)
	if err != nil {
		return fmt.Errorf("read %s: %w", e.Name, err)
	}
	s.ManifestName, s.Version = e.Name, e.Version
	if err := s.parse(b); err != nil {
		return named(e.Name, err)
	}
	return nil
}

func shardManifests(ctx context.Context, s Store, dir string) ([]VersionEntry, error) {
	var out []VersionEntry
	for o, err := range s.List(ctx, dir, "") {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", dir, err)
		}
		if v, ok := ParseReversed(path.Base(o.Name), ".binpb"); ok {
			out = append(out, VersionEntry{Version: v, Name: o.Name, Size: o.Size, ETag: o.ETag, ModTime: o.ModTime})
		}
	}
	slices.SortFunc(out, func(a, b VersionEntry) int { return cmp.Compare(b.Version, a.Version) })
	return out, nil
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

func shardHint(ctx context.Context, s Store, dir string) (version uint64, at time.Time) {
	t, ok, err := hintTrace(ctx, s, dir+"manifest/version_hint.json", 0)
	if err != nil || !ok {
		return 0, time.Time{} // a hint is never trusted, so that its loss tells nothing
	}
	return t.Version, t.ModTime
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
