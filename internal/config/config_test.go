package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rocketkeep/reconcile/reconcile"
)

func testEnv(name string) (string, bool) {
	v, ok := map[string]string{
		"DATABASE_URL": "postgres://app:hunter2@db/reconcile?sslpassword=hunter2", "TOKEN": "Bearer hunter2",
		"EMPTY": "", "N": "64", "INJECT": "x\nrepair: {mode: full}", "BAD": "hunter2",
	}[name]
	return v, ok
}

func parse(t *testing.T, text string) (*Config, []string) {
	t.Helper()
	c, err := Parse("f", []byte(text), testEnv)
	if err == nil {
		return c, nil
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error of type %T: %v", err, err)
	}
	return c, strings.Split(err.Error(), "\n")
}

func TestEveryKeyOfTheContractParses(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, problems := parse(t, string(data))
	if problems != nil {
		t.Fatalf("problems: %q", problems)
	}
	want := Default()
	want.Database = NewSecret("postgres://app:hunter2@db/reconcile?sslpassword=hunter2")
	want.Reports.URI = "s3://ops/reconcile"
	auto := S3{PathStyle: "auto"}
	want.Stores = []Store{{
		Name: "rocketkeep", URI: "s3://rocketkeep/", Discover: "registry", Versions: reconcile.VersionsRetained, Versioning: "auto", Commit: "conditional",
		S3: auto, Peers: []Peer{{URI: "s3://rocketkeep-dr/", S3: auto}},
	}}
	want.Blobs = []Blobs{{
		Name: "attachments", URI: "s3://attachments/", Allow: []string{}, S3: auto,
		References: BlobReferences{CSV: &FileReferences{URI: "s3://ops/refs.csv", Key: "key", Size: "size", Checksum: "checksum", Record: "record_id"}},
		Peers: []Peer{
			{URI: "s3://attachments-eu/", S3: auto},
			{URL: "https://b.internal/blobs/{key}", S3: auto, Headers: map[string]Secret{"Authorization": NewSecret("Bearer hunter2")}},
		},
	}}
	want.AfterRepair = []Hook{{Post: NewSecret("http://master:8090/api/v1/tasks"), Body: `{"kind":"compact","target":{{json .Target}}}`,
		Headers: map[string]Secret{"Authorization": NewSecret("Bearer hunter2")}}}
	want.MergeWAL.Endpoints = []string{}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Secret{})); d != "" {
		t.Errorf("the defaults and the contract's annotated file differ (-want +got):\n%s", d)
	}
}

