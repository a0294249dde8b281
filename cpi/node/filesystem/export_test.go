//go:build linux

package filesystem

import (
	"context"
	"errors"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// GrowMountedExt4 grows an ext4 filesystem as on a node that allows it while the filesystem is mounted.
func GrowMountedExt4(ctx context.Context, sys system.System, path string) error {
	superblock, err := readSuperblock(sys, path)
	if err != nil {
		return err
	}
	if ext4, ok := superblock.(ext4Superblock); ok {
		return growMountedExt4(ctx, sys, path, ext4)
	}
	return errors.New("not ext4")
}
