package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/lance"
	"github.com/rocketkeep/reconcile/lance/datafile"
	"github.com/rocketkeep/reconcile/reconcile"
)

// maxDecodedCopy is the largest copy, in bytes, of which every page is decoded. Of
// larger ones only footer, metadata and schema are read.
const maxDecodedCopy = 256 << 20

// errNeverWritten refuses files whose names a later life of the table repeats, so that
// a copy from elsewhere may be another table's: they are reported, not brought back.
var errNeverWritten = errors.New("metadata of a table is never brought back")

var (
	_ reconcile.Prover      = (*Table)(nil)
	_ reconcile.ProofTeller = (*Table)(nil)
)

// neverWritten reports whether a reference is to a file that Prove refuses.
func neverWritten(ref reconcile.Reference) bool {
	switch provenAs(ref) {
	case reconcile.RoleManifest, reconcile.RoleWALManifest, reconcile.RoleTransaction:
		return true
	}
	return false
}

// provenAs is the role by which a copy is proven.
func provenAs(ref reconcile.Reference) reconcile.Role {
	if ref.Role == reconcile.RoleWALGeneration {
		return roleInGeneration(ref.Path)
	}
	return ref.Role
}

// Provable implements reconcile.ProofTeller by the rules of Prove.
func (t *Table) Provable(ref reconcile.Reference) bool {
	if ref.Checksum != "" {
		return true
	}
	switch provenAs(ref) {
	case reconcile.RoleData:
		return ref.Size > 0 || ref.PhysicalRows > 0
	case reconcile.RoleOverlay:
		return ref.Size > 0
	case reconcile.RoleIndex:
		return ref.Size > 0 && marked(ref.Path)
	case reconcile.RoleDeletion:
		return true
	}
	return false
}

// marked reports whether an index file is of a format that tells where it ends.
func marked(name string) bool {
	ext := path.Ext(name)
	return ext == ".lance" || ext == ".idx"
}

// Prove implements reconcile.Prover, for references of a table that was opened. It is
// safe for concurrent use. It reads of the copy what it needs: the end and the metadata
// of a data or index file, all pages of one up to 256 MiB, the whole of a deletion file.
//
// What proves a copy: the recorded checksum. Else, for data files, the recorded size,
// the footer, the rows of the fragment and the fields and columns that the manifest
// says it holds (of those, size or rows must be recorded); for index files the recorded
// size and the footer; for deletion files that it decodes and deletes as many rows as
// are recorded, of those that the fragment has. Nothing proves blob sidecars, row id
// sequences, and index files without a recorded size or of another format. Manifests,
// transactions and log entries are refused.
//
// A size alone proves nothing; a page that does not decode, and anything else that
// contradicts itself or the manifest, disproves. What is only unlike the files of known
// writers (bytes between buffers, overlaps, encodings that nobody here knows) leaves a
// copy unproven.
//
// No proof but a checksum notices a value that became another legal one: a flipped bit
// in a number, a letter, a vector, or anywhere in a page of a file above 256 MiB. Files
// of some MB are nearly all values: of single bits flipped at random in them, one in
// seven is noticed. Only the digest of another copy tells the rest, so whoever has two
// should compare them before a proof that does not begin with "checksum" is believed.
func (t *Table) Prove(ctx context.Context, ref reconcile.Reference, c reconcile.Copy) (proof string, err error) {
	role := provenAs(ref)
	if neverWritten(ref) {
		return "", fmt.Errorf("prove %s: %w", ref.Path, errNeverWritten)
	}
	switch size := c.Size(); {
	case ref.Size > 0 && size != ref.Size:
		return "", fmt.Errorf("copy of %s: %d bytes, recorded are %d", ref.Path, size, ref.Size)
	case size < ref.MinSize:
		return "", fmt.Errorf("copy of %s: %d bytes, fewer than the %d that it must have", ref.Path, size, ref.MinSize)
	}
	if alg, sum := sumOf(ref, c); sum != "" {
		if !sameSum(sum, ref.Checksum) {
			return "", fmt.Errorf("copy of %s: its checksum is %s, recorded is %s", ref.Path, sum, ref.Checksum)
		}
		return "checksum " + alg, nil
	}
	switch role {
	case reconcile.RoleData, reconcile.RoleOverlay:
		proof, err = t.proveData(ctx, ref, c, role == reconcile.RoleOverlay)
	case reconcile.RoleIndex:
		proof, err = proveIndex(ctx, ref, c)
	case reconcile.RoleDeletion:
		proof, err = t.proveDeletion(ctx, ref, c)
	default:
		err = fmt.Errorf("%w: no more than a size is ever recorded of such a file", reconcile.ErrUnproven)
	}
	if err != nil {
		return "", fmt.Errorf("copy of %s: %w", ref.Path, judged(ctx, err))
	}
	return proof, nil
}