// The keys of testdata/full.yaml and of the types are the same set.
func TestFullFileNamesEveryKey(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(reflect.Type, string)
	walk = func(ty reflect.Type, path string) {
		for ty.Kind() == reflect.Pointer || ty.Kind() == reflect.Slice {
			ty = ty.Elem()
		}
		if ty.Kind() != reflect.Struct {
			return
		}
		for i := range ty.NumField() {
			key := ty.Field(i).Tag.Get("yaml")
			if key == "" || strings.HasPrefix(path, ".blobs.") && key != "uri" {
				continue // the alternatives of a one-of, tried one by one below
			}
			if !strings.Contains(string(data), key+":") {
				t.Errorf("%s.%s is not in full.yaml", path, key)
			}
			walk(ty.Field(i).Type, path+"."+key)
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

func TestAnEmptyFileIsTheDefaults(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n", "# only words\n", "{}", "stores:\nblobs:\nverify:\n", "---\n"} {
		got, problems := parse(t, text)
		if problems != nil {
			t.Errorf("%q: %q", text, problems)
			continue
		}
		if d := cmp.Diff(Default(), got, cmp.AllowUnexported(Secret{})); d != "" {
			t.Errorf("%q (-want +got):\n%s", text, d)
		}
	}
}

const blob = "blobs:\n- name: b\n  uri: s3://b/\n"

func TestMistakesAreNamedWithLineAndPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string
	}{
		{"an unknown key at the top", "stoers: []\n", []string{"f:1: stoers: unknown key; did you mean stores? (known here: after_repair, blobs, budget, cooldown, database, merge_wal, metrics, repair, reports, retention, stores, verify, wal, work)"}},
		{"an unknown key deep inside", "stores:\n- name: a\n  uri: s3://a\n  s3:\n    rigion: x\n", []string{"f:5: stores[0].s3.rigion: unknown key; did you mean region? (known here: endpoint, path_style, profile, region, role_arn)"}},
		{"a short key like none", "stores:\n- name: a\n  uri: s3://a\n  s3:\n    zz: x\n  zz: 1\n", []string{"f:5: stores[0].s3.zz: unknown key; known here: endpoint, path_style, profile, region, role_arn", "f:6: stores[0].zz: unknown key; known here: commit, discover, name, peers, s3, uri, versioning, versions, write_s3"}},
		{"an unknown key like none", "wal: {xyzzyplugh: 1}\n", []string{"f:1: wal.xyzzyplugh: unknown key; known here: warn_generations"}},
		{"a key given twice", "wal: {}\nwork: {}\nwal: {}\n", []string{"f:3: wal: given twice (first on line 1)"}},
		{"a negative duration", "verify:\n  confirm_after: -1s\n", []string{`f:2: verify.confirm_after: "-1s" is a negative duration`}},
		{"a duration without a unit", "verify: {confirm_after: 60}\n", []string{`f:1: verify.confirm_after: "60" is not a duration; write it like 90s, 15m, 1h30m, 7d or forever`}},
		{"a confirmation that never comes", "verify: {confirm_after: forever}\n", []string{"f:1: verify.confirm_after: must end: forever is not possible here"}},
		{"a size with an ambiguous unit", "work: {max: 10G}\n", []string{`f:1: work.max: "10G" is not a size; write it like 500MB, 10GiB or a number of bytes`}},
		{"a word of a closed list", "verify: {depth: deep}\n", []string{`f:1: verify.depth: unknown depth "deep"; it is one of head, footer, checksum`}},
		{"a word of a store", "stores: [{name: a, uri: s3://a, discover: maybe}]\n", []string{`f:1: stores[0].discover: "maybe" is not one of registry, list, both`}},
		{"a list where a mapping belongs", "verify: []\n", []string{"f:1: verify: must be a mapping of keys, not a list"}},
		{"a mapping where a value belongs", "verify: {depth: {a: b}}\n", []string{"f:1: verify.depth: must be one value, not a mapping"}},
		{"a value where a list belongs", "stores: s3://a\n", []string{"f:1: stores: must be a list, not a single value"}},
		{"a number that is none", "verify: {concurrency: many}\n", []string{`f:1: verify.concurrency: "many" is not a whole number`}},
		{"a number out of range", "verify: {concurrency: 0}\n", []string{"f:1: verify.concurrency: 0 is below 1"}},
		{"an unset variable", "database: ${NOT_SET}\n", []string{"f:1: database: the environment variable NOT_SET is not set"}},
		{"a notation that is not ours", "database: ${A:-b}\n", []string{`f:1: database: "${A:-b}" is not ${NAME}; $$ is one dollar sign`}},
		{"a brace that is not closed", "database: ${A\n", []string{`f:1: database: "${A" is not ${NAME}; $$ is one dollar sign`}},
		{"a scheme that is not built", "stores: [{name: a, uri: 'az://c/p'}]\n", []string{`f:1: stores[0].uri: location "az://c/p": scheme az:// (Azure) is not built in this version; s3:// and file paths are`}},
		{"a store without anything", "stores:\n- {}\n", []string{"f:2: stores[0].name: required", "f:2: stores[0].uri: required"}},
		{"two stores of one name", "stores:\n- {name: a, uri: s3://a}\n- {name: a, uri: s3://b}\n", []string{`f:3: stores[1].name: "a" is also the name of stores[0]`}},
		{"two stores of one place", "stores:\n- {name: a, uri: s3://a/x}\n- {name: b, uri: s3a://a/x/}\n", []string{"f:3: stores[1].uri: the same place as stores[0]"}},
		{"two stores of one name on two endpoints", "stores:\n- {name: a, uri: s3://a/x}\n- {name: b, uri: s3://a/x/deep, s3: {endpoint: \"http://h:9000\"}}\n",
			[]string{"f:3: stores[1].uri: on another endpoint, stores[0] covers the same names: give each a configuration of its own"}},
		{"a peer that is the store", "stores:\n- {name: a, uri: s3://a, peers: [s3://a/]}\n", []string{"f:2: stores[0].peers[0].uri: the store itself cannot be its own peer"}},
		{"S3 settings on a folder", "stores:\n- {name: a, uri: /tmp/a, s3: {region: x}}\n", []string{"f:2: stores[0].s3: belongs to s3:// places, and this one is a folder"}},
		{"no source of references", blob, []string{"f:2: blobs[0].references: needs exactly one of lance, postgres, parquet, jsonl, csv, harper; it has 0"}},
		{"two sources of references", blob + "  references:\n    csv: {uri: s3://x/y, key: k}\n    jsonl: {uri: s3://x/y, key: k}\n", []string{"f:4: blobs[0].references: needs exactly one of lance, postgres, parquet, jsonl, csv, harper; it has 2"}},
		{"references without a key column", blob + "  references:\n    csv: {uri: s3://x/y}\n", []string{"f:5: blobs[0].references.csv.key: required: the column that holds the blob's key"}},
		{"an address without a place for the key", blob + "  references: {csv: {uri: s3://x/y, key: k}}\n  peers: [{url: 'https://h/'}]\n", []string{"f:5: blobs[0].peers[0].url: must hold {key}, the place where the object's key goes"}},
		{"a peer of both kinds", blob + "  references: {csv: {uri: s3://x/y, key: k}}\n  peers: [{url: 'https://h/{key}', uri: s3://y}]\n", []string{"f:5: blobs[0].peers[0]: needs exactly one of uri and url"}},
		{"workers without the promise", "merge_wal: {endpoints: ['http://a']}\n", []string{"f:1: merge_wal.sole_scheduler: must be true when endpoints are given: two schedulers that merge the same table lose work"}},
		{"a hook's template", "after_repair: [{post: 'http://a', body: '{{json'}]\n", []string{"f:1: after_repair[0].body: body:1: unclosed action"}},
		{"a hook without an address", "after_repair: [{body: '{}'}]\n", []string{"f:1: after_repair[0].post: required"}},
		{"a hook that speaks of what there is not", "after_repair:\n- post: 'http://a/{{.Nope}}'\n  body: '{{json .Nope}}'\n", []string{`f:2: after_repair[0].post: post:1:11: executing "post" at <.Nope>: can't evaluate field Nope in type hook.Data`,
			`f:3: after_repair[0].body: body:1:7: executing "body" at <.Nope>: can't evaluate field Nope in type hook.Data`}},
		{"every part of a hook at once", "after_repair:\n- post: ftp://a\n  body: '{{'\n  headers: {Host: x}\n", []string{
			"f:2: after_repair[0].post: not an http:// or https:// URL with a host that is written out",
			"f:3: after_repair[0].body: body:1: unclosed action",
			"f:4: after_repair[0].headers.Host: is set by the program",
		}},
		{"a hook twice", "after_repair: [{post: 'http://a'}, {post: 'http://a'}]\n", []string{"f:1: after_repair[1]: the same address and body as after_repair[0]"}},
		{"a worker twice", "merge_wal: {endpoints: ['http://a', 'http://a/'], sole_scheduler: true}\n", []string{"f:1: merge_wal.endpoints[1]: the same worker as endpoints[0]"}},
		{"a worker with a query", "merge_wal: {endpoints: ['http://a?x=y'], sole_scheduler: true}\n", []string{"f:1: merge_wal.endpoints[0]: holds more than a host and a path; the rest of the address follows from the target"}},
		{"a worker with credentials", "merge_wal: {endpoints: ['http://u:p@a'], sole_scheduler: true}\n", []string{"f:1: merge_wal.endpoints[0]: holds credentials; they belong in the environment, a profile or a header with ${NAME}"}},
		{"merges that may take for ever", "merge_wal: {timeout: forever, min_generations: 0}\n", []string{"f:1: merge_wal.min_generations: 0 is below 1", "f:1: merge_wal.timeout: must be above 0s and end"}},
		{"a cooldown that shrinks", "cooldown: {base: 1h, max: 10m}\n", []string{"f:1: cooldown.max: 10m is below cooldown.base (1h)"}},
		{"text that is not YAML", "a: [\n", []string{"f:1: not YAML: did not find expected node content"}},
		{"a second document", "wal: {}\n---\nwal: {}\n", []string{"f:2: holds more than one document"}},
		{"every mistake at once, by line", "verify:\n  depth: deep\n  concurrency: x\nwork: {max: -1}\ncooldown: {after: 0}\n", []string{
			`f:2: verify.depth: unknown depth "deep"; it is one of head, footer, checksum`,
			`f:3: verify.concurrency: "x" is not a whole number`,
			`f:4: work.max: "-1" is a negative size`,
			"f:5: cooldown.after: 0 is below 1",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, got := parse(t, tt.text)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestVariablesAreExpandedInsideValuesOnly(t *testing.T) {
	t.Parallel()
	c, problems := parse(t, "stores: [{name: 'a${EMPTY}', uri: 's3://b/$$x/${N}'}]\nverify:\n  concurrency: ${N}\nwork: {dir: \"${INJECT}\"}\n")
	if problems != nil {
		t.Fatalf("problems: %q", problems)
	}
	if got, want := c.Stores[0].URI, "s3://b/$x/64"; got != want {
		t.Errorf("uri %q, want %q", got, want)
	}
	if c.Stores[0].Name != "a" || c.Verify.Concurrency != 64 {
		t.Errorf("name %q, concurrency %d", c.Stores[0].Name, c.Verify.Concurrency)
	}
	if c.Repair.Mode != "off" {
		t.Errorf("a variable added a key: repair.mode is %q", c.Repair.Mode)
	}
}

func TestSecretsNeverAppear(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"database: ${BAD}\n", "verify:\n  depth: ${BAD}\n  concurrency: ${BAD}\n  confirm_after: ${BAD}\n  max_bytes_per_second: ${BAD}\n",
		"metrics:\n  pushgateway: ${BAD}\n", "after_repair:\n- post: 'http://u:hunter2@h/'\n  headers: {X: \"${BAD}\\n\"}\n", "after_repair: [{post: 'http://h/', body: '${BAD}'}]\n", "database: 'postgres://u:hunter2%zz@h/db'\n",
		blob + "  references: {postgres: {url: '${BAD}', query: ''}}\n  peers: [{url: 'https://u:hunter2@h/'}]\n",
	} {
		_, problems := parse(t, text)
		if len(problems) == 0 {
			t.Errorf("%q: no mistake", text)
		}
		if s := strings.Join(problems, "\n"); strings.Contains(s, "hunter2") {
			t.Errorf("%q: %s", text, s)
		}
	}
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, _ := parse(t, string(data))
	js, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", *c), fmt.Sprintf("%#v", *c), string(js), fmt.Sprint(c.Database.LogValue())} {
		if strings.Contains(s, "hunter2") {
			t.Errorf("printed: %s", s)
		}
	}
	if got, want := c.Database.String(), "postgres://app:redacted@db/reconcile?redacted"; got != want {
		t.Errorf("database prints as %q, want %q", got, want)
	}
}

func TestSharedSettingsThroughAnAnchor(t *testing.T) {
	t.Parallel()
	c, problems := parse(t, "stores:\n- &a\n  name: a\n  uri: s3://a\n  versions: all\n- <<: *a\n  name: b\n  uri: s3://b\n")
	if problems != nil {
		t.Fatalf("problems: %q", problems)
	}
	if s := c.Stores[1]; s.Name != "b" || s.URI != "s3://b" || s.Versions != reconcile.VersionsAll {
		t.Errorf("second store: %+v", s)
	}
	if _, problems := parse(t, "wal: &x {warn_generations: *x}\n"); len(problems) == 0 {
		t.Error("an anchor that contains itself is no mistake")
	}
}

func TestAliasesThatMultiplyEndSoon(t *testing.T) {
	t.Parallel()
	// Nothing descends into what it does not know.
	text := blob + "  references:\n    csv:\n      uri: s3://x/y\n      key: k\n      a0: &a0 [x, x]\n"
	for i := 1; i < 30; i++ {
		text += fmt.Sprintf("      a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	if _, problems := parse(t, text); len(problems) != 30 || !strings.Contains(problems[0], "unknown key") {
		t.Errorf("%d problems, first %.200q", len(problems), problems)
	}
	text = "merge_wal:\n  endpoints: &e [" + strings.Repeat("'http://a', ", 1<<16) + "]\nafter_repair:\n" +
		strings.Repeat("- {post: 'http://a', headers: *e}\n", 4) + "stores:\n- {name: a, uri: s3://a, peers: *e}\n- {name: b, uri: s3://b, peers: *e}\n"
	if _, problems := parse(t, text); !strings.Contains(strings.Join(problems, "\n"), "too many values through aliases") {
		t.Errorf("%d problems, first %.200q", len(problems), problems)
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "forever": Forever.Std(), "0d": 0,
	} {
		got, err := ParseDuration(text)
		if err != nil || got.Std() != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "-1s", "-7d", "1d-2h", "1x", "1w", "NaNd", "300000d", "1e300d", "106751d24h", "Forever", "1d1d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Min(0).Draw(t, "d"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d prints as %q, read back as %v, %v", d, d, got, err)
		}
	})
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "10GiB": 10 << 30, "10 GiB": 10 << 30, "1Ki": 1024, "1kB": 1000, "1.5MB": 1_500_000, "8B": 8} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "B", "-1", "10G", "1e30", "NaN", "9EiB", "8388608TiB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
	}
	for _, b := range []Bytes{0, 1, 1000, 1024, 10 << 30, 3 << 40} {
		if got, err := ParseBytes(b.String()); err != nil || got != b {
			t.Errorf("%d prints as %q, read back as %d, %v", b, b, got, err)
		}
	}
}

