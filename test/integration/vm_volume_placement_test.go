package integration

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The scheduler counts the volumes of each Pod, but a VM Pod does not contain the volumes of the VM's disks.
var _ = Describe("A VM that is created for a disk, on nodes with volume limits,", func() {
	var (
		env                       testEnv
		driver, vm                string
		first, second             string // the nodes; the scheduler prefers the first one
		disk                      string
		eitherNode, firstNodeOnly map[string]any
	)
	// createCSINode sets the volume limit of the CSI driver on the node, and the volumes that are attached there.
	createCSINode := func(ctx context.Context, node string, limit int32, attached ...string) {
		GinkgoHelper()
		_, err := cluster.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: driver, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: new(limit)}},
			}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.StorageV1().CSINodes().Delete(ctx, node, metav1.DeleteOptions{})).To(Succeed())
		})
		var volumesAttached []string
		for _, volume := range attached {
			volumesAttached = append(volumesAttached, fmt.Sprintf(`{"name":"kubernetes.io/csi/%s^%s","devicePath":""}`, driver, volume))
		}
		patch := `{"status":{"volumesAttached":[` + strings.Join(volumesAttached, ",") + `]}}`
		_, err = cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
	}
	nodeOf := func(ctx context.Context, vm string) string {
		GinkgoHelper()
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return pod.Spec.NodeName
	}
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		driver, first, second = "driver-"+env.id(), "first-"+env.id(), "second-"+env.id()
		for _, name := range []string{first, second} {
			createNode(ctx, name)
		}
		eitherNode = nodeProperties(first)
		delete(eitherNode, "node_selector")
		eitherNode["affinity"] = map[string]any{"nodeAffinity": map[string]any{
			"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
				map[string]any{"key": "test/name", "operator": "In", "values": []string{first, second}},
			}}}},
			"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{"weight": 100, "preference": map[string]any{"matchExpressions": []any{
				map[string]any{"key": "test/name", "operator": "In", "values": []string{first}},
			}}}},
		}}
		firstNodeOnly = nodeProperties(first)
		env.mustCall(ctx, "create_vm", "zero", stemcellCID, firstNodeOnly, dynamicNetwork(), []string{}, map[string]any{})
		vm = "agent-zero"
		disk = env.createUsedDisk(ctx, vm, map[string]any{"annotations": map[string]any{"test/driver": driver}})
	})

	// createVMAndGetNode creates a VM for the disks, and returns its node.
	createVMAndGetNode := func(ctx context.Context, agent string, properties map[string]any, disks ...string) string {
		GinkgoHelper()
		env.mustCall(ctx, "create_vm", agent, stemcellCID, properties, dynamicNetwork(), disks, map[string]any{})
		return nodeOf(ctx, "agent-"+agent)
	}

	It("runs on a node to which the volume can be attached", func(ctx context.Context) {
		createCSINode(ctx, first, 2, "some", "other")
		createCSINode(ctx, second, 2, "third")
		Expect(createVMAndGetNode(ctx, "one", eitherNode, disk)).To(Equal(second))
		env.mustCall(ctx, "attach_disk", "agent-one", disk)
	})

	It("runs on the preferred node if the volume is attached there already", func(ctx context.Context) {
		createCSINode(ctx, first, 2, "some", string(env.getPVC(ctx, disk).UID))
		createCSINode(ctx, second, 2)
		Expect(createVMAndGetNode(ctx, "one", eitherNode, disk)).To(Equal(first))
	})

	It("runs on the preferred node if the driver has no limit, or if no disk is named", func(ctx context.Context) {
		Expect(createVMAndGetNode(ctx, "one", eitherNode, disk)).To(Equal(first))
		createCSINode(ctx, first, 0)
		createCSINode(ctx, second, 0)
		Expect(createVMAndGetNode(ctx, "two", eitherNode)).To(Equal(first))
	})

	It("is not created if all nodes are at their limit, and the error names them", func(ctx context.Context) {
		createCSINode(ctx, first, 1, "some")
		env.Director = env.directorWithTimeouts(map[string]any{"unschedulable": "0s"})
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, firstNodeOnly, dynamicNetwork(), []string{disk}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(failed.OkToRetry).To(BeTrue())
		Expect(failed.Message).To(ContainSubstring("nodes that cannot attach its disks: " + first + ": driver " + driver +
			" has 1 of 1 volumes attached and would need 1 more"))
		_, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	})

	It("is adopted by a retried create_vm, even if its node is at its limit by then", func(ctx context.Context) {
		createCSINode(ctx, second, 2)
		Expect(createVMAndGetNode(ctx, "one", eitherNode, disk)).To(Equal(first))
		env.mustCall(ctx, "set_vm_metadata", "agent-one", map[string]any{"director": "d", "deployment": "d", "job": "j", "index": "0", "id": "i", "name": "j/i"})
		previous, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		createCSINode(ctx, first, 1, "some")
		Expect(createVMAndGetNode(ctx, "one", eitherNode, disk)).To(Equal(first))
		after, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(after.UID).To(Equal(previous.UID))
	})
})
