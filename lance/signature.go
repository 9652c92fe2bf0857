package lance

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Files of indices by kind, as the npm releases 0.4.20, 0.10.0, 0.15.0 and 0.22.3
// (Lance 0.10.18, 0.17, 0.22, 0.39), which do not record them, write them.
var (
	btreeFiles    = []string{"page_data.lance", "page_lookup.lance"}
	bitmapFiles   = []string{"bitmap_page_lookup.lance"} // label list indices too
	invertedFiles = []string{"docs.lance", "invert.lance", "tokens.lance"}
)

const (
	vectorIndex     = "index.idx"
	vectorAuxiliary = "auxiliary.idx"
	textMetadata    = "metadata.lance"
)

// Signature tells which files, by name below its folder, an index whose files are
// not recorded certainly has: from the type of its details, else from the type of
// its field, else from what a listing of its folder shows. known is false when
// nothing certain can be said; an empty listing by itself proves nothing.
//
// An index may have more files than names alone can tell; FindFiles also looks
// into those that settle it.
func (x Index) Signature(listed []string) (must []string, known bool) {
	switch strings.ToLower(x.DetailsType) {
	case "btreeindexdetails":
		return btreeFiles, true
	case "bitmapindexdetails", "labellistindexdetails":
		return bitmapFiles, true
	case "vectorindexdetails":
		return x.vectorFiles(listed), true
	case "invertedindexdetails":
		return x.textFiles(listed)
	case "":
		return x.guess(listed)
	}
	if x.Name == MemWALIndex || x.Name == FragReuseIndex {
		return nil, true // Files has what they name
	}
	return nil, false
}

// rebuilt reports whether the entry was made by a writer that numbers its index
// formats: from Lance 0.39 on. Later commits by such writers give older entries
// the number 0.
func (x Index) rebuilt() bool { return x.Version != nil && *x.Version >= 1 }

// vectorFiles: every vector index has one file; the second came with HNSW, and
// with Lance 0.39 for all of them.
func (x Index) vectorFiles(listed []string) []string {
	if x.rebuilt() || slices.Contains(listed, vectorAuxiliary) {
		return []string{vectorAuxiliary, vectorIndex}
	}
	return []string{vectorIndex}
}

// textFiles: full-text indices had three files up to Lance 0.22; later they have a
// list of partitions, and three files for each.
func (x Index) textFiles(listed []string) (must []string, known bool) {
	parts := map[string]struct{}{}
	partitioned, old := x.rebuilt() || slices.Contains(listed, textMetadata), false
	for _, name := range listed {
		old = old || slices.Contains(invertedFiles, name)
		if id, ok := partitionOf(name); ok {
			partitioned = true
			parts[id] = struct{}{}
		}
	}
	switch {
	case partitioned:
		must = []string{textMetadata}
		for id := range parts {
			must = append(must, partitionFiles(id)...)
		}
		slices.Sort(must)
		return must, true
	case old:
		return invertedFiles, true
	}
	return nil, false
}

func partitionFiles(id string) []string {
	files := make([]string, len(invertedFiles))
	for i, f := range invertedFiles {
		files[i] = "part_" + id + "_" + f
	}
	return files
}

// partitionOf reads the partition's number out of the name of one of its files.
func partitionOf(name string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(name, "part_")
	if !ok {
		return "", false
	}
	id, file, ok := strings.Cut(rest, "_")
	if _, err := strconv.ParseUint(id, 10, 64); err != nil || !ok || !slices.Contains(invertedFiles, file) {
		return "", false
	}
	return id, true
}

// guess is for entries without details, up to Lance 0.19: there, a fixed size list
// could only have a vector index, and a list only a label list index; any other
// field could have several kinds, which the names in the folder tell apart.
func (x Index) guess(listed []string) (must []string, known bool) {
	switch {
	case strings.HasPrefix(x.fieldType, "fixed_size_list:"):
		return x.vectorFiles(listed), true
	case strings.HasPrefix(x.fieldType, "list"), strings.HasPrefix(x.fieldType, "large_list"):
		return bitmapFiles, true
	}
	for _, kind := range [][]string{btreeFiles, bitmapFiles} {
		for _, name := range kind {
			if slices.Contains(listed, name) {
				return kind, true
			}
		}
	}
	return x.textFiles(listed)
}