func TestFindPrefersTheFlagThenTheVariableThenTheFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(EnvFile, "")
	want := func(flag, name string) {
		t.Helper()
		if got, err := Find(flag); err != nil || got != name {
			t.Errorf("Find(%q) = %q, %v; want %q", flag, got, err, name)
		}
	}
	want("", "")
	if err := os.WriteFile(DefaultFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want("", DefaultFile)
	t.Setenv(EnvFile, "env.yaml")
	want("", "env.yaml")
	want("flag.yaml", "flag.yaml")
}

func TestLoad(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if _, err := Load(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	if err := os.WriteFile(file, []byte("wal: {warn_generations: 9}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(file); err != nil || c.WAL.WarnGenerations != 9 {
		t.Errorf("Load = %+v, %v", c, err)
	}
	if err := os.WriteFile(file, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "4 MiB") {
		t.Errorf("a huge file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("stores: [{name: a, uri: s3://a}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data, testEnv)
		if (c == nil) == (err == nil) {
			t.Errorf("config %v and error %v", c, err)
		}
		if err != nil && !strings.Contains(string(data), "hunter2") && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret is printed: %v", err)
		}
	})
}

func TestWhatCameOutOfTheEnvironmentStandsInNoMessage(t *testing.T) {
	t.Parallel()
	const text = "stores:\n  - name: \"a ${TOKEN}\"\n    uri: s3://b/\n    s3: {endpoint: \"http://user:pw@127.0.0.1:9\"}\nrepair:\n  mode: \"${TOKEN}\"\n"
	_, err := Parse("f", []byte(text), func(string) (string, bool) { return "s3cr3t/value", true })
	if err == nil {
		t.Fatal("accepted")
	}
	if strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the value stands in %q", err)
	}
	for _, want := range []string{"repair.mode", "${TOKEN}", "stores[0].s3.endpoint: holds credentials"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}
