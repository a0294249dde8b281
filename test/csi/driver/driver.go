// Package driver answers the calls of the CSI spec (https://github.com/container-storage-interface/spec,
// spec.md) with image files on loop devices. A process can serve the controller for all nodes, one node, or
// both. The errors are the gRPC codes that the spec names for each call. It refuses several nodes for a
// volume at once: the volumes are as those of a machine's own disks, usable on one node alone, or, with
// ReachParameter, as those of a network storage, which can go from node to node.
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

	"bosh-kubernetes-cpi/test/csi/device"
	"bosh-kubernetes-cpi/test/csi/store"
)

// Name is the driver's for the kubelet, the sidecars and StorageClasses, unless it is given another.
const Name = "embedded.csi"

// TopologyKey is the label that says on which node a volume is.
const TopologyKey = "topology." + Name + "/node"

// ReachParameter is the StorageClass's parameter that says from where its volumes can be used: any-node,
// or, without it, the node that they are made on.
const ReachParameter = "reach"

const version = "1.0.0"

// Options say what a process serves.
type Options struct {
	// Name is that of a driver beside this one, in the same cluster; the constant of that name without it.
	Name string
	// Controller is set for the one process that serves the controller.
	Controller bool
	// Node is the name of the node that is served; none without it.
	Node string
	Log  *slog.Logger
}

// Driver is what the services have in common.
type Driver struct {
	options Options
	store   *store.Store
	locks   *locks
}

// New makes the driver ready: the controller first ends what its predecessor had begun.
func New(folder *store.Store, options Options) (*Driver, error) {
	options.Name = cmp.Or(options.Name, Name)
	d := &Driver{options: options, store: folder, locks: newLocks()}
	if options.Controller {
		if err := d.recoverState(); err != nil {
			return nil, err
		}
	}
	if options.Node != "" {
		if err := folder.AddNode(options.Node); err != nil {
			return nil, fmt.Errorf("make node %s known: %w", options.Node, err)
		}
	}
	return d, nil
}

// recoverState thaws what an ended process froze and removes half-made images.
func (d *Driver) recoverState() error {
	frozen, err := d.store.Frozen()
	if err != nil {
		return err
	}
	for _, volume := range frozen {
		loops, err := device.LoopDevices(context.Background(), d.store.VolumeImage(volume))
		if err != nil {
			return err
		}
		for _, loop := range loops {
			if err := device.Thaw(loop); err != nil {
				return fmt.Errorf("thaw volume %s: %w", volume, err)
			}
		}
		if err := d.store.MarkThawed(volume); err != nil {
			return err
		}
	}
	return d.store.Sweep()
}

// Serve answers calls on the socket until the context ends, then finishes those under way.
func (d *Driver) Serve(ctx context.Context, socket string) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(d.log))
	csi.RegisterIdentityServer(server, identity{d: d})
	if d.options.Controller {
		csi.RegisterControllerServer(server, controller{Driver: d})
	}
	if d.options.Node != "" {
		csi.RegisterNodeServer(server, node{Driver: d})
	}
	return serve(ctx, server, socket)
}

// shutdownTimeout is how long calls under way may take when the server is told to end.
const shutdownTimeout = 5 * time.Second

func serve(ctx context.Context, server *grpc.Server, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of before: %w", err)
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

func (d *Driver) log(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	answer, err := handle(ctx, request)
	if err != nil && status.Code(err) == codes.Unknown {
		err = status.Error(codes.Internal, err.Error())
	}
	volume := ""
	if named, ok := request.(interface{ GetVolumeId() string }); ok {
		volume = named.GetVolumeId()
	}
	level := slog.LevelDebug
	if err != nil {
		level = slog.LevelWarn
	}
	d.options.Log.Log(ctx, level, "call", "method", info.FullMethod, "volume", volume, "took", time.Since(began), "error", err)
	return answer, err
}
