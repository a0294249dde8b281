package integration

import (
	"context"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/simulated"
)

const (
	sizeAnnotation = "bosh.cloudfoundry.org/size-mib"
	callAnnotation = "bosh.cloudfoundry.org/call-id"
)

// createUsedDisk creates a disk, and attaches and detaches it once, so that it has a volume. It returns the CID.
func (env testEnv) createUsedDisk(ctx context.Context, vm string, properties map[string]any) string {
	GinkgoHelper()
	merged := maps.Clone(env.diskProperties)
	maps.Copy(merged, properties)
	disk := env.mustCall(ctx, "create_disk", 64, merged, nil).Text()
	env.mustCall(ctx, "attach_disk", vm, disk)
	env.detachAndWait(ctx, vm, disk)
	env.waitBound(ctx, disk)
	return disk
}

// detachAndWait detaches the disk, and waits until its attachment Pod is gone. detach_disk does not wait for that.
func (env testEnv) detachAndWait(ctx context.Context, vm, disk string) {
	GinkgoHelper()
	env.mustCall(ctx, "detach_disk", vm, disk)
	Eventually(env.listObjects).WithContext(ctx).WithPolling(20 * time.Millisecond).ShouldNot(ContainElement("Pod/" + disk + "-attachment"))
}

// waitBound waits until the disk has a volume. A simulated Pod can run before its PVC is bound.
func (env testEnv) waitBound(ctx context.Context, disk string) {
	GinkgoHelper()
	Eventually(func() corev1.PersistentVolumeClaimPhase { return env.getPVC(ctx, disk).Status.Phase }).WithContext(ctx).
		WithPolling(20 * time.Millisecond).Should(Equal(corev1.ClaimBound))
}

// getPVC returns the PVC of the disk.
func (env testEnv) getPVC(ctx context.Context, disk string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	found, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Get(ctx, disk, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// getPVCWithoutStatus returns the parts of the disk's PVC that calls change. Kubernetes changes the status at any time, since 1.37 for example
// the condition Unused.
func (env testEnv) getPVCWithoutStatus(ctx context.Context, disk string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	pvc := env.getPVC(ctx, disk)
	pvc.Status, pvc.ResourceVersion, pvc.ManagedFields = corev1.PersistentVolumeClaimStatus{}, "", nil
	return pvc
}

// listDisks returns the names of all PVCs in the namespace.
func (env testEnv) listDisks(ctx context.Context) []string {
	GinkgoHelper()
	pvcs, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, pvc := range pvcs.Items {
		names = append(names, pvc.Name)
	}
	return names
}

// attachAndReadCommand attaches and detaches the disk, and returns the command of its attachment Pod.
func (env testEnv) attachAndReadCommand(ctx context.Context, vm, disk string) []string {
	GinkgoHelper()
	env.mustCall(ctx, "attach_disk", vm, disk)
	pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	env.mustCall(ctx, "detach_disk", vm, disk)
	return pod.Spec.Containers[0].Command
}

// toBlock is a change that Kubernetes cannot make in place.
var toBlock = map[string]any{"volume_mode": "Block"}

var _ = Describe("update_disk", func() {
	var (
		env testEnv
		vm  string
	)
	BeforeEach(func(ctx context.Context) { env, vm = newTestEnvWithVM(ctx) })

	It("expands a disk, sets labels and annotations, and changes nothing if it is retried", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		properties := map[string]any{"storage_class": "growing", "labels": map[string]any{"team": "a"}, "annotations": map[string]any{"note": "b c"}}
		Expect(env.mustCall(ctx, "update_disk", disk, 128, properties).Text()).To(Equal(disk))
		grown := env.getPVC(ctx, disk)
		Expect(grown.Annotations).To(And(HaveKeyWithValue(sizeAnnotation, "128"), HaveKeyWithValue("note", "b c")))
		Expect(grown.Labels).To(HaveKeyWithValue("team", "a"))
		Expect(grown.Status.Capacity.Storage().Value()).To(BeNumerically(">=", 128<<20))
		previous := env.getPVCWithoutStatus(ctx, disk)
		Expect(env.mustCall(ctx, "update_disk", disk, 128, properties).Text()).To(Equal(disk))
		Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(previous))
	})

	It("keeps the labels if only annotations are requested", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"labels": map[string]any{"team": "a"}})
		previous := env.getPVC(ctx, disk).Labels
		Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{"annotations": map[string]any{"note": "b"}}).Text()).To(Equal(disk))
		Expect(env.getPVC(ctx, disk).Labels).To(Equal(previous))
		Expect(string(env.mustCall(ctx, "has_disk", disk).Result)).To(Equal("true"))
	})

	It("preallocates a disk from its next attachment on, until preallocate is omitted", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{"preallocate": true}).Text()).To(Equal(disk))
		Expect(env.attachAndReadCommand(ctx, vm, disk)).To(ContainElement("--preallocate"))
		Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{}).Text()).To(Equal(disk))
		Expect(env.attachAndReadCommand(ctx, vm, disk)).NotTo(ContainElement("--preallocate"))
	})

	It("keeps the StorageClass if none is requested", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{}).Text()).To(Equal(disk))
	})

	It("leaves other changes to the director, which attaches a new disk as a second one", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		previous := env.getPVCWithoutStatus(ctx, disk)
		failed := env.mustFail(ctx, "update_disk", disk, 64, toBlock)
		Expect(failed.Type).To(Equal("Bosh::Clouds::NotSupported"))
		Expect(failed.Message).To(ContainSubstring("cannot change volume_mode of disk " + disk + " from Filesystem to Block in place"))
		Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(previous))

		env.mustCall(ctx, "attach_disk", vm, disk)
		next := env.mustCall(ctx, "create_disk", 64, toBlock, vm).Text()
		env.mustCall(ctx, "attach_disk", vm, next)
		env.mustCall(ctx, "detach_disk", vm, disk)
		env.mustCall(ctx, "delete_disk", disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + next + `"]`))
	})

	It("changes nothing while the disk is attached", func(ctx context.Context) {
		disk := env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", vm, disk)
		previous := env.getPVCWithoutStatus(ctx, disk)
		for _, properties := range []map[string]any{{}, toBlock, {"labels": map[string]any{"team": "a"}}} {
			Expect(env.mustFail(ctx, "update_disk", disk, 128, properties).Message).To(ContainSubstring("attached to VM " + vm))
		}
		Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(previous))
	})

	It("changes nothing while the VM uses the disk, even if another client deleted its attachment Pod", func(ctx context.Context) {
		disk := env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", vm, disk)
		release := env.blockDeletion(ctx, podResource, disk+"-attachment")
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		Expect(env.mustFail(ctx, "update_disk", disk, 64, map[string]any{}).Message).To(ContainSubstring("attached to VM " + vm))
		release()
		env.mustCall(ctx, "attach_disk", vm, disk)
	})

	It("rejects a disk that does not exist", func(ctx context.Context) {
		Expect(env.mustFail(ctx, "update_disk", "disk-none", 64, map[string]any{}).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})
})

