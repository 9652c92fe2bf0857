package postgres

import (
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux.
const tcpUserTimeout = 0x12

// giveUpUnsent ends a connection whose peer acknowledges nothing: keepalives are not
// sent while data waits, and without this it waits a quarter of an hour.
func giveUpUnsent(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(silence.Milliseconds())) // a socket of files has none
	})
}
