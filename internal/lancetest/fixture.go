package lancetest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Truth is what is true of one fixture: what the library that wrote it answered,
// what its newest manifest holds, and what lies on disk.
type Truth struct {
	// Name is RELEASE/SHAPE, for example "0.39.0/branch".
	Name string `json:"-"`
	// About says in words what the shape is.
	About string `json:"about"`
	// Root is the folder of the table inside the fixture ("t.lance"); Beside are
	// the folders of further tables (the source of a clone).
	Root   string   `json:"root"`
	Beside []string `json:"beside"`
	// Rows, Versions, Indexes, Tags and Branches are the library's own answers.
	// Versions and Indexes are nil for releases without such a call. Versions may
	// hold fewer than were ever made. System indices are not in Indexes.
	Rows     int64                  `json:"rows"`
	Versions []uint64               `json:"versions"`
	Indexes  []string               `json:"indexes"`
	Tags     map[string]uint64      `json:"tags"`
	Branches map[string]BranchTruth `json:"branches"`
	// Shards are the MemWAL shards by their newest shard manifest.
	Shards []ShardTruth `json:"shards"`
	ManifestTruth
	// BuiltAt is the absolute folder that base paths in the manifests begin with.
	BuiltAt string `json:"built_at"`
	// OnDisk has every file of the fixture with its size, by path below its folder.
	OnDisk map[string]int64 `json:"on_disk"`
}

// ManifestTruth is what one newest manifest holds.
type ManifestTruth struct {
	// Manifest is its path below the dataset root, Naming "V1" or "V2".
	Manifest    string          `json:"manifest"`
	Naming      string          `json:"naming"`
	Version     uint64          `json:"version"`
	Writer      string          `json:"writer"`
	Format      string          `json:"format"` // data format; empty in the oldest tables
	ReaderFlags uint64          `json:"readerFlags"`
	WriterFlags uint64          `json:"writerFlags"`
	Branch      string          `json:"branch"`
	Transaction string          `json:"txn"`
	Fields      []FieldTruth    `json:"fields"`
	Bases       []BaseTruth     `json:"bases"`
	Fragments   []FragmentTruth `json:"fragments"`
	Indices     []IndexTruth    `json:"indices"`
}

// FieldTruth is a field of the schema.
type FieldTruth struct {
	ID   int32  `json:"id"`
	Name string `json:"name"`
}

// BaseTruth is a base path.
type BaseTruth struct {
	ID     uint32 `json:"id"`
	Name   string `json:"name"`
	IsRoot bool   `json:"isRoot"`
	Path   string `json:"path"`
}

// FragmentTruth is a fragment; Deletion is nil without a deletion file.
type FragmentTruth struct {
	ID           uint64         `json:"id"`
	PhysicalRows uint64         `json:"physicalRows"`
	Files        []FileTruth    `json:"files"`
	Deletion     *DeletionTruth `json:"deletion"`
}

// FileTruth is a data file: Path with its folder ("data/…"), Size 0 when the
// manifest does not tell it, Version "major.minor", Base nil for the own root.
type FileTruth struct {
	Path    string  `json:"path"`
	Size    int64   `json:"size"`
	Version string  `json:"version"`
	Fields  []int32 `json:"fields"`
	Base    *uint32 `json:"base"`
}

// DeletionTruth is a deletion file: Path with its folder ("_deletions/…").
type DeletionTruth struct {
	Path string  `json:"path"`
	Rows uint64  `json:"rows"`
	Base *uint32 `json:"base"`
}

// IndexTruth is an entry of the index section. Files are empty when the manifest
// names none; their paths begin with "_indices/".
type IndexTruth struct {
	Name  string      `json:"name"`
	UUID  string      `json:"uuid"`
	Base  *uint32     `json:"base"`
	Files []FileTruth `json:"files"`
}

