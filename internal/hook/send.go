package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Sender sends posts. Every field must be set, except where noted.
type Sender struct {
	// Transport may be nil: http.DefaultTransport.
	Transport http.RoundTripper
	// Attempts is how often one post is sent at most.
	Attempts int
	// Each bounds one attempt, Total all of them with the waits between.
	Each, Total time.Duration
	// Backoff is the first wait; it doubles. A Retry-After that fits into Total takes
	// its place.
	Backoff time.Duration
	// Now and Sleep are time. Sleep returns an error when ctx ended first.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
}

// Result is how a post ended.
type Result struct {
	// Delivered: answered with 2xx. Final: it was not, and sending it again changes
	// nothing.
	Delivered, Final bool
	Attempts         int
	// Status of the last answer, 0 when there was none.
	Status int
	// Err is why it was not delivered. It holds no query, no user and no header.
	Err error
}

// Send posts until it is delivered, is answered in a way that no repetition changes,
// or was tried enough. Network errors, 429 and 5xx are tried again. No redirect to
// another host is followed.
//
// When ctx ends, no further attempt begins and the one under way is broken off: its
// outcome is unknown, and the post may be sent again.
func (s *Sender) Send(ctx context.Context, r Request) Result {
	if !json.Valid(r.Body) {
		return Result{Final: true, Err: errors.New("the body is not JSON")}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Total)
	defer cancel()
	deadline := s.Now().Add(s.Total)
	client := &http.Client{Transport: s.Transport, CheckRedirect: sameHost}
	var out Result
	for wait := s.Backoff; ; wait *= 2 {
		if err := context.Cause(ctx); err != nil {
			if out.Err == nil {
				out.Err = fmt.Errorf("not sent: %w", err)
			}
			return out
		}
		out.Attempts++
		var after time.Duration
		out.Status, after, out.Err = s.once(ctx, client, r)
		switch {
		case out.Err == nil:
			out.Delivered = true
			return out
		case out.Status != 0 && out.Status != http.StatusTooManyRequests && out.Status < 500:
			out.Final = true
			return out
		case out.Attempts >= s.Attempts:
			return out
		}
		pause := max(wait, after)
		if s.Now().Add(pause).After(deadline) {
			return out // the next pass has more time
		}
		if s.Sleep(ctx, pause) != nil {
			return out
		}
	}
}

// sameHost follows what asks for the same post at another path of the same host, and
// nothing else: headers may hold secrets, and a GET tells nobody anything.
func sameHost(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || req.Method != http.MethodPost || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// once is one attempt. err is nil for 2xx alone.
func (s *Sender) once(ctx context.Context, client *http.Client, r Request) (status int, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Each)
	defer cancel()
	req, err := r.newRequest()
	if err != nil {
		return 0, 0, errors.New("the address cannot be asked")
	}
	resp, err := client.Do(req.WithContext(ctx))
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0, 0, fmt.Errorf("no answer within %s", s.Each)
	case err != nil:
		return 0, 0, withoutURL(err)
	}
	defer resp.Body.Close()
	// As much as a person wants to read of an error; what is left of a long answer is
	// given up with its connection.
	text, rerr := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return resp.StatusCode, 0, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return resp.StatusCode, 0, fmt.Errorf("answered %s; redirects to another place are not followed", resp.Status)
	case rerr != nil || len(text) == 0:
		err = fmt.Errorf("answered %d", resp.StatusCode)
	default:
		err = fmt.Errorf("answered %d: %s", resp.StatusCode, r.harmless(text))
	}
	return resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), s.Now()), err
}

const (
	maxAnswer = 64 << 10
	maxQuoted = 300
	// Hiding shorter values would garble texts and hide nothing.
	shortestSecret = 4
)

// withoutURL is the cause of an error that would tell the whole address.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// harmless is the beginning of an answer, printable, without the values of headers
// and of the query, which some servers send back.
func (r Request) harmless(text []byte) string {
	s := strings.ToValidUTF8(string(text), "?")
	for _, v := range r.headers {
		_, word, _ := strings.Cut(v, " ") // Bearer TOKEN
		for _, secret := range []string{v, word} {
			if len(secret) >= shortestSecret {
				s = strings.ReplaceAll(s, secret, "redacted")
			}
		}
	}
	if _, query, ok := strings.Cut(r.url, "?"); ok && query != "" {
		s = strings.ReplaceAll(s, query, "redacted")
		for _, values := range parsed(query) {
			for _, v := range values {
				if len(v) >= shortestSecret {
					s = strings.ReplaceAll(s, v, "redacted")
				}
			}
		}
	}
	s = strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return ' '
		}
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, strings.TrimSpace(s))
	if len(s) > maxQuoted {
		s = strings.ToValidUTF8(s[:maxQuoted], "") + "…"
	}
	return s
}

func parsed(query string) url.Values {
	v, _ := url.ParseQuery(query) // what can be read of it
	return v
}

// retryAfter reads seconds or a date; 0 when there is neither.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
