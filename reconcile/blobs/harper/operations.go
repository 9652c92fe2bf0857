package harper

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// maxStatus bounds what an operation answers.
const maxStatus = 8 << 20

// operation asks a node's operations port. The error never quotes an answer.
func (n *node) operation(ctx context.Context, request map[string]string, into any) error {
	name := request["operation"]
	if n.ops == "" {
		return fmt.Errorf("operation %s: node %s has no operations_url", name, n.cfg.Name)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("operation %s: %w", name, err)
	}
	req, err := http.NewRequest(http.MethodPost, n.ops+"/", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("operation %s: %w", name, err)
	}
	req.Header.Set("Content-Type", "application/json")
	r, err := n.do(ctx, req, how{fresh: true})
	if err != nil {
		return fmt.Errorf("operation %s: %w", name, err)
	}
	defer r.body.Close()
	if r.status != http.StatusOK {
		return &statusError{node: n.cfg.Name, what: "operation " + name, status: r.status}
	}
	data, err := sniff(r.body, maxStatus)
	if err == nil && json.Unmarshal(data, into) != nil {
		err = errors.New("the answer is no JSON of the form that is known")
	}
	if err != nil {
		return fmt.Errorf("operation %s of node %s: %w", name, n.cfg.Name, err)
	}
	return nil
}

// clusterStatus is the part of the answer that is used.
type clusterStatus struct {
	Connections []struct {
		Sockets []struct {
			// BlobFailures counts events since the node began, absent when zero. It says
			// when to look, not what is wrong: it never falls after a repair.
			BlobFailures int64 `json:"blobReplicationFailures"`
		} `json:"database_sockets"`
	} `json:"connections"`
}

// sickestFirst are the checked nodes, those first whose transfers of blobs failed most
// often. A node that does not tell (no rights, a core without replication) counts none.
func (c *Cluster) sickestFirst(ctx context.Context) []*node {
	nodes := c.checked()
	failures := make([]int64, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		if n.ops == "" || len(nodes) < 2 {
			continue
		}
		wg.Go(func() {
			var s clusterStatus
			if err := n.operation(ctx, map[string]string{"operation": "cluster_status"}, &s); err != nil {
				c.cfg.Logger.Info("a node tells no cluster status", "node", n.cfg.Name, "err", err)
				return
			}
			for _, conn := range s.Connections {
				for _, sock := range conn.Sockets {
					failures[i] += sock.BlobFailures
				}
			}
		})
	}
	wg.Wait()
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(failures[b], failures[a]) })
	out := make([]*node, len(nodes))
	for i, j := range order {
		out[i] = nodes[j]
	}
	return out
}
