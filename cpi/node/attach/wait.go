//go:build linux

package attach

import (
	"context"
	"errors"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Wait waits until the attachment publishes its disk. While it cannot find out, it also waits.
func Wait(ctx context.Context, sys system.System, disk api.Disk) error {
	a := newAttachment(sys, disk)
	for {
		held, err := lock.Held(sys, a.lock)
		if held {
			return nil
		}
		if stopped := system.Pause(ctx, waitInterval); stopped != nil {
			return errors.Join(err, stopped)
		}
	}
}
