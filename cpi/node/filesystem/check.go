//go:build linux

package filesystem

import (
	"context"
	"fmt"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// check runs e2fsck, which repairs errors if that cannot lose data.
func check(ctx context.Context, sys system.System, path string, options ...string) error {
	output, err := sys.Run(ctx, "e2fsck", append(options, "-p", sys.Path(path))...)
	if err != nil {
		return err
	}
	if output.Status >= 4 { // see e2fsck(8)
		return fmt.Errorf("%w that e2fsck does not repair automatically", ErrDamaged)
	}
	return nil
}
