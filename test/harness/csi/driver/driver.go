// Package driver implements the services of the CSI spec (https://github.com/container-storage-interface/spec, spec.md) with image
// files on loop devices. A process can serve the controller for all nodes, one node, or both. Errors have the gRPC codes that the spec
// requires for each call.
//
// Only one node at a time can use a volume. By default, a volume is bound to a node, like a local disk. With AccessibilityParameter, it
// can be used on any node, like network storage.
package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/device"
	"bosh-kubernetes-cpi/test/harness/csi/store"
)

// Name is the driver's default name for the kubelet, the sidecars and StorageClasses.
const Name = "embedded.csi"

// TopologyKey is the topology key for the node of a volume. Its value is the node's name.
const TopologyKey = "topology." + Name + "/node"

// AccessibilityParameter is the StorageClass parameter that determines which nodes can use a volume. The only value is any-node. Without
// the parameter, only the node on which the volume is created can use it.
const AccessibilityParameter = "accessibility"

// IOPSParameter is the only parameter of VolumeAttributesClasses, a number from 1 to maxIOPS. The driver only records it.
const IOPSParameter = "iops"

const maxIOPS = 100000

const version = "1.0.0"

// Options configure what a process serves.
type Options struct {
	// Name is the driver's name (default: the constant Name). Each driver in a cluster needs another name.
	Name string
	// Controller is set for the one process that serves the controller.
	Controller bool
	// Node is the name of the served node. If it is empty, the process serves no node.
	Node string
	Log  *slog.Logger
}

// Driver contains the state that the services share.
type Driver struct {
	options Options
	store   *store.Store
	locks   *locks
}

// New returns a driver. If it serves the controller, New first cleans up after the previous process.
func New(s *store.Store, options Options) (*Driver, error) {
	options.Name = cmp.Or(options.Name, Name)
	d := &Driver{options: options, store: s, locks: newLocks()}
	if options.Controller {
		if err := d.recoverState(); err != nil {
			return nil, err
		}
	}
	if options.Node != "" {
		if err := s.AddNode(options.Node); err != nil {
			return nil, fmt.Errorf("add node %s: %w", options.Node, err)
		}
	}
	return d, nil
}

// recoverState thaws filesystems that the previous process froze, and removes incomplete images.
func (d *Driver) recoverState() error {
	volumes, err := d.store.Volumes()
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		loops, err := device.LoopDevices(context.Background(), d.store.VolumeImage(volume.ID))
		if err != nil {
			return err
		}
		for _, loop := range loops {
			if err := device.Thaw(loop); err != nil {
				return fmt.Errorf("thaw volume %s: %w", volume.ID, err)
			}
		}
	}
	return d.store.RemoveOrphans()
}

// Serve serves calls on the socket until the context is canceled, then finishes pending calls.
func (d *Driver) Serve(ctx context.Context, socket string) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(d.logCall))
	csi.RegisterIdentityServer(server, identity{d: d})
	if d.options.Controller {
		csi.RegisterControllerServer(server, controller{Driver: d})
	}
	if d.options.Node != "" {
		csi.RegisterNodeServer(server, node{Driver: d})
	}
	return serve(ctx, server, socket)
}

// shutdownTimeout limits the time to finish pending calls when the server is stopped.
const shutdownTimeout = 5 * time.Second

func serve(ctx context.Context, server *grpc.Server, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	stopWatching := context.AfterFunc(ctx, func() {
		kill := time.AfterFunc(shutdownTimeout, server.Stop)
		defer kill.Stop()
		server.GracefulStop()
	})
	defer stopWatching()
	return server.Serve(listener)
}

func (d *Driver) logCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	start := time.Now()
	response, err := handle(ctx, request)
	if err != nil && status.Code(err) == codes.Unknown {
		err = status.Error(codes.Internal, err.Error())
	}
	volumeID := ""
	if volumeRequest, ok := request.(interface{ GetVolumeId() string }); ok {
		volumeID = volumeRequest.GetVolumeId()
	}
	level := slog.LevelDebug
	if err != nil {
		level = slog.LevelWarn
	}
	d.options.Log.Log(ctx, level, "call", "method", info.FullMethod, "volume", volumeID, "duration", time.Since(start), "error", err)
	return response, err
}
