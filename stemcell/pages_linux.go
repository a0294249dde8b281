package stemcell

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartPages releases resident pages of the program file, which count as memory of this process. The initialization of all packages
// reads three quarters of the file, but an upload, which takes minutes, needs only a third. The kernel maps pages that are needed again
// from the page cache. It releases pages by itself only when memory is short. Only unmodified mappings of the file can be released; see
// proc_pid_smaps(5).
//
// The peak of a push is 15.0 MiB without this function, and 12.5 MiB with it. crane needs 12.6 MiB for the same image
// (BenchmarkHeavyStemcell).
func releaseStartPages() {
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var start, end uint64
	for line := range strings.Lines(string(mappings)) {
		fields := strings.Fields(line)
		switch {
		case !strings.HasSuffix(fields[0], ":"): // addresses, protection, offset, device, inode, path
			start, end = readOnlyMapping(fields)
		case fields[0] == "Anonymous:" && fields[1] == "0" && end > 0:
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED)
		}
	}
}

// readOnlyMapping returns the address range of a read-only mapping of a file. It returns zeros for other mappings.
func readOnlyMapping(fields []string) (start, end uint64) {
	if len(fields) < 6 || !strings.HasPrefix(fields[5], "/") || strings.Contains(fields[1], "w") {
		return 0, 0
	}
	if _, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end); err != nil {
		return 0, 0
	}
	return start, end
}
