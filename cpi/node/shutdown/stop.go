//go:build linux

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Stop shuts a VM down before its container is stopped: terminates services and jobs, and waits until they exit. It runs in the VM. It does
// not terminate the init program, which gets a signal afterwards.
//
// First, the VM keeps serving. Clients may connect until they learn that the VM is no longer an endpoint of its Services.
func Stop(ctx context.Context, sys system.System, request api.VMStop) error {
	return stop(ctx, vm{sys: sys, timeouts: defaultTimeouts, init: process.Process{ID: 1}}, request)
}

func stop(ctx context.Context, v vm, request api.VMStop) error {
	if err := system.Pause(ctx, time.Duration(request.ServeSeconds)*time.Second); err != nil {
		return fmt.Errorf("serve before the shutdown: %w", err)
	}
	if err := v.findInit(); err != nil {
		return err
	}
	if v.init.Name == vmStart {
		return nil
	}
	if request.DrainSeconds > 0 {
		if err := v.drain(ctx, time.Duration(request.DrainSeconds)*time.Second); err != nil {
			slog.WarnContext(ctx, "cannot drain all jobs", "error", err)
		}
	}
	if v.init.Name == systemd || v.init.Name == initLink {
		return v.haltSystemd(ctx)
	}
	v.stopServices(ctx)
	return v.stopJobs(ctx)
}

// findInit completes the init program.
func (v *vm) findInit() error {
	processes, err := process.List(v.sys)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if p.ID == v.init.ID {
			v.init = p
			return nil
		}
	}
	return errors.New("find the init program of the VM: it does not run")
}

// haltSystemd leaves the shutdown to systemd, and waits until it exits. Finally, systemd sends SIGTERM to all remaining processes,
// including this program, which then succeeds.
func (v vm) haltSystemd(ctx context.Context) error {
	handle, err := v.sys.OpenProcess(v.init.ID)
	if err != nil {
		return fmt.Errorf("open the init program: %w", err)
	}
	defer handle.Close() // it is only a reference

	if err := handle.Signal(system.SIGRTMin + 3); !isSentOrGone(err) { // systemd(1): halt.target
		return fmt.Errorf("halt systemd: %w", err)
	}
	for ctx.Err() == nil {
		exited, err := handle.Exited()
		if err != nil {
			return fmt.Errorf("wait for systemd: %w", err)
		}
		if exited {
			return nil
		}
		_ = system.Pause(ctx, interval)
	}
	return nil
}

// isSentOrGone reports whether a signal was sent, or its process exited.
func isSentOrGone(err error) bool { return err == nil || system.Gone(err) }

// serviceDirectory contains the services of runsvdir.
const serviceDirectory = "/etc/service"

// stopServices stops the services of runit, as runit does before a halt; runsvdir alone does not. Services that this does not stop are
// terminated with the jobs.
func (v vm) stopServices(ctx context.Context) {
	services, err := v.sys.ReadDir(serviceDirectory)
	if err != nil || len(services) == 0 {
		return
	}
	arguments := []string{"-w", strconv.Itoa(int(v.timeouts.exit.Seconds())), "force-stop"}
	for _, service := range services {
		arguments = append(arguments, v.sys.Path(serviceDirectory+"/"+service))
	}
	ctx, cancel := context.WithTimeout(ctx, 2*v.timeouts.exit) // sv itself may be stuck
	defer cancel()
	if _, err := v.sys.RunGroup(ctx, "sv", arguments...); err != nil {
		slog.WarnContext(ctx, "cannot stop the services", "error", err)
	}
}
