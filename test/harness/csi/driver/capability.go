package driver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/device"
	"bosh-kubernetes-cpi/test/harness/csi/store"
)

// checkSupported returns an error if volumes do not support the capability.
func checkSupported(capability *csi.VolumeCapability) error {
	mode := capability.GetAccessMode().GetMode()
	switch {
	case capability.GetBlock() == nil && capability.GetMount() == nil:
		return errors.New("the access type is missing: block or mount")
	case mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:
		return fmt.Errorf("the access mode %s is not supported; supported is SINGLE_NODE_WRITER", mode)
	case capability.GetMount() != nil && !slices.Contains(device.Filesystems, filesystem(capability)):
		return fmt.Errorf("the filesystem %q is not supported; supported are %v", filesystem(capability), device.Filesystems)
	}
	return nil
}

// checkCapability returns INVALID_ARGUMENT for a capability that is missing or not supported.
func checkCapability(capability *csi.VolumeCapability) error {
	if capability == nil {
		return status.Error(codes.InvalidArgument, "the volume capability is missing")
	}
	if err := checkSupported(capability); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// checkMutableParameters returns INVALID_ARGUMENT for unknown or invalid parameters of a VolumeAttributesClass.
func checkMutableParameters(parameters map[string]string) error {
	for name, value := range parameters {
		if name != IOPSParameter {
			return status.Errorf(codes.InvalidArgument, "the parameter %q is not supported; supported is %s", name, IOPSParameter)
		}
		if iops, err := strconv.Atoi(value); err != nil || iops < 1 || iops > maxIOPS {
			return status.Errorf(codes.InvalidArgument, "the parameter %s is %q; it must be a number from 1 to %d", name, value, maxIOPS)
		}
	}
	return nil
}

func checkCapabilities(capabilities []*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return status.Error(codes.InvalidArgument, "the volume capabilities are missing")
	}
	for _, capability := range capabilities {
		if err := checkCapability(capability); err != nil {
			return err
		}
	}
	return nil
}

func filesystem(capability *csi.VolumeCapability) string {
	if name := capability.GetMount().GetFsType(); name != "" {
		return name
	}
	return device.Filesystems[0]
}

// serviceCapabilities returns a service's capabilities of these types.
func serviceCapabilities[T, C any](wrap func(T) C, types ...T) []C {
	capabilities := make([]C, 0, len(types))
	for _, t := range types {
		capabilities = append(capabilities, wrap(t))
	}
	return capabilities
}

// requireFields returns INVALID_ARGUMENT for the first required field that is empty. Its arguments are alternating names and values.
func requireFields(namesAndValues ...string) error {
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		if namesAndValues[i+1] == "" {
			return status.Errorf(codes.InvalidArgument, "the %s is missing", namesAndValues[i])
		}
	}
	return nil
}

// toStatusError adds a code to an error of the store or a device.
func toStatusError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, device.ErrInUse), errors.Is(err, device.ErrOtherContent):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// Sizes of volumes.
const (
	mebibyte    = 1 << 20
	defaultSize = 1 << 30
	maxSize     = 1 << 40
)

// chooseSize returns the required size, or the minimum if that is larger, rounded up to whole MiB if the limit allows it.
func chooseSize(requested *csi.CapacityRange, minimum int64) (int64, error) {
	required, limit := requested.GetRequiredBytes(), requested.GetLimitBytes()
	if required < 0 || limit < 0 || limit > 0 && limit < required {
		return 0, status.Errorf(codes.InvalidArgument, "invalid capacity range: at least %d and at most %d bytes", required, limit)
	}
	size := max(required, minimum)
	if size == 0 {
		size = defaultSize
		if limit > 0 {
			size = min(size, limit)
		}
	}
	rounded := (size + mebibyte - 1) / mebibyte * mebibyte
	if limit > 0 && rounded > limit {
		rounded = size / 512 * 512 // a loop device has whole sectors
	}
	if limit > 0 && rounded > limit || rounded < required || rounded < minimum || rounded > maxSize || rounded == 0 {
		return 0, status.Errorf(codes.OutOfRange, "no volume can have at least %d and at most %d bytes", size, limit)
	}
	return rounded, nil
}
