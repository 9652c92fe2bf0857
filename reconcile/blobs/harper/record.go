package harper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// maxRecord bounds a record as JSON; inline blobs of less than 8 KiB stand in it.
const maxRecord = 4 << 20

// row is a record as its JSON has it.
type row map[string]json.RawMessage

// keyText is a record's key: a text, or a number as it is spelled.
func keyText(raw json.RawMessage) (string, bool) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, v != ""
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// isNull: an attribute without a value is absent or null.
func (r row) isNull(attr string) bool {
	raw, ok := r[attr]
	return !ok || string(bytes.TrimSpace(raw)) == "null"
}

// expected is what a record says of the blob of one attribute; problems are what is not
// understood of that.
func (r row) expected(s *Set) (rec refs.Record, problems []*refs.RowError) {
	rec.Size = refs.Unknown
	if s.Size != "" && !r.isNull(s.Size) {
		n, ok := sizeValue(r[s.Size])
		if !ok {
			problems = append(problems, &refs.RowError{Reason: refs.ReasonSize, Detail: s.Size, Count: 1, Partial: true})
		}
		rec.Size = n
	}
	if s.Digest != "" && !r.isNull(s.Digest) {
		var text string
		sum, ok := "", json.Unmarshal(r[s.Digest], &text) == nil
		if ok && text != "" {
			sum, ok = parseDigest(text, s.Algorithm)
		}
		if !ok {
			problems = append(problems, &refs.RowError{Reason: refs.ReasonChecksum, Detail: s.Digest, Count: 1, Partial: true})
		}
		rec.Checksum = sum
	}
	return rec, problems
}

// sizeValue reads a whole number of bytes, or one spelled as a text. 0 is not recorded.
func sizeValue(raw json.RawMessage) (int64, bool) {
	text := strings.Trim(string(bytes.TrimSpace(raw)), `"`)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(text, 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return refs.Unknown, false
		}
		n = int64(f)
	}
	switch {
	case n < 0:
		return refs.Unknown, false
	case n == 0:
		return refs.Unknown, true
	}
	return n, true
}

// seen is one read of a record.
type seen struct {
	found bool
	row   row
	etag  string
}

// record reads the record of a unit as JSON, which never opens a blob's file. An error
// says nothing of the record.
func (n *node) record(ctx context.Context, u unit, h how) (seen, error) {
	r, err := n.get(ctx, u.record().target(), h)
	if err != nil {
		return seen{}, err
	}
	defer r.body.Close()
	switch byStatus(r) {
	case absent:
		return seen{}, nil
	case whole:
	default:
		return seen{}, &statusError{node: n.cfg.Name, what: "a record", status: r.status}
	}
	data, err := sniff(r.body, maxRecord)
	if err != nil {
		return seen{}, fmt.Errorf("read a record of node %s: %w", n.cfg.Name, err)
	}
	s := seen{found: true, etag: r.etag()}
	if err := json.Unmarshal(data, &s.row); err != nil {
		return seen{}, fmt.Errorf("read a record of node %s: its answer is no JSON object", n.cfg.Name)
	}
	return s, nil
}

// statusError is an answer that is none to what was asked.
type statusError struct {
	node, what string
	status     int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("read %s of node %s: HTTP %d", e.what, e.node, e.status)
}

// Unwrap gives the kind of answer, where it is one that stores give too.
func (e *statusError) Unwrap() error {
	switch {
	case e.denied():
		return objstore.ErrDenied
	case e.status == http.StatusTooManyRequests:
		return objstore.ErrThrottled
	}
	return nil
}

// denied reports that credentials are the cause.
func (e *statusError) denied() bool {
	return e.status == http.StatusUnauthorized || e.status == http.StatusForbidden
}

// maxPage bounds a page of records.
const maxPage = 64 << 20

// page asks for the records after a key (encoded; "" from the first), at most limit.
func (n *node) page(ctx context.Context, g *group, after string, limit int) ([]row, error) {
	var q strings.Builder
	q.WriteString(g.path + "/?")
	if after != "" { // an empty condition is an error of the node
		q.WriteString(g.key + "=gt=" + after + "&")
	}
	// Without the blobs themselves: inline ones would come in full.
	q.WriteString("limit(" + strconv.Itoa(limit) + ")&select(" + strings.Join(g.columns, ",") + ")")
	r, err := n.get(ctx, q.String(), how{})
	if err != nil {
		return nil, err
	}
	defer r.body.Close()
	if r.status != http.StatusOK {
		return nil, &statusError{node: n.cfg.Name, what: "a page of records", status: r.status}
	}
	in := &io.LimitedReader{R: r.body, N: maxPage}
	var rows []row
	if err := json.NewDecoder(in).Decode(&rows); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &kind) {
			err = errors.New("it is no JSON list of records")
		}
		return nil, fmt.Errorf("read a page of records of node %s: %w", n.cfg.Name, err)
	}
	return rows, nil
}
