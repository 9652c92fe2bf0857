package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// validator checks what one key alone cannot tell: required keys, closed words,
// ranges, and keys that depend on each other.
type validator struct {
	lines    map[string]int
	reported map[string]bool // paths that already have a mistake
	problems []Problem
}

// validate returns the mistakes of c. Paths that known already speaks of are
// left out.
func validate(c *Config, lines map[string]int, known []Problem) []Problem {
	v := &validator{lines: lines, reported: map[string]bool{}}
	for _, p := range known {
		v.reported[p.Path] = true
	}
	v.database(c.Database)
	v.place("reports.uri", c.Reports.URI, false)
	v.stores(c.Stores)
	v.blobs(c.Blobs)
	v.verify(c.Verify)
	v.rest(c)
	v.repair(c.Repair)
	return v.problems
}

// fail reports a mistake at path, on the line of the nearest key that has one.
func (v *validator) fail(path, format string, args ...any) {
	if v.reported[path] {
		return
	}
	line := 0
	for at := path; ; {
		if l, ok := v.lines[at]; ok {
			line = l
			break
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			break
		}
		at = at[:i]
	}
	v.problems = append(v.problems, Problem{Line: line, Path: path, Text: fmt.Sprintf(format, args...)})
}

func (v *validator) word(path, got string, words ...string) {
	if !slices.Contains(words, got) {
		v.fail(path, "%q is not one of %s", got, strings.Join(words, ", "))
	}
}

func (v *validator) atLeast(path string, got, least int64) {
	if got < least {
		v.fail(path, "%d is below %d", got, least)
	}
}

func (v *validator) finite(path string, d Duration) {
	if d == Forever {
		v.fail(path, "must end: forever is not possible here")
	}
}

// place checks a URI of a store, a report or a file.
func (v *validator) place(path, uri string, required bool) (objstore.Location, bool) {
	if uri == "" {
		if required {
			v.fail(path, "required")
		}
		return objstore.Location{}, false
	}
	loc, err := objstore.Parse(uri)
	if err != nil {
		v.fail(path, "%s", err)
		return objstore.Location{}, false
	}
	return loc, true
}

// storeName is what can stand in front of a target's name and its slash.
var storeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func (v *validator) name(path, name string, seen map[string]string) {
	switch first, dup := seen[name]; {
	case name == "":
		v.fail(path, "required")
	case !storeName.MatchString(name):
		v.fail(path, "%q: a name is 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter, a digit or _", name)
	case dup:
		v.fail(path, "%q is also the name of %s", name, first)
	default:
		seen[name] = strings.TrimSuffix(path, ".name")
	}
}

func (v *validator) stores(stores []Store) {
	names, roots := map[string]string{}, map[string]string{}
	for i, s := range stores {
		at := fmt.Sprintf("stores[%d]", i)
		v.name(at+".name", s.Name, names)
		loc, ok := v.place(at+".uri", s.URI, true)
		if ok {
			key := withEndpoint(loc, s.S3).Canonical()
			if first, dup := roots[key]; dup {
				v.fail(at+".uri", "the same place as %s", first)
			}
			roots[key] = at
			v.oneEndpoint(at, loc, s.S3, stores[:i])
		}
		v.word(at+".discover", s.Discover, "registry", "list", "both")
		v.word(at+".versioning", s.Versioning, "auto", "none")
		v.word(at+".commit", s.Commit, "conditional", "external")
		v.s3(at+".s3", s.S3, loc)
		v.role(at+".write_s3.role_arn", s.WriteS3.RoleARN)
		for j, p := range s.Peers {
			peer := fmt.Sprintf("%s.peers[%d]", at, j)
			ploc, pok := v.peer(peer, p)
			if ok && pok && withEndpoint(ploc, p.S3).Canonical() == withEndpoint(loc, s.S3).Canonical() {
				v.fail(peer+".uri", "the store itself cannot be its own peer")
			}
		}
	}
}

// oneEndpoint refuses a store whose URI is that of an earlier one, or within it, on
// another endpoint: plans and command lines name tables by their URI alone.
func (v *validator) oneEndpoint(at string, loc objstore.Location, s3 S3, earlier []Store) {
	for i, other := range earlier {
		o, err := objstore.Parse(other.URI)
		if err != nil {
			continue
		}
		_, below := loc.Dir().Rel(o)
		_, above := o.Dir().Rel(loc)
		if (below || above) && withEndpoint(loc, s3).Endpoint != withEndpoint(o, other.S3).Endpoint {
			v.fail(at+".uri", "on another endpoint, stores[%d] covers the same names: give each a configuration of its own", i)
		}
	}
}

