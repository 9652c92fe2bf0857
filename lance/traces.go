package lance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// TraceKind is what speaks of a higher version. The zero value is nothing.
type TraceKind uint8

// The kinds of traces.
const (
	HintTrace TraceKind = iota + 1
	TransactionTrace
	TagTrace
	BranchTrace
)

// String is a word for messages.
func (k TraceKind) String() string {
	if k > BranchTrace {
		k = 0
	}
	return [...]string{"", "version hint", "transaction file", "tag", "branch"}[k]
}

// Trace is a sign that a version above the newest manifest existed. The library
// opens the version before a lost one without a word, and gives its number away
// again with the next commit.
type Trace struct {
	Kind TraceKind
	// Name is the object, relative to the dataset root, or of a tag or branch its name.
	Name string
	// Version that it speaks of.
	Version uint64
	// Strong: a tag or a branch, which were made of a version that was there. A
	// hint can be stale or foreign, and a transaction file without its manifest is
	// also what a failed commit leaves, and what a commit under way begins with.
	Strong bool
	// ModTime of the object, and the store's clock when it told; zero when unknown.
	ModTime, ServerTime time.Time
}

// Traces looks for signs of a version of main above newest, in the refs, the
// version hint and the transaction files: three listings, and one read for each
// ref and for a hint. Reads that fail and damaged refs are reported in the error;
// what was found is returned all the same. A damaged hint says nothing.
func Traces(ctx context.Context, s Store, vs *VersionSet, newest *Manifest) ([]Trace, error) {
	tags, tagErr := Tags(ctx, s)
	branches, branchErr := Branches(ctx, s)
	traces := RefTraces(tags, branches, newest.Branch, newest.Version)
	more, err := FileTraces(ctx, s, vs, newest)
	return append(traces, more...), errors.Join(tagErr, branchErr, err)
}

// RefTraces picks the tags and branches that were made from a version of branch
// (empty for main) above newest.
func RefTraces(tags []Tag, branches []Branch, branch string, newest uint64) []Trace {
	var traces []Trace
	for _, t := range tags {
		if t.Branch == branch && t.Version > newest {
			traces = append(traces, Trace{Kind: TagTrace, Name: t.Name, Version: t.Version, Strong: true})
		}
	}
	for _, b := range branches {
		if b.ParentBranch == branch && b.ParentVersion > newest {
			traces = append(traces, Trace{Kind: BranchTrace, Name: b.Name, Version: b.ParentVersion, Strong: true})
		}
	}
	return traces
}

// FileTraces looks at the version hint and the transaction files of one dataset
// root, which may be a branch's. The hint is read when vs, the listing, showed it.
func FileTraces(ctx context.Context, s Store, vs *VersionSet, newest *Manifest) ([]Trace, error) {
	var traces []Trace
	var errs []error
	if vs != nil && vs.hint {
		t, ok, err := hintTrace(ctx, s, hintName, newest.Version)
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", hintName, err))
		}
		if ok {
			traces = append(traces, t)
		}
	}
	// A commit on version N first writes "N-{uuid}.txn"; the manifest that would
	// name it is N+1, and that is not there. Only the first version of a clone or
	// branch names one with its own number.
	prefix := fmt.Sprintf("%s%d-", transactionsDir, newest.Version)
	for o, err := range s.List(ctx, prefix, "") {
		if errors.Is(err, fs.ErrNotExist) {
			break // no folder
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", prefix, err))
			break
		}
		if strings.HasSuffix(o.Name, ".txn") && !o.Prefix && o.Name != transactionsDir+newest.TransactionFile {
			traces = append(traces, Trace{Kind: TransactionTrace, Name: o.Name, Version: newest.Version + 1,
				ModTime: o.ModTime, ServerTime: o.ServerTime})
		}
	}
	return traces, errors.Join(errs...)
}

func hintTrace(ctx context.Context, s Store, name string, newest uint64) (t Trace, ok bool, err error) {
	b, o, err := readObject(ctx, s, name, maxRefSize)
	if errors.Is(err, fs.ErrNotExist) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	var hint struct {
		Version *uint64 `json:"version"`
	}
	if json.Unmarshal(b, &hint) != nil || hint.Version == nil || *hint.Version <= newest {
		return t, false, nil
	}
	return Trace{Kind: HintTrace, Name: name, Version: *hint.Version, ModTime: o.ModTime, ServerTime: o.ServerTime}, true, nil
}
