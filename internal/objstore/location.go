package objstore

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
)

// Location says where one object, or everything below one prefix, lies. It is a
// comparable value and may be a map key. The zero value is no place.
type Location struct {
	// Scheme is "s3" or "file" ("mem" in tests); other names of the same scheme
	// (s3a, s3n) are folded by Parse.
	Scheme string
	// Endpoint is the host[:port] of a custom endpoint; empty for the vendor's own.
	Endpoint string
	// Bucket is empty for files.
	Bucket string
	// Key is exact: nothing is decoded, cleaned or added for object stores. For
	// files it is an absolute path with "/" separators.
	Key string
}

// ParseError says why a URI names no place. It matches [ErrUnsupported] when the
// scheme is known but not built, or not known at all.
type ParseError struct {
	// URI is the text that was given, with everything that could be a credential
	// (user info, query) replaced by "…".
	URI    string
	Reason string
	Err    error
}

// Error implements error.
func (e *ParseError) Error() string {
	return fmt.Sprintf("location %q: %s", e.URI, e.Reason)
}

// Unwrap gives the cause.
func (e *ParseError) Unwrap() error { return e.Err }

// known but not built, so that the message can say so
var notBuilt = map[string]string{
	"az": "Azure", "abfs": "Azure", "abfss": "Azure", "gs": "Google Cloud Storage", "gcs": "Google Cloud Storage",
	"s3+ddb": "S3 with a DynamoDB commit store", "oss": "Alibaba OSS", "cos": "Tencent COS", "tos": "Volcengine TOS",
}

// Parse reads a URI or a plain file path.
//
//	s3://bucket/key   s3a:// and s3n:// mean the same; the key is taken as it stands
//	file:///path      percent-decoded
//	/path or path     a file; made absolute against the working directory
//
// It never touches the network or the disk. The trailing slash of a file path is
// dropped; the key of an object store is kept exactly.
func Parse(uri string) (Location, error) {
	bad := func(reason string, err error) (Location, error) {
		return Location{}, &ParseError{URI: redact(uri), Reason: reason, Err: err}
	}
	if uri == "" {
		return bad("empty", nil)
	}
	if strings.ContainsRune(uri, 0) {
		return bad("holds a NUL byte", nil)
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok || !validScheme(scheme) {
		if s, r, ok := strings.Cut(uri, ":/"); ok && s == "file" {
			return parseFileURL(uri, "/"+r)
		}
		abs, err := filepath.Abs(uri)
		if err != nil {
			return bad("no absolute path", err)
		}
		return Location{Scheme: "file", Key: filepath.ToSlash(abs)}, nil
	}
	switch s := strings.ToLower(scheme); s {
	case "file":
		host, p, _ := strings.Cut(rest, "/")
		if host != "" && host != "localhost" {
			return bad("a file URI has three slashes (file:///path)", nil)
		}
		return parseFileURL(uri, "/"+p)
	case "s3", "s3a", "s3n":
		bucket, key, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return bad("names no bucket", nil)
		}
		if strings.ContainsAny(bucket, "@:?#% \\") {
			return bad("the bucket name holds a character that no bucket has; credentials and endpoints belong in the environment or the configuration", nil)
		}
		if strings.Contains(key, "X-Amz-Signature=") {
			return bad("is a presigned URL; name the object alone, credentials belong in the environment", nil)
		}
		return Location{Scheme: "s3", Bucket: bucket, Key: key}, nil
	case "mem":
		bucket, key, _ := strings.Cut(rest, "/")
		return Location{Scheme: "mem", Bucket: bucket, Key: key}, nil
	default:
		if vendor, known := notBuilt[s]; known {
			return bad(fmt.Sprintf("scheme %s:// (%s) is not built in this version; s3:// and file paths are", s, vendor), ErrUnsupported)
		}
		return bad(fmt.Sprintf("unknown scheme %s://; s3://, file:// and plain paths are known", s), ErrUnsupported)
	}
}

