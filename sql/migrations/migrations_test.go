package migrations

import (
	"io/fs"
	"strings"
	"testing"
)

func TestEveryStepHasItsWayBackAndItsLikeInTheOtherDatabase(t *testing.T) {
	t.Parallel()
	pg, err := Steps(Postgres)
	if err != nil {
		t.Fatal(err)
	}
	lite, err := Steps(SQLite)
	if err != nil {
		t.Fatal(err)
	}
	if len(pg) != len(lite) {
		t.Fatalf("%d steps for Postgres, %d for SQLite", len(pg), len(lite))
	}
	for i := range pg {
		if pg[i].Version != i+1 || pg[i].Name != lite[i].Name || pg[i].Version != lite[i].Version {
			t.Errorf("step %d: %s, %s", i+1, pg[i].Name, lite[i].Name)
		}
		for _, s := range []Step{pg[i], lite[i]} {
			if s.Up == "" || s.Down == "" || len(s.Checksum) != 64 {
				t.Errorf("step %d %s is not whole", s.Version, s.Name)
			}
		}
	}
	if pg[0].Checksum == pg[1].Checksum || pg[0].Checksum == lite[0].Checksum {
		t.Error("checksums do not tell steps apart")
	}
	// Nothing lies beside the steps that nobody runs.
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(name, ".up.sql") && !strings.HasSuffix(name, ".down.sql") && name != "postgres/roles.sql" {
			t.Errorf("%s is no step", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Steps("mysql"); err == nil {
		t.Error("steps of a database that is not supported")
	}
	if text, err := Roles(); err != nil || !strings.Contains(text, "reconcile_intake") {
		t.Errorf("roles: %v", err)
	}
}