// withEndpoint is the place with the host of a custom endpoint, as keys use it.
func withEndpoint(l objstore.Location, s S3) objstore.Location {
	if u, err := url.Parse(s.Endpoint); err == nil && l.Scheme == "s3" {
		l.Endpoint = u.Host
	}
	return l
}

func (v *validator) s3(path string, s S3, loc objstore.Location) {
	v.word(path+".path_style", s.PathStyle, "auto", "true", "false")
	if s.Endpoint != "" {
		v.httpURL(path+".endpoint", s.Endpoint)
	}
	v.role(path+".role_arn", s.RoleARN)
	if loc.Scheme == "file" && (s.Endpoint != "" || s.Region != "" || s.Profile != "" || s.RoleARN != "") {
		v.fail(path, "belongs to s3:// places, and this one is a folder")
	}
}

func (v *validator) role(path, arn string) {
	if arn != "" && !strings.HasPrefix(arn, "arn:") {
		v.fail(path, "%q is not an ARN (arn:aws:iam::ACCOUNT:role/NAME)", arn)
	}
}

func (v *validator) httpURL(path, text string) {
	u, err := url.Parse(strings.ReplaceAll(text, "{key}", "key"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		v.fail(path, "not an http:// or https:// URL")
	} else if u.User != nil {
		v.fail(path, "holds credentials; they belong in the environment, a profile or a header with ${NAME}")
	}
}

func (v *validator) database(s Secret) {
	text := s.Reveal()
	switch {
	case text == "":
	case strings.HasPrefix(text, "sqlite:"):
		if strings.TrimPrefix(text, "sqlite:") == "" {
			v.fail("database", "sqlite: names no file")
		}
	case strings.HasPrefix(text, "postgres://"), strings.HasPrefix(text, "postgresql://"):
		if _, err := url.Parse(text); err != nil {
			v.fail("database", "not a valid postgres:// URL (is a character of the password not percent-encoded?)")
		}
	default:
		v.fail("database", "must begin with postgres:// or sqlite:")
	}
}

func (v *validator) blobs(blobs []Blobs) {
	names := map[string]string{}
	for i, b := range blobs {
		at := fmt.Sprintf("blobs[%d]", i)
		v.name(at+".name", b.Name, names)
		loc, _ := v.place(at+".uri", b.URI, b.References.Harper == nil)
		if b.Format != "" && b.Format != FormatHarper {
			v.fail(at+".format", "%q is not harper (files as a Harper node keeps them); without a format, objects are the blobs' bytes", b.Format)
		}
		v.s3(at+".s3", b.S3, loc)
		v.role(at+".write_s3.role_arn", b.WriteS3.RoleARN)
		for j, a := range b.Allow {
			v.place(fmt.Sprintf("%s.allow[%d]", at, j), a, true)
		}
		v.blobReferences(at+".references", b.References)
		if b.References.Harper != nil {
			v.harper(at, b)
		}
		for j, p := range b.Peers {
			v.peer(fmt.Sprintf("%s.peers[%d]", at, j), p)
		}
	}
}

func (v *validator) blobReferences(at string, r BlobReferences) {
	n := 0
	file := func(name, uri, key string) {
		n++
		v.place(at+"."+name+".uri", uri, true)
		if key == "" {
			v.fail(at+"."+name+".key", "required: the column that holds the blob's key")
		}
	}
	if r.Lance != nil {
		key := r.Lance.Key
		if key == "" && r.Lance.Size+r.Lance.Checksum+r.Lance.Record == "" {
			key = "payload_uri" // without any column, those of a context table are meant
		}
		file("lance", r.Lance.URI, key)
	}
	for _, f := range []struct {
		name string
		ref  *FileReferences
	}{{"parquet", r.Parquet}, {"jsonl", r.JSONL}, {"csv", r.CSV}} {
		if f.ref != nil {
			file(f.name, f.ref.URI, f.ref.Key)
		}
	}
	if r.Postgres != nil {
		n++
		if t := r.Postgres.URL.Reveal(); !strings.HasPrefix(t, "postgres://") && !strings.HasPrefix(t, "postgresql://") {
			v.fail(at+".postgres.url", "must begin with postgres://")
		}
		if strings.TrimSpace(r.Postgres.Query) == "" {
			v.fail(at+".postgres.query", "required: a query with the columns key, size, checksum, record_id (only key is needed)")
		}
	}
	if r.Harper != nil {
		n++
	}
	if n != 1 {
		v.fail(at, "needs exactly one of lance, postgres, parquet, jsonl, csv, harper; it has %d", n)
	}
}

// peer checks a peer; the place is that of one with a uri.
func (v *validator) peer(at string, p Peer) (loc objstore.Location, ok bool) {
	switch {
	case (p.URI == "") == (p.URL == ""):
		v.fail(at, "needs exactly one of uri and url")
	case p.URL != "":
		v.httpURL(at+".url", p.URL)
		if !strings.Contains(p.URL, "{key}") {
			v.fail(at+".url", "must hold {key}, the place where the object's key goes")
		}
	default:
		loc, ok = v.place(at+".uri", p.URI, true)
		v.s3(at+".s3", p.S3, loc)
		if len(p.Headers) > 0 {
			v.fail(at+".headers", "belongs to peers with a url")
		}
	}
	return loc, ok
}

func (v *validator) verify(c Verify) {
	v.word("verify.probe", c.Probe, "head", "get")
	v.atLeast("verify.concurrency", c.Concurrency, 1)
	if c.Concurrency > 65536 {
		v.fail("verify.concurrency", "%d is above 65536", c.Concurrency)
	}
	if c.MaxRequestsPerSecond < 0 {
		v.fail("verify.max_requests_per_second", "%g is below 0", c.MaxRequestsPerSecond)
	}
	if c.Sample <= 0 || c.Sample > 1 {
		v.fail("verify.sample", "%g is not above 0 and at most 1", c.Sample)
	}
	v.finite("verify.confirm_after", c.ConfirmAfter)
	if c.TargetTimeout == 0 {
		v.fail("verify.target_timeout", "0s leaves no time to look; forever means no limit")
	}
}

func (v *validator) repair(c Repair) {
	v.word("repair.mode", c.Mode, "off", "restore", "full")
	v.word("repair.deletion_files", c.DeletionFiles, "report", "drop_fragment")
	v.word("repair.partial_fragments", c.PartialFragments, "report", "drop")
	v.atLeast("repair.max_fragments", c.MaxFragments, 0)
	v.atLeast("repair.max_rows", c.MaxRows, 0)
	v.atLeast("repair.max_pass_targets", c.MaxPassTargets, 0)
	v.atLeast("repair.max_pass_fragments", c.MaxPassFragments, 0)
	v.atLeast("repair.max_pass_rows", c.MaxPassRows, 0)
	if c.MaxFraction < 0 || c.MaxFraction > 1 {
		v.fail("repair.max_fraction", "%g is not from 0 to 1", c.MaxFraction)
	}
	v.place("repair.quarantine", c.Quarantine, false)
}

// rest checks the sections that need a line or two each.
func (v *validator) rest(c *Config) {
	v.finite("budget.duration", c.Budget.Duration)
	v.atLeast("budget.requests", c.Budget.Requests, 0)
	v.atLeast("budget.refetch_objects", c.Budget.RefetchObjects, 0)
	if c.Budget.FullCycle == 0 {
		v.fail("budget.full_cycle", "must be above 0s")
	}
	v.atLeast("cooldown.after", c.Cooldown.After, 1)
	if c.Cooldown.Base == 0 || c.Cooldown.Base == Forever {
		v.fail("cooldown.base", "must be above 0s and end")
	}
	if c.Cooldown.Max < c.Cooldown.Base {
		v.fail("cooldown.max", "%s is below cooldown.base (%s)", c.Cooldown.Max, c.Cooldown.Base)
	}
	v.afterRepair(c.AfterRepair)
	v.mergeWAL(c.MergeWAL)
	v.atLeast("wal.warn_generations", c.WAL.WarnGenerations, 1)
	if c.Metrics.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Metrics.Listen); err != nil {
			v.fail("metrics.listen", "%q is not HOST:PORT or :PORT", c.Metrics.Listen)
		}
	}
	if p := c.Metrics.Pushgateway.Reveal(); p != "" {
		v.httpURL("metrics.pushgateway", p)
	}
	if c.Retention.Passes == 0 {
		v.fail("retention.passes", "0s keeps nothing")
	}
	if c.Retention.Repairs == 0 {
		v.fail("retention.repairs", "0s keeps nothing")
	}
}
