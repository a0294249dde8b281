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

// The scheduler counts the volumes of Pods, and a machine's Pod has none of its disks'.
var _ = Describe("A VM that is to get a disk, where nodes can have only so many volumes,", func() {
	var (
		w              world
		driver, vm     string
		first, second  string // the nodes; the scheduler takes the first where it can
		disk           string
		either, onlyOn map[string]any
	)
	// limit says what the node's CSI driver can attach there, and what is attached by now.
	limit := func(ctx context.Context, node string, most int32, attached ...string) {
		GinkgoHelper()
		_, err := cluster.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: driver, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: new(most)}},
			}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.StorageV1().CSINodes().Delete(ctx, node, metav1.DeleteOptions{})).To(Succeed())
		})
		var there []string
		for _, volume := range attached {
			there = append(there, fmt.Sprintf(`{"name":"kubernetes.io/csi/%s^%s","devicePath":""}`, driver, volume))
		}
		patch := `{"status":{"volumesAttached":[` + strings.Join(there, ",") + `]}}`
		_, err = cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
	}
	node := func(ctx context.Context, vm string) string {
		GinkgoHelper()
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return pod.Spec.NodeName
	}
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		id := strings.TrimPrefix(w.namespace, "world-")
		driver, first, second = "driver-"+id, "first-"+id, "second-"+id
		for _, each := range []string{first, second} {
			bringNode(ctx, each)
		}
		either = on(first)
		delete(either, "node_selector")
		either["affinity"] = map[string]any{"nodeAffinity": map[string]any{
			"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
				map[string]any{"key": "test/name", "operator": "In", "values": []string{first, second}},
			}}}},
			"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{"weight": 100, "preference": map[string]any{"matchExpressions": []any{
				map[string]any{"key": "test/name", "operator": "In", "values": []string{first}},
			}}}},
		}}
		onlyOn = on(first)
		w.must(ctx, "create_vm", "zero", stemcellCID, onlyOn, onDynamic(), []string{}, map[string]any{})
		vm = "agent-zero"
		disk = w.usedDisk(ctx, vm, map[string]any{"annotations": map[string]any{"test/driver": driver}})
	})

	create := func(ctx context.Context, agent string, properties map[string]any, disks ...string) string {
		GinkgoHelper()
		w.must(ctx, "create_vm", agent, stemcellCID, properties, onDynamic(), disks, map[string]any{})
		return node(ctx, "agent-"+agent)
	}

	It("is placed where its disk's volume can be attached", func(ctx context.Context) {
		limit(ctx, first, 2, "some", "other")
		limit(ctx, second, 2, "third")
		Expect(create(ctx, "one", either, disk)).To(Equal(second))
		w.must(ctx, "attach_disk", "agent-one", disk)
	})

	It("is left where it is scheduled when the volume is there already, or there is room", func(ctx context.Context) {
		limit(ctx, first, 2, "some", string(w.claim(ctx, disk).UID))
		limit(ctx, second, 2)
		Expect(create(ctx, "one", either, disk)).To(Equal(first))
	})

	It("is left where it is scheduled when no disks are named, or the driver names no limit", func(ctx context.Context) {
		Expect(create(ctx, "one", either, disk)).To(Equal(first))
		limit(ctx, first, 0)
		limit(ctx, second, 0)
		Expect(create(ctx, "two", either)).To(Equal(first))
	})

	It("is not made where no node has room, and the error says which have none", func(ctx context.Context) {
		limit(ctx, first, 1, "some")
		w.Director = w.withTimeouts(map[string]any{"unschedulable": "0s"})
		failed := w.fails(ctx, "create_vm", "one", stemcellCID, onlyOn, onDynamic(), []string{disk}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(failed.OkToRetry).To(BeTrue())
		Expect(failed.Message).To(ContainSubstring("nodes that cannot have its disks: " + first + ": 1 more of driver " + driver +
			", of which it can attach 1 and has 1"))
		_, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	})

	It("stays where it is when a late create_vm for it comes, however full its node is by then", func(ctx context.Context) {
		limit(ctx, second, 2)
		Expect(create(ctx, "one", either, disk)).To(Equal(first))
		w.must(ctx, "set_vm_metadata", "agent-one", map[string]any{"director": "d", "deployment": "d", "job": "j", "index": "0", "id": "i", "name": "j/i"})
		before, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		limit(ctx, first, 1, "some")
		Expect(create(ctx, "one", either, disk)).To(Equal(first))
		after, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(after.UID).To(Equal(before.UID))
	})
})
