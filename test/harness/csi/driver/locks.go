package driver

import (
	"context"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/store"
)

// locks serializes the calls for a volume or a name. The spec ("Concurrency") expects at most one call per volume at a time, but
// requires drivers to handle more.
type locks struct {
	mutex sync.Mutex
	keys  map[string]chan struct{}
}

func newLocks() *locks { return &locks{keys: map[string]chan struct{}{}} }

// lockVolume returns the volume, locked until unlock is called.
func (d *Driver) lockVolume(ctx context.Context, id string) (volume store.Volume, unlock func(), err error) {
	unlock, err = d.locks.lock(ctx, id)
	if err != nil {
		return volume, nil, err
	}
	volume, err = d.store.Volume(id)
	if err != nil {
		unlock()
		return volume, nil, toStatusError(err)
	}
	return volume, unlock, nil
}

// capabilityRequest is a request for a volume with a capability.
type capabilityRequest interface {
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
}

// lockVolumeFor is like lockVolume, for a request with a capability. It returns INVALID_ARGUMENT if the capability is not supported.
func (d *Driver) lockVolumeFor(ctx context.Context, request capabilityRequest) (volume store.Volume, unlock func(), err error) {
	if err := checkCapability(request.GetVolumeCapability()); err != nil {
		return volume, nil, err
	}
	return d.lockVolume(ctx, request.GetVolumeId())
}

// lock waits until the key is unlocked. After the call's deadline it returns ABORTED, the spec's code for a pending operation.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mutex.Lock()
		pending, locked := l.keys[key]
		if !locked {
			done := make(chan struct{})
			l.keys[key] = done
			l.mutex.Unlock()
			return func() {
				l.mutex.Lock()
				defer l.mutex.Unlock()
				delete(l.keys, key)
				close(done)
			}, nil
		}
		l.mutex.Unlock()
		select {
		case <-pending:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Aborted, "another operation on %s is pending: %v", key, ctx.Err())
		}
	}
}
