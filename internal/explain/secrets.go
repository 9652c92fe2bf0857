package explain

import "regexp"

// Where texts carry secrets: signed addresses, headers, connection strings.
var secrets = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?i)\b(authorization\b["']?\s*[:=]\s*["']?(?:(?:bearer|basic|sharedkey)\s+)?)[^\s"',;]+`), "${1}…"},
	{regexp.MustCompile(`(?i)\b((?:x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|awsaccesskeyid|signature|credential|sig|` +
		`(?:\w*_)?(?:token|secret|password|passwd|api_?key|access_?key(?:_id)?|account_?key|secret_access_key))["']?\s*[=:]\s*["']?)[^\s&"',;)<>]+`), "${1}…"},
	// The query of an address or of the path that is left of it: which parameter is the
	// key differs from store to store, and none of them names the object.
	{regexp.MustCompile(`([^\s"'<>?]*[/.][^\s"'<>?]*)\?[\w.~%+-]+=[^\s"'<>)]*[^\s"'<>).,;:]`), "${1}?…"},
	{regexp.MustCompile(`\b([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@:]+:[^/\s@]+@`), "${1}…@"},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), "…"},
}

// Redact is a text with everything replaced by "…" that is known to be a secret
// where it stands. Names of objects stay.
func Redact(text string) string {
	for _, s := range secrets {
		text = s.re.ReplaceAllString(text, s.with)
	}
	return text
}
