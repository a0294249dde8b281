//go:build linux

// Package cgroups prepares the cgroups of a VM: the VM sees the cgroups of its container, and not the node's.
//
// On cgroup v2, a privileged container can see and write the node's whole tree. On cgroup v1, it sees only its own cgroups, but with their
// names on the node.
package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// directory is where programs expect the cgroups.
const directory = "/sys/fs/cgroup"

// Cgroups are the cgroups of a VM that starts.
type Cgroups struct {
	Sys     system.System
	Log     *log.Logger
	Systemd bool // the init program is systemd, which manages cgroups itself
	// Pause waits between attempts; nil: for the time that it gets.
	Pause func(context.Context, time.Duration) error
}

// Enter moves the calling thread to a cgroup namespace with the container's cgroup as its root, and mounts the cgroup filesystem there,
// which then shows only the cgroups of the namespace. The goroutine must have called [runtime.LockOSThread], and must execute the init
// program itself: the namespace belongs to the thread, and other threads of this process are not in it.
//
// Without the permission to create a namespace, the VM keeps the container's cgroups.
func (c Cgroups) Enter(ctx context.Context) error {
	err := c.Sys.Unshare(unix.CLONE_NEWCGROUP)
	if err == nil {
		return c.mount(ctx)
	}
	if mounts.NotAllowed(err) || isLimit(err) {
		c.Log.Printf("cannot create a cgroup namespace, keeping the container's cgroups: %v", err)
		return nil
	}
	return fmt.Errorf("create a cgroup namespace: %w", err)
}

// mount mounts the cgroups for the init program. It mounts cgroup v2 at another path first, because the kernel does not mount it twice at
// the same path. It replaces the container's mount, because BOSH's stemcells expect exactly one mount, and the node's tree must not become
// visible if that mount is unmounted.
func (c Cgroups) mount(ctx context.Context) error {
	second, err := c.isVersion2()
	if err != nil {
		return err
	}
	if !second {
		return c.remountVersion1()
	}
	root, err := mounts.Temporary(c.Sys, "cgroup")
	if err != nil {
		return err
	}
	if err := c.Sys.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		if !mounts.NotAllowed(err) {
			return err
		}
		c.Log.Printf("cannot mount cgroup v2, keeping the container's %s: %v", directory, err)
		return c.Sys.Remove(root)
	}
	visible, err := c.visible(ctx, root)
	if err != nil {
		return err
	}
	if err := c.Sys.Unmount(directory, unix.MNT_DETACH); err != nil && !mounts.NotAllowed(err) {
		return err
	}
	if err := mounts.Bind(c.Sys, visible, directory); err != nil {
		return err
	}
	if err := c.Sys.Unmount(root, 0); err != nil {
		return err
	}
	return c.Sys.Remove(root)
}

// visible returns the cgroup that the VM sees as the root.
func (c Cgroups) visible(ctx context.Context, root string) (string, error) {
	if c.Systemd { // systemd creates cgroups itself
		return root, nil
	}
	failed, err := c.createForContainers(ctx, root)
	switch {
	case err == nil && failed == "":
		return filepath.Join(root, "vm"), nil
	case err == nil:
		c.Log.Printf("containers in the VM cannot have their own limits: cannot delegate these controllers of the VM's cgroup: %s", failed)
	case mounts.NotAllowed(err) || isLimit(err):
		c.Log.Printf("containers in the VM cannot have their own limits: %v", err)
	default:
		return "", err
	}
	return root, nil
}

// isVersion2 reports whether the cgroups are of version 2. A container without cgroups has none of version 2.
func (c Cgroups) isVersion2() (bool, error) {
	exists, err := c.Sys.Exists(directory)
	if err != nil || !exists {
		return false, err
	}
	stat, err := c.Sys.Statfs(directory)
	return stat.Type == unix.CGROUP2_SUPER_MAGIC, err
}

