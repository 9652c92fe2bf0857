// Package migrations holds the schema of the ledger as numbered steps, one folder
// for each kind of database:
//
//	postgres/NNN_name.up.sql   a step forward, run in a transaction of its own
//	postgres/NNN_name.down.sql the step back, for tests
//	postgres/roles.sql         run after every migrate up
//	sqlite/…                   the same tables and columns
//
// A step that was released is never edited: what was applied is compared with what
// is here by its checksum. Steps only add, so that an older program works on a newer
// ledger.
package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// The kinds of databases.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
)

// Step is one migration.
type Step struct {
	// Version counts from 1 without gaps.
	Version int
	Name    string
	// Up and Down are SQL texts of several statements.
	Up, Down string
	// Checksum is the SHA-256 (hex) of Up.
	Checksum string
}

// Steps lists the migrations of a kind in their order. It fails only when the files
// that were built in are not as the package says.
func Steps(kind string) ([]Step, error) {
	names, err := fs.Glob(files, kind+"/*.up.sql")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no migrations for %q", kind)
	}
	slices.Sort(names)
	steps := make([]Step, 0, len(names))
	for i, name := range names {
		base := strings.TrimSuffix(strings.TrimPrefix(name, kind+"/"), ".up.sql")
		number, rest, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 || rest == "" {
			return nil, fmt.Errorf("migration %s is not number %d", name, i+1)
		}
		up, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		down, err := files.ReadFile(kind + "/" + base + ".down.sql")
		if err != nil {
			return nil, fmt.Errorf("migration %s has no way back: %w", name, err)
		}
		sum := sha256.Sum256(up)
		steps = append(steps, Step{Version: version, Name: rest, Up: string(up), Down: string(down), Checksum: hex.EncodeToString(sum[:])})
	}
	return steps, nil
}

// Roles is the SQL text that makes the roles of a Postgres ledger and grants them
// their rights. It may be run again at any time.
func Roles() (string, error) {
	b, err := files.ReadFile(Postgres + "/roles.sql")
	if err != nil {
		return "", fmt.Errorf("read roles: %w", err)
	}
	return string(b), nil
}
