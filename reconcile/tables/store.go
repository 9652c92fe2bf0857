package tables

import (
	"github.com/rocketkeep/reconcile/internal/lancestore"
	"github.com/rocketkeep/reconcile/internal/objstore"
)

// rooted is one place below which a table's files lie, as package lance sees it.
type rooted struct {
	*lancestore.Store
	r    objstore.Reader
	root objstore.Location
}

func newRooted(r objstore.Reader, root objstore.Location) *rooted {
	return &rooted{Store: lancestore.New(r, root), r: r, root: root}
}
