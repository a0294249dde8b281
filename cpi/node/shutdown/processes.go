//go:build linux

// Package shutdown stops the processes of a VM: from inside, before its container is stopped, and from its node, to reboot it.
package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// The kinds of processes in a VM.
const (
	supervisor = "supervisor" // runsv of runit, which exits with its service
	logger     = "logger"     // svlogd of runit, which exits with its service
	service    = "service"    // started by runsv
	job        = "job"        // all others, such as those started by monit
)

// The names of init programs. All others are handled like runsvdir of runit.
const (
	systemd  = "systemd"
	initLink = "init"      // a link to systemd
	vmStart  = "bosh-node" // the VM is still starting, and has no services and jobs yet
)

// interval is the time between scans of the processes.
const interval = 100 * time.Millisecond

// timeouts are how long others may take.
type timeouts struct {
	exit   time.Duration // for processes to exit after SIGTERM
	reboot time.Duration // for systemd to exit
}

var defaultTimeouts = timeouts{exit: 10 * time.Second, reboot: 30 * time.Second}

// vm is a VM in which processes are stopped.
type vm struct {
	sys      system.System
	timeouts timeouts
	init     process.Process
	// fromNode is true if this program also sees the processes of the node and of other VMs.
	fromNode bool
}

// processes returns the processes of these kinds in the PID namespace of the init program, without the init program, and without this
// program and its descendants. Names are compared, but never printed, because a process can choose its name.
func (v vm) processes(kinds ...string) ([]process.Process, error) {
	all, err := process.List(v.sys)
	if err != nil {
		return nil, err
	}
	namespace, err := v.namespace(v.init.ID)
	if err != nil {
		return nil, err
	}
	byID := map[int]process.Process{}
	for _, p := range all {
		byID[p.ID] = p
	}
	var found []process.Process
	for _, p := range all {
		if p.ID == v.init.ID || p.Level != v.init.Level || !slices.Contains(kinds, kindOf(p, byID)) || isSelf(p, byID) {
			continue
		}
		stoppable, err := v.isStoppable(p, namespace)
		if err != nil {
			return nil, err
		}
		if stoppable {
			found = append(found, p)
		}
	}
	return found, nil
}

func kindOf(p process.Process, byID map[int]process.Process) string {
	switch {
	case p.Name == "runsv":
		return supervisor
	case p.Name == "svlogd":
		return logger
	case byID[p.Parent].Name == "runsv":
		return service
	}
	return job
}

// isSelf reports whether the process is this program or a descendant.
func isSelf(p process.Process, byID map[int]process.Process) bool {
	for range len(byID) { // after an ID was reused, a process can be its own ancestor
		if p.ID == unix.Getpid() {
			return true
		}
		p = byID[p.Parent]
	}
	return false
}

// isStoppable reports whether the process is in the PID namespace, and has not exited.
func (v vm) isStoppable(p process.Process, namespace string) (bool, error) {
	own, err := v.namespace(p.ID)
	if err != nil {
		return false, err
	}
	// In a VM with reduced security, the PID namespace of some processes cannot be read. Those in nested namespaces have another level. On
	// the node, such a process may be of another VM.
	unknown := own == "" || namespace == ""
	if unknown {
		return !p.Exited && !v.fromNode, nil
	}
	return !p.Exited && own == namespace, nil
}

// namespace returns the PID namespace of the process, or "" if the process exited, or this program is not allowed to read it. On the node,
// it must be allowed to read that of the init program.
func (v vm) namespace(id int) (string, error) {
	namespace, err := v.sys.Readlink(fmt.Sprintf("/proc/%d/ns/pid", id))
	required := v.fromNode && id == v.init.ID
	if system.Gone(err) || errors.Is(err, unix.EACCES) && !required {
		return "", nil
	}
	return namespace, err
}

// signal sends the signals to the processes of these kinds that match. It fails if it cannot find out which processes there are.
func (v vm) signal(ctx context.Context, signals []unix.Signal, matches func(process.Process) bool, kinds ...string) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeouts.exit)
	defer cancel()
	for {
		err := v.trySignal(ctx, signals, matches, kinds...)
		if err == nil {
			return nil
		}
		if system.Pause(ctx, interval) != nil {
			return err
		}
	}
}

// trySignal finds the processes twice. A process that has a handle before it is found cannot be replaced by another one with its ID.
func (v vm) trySignal(ctx context.Context, signals []unix.Signal, matches func(process.Process) bool, kinds ...string) error {
	candidates, err := v.processes(kinds...)
	if err != nil {
		return err
	}
	handles := map[int]*system.ProcessHandle{}
	defer func() {
		for _, handle := range handles {
			_ = handle.Close()
		}
	}()
	for _, p := range candidates {
		handle, err := v.sys.OpenProcess(p.ID)
		if system.Gone(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("open process %d: %w", p.ID, err)
		}
		handles[p.ID] = handle
	}
	found, err := v.processes(kinds...)
	if err != nil {
		return err
	}
	for _, p := range found {
		if handle := handles[p.ID]; handle != nil && matches(p) {
			sendAll(ctx, handle, p.ID, signals)
		}
	}
	return nil
}

// sendAll sends the signals to a process. The others must also get theirs if that fails.
func sendAll(ctx context.Context, handle *system.ProcessHandle, id int, signals []unix.Signal) {
	for _, signal := range signals {
		err := handle.Signal(signal)
		if err != nil && !system.Gone(err) {
			slog.WarnContext(ctx, "cannot send a signal", "process", id, "signal", unix.SignalName(signal), "error", err)
		}
	}
}

// terminate sends SIGTERM to these processes, and wakes up suspended ones.
func (v vm) terminate(ctx context.Context, kinds ...string) error {
	all := func(process.Process) bool { return true }
	if err := v.signal(ctx, []unix.Signal{unix.SIGTERM, unix.SIGCONT}, all, kinds...); err != nil {
		return fmt.Errorf("terminate the processes of the VM: %w", err)
	}
	return nil
}

// waitExited waits until there are no processes of these kinds, but not longer than the timeout. It fails if ctx is done.
func (v vm) waitExited(ctx context.Context, kinds ...string) error {
	return waitUntil(ctx, v.timeouts.exit, func() bool {
		found, err := v.processes(kinds...)
		return err == nil && len(found) == 0
	})
}

// stopJobs stops the jobs, and services that are still running.
func (v vm) stopJobs(ctx context.Context) error {
	if err := v.terminate(ctx, service, job); err != nil {
		return err
	}
	return v.waitExited(ctx, service, job)
}

// waitUntil waits until the condition is true, but not longer than the timeout. It fails if ctx is done.
func waitUntil(ctx context.Context, timeout time.Duration, condition func() bool) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !condition() {
		if system.Pause(limited, interval) != nil {
			return ctx.Err()
		}
	}
	return nil
}
