package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Bytes of a folder, which keeps no versions, are replaced only where they can be kept:
// a folder for them that is absent is told at the beginning, and made by nobody.
func TestAnAbsentFolderForReplacedBytesIsToldAndNothingIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("att/a.bin", "ab")
	write("peer/a.bin", "abc")
	write("refs.csv", "key,size,checksum\na.bin,3,sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n")
	write("reconcile.yaml", fmt.Sprintf(`database: "sqlite:%[1]s/ledger.db"
work: {dir: "%[1]s/work"}
blobs:
  - {name: att, uri: "%[1]s/att", peers: ["%[1]s/peer"], references: {csv: {uri: "%[1]s/refs.csv", key: key, size: size, checksum: checksum}}}
verify: {confirm_after: 1s, pending_max_age: 0s}
repair: {mode: restore, quarantine: "%[1]s/kept"}
`, dir))
	holds := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(at("att/a.bin")); err != nil || string(got) != want {
			t.Errorf("the object holds %q, want %q (%v)", got, want, err)
		}
	}
	validate := func() result { return run(t, nil, "config", "validate", "--config", at("reconcile.yaml")).exit(0) }
	pass := func() result { return run(t, nil, "run", "--output", "json", "--config", at("reconcile.yaml")) }

	r := validate()
	r.says(r.stderr, "repair.quarantine: folder "+at("kept")+": no such file or directory")
	r = pass()
	r.says(r.stderr, "level=WARN", "repair.quarantine", at("kept")+": no such file or directory")
	r.says(r.stdout, "replace_would_lose_bytes")
	holds("ab")

	if err := os.Mkdir(at("kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r = validate(); r.stderr != "" {
		t.Errorf("warned of a folder that is there: %s", r.stderr)
	}
	if r = pass().exit(0); strings.Contains(r.stderr, "no such file") {
		t.Errorf("warned of a folder that is there: %s", r.stderr)
	}
	holds("abc")
	if kept, err := filepath.Glob(at("kept/*/*")); err != nil || len(kept) != 1 {
		t.Errorf("kept %v (%v)", kept, err)
	}
}
