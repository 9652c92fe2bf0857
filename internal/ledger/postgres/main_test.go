package postgres

import (
	"testing"

	"github.com/rocketkeep/reconcile/internal/servertest"
)

func TestMain(m *testing.M) {
	defer servertest.StopPostgres()
	m.Run()
}
