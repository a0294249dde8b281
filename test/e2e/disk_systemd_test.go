//go:build e2e

package e2e

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Images with systemd have a different stop signal.
var _ = Describe("A persistent disk of a VM with systemd", Label("disks", "extended"), Serial, func() {
	It("stays mounted until detach_disk when a user deletes its attachment Pod, and leaves no devices", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVMFromStemcell(ctx, os.Getenv("E2E_STEMCELL_SYSTEMD"), map[string]any{})
		disk := env.createDisk(ctx, 64, filesystemDisk)
		vm.attach(ctx, disk)
		checksum := vm.run(ctx, fillDisk)
		loops := env.listVolumeLoops(ctx)
		Expect(loops).To(HaveLen(1))
		Expect(env.cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
		Expect(env.attachmentPod(ctx, disk).DeletionTimestamp).NotTo(BeNil())
		vm.detach(ctx, disk)
		Expect(vm.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
		Expect(env.listNodeLoops(ctx)).NotTo(ContainSubstring(loops[0]))
		env.mustCall(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})
