package lance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
)

// Tag is a named version.
type Tag struct {
	Name string
	// Branch whose version it is; empty for main.
	Branch  string
	Version uint64
}

// Branch is a line of versions of its own.
type Branch struct {
	Name string
	// ParentBranch is empty for main.
	ParentBranch string
	// ParentVersion is what the branch was made from; its own versions go on from there.
	ParentVersion uint64
	// Root of the branch's dataset, relative to the main root: "tree/dev".
	Root string
}

const (
	tagsDir     = "_refs/tags/"
	branchesDir = "_refs/branches/"
	// maxRefSize: real ref files are a few hundred bytes; a branch adds about sixty
	// for each step of its lineage.
	maxRefSize = 1 << 20
)

// Tags reads every tag, sorted by name. The store must be that of the main root.
//
// When a ref file is damaged the error wraps its *CorruptError and the rest is
// still returned; any other error means that not all tags are known either.
func Tags(ctx context.Context, s Store) ([]Tag, error) {
	var tags []Tag
	err := refs(ctx, s, tagsDir, func(name string, b []byte) error {
		t, err := decodeTag(name, b)
		if err == nil {
			tags = append(tags, t)
		}
		return err
	})
	slices.SortFunc(tags, func(a, b Tag) int { return cmp.Compare(a.Name, b.Name) })
	return tags, err
}

// Branches reads every branch, sorted by name; store and errors as for Tags.
func Branches(ctx context.Context, s Store) ([]Branch, error) {
	var branches []Branch
	err := refs(ctx, s, branchesDir, func(name string, b []byte) error {
		r, err := decodeBranch(name, b)
		if err == nil {
			branches = append(branches, r)
		}
		return err
	})
	slices.SortFunc(branches, func(a, b Branch) int { return cmp.Compare(a.Name, b.Name) })
	return branches, err
}

// refs reads the ref files of a folder. Temporary and foreign files are passed over.
func refs(ctx context.Context, s Store, dir string, add func(name string, b []byte) error) error {
	var errs []error
	for o, err := range s.List(ctx, dir, "/") {
		if errors.Is(err, fs.ErrNotExist) {
			break // no folder, no refs
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list %s: %w", dir, err))...)
		}
		stem, ok := strings.CutSuffix(strings.TrimPrefix(o.Name, dir), ".json")
		if o.Prefix || !ok || stem == "" {
			continue
		}
		b, _, err := readObject(ctx, s, o.Name, maxRefSize)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since the listing
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", o.Name, err))
			continue
		}
		if err := add(stem, b); err != nil {
			errs = append(errs, named(o.Name, err))
		}
	}
	return errors.Join(errs...)
}

func decodeTag(stem string, b []byte) (Tag, error) {
	var t struct {
		Branch  *string `json:"branch"`
		Version *uint64 `json:"version"`
	}
	if err := decodeRef(b, &t); err != nil {
		return Tag{}, err
	}
	if t.Version == nil {
		return Tag{}, corrupt("it names no version")
	}
	tag := Tag{Name: refName(stem), Version: *t.Version}
	if t.Branch != nil {
		tag.Branch = mainIsEmpty(*t.Branch)
	}
	return tag, nil
}

func decodeBranch(stem string, b []byte) (Branch, error) {
	var r struct {
		ParentBranch  *string `json:"parentBranch"`
		ParentVersion *uint64 `json:"parentVersion"`
	}
	if err := decodeRef(b, &r); err != nil {
		return Branch{}, err
	}
	if r.ParentVersion == nil {
		return Branch{}, corrupt("it names no parent version")
	}
	name := refName(stem)
	if checkPath([]byte(name)) != nil {
		return Branch{}, corrupt("%.80q is no name of a branch", name)
	}
	branch := Branch{Name: name, ParentVersion: *r.ParentVersion, Root: "tree/" + name}
	if r.ParentBranch != nil {
		branch.ParentBranch = mainIsEmpty(*r.ParentBranch)
	}
	return branch, nil
}

func decodeRef(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return corrupt("%v", err)
	}
	return nil
}

// mainIsEmpty folds the one name that stands for no branch.
func mainIsEmpty(branch string) string {
	if branch == "main" {
		return ""
	}
	return branch
}

// refName undoes the escaping of "/" in a file name. Names of refs hold letters,
// digits, ".", "-", "_" and "/" only, so that a store or client that escaped the
// "%" once more is undone as well.
func refName(stem string) string {
	for range 2 {
		plain, err := url.PathUnescape(stem)
		if err != nil {
			break
		}
		stem = plain
	}
	return stem
}
