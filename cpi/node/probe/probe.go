//go:build linux

// Package probe reports what a node provides for a VM. It runs like a VM, and changes nothing on the node, except that the kernel may load
// modules.
package probe

import (
	"context"
	"fmt"
	"log/slog"
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
