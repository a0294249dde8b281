//go:build linux

// Package probe reports what a node provides for a VM. It runs like a VM, and changes nothing on the node, except that the kernel may load
// modules.
package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

const (
	// terminationLog becomes the termination message of the Pod. It contains a line "NAME VALUE" for each fact.
	terminationLog = "/dev/termination-log"
	// directory is for mounts.
	directory = "/tmp/bosh-probe"
	// checkTimeout is the longest time for a check, for example if another program holds the lock of iptables.
	checkTimeout = time.Minute
)

// Run reports the facts in the termination message of the Pod, one after the other. A fact that it cannot find out is "no", and the reason
// is in the log. It fails if it cannot report. apiServer is HOST:PORT of the API server.
func Run(ctx context.Context, sys system.System, request api.NodeProbe, apiServer string) error {
	file, err := sys.Open(terminationLog, unix.O_WRONLY|unix.O_CREAT, 0o644)
	if err != nil {
		return fmt.Errorf("open the termination message: %w", err)
	}
	defer file.Close() // each line is written

	n := node{sys, file, 0}
	if err := n.sys.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	if err := n.sys.Mount("tmpfs", directory, "tmpfs", 0, ""); err != nil {
		slog.InfoContext(ctx, "cannot mount a tmpfs", "error", err)
	} else {
		defer n.unmount(ctx)
	}
	if err := n.reportCgroups(ctx); err != nil {
		return err
	}
	for _, check := range n.checks(request, apiServer) {
		if err := n.report(check.name, n.try(ctx, check)); err != nil {
			return err
		}
	}
	return nil
}

type node struct {
	sys    system.System
	log    *system.File
	offset int64 // of the next line in log
}

// report adds a fact to the termination message.
func (n *node) report(name, value string) error {
	line := name + " " + value + "\n"
	if err := n.log.WriteAt([]byte(line), n.offset); err != nil {
		return fmt.Errorf("report %s: %w", name, err)
	}
	n.offset += int64(len(line))
	return nil
}

// check is a fact that is "yes" if run returns nil, and otherwise "no".
type check struct {
	name string
	run  func(ctx context.Context) error
}

// try returns the value of the fact.
func (n *node) try(ctx context.Context, check check) string {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := check.run(ctx); err != nil {
		slog.InfoContext(ctx, "the node does not provide it", "fact", check.name, "error", err)
		return "no"
	}
	return "yes"
}

func (n *node) unmount(ctx context.Context) {
	if err := n.sys.Unmount(directory, unix.MNT_DETACH); err != nil {
		slog.InfoContext(ctx, "cannot unmount the tmpfs", "error", err)
	}
}

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
