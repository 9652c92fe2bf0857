// Package hook tells other systems of repairs: one HTTP POST for each, whose address
// and body are templates.
//
// It renders and sends, and knows neither configuration nor ledger. What a post is
// about is a [Data]; that it is owed is remembered elsewhere, before it is sent.
package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"text/template"
)

// Data is what templates can speak of. Pointers are nil where something is unknown
// or does not apply: the function json writes null for it.
type Data struct {
	// Target as users type it, the Store that it is of and its canonical URI.
	Target string `json:"target"`
	Store  string `json:"store"`
	URI    string `json:"uri"`
	// Kind is rollout, generic, datagen, system or table; Action the word for what was
	// done.
	Kind     string `json:"kind"`
	Action   string `json:"action"`
	RepairID string `json:"repair_id"`
	PassID   string `json:"pass_id"`

	ReadVersion      *uint64 `json:"read_version"`
	CommittedVersion *uint64 `json:"committed_version"`
	// Fragments are ids, never nil.
	Fragments []uint64 `json:"fragments"`
	// RowsDropped counts live rows.
	RowsDropped *int64 `json:"rows_dropped"`
	// Trigger is schedule, manual or failure; TriggerError the text that goes with the
	// last.
	Trigger      string  `json:"trigger"`
	TriggerError *string `json:"trigger_error"`
}

// Hook is one address that is told of repairs. It is safe for concurrent use.
type Hook struct {
	key, shown    string
	address, body *template.Template
	headers       map[string]string
}

// Mistake is what is wrong with a hook, and about which part of it.
type Mistake struct {
	// Part is post, body or headers.NAME.
	Part string
	Err  error
}

// Error implements error.
func (m *Mistake) Error() string { return m.Part + ": " + m.Err.Error() }

// Unwrap gives the cause.
func (m *Mistake) Unwrap() error { return m.Err }

// plainBody is sent where the configuration gives no body: everything.
const plainBody = "{{json .}}"

// New makes a hook of the templates of its address and its body (empty is all of the
// data) and of header values. It executes both on samples; each thing that is wrong
// is a *Mistake, and no text of one holds what came after the ? of the address or
// stands in a header.
func New(post, body string, headers map[string]string) (*Hook, []*Mistake) {
	if body == "" {
		body = plainBody
	}
	h := &Hook{headers: headers}
	var wrong []*Mistake
	say := func(part string, err error) {
		if err != nil {
			wrong = append(wrong, &Mistake{part, err})
		}
	}
	say("post", h.parseAddress(post))
	var err error
	h.body, err = parse("body", body)
	say("body", err)
	for name, value := range headers {
		say("headers."+name, checkHeader(name, value))
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	sum := sha256.Sum256([]byte(h.shown + "\x00" + body))
	h.key = hex.EncodeToString(sum[:16])
	if wrong := h.try(); len(wrong) > 0 {
		return nil, wrong
	}
	return h, nil
}

// try fills the templates in with each sample and tells the first mistake of each.
func (h *Hook) try() []*Mistake {
	first := map[string]*Mistake{}
	keep := func(part string, err error) {
		if _, known := first[part]; err != nil && !known {
			first[part] = &Mistake{part, err}
		}
	}
	for _, d := range samples() {
		_, err := h.renderAddress(d)
		keep("post", err)
		body, err := execute(h.body, d)
		if err == nil && !json.Valid(body) {
			err = fmt.Errorf("is not JSON once it is filled in (%s); write values as {{json .Target}}, without quotes around", abbreviated(body))
		}
		keep("body", err)
	}
	var wrong []*Mistake
	for _, part := range []string{"post", "body"} {
		if m := first[part]; m != nil {
			wrong = append(wrong, m)
		}
	}
	return wrong
}

// Key tells the hook from others: 32 hex digits over its address without the query,
// and its body.
func (h *Hook) Key() string { return h.key }

// Shown is the address as it was written, without the query.
func (h *Hook) Shown() string { return h.shown }

// parseAddress reads the template of an address. Scheme and host are literal: what a
// store is called must not decide who is talked to.
func (h *Hook) parseAddress(post string) error {
	literal, _, _ := strings.Cut(post, "{{")
	u, err := url.Parse(literal)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("not an http:// or https:// URL with a host that is written out")
	case u.User != nil:
		return errors.New("holds credentials; they belong in a header with ${NAME}")
	case strings.Contains(post, "{{") && u.Path == "":
		return errors.New("a template may stand after the / that follows the host only")
	case strings.Contains(post, "#"):
		return errors.New("a fragment (#) is never sent")
	}
	h.shown, _, _ = strings.Cut(post, "?")
	h.address, err = parse("post", post)
	return err
}

