//go:build linux

package boot

import (
	"context"
	"errors"
	"log"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// LXCFSCheckPeriod is the time between checks of the files of lxcfs.
const LXCFSCheckPeriod = time.Second

// lxcfsFiles are files in /proc that report the resources of the VM, and not the node's, on nodes with lxcfs
// (https://linuxcontainers.org/lxcfs/). The first is read in each check, because it takes the least work.
var lxcfsFiles = []string{"uptime", "cpuinfo", "loadavg", "meminfo", "stat", "swaps"}

// lxcfs mounts files of lxcfs in /proc.
type lxcfs struct {
	sys     system.System
	log     *log.Logger
	mounted []string // of lxcfsFiles
}

// startLXCFSMounts mounts the files of lxcfs, and starts a process that keeps them readable while the VM runs: see [LXCFSMounts].
func (v *vm) startLXCFSMounts(context.Context) error {
	exists, err := files.IsDirectory(v.sys, "/bosh/lxcfs")
	if err != nil || !exists {
		return err
	}
	if err := v.mountUncoveredProc(); err != nil {
		return err
	}
	l := &lxcfs{sys: v.sys, log: v.log}
	if !l.mount() {
		v.log.Print("/proc reports the node's resources: lxcfs is not mounted at kubernetes.pods.lxcfs_path on the node, " +
			"or the container is not allowed to mount")
	}
	const name = "lxcfs-mounts"
	return v.sys.StartProcess("/proc/self/exe", append([]string{name, "vm", name}, l.mounted...), true)
}

// mountUncoveredProc mounts another procfs, which only root can reach. The kernel lets a process in a new user namespace, for example an
// unprivileged container of Garden, mount procfs only if there is one in which no file is covered. The files of lxcfs cover some in /proc.
func (v *vm) mountUncoveredProc() error {
	const nested = "/bosh/nested"
	if err := v.sys.MkdirAll(nested+"/proc", 0o755); err != nil {
		return err
	}
	if err := v.sys.Chmod(nested, 0o700); err != nil {
		return err
	}
	err := v.sys.Mount("proc", nested+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil && mounts.NotAllowed(err) {
		return nil
	}
	return err
}

// LXCFSMounts unmounts the files of lxcfs when lxcfs stops, because they become unreadable, and mounts them again when lxcfs restarts.
// Programs can work with the node's numbers, but not without any. It runs while the VM runs, as another process than the init program. ps
// shows its name, lxcfs-mounts. mounted are the files that were mounted when it started.
func LXCFSMounts(ctx context.Context, sys system.System, period time.Duration, mounted []string) error {
	// The kernel named the process after the path with which it was started.
	if err := sys.WriteFile("/proc/self/comm", []byte("lxcfs-mounts"), 0o644); err != nil {
		return err
	}
	l := &lxcfs{sys: sys, log: log.New(log.Writer(), "lxcfs-mounts: ", 0), mounted: mounted}
	for system.Pause(ctx, period) == nil {
		l.check()
	}
	return ctx.Err()
}

func (l *lxcfs) check() {
	if len(l.mounted) > 0 && !l.isReadable("/proc/"+l.mounted[0]) {
		l.log.Print("lxcfs stopped on the node: /proc reports the node's resources until lxcfs runs again")
		l.unmount()
		return
	}
	l.mount()
}

// mount mounts the files that lxcfs provides and that are not mounted, and reports whether any is mounted. If lxcfs started during an
// earlier attempt, only the last ones were.
func (l *lxcfs) mount() bool {
	for _, name := range lxcfsFiles {
		source := "/bosh/lxcfs/proc/" + name
		if !slices.Contains(l.mounted, name) && l.isReadable(source) && mounts.Bind(l.sys, source, "/proc/"+name) == nil {
			l.mounted = append(l.mounted, name)
		}
	}
	return len(l.mounted) > 0
}

// unmount keeps a file that cannot be unmounted in the list, for the next attempt. EINVAL means that it is not mounted.
func (l *lxcfs) unmount() {
	l.mounted = slices.DeleteFunc(l.mounted, func(name string) bool {
		err := l.sys.Unmount("/proc/"+name, unix.MNT_DETACH)
		return err == nil || errors.Is(err, unix.EINVAL)
	})
}

// isReadable reports whether a file can be read.
func (l *lxcfs) isReadable(path string) bool {
	content, err := l.sys.ReadFile(path)
	return err == nil && len(content) > 0
}