// BranchTruth is a branch: the library's answers and its newest manifest.
// Parent is empty for main.
type BranchTruth struct {
	Parent        string `json:"parent"`
	ParentVersion uint64 `json:"parentVersion"`
	Rows          int64  `json:"rows"`
	ManifestTruth
}

// ShardTruth is a MemWAL shard by its newest shard manifest; Dir is below the
// dataset root.
type ShardTruth struct {
	Dir         string `json:"dir"`
	Version     uint64 `json:"version"`
	Generations []struct {
		Generation uint64 `json:"generation"`
		Folder     string `json:"folder"`
	} `json:"generations"`
}

var loadTruth = sync.OnceValues(func() (map[string]Truth, error) {
	dir, err := fixtureDir()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	if err != nil {
		return nil, err
	}
	all := map[string]Truth{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("decode truth.json: %w", err)
	}
	for name, truth := range all {
		truth.Name = name
		all[name] = truth
	}
	return all, nil
})

// moduleDir is the folder of go.mod, found upward from the working directory,
// which is the package's folder in every go test run.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

func fixtureDir() (string, error) {
	dir, err := moduleDir()
	return filepath.Join(dir, "testdata", "lance"), err
}

// Fixtures yields all fixtures by name, in the order of their names. It fails the
// test when they cannot be read.
func Fixtures(t testing.TB) iter.Seq2[string, Truth] {
	t.Helper()
	all, err := loadTruth()
	if err != nil {
		t.Fatalf("read fixtures: %v", err)
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return func(yield func(string, Truth) bool) {
		for _, name := range names {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

// Fixture is the truth of one fixture, by name ("0.39.0/plain"). It fails the test
// for an unknown name.
func Fixture(t testing.TB, name string) Truth {
	t.Helper()
	all, err := loadTruth()
	if err != nil {
		t.Fatalf("read fixtures: %v", err)
	}
	truth, ok := all[name]
	if !ok {
		t.Fatalf("no fixture %q in testdata/lance/truth.json", name)
	}
	return truth
}

// FixtureRoot is the absolute dataset root of a fixture in testdata. It is for
// reading only, and base paths in its manifests point at a place that does not
// exist; see [CopyFixture].
func FixtureRoot(t testing.TB, name string) string {
	t.Helper()
	truth := Fixture(t, name)
	dir, err := fixtureDir()
	if err != nil {
		t.Fatalf("find fixtures: %v", err)
	}
	return filepath.Join(dir, filepath.FromSlash(name), truth.Root)
}

// CopyFixture copies a fixture into the folder dst (made when absent) and returns
// the root of its table, dst/t.lance; tables beside it land beside it. Base paths
// in the copied manifests, of main and of branches, then begin with dst, and the
// manifest sizes that refs record are right again. Nothing else is changed: index
// sections, inline transactions and transaction files keep the old paths.
func CopyFixture(t testing.TB, name, dst string) string {
	t.Helper()
	root, err := copyFixture(Fixture(t, name), dst)
	if err != nil {
		t.Fatalf("copy fixture %s: %v", name, err)
	}
	return root
}

func copyFixture(truth Truth, dst string) (string, error) {
	dir, err := fixtureDir()
	if err != nil {
		return "", err
	}
	if dst, err = filepath.Abs(dst); err != nil {
		return "", err
	}
	move := func(base string) string {
		if rest, ok := strings.CutPrefix(base, truth.BuiltAt); ok {
			return filepath.ToSlash(dst) + rest
		}
		return base
	}
	for _, name := range slices.Sorted(mapKeys(truth.OnDisk)) {
		raw, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(truth.Name), filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(name, ".manifest") {
			if raw, err = RewriteBases(raw, move); err != nil {
				return "", fmt.Errorf("rewrite %s: %w", name, err)
			}
		}
		if err := writeFile(filepath.Join(dst, filepath.FromSlash(name)), raw); err != nil {
			return "", err
		}
	}
	root := filepath.Join(dst, truth.Root)
	return root, fixRefSizes(root)
}

func mapKeys[K comparable, V any](m map[K]V) iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// RewriteBases gives the bytes of a manifest file whose base paths (Manifest
// field 18, path field 4) went through move. Everything in front of the manifest
// message and every other field stays as it is; a manifest without bases comes
// back unchanged.
func RewriteBases(file []byte, move func(string) string) ([]byte, error) {
	pos, msg, err := manifestMessage(file)
	if err != nil {
		return nil, err
	}
	const basePaths, basePath = 18, 4
	changed, err := mapField(msg, basePaths, func(base []byte) ([]byte, error) {
		return mapField(base, basePath, func(p []byte) ([]byte, error) { return []byte(move(string(p))), nil })
	})
	if err != nil {
		return nil, err
	}
	out := bytes.Clone(file[:pos])
	out = binary.LittleEndian.AppendUint32(out, uint32(len(changed)))
	out = append(out, changed...)
	// the message begins where it began, so the footer is right as it stands
	return append(out, file[len(file)-footerLen:]...), nil
}

// footerLen: i64 position of the manifest, u16 major, u16 minor, magic.
const footerLen = 16

// manifestMessage finds the manifest message in the bytes of a manifest file.
func manifestMessage(file []byte) (pos int, msg []byte, err error) {
	if len(file) < footerLen+4 || string(file[len(file)-4:]) != "LANC" {
		return 0, nil, errors.New("no manifest: footer missing")
	}
	at := binary.LittleEndian.Uint64(file[len(file)-footerLen:])
	end := uint64(len(file) - footerLen)
	if at+4 > end || at+4+uint64(binary.LittleEndian.Uint32(file[at:])) != end {
		return 0, nil, errors.New("no manifest: position or length is wrong")
	}
	return int(at), file[at+4 : end], nil
}

// mapField passes the value of each length-delimited field num through f and
// copies everything else byte for byte.
func mapField(msg []byte, num protowire.Number, f func([]byte) ([]byte, error)) ([]byte, error) {
	var out []byte
	for len(msg) > 0 {
		n, typ, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(n, typ, msg[tag:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		if n == num && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(msg[tag:])
			changed, err := f(v)
			if err != nil {
				return nil, err
			}
			out = appendBytes(out, num, changed)
		} else {
			out = append(out, msg[:tag+size]...)
		}
		msg = msg[tag+size:]
	}
	return out, nil
}

// fixRefSizes writes the sizes of the manifests that tags and branches point at
// into the refs below root: a moved manifest has another length.
func fixRefSizes(root string) error {
	for _, kind := range []string{"tags", "branches"} {
		dir := filepath.Join(root, "_refs", kind)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := fixRefSize(root, filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("ref %s: %w", e.Name(), err)
			}
		}
	}
	return nil
}

func fixRefSize(root, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var ref struct {
		ParentBranch, Branch   *string
		ParentVersion, Version uint64
		ManifestSize           int64
	}
	if err := json.Unmarshal(raw, &ref); err != nil {
		return err
	}
	of, version := ref.Branch, ref.Version
	if strings.HasSuffix(filepath.Dir(file), "branches") {
		of, version = ref.ParentBranch, ref.ParentVersion
	}
	dataset := root
	if of != nil {
		dataset = filepath.Join(root, "tree", filepath.FromSlash(*of))
	}
	for _, naming := range []Naming{V1, V2} {
		info, err := os.Stat(filepath.Join(dataset, filepath.FromSlash(path.Join("_versions", naming.Name(version)))))
		if err != nil {
			continue
		}
		old, now := fmt.Sprintf(`"manifestSize": %d`, ref.ManifestSize), fmt.Sprintf(`"manifestSize": %d`, info.Size())
		return os.WriteFile(file, bytes.Replace(raw, []byte(old), []byte(now), 1), 0o644)
	}
	return fmt.Errorf("version %d has no manifest", version)
}
