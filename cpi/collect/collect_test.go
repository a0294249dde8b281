package collect

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func TestCollect(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "garbage collection")
}

var _ = Describe("findOrphans", func() {
	now := time.Now()
	// newVM returns a VM in an instance group with a DisruptionBudget, behind a Service, and its Pod, created an hour ago.
	newVM := func(name string) (manifest.VM, manifest.VMPod) {
		vm := manifest.VM{Name: name, Namespace: "bosh", Director: "d", Group: "g", Budget: &manifest.DisruptionBudget{MaxUnavailable: new(int32(1))},
			Services: []manifest.Service{{Name: "web"}}}
		pod := vm.Pod()
		pod.UID = "uid-of-" + pod.UID
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		pod.Annotations[manifest.AnnotationMetadata] = "{}"
		return vm, pod
	}
	// newAttachedDisk returns a disk that the VM has, and its attachment Pod.
	newAttachedDisk := func(vmPod manifest.VMPod) (manifest.DiskPVC, manifest.AttachmentPod) {
		used := manifest.Disk{Name: "disk-1", Director: "d"}.PVC()
		used.Labels[manifest.LabelVM] = vmPod.Name
		used.Annotations[manifest.AnnotationOwner] = "uid-of-the-attachment"
		return used, manifest.Attachment{Disk: "disk-1", VM: vmPod, Director: "d"}.Pod()
	}
	orphanReasons := func(inv inventory) map[string]string {
		reasons := map[string]string{}
		for _, orphan := range inv.findOrphans(now, time.Minute) {
			outcome := ""
			if orphan.remedy != nil {
				outcome = orphan.remedy.outcome
			}
			reasons[kindOf(orphan.object)+"/"+orphan.object.GetName()] = orphan.reason + ": " + outcome
		}
		return reasons
	}

	It("returns nothing for an existing VM", func() {
		vm, pod := newVM("agent-a")
		pod.Spec.NodeName = "node"
		attachment := manifest.Attachment{Disk: "disk-1", VM: pod, Director: "d"}.Pod()
		attachment.Spec.SchedulingGates = nil
		Expect(orphanReasons(inventory{
			pods:     []*corev1.Pod{pod.Pod, attachment.Pod},
			services: []*corev1.Service{vm.Services[0].Object(pod, "d")},
			pdbs:     []*policyv1.PodDisruptionBudget{vm.Budget.Object(vm, pod, 1), manifest.AttachmentPDB(vm, pod)},
		})).To(BeEmpty())
	})

	It("returns an unfinished snapshot that exceeds the minimum age", func() {
		disk := manifest.Disk{Name: "disk-1", Director: "d"}.PVC()
		recent, orphaned := manifest.VolumeSnapshot("snapshot-1", "d", disk, manifest.Metadata{}), manifest.VolumeSnapshot("snapshot-2", "d", disk, manifest.Metadata{})
		recent.CreationTimestamp, orphaned.CreationTimestamp = metav1.NewTime(now), metav1.NewTime(now.Add(-time.Hour))
		Expect(orphanReasons(inventory{unfinishedSnapshots: []*extension.VolumeSnapshot{recent, orphaned}})).To(Equal(map[string]string{
			"VolumeSnapshot/snapshot-2": "orphaned by an interrupted snapshot_disk: unknown to the director: deleted",
		}))
	})

	It("returns all objects of a VM that does not exist, except a Service with keep", func() {
		vm, pod := newVM("agent-a")
		kept := manifest.Service{Name: "kept", Keep: true}
		Expect(orphanReasons(inventory{
			pods:     []*corev1.Pod{manifest.Attachment{Disk: "disk-1", VM: pod, Director: "d"}.Pod().Pod},
			services: []*corev1.Service{vm.Services[0].Object(pod, "d"), kept.Object(pod, "d")},
			pdbs:     []*policyv1.PodDisruptionBudget{vm.Budget.Object(vm, pod, 1), manifest.AttachmentPDB(vm, pod)},
		})).To(Equal(map[string]string{
			"Pod/disk-1-attachment":       "its VM agent-a does not exist: deleted",
			"Service/web":                 "has no VM: deleted",
			"PodDisruptionBudget/g":       "its instance group has no VM: deleted",
			"PodDisruptionBudget/g.disks": "its instance group has no VM: deleted",
		}))
	})

	It("returns a VM without metadata and a reboot Pod that exceed the minimum age, and lists a younger VM without a remedy", func() {
		_, pod := newVM("agent-a")
		delete(pod.Annotations, manifest.AnnotationMetadata)
		reboot := manifest.RebootPod(pod, "d", stemcells.NodeImageReference)
		reboot.CreationTimestamp = pod.CreationTimestamp
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod.Pod, reboot.Pod}})).To(And(HaveLen(2), HaveKey("Pod/agent-a"), HaveKey("Pod/agent-a-reboot")))
		pod.CreationTimestamp, reboot.CreationTimestamp = metav1.NewTime(now), metav1.NewTime(now)
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod.Pod, reboot.Pod}})).To(Equal(map[string]string{
			"Pod/agent-a": "unless its call is still running: " + reasonNeverNamed + ": ",
		}))
	})

	It("returns a disk in use with a deleted or evicted attachment Pod, except if its VM Pod is finished", func() {
		_, vmPod := newVM("agent-a")
		used, attachment := newAttachedDisk(vmPod)
		inv := inventory{pods: []*corev1.Pod{vmPod.Pod}, ownedDisks: []manifest.DiskPVC{used}}
		Expect(orphanReasons(inv)).To(Equal(map[string]string{
			"PersistentVolumeClaim/disk-1": "VM agent-a uses the disk, but its attachment Pod was deleted by another client: attached again",
		}))
		attachment.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		inv.pods = []*corev1.Pod{vmPod.Pod, attachment.Pod}
		Expect(orphanReasons(inv)).To(HaveKeyWithValue("PersistentVolumeClaim/disk-1",
			"VM agent-a uses the disk, but its attachment Pod is Evicted: attached again"))
		attachment.Status = corev1.PodStatus{}
		attachment.DeletionTimestamp = new(metav1.NewTime(now))
		Expect(orphanReasons(inv)).To(HaveKeyWithValue("PersistentVolumeClaim/disk-1", ContainSubstring("it stays until VM agent-a stops using the disk: ")))
		vmPod.Status.Phase = corev1.PodFailed
		Expect(orphanReasons(inv)).To(BeEmpty())
	})

	It("keeps a disk and an attachment of a VM that belongs to another director", func() {
		_, vmPod := newVM("agent-a")
		used, attachment := newAttachedDisk(vmPod)
		attachment.Spec.SchedulingGates = nil
		inv := inventory{pods: []*corev1.Pod{attachment.Pod}, otherPods: []*corev1.Pod{vmPod.Pod}, ownedDisks: []manifest.DiskPVC{used}}
		Expect(orphanReasons(inv)).To(BeEmpty())
		inv.pods, inv.otherPods = nil, append(inv.otherPods, attachment.Pod)
		Expect(orphanReasons(inv)).To(BeEmpty())
	})

	It("skips objects that are already being deleted", func() {
		_, pod := newVM("agent-a")
		delete(pod.Annotations, manifest.AnnotationMetadata)
		pod.DeletionTimestamp = new(metav1.NewTime(now))
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod.Pod}})).To(BeEmpty())
	})

	It("returns a PodDisruptionBudget that requires more VMs than the group has, except one with a fixed number", func() {
		vm, pod := newVM("agent-a")
		pdb := vm.Budget.Object(vm, pod, 3)
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod.Pod}, pdbs: []*policyv1.PodDisruptionBudget{pdb}})).To(
			HaveKeyWithValue("PodDisruptionBudget/g", "requires 2 available VMs, but the group has only 1 (expected while BOSH replaces one): set to 0"))
		fixed := manifest.DisruptionBudget{MinAvailable: new(int32(5))}
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod.Pod}, pdbs: []*policyv1.PodDisruptionBudget{fixed.Object(vm, pod, 0)}})).To(BeEmpty())
	})

	It("is not called without a director UUID", func(ctx context.Context) {
		Expect(Collector{}.Run(ctx)).To(MatchError(HavePrefix("-director is required")))
	})
})
