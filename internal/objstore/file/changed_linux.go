package file

import (
	"io/fs"
	"syscall"
)

// changed is when the file last changed in any way, in Unix nanoseconds: no program can
// set it, as copies that keep times set the time of the bytes.
func changed(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return 0
}
