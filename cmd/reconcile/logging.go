package main

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logFlags shape what goes to stderr beside errors.
type logFlags struct {
	format, level string
	quiet         bool
}

func (f *logFlags) add(fs *pflag.FlagSet) {
	fs.Var(newChoice(&f.format, "text", "text", "json"), "log-format", "form of the log lines on stderr")
	fs.Var(newChoice(&f.level, "warn", "debug", "info", "warn", "error"), "log-level", "least important lines to log")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "log errors only, and show no progress")
}

func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usageError("--log-level: %w", err)
	}
	if f.quiet {
		level = slog.LevelError
	}
	opts := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}
