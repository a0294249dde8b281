//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// recreateInvariants are the properties that a VM keeps when its Pod is recreated for a disk.
type recreateInvariants struct{ Address, Node, Data string }

func (vm *testVM) invariants(ctx context.Context) recreateInvariants {
	GinkgoHelper()
	return recreateInvariants{Address: vm.pod(ctx).Status.PodIP, Node: vm.pod(ctx).Spec.NodeName, Data: vm.identity(ctx).Data}
}

// gVisorClass is the RuntimeClass of Pods in gVisor. They have no access to devices of the node.
const gVisorClass = "gvisor"

const gVisorManifest = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: ` + gVisorClass + `}
handler: runsc
`

// Block PVCs require a sandbox with block devices, like Kata Containers. The node's default runtime replaces it here.
var _ = Describe("A VM with disk_strategy: recreate", Label("disks"), func() {
	recreateProperties := map[string]any{"disk_strategy": "recreate", "ephemeral_disk": 512}
	gVisorProperties := map[string]any{"disk_strategy": "recreate", "ephemeral_disk": 512, "runtime_class": gVisorClass}

	for kind, testCase := range map[string]struct {
		stemcell string
		vm, disk map[string]any
		labels   Labels
	}{
		"with a Block PVC":                 {"E2E_STEMCELL", recreateProperties, blockDisk, nil},
		"with a directory":                 {"E2E_STEMCELL_SYSTEMD", recreateProperties, filesystemDisk, Label("extended")},
		"with a filesystem as a directory": {"E2E_STEMCELL", recreateProperties, map[string]any{"storage_class": embedded.CSIClass}, Label("extended")},
		"in gVisor, with a directory":      {"E2E_STEMCELL", gVisorProperties, filesystemDisk, Label("extended", labelSharedKernel)},
	} {
		Describe(kind, testCase.labels, Ordered, func() {
			var (
				env      *testEnv
				vm       *testVM
				disk     string
				checksum string
				previous recreateInvariants
			)
			BeforeAll(func(ctx context.Context) {
				env = newTestEnv(ctx)
				Expect(env.embedded.ControlPlane.Apply(ctx, gVisorManifest)).To(Succeed())
				vm = env.createVMFromStemcell(ctx, os.Getenv(testCase.stemcell), testCase.vm)
				previous = vm.invariants(ctx)
				disk = env.createDisk(ctx, 64, testCase.disk)
			}, NodeTimeout(longTest))

			It("keeps its address, node and data when the disk is attached and detached", func(ctx context.Context) {
				vm.run(ctx, keeperJobScript)
				vm.waitForJob(ctx)
				vm.attach(ctx, disk)
				checksum = vm.run(ctx, fillDisk)
				vm.waitForJob(ctx)
				Expect(vm.invariants(ctx)).To(Equal(previous))
				vm.detach(ctx, disk)
				vm.attach(ctx, disk)
				Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
				Expect(vm.invariants(ctx)).To(Equal(previous))
			}, NodeTimeout(longTest))

			// expectUnchanged expects the same VM and data after its Pod or container was recreated.
			expectUnchanged := func(ctx context.Context) {
				GinkgoHelper()
				vm.waitForAgent(ctx)
				vm.waitForJob(ctx)
				Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
				Expect(vm.run(ctx, "tail -n 1 /var/vcap/data/keeper.starts")).To(Equal("with"))
				Expect(vm.invariants(ctx)).To(Equal(previous))
			}

			It("has the disk before any job starts when its Pod is deleted, and recreated by the next call", func(ctx context.Context) {
				pods := env.cluster.CoreV1().Pods(env.namespace)
				Expect(pods.Delete(ctx, vm.cid, metav1.DeleteOptions{})).To(Succeed())
				Eventually(func() error { _, err := pods.Get(ctx, vm.cid, metav1.GetOptions{}); return err }).WithContext(ctx).ShouldNot(Succeed())
				Expect(env.mustCall(ctx, "has_vm", vm.cid).Result).To(MatchJSON("true"))
				expectUnchanged(ctx)
			}, NodeTimeout(longTest))

			It("has the disk before any job starts when it is rebooted", func(ctx context.Context) {
				env.mustCall(ctx, "reboot_vm", vm.cid)
				expectUnchanged(ctx)
			}, NodeTimeout(longTest))

			It("has the disk before any job starts when its PID 1 and the process of the attachment Pod are killed", func(ctx context.Context) {
				env.killAttachmentProcess(ctx, disk)
				vm.killInit(ctx)
				expectUnchanged(ctx)
			}, NodeTimeout(longTest))

			It("can be deleted with the disk attached, and leaves only the disk", func(ctx context.Context) {
				env.mustCall(ctx, "delete_vm", vm.cid)
				Eventually(func() (int, error) {
					remaining, err := env.cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
					return len(remaining.Items), err
				}).WithContext(ctx).Should(Equal(1))
				otherVM := env.createVM(ctx)
				if testCase.disk["volume_mode"] != "Block" {
					Expect(env.mustFail(ctx, "attach_disk", otherVM.cid, disk).Message).To(ContainSubstring("its volume has the files of a VM"))
					env.mustCall(ctx, "delete_vm", otherVM.cid)
					otherVM = env.createVMFromStemcell(ctx, os.Getenv(testCase.stemcell), testCase.vm)
				}
				otherVM.attach(ctx, disk)
				Expect(otherVM.run(ctx, checkDisk)).To(Equal(checksum))
				env.mustCall(ctx, "delete_vm", otherVM.cid)
				env.mustCall(ctx, "delete_disk", disk)
				Eventually(env.kubeletMounts).WithContext(ctx).ShouldNot(ContainSubstring(disk))
			}, NodeTimeout(longTest))
		})
	}

	DescribeTable("is consistent when attach_disk and detach_disk are killed at any request and retried",
		func(ctx context.Context, properties map[string]any) {
			env := newTestEnv(ctx)
			vm := env.createVMFromStemcell(ctx, os.Getenv("E2E_STEMCELL"), recreateProperties)
			disk, previous := env.createDisk(ctx, 64, properties), vm.invariants(ctx)
			vm.attach(ctx, disk)
			checksum := vm.run(ctx, fillDisk)
			interruptedCall := env.newInterruptedCaller()
			for attached, n := true, 1; ; n++ {
				method := "attach_disk"
				if attached {
					method = "detach_disk"
					vm.callAgent(ctx, "unmount_disk", disk)
					vm.callAgent(ctx, "remove_persistent_disk", disk)
				}
				interrupted := interruptedCall(ctx, n, method, vm.cid, disk)
				By(fmt.Sprintf("%s killed at request %d: %v", method, n, interrupted))
				if attached {
					response, err := env.Call(ctx, method, vm.cid, disk)
					Expect(err).NotTo(HaveOccurred())
					if response.Error != nil {
						Expect(response.Error.Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
					}
					vm.waitForAgent(ctx)
				} else {
					vm.attach(ctx, disk)
					Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
				}
				Expect(vm.invariants(ctx)).To(Equal(previous))
				attached = !attached
				if !interrupted && attached {
					return
				}
			}
		},
		Entry("with a Block PVC", blockDisk, Label("extended"), NodeTimeout(2*longTest)),
		Entry("with a directory", filesystemDisk, Label("extended"), NodeTimeout(2*longTest)),
	)

	It("can migrate its data to another disk with the agent", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVMFromStemcell(ctx, os.Getenv("E2E_STEMCELL"), recreateProperties)
		env.expectMigration(ctx, vm, blockDisk, blockDisk)
	}, Label("extended"), NodeTimeout(longTest))
})
