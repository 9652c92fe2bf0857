package postgres

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// pooler stands between clients and a server and hands out server connections by the
// transaction, or, with session set, by the client's connection.
type pooler struct {
	t       testing.TB
	server  string
	session bool
	// fifo hands out the connection that was given back first, as some poolers do.
	fifo bool

	mu   sync.Mutex
	idle []*upstream
	all  []net.Conn
}

type upstream struct {
	net.Conn
	front *pgproto3.Frontend
}

func startPooler(t testing.TB, databaseURL string, session, fifo bool) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pooler{t: t, server: u.Host, session: session, fifo: fifo}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.keep(c)
			go p.serve(c, u.Path[1:])
		}
	}()
	t.Cleanup(func() {
		_ = l.Close() // that it ends is the point
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.all {
			_ = c.Close() // as above
		}
	})
	u.Host = l.Addr().String()
	return u.String()
}

func (p *pooler) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, c)
}

func (p *pooler) take(database string) (*upstream, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		i := n - 1
		if p.fifo {
			i = 0
		}
		s := p.idle[i]
		p.idle = append(p.idle[:i], p.idle[i+1:]...)
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	c, err := net.Dial("tcp", p.server)
	if err != nil {
		return nil, err
	}
	p.keep(c)
	s := &upstream{c, pgproto3.NewFrontend(c, c)}
	s.front.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "postgres", "database": database}})
	if err := s.front.Flush(); err != nil {
		return nil, err
	}
	for {
		m, err := s.front.Receive()
		if err != nil {
			return nil, err
		}
		if _, ok := m.(*pgproto3.ReadyForQuery); ok {
			return s, nil
		}
	}
}

func (p *pooler) give(s *upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

// serve speaks with one client.
func (p *pooler) serve(c net.Conn, database string) {
	back := pgproto3.NewBackend(c, c)
	if _, err := back.ReceiveStartupMessage(); err != nil {
		return
	}
	back.Send(&pgproto3.AuthenticationOk{})
	for k, v := range map[string]string{"client_encoding": "UTF8", "standard_conforming_strings": "on", "server_version": "15.0", "integer_datetimes": "on"} {
		back.Send(&pgproto3.ParameterStatus{Name: k, Value: v})
	}
	back.Send(&pgproto3.BackendKeyData{ProcessID: 4711, SecretKey: []byte{0, 0, 0, 1}})
	back.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := back.Flush(); err != nil {
		return
	}
	var s *upstream
	for {
		m, err := back.Receive()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.Terminate); ok {
			return
		}
		if s == nil {
			if s, err = p.take(database); err != nil {
				return // the client sees the end of its connection
			}
		}
		s.front.Send(m)
		switch m.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
		case *pgproto3.Flush:
			p.t.Error("pooler: the client flushed")
			return
		default:
			continue
		}
		if err := s.front.Flush(); err != nil {
			return
		}
		free, err := relay(s, back)
		if err != nil {
			return
		}
		if free && !p.session {
			p.give(s) // before the client knows, so that whoever comes next finds it
			s = nil
		}
		if err := back.Flush(); err != nil {
			return
		}
	}
}

// relay hands on answers up to the end of one, which is left to be flushed; free tells
// that no transaction is open.
func relay(s *upstream, back *pgproto3.Backend) (free bool, err error) {
	for {
		m, err := s.front.Receive()
		if err != nil {
			return false, err
		}
		back.Send(m)
		switch m := m.(type) {
		case *pgproto3.ReadyForQuery:
			return m.TxStatus == 'I', nil
		case *pgproto3.CopyInResponse:
			if err := copyIn(s, back); err != nil {
				return false, err
			}
		}
	}
}

func copyIn(s *upstream, back *pgproto3.Backend) error {
	if err := back.Flush(); err != nil {
		return err
	}
	for {
		m, err := back.Receive()
		if err != nil {
			return err
		}
		s.front.Send(m)
		switch m.(type) {
		case *pgproto3.CopyDone, *pgproto3.CopyFail:
			return s.front.Flush()
		}
	}
}

func TestATransactionModePoolerIsRefused(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprintf("fifo %v", fifo), func(t *testing.T) {
			t.Parallel()
			through := startPooler(t, url, false, fifo)
			for range 3 { // also when sessions are left over from others
				l, err := Open(t.Context(), through)
				if err == nil {
					_ = l.Close() // what matters is that it opened
				}
				if !errors.Is(err, ledger.ErrPooler) {
					t.Errorf("opened through a transaction-mode pooler: %v", err)
				}
				if _, err := NewMigrator(t.Context(), through, "test"); !errors.Is(err, ledger.ErrPooler) {
					t.Errorf("migrate through a transaction-mode pooler: %v", err)
				}
			}
		})
	}
}

func TestASessionModePoolerIsTaken(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	l := openURL(t, startPooler(t, url, true, false))
	lease, err := l.Acquire(t.Context(), "s3://bucket/x", "alice", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
}

// What swaps sessions later, when nobody looks, is found out by the next transaction.
func TestASessionThatIsSwappedLaterIsFoundOut(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	db, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // nothing of it is needed any more
	conns := db.pool.AcquireAllIdle(t.Context())
	for _, c := range conns {
		if _, err := c.Exec(t.Context(), "SELECT set_config('reconcile.session', 'another', false)"); err != nil {
			t.Fatal(err)
		}
		c.Release()
	}
	err = db.Write(t.Context(), nil)
	if !errors.Is(err, ledger.ErrPooler) || len(conns) == 0 {
		t.Errorf("%d sessions of somebody else: %v", len(conns), err)
	}
}

// The real thing, where it is installed.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("no pgbouncer in PATH")
	}
	server := migrated(t)
	for mode, want := range map[string]error{"transaction": ledger.ErrPooler, "statement": ledger.ErrPooler, "session": nil} {
		t.Run(mode, func(t *testing.T) {
			l, err := Open(t.Context(), pgbouncer(t, bin, server, mode))
			if err == nil {
				_, err = l.Now(t.Context())
				_ = l.Close() // what matters is that it opened
			}
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}

func pgbouncer(t *testing.T, bin, server, mode string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close() // the port is what was wanted
	dir, err := os.MkdirTemp("", "pgbouncer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left is small
	ini := filepath.Join(dir, "ini")
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%s user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\nauth_type = any\npool_mode = %s\n", u.Port(), port, mode)
	if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, ini)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if os.Getuid() == 0 {
		who, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("pgbouncer does not run as root")
		}
		uid, _ := strconv.Atoi(who.Uid)
		gid, _ := strconv.Atoi(who.Gid)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // already gone is as good
		_ = cmd.Wait()         // how it ended does not matter
	})
	for range 100 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			_ = c.Close() // it answers
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	u.Host = "127.0.0.1:" + port
	return u.String()
}
