package sqlite

import (
	"fmt"
	"syscall"
)

// Magic numbers of file systems that lie on other machines, from statfs(2).
var remote = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9P", 0x0bd00bd0: "Lustre", 0x00c36400: "Ceph", 0x47504653: "GPFS",
}

// checkDisk refuses a folder on another machine, where a crash or a second host would
// break the file.
func checkDisk(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if kind, far := remote[int64(st.Type)&0xffffffff]; far {
		return fmt.Errorf("%s lies on %s; a ledger file needs a local disk, and several hosts need postgres://", dir, kind)
	}
	return nil
}
