package integration

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("The volume of a disk", func() {
	var (
		env testEnv
		vm  string
	)
	BeforeEach(func(ctx context.Context) { env, vm = newTestEnvWithVM(ctx) })

	It("is expanded by resize_disk, and not changed by a retried call", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "volume_mode": "Block"})
		env.mustCall(ctx, "resize_disk", disk, 128)
		Expect(env.getPVC(ctx, disk).Status.Capacity.Storage().String()).To(Equal("128Mi"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/size-mib", "128"))
		grown := env.getPVCWithoutStatus(ctx, disk)
		env.mustCall(ctx, "resize_disk", disk, 128)
		Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(grown))
	})

	It("is not changed if it cannot be expanded, or if the requested size is smaller", func(ctx context.Context) {
		fixedDisk, growingDisk := env.createUsedDisk(ctx, vm, map[string]any{}), env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		for disk, size := range map[string]int{fixedDisk: 128, growingDisk: 32} {
			previous := env.getPVCWithoutStatus(ctx, disk)
			Expect(env.mustFail(ctx, "resize_disk", disk, size).Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(previous))
		}
		Expect(env.mustFail(ctx, "resize_disk", "disk-none", 128).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})

	Describe("with an expansion that fails", long, func() {
		for cause, annotations := range map[string]map[string]any{
			"because it is infeasible": {"test/most": "170Mi"},
			"because it times out":     {"test/slow": "yes"},
		} {
			for method, arguments := range map[string][]any{"resize_disk": {}, "update_disk": {map[string]any{"storage_class": "growing"}}} {
				It(cause+" does not change the size of the disk in "+method, func(ctx context.Context) {
					disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": annotations})
					shortTimeout := env
					shortTimeout.Director = env.directorWithTimeouts(map[string]any{"other": waitTimeout})
					for range 2 {
						Expect(shortTimeout.mustFail(ctx, method, append([]any{disk, 128}, arguments...)...).Message).To(ContainSubstring("the volume of disk " + disk + " to 200Mi"))
						Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "64"))
					}
					env.mustCall(ctx, method, append([]any{disk, 64}, arguments...)...)
					env.mustCall(ctx, "attach_disk", vm, disk)
					attachment, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					Expect(attachment.Spec.Containers[0].Command).To(ContainElements("--size-mib", "64"))
				})
			}
		}

		It("can be expanded to a smaller size", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/most": "170Mi"}})
			Expect(env.mustFail(ctx, "resize_disk", disk, 128).Message).To(And(ContainSubstring("cannot expand the volume of disk "+disk+" to 200Mi"), ContainSubstring("no more than 170Mi")))
			env.mustCall(ctx, "resize_disk", disk, 96)
			Expect(env.getPVC(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("166Mi"))
			Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "96"))
		})
	})

	It("is not changed if it is larger than the requested size", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		_, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"spec":{"resources":{"requests":{"storage":"200Mi"}}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return env.getPVC(ctx, disk).Status.Capacity.Storage().String() }).WithContext(ctx).Should(Equal("200Mi"))
		env.mustCall(ctx, "resize_disk", disk, 96)
		Expect(env.getPVC(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("200Mi"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "96"))
	})

	It("counts as expanded if only the expansion on the node is pending, but cannot be expanded again before that", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/at-node": "yes"}})
		env.mustCall(ctx, "resize_disk", disk, 128)
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "128"))
		env.Director = env.directorWithTimeouts(map[string]any{"other": waitTimeout})
		Expect(env.mustFail(ctx, "resize_disk", disk, 256).Message).To(ContainSubstring("timed out expanding the volume of disk " + disk + " to 336Mi"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "128"))
	})

	It("cannot be expanded while the disk is attached", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.mustFail(ctx, "resize_disk", disk, 128).Message).To(ContainSubstring(vm))
	})

	It("supports a snapshot while the disk is attached, and a new disk from that snapshot", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		env.mustCall(ctx, "attach_disk", vm, disk)
		snapshot := env.mustCall(ctx, "snapshot_disk", disk, map[string]any{"deployment": "cf", "index": 0}).Text()
		pods, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=flush"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Items).NotTo(ContainElement(HaveField("DeletionTimestamp", BeNil())), "the flush Pod is deleted, or being deleted")
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		restored := env.mustCall(ctx, "create_disk", 64, map[string]any{"snapshot": snapshot}, nil).Text()
		Expect(env.getPVC(ctx, restored).Spec.DataSource).To(And(HaveField("Kind", "VolumeSnapshot"), HaveField("Name", snapshot)))
		env.mustCall(ctx, "detach_disk", vm, disk)
		env.mustCall(ctx, "delete_snapshot", snapshot)
		env.mustCall(ctx, "delete_snapshot", snapshot)
	})

	It("does not support a snapshot if it does not exist", func(ctx context.Context) {
		Expect(env.mustFail(ctx, "snapshot_disk", "disk-none", map[string]any{}).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(env.mustFail(ctx, "snapshot_disk", env.createDisk(ctx), map[string]any{}).Message).To(ContainSubstring("does not have a volume yet"))
	})

	It("determines the node of a VM that is created for the disk", func(ctx context.Context) {
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

// patchReclaimPolicy sets the reclaim policy of the PersistentVolume.
func patchReclaimPolicy(ctx context.Context, volume, policy string) error {
	_, err := cluster.CoreV1().PersistentVolumes().Patch(ctx, volume, types.MergePatchType,
		[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"`+policy+`"}}`), metav1.PatchOptions{})
	return err
}

var _ = Describe("A disk in use with a PVC that another client deleted", func() {
	var (
		env      testEnv
		vm, disk string
	)
	setReclaimPolicy := func(ctx context.Context, policy string) (volume string) {
		GinkgoHelper()
		volume = env.getPVC(ctx, disk).Spec.VolumeName
		Expect(patchReclaimPolicy(ctx, volume, policy)).To(Succeed())
		return volume
	}
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		setReclaimPolicy(ctx, "Delete")
		Expect(cluster.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, disk, metav1.DeleteOptions{})).To(Succeed())
		Expect(env.getPVC(ctx, disk).DeletionTimestamp).NotTo(BeNil(), "the attachment Pod keeps the PVC")
	})

	It("exists, and stays attached, in all calls", func(ctx context.Context) {
		objects := env.listObjects(ctx)
		env.mustCall(ctx, "set_disk_metadata", disk, map[string]any{"job": "web"})
		for method, arguments := range map[string][]any{
			"attach_disk": {vm, disk}, "detach_disk": {vm, disk}, "delete_vm": {vm}, "snapshot_disk": {disk, map[string]any{}},
			"resize_disk": {disk, 128}, "update_disk": {disk, 64, map[string]any{"filesystem": "xfs"}}, "delete_disk": {disk},
		} {
			Expect(env.mustFail(ctx, method, arguments...)).To(And(HaveField("Type", "Bosh::Clouds::CloudError"), HaveField("Message",
				And(ContainSubstring("PersistentVolume "+env.getPVC(ctx, disk).Spec.VolumeName+" to Retain"), HaveSuffix("[disk-being-deleted]")))), method)
		}
		Expect(env.mustCall(ctx, "has_disk", disk).Result).To(MatchJSON("true"))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		Expect(env.listObjects(ctx)).To(ConsistOf(objects))
	})

	It("can be detached when its volume is retained, and restored", func(ctx context.Context) {
		saved := env.getPVC(ctx, disk)
		volumes, name := cluster.CoreV1().PersistentVolumes(), setReclaimPolicy(ctx, "Retain")
		env.mustCall(ctx, "detach_disk", vm, disk)
		Eventually(env.listDisks).WithContext(ctx).Should(BeEmpty())
		Eventually(func() (*corev1.PersistentVolume, error) { return volumes.Get(ctx, name, metav1.GetOptions{}) }).WithContext(ctx).Should(
			And(HaveField("Status.Phase", corev1.VolumeReleased), HaveField("DeletionTimestamp", BeNil())))

		// The reference without a UID reserves the volume for the new PVC.
		reserve := []byte(`{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
		_, err := volumes.Patch(ctx, name, types.MergePatchType, reserve, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		restored := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: disk, Labels: saved.Labels, Annotations: saved.Annotations}, Spec: saved.Spec}
		delete(restored.Labels, manifest.LabelVM)
		maps.DeleteFunc(restored.Annotations, func(key, _ string) bool {
			return key == manifest.AnnotationOwner || strings.HasPrefix(key, "pv.kubernetes.io/")
		})
		_, err = cluster.CoreV1().PersistentVolumeClaims(env.namespace).Create(ctx, restored, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		env.waitBound(ctx, disk)
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.getPVC(ctx, disk).Spec.VolumeName).To(Equal(name))
	})
})
