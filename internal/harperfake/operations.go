package harperfake

import (
	"encoding/json"
	"net/http"
	"time"
)

// operations serves the operations port.
func (s *Server) operations(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Operation string `json:"operation"`
		Database  string `json:"database"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&req)
	s.mu.Lock()
	s.log = append(s.log, Request{Method: r.Method, Path: r.URL.EscapedPath(), Header: r.Header.Clone(), Operation: req.Operation})
	hang, status, failures := s.hang, s.status, s.failures
	s.mu.Unlock()
	switch {
	case hang:
		s.wait(r)
	case status != 0:
		fail(w, status, "scripted")
	case err != nil || r.Method != http.MethodPost:
		fail(w, http.StatusBadRequest, "Invalid JSON")
	case !s.allowed(w, r, true):
	case s.opts.CoreOnly || req.Operation != "cluster_status" && req.Operation != "repair_blob_data":
		fail(w, http.StatusBadRequest, "Operation '"+req.Operation+"' not found")
	case req.Operation == "cluster_status":
		socket := map[string]any{"database": "data", "connected": true, "lastReceivedStatus": "Waiting"}
		if failures > 0 { // absent when zero
			socket["blobReplicationFailures"] = failures
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"connections": []any{map[string]any{"name": "peer", "database_sockets": []any{socket}}}})
	default:
		if !s.opts.NeverHeals {
			go s.heal(req.Database)
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"message": "Blob repair started, check logs for progress"})
	}
}

// heal replaces each blob whose damage the node can see with that of a peer that holds
// the same version of the record whole.
func (s *Server) heal(database string) {
	select {
	case <-time.After(s.opts.HealAfter):
	case <-s.closed:
		return
	}
	type unit struct {
		path, attribute string
		key             any
		version         float64
	}
	var todo []unit
	s.mu.Lock()
	peers := s.peers
	for _, t := range s.tables {
		for _, r := range t.records {
			for name, b := range r.blobs {
				if t.database == database && b.damage.healable() {
					todo = append(todo, unit{t.path, name, r.key, r.version})
				}
			}
		}
	}
	s.mu.Unlock()
	for _, u := range todo {
		for _, p := range peers {
			if p.Version(u.path, u.key) == u.version && p.DamageOf(u.path, u.key, u.attribute) == None {
				s.Damage(u.path, u.key, u.attribute, None)
				break
			}
		}
	}
}