func parse(name, text string) (*template.Template, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"json": toJSON, "path": pathEscape}).Parse(text)
	return t, templateError(err)
}

// templateError takes the words off that say what every error of a template is.
func templateError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), "template: "))
}

func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// pathEscape makes a value one segment of a path. Those that mean another folder
// cannot be written as one.
func pathEscape(s string) (string, error) {
	if s == "." || s == ".." {
		return "", fmt.Errorf("%q is no segment of a path", s)
	}
	return url.PathEscape(s), nil
}

// notYours are headers that say how a request is sent.
var notYours = []string{"Content-Length", "Content-Type", "Host", "Connection", "Transfer-Encoding", "Trailer", "Upgrade", "Te", "Expect", "Idempotency-Key"}

func checkHeader(name, value string) error {
	for _, n := range notYours {
		if textproto.CanonicalMIMEHeaderKey(name) == n {
			return errors.New("is set by the program")
		}
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(token, r) }) {
		return errors.New("is no name of a header")
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return errors.New("holds a line break or another control character")
	}
	return nil
}

const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Request is a post, ready to be sent.
type Request struct {
	// Shown is the address without the query.
	Shown string
	Body  []byte
	// Key is the same whenever the same is sent again.
	Key string

	url     string
	headers map[string]string
}

// maxBody bounds a body: templates can loop.
const maxBody = 1 << 20

// Render fills the templates in. An error is a *Mistake.
func (h *Hook) Render(d Data) (Request, error) {
	if d.Fragments == nil {
		d.Fragments = []uint64{}
	}
	u, err := h.renderAddress(d)
	if err != nil {
		return Request{}, &Mistake{"post", err}
	}
	body, err := execute(h.body, d)
	if err != nil {
		return Request{}, &Mistake{"body", err}
	}
	shown := *u
	shown.RawQuery, shown.ForceQuery = "", false
	return Request{Shown: shown.String(), Body: body, Key: d.RepairID + "-" + h.key[:8], url: u.String(), headers: h.headers}, nil
}

func (h *Hook) renderAddress(d Data) (*url.URL, error) {
	address, err := execute(h.address, d)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(string(address))
	if err != nil || u.Fragment != "" {
		return nil, errors.New("is not a URL once it is filled in; write values as {{path .Target}}, or {{urlquery .Target}} after the ?")
	}
	return u, nil
}

func execute(t *template.Template, d Data) ([]byte, error) {
	var w limited
	if err := t.Execute(&w, d); err != nil {
		if errors.Is(err, errTooLong) {
			return nil, errTooLong
		}
		return nil, templateError(err)
	}
	return w.Bytes(), nil
}

var errTooLong = errors.New("is more than 1 MiB once it is filled in")

type limited struct{ bytes.Buffer }

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxBody {
		return 0, errTooLong
	}
	return l.Buffer.Write(b)
}

// samples are what templates are tried on: everything known, nothing known, and names
// that hold what JSON and URLs must quote.
func samples() []Data {
	known := Data{
		Target: "exp-1", Store: "rocketkeep", URI: "s3://rocketkeep/exp-1.rollout.lance", Kind: "rollout", Action: "drop_fragment",
		RepairID: "01900000-0000-7000-8000-000000000001", PassID: "01900000-0000-7000-8000-000000000002",
		ReadVersion: ptr(uint64(7)), CommittedVersion: ptr(uint64(8)), Fragments: []uint64{3, 5}, RowsDropped: ptr(int64(100)),
		Trigger: "failure", TriggerError: ptr("Not found: exp-1.rollout.lance/data/1.lance"),
	}
	unknown := known
	unknown.ReadVersion, unknown.CommittedVersion, unknown.RowsDropped, unknown.TriggerError = nil, nil, nil, nil
	unknown.Fragments, unknown.Trigger = nil, "schedule"
	odd := known
	const name = "a\"b\\c %?#é\n</x>"
	odd.Target, odd.Store, odd.URI, odd.TriggerError = "generic:"+name, name, "s3://rocketkeep/"+name, ptr(name)
	return []Data{known, unknown, odd}
}

func ptr[T any](v T) *T { return &v }

func abbreviated(b []byte) string {
	const most = 80
	s := strings.ToValidUTF8(string(b), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// newRequest is the request of one attempt; the caller's context is put on it.
func (r Request) newRequest() (*http.Request, error) {
	req, err := http.NewRequest(http.MethodPost, r.url, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	// Sent again after an answer that was lost, it is known as the same.
	req.Header.Set("Idempotency-Key", r.Key)
	return req, nil
}
