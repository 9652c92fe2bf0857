package explain

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

const (
	uuid = "6376100b-22cc-4e54-8cfe-1be9b01a3fd5"
	data = "000101101010001100110101c7ddb541a4be9d99d6a3cd3b5e.lance"
	at   = ", /usr/local/cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lance-io-12.0.0/src/local.rs:273:40"
)

// Texts that the library of two releases really gave for damaged tables; the
// table t.lance lay at /srv/data/exp-1.rollout.lance and in a bucket.
func TestRealTexts(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/engine-errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var texts []struct{ Release, Damage, Operation, Text string }
	if err := json.Unmarshal(b, &texts); err != nil {
		t.Fatal(err)
	}
	type want struct {
		role   reconcile.Role
		damage Damage
		named  bool // the text names the target
	}
	none := reconcile.NoRole
	wants := map[string]want{
		"data-missing": {reconcile.RoleData, DamageMissing, true}, "s3-data-missing": {reconcile.RoleData, DamageMissing, true},
		"data-empty": {none, DamageTruncated, false}, "data-half": {none, DamageTruncated, false}, "s3-data-half": {none, DamageTruncated, false},
		"del-missing": {reconcile.RoleDeletion, DamageMissing, true}, "s3-del-missing": {reconcile.RoleDeletion, DamageMissing, true},
		"del-empty": {reconcile.RoleDeletion, DamageTruncated, false}, "del-half": {reconcile.RoleDeletion, DamageTruncated, false},
		"lookup-missing": {reconcile.RoleIndex, DamageMissing, true}, "pagedata-missing": {reconcile.RoleIndex, DamageMissing, true},
		"pagedata-half": {none, DamageTruncated, false}, "lookup-empty": {none, DamageUnknown, false},
		"idx-missing": {reconcile.RoleIndex, DamageMissing, true}, "aux-missing": {reconcile.RoleIndex, DamageMissing, true}, "idx-half": {none, DamageTruncated, false},
		"fts-tokens-missing": {reconcile.RoleIndex, DamageMissing, true}, "fts-meta-missing": {reconcile.RoleIndex, DamageMissing, true},
		"manifest-empty": {reconcile.RoleManifest, DamageTruncated, false}, "manifest-half": {reconcile.RoleManifest, DamageTruncated, false},
		"versions-gone": {reconcile.RoleManifest, DamageMissing, true}, "oldmanifest-gone": {reconcile.RoleManifest, DamageMissing, true},
		"sidecar-missing": {reconcile.RoleBlobSidecar, DamageMissing, true}, "gen-data-missing": {reconcile.RoleWALGeneration, DamageMissing, true},
		"s3-denied": {none, DamageDenied, false}, "s3-no-bucket": {none, DamageUnknown, false},
	}
	seen := map[string]bool{}
	for _, tt := range texts {
		seen[tt.Damage] = true
		w, ok := wants[tt.Damage]
		if !ok {
			t.Errorf("no expectation for %s", tt.Damage)
			continue
		}
		e := Classify(tt.Text)
		// The older release words two index damages without naming a file.
		switch {
		case strings.Contains(tt.Text, "No scalar index plugin"):
			w.named = false
		case strings.Contains(tt.Text, "unsupported index version"):
			w.role = reconcile.RoleIndex
		}
		if e.Role != w.role || e.Damage != w.damage {
			t.Errorf("%s %s %s: role %q damage %q, want %q %q\n%.400s", tt.Release, tt.Damage, tt.Operation, e.Role, e.Damage, w.role, w.damage, tt.Text)
		}
		if w.named {
			name := "exp-1"
			if strings.HasPrefix(tt.Damage, "s3-") {
				name = strings.TrimPrefix(tt.Damage, "s3-")
			}
			if e.Target != name {
				t.Errorf("%s %s %s: target %q, want %q\n%.400s", tt.Release, tt.Damage, tt.Operation, e.Target, name, tt.Text)
			}
		}
		if !strings.HasPrefix(e.NextCommand, "reconcile check ") || e.Words == "" {
			t.Errorf("%s: next command %q, words %q", tt.Damage, e.NextCommand, e.Words)
		}
	}
	for k := range wants {
		if !seen[k] {
			t.Errorf("testdata has no text for %s", k)
		}
	}
}

