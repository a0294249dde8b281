//go:build linux

package shutdown

import (
	"context"
	"time"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// StopWith is Stop with another init program and timeout.
func StopWith(ctx context.Context, sys system.System, request api.VMStop, init int, exit time.Duration) error {
	return stop(ctx, vm{sys: sys, timeouts: timeouts{exit: exit}, init: process.Process{ID: init}}, request)
}

// RebootWith is Reboot with other timeouts.
func RebootWith(ctx context.Context, sys system.System, request api.VMReboot, exit, systemdExit time.Duration) error {
	return reboot(ctx, sys, request, timeouts{exit, systemdExit})
}
