package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const harperFull = `blobs:
- name: docs
  references:
    harper:
      nodes:
      - {name: a, url: "https://a:9926", operations_url: "https://a:9925", credentials: "admin:${BAD}", role: check, concurrency: 8, max_requests_per_second: 50, control: {path: Doc, key: k.1, attribute: body}}
      - {name: b, url: "https://b:9926/base", operations_url: "https://b:9925", credentials: "${TOKEN}"}
      sets:
      - {database: data, table: Doc, path: Doc, key: id, attributes: [body], size: size, digest: sha256, algorithm: md5, page_size: 100}
      - {database: data, table: Doc, attributes: [thumb, cover]}
      relation: replicated
      grace: 1h
      timers: {connect: 1s, first_byte: 2s, stall: 3s, total: 4s, min_bytes_per_second: 1MiB}
      leave_alone: 5m
      repair: operation
      repair_wait: 10m
`

func TestHarperReferences(t *testing.T) {
	t.Parallel()
	c, problems := parse(t, harperFull)
	if problems != nil {
		t.Fatalf("problems: %q", problems)
	}
	want := &HarperReferences{
		Nodes: []HarperNode{
			{Name: "a", URL: "https://a:9926", OperationsURL: "https://a:9925", Credentials: NewSecret("admin:hunter2"), Role: "check", Concurrency: 8, MaxRequestsPerSecond: 50,
				Control: &HarperControl{Path: "Doc", Key: "k.1", Attribute: "body"}},
			{Name: "b", URL: "https://b:9926/base", OperationsURL: "https://b:9925", Credentials: NewSecret("Bearer hunter2"), Role: "both", Concurrency: 4, MaxRequestsPerSecond: 20},
		},
		Sets: []HarperSet{
			{Database: "data", Table: "Doc", Path: "Doc", Key: "id", Attributes: []string{"body"}, Size: "size", Digest: "sha256", Algorithm: "md5", PageSize: 100},
			{Database: "data", Table: "Doc", Key: "id", Attributes: []string{"thumb", "cover"}, Algorithm: "sha256", PageSize: 500},
		},
		Relation: "replicated", Grace: Duration(time.Hour), LeaveAlone: Duration(5 * time.Minute), Repair: "operation", RepairWait: Duration(10 * time.Minute),
		Timers: HarperTimers{Connect: Duration(time.Second), FirstByte: Duration(2 * time.Second), Stall: Duration(3 * time.Second), Total: Duration(4 * time.Second), MinBytesPerSecond: 1 << 20},
	}
	if d := cmp.Diff(want, c.Blobs[0].References.Harper, cmp.AllowUnexported(Secret{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	js, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprintf("%+v", *c.Blobs[0].References.Harper), string(js)} {
		if strings.Contains(s, "hunter2") {
			t.Errorf("printed: %s", s)
		}
	}
}

func TestFilesOfHarperNodes(t *testing.T) {
	t.Parallel()
	const least = "blobs: [{name: d, uri: /mnt/blobs/data, FORMATreferences: {csv: {uri: s3://x/refs.csv, key: key}}}]\n"
	for _, tt := range []struct {
		name, format, want string
		problems           []string
	}{
		{"none", "", "", nil},
		{"an empty one", `format: "", `, "", nil},
		{"harper", "format: harper, ", FormatHarper, nil},
		{"an unknown one", "format: Harper, ", "Harper", []string{`f:1: blobs[0].format: "Harper" is not harper (files as a Harper node keeps them); without a format, objects are the blobs' bytes`}},
		{"a mistyped key", "fromat: harper, ", "", []string{"f:1: blobs[0].fromat: unknown key; did you mean format? (known here: allow, format, name, peers, references, s3, uri, write_s3)"}},
	} {
		c, problems := parse(t, strings.Replace(least, "FORMAT", tt.format, 1))
		if d := cmp.Diff(tt.problems, problems); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if problems == nil && c.Blobs[0].Format != tt.want {
			t.Errorf("%s: %q", tt.name, c.Blobs[0].Format)
		}
	}
}

func TestMistakesAboutHarper(t *testing.T) {
	t.Parallel()
	const least = "blobs: [{name: d, references: {harper: {nodes: [{name: a, url: 'http://a'}], sets: [{database: data, table: Doc, attributes: [body]}]}}}]\n"
	if c, problems := parse(t, least); problems != nil || c.Blobs[0].References.Harper.Timers.FirstByte != Duration(5*time.Second) || c.Blobs[0].References.Harper.Repair != "off" {
		t.Fatalf("the least: %q", problems)
	}
	const at = "f:1: blobs[0].references.harper."
	for _, tt := range []struct {
		name, old, new string
		want           []string
	}{
		{"a place beside the nodes", "name: d,", "name: d, uri: s3://x,", []string{"f:1: blobs[0].uri: does not go with references.harper: its blobs lie on the nodes, and the nodes are each other's peers"}},
		{"peers beside the nodes", "name: d,", "name: d, peers: [s3://x],", []string{"f:1: blobs[0].peers: does not go with references.harper: its blobs lie on the nodes, and the nodes are each other's peers"}},
		{"a format of what nodes send", "name: d,", "name: d, format: harper,", []string{"f:1: blobs[0].format: does not go with references.harper: nodes send a blob's bytes, not the file around them"}},
		{"placing files", "harper: {", "harper: {repair: agent, ", []string{at + `repair: "agent" is not built in this version: a node can be asked to repair itself (operation); files are not placed and records not rewritten`}},
		{"rewriting records", "harper: {", "harper: {repair: rewrite, ", []string{at + `repair: "rewrite" is not built in this version: a node can be asked to repair itself (operation); files are not placed and records not rewritten`}},
		{"an unknown repair", "harper: {", "harper: {repair: yes, ", []string{at + `repair: "yes" is not one of off, operation`}},
		{"a repair without a port for it", "harper: {", "harper: {repair: operation, ", []string{at + "nodes[0].operations_url: required by repair: operation"}},
		{"a repair between strangers", "harper: {", "harper: {relation: independent, repair: operation, ", []string{at + "repair: nodes that were filled independently do not repair each other", at + "nodes[0].operations_url: required by repair: operation"}},
		{"an unknown relation", "harper: {", "harper: {relation: cousins, ", []string{at + `relation: "cousins" is not one of replicated, independent`}},
		{"a timer that never ends", "harper: {", "harper: {timers: {stall: forever}, ", []string{at + "timers.stall: must be above 0s and end"}},
		{"no nodes", "nodes: [{name: a, url: 'http://a'}], ", "", []string{at + "nodes: required: at least one node"}},
		{"donors only", "'http://a'}", "'http://a', role: donor}", []string{at + "nodes: all are donors: nothing is looked at"}},
		{"an unknown role", "'http://a'}", "'http://a', role: spare}", []string{at + `nodes[0].role: "spare" is not one of check, donor, both`}},
		{"two nodes of one name", "'http://a'}", "'http://a'}, {name: a, url: 'http://b'}", []string{at + `nodes[1].name: "a" is also the name of blobs[0].references.harper.nodes[0]`}},
		{"credentials in an address", "'http://a'", "'http://u:p@a'", []string{at + "nodes[0].url: holds credentials; they belong in the environment, a profile or a header with ${NAME}"}},
		{"an address with a query", "'http://a'", "'http://a/?x'", []string{at + "nodes[0].url: holds more than a host and a path"}},
		{"credentials of no form", "'http://a'}", "'http://a', credentials: abc}", []string{at + "nodes[0].credentials: neither user:password nor Bearer TOKEN"}},
		{"no pace", "'http://a'}", "'http://a', max_requests_per_second: 0, concurrency: 0}", []string{at + "nodes[0].concurrency: 0 is below 1", at + "nodes[0].max_requests_per_second: 0 is not above 0"}},
		{"a control of no set", "'http://a'}", "'http://a', control: {path: Doc, key: x, attribute: other}}", []string{at + "nodes[0].control: needs the path and attribute of one of the sets, and the key of a record"}},
		{"no attributes", "attributes: [body]", "attributes: []", []string{at + "sets[0].attributes: required: the attributes that hold blobs"}},
		{"an attribute that is none", "[body]", "[a.b]", []string{at + `sets[0].attributes[0]: "a.b" is no attribute`}},
		{"an attribute twice", "[body]", "[body, body]", []string{at + "sets[0].attributes[1]: the same as blobs[0].references.harper.sets[0].attributes[0]"}},
		{"a size for two", "[body]", "[body, thumb], size: n", []string{at + "sets[0]: size and digest belong to one attribute: write a set for each"}},
		{"an unknown digest", "[body]", "[body], algorithm: sha1", []string{at + `sets[0].algorithm: "sha1" is not one of sha256, md5, crc32c`}},
		{"a set without a database", "database: data, ", "", []string{at + "sets[0].database: required"}},
		{"an unknown key", "[body]", "[body], sizes: n", []string{at + "sets[0].sizes: unknown key; did you mean size? (known here: algorithm, attributes, database, digest, key, page_size, path, size, table)"}},
	} {
		text := strings.Replace(least, tt.old, tt.new, 1)
		if text == least {
			t.Fatalf("%s: nothing was replaced", tt.name)
		}
		_, got := parse(t, text)
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