// Texts that the library of two releases really gave for whole store trees below
// /srv/data, and below the folder data of a bucket: the ten cases that a rule by
// words gets wrong or finds nothing in. A shard manifest that is gone gives no text at all:
// the library reads what is left.
func TestRealTextsOfStores(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/store-errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var texts []struct{ Release, Damage, Table, Operation, Text string }
	if err := json.Unmarshal(b, &texts); err != nil {
		t.Fatal(err)
	}
	type want struct {
		role   reconcile.Role
		damage Damage
		path   string // a pattern of the whole path; empty for texts that name no object
	}
	none, id, file := reconcile.NoRole, `[0-9a-f-]{36}`, `[01]{24}[0-9a-f]{26}`
	wants := map[string]want{
		"data-missing":         {reconcile.RoleData, DamageMissing, `data/` + file + `\.lance`},
		"del-missing":          {reconcile.RoleDeletion, DamageMissing, `_deletions/1-\d-\d+\.arrow`},
		"gen-data-missing":     {reconcile.RoleWALGeneration, DamageMissing, `_mem_wal/` + id + `/[0-9a-f]{8}_gen_3/data/` + file + `\.lance`},
		"gen-folder-gone":      {reconcile.RoleWALGeneration, DamageMissing, `_mem_wal/` + id + `/[0-9a-f]{8}_gen_3/_versions`},
		"shard-manifest-empty": {reconcile.RoleWALManifest, DamageTruncated, ""},
		"sidecar-missing":      {reconcile.RoleBlobSidecar, DamageMissing, `data/` + file + `/[01]{32}\.blob`},
		"versions-gone":        {reconcile.RoleManifest, DamageMissing, `_versions`},
		"index-missing":        {reconcile.RoleIndex, DamageMissing, `_indices/` + id + `/page_data\.lance`},
		"lookup-missing":       {reconcile.RoleIndex, DamageMissing, `_indices/` + id + `/page_lookup\.lance`},
		"data-half":            {none, DamageTruncated, ""},
		"data-empty":           {none, DamageTruncated, ""},
		"manifest-empty":       {none, DamageTruncated, ""},
	}
	names := map[string]string{"exp-0001.rollout": "exp-0001", "gen-0000.generic": "generic:gen-0000", "bv2-0000.generic": "generic:bv2-0000",
		"dg-0000.datagen": "datagen:dg-0000", "ctx-0000": "table:ctx-0000", "_registry.rollout": "system:_registry.rollout"}
	seen := map[string]bool{}
	for _, tt := range texts {
		damage := strings.TrimPrefix(tt.Damage, "s3-")
		seen[damage] = true
		w, ok := wants[damage]
		if !ok {
			t.Errorf("no expectation for %s", tt.Damage)
			continue
		}
		e := Classify(tt.Text)
		at := tt.Release + " " + tt.Damage + " " + tt.Table + " " + tt.Operation
		if e.Role != w.role && !(w.role == none && e.Role == reconcile.RoleManifest && damage == "manifest-empty") || e.Damage != w.damage {
			t.Errorf("%s: role %q damage %q, want %q %q\n%.600s", at, e.Role, e.Damage, w.role, w.damage, tt.Text)
		}
		if ok, err := regexp.MatchString("^(?:"+w.path+")$", e.Path); err != nil || !ok {
			t.Errorf("%s: path %q, want one like %q (%v)\n%.600s", at, e.Path, w.path, err, tt.Text)
		}
		target, dataset := "", ""
		if w.path != "" {
			target, dataset = names[tt.Table], "data/"+tt.Table+".lance"
		}
		if e.Target != target || !strings.HasSuffix(e.Dataset, dataset) {
			t.Errorf("%s: target %q of %q, want %q of %q\n%.600s", at, e.Target, e.Dataset, target, dataset, tt.Text)
		}
	}
	for k := range wants {
		if !seen[k] {
			t.Errorf("testdata has no text for %s", k)
		}
	}
}

