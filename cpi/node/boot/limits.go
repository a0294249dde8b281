//go:build linux

package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// disableGroupKill makes the kernel kill one process of the VM when the VM's memory is used up, as on a VM with its own kernel, so that
// monit restarts the job. On cgroup v2, the kubelet sets memory.oom.group unless singleProcessOOMKill is set, and the kernel then kills the
// whole container.
func (v *vm) disableGroupKill(context.Context) error {
	cgroups, err := files.Read(v.sys, "/proc/self/cgroup") // a sandbox may not have this file
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(cgroups)) {
		cgroup, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !found {
			continue
		}
		path := filepath.Join("/sys/fs/cgroup", cgroup, "memory.oom.group")
		value, err := files.Read(v.sys, path)
		if err != nil {
			return err
		}
		if string(bytes.TrimSpace(value)) != "1" {
			continue
		}
		if err := v.sys.WriteFile(path, []byte("0\n"), 0o644); err != nil {
			v.log.Print("the whole VM restarts when its memory is used up: cannot write memory.oom.group of its cgroup")
		}
	}
	return nil
}

// maxOpenFiles is systemd's default hard limit, DefaultLimitNOFILE=1024:524288.
const maxOpenFiles = 524288

// raiseLimits raises the hard limits, because the container runtime's are meant for one program, but a VM runs many. The VM's programs get
// the container's soft limits: they raise their own.
func (v *vm) raiseLimits(ctx context.Context) error {
	for _, resource := range []int{unix.RLIMIT_NPROC, unix.RLIMIT_CORE} {
		limit, err := v.sys.Limit(resource)
		if err != nil {
			return fmt.Errorf("read a limit: %w", err)
		}
		if limit.Max == unix.RLIM_INFINITY {
			continue
		}
		limit.Max = unix.RLIM_INFINITY
		if err := v.sys.SetLimit(resource, limit); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("raise a limit: %w", err)
		}
	}
	cat, err := v.requireProgram("cat")
	if err != nil {
		return err
	}
	limit, err := v.sys.OpenFiles(ctx, v.sys.Path(cat))
	if err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	return v.raiseOpenFiles(limit)
}

// raiseOpenFiles raises the limit with which the container started.
func (v *vm) raiseOpenFiles(limit unix.Rlimit) error {
	if limit.Max >= maxOpenFiles { // also if it is unlimited
		return nil
	}
	current := limit.Max
	limit.Max = maxOpenFiles
	err := v.sys.SetLimit(unix.RLIMIT_NOFILE, limit)
	if errors.Is(err, fs.ErrPermission) {
		v.log.Printf("programs can open %d files, not %d as on other VMs: the container is not allowed to raise the limit", current, maxOpenFiles)
		return nil
	}
	if err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}