var _ = Describe("A VolumeAttributesClass", func() {
	withClass := func(name string) map[string]any { return map[string]any{"volume_attributes_class": name} }

	It("that the cluster does not have is rejected", func(ctx context.Context) {
		env := newTestEnv(ctx)
		failed := env.mustFail(ctx, "create_disk", 64, withClass("none"), nil)
		Expect(failed.Type).To(Equal(cpiError))
		Expect(failed.Message).To(ContainSubstring("cloud_properties.volume_attributes_class"))
		Expect(env.listDisks(ctx)).To(BeEmpty())
	})

	Describe("that the cluster has", Ordered, func() {
		var env testEnv
		var vm string
		BeforeAll(func(ctx context.Context) {
			Expect(plane.Apply(ctx, simulated.AttributesClasses)).To(Succeed())
			env, vm = newTestEnvWithVM(ctx)
		})
		currentClass := func(ctx context.Context, disk string) *string {
			return env.getPVC(ctx, disk).Status.CurrentVolumeAttributesClassName
		}

		It("is the class of a new disk, and is changed by update_disk", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, withClass("silver"))
			Expect(currentClass(ctx, disk)).To(HaveValue(Equal("silver")))
			Expect(env.mustCall(ctx, "update_disk", disk, 64, withClass("gold")).Text()).To(Equal(disk))
			Expect(currentClass(ctx, disk)).To(HaveValue(Equal("gold")))
			changed := env.getPVCWithoutStatus(ctx, disk)
			env.mustCall(ctx, "update_disk", disk, 64, withClass("gold"))
			Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(changed))
		})

		for name, properties := range map[string]map[string]any{"without a class": {}, "with another class": withClass("silver")} {
			It("is not requested any more after the driver rejected it for a disk "+name, func(ctx context.Context) {
				disk := env.createUsedDisk(ctx, vm, properties)
				previous := env.getPVC(ctx, disk).Spec.VolumeAttributesClassName
				Expect(env.mustFail(ctx, "update_disk", disk, 64, withClass("infeasible")).Message).To(
					And(ContainSubstring("VolumeAttributesClass infeasible: iops out of range"), HaveSuffix("[disk-modify-failed]")))
				Expect(env.getPVC(ctx, disk).Spec.VolumeAttributesClassName).To(Equal(previous))
				env.mustCall(ctx, "attach_disk", vm, disk)
				env.detachAndWait(ctx, vm, disk)
				Expect(env.mustCall(ctx, "update_disk", disk, 64, withClass("gold")).Text()).To(Equal(disk))
			})
		}
	})
})