func TestTheObjectDecidesNotTheWords(t *testing.T) {
	t.Parallel()
	type want struct {
		role         string
		damage       Damage
		target, path string
	}
	scan, lance, merge := "Failed to get next batch from stream: lance error: ", "lance error: ", "Failed to execute merge insert: GenericFailure, lance error: "
	na := "LanceError(IO): Generic N/A error: Wrapped error: Not found: Wrapped error: "
	s3gone := func(p string) string {
		return "Object at location " + p + " not found: Error performing GET https://s3.eu-central-1.amazonaws.com/rk/" + p + " in 31ms - Server returned non-2xx status code: 404 Not Found: <Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"
	}
	tests := []struct {
		name, text string
		want       want
	}{
		// The table format's texts.
		{"a data file of a table", scan + "Not found: tmp/x/errbase.lance/data/" + data + at, want{"data", DamageMissing, "table:errbase", "data/" + data}},
		{"a data file, older wording", lance + "LanceError(IO): External error: Not found: tmp/x/errbase.lance/data/" + data, want{"data", DamageMissing, "table:errbase", "data/" + data}},
		{"a data file while an index is built", lance + "Query Execution error: Execution error: LanceError(IO): External error: Not found: tmp/x/errbase.lance/data/" + data, want{"data", DamageMissing, "table:errbase", "data/" + data}},
		{"a data file, wrapped twice", scan + na + "Not found: tmp/x/errbase.lance/data/" + data, want{"data", DamageMissing, "table:errbase", "data/" + data}},
		{"a data file on S3", s3gone("b/errbase.lance/data/" + data), want{"data", DamageMissing, "table:errbase", "data/" + data}},
		{"a data file with an older name", scan + "Not found: x/errbase.lance/data/" + uuid + ".lance", want{"data", DamageMissing, "table:errbase", "data/" + uuid + ".lance"}},
		{"a truncated file on disk", scan + "LanceError(IO): Generic LocalFileSystem error: failed to fill whole buffer", want{"", DamageTruncated, "", ""}},
		{"a truncated file on disk, older wording", scan + "LanceError(IO): External error: Wrapped error: LanceError(IO): Generic LocalFileSystem error: failed to fill whole buffer", want{"", DamageTruncated, "", ""}},
		{"a deletion file", scan + "Not found: a/errbase.lance/_deletions/1-5-15931974882452733220.arrow", want{"deletion", DamageMissing, "table:errbase", "_deletions/1-5-15931974882452733220.arrow"}},
		{"a dense deletion file without its table", "Not found: _deletions/0-2-17875562197259670449.bin", want{"deletion", DamageMissing, "", "_deletions/0-2-17875562197259670449.bin"}},
		{"a deletion file in a text search", "A prerequisite task failed: Not found: e.lance/_deletions/1-5-7.arrow", want{"deletion", DamageMissing, "table:e", "_deletions/1-5-7.arrow"}},
		{"a deletion file in a vector search", "Failed to calculate KNN: A prerequisite task failed: Not found: e.lance/_deletions/1-5-7.arrow", want{"deletion", DamageMissing, "table:e", "_deletions/1-5-7.arrow"}},
		{"a deletion file, old execution error", "Execution error: Not found: e.lance/_deletions/1-5-7.arrow", want{"deletion", DamageMissing, "table:e", "_deletions/1-5-7.arrow"}},
		{"an empty deletion file", "LanceError(Arrow): Io error: invalid seek to a negative or overflowing position", want{"deletion", DamageTruncated, "", ""}},
		{"a truncated deletion file", "LanceError(Arrow): Parser error: Arrow file does not contain correct footer", want{"deletion", DamageTruncated, "", ""}},
		{"an index lookup, elided path", "LanceError(IO): Generic N/A error: Wrapped error: Not found: Wrapped error: Not found: /…/page_lookup.lance", want{"index", DamageMissing, "", "…/page_lookup.lance"}},
		{"an index file, os wording", "LanceError(IO): Object at location a/e.lance/_indices/" + uuid + "/page_data.lance not found: No such file or directory (os error 2)", want{"index", DamageMissing, "table:e", "_indices/" + uuid + "/page_data.lance"}},
		{"an empty index lookup", "LanceError(IO): Generic memory error: Invalid range 0..703 for object of size 0 bytes", want{"", DamageTruncated, "", ""}},
		{"a panic", "called Option::unwrap() on a None value", want{"", DamageUnknown, "", ""}},
		{"a truncated file, old reader", "file does not appear to be a Lance file (invalid magic: [76, 65, 78, 67])", want{"", DamageTruncated, "", ""}},
		{"an empty file, old reader", `does not have sufficient data, len: 0, bytes: b""`, want{"", DamageTruncated, "", ""}},
		{"a vector index, old plugin wording", "Invalid user input: No scalar index plugin found for name vector", want{"index", DamageMissing, "", ""}},
		{"a vector index, old version wording", "LanceError(Index): unsupported index version (maybe need to upgrade your lance version)", want{"index", DamageTruncated, "", ""}},
		{"a vector index file", na + "Not found: /a/e.lance/_indices/" + uuid + "/index.idx", want{"index", DamageMissing, "table:e", "_indices/" + uuid + "/index.idx"}},
		{"an auxiliary file", "Not found: e.lance/_indices/" + uuid + "/auxiliary.idx", want{"index", DamageMissing, "table:e", "_indices/" + uuid + "/auxiliary.idx"}},
		{"a text index, elided path", "Not found: /…/tokens.lance", want{"index", DamageMissing, "", "…/tokens.lance"}},
		{"a text index partition", "Not found: e.lance/_indices/" + uuid + "/part_0_invert.lance", want{"index", DamageMissing, "table:e", "_indices/" + uuid + "/part_0_invert.lance"}},
		{"an empty manifest", lance + "LanceError(IO): Generic memory error: Invalid range 0..0 for object of size 0 bytes", want{"manifest", DamageTruncated, "", ""}},
		{"a manifest without its tail", lance + "LanceError(IO): file size is too small", want{"manifest", DamageTruncated, "", ""}},
		{"a table without versions", "Table 'errbase' was not found Caused by: Dataset at path a/errbase.lance was not found: Not found: a/errbase.lance/_versions, /rustc/x/src/c.rs:1:2", want{"manifest", DamageMissing, "table:errbase", "_versions"}},
		{"a table named only in the first part", "Table 'errbase' was not found Caused by: Dataset at path … was not found: Not found: _versions", want{"manifest", DamageMissing, "table:errbase", "_versions"}},
		{"an old version", "Dataset at path a/e.lance/_versions/8.manifest was not found: Not found: a/e.lance/_versions/8.manifest", want{"manifest", DamageMissing, "table:e", "_versions/8.manifest"}},
		{"an empty old manifest", "Generic LocalFileSystem error: Requested range was invalid", want{"", DamageTruncated, "", ""}},
		{"a transaction file", "Not found: /a/e.lance/_transactions/7-" + uuid + ".txn", want{"transaction", DamageMissing, "table:e", "_transactions/7-" + uuid + ".txn"}},
		{"a transaction file, older wording", "Object at location a/e.lance/_transactions/7-" + uuid + ".txn not found: No such file or directory (os error 2)", want{"transaction", DamageMissing, "table:e", "_transactions/7-" + uuid + ".txn"}},
		{"an empty transaction file", "Encountered internal error. Please file a bug report: Transaction message did not contain an operation", want{"transaction", DamageTruncated, "", ""}},
		{"a blob sidecar", "Not found: a/e.lance/data/" + strings.TrimSuffix(data, ".lance") + "/01000000000000000000000000000000.blob", want{"blob_sidecar", DamageMissing, "table:e", "data/" + strings.TrimSuffix(data, ".lance") + "/01000000000000000000000000000000.blob"}},
		{"data of a generation", na + "Not found: a/e.lance/_mem_wal/" + uuid + "/20a4a620_gen_1/data/" + data, want{"wal_generation", DamageMissing, "table:e", "_mem_wal/" + uuid + "/20a4a620_gen_1/data/" + data}},
		{"a whole generation", "Dataset at path a/e.lance/_mem_wal/" + uuid + "/20a4a620_gen_1 was not found", want{"wal_generation", DamageMissing, "table:e", "_mem_wal/" + uuid + "/20a4a620_gen_1"}},
		{"the key index of a generation", "Not found: a/e.lance/_mem_wal/" + uuid + "/20a4a620_gen_1/_pk_index/page_lookup.lance", want{"wal_generation", DamageMissing, "table:e", "_mem_wal/" + uuid + "/20a4a620_gen_1/_pk_index/page_lookup.lance"}},
		{"a shard manifest", "Not found: a/e.lance/_mem_wal/" + uuid + "/manifest/1000.binpb", want{"wal_manifest", DamageMissing, "table:e", "_mem_wal/" + uuid + "/manifest/1000.binpb"}},
		{"a conflict of compaction", "Retryable commit conflict for version 9: This Rewrite transaction was preempted by concurrent transaction Delete at version 9. Please retry.", want{"", DamageConflict, "", ""}},
		{"an undefined base", "base_path id 7 not found for data_file " + data, want{"data", DamageUnknown, "", data}},

		// The fleet's texts.
		{"a rollout's data file on S3", scan + na + "Not found: rocketkeep/exp-0001.rollout.lance/data/" + data, want{"data", DamageMissing, "exp-0001", "data/" + data}},
		{"a rollout's deletion file", "Not found: rocketkeep/exp-0001.rollout.lance/_deletions/1-5-7.arrow", want{"deletion", DamageMissing, "exp-0001", "_deletions/1-5-7.arrow"}},
		{"a generation is not the base table", "Not found: rk/exp-0001.rollout.lance/_mem_wal/" + uuid + "/20a4a620_gen_2/data/" + data, want{"wal_generation", DamageMissing, "exp-0001", "_mem_wal/" + uuid + "/20a4a620_gen_2/data/" + data}},
		{"a manifest below a root called data", "Not found: app/data/x.rollout.lance/_versions/12.manifest", want{"manifest", DamageMissing, "x", "_versions/12.manifest"}},
		{"a shard manifest below a root called data", "Not found: app/data/x.rollout.lance/_mem_wal/" + uuid + "/manifest/01.binpb", want{"wal_manifest", DamageMissing, "x", "_mem_wal/" + uuid + "/manifest/01.binpb"}},
		{"a dataset below a root called data", "Dataset at path app/data/x.rollout.lance was not found", want{"", DamageMissing, "x", ""}},
		{"a plain dataset below a root called data", "Dataset at path app/data/x.lance was not found", want{"", DamageMissing, "table:x", ""}},
		{"a generation's folder is gone", "Dataset at path rk/x.rollout.lance/_mem_wal/" + uuid + "/a1_gen_2 was not found: rk/x.rollout.lance/_mem_wal/" + uuid + "/a1_gen_2/_versions", want{"wal_generation", DamageMissing, "x", "_mem_wal/" + uuid + "/a1_gen_2/_versions"}},
		{"an index file is not a data file", "Not found: rk/x.generic.lance/_indices/" + uuid + "/page_data.lance", want{"index", DamageMissing, "generic:x", "_indices/" + uuid + "/page_data.lance"}},
		{"a truncated file on S3", "Invalid range 0..16781 for object of size 8390 bytes", want{"", DamageTruncated, "", ""}},
		{"the other wording", "Object at location rk/x.datagen.lance/data/" + data + " not found", want{"data", DamageMissing, "datagen:x", "data/" + data}},
		{"a registry", "Not found: rk/_registry.rollout.lance/data/" + data, want{"data", DamageMissing, "system:_registry.rollout", "data/" + data}},
		{"a name with dots", "Not found: rk/a.rollout.rollout.lance/data/" + data, want{"data", DamageMissing, "a.rollout", "data/" + data}},

		// How stores answer.
		{"403 is not missing", "Object at location rk/x.rollout.lance/data/" + data + " not found: Error performing GET http://h/rk/x - Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>", want{"data", DamageDenied, "x", "data/" + data}},
		{"a wrong key looks like a lost table", "Table 'x' was not found Caused by: Dataset at path rk/x.lance was not found: Error performing list request: Server returned non-2xx status code: 403 Forbidden: <Code>SignatureDoesNotMatch</Code>", want{"", DamageDenied, "table:x", ""}},
		{"no right on a folder", "LanceError(IO): Generic LocalFileSystem error: Unable to open file /a/e.lance/data/" + data + ": Permission denied (os error 13)", want{"data", DamageDenied, "table:e", "data/" + data}},
		{"503", "Error performing GET https://h/rk/x.rollout.lance/data/" + data + " in 1s, after 10 retries - Server returned non-2xx status code: 503 Service Unavailable: <Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>", want{"data", DamageThrottled, "x", "data/" + data}},
		{"429 of another vendor", "response error: HTTP 429 for rk/x.rollout.lance/data/" + data, want{"data", DamageThrottled, "x", "data/" + data}},
		{"500 says nothing", "Object at location rk/x.rollout.lance/data/" + data + " not found: status code: 500 Internal Server Error", want{"data", DamageUnknown, "x", "data/" + data}},
		{"a missing bucket is no missing object", "Object at location x.rollout.lance/data/" + data + " not found: Server returned non-2xx status code: 404 Not Found: <Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>", want{"data", DamageUnknown, "x", "data/" + data}},
		{"an archived object is there", "Error performing GET https://h/x.rollout.lance/data/" + data + " - status code: 403 Forbidden: <Code>InvalidObjectState</Code>", want{"data", DamageUnknown, "x", "data/" + data}},
		{"a conditional write that lost", "commit: status code: 412 Precondition Failed", want{"", DamageConflict, "", ""}},

		// Names that sound like something else.
		{"a store called throttled", "Not found: rk/SlowDown.rollout.lance/data/" + data, want{"data", DamageMissing, "SlowDown", "data/" + data}},
		{"a store called like a status", "Not found: rk/status-403.rollout.lance/_indices/" + uuid + "/index.idx", want{"index", DamageMissing, "status-403", "_indices/" + uuid + "/index.idx"}},
		{"a store called throttled, named beside its path", "compact of SlowDown failed: Table 'SlowDown.rollout' was not found Caused by: Dataset at path rk/SlowDown.rollout.lance was not found: Not found: rk/SlowDown.rollout.lance/_versions", want{"manifest", DamageMissing, "SlowDown", "_versions"}},
		{"a store really throttled beside its name", "compact of SlowDown failed: Error performing GET https://h/rk/SlowDown.rollout.lance/data/" + data + " - status code: 503 Service Unavailable: <Code>SlowDown</Code>", want{"data", DamageThrottled, "SlowDown", "data/" + data}},
		{"a table of which only the name is told", "Table 'AccessDenied.generic' was not found", want{"", DamageMissing, "generic:AccessDenied", ""}},
		{"a folder that ends in .lance", "Not found: srv/old.lance/x.rollout.lance/data/" + data, want{"data", DamageMissing, "x", "data/" + data}},
		{"a folder called tree below one that ends in .lance", "Not found: srv/old.lance/tree/x.rollout.lance/data/" + data, want{"data", DamageMissing, "x", "data/" + data}},
		{"a name with .lance in it", "Not found: rk/x.lance.bak.generic.lance/_deletions/1-5-7.bin", want{"deletion", DamageMissing, "generic:x.lance.bak", "_deletions/1-5-7.bin"}},
		{"an absolute path with .lance in the middle", "Object at location /srv/a.lance.d/data/x.datagen.lance/_indices/" + uuid + "/index.idx not found", want{"index", DamageMissing, "datagen:x", "_indices/" + uuid + "/index.idx"}},
		{"a text inside a JSON text", `{"kind":"compact","error":"lance error: Not found: rk/x.rollout.lance/_deletions/1-5-7.arrow\n\nCaused by: \"Not found: rk/x.rollout.lance/_deletions/1-5-7.arrow\""}`, want{"deletion", DamageMissing, "x", "_deletions/1-5-7.arrow"}},
		{"an error printed for programmers", `IO { source: NotFound { path: "rk/x.generic.lance/data/` + data + `", source: Os { code: 2, kind: NotFound, message: "No such file or directory" } } }`, want{"data", DamageMissing, "generic:x", "data/" + data}},
		{"another cloud", "Object at location x.rollout.lance/data/" + data + " not found: Error performing GET https://acc.dfs.core.windows.net/rk/x.rollout.lance/data/" + data + " - Server returned non-2xx status code: 404 The specified blob does not exist.: BlobNotFound", want{"data", DamageMissing, "x", "data/" + data}},
		{"a folder called AccessDenied", "Object at location AccessDenied/x.rollout.lance/data/" + data + " not found", want{"data", DamageMissing, "x", "data/" + data}},
		{"a root with a space", "Not found: my tables/x.rollout.lance/data/" + data + at, want{"data", DamageMissing, "x", "data/" + data}},
		{"a branch", "Not found: rk/x.lance/tree/dev/data/" + data, want{"data", DamageMissing, "table:x", "tree/dev/data/" + data}},
		{"a branch with a slash", "Not found: rk/x.lance/tree/feat/y/_deletions/0-3-9.arrow", want{"deletion", DamageMissing, "table:x", "tree/feat/y/_deletions/0-3-9.arrow"}},
		{"a file of a base that is no dataset", "Not found: pool/" + data, want{"data", DamageMissing, "", "pool/" + data}},
		{"causes repeated", merge + "Not found: rk/x.rollout.lance/data/" + data + at + " Caused by: Not found: rk/x.rollout.lance/data/" + data + at + " Caused by: Not found: rk/x.rollout.lance/data/" + data, want{"data", DamageMissing, "x", "data/" + data}},
		{"a text about something else", "connection reset by peer", want{"", DamageUnknown, "", ""}},
		{"a column that is not found", "Schema error: column payload not found in schema", want{"", DamageUnknown, "", ""}},
		{"nothing", "", want{"", DamageUnknown, "", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := Classify(tt.text)
			got := want{e.Role.String(), e.Damage, e.Target, e.Path}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(want{})); d != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.text, d)
			}
			if e.Words == "" || !strings.HasPrefix(e.NextCommand, "reconcile check ") {
				t.Errorf("words %q, next command %q", e.Words, e.NextCommand)
			}
		})
	}
}