func parseFileURL(uri, p string) (Location, error) {
	dec, err := url.PathUnescape(p)
	if err != nil {
		return Location{}, &ParseError{URI: redact(uri), Reason: "bad percent escape", Err: err}
	}
	if strings.ContainsRune(dec, 0) {
		return Location{}, &ParseError{URI: redact(uri), Reason: "holds a NUL byte"}
	}
	return Location{Scheme: "file", Key: path.Clean(dec)}, nil
}

func validScheme(s string) bool {
	if s == "" {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '+', r == '-', r == '.':
		default:
			return false
		}
	}
	return true
}

// redact hides what people put into URIs and must not reach a log. A secret key
// may hold "/", so everything up to the last "@" goes, wherever that stands.
func redact(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", uri
	}
	rest, _, hasQuery := strings.Cut(rest, "?")
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = "…" + rest[i:]
	}
	if hasQuery {
		rest += "?…"
	}
	return scheme + rest
}

// String is the URI a person would type: s3://bucket/key, file:///path. It leaves
// the endpoint out; see Canonical.
func (l Location) String() string {
	switch l.Scheme {
	case "":
		return ""
	case "file":
		return (&url.URL{Scheme: "file", Path: l.Key}).String()
	default:
		return l.Scheme + "://" + l.Bucket + "/" + l.Key
	}
}

// Canonical is the one spelling of this place, for keys of ledgers, locks and
// finding ids: like String, with the custom endpoint's host kept
// (s3://bucket@host:port/key) and without a trailing slash. The root of the disk
// is file:///.
func (l Location) Canonical() string {
	l.Key = strings.TrimRight(l.Key, "/")
	if l.Scheme == "file" && l.Key == "" {
		return "file:///"
	}
	if l.Endpoint == "" {
		return strings.TrimRight(l.String(), "/")
	}
	return strings.TrimRight(l.Scheme+"://"+l.Bucket+"@"+l.Endpoint+"/"+l.Key, "/")
}

// Join is the place of a relative name below l, joined by exactly one slash.
// The name is not cleaned.
func (l Location) Join(name string) Location {
	switch {
	case l.Key == "" && l.Scheme != "file":
		l.Key = name
	case strings.HasSuffix(l.Key, "/"):
		l.Key += name
	default:
		l.Key += "/" + name
	}
	return l
}

// Dir is l as a prefix: with exactly one trailing slash, except that the whole
// bucket stays the empty key.
func (l Location) Dir() Location {
	if l.Key != "" || l.Scheme == "file" {
		l.Key = strings.TrimRight(l.Key, "/") + "/"
	}
	return l
}

// Base is the last name of the key, without slashes.
func (l Location) Base() string { return path.Base(strings.TrimRight(l.Key, "/")) }

// Parent is the prefix that holds l, without a trailing slash. The parent of a
// bucket is the bucket.
func (l Location) Parent() Location {
	k := strings.TrimRight(l.Key, "/")
	i := strings.LastIndexByte(k, '/')
	switch {
	case i > 0 && k[i-1] == '/':
		l.Key = k[:i+1] // names may be empty: what Join is to lead back from ends in a slash
	case i > 0:
		l.Key = k[:i]
	case l.Scheme == "file":
		l.Key = "/"
	default:
		l.Key = ""
	}
	return l
}

// Rel is the name of l below dir; ok is false when l is not below it.
func (l Location) Rel(dir Location) (name string, ok bool) {
	if l.Scheme != dir.Scheme || l.Endpoint != dir.Endpoint || l.Bucket != dir.Bucket {
		return "", false
	}
	prefix := dir.Key
	if (prefix != "" || dir.Scheme == "file") && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return strings.CutPrefix(l.Key, prefix)
}

// Container names what can be absent as a whole or lack rights as a whole: the
// scheme, endpoint and bucket, without a key.
func (l Location) Container() Location {
	l.Key = ""
	return l
}
