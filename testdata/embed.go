// Package testdata embeds the few tables of this folder that the demo shows. The
// go tool passes over folders of this name, so the package is seen only by who
// imports it; it is here because the tables are.
package testdata

import "embed"

// Demo holds, below lance/RELEASE/SHAPE/t.lance, the tables that the demo copies
// and damages. It keeps the names that begin with an underscore.
//
//go:embed all:lance/0.4.20/plain all:lance/0.22.3/vector all:lance/0.31.0/plain
//go:embed all:lance/0.38.0/plain all:lance/0.39.0/plain all:lance/0.39.0/scalar all:lance/0.39.0/multifile all:lance/0.39.0/tag
var Demo embed.FS
