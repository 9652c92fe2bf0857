package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sender sends with a clock that its own sleeps move.
type sender struct {
	Sender
	mu    sync.Mutex
	slept []time.Duration
}

func newSender(total time.Duration) *sender {
	s := &sender{}
	at := time.Unix(1_700_000_000, 0)
	s.Sender = Sender{Attempts: 4, Each: time.Second, Total: total, Backoff: 500 * time.Millisecond,
		Now: func() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return at },
		Sleep: func(ctx context.Context, d time.Duration) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			at = at.Add(d)
			s.slept = append(s.slept, d)
			return ctx.Err()
		}}
	return s
}

func request(t *testing.T, base string, headers map[string]string) Request {
	t.Helper()
	r, err := compiled(t, base+"/tasks?token=hunter2", `{"target":{{json .Target}}}`, headers).Render(samples()[0])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answers is a server that gives one answer after another, the last for ever.
func answers(t *testing.T, list ...http.HandlerFunc) (base string, seen func() []*http.Request) {
	t.Helper()
	var mu sync.Mutex
	var got []*http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		got = append(got, r)
		h := list[min(len(got), len(list))-1]
		mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func cut(w http.ResponseWriter, _ *http.Request) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

func waits(d time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

func TestWhatIsTriedAgain(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		name     string
		list     []http.HandlerFunc
		want     Result
		err      string
		slept    []time.Duration
		requests int
	}{
		{"a good answer at once", []http.HandlerFunc{status(202)}, Result{Delivered: true, Attempts: 1, Status: 202}, "", nil, 1},
		{"a server error that passes", []http.HandlerFunc{status(503), status(500), status(200)}, Result{Delivered: true, Attempts: 3, Status: 200}, "", []time.Duration{500 * ms, 1000 * ms}, 3},
		{"a connection that is cut", []http.HandlerFunc{cut, status(200)}, Result{Delivered: true, Attempts: 2, Status: 200}, "", []time.Duration{500 * ms}, 2},
		{"a server error that stays", []http.HandlerFunc{status(500)}, Result{Attempts: 4, Status: 500}, "answered 500", []time.Duration{500 * ms, 1000 * ms, 2000 * ms}, 4},
		{"a demand to wait that can be met", []http.HandlerFunc{waits(3 * time.Second), status(200)}, Result{Delivered: true, Attempts: 2, Status: 200}, "", []time.Duration{3 * time.Second}, 2},
		{"a demand to wait that is too long", []http.HandlerFunc{waits(time.Hour)}, Result{Attempts: 1, Status: 429}, "answered 429", nil, 1},
		{"a refusal", []http.HandlerFunc{status(404)}, Result{Final: true, Attempts: 1, Status: 404}, "answered 404", nil, 1},
		{"a bad request", []http.HandlerFunc{status(400)}, Result{Final: true, Attempts: 1, Status: 400}, "answered 400", nil, 1},
		{"a redirect to another host", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusTemporaryRedirect)
		}}, Result{Final: true, Attempts: 1, Status: 307}, "redirects to another place are not followed", nil, 1},
		{"a redirect that makes a GET of it", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }},
			Result{Final: true, Attempts: 1, Status: 302}, "not followed", nil, 1},
		{"a redirect to another path", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/tasks/", http.StatusPermanentRedirect)
		}, status(201)},
			Result{Delivered: true, Attempts: 1, Status: 201}, "", nil, 2},
		{"redirects without an end", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/tasks/", http.StatusPermanentRedirect)
		}},
			Result{Final: true, Attempts: 1, Status: 308}, "not followed", nil, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base, seen := answers(t, tt.list...)
			s := newSender(30 * time.Second)
			got := s.Send(t.Context(), request(t, base, nil))
			if tt.err != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), tt.err)) || tt.err == "" && got.Err != nil {
				t.Errorf("error %v, want %q", got.Err, tt.err)
			}
			got.Err = nil
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tt.slept, s.slept); d != "" {
				t.Errorf("waits: %s", d)
			}
			if len(seen()) != tt.requests {
				t.Errorf("%d requests, want %d", len(seen()), tt.requests)
			}
			for _, r := range seen() {
				body, _ := io.ReadAll(r.Body)
				if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || string(body) != `{"target":"exp-1"}` || r.Header.Get("Idempotency-Key") == "" {
					t.Errorf("sent %s %v %s", r.Method, r.Header, body)
				}
			}
		})
	}
}

func TestAServerThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	base, seen := answers(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := newSender(30 * time.Second)
	s.Each = 250 * time.Millisecond
	start := time.Now()
	got := s.Send(t.Context(), request(t, base, nil))
	if got.Delivered || got.Final || got.Attempts != 4 || got.Err == nil || !strings.Contains(got.Err.Error(), "no answer within") || len(seen()) == 0 || time.Since(start) > 20*time.Second {
		t.Errorf("%+v after %s", got, time.Since(start))
	}
}

func TestAnEndedContextBeginsNoFurtherAttempt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	base, seen := answers(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel(errors.New("interrupted"))
		w.WriteHeader(503)
	})
	s := newSender(30 * time.Second)
	if got := s.Send(ctx, request(t, base, nil)); got.Delivered || got.Final || got.Err == nil {
		t.Errorf("%+v", got)
	}
	if got := s.Send(ctx, request(t, base, nil)); got.Attempts != 0 || got.Err == nil || got.Final {
		t.Errorf("%+v", got)
	}
	if len(seen()) != 1 {
		t.Errorf("%d requests", len(seen()))
	}
}

func TestNoSecretStandsInAnError(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"Authorization": "Bearer s3cr3t"}
	// A server that sends everything back, and one that nobody listens at.
	echo, _ := answers(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		fmt.Fprintf(w, "no %s\x1b[31m\n with %s %s", r.URL, r.Header.Get("Authorization"), strings.Repeat("x", 1<<20))
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, base := range []string{echo, "http://" + l.Addr().String()} {
		s := newSender(30 * time.Second)
		got := s.Send(t.Context(), request(t, base, headers))
		if got.Err == nil || got.Delivered {
			t.Fatalf("%+v", got)
		}
		text := got.Err.Error()
		if strings.Contains(text, "hunter2") || strings.Contains(text, "s3cr3t") || strings.ContainsAny(text, "\n\x1b") || len(text) > 500 {
			t.Errorf("%q", text)
		}
	}
}

func TestHowLongToWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999": 0,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
