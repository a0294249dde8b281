//go:build e2e

package csi_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"

	"bosh-kubernetes-cpi/test/harness/csi/device"
)

// csi-sanity does not check the content of volumes.
var _ = Describe("A volume", func() {
	var c *client

	BeforeEach(func() { c = newClient(GinkgoT().TempDir()) })

	for _, filesystem := range []string{"ext4", "xfs"} {
		It("with "+filesystem+" has the content of its snapshot, even if it is larger", func(ctx context.Context) {
			first := c.create(ctx, "first", 320<<20, filesystem, nil)
			path := c.attachAndPublish(ctx, first, filesystem)
			write(path, "old") // not synced: the freeze writes it

			snapshot, err := c.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: first})
			Expect(err).NotTo(HaveOccurred())
			write(path, "new") // no longer frozen

			restored := c.create(ctx, "restored", 640<<20, filesystem, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
				Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot.GetSnapshot().GetSnapshotId()}}})
			restoredPath := c.attachAndPublish(ctx, restored, filesystem)
			Expect(read(restoredPath)).To(Equal("old"))
			Expect(filesystemSize(restoredPath)).To(BeNumerically(">", 500<<20))
			Expect(read(path)).To(Equal("new"))
		})
	}

	It("with xfs grows while it is in use", func(ctx context.Context) {
		volume := c.create(ctx, "v", 320<<20, "xfs", nil)
		path := c.attachAndPublish(ctx, volume, "xfs")
		write(path, "content")
		_, err := c.controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: volume, CapacityRange: &csi.CapacityRange{RequiredBytes: 640 << 20}})
		Expect(err).NotTo(HaveOccurred())
		_, err = c.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: volume, VolumePath: path})
		Expect(err).NotTo(HaveOccurred())
		Expect(filesystemSize(path)).To(BeNumerically(">", 500<<20))
		Expect(read(path)).To(Equal("content"))
	})

	It("is formatted only once by concurrent stage calls", func(ctx context.Context) {
		volume := c.create(ctx, "v", 64<<20, "ext4", nil)
		c.attach(ctx, volume, "ext4")
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				defer GinkgoRecover()
				c.stage(ctx, volume, "ext4")
			})
		}
		workers.Wait()
		Expect(device.LoopDevices(ctx, c.store.VolumeImage(volume))).To(HaveLen(1))
	})

	It("is not unstaged while it is mounted elsewhere", func(ctx context.Context) {
		volume := c.create(ctx, "v", 64<<20, "ext4", nil)
		path := c.attachAndPublish(ctx, volume, "ext4")
		write(path, "content")
		loops, err := device.LoopDevices(ctx, c.store.VolumeImage(volume))
		Expect(err).NotTo(HaveOccurred())
		elsewhere := GinkgoT().TempDir()
		Expect(device.Mount(ctx, loops[0], elsewhere, "ext4", nil)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(device.Unmount(ctx, elsewhere)).To(Succeed()) })

		c.unpublish(ctx, volume)
		_, err = c.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: c.staging(volume)})
		Expect(err).To(haveCode(codes.FailedPrecondition))
		Expect(device.Unmount(ctx, elsewhere)).To(Succeed())
		c.unstageAndDetach(ctx, volume)
		Expect(device.LoopDevices(ctx, c.store.VolumeImage(volume))).To(BeEmpty())
	})

	It("is thawed by the next process if the process that froze it exited", func(ctx context.Context) {
		volume := c.create(ctx, "v", 64<<20, "ext4", nil)
		path := c.attachAndPublish(ctx, volume, "ext4")
		Expect(exec.CommandContext(ctx, "fsfreeze", "--freeze", path).Run()).To(Succeed())
		c.restart()
		write(path, "content")
		Expect(read(path)).To(Equal("content"))
	})

	It("can be attached to a single node only", func(ctx context.Context) {
		Expect(c.store.AddNode("node-2")).To(Succeed())
		volume := c.create(ctx, "v", 64<<20, "ext4", nil)
		c.attach(ctx, volume, "ext4")
		_, err := c.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: "node-2", VolumeCapability: mountCapability("ext4")})
		Expect(err).To(haveCode(codes.FailedPrecondition))
		_, err = c.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume})
		Expect(err).To(haveCode(codes.FailedPrecondition))
	})
})

func write(path, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(path, "file"), []byte(content), 0o600)).To(Succeed())
}

func read(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(path, "file"))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}
