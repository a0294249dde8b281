package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("A disk's volume", func() {
	var (
		w  world
		vm string
	)
	BeforeEach(func(ctx context.Context) { w, vm = newWorldWithVM(ctx) })

	It("grows with resize_disk, and not again when the call is repeated", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "volume_mode": "Block"})
		w.must(ctx, "resize_disk", disk, 128)
		Expect(w.claim(ctx, disk).Status.Capacity.Storage().String()).To(Equal("128Mi"))
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/size-mib", "128"))
		grown := w.claim(ctx, disk).ResourceVersion
		w.must(ctx, "resize_disk", disk, 128)
		Expect(w.claim(ctx, disk).ResourceVersion).To(Equal(grown))
	})

	It("that cannot grow, or would have to shrink, is left as it is", func(ctx context.Context) {
		fixed, growing := w.usedDisk(ctx, vm, map[string]any{}), w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		for disk, size := range map[string]int{fixed: 128, growing: 32} {
			before := w.claim(ctx, disk).ResourceVersion
			Expect(w.fails(ctx, "resize_disk", disk, size).Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(w.claim(ctx, disk).ResourceVersion).To(Equal(before))
		}
		Expect(w.fails(ctx, "resize_disk", "disk-none", 128).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})

	Describe("whose expansion fails", func() {
		for why, annotations := range map[string]map[string]any{
			"because it is infeasible": {"test/most": "170Mi"},
			"for lack of time":         {"test/slow": "yes"},
		} {
			for method, arguments := range map[string][]any{"resize_disk": {}, "update_disk": {map[string]any{"storage_class": "growing"}}} {
				It(why+" leaves the disk with the size it has, after "+method, func(ctx context.Context) {
					disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": annotations})
					short := w
					short.Director = w.withTimeouts(map[string]any{"other": "2s", "update_disk": "2s"})
					for range 2 {
						Expect(short.fails(ctx, method, append([]any{disk, 128}, arguments...)...).Message).To(ContainSubstring("expanded to 200Mi"))
						Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "64"))
					}
					w.must(ctx, method, append([]any{disk, 64}, arguments...)...)
					w.must(ctx, "attach_disk", vm, disk)
					attachment, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					Expect(attachment.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{Name: "SIZE_MIB", Value: "64"}))
				})
			}
		}

		It("grows to a smaller size", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/most": "170Mi"}})
			Expect(w.fails(ctx, "resize_disk", disk, 128).Message).To(And(ContainSubstring("cannot be expanded to 200Mi"), ContainSubstring("no more than 170Mi")))
			w.must(ctx, "resize_disk", disk, 96)
			Expect(w.claim(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("166Mi"))
			Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "96"))
		})
	})

	It("is not asked to shrink when it grew more than is wanted", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		_, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"spec":{"resources":{"requests":{"storage":"200Mi"}}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return w.claim(ctx, disk).Status.Capacity.Storage().String() }).WithContext(ctx).Should(Equal("200Mi"))
		w.must(ctx, "resize_disk", disk, 96)
		Expect(w.claim(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("200Mi"))
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "96"))
	})

	It("has grown when only the node's part is left, but does not grow again before that is done", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/at-node": "yes"}})
		w.must(ctx, "resize_disk", disk, 128)
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "128"))
		w.Director = w.withTimeouts(map[string]any{"other": "2s"})
		Expect(w.fails(ctx, "resize_disk", disk, 256).Message).To(ContainSubstring("was not expanded to 336Mi"))
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "128"))
	})

	It("does not grow while the disk is attached", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		w.must(ctx, "attach_disk", vm, disk)
		Expect(w.fails(ctx, "resize_disk", disk, 128).Message).To(ContainSubstring(vm))
	})

	It("can be snapshot while the disk is attached, and become a new disk", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		w.must(ctx, "attach_disk", vm, disk)
		snapshot := w.must(ctx, "snapshot_disk", disk, map[string]any{"deployment": "cf", "index": 0}).Text()
		pods, err := cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=flush"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Items).NotTo(ContainElement(HaveField("DeletionTimestamp", BeNil())), "what has flushed the disk is gone, or about to be")
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		restored := w.must(ctx, "create_disk", 64, map[string]any{"snapshot": snapshot}, nil).Text()
		Expect(w.claim(ctx, restored).Spec.DataSource).To(And(HaveField("Kind", "VolumeSnapshot"), HaveField("Name", snapshot)))
		w.must(ctx, "detach_disk", vm, disk)
		w.must(ctx, "delete_snapshot", snapshot)
		w.must(ctx, "delete_snapshot", snapshot)
	})

	It("that does not exist cannot be snapshot", func(ctx context.Context) {
		Expect(w.fails(ctx, "snapshot_disk", "disk-none", map[string]any{}).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(w.fails(ctx, "snapshot_disk", w.createDisk(ctx), map[string]any{}).Message).To(ContainSubstring("no volume yet"))
	})

	It("draws the machine that is to get it to where it can be reached", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		node := w.claim(ctx, disk).Annotations["volume.kubernetes.io/selected-node"]
		for _, agent := range []string{"near-1", "near-2", "near-3"} {
			w.must(ctx, "create_vm", agent, stemcellCID, map[string]any{}, onDynamic(), []string{disk, "disk-none"}, map[string]any{})
			pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(pod.Spec.NodeName).To(Equal(node))
		}
	})
})
