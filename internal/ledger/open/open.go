// Package open chooses the ledger that a URL names.
package open

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/postgres"
	"github.com/rocketkeep/reconcile/internal/ledger/sqlite"
)

// ErrURL: the text names no ledger. It is a mistake of configuration.
var ErrURL = errors.New("a ledger is named postgres://… or sqlite:FILE")

// Ledger opens the ledger of a URL:
//
//	postgres://user:password@host:5432/name (or postgresql://), whose schema must be up to date
//	sqlite:FILE, which is made and brought up to date when needed
//
// toolVersion is written beside schema steps that are applied. It connects, and fails
// with ErrURL, ErrUnreachable, ErrNotMigrated or ErrPooler; the URL, which may hold a
// password, stands in no error.
func Ledger(ctx context.Context, url, toolVersion string) (ledger.Ledger, error) {
	kind, file, err := parse(url)
	if err != nil {
		return nil, err
	}
	if kind == "sqlite" {
		return sqlite.Open(ctx, file, toolVersion)
	}
	return postgres.Open(ctx, url)
}

// Migrator opens a database of a URL to bring its schema up to date.
func Migrator(ctx context.Context, url, toolVersion string) (ledger.Migrator, error) {
	kind, file, err := parse(url)
	if err != nil {
		return nil, err
	}
	if kind == "sqlite" {
		return sqlite.NewMigrator(ctx, file, toolVersion)
	}
	return postgres.NewMigrator(ctx, url, toolVersion)
}

// DefaultURL is the ledger of runs that name none:
// $XDG_STATE_HOME/reconcile/ledger.db, else below ~/.local/state. getenv is os.Getenv.
func DefaultURL(getenv func(string) string) (string, error) {
	state := getenv("XDG_STATE_HOME")
	// The specification says that a relative path is to be ignored.
	if !filepath.IsAbs(state) {
		home := getenv("HOME")
		if home == "" {
			return "", fmt.Errorf("no place for a ledger: neither XDG_STATE_HOME nor HOME is set; %w", ErrURL)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return "sqlite:" + filepath.Join(state, "reconcile", "ledger.db"), nil
}

func parse(url string) (kind, file string, err error) {
	scheme, rest, ok := strings.Cut(url, ":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		if ok && strings.HasPrefix(rest, "//") {
			return "postgres", "", nil
		}
	case "sqlite":
		file = rest
		if abs, ok := strings.CutPrefix(rest, "//"); ok {
			file = abs // sqlite:///path and sqlite://path
		}
		if file != "" {
			return "sqlite", file, nil
		}
	}
	// The text is not quoted: whatever it is, it may hold a password.
	return "", "", ErrURL
}