// sumOf is the digest of the copy by the algorithm that the reference records one of.
func sumOf(ref reconcile.Reference, c reconcile.Copy) (alg, sum string) {
	alg, _, ok := strings.Cut(ref.Checksum, ":")
	if !ok {
		return "", ""
	}
	return alg, c.Sum(alg)
}

// sameSum compares digests; hexadecimal digits may be written either way.
func sameSum(a, b string) bool {
	return a == b || !strings.HasPrefix(a, "crc32c:") && strings.EqualFold(a, b)
}

// judged makes an error that is no verdict about the copy (it was not read, nor was the
// metadata, or its format is not known) one that leaves it unproven.
func judged(ctx context.Context, err error) error {
	var corrupt *lance.CorruptError
	var corruptFile *datafile.CorruptError
	switch {
	case errors.Is(err, reconcile.ErrUnproven):
		return err
	case ctx.Err() == nil && (errors.As(err, &corrupt) || errors.As(err, &corruptFile)):
		return err
	}
	return fmt.Errorf("%w: %w", reconcile.ErrUnproven, err)
}

func unproven(format string, args ...any) error {
	return fmt.Errorf("%w: %s", reconcile.ErrUnproven, fmt.Sprintf(format, args...))
}

func (t *Table) proveData(ctx context.Context, ref reconcile.Reference, c reconcile.Copy, overlay bool) (string, error) {
	rec, err := t.record(ctx, ref)
	if err != nil {
		return "", err
	}
	if rec.data == nil {
		return "", unproven("the manifest records another kind of file under this name")
	}
	rows := rec.fragment.PhysicalRows
	if overlay {
		rows = 0 // it holds some cells of the fragment, as many as nobody records
	}
	check, err := checkCopy(ctx, c, func(values bool) (lance.FileCheck, error) {
		return rec.m.CheckDataFile(ctx, copyReader{c}, c.Size(), rec.data, rows, values)
	})
	switch {
	case err != nil:
		return "", err
	case check.Odd != "":
		return "", unproven("%s", check.Odd)
	case !check.Size && !check.Rows:
		return "", unproven("neither its size nor its rows are recorded")
	}
	return words(check), nil
}

// checkCopy checks a copy, its values included unless it is too large. An error of its
// values alone is ErrInside.
func checkCopy(ctx context.Context, c reconcile.Copy, check func(values bool) (lance.FileCheck, error)) (lance.FileCheck, error) {
	values := c.Size() <= maxDecodedCopy
	found, err := check(values)
	if err == nil || !values || ctx.Err() != nil {
		return found, err
	}
	if _, rest := check(false); rest == nil {
		return found, fmt.Errorf("%w: %w", reconcile.ErrInside, err)
	}
	return found, err
}

func proveIndex(ctx context.Context, ref reconcile.Reference, c reconcile.Copy) (string, error) {
	if !marked(ref.Path) {
		return "", unproven("nothing in the file tells where it ends")
	}
	check, err := checkCopy(ctx, c, func(values bool) (lance.FileCheck, error) {
		return lance.CheckIndexFile(ctx, copyReader{c}, c.Size(), ref.Size, ref.Path, values)
	})
	switch {
	case err != nil:
		return "", err
	case check.Odd != "":
		return "", unproven("%s", check.Odd)
	case !check.Size:
		return "", unproven("its size is not recorded")
	}
	return words(check), nil
}

// words are a proof, for the record.
func words(c lance.FileCheck) string {
	var out []string
	for _, w := range []struct {
		holds bool
		word  string
	}{{c.Size, "size"}, {true, "footer"}, {c.Rows, "rows"}, {c.Fields, "fields"}, {c.Values, "pages"}} {
		if w.holds {
			out = append(out, w.word)
		}
	}
	return strings.Join(out, ", ")
}

func (t *Table) proveDeletion(ctx context.Context, ref reconcile.Reference, c reconcile.Copy) (string, error) {
	if c.Size() > maxDeletionFile {
		return "", unproven("a deletion file of %d bytes is not read", c.Size())
	}
	whole, err := copyReader{c}.ReadAt(ctx, 0, c.Size())
	if err != nil {
		return "", err
	}
	deleted, err := lance.DecodeDeletionFile(path.Base(ref.Path), whole)
	if err != nil {
		return "", err
	}
	rec, err := t.record(ctx, ref)
	if err != nil {
		return "", err
	}
	if err := rec.fragment.CheckDeletions(deleted); err != nil {
		return "", err
	}
	if odd := lance.OddDeletionFile(path.Base(ref.Path), whole); odd != "" {
		return "", unproven("%s", odd)
	}
	switch counted, bounded := rec.fragment.Deletion.NumDeleted > 0, rec.fragment.PhysicalRows > 0; {
	case counted && bounded:
		return "rows deleted, offsets", nil
	case counted:
		return "rows deleted", nil
	case bounded:
		return "offsets", nil
	}
	return "", unproven("neither the rows of the fragment nor the deleted ones are recorded")
}

