package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFolderForReplacedBytesThatIsAbsentIsWarnedOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, place, want string }{
		{"none is configured", "", ""},
		{"the folder is there", dir, ""},
		{"a bucket is not asked", "s3://quarantine/replaced", ""},
		{"the folder is absent", filepath.Join(dir, "absent"), "no such file or directory"},
		{"the folder is absent, as a URI", "file://" + filepath.Join(dir, "absent"), "no such file or directory"},
		{"it is a file", file, "is no folder"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, problems := parse(t, "repair: {quarantine: '"+tt.place+"'}\n")
			if problems != nil {
				t.Fatal(problems)
			}
			got := c.Warnings()
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || got[0].Path != "repair.quarantine" || !strings.Contains(got[0].Text, tt.want)) {
				t.Errorf("warnings %+v, want %q", got, tt.want)
			}
		})
	}
}
