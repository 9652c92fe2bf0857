//go:build !linux

package sqlite

func checkDisk(string) error { return nil }