// copyReader reads a copy for package lance.
type copyReader struct{ c reconcile.Copy }

// ReadAt implements datafile.Reader.
func (r copyReader) ReadAt(ctx context.Context, off, n int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || off > r.c.Size()-n {
		return nil, fmt.Errorf("read %d bytes at %d of a copy of %d", n, off, r.c.Size())
	}
	b := make([]byte, n)
	if got, err := r.c.ReadAt(b, off); int64(got) < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %d bytes at %d of the copy: %w", n, off, err)
	}
	return b, nil
}

// record is what a manifest says of a file.
type record struct {
	m        *lance.Manifest
	fragment *lance.Fragment
	data     *lance.DataFile // nil for a deletion file
}

// proofs keeps the manifest that was read last for a proof: lost files come in swarms.
type proofs struct {
	mu sync.Mutex
	of objstore.Location
	m  *lance.Manifest
}

// record finds the data or deletion file of a reference in the manifest that names it:
// the version that the reference was made of before any other in scope.
func (t *Table) record(ctx context.Context, ref reconcile.Reference) (record, error) {
	if ref.Role == reconcile.RoleWALGeneration {
		v, err := t.generationView(ctx, ref)
		if err != nil {
			return record{}, err
		}
		return t.recordIn(ctx, v, ref)
	}
	for _, same := range []bool{true, false} {
		for _, v := range t.views {
			if v.lost != nil || (v.entry.Version == ref.Version) != same {
				continue
			}
			rec, err := t.recordIn(ctx, v, ref)
			if err == nil || !errors.Is(err, errNoRecord) {
				return rec, err
			}
		}
	}
	return record{}, errNoRecord
}

var errNoRecord = fmt.Errorf("%w: no version in scope names the file any more", reconcile.ErrUnproven)

func (t *Table) recordIn(ctx context.Context, v *view, ref reconcile.Reference) (record, error) {
	m, err := t.manifestForProof(ctx, v)
	if err != nil {
		return record{}, fmt.Errorf("%w: read manifest %s: %w", reconcile.ErrUnproven, v.entry.Name, err)
	}
	if err := m.CheckReaderFlags(); err != nil {
		return record{}, fmt.Errorf("%w: manifest %s: %w", reconcile.ErrUnproven, v.entry.Name, err)
	}
	at := func(name string, base uint32, hasBase bool) bool {
		root := v.store.root
		if hasBase {
			b, ok := m.Base(base)
			if !ok {
				return false
			}
			var err error
			if root, err = t.stores.Locate(b.Path); err != nil {
				return false
			}
			root.Key = strings.TrimRight(root.Key, "/")
		}
		return root.Join(name) == ref.Location
	}
	for f, err := range m.Fragments() {
		if err != nil {
			return record{}, fmt.Errorf("%w: walk manifest %s: %w", reconcile.ErrUnproven, v.entry.Name, err)
		}
		if ref.HasFragment && f.ID != ref.FragmentID {
			continue
		}
		if d := f.Deletion; d != nil && at("_deletions/"+d.Name, d.BaseID, d.HasBase) {
			return record{m: m, fragment: f}, nil
		}
		for _, list := range [][]lance.DataFile{f.Files, f.Overlays} {
			for i := range list {
				if d := &list[i]; at(m.DataPath(d), d.BaseID, d.HasBase) {
					return record{m: m, fragment: f, data: d}, nil
				}
			}
		}
	}
	return record{}, errNoRecord
}

// manifestForProof reads a view's manifest, unless it is the one that was read last.
func (t *Table) manifestForProof(ctx context.Context, v *view) (*lance.Manifest, error) {
	if v.manifest != nil {
		return v.manifest, nil
	}
	t.proofs.mu.Lock()
	defer t.proofs.mu.Unlock()
	loc := v.store.root.Join(v.entry.Name)
	if t.proofs.m != nil && t.proofs.of == loc {
		return t.proofs.m, nil
	}
	m, err := v.read(ctx)
	if err != nil {
		return nil, err
	}
	t.proofs.of, t.proofs.m = loc, m
	return m, nil
}

// generationView is the newest version of the pending generation that a reference's
// file belongs to.
func (t *Table) generationView(ctx context.Context, ref reconcile.Reference) (*view, error) {
	for _, sh := range t.wal.shards {
		for _, g := range sh.Generations {
			root := sh.Root(g)
			if !strings.HasPrefix(ref.Path, root+"/") {
				continue
			}
			s := newRooted(t.main.r, t.main.root.Join(root))
			vs, err := lance.ListVersions(ctx, s)
			if err != nil {
				return nil, fmt.Errorf("%w: list versions of %s: %w", reconcile.ErrUnproven, root, err)
			}
			return &view{store: s, entry: vs.Newest()}, nil
		}
	}
	return nil, errNoRecord
}
