//go:build e2e

package csi_test

import (
	"context"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/store"
)

// client calls a driver like the sidecars and the kubelet. The driver stores its state in dir.
type client struct {
	dir        string
	store      *store.Store
	controller csi.ControllerClient
	node       csi.NodeClient
	stop       func()
}

func newClient(dir string) *client {
	GinkgoHelper()
	c := &client{dir: dir, stop: serve(dir)}
	DeferCleanup(func() { c.stop() }) // restart replaces stop
	opened, err := store.Open(filepath.Join(dir, "store"))
	Expect(err).NotTo(HaveOccurred())
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(conn.Close)
	c.store, c.controller, c.node = opened, csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	return c
}

func (c *client) restart() {
	c.stop()
	c.stop = serve(c.dir)
}

func (c *client) staging(volume string) string { return filepath.Join(c.dir, "staging", volume) }
func (c *client) target(volume string) string  { return filepath.Join(c.dir, "target", volume) }

func mountCapability(filesystem string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: filesystem}},
	}
}

// create creates a volume and returns its ID. The volume is unpublished, unstaged, detached and deleted after the test.
func (c *client) create(ctx context.Context, name string, size int64, filesystem string, source *csi.VolumeContentSource) string {
	GinkgoHelper()
	response, err := c.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability(filesystem)}, VolumeContentSource: source,
	})
	Expect(err).NotTo(HaveOccurred())
	volume := response.GetVolume().GetVolumeId()
	DeferCleanup(func(ctx context.Context) {
		c.unpublish(ctx, volume)
		c.unstageAndDetach(ctx, volume)
		_, err := c.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume})
		Expect(err).NotTo(HaveOccurred())
	})
	return volume
}

func (c *client) attach(ctx context.Context, volume, filesystem string) {
	GinkgoHelper()
	_, err := c.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: "node-1", VolumeCapability: mountCapability(filesystem)})
	Expect(err).NotTo(HaveOccurred())
}

func (c *client) stage(ctx context.Context, volume, filesystem string) {
	GinkgoHelper()
	_, err := c.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: volume, StagingTargetPath: c.staging(volume), VolumeCapability: mountCapability(filesystem)})
	Expect(err).NotTo(HaveOccurred())
}

// attachAndPublish attaches, stages and publishes the volume, and returns the target path.
func (c *client) attachAndPublish(ctx context.Context, volume, filesystem string) string {
	GinkgoHelper()
	c.attach(ctx, volume, filesystem)
	c.stage(ctx, volume, filesystem)
	_, err := c.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: c.staging(volume), TargetPath: c.target(volume), VolumeCapability: mountCapability(filesystem),
	})
	Expect(err).NotTo(HaveOccurred())
	return c.target(volume)
}

func (c *client) unpublish(ctx context.Context, volume string) {
	GinkgoHelper()
	_, err := c.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: c.target(volume)})
	Expect(err).NotTo(HaveOccurred())
}

// unstageAndDetach unstages and detaches the volume.
func (c *client) unstageAndDetach(ctx context.Context, volume string) {
	GinkgoHelper()
	_, err := c.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: c.staging(volume)})
	Expect(err).NotTo(HaveOccurred())
	_, err = c.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume})
	Expect(err).NotTo(HaveOccurred())
}

func filesystemSize(path string) int64 {
	GinkgoHelper()
	var stat unix.Statfs_t
	Expect(unix.Statfs(path, &stat)).To(Succeed())
	return int64(stat.Blocks) * stat.Bsize
}

func haveCode(code codes.Code) OmegaMatcher {
	return WithTransform(func(err error) string { return status.Code(err).String() }, Equal(code.String()))
}
