//go:build linux

package shutdown

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Reboot restarts a VM: it makes the init program reboot, and kills the init program if that takes too long. Kubernetes restarts a
// container after its init program exits. It does nothing if the VM already restarted, because the request may be old, for example because
// the node did not respond.
//
// It runs on the node, with the node's PID namespace. Because it is privileged, it only sends signals to the VM's processes, and runs none
// of the VM's programs. If ctx is done, the VM continues to run.
func Reboot(ctx context.Context, sys system.System, request api.VMReboot) error {
	return reboot(ctx, sys, request, defaultTimeouts)
}

func reboot(ctx context.Context, sys system.System, request api.VMReboot, timeouts timeouts) error {
	sys.LowerOOMScore()
	init, handle, err := openInit(ctx, sys, request.VM)
	if err != nil {
		return err
	}
	defer handle.Close() // it is only a reference
	cgroups, err := sys.ReadFile(fmt.Sprintf("/proc/%d/cgroup", init.ID))
	if err != nil && !system.Gone(err) {
		return fmt.Errorf("find the container of VM %s: %w", request.VM, err)
	}
	if err != nil || !strings.Contains(string(cgroups), request.Container) {
		slog.InfoContext(ctx, "VM already restarted after the request", "vm", request.VM)
		return nil
	}
	v := vm{sys: sys, timeouts: timeouts, init: init, fromNode: true}
	switch init.Name {
	case systemd, initLink:
		err = v.rebootSystemd(ctx, handle)
	case vmStart:
	default:
		err = v.shutDown(ctx, handle)
	}
	if err != nil {
		return fmt.Errorf("reboot VM %s: %w", request.VM, err)
	}
	if err := handle.Signal(unix.SIGKILL); !isSentOrGone(err) {
		sendAll(ctx, handle, init.ID, []unix.Signal{unix.SIGCONT})
		return fmt.Errorf("kill the init program of VM %s: %w", request.VM, err)
	}
	return nil
}

// openInit returns the init program of the VM. It finds the program twice: one that has a handle before it is found cannot be replaced by
// another process with its ID.
func openInit(ctx context.Context, sys system.System, name string) (process.Process, *system.ProcessHandle, error) {
	for ctx.Err() == nil {
		init, err := findInit(sys, name)
		if err != nil {
			return init, nil, err
		}
		handle, err := sys.OpenProcess(init.ID)
		if system.Gone(err) {
			continue
		} else if err != nil {
			return init, nil, fmt.Errorf("open the init program of VM %s: %w", name, err)
		}
		again, err := findInit(sys, name)
		if err == nil && again.ID == init.ID {
			return again, handle, nil
		}
		_ = handle.Close()
		if err != nil {
			return init, nil, err
		}
	}
	return process.Process{}, nil, ctx.Err()
}

func findInit(sys system.System, name string) (process.Process, error) {
	table, err := process.Read(sys)
	if err != nil {
		return process.Process{}, err
	}
	init, ok := table.InitOf(name)
	if !ok {
		return init, api.Errorf("vm-not-running", "the init program of VM %s does not run on this node", name)
	}
	return init, nil
}

// rebootSystemd asks systemd to reboot, and waits until it exits, but not longer than the timeout.
func (v vm) rebootSystemd(ctx context.Context, handle *system.ProcessHandle) error {
	if err := handle.Signal(system.SIGRTMin + 5); !isSentOrGone(err) { // systemd(1): reboot.target
		return err
	}
	return waitUntil(ctx, v.timeouts.reboot, func() bool {
		exited, err := handle.Exited()
		return err == nil && exited
	})
}

// shutDown stops services and jobs, as runit does before a halt; runsvdir alone does not. After SIGTERM, runsv stops its service and exits.
// runsvdir would restart runsv, so it is suspended meanwhile. If shutDown fails, runsvdir continues and restarts the services.
func (v vm) shutDown(ctx context.Context, handle *system.ProcessHandle) (err error) {
	defer func() {
		if err != nil {
			sendAll(ctx, handle, v.init.ID, []unix.Signal{unix.SIGCONT})
		}
	}()
	if err := handle.Signal(unix.SIGSTOP); !isSentOrGone(err) {
		return err
	}
	if err := v.terminate(ctx, supervisor); err != nil {
		return err
	}
	if err := v.waitExited(ctx, service); err != nil {
		return err
	}
	return v.stopJobs(ctx)
}