// FindFiles tells, for an index whose files are not recorded, which files (by name
// below its folder, sorted) it certainly has. It lists the folder dir ("…/{uuid}/",
// in s, with a trailing slash), and where names leave it open reads the footer of
// the vector index (whose format tells whether there is a second file) or the list
// of partitions of a full-text index: one listing and at most one read. listed
// counts what the folder holds.
//
// known is false when nothing certain can be said. An error means that looking
// failed. Files that are found damaged on the way just tell nothing.
func (x Index) FindFiles(ctx context.Context, s Store, dir string) (must []string, listed int, known bool, err error) {
	var names []string
	for o, err := range s.List(ctx, dir, "") {
		if errors.Is(err, fs.ErrNotExist) {
			break // no folder
		}
		if err != nil {
			return nil, 0, false, fmt.Errorf("list %s: %w", dir, err)
		}
		if name, ok := strings.CutPrefix(o.Name, dir); ok && !o.Prefix {
			names = append(names, name)
		}
	}
	must, known = x.Signature(names)
	var more []string
	switch {
	case slices.Equal(must, []string{vectorIndex}) && slices.Contains(names, vectorIndex):
		more, err = auxiliaryOf(ctx, s, dir+vectorIndex)
	case slices.Contains(must, textMetadata) && slices.Contains(names, textMetadata):
		more, err = partitionsOf(ctx, s, dir+textMetadata)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // gone since the listing
	}
	if err != nil {
		return nil, 0, false, err
	}
	must = slices.Concat(must, more)
	slices.Sort(must)
	return slices.Compact(must), len(names), known, nil
}

// auxiliaryOf tells from the format of a vector index's first file whether there
// is a second: the single-file ones are of format 0.1, all others of 2.0 and later.
func auxiliaryOf(ctx context.Context, s Store, name string) (more []string, err error) {
	r, o, err := s.Get(ctx, name, -FooterLen, -1)
	if err != nil {
		return nil, fmt.Errorf("read end of %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	tail, err := io.ReadAll(io.LimitReader(r, FooterLen+1))
	if err != nil {
		return nil, fmt.Errorf("read end of %s: %w", name, err)
	}
	size := max(o.Size, int64(len(tail)))
	if CheckLanceFooter(tail, size) != nil {
		return nil, nil
	}
	n := len(tail)
	if major, minor := binary.LittleEndian.Uint16(tail[n-8:]), binary.LittleEndian.Uint16(tail[n-6:]); major == 0 && minor < 3 {
		return nil, nil
	}
	return []string{vectorAuxiliary}, nil
}

// maxTextMetadata: the list of partitions and the tokenizer's settings are about a
// kilobyte; one with user-given stop words may be larger.
const maxTextMetadata = 4 << 20

// partitionsOf reads the list of partitions out of a full-text index's metadata
// file, an otherwise empty Lance file whose schema carries it.
func partitionsOf(ctx context.Context, s Store, name string) ([]string, error) {
	b, o, err := readObject(ctx, s, name, maxTextMetadata)
	if o.Size > maxTextMetadata {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	var ids []uint64
	if json.Unmarshal(schemaMetadata(b, "partitions"), &ids) != nil {
		return nil, nil
	}
	var more []string
	for _, id := range ids {
		more = append(more, partitionFiles(strconv.FormatUint(id, 10))...)
	}
	return more, nil
}

// schemaMetadata finds a key in the schema of a whole Lance file of format 2.x:
// global buffer 0 is a FileDescriptor{1: Schema{5: map<string, bytes>}}. It is nil
// when there is none, or the file is not whole.
func schemaMetadata(file []byte, key string) []byte {
	if CheckLanceFooter(file, int64(len(file))) != nil || len(file) < minLanceFile {
		return nil
	}
	foot := file[len(file)-40:]
	// CheckLanceFooter has held the table and its entries against the file, but a
	// file of format 0.1 passes it too, and has neither.
	table := binary.LittleEndian.Uint64(foot[16:])
	if table > uint64(len(file)-minLanceFile) {
		return nil
	}
	at, size := binary.LittleEndian.Uint64(file[table:]), binary.LittleEndian.Uint64(file[table+8:])
	if at > uint64(len(file)) || size > uint64(len(file))-at {
		return nil
	}
	for schema, err := range messages(file[at:at+size], 1) {
		if err != nil {
			return nil
		}
		for entry, err := range messages(schema, 5) {
			if err != nil {
				return nil
			}
			k, v, err := wireField{typ: protowire.BytesType, body: entry}.mapEntry()
			if err == nil && bytes.Equal(k, []byte(key)) {
				return v
			}
		}
	}
	return nil
}