func TestTheNextCommandCanBeRunWhenTheTextShowsThePlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Not found: /srv/stores/x.rollout.lance/data/" + data:                      "reconcile check /srv/stores --target x",
		"Object at location s3://rk/p/x.generic.lance/data/" + data + " not found": "reconcile check s3://rk/p --target generic:x",
		"Not found: rk/x.rollout.lance/data/" + data:                               "reconcile check URI --target x",
		"LanceError(IO): failed to fill whole buffer":                              "reconcile check URI --depth footer",
		"Not found: /srv/my stores/x.rollout.lance/_versions/3.manifest":           "reconcile check '/srv/my stores' --target x --versions all",
		"Object at location s3://rk/x.lance/tree/d/data/" + data + " not found":    "reconcile check s3://rk/ --target table:x --versions all",
		"status code: 503 Slow Down: file:///srv/x.rollout.lance/data/" + data:     "reconcile check /srv --target x --concurrency 16",
	} {
		if got := Classify(text).NextCommand; got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestWhereTheTextShowsTheDataset(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Not found: /srv/stores/x.rollout.lance/data/" + data:                          "/srv/stores/x.rollout.lance",
		"Not found: srv/stores/x.rollout.lance/data/" + data:                           "srv/stores/x.rollout.lance",
		"Object at location s3://rk/p/x.generic.lance/data/" + data + " not found":     "s3://rk/p/x.generic.lance",
		"Not found: s3://key:secret@rk/x.lance/data/" + data:                           "s3://rk/x.lance",
		"Not found: abfss://c@acc.dfs.core.windows.net/x.lance/data/" + data:           "abfss://c@acc.dfs.core.windows.net/x.lance",
		"status code: 404: https://h:9000/rk/p/x.rollout.lance/data/" + data + "?sig=": "rk/p/x.rollout.lance",
		"Not found: /…/p/x.rollout.lance/data/" + data:                                 "",
		"Not found: x.lance/tree/dev/data/" + data:                                     "x.lance",
		"Not found: data/" + data:                                                      "",
	} {
		if got := Classify(text).Dataset; got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	b, err := os.ReadFile("testdata/engine-errors.json")
	if err != nil {
		f.Fatal(err)
	}
	var texts []struct{ Text string }
	if err := json.Unmarshal(b, &texts); err != nil {
		f.Fatal(err)
	}
	for _, t := range texts {
		f.Add(t.Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := Classify(text)
		if e.Words == "" || e.NextCommand == "" {
			t.Errorf("%+v", e)
		}
	})
}

// An engine that was given a signed address may leave scheme and host out of its text.
func TestPathsWithQueriesAreUnderstoodAndTheQueryIsNotShown(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a key":                "Not found: stores/x.rollout.lance/data/1.lance?X-Amz-Signature=hunter2",
		"a key with its cause": "LanceError(IO): Not found: stores/x.rollout.lance/data/1.lance?X-Amz-Credential=hunter2/20260101/us-east-1/s3/aws4_request&X-Amz-Signature=hunter2" + at,
		"a quoted key":         `NotFound { path: "stores/x.rollout.lance/data/1.lance?sig=hunter2%3D", source: 404 }`,
		"a key in a sentence":  "Object at location stores/x.rollout.lance/data/1.lance?sv=1&sig=hunter2 not found",
		"a whole address":      "Not found: s3://stores/x.rollout.lance/data/1.lance?X-Amz-Signature=hunter2",
	} {
		e := Classify(text)
		if e.Damage != DamageMissing || e.Role != reconcile.RoleData || e.Target != "x" || e.Path != "data/1.lance" {
			t.Errorf("%s: %+v", name, e)
		}
		if kept := Classify(Redact(text)); kept.Target != e.Target || kept.Path != e.Path || kept.Damage != e.Damage {
			t.Errorf("%s: as it is kept: %+v", name, kept)
		}
		if shown := strings.Join([]string{e.Words, e.NextCommand, e.Dataset, e.Path, Redact(text)}, " "); strings.Contains(shown, "hunter2") {
			t.Errorf("%s: the query is shown: %s", name, shown)
		}
	}
	if e := Classify("Not found: stores/what?.rollout.lance/data/1.lance"); e.Target != "what?" {
		t.Errorf("a question mark in a name: %+v", e)
	}
}
