//go:build linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// reportCgroups reports the kernel, and the version and state of the cgroups.
func (n *node) reportCgroups(ctx context.Context) error {
	release, err := n.sys.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return fmt.Errorf("read the version of the kernel: %w", err)
	}
	if err := n.report("kernel", strings.TrimSpace(string(release))); err != nil {
		return err
	}
	filesystem, err := n.sys.Statfs("/sys/fs/cgroup")
	if err != nil {
		return fmt.Errorf("find the version of the cgroups: %w", err)
	}
	version, controllers := "v2", "yes"
	if filesystem.Type != unix.CGROUP2_SUPER_MAGIC {
		version, controllers = "v1", n.try(ctx, check{"cgroup-controllers", n.hasControllers})
	}
	if err := errors.Join(n.report("cgroup", version), n.report("cgroup-controllers", controllers)); err != nil {
		return err
	}
	return n.reportOOMGroup()
}

// hasControllers returns nil if all controllers of the kernel are mounted. Garden requires this with cgroup v1.
func (n *node) hasControllers(context.Context) error {
	content, err := n.sys.ReadFile("/proc/cgroups")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line) // name, hierarchy, number of cgroups, enabled
		if len(fields) < 4 || strings.HasPrefix(line, "#") {
			continue
		}
		if fields[1] == "0" && fields[3] != "0" {
			return fmt.Errorf("the cgroup controller %s is not mounted", fields[0])
		}
	}
	return nil
}

// reportOOMGroup reports whether the kernel kills all processes of the VM, and not only one, if they use too much memory. Only cgroup v2
// has this setting.
func (n *node) reportOOMGroup() error {
	content, err := n.sys.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("find the cgroup: %w", err)
	}
	cgroup := ""
	for line := range strings.Lines(string(content)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			cgroup = strings.TrimSuffix(path, "\n")
		}
	}
	for _, directory := range []string{"/sys/fs/cgroup" + cgroup, "/sys/fs/cgroup"} {
		value, err := n.sys.ReadFile(directory + "/memory.oom.group")
		if system.Gone(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("find out what the kernel kills without memory: %w", err)
		}
		return n.report("oom-group", strings.TrimSpace(string(value)))
	}
	return nil
}
