package report

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Column is one column of a Parquet report.
type Column struct {
	Name string
	// Type is the SQL type that DuckDB reads it as: VARCHAR, BIGINT, VARCHAR[], …
	Type string
	// Nullable columns hold null for "unknown" or "does not apply"; Doc says which.
	// The lists of other columns may be empty.
	Nullable bool
	// Doc is its line of the data dictionary.
	Doc string
}

// Kinds lists the reports in the order of the documentation.
func Kinds() []string {
	return []string{KindFindings, KindTargets, KindRepairs, KindRepairFragments, KindPasses, KindReferences}
}

// Schema lists the columns of a report in file order; nil for an unknown kind.
func Schema(kind string) []Column {
	switch kind {
	case KindFindings:
		return columns[findingRow]()
	case KindReferences:
		return columns[referenceRow]()
	case KindTargets:
		return columns[targetRow]()
	case KindRepairs:
		return columns[repairRow]()
	case KindRepairFragments:
		return columns[repairFragmentRow]()
	case KindPasses:
		return columns[passRow]()
	}
	return nil
}

func columns[T any]() []Column {
	var zero T
	docs := map[string]string{}
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		docs[name] = f.Tag.Get("doc")
	}
	var cs []Column
	for _, f := range parquet.SchemaOf(zero).Fields() {
		cs = append(cs, Column{Name: f.Name(), Type: sqlType(f), Nullable: f.Optional(), Doc: docs[f.Name()]})
	}
	return cs
}

// sqlType names the type as DuckDB does.
func sqlType(n parquet.Node) string {
	if !n.Leaf() {
		// LIST: a repeated group "list" of one field "element".
		return sqlType(n.Fields()[0].Fields()[0]) + "[]"
	}
	if logical := n.Type().LogicalType(); logical != nil {
		switch logical.Value.(type) {
		case *format.StringType:
			return "VARCHAR"
		case *format.TimestampType:
			return "TIMESTAMP WITH TIME ZONE"
		}
	}
	switch kind := n.Type().Kind(); kind {
	case parquet.Int64:
		return "BIGINT"
	case parquet.Int32:
		return "INTEGER"
	case parquet.Double:
		return "DOUBLE"
	default:
		return fmt.Sprintf("%s?", kind)
	}
}
