package open

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:p@h/d": "postgres", "postgresql:///d": "postgres", "POSTGRES://h/d": "postgres",
		"sqlite:ledger.db": "ledger.db", "sqlite:/var/lib/ledger.db": "/var/lib/ledger.db", "sqlite:///var/lib/ledger.db": "/var/lib/ledger.db", "sqlite:a b?.db": "a b?.db",
		"": "", "ledger.db": "", "sqlite:": "", "sqlite://": "", "postgres:h/d": "", "mysql://u:hunter2@h/d": "", "/var/lib/ledger.db": "",
	} {
		kind, file, err := parse(url)
		switch {
		case want == "":
			if !errors.Is(err, ErrURL) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q: %v", url, err)
			}
		case want == "postgres":
			if err != nil || kind != "postgres" {
				t.Errorf("%q: %s, %v", url, kind, err)
			}
		case err != nil || kind != "sqlite" || file != want:
			t.Errorf("%q: %s %q, %v", url, kind, file, err)
		}
	}
}

func TestTheLedgerOfThoseThatNameNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ state, home, want string }{
		{"/state", "/home/a", "sqlite:/state/reconcile/ledger.db"},
		{"", "/home/a", "sqlite:/home/a/.local/state/reconcile/ledger.db"},
		{"relative", "/home/a", "sqlite:/home/a/.local/state/reconcile/ledger.db"},
		{"", "", ""},
	} {
		got, err := DefaultURL(func(name string) string { return map[string]string{"XDG_STATE_HOME": c.state, "HOME": c.home}[name] })
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestOpening(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "new", "ledger.db")
	m, err := Migrator(t.Context(), url, "test")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := m.Status(t.Context()); err != nil || len(st.Applied) != 0 || len(st.Pending) == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	l, err := Ledger(t.Context(), url, "test")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := m.Status(t.Context()); err != nil || len(st.Applied) == 0 || len(st.Pending) != 0 || l.Location() != url || m.Location() != url {
		t.Errorf("%+v, %v", st, err)
	}
	if err := errors.Join(l.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if _, err := Ledger(t.Context(), "postgres://postgres:hunter2@127.0.0.1:1/x", "test"); !errors.Is(err, ledger.ErrUnreachable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := Migrator(t.Context(), "nonsense", "test"); !errors.Is(err, ErrURL) {
		t.Errorf("nonsense: %v", err)
	}
}
