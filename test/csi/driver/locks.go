package driver

import (
	"context"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/csi/store"
)

// locks lets one call at a time work on a volume or a name. The spec ("Concurrency") wants at most one
// call per volume in flight, and wants drivers to cope with more all the same.
type locks struct {
	mutex sync.Mutex
	keys  map[string]chan struct{}
}

func newLocks() *locks { return &locks{keys: map[string]chan struct{}{}} }

// lockVolume returns the volume, on which nobody else works until it is released.
func (d *Driver) lockVolume(ctx context.Context, id string) (volume store.Volume, release func(), err error) {
	release, err = d.locks.lock(ctx, id)
	if err != nil {
		return volume, nil, err
	}
	volume, err = d.store.Volume(id)
	if err != nil {
		release()
		return volume, nil, toStatusError(err)
	}
	return volume, release, nil
}

// capabilityRequest is a request about a volume that names a capability.
type capabilityRequest interface {
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
}

// lockVolumeFor is held for a request whose capability a volume can have.
func (d *Driver) lockVolumeFor(ctx context.Context, request capabilityRequest) (volume store.Volume, release func(), err error) {
	if err := checkCapability(request.GetVolumeCapability()); err != nil {
		return volume, nil, err
	}
	return d.lockVolume(ctx, request.GetVolumeId())
}

// lock waits for the key; after the call's deadline it returns ABORTED, the spec's code for a pending
// operation.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mutex.Lock()
		other, held := l.keys[key]
		if !held {
			mine := make(chan struct{})
			l.keys[key] = mine
			l.mutex.Unlock()
			return func() {
				l.mutex.Lock()
				defer l.mutex.Unlock()
				delete(l.keys, key)
				close(mine)
			}, nil
		}
		l.mutex.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Aborted, "another operation on %s is under way: %v", key, ctx.Err())
		}
	}
}
