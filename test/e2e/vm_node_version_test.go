//go:build e2e

package e2e

import (
	"context"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/director"
)

// pushNodeImageOfNextVersion pushes bosh-node's image with another digest, and returns its reference.
func pushNodeImageOfNextVersion() string {
	GinkgoHelper()
	current, err := name.NewDigest(os.Getenv("E2E_NODE_IMAGE"), name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	index, err := remote.Index(current)
	Expect(err).NotTo(HaveOccurred())
	next, ok := mutate.Annotations(index, map[string]string{"org.opencontainers.image.version": "next"}).(v1.ImageIndex)
	Expect(ok).To(BeTrue())
	Expect(remote.WriteIndex(current.Context().Tag("next"), next)).To(Succeed())
	digest, err := next.Digest()
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSuffix(os.Getenv("E2E_NODE_IMAGE"), current.DigestStr()) + digest.String()
}

// nodeImages returns the images of bosh-node in the VM Pod and in the attachment Pod of the disk.
func (vm *testVM) nodeImages(ctx context.Context, disk string) (images []string) {
	GinkgoHelper()
	for _, volume := range append(vm.pod(ctx).Spec.Volumes, vm.env.attachmentPod(ctx, disk).Spec.Volumes...) {
		if volume.Image != nil {
			images = append(images, volume.Image.Reference)
		}
	}
	return images
}

var _ = Describe("A VM of one version of the CPI", Label("vms", "extended"), func() {
	DescribeTable("keeps its Pod and its disk with calls of another version", func(ctx context.Context, upgrade bool) {
		env := newTestEnv(ctx)
		DeferCleanup(func(original *director.Director) { env.Director = original }, env.Director) // for the cleanup of the environment
		old, other := os.Getenv("E2E_NODE_IMAGE"), pushNodeImageOfNextVersion()
		if !upgrade {
			old, other = other, old
		}
		env.Director = env.newDirector(env.kubeconfig, map[string]any{"node_image": old})
		vm := env.createVM(ctx)
		detached, attached := env.createDisk(ctx, 64, movableDisks["Block"]), env.createDisk(ctx, 64, movableDisks["Filesystem"])
		checksums := map[string]string{detached: vm.attachAndFill(ctx, detached), attached: vm.attachAndFill(ctx, attached)}
		Expect(vm.nodeImages(ctx, detached)).To(Equal([]string{old, old}))
		previous := vm.identity(ctx)

		env.Director = env.newDirector(env.kubeconfig, map[string]any{"node_image": other})
		Expect(env.mustFail(ctx, "detach_disk", vm.cid, detached).Message).To(ContainSubstring("still in use"))
		vm.run(ctx, "umount /mnt/"+detached)
		env.mustCall(ctx, "detach_disk", vm.cid, detached)
		Expect(vm.attachAndChecksum(ctx, detached)).To(Equal(checksums[detached]))
		Expect(vm.nodeImages(ctx, detached)).To(Equal([]string{old, other}))
		Expect(vm.identity(ctx)).To(Equal(previous))
		restarts := vm.restartCount(ctx)
		env.mustCall(ctx, "reboot_vm", vm.cid)
		Expect(vm.restartCount(ctx)).To(Equal(restarts + 1))
		vm.waitForAgent(ctx)

		env.mustCall(ctx, "delete_vm", vm.cid)
		successor := env.createVM(ctx)
		for disk, checksum := range checksums {
			Expect(successor.attachAndChecksum(ctx, disk)).To(Equal(checksum))
		}
	},
		Entry("the next one", true, NodeTimeout(longTest)),
		Entry("the previous one", false, NodeTimeout(longTest)),
	)
})
