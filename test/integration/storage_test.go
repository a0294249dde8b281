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
		env testEnv
		vm  string
	)
	BeforeEach(func(ctx context.Context) { env, vm = newTestEnvWithVM(ctx) })

	It("grows with resize_disk, and not again when the call is repeated", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "volume_mode": "Block"})
		env.mustCall(ctx, "resize_disk", disk, 128)
		Expect(env.getPVC(ctx, disk).Status.Capacity.Storage().String()).To(Equal("128Mi"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/size-mib", "128"))
		grown := env.getPVC(ctx, disk).ResourceVersion
		env.mustCall(ctx, "resize_disk", disk, 128)
		Expect(env.getPVC(ctx, disk).ResourceVersion).To(Equal(grown))
	})

	It("that cannot grow, or would have to shrink, is left as it is", func(ctx context.Context) {
		fixedDisk, growingDisk := env.createUsedDisk(ctx, vm, map[string]any{}), env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		for disk, size := range map[string]int{fixedDisk: 128, growingDisk: 32} {
			previous := env.getPVC(ctx, disk).ResourceVersion
			Expect(env.mustFail(ctx, "resize_disk", disk, size).Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(env.getPVC(ctx, disk).ResourceVersion).To(Equal(previous))
		}
		Expect(env.mustFail(ctx, "resize_disk", "disk-none", 128).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})

	Describe("whose expansion fails", func() {
		for why, annotations := range map[string]map[string]any{
			"because it is infeasible": {"test/most": "170Mi"},
			"for lack of time":         {"test/slow": "yes"},
		} {
			for method, arguments := range map[string][]any{"resize_disk": {}, "update_disk": {map[string]any{"storage_class": "growing"}}} {
				It(why+" leaves the disk with the size it has, after "+method, func(ctx context.Context) {
					disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": annotations})
					shortTimeout := env
					shortTimeout.Director = env.directorWithTimeouts(map[string]any{"other": "2s", "update_disk": "2s"})
					for range 2 {
						Expect(shortTimeout.mustFail(ctx, method, append([]any{disk, 128}, arguments...)...).Message).To(ContainSubstring("expanded to 200Mi"))
						Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "64"))
					}
					env.mustCall(ctx, method, append([]any{disk, 64}, arguments...)...)
					env.mustCall(ctx, "attach_disk", vm, disk)
					attachment, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					Expect(attachment.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{Name: "SIZE_MIB", Value: "64"}))
				})
			}
		}

		It("grows to a smaller size", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/most": "170Mi"}})
			Expect(env.mustFail(ctx, "resize_disk", disk, 128).Message).To(And(ContainSubstring("cannot be expanded to 200Mi"), ContainSubstring("no more than 170Mi")))
			env.mustCall(ctx, "resize_disk", disk, 96)
			Expect(env.getPVC(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("166Mi"))
			Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "96"))
		})
	})

	It("is not asked to shrink when it grew more than is wanted", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		_, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"spec":{"resources":{"requests":{"storage":"200Mi"}}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return env.getPVC(ctx, disk).Status.Capacity.Storage().String() }).WithContext(ctx).Should(Equal("200Mi"))
		env.mustCall(ctx, "resize_disk", disk, 96)
		Expect(env.getPVC(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("200Mi"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "96"))
	})

	It("has grown when only the node's part is left, but does not grow again before that is done", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/at-node": "yes"}})
		env.mustCall(ctx, "resize_disk", disk, 128)
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "128"))
		env.Director = env.directorWithTimeouts(map[string]any{"other": "2s"})
		Expect(env.mustFail(ctx, "resize_disk", disk, 256).Message).To(ContainSubstring("was not expanded to 336Mi"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "128"))
	})

	It("does not grow while the disk is attached", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.mustFail(ctx, "resize_disk", disk, 128).Message).To(ContainSubstring(vm))
	})

	It("can be snapshot while the disk is attached, and become a new disk", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		env.mustCall(ctx, "attach_disk", vm, disk)
		snapshot := env.mustCall(ctx, "snapshot_disk", disk, map[string]any{"deployment": "cf", "index": 0}).Text()
		pods, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=flush"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Items).NotTo(ContainElement(HaveField("DeletionTimestamp", BeNil())), "what has flushed the disk is gone, or about to be")
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		restored := env.mustCall(ctx, "create_disk", 64, map[string]any{"snapshot": snapshot}, nil).Text()
		Expect(env.getPVC(ctx, restored).Spec.DataSource).To(And(HaveField("Kind", "VolumeSnapshot"), HaveField("Name", snapshot)))
		env.mustCall(ctx, "detach_disk", vm, disk)
		env.mustCall(ctx, "delete_snapshot", snapshot)
		env.mustCall(ctx, "delete_snapshot", snapshot)
	})

	It("that does not exist cannot be snapshot", func(ctx context.Context) {
		Expect(env.mustFail(ctx, "snapshot_disk", "disk-none", map[string]any{}).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(env.mustFail(ctx, "snapshot_disk", env.createDisk(ctx), map[string]any{}).Message).To(ContainSubstring("no volume yet"))
	})

	It("draws the machine that is to get it to where it can be reached", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		node := env.getPVC(ctx, disk).Annotations["volume.kubernetes.io/selected-node"]
		for _, agent := range []string{"near-1", "near-2", "near-3"} {
			env.mustCall(ctx, "create_vm", agent, stemcellCID, map[string]any{}, dynamicNetwork(), []string{disk, "disk-none"}, map[string]any{})
			pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(pod.Spec.NodeName).To(Equal(node))
		}
	})
})
