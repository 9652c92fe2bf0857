//go:build !linux

package servertest

import "syscall"

func endWithParent() *syscall.SysProcAttr { return nil }
