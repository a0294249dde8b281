//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// bindMounts returns the mount points in the VM's directory on the node.
func (vm *testVM) bindMounts(ctx context.Context) []string {
	GinkgoHelper()
	out, err := vm.env.node.Shell(ctx, "findmnt --noheadings --list --output TARGET")
	Expect(err).NotTo(HaveOccurred())
	mounts := []string{}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "/"+vm.env.namespace+"/"+vm.cid+"/") {
			mounts = append(mounts, strings.TrimSpace(line))
		}
	}
	return mounts
}

// killAttachmentProcess kills the main program of the attachment Pod.
func (env *testEnv) killAttachmentProcess(ctx context.Context, disk string) {
	GinkgoHelper()
	for _, pid := range env.attachmentPIDs(ctx, disk) {
		_, err := env.node.Shell(ctx, "kill -9 "+pid)
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("A disk with attach: bind", Label("disks", "extended"), Serial, func() {
	// The volumes of the default StorageClass share a filesystem. Each volume of the CSI driver has its own.
	for kind, properties := range map[string]map[string]any{
		"a shared filesystem":    {"attach": "bind"},
		"a dedicated filesystem": {"attach": "bind", "storage_class": embedded.CSIClass},
	} {
		for initProgram, stemcell := range map[string]string{"runit": "E2E_STEMCELL", "systemd": "E2E_STEMCELL_SYSTEMD"} {
			Describe(fmt.Sprintf("on %s, in a VM with %s", kind, initProgram), Ordered, func() {
				var (
					env      *testEnv
					vm       *testVM
					disk     string
					checksum string
				)
				BeforeAll(func(ctx context.Context) {
					env = newTestEnv(ctx)
					vm = env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{})
					disk = env.createDisk(ctx, 64, properties)
					vm.attach(ctx, disk)
					checksum = vm.run(ctx, fillDisk)
					vm.detach(ctx, disk)
				}, NodeTimeout(longTest))

				// expectIntact expects that the disk has its data, and can be detached and attached again.
				expectIntact := func(ctx context.Context) {
					GinkgoHelper()
					Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
					Expect(vm.bindMounts(ctx)).To(HaveLen(1), "mounts accumulate")
					vm.detach(ctx, disk)
					Expect(vm.bindMounts(ctx)).To(BeEmpty())
					vm.attach(ctx, disk)
					Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
				}

				It("keeps its data over several attachments, leaves no mounts, and does not restart the VM", func(ctx context.Context) {
					previous, mounts := vm.identity(ctx), env.kubeletMounts(ctx)
					for range 3 {
						vm.attach(ctx, disk)
						Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
						Expect(vm.callAgent(ctx, "list_disk")).To(ContainSubstring(disk))
						vm.detach(ctx, disk)
					}
					Expect(vm.identity(ctx)).To(Equal(previous))
					Eventually(env.kubeletMounts).WithContext(ctx).Should(Equal(mounts))
					Expect(vm.bindMounts(ctx)).To(BeEmpty())
					Expect(vm.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
				}, NodeTimeout(longTest))

				It("stays mounted exactly once when the process of its attachment Pod is killed several times", func(ctx context.Context) {
					vm.attach(ctx, disk)
					previous := vm.identity(ctx)
					for range 3 {
						restarts := env.attachmentPod(ctx, disk).Status.ContainerStatuses[0].RestartCount
						env.killAttachmentProcess(ctx, disk)
						env.waitForRestart(ctx, disk+"-attachment", restarts)
						Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
						Expect(vm.bindMounts(ctx)).To(HaveLen(1), "mounts accumulate")
					}
					Expect(vm.identity(ctx)).To(Equal(previous))
					expectIntact(ctx)
				}, NodeTimeout(longTest))

				It("stays mounted until detach_disk when a user deletes its attachment Pod", func(ctx context.Context) {
					Expect(env.cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
					Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
					expectIntact(ctx)
				}, NodeTimeout(longTest))

				It("is mounted again when the VM's container and the attachment Pod restart at the same time", func(ctx context.Context) {
					env.killAttachmentProcess(ctx, disk)
					vm.killInit(ctx)
					vm.waitForAgent(ctx)
					Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
					expectIntact(ctx)
				}, NodeTimeout(longTest))

				It("stays mounted when the kubelet restarts", func(ctx context.Context) {
					previous := vm.identity(ctx)
					Expect(env.node.RestartKubelet(ctx)).To(Succeed())
					// The kubelet is healthy before it knows its Pods.
					Eventually(func() error { _, err := vm.tryRun(ctx, "true"); return err }).WithContext(ctx).Should(Succeed())
					Expect(vm.identity(ctx)).To(Equal(previous))
					expectIntact(ctx)
				}, NodeTimeout(longTest))

				It("is not detached while a mount or a process uses it, even after a lazy unmount", func(ctx context.Context) {
					expectDetachFails := func(words ...string) {
						GinkgoHelper()
						message := env.mustFail(ctx, "detach_disk", vm.cid, disk).Message
						for _, word := range append(words, "still in use") {
							Expect(message).To(ContainSubstring(word))
						}
						Expect(vm.bindMounts(ctx)).To(HaveLen(1))
					}
					expectDetachFails("has it mounted at /var/vcap/store")
					vm.run(ctx, "mkdir -p /tmp/elsewhere && mount --bind /var/vcap/store/ /tmp/elsewhere && umount /var/vcap/store")
					expectDetachFails("has it mounted at /tmp/elsewhere")
					vm.run(ctx, "mount /dev/bosh/"+disk+" /var/vcap/store && umount /tmp/elsewhere")
					vm.run(ctx, "cd / && (setsid bash -c 'exec 7</var/vcap/store/data; echo $$ > /var/vcap/data/holder; exec sleep 1000' >/dev/null 2>&1 &)")
					Eventually(func() (string, error) { return vm.tryRun(ctx, "cat /var/vcap/data/holder") }).WithContext(ctx).ShouldNot(BeEmpty())
					vm.run(ctx, "/bin/umount --lazy /var/vcap/store")
					expectDetachFails("(sleep) uses")
					vm.run(ctx, "kill $(cat /var/vcap/data/holder); rm /var/vcap/data/holder; mount /dev/bosh/"+disk+" /var/vcap/store")
					expectIntact(ctx)
				}, NodeTimeout(longTest))

				It("survives the deletion of the VM that it is attached to", func(ctx context.Context) {
					env.mustCall(ctx, "delete_vm", vm.cid)
					Expect(vm.bindMounts(ctx)).To(BeEmpty())
					otherVM := env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{})
					otherVM.attach(ctx, disk)
					Expect(otherVM.run(ctx, checkDisk)).To(Equal(checksum))
					otherVM.detach(ctx, disk)
				}, NodeTimeout(longTest))
			})
		}
	}
})
