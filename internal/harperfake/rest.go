package harperfake

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rest serves records and blobs.
func (s *Server) rest(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, Request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header.Clone()})
	hang, status := s.hang, s.status
	s.mu.Unlock()
	if hang {
		s.wait(r)
		return
	}
	if status != 0 {
		fail(w, status, "scripted")
		return
	}
	if !s.allowed(w, r, false) {
		return
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodHead: // says the same of everything
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		return
	default:
		fail(w, http.StatusMethodNotAllowed, "the stand-in only reads")
		return
	}
	raw := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	i := strings.LastIndexByte(raw, '/')
	if i < 0 {
		fail(w, http.StatusNotFound, "Not found")
		return
	}
	path, name := raw[:i], raw[i+1:]
	s.mu.Lock()
	_, ok := s.tables[path]
	s.mu.Unlock()
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "Not found")
	case name == "":
		s.query(w, path, r.URL.RawQuery)
	default:
		s.one(w, r, path, name)
	}
}

// wait leaves a request without an answer until somebody gives up.
func (s *Server) wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.closed:
	}
	panic(http.ErrAbortHandler)
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // a client that has gone reads nothing
}

// allowed checks credentials. super asks for the one who may do everything.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request, super bool) bool {
	if s.opts.User == "" {
		return true
	}
	user, password, ok := r.BasicAuth()
	switch {
	case !ok:
		fail(w, http.StatusUnauthorized, "AccessViolation: Must login")
	case user == s.opts.User && password == s.opts.Password:
		return true
	case user == s.opts.Reader && password == s.opts.ReaderPassword && user != "":
		if !super {
			return true
		}
		fail(w, http.StatusForbidden, "This operation is not authorized due to role restrictions")
	case user == s.opts.Stranger && password == s.opts.ReaderPassword && user != "":
		fail(w, http.StatusForbidden, "This operation is not authorized due to role restrictions")
	default:
		fail(w, http.StatusUnauthorized, "Login failed")
	}
	return false
}

var (
	limitPattern  = regexp.MustCompile(`^limit\((\d+)\)$`)
	selectPattern = regexp.MustCompile(`^select\(([^)]*)\)$`)
)

// query answers a table's collection: conditions and calls joined by &.
func (s *Server) query(w http.ResponseWriter, path, raw string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[path]
	limit, fields, from, condition := -1, []string(nil), 0, false
	for part := range strings.SplitSeq(raw, "&") {
		if m := limitPattern.FindStringSubmatch(part); m != nil {
			limit, _ = strconv.Atoi(m[1])
			continue
		}
		if m := selectPattern.FindStringSubmatch(part); m != nil {
			fields = strings.Split(m[1], ",")
			continue
		}
		switch after, ok := strings.CutPrefix(part, t.key+"=gt="); {
		case part == "":
		case ok && after == "":
			fail(w, http.StatusInternalServerError, "unexpected operator")
			return
		case ok:
			condition = true
			key, err := url.PathUnescape(after)
			if err != nil {
				fail(w, http.StatusBadRequest, "malformed")
				return
			}
			from = s.after(t, key)
		case strings.HasPrefix(part, "sort(") && !condition:
			fail(w, http.StatusNotFound, t.key+" is not indexed and not combined with any other conditions")
			return
		default:
			fail(w, http.StatusBadRequest, "not understood by the stand-in: "+part)
			return
		}
	}
	rows := t.records[from:]
	if limit >= 0 {
		rows = rows[:min(limit, len(rows))]
	}
	// Without a Content-Length the answer is chunked, as a whole table's is.
	w.Header().Set("Content-Type", "application/json")
	out := make([]map[string]any, len(rows))
	for i, r := range rows {
		out[i] = r.json(t.key, fields)
	}
	_ = json.NewEncoder(w).Encode(out)
}

// after is the index of the first record with a key greater than a text: the key of
// that text, or the number it spells when the table holds numbers.
func (s *Server) after(t *table, text string) int {
	var key any = text
	if n, err := strconv.ParseFloat(text, 64); err == nil && slices.ContainsFunc(t.records, func(r *record) bool { return r.key == any(n) }) {
		key = n
	}
	i, found := slices.BinarySearchFunc(t.records, key, func(r *record, k any) int { return s.opts.Less(r.key, k) })
	if found {
		i++
	}
	return i
}

// json is a record as clients see it; nil fields are all of them.
func (r *record) json(key string, fields []string) map[string]any {
	all := map[string]any{key: r.key}
	for k, v := range r.fields {
		all[k] = v
	}
	for k, b := range r.blobs {
		all[k] = b.shown()
	}
	if fields == nil {
		return all
	}
	out := map[string]any{}
	for _, f := range fields {
		if v, ok := all[f]; ok {
			out[f] = v
		}
	}
	return out
}

// lookup finds the record of a name as it stands in a path, whose dots belong to the
// attribute unless they are escaped.
func (s *Server) lookup(path, name string) (*record, string) {
	attribute := ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name, attribute = name[:i], name[i+1:]
	}
	key, err := url.PathUnescape(name)
	if err != nil || strings.Contains(name, ".") {
		return nil, ""
	}
	if r := s.find(path, key); r != nil {
		return r, attribute
	}
	if n, err := strconv.ParseFloat(key, 64); err == nil {
		return s.find(path, n), attribute
	}
	return nil, ""
}

// one answers for a record or one of its attributes.
func (s *Server) one(w http.ResponseWriter, r *http.Request, path, name string) {
	s.mu.Lock()
	rec, attribute := s.lookup(path, name)
	if rec == nil {
		s.mu.Unlock()
		fail(w, http.StatusNotFound, "Not found")
		return
	}
	if m := selectPattern.FindStringSubmatch(r.URL.RawQuery); m != nil && attribute == "" && !strings.Contains(m[1], ",") {
		attribute = m[1]
	}
	etag := rec.etag()
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag { // by the record's version alone
		s.mu.Unlock()
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if attribute == "" {
		body, err := json.Marshal(rec.json(s.tables[path].key, nil))
		s.mu.Unlock()
		if err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
		return
	}
	b := rec.blobs[attribute]
	if b == nil {
		s.mu.Unlock()
		w.Header().Del("ETag")
		fail(w, http.StatusNotFound, "Not found")
		return
	}
	answer := b.answer(s.opts.Dialect)
	s.mu.Unlock()
	s.serve(w, r, answer)
}
