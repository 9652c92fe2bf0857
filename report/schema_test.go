package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

// exampleQueries stand in the docs and are run by the DuckDB test. BASE is the
// reports' URI.
var exampleQueries = []struct{ what, sql string }{
	{"What is damaged now, by kind: every target as its newest look left it, so that passes are not counted again and a pass over one target hides no other:",
		`SELECT verdict, role, count(*) AS objects, count(DISTINCT (store, target)) AS targets
FROM read_parquet('BASE/report=findings/*/*/*.parquet', hive_partitioning=1)
SEMI JOIN (
    FROM read_parquet('BASE/report=targets/*/*/*.parquet', hive_partitioning=1)
    WHERE checked > 0 OR state NOT IN ('cooling_down', 'failed', 'incomplete', 'locked')
    QUALIFY row_number() OVER (PARTITION BY uri ORDER BY pass_id DESC) = 1 AND state <> 'repaired'
) USING (pass_id, store, target)
WHERE verdict NOT IN ('pending', 'superseded')
GROUP BY ALL ORDER BY objects DESC, verdict, role`},
	{"Which targets were not clean at the end of each day on which they were looked at, and how much of them was:",
		`SELECT store, target, pass_date, state, findings, rows_at_risk, round(100.0 * checked / nullif("references", 0), 2) AS percent_checked
FROM read_parquet('BASE/report=targets/*/*/*.parquet', hive_partitioning=1)
QUALIFY row_number() OVER (PARTITION BY uri, pass_date ORDER BY pass_id DESC) = 1 AND state <> 'clean'
ORDER BY ALL`},
	{"Every pass that found one object (the bloom filter on url makes this quick):",
		`SELECT pass_date, pass_id, target, verdict, reason, http_status, request_id, blocked_by
FROM read_parquet('BASE/report=findings/*/*/*.parquet', hive_partitioning=1)
WHERE url = 's3://bucket/table.lance/data/x.lance' ORDER BY pass_id`},
}

func schemaDoc() []byte {
	var b bytes.Buffer
	b.WriteString(`# Report schema

<!-- Made from the row types of package report: go test ./report -run TestSchemaDocIsCurrent -update -->

Every pass writes one Parquet file per report:

` + "```" + `
<reports>/report=<report>/pass_date=YYYY-MM-DD/pass_id=<uuid>/part-00000.parquet
<reports>/report=<report>/pass_date=YYYY-MM-DD/pass_id=<uuid>/_SUCCESS
` + "```" + `

- ` + "`_SUCCESS`" + ` is written last, after the ledger knows the pass. A folder without it is of a pass that broke off.
- ` + "`report`, `pass_date` and `pass_id`" + ` stand in the path only; ` + "`hive_partitioning=1`" + ` makes them columns. A pass id sorts by time.
- Columns carry the names of the JSON document. Unknown is null, never 0. Lists may be empty and are never null. Times are UTC.
- Columns are added, never renamed, retyped or removed; ` + "`schema_version`" + ` rises when one is added. Read files of several versions with ` + "`union_by_name=true`" + `.
- ` + "`references`" + ` is a keyword of SQL: write it in double quotes.
- Files are zstd, in row groups of 122,880, with statistics; ` + "`url`" + ` has a bloom filter.
- A pass without findings writes its empty file, so that "nothing found" and "nothing written" stay apart.

## DuckDB

Put your reports' URI for BASE. Of a target of which one damage was repaired and another was not, the newest look tells both; what is
open to the finding, deeper looks of earlier passes included, is in the ledger's view ` + "`open_findings`" + `. With
` + "`pass_date >= current_date - 30 AND (…)`" + ` in place of the inner conditions, what no pass met for that long is left out, such as the
targets of a store that was moved, and older files are not read.

`)
	for _, q := range exampleQueries {
		fmt.Fprintf(&b, "%s\n\n```sql\n%s;\n```\n\n", q.what, q.sql)
	}
	for _, kind := range Kinds() {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| column | type | null | meaning |\n|---|---|---|---|\n", kind, kindDocs[kind])
		for _, c := range Schema(kind) {
			null := "no"
			if c.Nullable {
				null = "yes"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Name, c.Type, null, strings.ReplaceAll(c.Doc, "|", `\|`))
		}
		b.WriteString("\n")
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

var kindDocs = map[string]string{
	KindFindings:        "One row per reference that is not present.",
	KindTargets:         "One row per target of the pass, clean ones included.",
	KindRepairs:         "One row per repair, planned or done. Empty for a pass that only looked.",
	KindRepairFragments: "One row per fragment of a repair.",
	KindPasses:          "One row: the pass. Members of `totals` stand under their own names, others behind the name of their object (`exit_code`, `verdicts_missing`).",
	KindReferences:      "One row per reference, present ones included. Written only with `reports.references: true`.",
}

func TestSchemaDocIsCurrent(t *testing.T) {
	t.Parallel()
	golden(t, "../docs/report-schema.md", schemaDoc())
}

// columnNames of a report without what the JSON does not hold.
func columnNames(kind string, without ...string) []string {
	var names []string
	for _, c := range Schema(kind) {
		if c.Name != "schema_version" && !slices.Contains(without, c.Name) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

func jsonNames[T any](without ...string) []string {
	var names []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" && !slices.Contains(without, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestColumnsAreTheMembersOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind      string
		got, want []string
	}{
		{KindFindings, columnNames(KindFindings), jsonNames[reconcile.Finding]()},
		{KindTargets, columnNames(KindTargets, "not_checked_counts", "not_checked_reasons"), jsonNames[reconcile.TargetResult]()},
		{KindRepairs, columnNames(KindRepairs), jsonNames[reconcile.RepairOutcome]()},
		{KindRepairFragments, columnNames(KindRepairFragments, "repair_id", "store", "target", "fragment_id"), jsonNames[reconcile.RepairFragment]("id")},
		{KindPasses, columnNames(KindPasses), flatPassNames(t)},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s: members of the document (-) and columns (+):\n%s", c.kind, d)
		}
	}
}

// flatPassNames flattens the document itself: totals without its name, other
// objects behind theirs; arrays of rows are other reports.
func flatPassNames(t *testing.T) []string {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, fullPass(t)); err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"pass_id", "targets", "findings", "repairs", "posts", "merges"} {
		delete(doc, other)
	}
	totals := doc["totals"].(map[string]any)
	delete(doc, "totals")
	var names []string
	var flatten func(prefix string, m map[string]any)
	flatten = func(prefix string, m map[string]any) {
		for k, v := range m {
			if inner, ok := v.(map[string]any); ok {
				flatten(prefix+k+"_", inner)
				continue
			}
			names = append(names, prefix+k)
		}
	}
	flatten("", doc)
	flatten("", totals)
	slices.Sort(names)
	return names
}
