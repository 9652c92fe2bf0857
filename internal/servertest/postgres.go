package servertest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a Postgres of this process. What it committed survives its own
// crash, not that of the machine (fsync off).
type PostgresServer struct {
	// Socket is the folder of its socket, Port its port there and on 127.0.0.1.
	Socket string
	Port   int

	bin, dir string
	cred     *syscall.Credential

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// shared is the instance of this test binary.
var shared struct {
	sync.Mutex
	server *PostgresServer
	err    error
	tried  bool
}

var databases atomic.Int64

// Postgres is the URL of a new, empty database, as superuser. All tests of a binary
// share one server, which the first of them starts; see [StopPostgres].
// RECONCILE_TEST_POSTGRES names another server by the URL of a superuser.
func Postgres(t testing.TB) string {
	t.Helper()
	return newDatabase(t, sharedServer(t))
}

// PostgresTemplate is Postgres, except that the database stays until the server ends:
// for [PostgresCopy]. Another test process on the same server makes its own.
func PostgresTemplate(t testing.TB) string {
	t.Helper()
	server := sharedServer(t)
	name := databaseName()
	if err := administer(server, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("create database: %v", err)
	}
	return withDatabase(t, server, name)
}

// sharedServer is the URL of the server that the tests of this binary share.
func sharedServer(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("RECONCILE_TEST_POSTGRES"); given != "" {
		return given
	}
	bin, err := PostgresBinaries()
	if err != nil {
		missing(t, "postgres", "%v", err)
	}
	shared.Lock()
	defer shared.Unlock()
	if !shared.tried {
		shared.server, shared.err = startPostgres(bin)
		shared.tried = true
	}
	if shared.err != nil {
		t.Fatalf("start postgres: %v", shared.err)
	}
	return shared.server.URL("postgres")
}

// NewPostgres starts a server for one test alone, which may stop it and start it
// again. It ends with the test.
func NewPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	bin, err := PostgresBinaries()
	if err != nil {
		missing(t, "postgres", "%v", err)
	}
	s, err := startPostgres(bin)
	if err != nil {
		t.Fatalf("start postgres: %v", err)
	}
	t.Cleanup(s.remove)
	return s
}

// StopPostgres ends the shared server and removes its files. TestMain calls it after
// m.Run; without that the server ends with the process and the next one removes them.
func StopPostgres() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.remove()
		shared.server, shared.tried = nil, false
	}
}

// PostgresBinaries is the folder of the newest initdb and postgres on this machine:
// that of PATH, else Debian's.
func PostgresBinaries() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(real), "postgres")); err == nil {
				return filepath.Dir(real), nil
			}
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is good
	if len(found) == 0 {
		return "", errors.New("neither PATH nor /usr/lib/postgresql has initdb")
	}
	major := func(p string) int {
		n, _ := strconv.Atoi(strings.Split(p, "/")[4]) // what is no number comes first
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return major(a) - major(b) })
	return filepath.Dir(found[len(found)-1]), nil
}

// folderPrefix begins the names of the servers' folders; the process id follows.
const folderPrefix = "reconcile-postgres-"

func startPostgres(bin string) (*PostgresServer, error) {
	sweepFolders()
	// Not below the test's own folder: a socket's path has little room, and the user
	// postgres must be able to get there.
	dir, err := os.MkdirTemp("", folderPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{Socket: dir, bin: bin, dir: dir}
	if err := s.init(); err != nil {
		_ = os.RemoveAll(dir) // the error tells more
		return nil, err
	}
	var lastErr error
	for range 3 { // between finding a free port and taking it, somebody else may
		if lastErr = s.start(); lastErr == nil {
			return s, nil
		}
	}
	_ = os.RemoveAll(dir) // the error tells more
	return nil, lastErr
}

// sweepFolders removes what killed test processes left.
func sweepFolders() {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*")) // the pattern is good
	for _, dir := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), folderPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir) // somebody else's, or another does the same
		}
	}
}

// init makes the files. Postgres refuses to run as root.
func (s *PostgresServer) init() error {
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return fmt.Errorf("root may not run postgres, and there is no user postgres: %w", err)
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2, os.Chown(s.dir, uid, gid)); err != nil {
			return err
		}
		s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	out, err := s.command("initdb", "-D", filepath.Join(s.dir, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (s *PostgresServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "HOME=" + s.dir, "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.SysProcAttr = endWithParent()
	if s.cred != nil {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Credential = s.cred
	}
	return cmd
}

func (s *PostgresServer) start() error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	_, port, _ := strings.Cut(addr, ":")
	if s.Port == 0 {
		if s.Port, err = strconv.Atoi(port); err != nil {
			return err
		}
	}
	logFile, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }() // the child has its own handle
	cmd := s.command("postgres", "-D", filepath.Join(s.dir, "data"), "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-k", s.Socket,
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "shared_buffers=64MB", "-c", "max_connections=200")
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in the log
		close(ended)
	}()
	s.mu.Lock()
	s.cmd, s.ended = cmd, ended
	s.mu.Unlock()
	if err := s.ready(ended); err != nil {
		s.Stop()
		s.Port = 0
		text, _ := os.ReadFile(filepath.Join(s.dir, "log")) // an empty log is no worse
		return errors.Join(err, errors.New(strings.TrimSpace(string(text))))
	}
	return nil
}

func (s *PostgresServer) ready(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ended:
			return errors.New("ended at once")
		case <-ctx.Done():
			return err
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// URL of a database of the server, as superuser over 127.0.0.1.
func (s *PostgresServer) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.Port, database)
}

// SocketURL is URL over the socket.
func (s *PostgresServer) SocketURL(database string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&port=%d", database, url.QueryEscape(s.Socket), s.Port)
}

// PID of the server; 0 when it is stopped.
func (s *PostgresServer) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Stop ends the server at once, as a crash would; Start goes on from there.
func (s *PostgresServer) Stop() {
	s.mu.Lock()
	cmd, ended := s.cmd, s.ended
	s.cmd = nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGQUIT) // immediate shutdown; already gone is as good
	<-ended
}

// Start starts a stopped server on the same port.
func (s *PostgresServer) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatalf("start postgres: %v", err)
	}
}

func (s *PostgresServer) remove() {
	s.Stop()
	_ = os.RemoveAll(s.dir) // the next run sweeps what is left
}

// PostgresCopy is the URL of a new database that holds what another one holds. Nobody
// may be connected to that.
func PostgresCopy(t testing.TB, from string) string {
	t.Helper()
	u, err := url.Parse(from)
	if err != nil {
		t.Fatal("the template's URL is none")
	}
	return createDatabase(t, withDatabase(t, from, "postgres"), strings.TrimPrefix(u.Path, "/"))
}

// newDatabase makes an empty database on a server and drops it after the test.
func newDatabase(t testing.TB, server string) string {
	t.Helper()
	return createDatabase(t, server, "template0")
}

func createDatabase(t testing.TB, server, template string) string {
	t.Helper()
	name := databaseName()
	if err := administer(server, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		if err := administer(server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return withDatabase(t, server, name)
}

func databaseName() string { return fmt.Sprintf("t%d_%d", os.Getpid(), databases.Add(1)) }

func administer(server, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// withDatabase is the URL of another database of a server.
func withDatabase(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal("RECONCILE_TEST_POSTGRES is no URL") // which may hold a password
	}
	u.Path = "/" + name
	return u.String()
}
