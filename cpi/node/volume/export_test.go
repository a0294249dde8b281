//go:build linux

package volume

import (
	"context"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Formats reports whether Prepare would format the device.
func Formats(ctx context.Context, sys system.System, disk api.Disk, path string) (bool, error) {
	disk, err := withHistory(sys, disk)
	if err != nil {
		return false, err
	}
	next, err := decide(ctx, sys, disk, path)
	return next != keep, err
}

// WriteMarks writes the marks of an interrupted mkfs.
func WriteMarks(sys system.System, disk api.Disk, path string) error {
	_, err := writeMarks(sys, disk, path, false)
	return err
}
