//go:build linux

package system

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CachedStat returns the type and the device numbers of a file from the kernel's memory. Unlike Stat, it does not ask the server of a
// network filesystem, which may not respond, and it does not need permissions in a FUSE filesystem.
func (s System) CachedStat(path string) (stat unix.Stat_t, err error) {
	return ask(s, "statx", path, func(path string) (stat unix.Stat_t, err error) {
		var found unix.Statx_t
		err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &found)
		stat.Mode = uint32(found.Mode)
		stat.Dev = unix.Mkdev(found.Dev_major, found.Dev_minor)
		stat.Rdev = unix.Mkdev(found.Rdev_major, found.Rdev_minor)
		return stat, err
	})
}

// MountID returns the ID of the mount of a file, as in mountinfo. It follows links, and asks no filesystem.
func (s System) MountID(path string) (int, error) {
	return ask(s, "mountid", path, func(path string) (int, error) {
		file, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		defer file.Close() // it is only a reference
		info, err := os.ReadFile(fmt.Sprintf("/proc/thread-self/fdinfo/%d", file.Fd()))
		if err != nil {
			return 0, fmt.Errorf("read the mount ID of %s: %s", path, err) //nolint:errorlint // it does not mean that the file is gone
		}
		return ParseMountID(string(info))
	})
}

// ParseMountID returns the ID of the mount in the content of a file in /proc/PID/fdinfo.
func ParseMountID(info string) (int, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("no mnt_id in fdinfo")
}

// A ProcessHandle refers to a process. Unlike its ID, it never refers to another process after the process exited.
type ProcessHandle struct {
	system     System
	id         int
	descriptor int // or -1
}

// OpenProcess returns a handle of the process. The caller must then check that the process is the expected one, because its ID may have
// been reused before. The error is ESRCH if there is no such process.
//
// gVisor has no pidfd_open(2). There, the handle is only the ID.
func (s System) OpenProcess(id int) (*ProcessHandle, error) {
	descriptor, err := ask(s, "pidfd_open", processPath(id), func(string) (int, error) { return unix.PidfdOpen(id, 0) })
	if errors.Is(err, unix.ENOSYS) {
		descriptor, err = -1, nil
	}
	if err != nil {
		return nil, err
	}
	return &ProcessHandle{s, id, descriptor}, nil
}

func processPath(id int) string { return fmt.Sprintf("/proc/%d", id) }

// Signal sends a signal to the process. The error is ESRCH if it exited.
func (p *ProcessHandle) Signal(signal unix.Signal) error {
	return p.system.call("kill", processPath(p.id), func(string) error {
		if p.descriptor < 0 {
			return unix.Kill(p.id, signal)
		}
		return unix.PidfdSendSignal(p.descriptor, signal, nil, 0)
	})
}

// Exited reports whether the process exited.
func (p *ProcessHandle) Exited() (exited bool, err error) {
	err = p.system.call("poll", processPath(p.id), func(string) error {
		if p.descriptor < 0 {
			err := unix.Kill(p.id, 0)
			exited = errors.Is(err, unix.ESRCH)
			if exited {
				return nil
			}
			return err
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(p.descriptor), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor
		exited = ready > 0
		return err
	})
	return exited, err
}

// Close releases the handle.
func (p *ProcessHandle) Close() error {
	if p.descriptor < 0 {
		return nil
	}
	return unix.Close(p.descriptor)
}

// LowerOOMScore makes the kernel kill other programs first when the node's memory is used up. It sets the score of guaranteed Pods. Without
// CAP_SYS_RESOURCE, the score stays as set by the kubelet.
//
// If an attachment is killed while its Pod is being deleted, the kubelet does not restart it, and unmaps the volume although the VM uses
// its filesystem. If a reboot is killed, the VM's services stay suspended.
func (s System) LowerOOMScore() {
	file, err := s.Open("/proc/self/oom_score_adj", unix.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer file.Close()
	_ = file.WriteAt([]byte("-997"), 0)
}