// remountVersion1 makes cgroup v1, which is read-only in an unprivileged container, writable. The VM needs to create cgroups: otherwise,
// the monit of BOSH's stemcells does not run any command on nodes with the controller net_cls. systemd also creates directories for its own
// hierarchies.
func (c Cgroups) remountVersion1() error {
	all, err := mounts.Read(c.Sys)
	if err != nil {
		return err
	}
	for _, mount := range all {
		if mount.Target == directory && c.Systemd || strings.HasPrefix(mount.Target, directory+"/") {
			if err := c.makeWritable(mount.Target); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Cgroups) makeWritable(path string) error {
	stat, err := c.Sys.Statfs(path)
	if err != nil || stat.Flags&unix.ST_RDONLY == 0 {
		return err
	}
	err = mounts.Remount(c.Sys, path, unix.MS_RDONLY)
	if err != nil && mounts.NotAllowed(err) {
		c.Log.Printf("cannot make %s writable: %v", path, err)
		return nil
	}
	return err
}

// createForContainers creates the cgroups in which programs of the VM create containers, and returns the controllers that it cannot
// delegate. Limits require that a cgroup delegates its controllers. Such a cgroup cannot contain processes (cgroups(7), "no internal
// processes"). The VM's processes are therefore in the cgroup "init". The container runtime adds later processes of the container there,
// too.
//
// /sys/fs/cgroup shows the cgroup "vm", which has no processes, instead of the root. Programs derive the names of new cgroups from the name
// of their own cgroup: runc creates them next to it, and the monit of BOSH's stemcells below it. In the root, they would be in "init",
// which has processes. In "vm", the same names are of cgroups without processes.
//
// Programs that read their limits in the root, or in the cgroup with their name, find the VM's limits, which apply anyway.
func (c Cgroups) createForContainers(ctx context.Context, root string) (failed string, err error) {
	vm := filepath.Join(root, "vm")
	for _, path := range []string{filepath.Join(root, "init"), vm} {
		if err := c.Sys.MkdirAll(path, 0o755); err != nil {
			return "", err
		}
	}
	for _, path := range []string{root, vm} {
		if failed, err := c.delegate(ctx, path); err != nil || failed != "" {
			return failed, err
		}
	}
	inVM := filepath.Join(vm, "init")
	if err := c.Sys.MkdirAll(inVM, 0o755); err != nil {
		return "", err
	}
	for _, path := range []string{vm, inVM} {
		if err := c.copyLimits(root, path); err != nil {
			return "", err
		}
	}
	return "", nil
}

// copyLimits copies the limits of a cgroup to another one. That one may reject a limit: the VM's limit applies anyway.
func (c Cgroups) copyLimits(from, to string) error {
	for _, name := range []string{"memory.max", "cpu.max", "pids.max"} {
		limit, err := files.Read(c.Sys, filepath.Join(from, name))
		if err != nil {
			return err
		}
		if limit == nil {
			continue // the controller is not available
		}
		if err := c.Sys.WriteFile(filepath.Join(to, name), limit, 0o644); err != nil {
			c.Log.Printf("programs in the VM do not see its %s: %v", name, err)
		}
	}
	return nil
}

// delegate enables all controllers of a cgroup for its children, and returns those that it cannot enable. It retries for ten seconds,
// because a new process of the container, such as a probe, prevents that until it exits or is moved.
func (c Cgroups) delegate(ctx context.Context, group string) (failed string, err error) {
	controllers, err := c.Sys.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return "", err
	}
	for range 100 {
		if err := c.moveProcesses(group); err != nil {
			return "", err
		}
		failed, err = c.enable(group, strings.Fields(string(controllers)))
		if err != nil || failed == "" {
			return "", err
		}
		remaining, err := c.Sys.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil || len(remaining) == 0 {
			return failed, err
		}
		if err := c.pause(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
	return failed, nil
}

// moveProcesses moves the processes of a cgroup to its child "init". Process ID 0 is a process outside of this PID namespace. A process may
// exit, or cannot be moved: delegate reports what that prevents.
func (c Cgroups) moveProcesses(group string) error {
	processes, err := c.Sys.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return err
	}
	for process := range strings.FieldsSeq(string(processes)) {
		if process != "0" {
			_ = c.Sys.WriteFile(filepath.Join(group, "init", "cgroup.procs"), []byte(process), 0o644)
		}
	}
	return nil
}

// enable enables controllers of a cgroup for its children, and returns those that it cannot enable: see cgroups(7) for EBUSY and ENOENT.
func (c Cgroups) enable(group string, controllers []string) (failed string, err error) {
	var rejected []string
	for _, controller := range controllers {
		err := c.Sys.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		switch {
		case err == nil:
		case mounts.NotAllowed(err), errors.Is(err, fs.ErrNotExist):
			rejected = append(rejected, controller)
		default:
			return "", err
		}
	}
	return strings.Join(rejected, " "), nil
}

func (c Cgroups) pause(ctx context.Context, duration time.Duration) error {
	if c.Pause != nil {
		return c.Pause(ctx, duration)
	}
	return system.Pause(ctx, duration)
}

// isLimit reports whether the kernel allows no more namespaces or cgroups: see max_cgroup_namespaces in namespaces(7).
func isLimit(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EAGAIN) }
