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

const outOfService = "node.kubernetes.io/out-of-service"

// ensureSecondNode returns the cluster's second node. If it is not running, ensureSecondNode adds it for this test only.
func (env *testEnv) ensureSecondNode(ctx context.Context) *embedded.Node {
	GinkgoHelper()
	cluster := embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 2)
	second := cluster.Nodes[1]
	wasRunning := second.Kubelet().Running()
	Expect(cluster.AddNode(ctx, second)).To(Succeed()) // imports images that a kubelet under disk pressure deleted
	if !wasRunning {
		DeferCleanup(func(ctx context.Context) { Expect(cluster.RemoveNode(ctx, second)).To(Succeed()) })
	}
	return second
}

func nodeSelector(node *embedded.Node) map[string]any {
	return map[string]any{"node_selector": map[string]any{"kubernetes.io/hostname": node.Name}}
}

// movableDisks are cloud_properties of disks with volumes that other nodes can use, by volume mode.
var movableDisks = map[string]map[string]any{
	"Filesystem": {"storage_class": embedded.CSIAnyNodeClass},
	"Block":      {"storage_class": embedded.CSIAnyNodeClass, "volume_mode": "Block"},
}

var _ = Describe("A lost node", Label("vms", "extended", labelSharedKernel), Serial, func() {
	It("releases its VM and disks only when the operator declares it out of service", func(ctx context.Context) {
		env := newTestEnv(ctx)
		first, second := env.embedded.Nodes[0], env.ensureSecondNode(ctx)
		kubectl := func(args ...string) {
			GinkgoHelper()
			_, err := env.embedded.ControlPlane.Kubectl(ctx, args...)
			Expect(err).NotTo(HaveOccurred())
		}
		otherVM, lostVM := env.createVMFromSpec(ctx, vmSpec{properties: nodeSelector(first)}), env.createVMFromSpec(ctx, vmSpec{properties: nodeSelector(second)})
		disks, checksums := map[string]string{}, map[string]string{}
		for mode, properties := range movableDisks {
			disks[mode] = env.createDisk(ctx, 64, properties)
			checksums[mode] = lostVM.attachAndFill(ctx, disks[mode])
		}

		By("cutting the node's power")
		Expect(second.PowerOff(ctx)).To(Succeed())
		showsRemedy := And(ContainSubstring("node "+second.Name+" has not reported since "), ContainSubstring("kubectl taint nodes "+second.Name+" "+outOfService+"="))
		Expect(env.mustFail(ctx, "delete_vm", lostVM.cid).Message).To(showsRemedy)
		for _, disk := range disks {
			Expect(env.mustFail(ctx, "detach_disk", lostVM.cid, disk).Message).To(showsRemedy)
			Expect(env.mustFail(ctx, "attach_disk", otherVM.cid, disk).Message).To(ContainSubstring("attached to VM " + lostVM.cid))
		}
		Expect(string(env.mustCall(ctx, "has_vm", lostVM.cid).Result)).To(Equal("true"))

		By("declaring the node out of service")
		kubectl("taint", "nodes", second.Name, outOfService+"=nodeshutdown:NoExecute")
		response, err := env.Call(ctx, "delete_vm", lostVM.cid)
		Expect(err).NotTo(HaveOccurred())
		if response.Error != nil {
			Expect(response.Error.Type).To(Equal("Bosh::Clouds::VMNotFound"), response.Error.Message)
		}
		next := env.createVMFromSpec(ctx, vmSpec{disks: []string{disks["Filesystem"], disks["Block"]}})
		Expect(next.pod(ctx).Spec.NodeName).To(Equal(first.Name))
		for mode, disk := range disks {
			Expect(next.attachAndChecksum(ctx, disk)).To(Equal(checksums[mode]), mode)
		}

		By("returning the node to service")
		Expect(second.PowerOn(ctx, false)).To(Succeed())
		kubectl("taint", "nodes", second.Name, outOfService+"-")
		Eventually(func(g Gomega) {
			remaining, err := second.Ctr(ctx, "containers", "list", "--quiet")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(remaining).To(BeEmpty())
			pods, err := env.cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + second.Name})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods.Items).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		for mode, disk := range disks {
			next.run(ctx, "umount /mnt/"+disk)
			env.mustCall(ctx, "detach_disk", next.cid, disk)
			Expect(next.attachAndChecksum(ctx, disk)).To(Equal(checksums[mode]), mode)
			next.run(ctx, "umount /mnt/"+disk)
			env.mustCall(ctx, "detach_disk", next.cid, disk)
		}
		onSecond := env.createVMFromSpec(ctx, vmSpec{properties: nodeSelector(second)})
		Expect(onSecond.attachAndChecksum(ctx, disks["Block"])).To(Equal(checksums["Block"]))
		env.mustCall(ctx, "delete_vm", onSecond.cid)
	}, NodeTimeout(longTest))
})

// attachAndFill attaches the disk, writes to it, and returns the checksum. It does not use the agent, because the agent treats a
// second disk as the target of a migration.
func (vm *testVM) attachAndFill(ctx context.Context, disk string) string {
	GinkgoHelper()
	vm.attachAndMount(ctx, disk)
	return vm.run(ctx, fmt.Sprintf("head -c 8388608 /dev/urandom >/mnt/%[1]s/data && sync && sha256sum </mnt/%[1]s/data", disk))
}

// attachAndChecksum attaches the disk and returns the checksum of the data written by attachAndFill.
func (vm *testVM) attachAndChecksum(ctx context.Context, disk string) string {
	GinkgoHelper()
	vm.attachAndMount(ctx, disk)
	return vm.run(ctx, fmt.Sprintf("sha256sum </mnt/%s/data", disk))
}

func (vm *testVM) attachAndMount(ctx context.Context, disk string) {
	GinkgoHelper()
	vm.env.mustCall(ctx, "attach_disk", vm.cid, disk)
	vm.run(ctx, fmt.Sprintf("mkdir -p /mnt/%[1]s && mount /dev/bosh/%[1]s /mnt/%[1]s", disk))
}
