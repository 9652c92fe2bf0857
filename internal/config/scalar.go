package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Duration is a length of time as configurations and flags write it: Go's
// notation, plus d for days of 24 hours ("7d", "1d12h") and "forever". It is
// never negative.
type Duration time.Duration

// Forever is the Duration that never ends.
const Forever Duration = math.MaxInt64

var errNegative = errors.New("a negative duration")

// ParseDuration reads a Duration. It touches nothing.
func ParseDuration(s string) (Duration, error) {
	if s == "forever" {
		return Forever, nil
	}
	if strings.HasPrefix(strings.TrimSpace(s), "-") {
		return 0, fmt.Errorf("%q is %w", s, errNegative)
	}
	var total time.Duration
	rest := s
	if days, tail, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || math.IsNaN(n) || n < 0 {
			return 0, badDuration(s)
		}
		if n >= math.MaxInt64/float64(day) {
			return 0, fmt.Errorf("%q is too long; the word forever means no end", s)
		}
		total, rest = time.Duration(n*float64(day)), tail
		if rest == "" {
			return Duration(total), nil
		}
	}
	d, err := time.ParseDuration(rest)
	switch {
	case err != nil:
		return 0, badDuration(s)
	case d < 0:
		return 0, fmt.Errorf("%q is %w", s, errNegative)
	case total > math.MaxInt64-d:
		return 0, fmt.Errorf("%q is too long; the word forever means no end", s)
	}
	return Duration(total + d), nil
}

func badDuration(s string) error {
	return fmt.Errorf("%q is not a duration; write it like 90s, 15m, 1h30m, 7d or forever", s)
}

// Std is the value as the standard library's type; Forever is its largest value.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is a text that [ParseDuration] reads back.
func (d Duration) String() string {
	if d == Forever {
		return "forever"
	}
	if d > 0 && d.Std()%day == 0 {
		return strconv.FormatInt(int64(d.Std()/day), 10) + "d"
	}
	s := d.Std().String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "" {
		return "0s"
	}
	if last := s[len(s)-1]; last >= '0' && last <= '9' {
		return d.Std().String() // "10s" had lost its unit
	}
	return s
}

// Set and Type implement the flag package's and pflag's Value.
func (d *Duration) Set(s string) error { return d.setText(s) }

// Type names the kind of value in help.
func (d *Duration) Type() string { return "duration" }

func (d *Duration) setText(s string) error {
	v, err := ParseDuration(s)
	if err == nil {
		*d = v
	}
	return err
}

// Bytes is a number of bytes, written "10GiB" (1024), "10GB" (1000) or plain.
type Bytes int64

var byteUnits = []struct {
	suffix string
	factor float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"B", 1},
}

// ParseBytes reads Bytes. A bare K, M or G is refused: people mean both by it.
func ParseBytes(s string) (Bytes, error) {
	num, factor := s, 1.0
	for _, u := range byteUnits {
		if head, ok := strings.CutSuffix(s, u.suffix); ok {
			num, factor = strings.TrimSpace(head), u.factor
			break
		}
	}
	n, err := strconv.ParseFloat(num, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%q is not a size; write it like 500MB, 10GiB or a number of bytes", s)
	}
	if n < 0 {
		return 0, fmt.Errorf("%q is a negative size", s)
	}
	if n*factor >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large a size", s)
	}
	return Bytes(n * factor), nil
}

// String is a text that [ParseBytes] reads back.
func (b Bytes) String() string {
	for i := 4; i >= 0; i-- {
		if u := byteUnits[i]; b != 0 && int64(b)%int64(u.factor) == 0 {
			return strconv.FormatInt(int64(b)/int64(u.factor), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func (b *Bytes) setText(s string) error {
	v, err := ParseBytes(s)
	if err == nil {
		*b = v
	}
	return err
}

const redacted = "[redacted]"

// Secret is a text that prints redacted however it is printed; Reveal gives it.
type Secret struct{ text string }

// Reveal is the text itself, for the one place that needs it.
func (s Secret) Reveal() string { return s.text }

// String is empty for an empty Secret. Of a URL it shows everything but the
// password, the query and, where there is no password, a user that could be a
// token; of anything else nothing.
func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	u, err := url.Parse(s.text)
	if err != nil || u.Scheme == "" || u.Host == "" && u.Path == "" {
		return redacted
	}
	if u.User != nil {
		if _, has := u.User.Password(); has {
			u.User = url.UserPassword(u.User.Username(), "redacted")
		} else {
			u.User = url.User("redacted")
		}
	}
	if u.RawQuery != "" {
		u.RawQuery = "redacted"
	}
	if u.Opaque != "" { // sqlite:FILE holds no secret, scheme:secret might
		if u.Scheme == "sqlite" {
			return s.text
		}
		return redacted
	}
	return u.String()
}

// GoString keeps %#v from looking inside.
func (s Secret) GoString() string { return "config.Secret{" + redacted + "}" }

// MarshalJSON implements json.Marshaler with the redacted text.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// LogValue implements slog.LogValuer with the redacted text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Set and Type implement the flag package's and pflag's Value.
func (s *Secret) Set(v string) error { return s.setText(v) }

// Type names the kind of value in help.
func (s *Secret) Type() string { return "url" }

func (s *Secret) setText(v string) error {
	s.text = v
	return nil
}

// setText implements the short form of a peer.
func (p *Peer) setText(v string) error {
	p.URI = v
	return nil
}
