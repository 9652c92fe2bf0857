package metrics

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/push"
)

// job is the name under which a push gateway keeps the figures.
const job = "reconcile"

// Textfile writes the figures into a file for node_exporter's textfile collector:
// whole or not at all. When this process has no success to tell of, the time of the
// last one is carried over from the file.
func (s *Set) Textfile(file string, g prometheus.Gatherer) error {
	if !s.lastSuccess.known.Load() {
		at, ok, err := successIn(file)
		if err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
		if ok {
			s.lastSuccess.Set(at)
		}
	}
	if err := prometheus.WriteToTextfile(file, g); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// successIn is the time of the last success that a file tells.
func successIn(file string) (at float64, ok bool, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if text, found := strings.CutPrefix(lines.Text(), lastSuccess+" "); found {
			// What cannot be read is no time, and is written anew by the next success.
			at, err := strconv.ParseFloat(text, 64)
			return at, err == nil, nil
		}
	}
	return 0, false, lines.Err()
}

// Push hands the figures to a push gateway. Those that this process does not have,
// such as the time of the last success, stay there as they were. No error shows the
// credentials of the address.
func Push(ctx context.Context, address string, g prometheus.Gatherer, client *http.Client) error {
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("push metrics: the address is no URL")
	}
	user := u.User
	u.User = nil
	p := push.New(u.String(), job).Gatherer(g).Client(client)
	if user != nil {
		password, _ := user.Password()
		p = p.BasicAuth(user.Username(), password)
	}
	if err := p.AddContext(ctx); err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	return nil
}

// Listen answers /metrics on an address until stop is called. It returns once the
// address is taken.
func Listen(ctx context.Context, address string, g prometheus.Gatherer) (addr net.Addr, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it ends by stop; until then a failing scrape is the scraper's to tell
	}()
	return l.Addr(), func() {
		_ = srv.Close()
		<-done
	}, nil
}
