package cpi

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/kube/manifest"
)

var _ = Describe("What is left over", func() {
	now := time.Now()
	// machine is a VM in a group with a budget, behind a Service, made an hour ago.
	newVM := func(name string) (manifest.VM, *corev1.Pod) {
		vm := manifest.VM{Name: name, Namespace: "bosh", Director: "d", Group: "g", Budget: &manifest.DisruptionBudget{MaxUnavailable: new(int32(1))},
			Services: []manifest.Service{{Name: "web"}}}
		pod := vm.Pod()
		pod.UID = "uid-of-" + pod.UID
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		pod.Annotations[manifest.AnnotationMetadata] = "{}"
		return vm, pod
	}
	orphanReasons := func(s inventory) map[string]string {
		reasons := map[string]string{}
		for _, orphan := range s.findOrphans(now, time.Minute) {
			reasons[orphan.kind+"/"+orphan.object.GetName()] = orphan.reason + ": " + orphan.remedy
		}
		return reasons
	}

	It("is nothing of a machine that is there", func() {
		vm, pod := newVM("agent-a")
		pod.Spec.NodeName = "node"
		attachment := manifest.Attachment{Disk: "disk-1", VM: pod, Director: "d"}.Pod()
		attachment.Spec.SchedulingGates = nil
		Expect(orphanReasons(inventory{
			pods:     []*corev1.Pod{pod, attachment},
			services: []*corev1.Service{vm.Services[0].Object(pod, "d")},
			pdbs:     []*policyv1.PodDisruptionBudget{vm.Budget.Object(vm, pod, 1), manifest.AttachmentPDB(vm, pod)},
		})).To(BeEmpty())
	})

	It("is a copy of a disk, with what it was to become, once no call can be at it any more", func() {
		_, vmPod := newVM("agent-a")
		old := manifest.Disk{Name: "disk-1", Director: "d"}.PVC()
		recent, orphaned := manifest.Disk{Name: "disk-2", Director: "d"}.Successor(old), manifest.Disk{Name: "disk-3", Director: "d"}.Successor(old)
		copied := manifest.Copy{Old: old, New: orphaned, VM: vmPod, Director: "d"}.Pod()
		for _, object := range []metav1.Object{orphaned, copied} {
			object.SetCreationTimestamp(metav1.NewTime(now.Add(-time.Hour)))
		}
		recent.CreationTimestamp = metav1.NewTime(now)
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{copied}, incompleteCopies: []*corev1.PersistentVolumeClaim{recent, orphaned}})).To(Equal(map[string]string{
			"Pod/disk-1-attachment":        "an update_disk that was cut short has left it: deleted",
			"PersistentVolumeClaim/disk-3": "an update_disk that was cut short has left it: it is no whole copy of disk disk-1: deleted",
		}))
	})

	It("is a snapshot that no call has answered with, once none can be at it any more", func() {
		disk := manifest.Disk{Name: "disk-1", Director: "d"}.PVC()
		recent, orphaned := manifest.VolumeSnapshot("snapshot-1", "d", disk, manifest.Metadata{}), manifest.VolumeSnapshot("snapshot-2", "d", disk, manifest.Metadata{})
		recent.CreationTimestamp, orphaned.CreationTimestamp = metav1.NewTime(now), metav1.NewTime(now.Add(-time.Hour))
		Expect(orphanReasons(inventory{unfinishedSnapshots: []*extension.VolumeSnapshot{recent, orphaned}})).To(Equal(map[string]string{
			"VolumeSnapshot/snapshot-2": "a snapshot_disk that was cut short has left it: no director knows it: deleted",
		}))
	})

	It("is everything of a machine that is gone, but for a Service that is kept", func() {
		vm, pod := newVM("agent-a")
		kept := manifest.Service{Name: "kept", Keep: true}
		Expect(orphanReasons(inventory{
			pods:     []*corev1.Pod{manifest.Attachment{Disk: "disk-1", VM: pod, Director: "d"}.Pod()},
			services: []*corev1.Service{vm.Services[0].Object(pod, "d"), kept.Object(pod, "d")},
			pdbs:     []*policyv1.PodDisruptionBudget{vm.Budget.Object(vm, pod, 1), manifest.AttachmentPDB(vm, pod)},
		})).To(Equal(map[string]string{
			"Pod/disk-1-attachment":       "its VM agent-a is gone: deleted",
			"Service/web":                 "no VM is behind it: deleted",
			"PodDisruptionBudget/g":       "its instance group has no VM: deleted",
			"PodDisruptionBudget/g-disks": "its instance group has no VM: deleted",
		}))
	})

	It("is a machine that was never named, and a Pod for a reboot, once no call can be at them any more; the machine is told of before", func() {
		_, pod := newVM("agent-a")
		delete(pod.Annotations, manifest.AnnotationMetadata)
		reboot := manifest.RebootPod(pod, "d")
		reboot.CreationTimestamp = pod.CreationTimestamp
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod, reboot}})).To(And(HaveLen(2), HaveKey("Pod/agent-a"), HaveKey("Pod/agent-a-reboot")))
		pod.CreationTimestamp, reboot.CreationTimestamp = metav1.NewTime(now), metav1.NewTime(now)
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod, reboot}})).To(Equal(map[string]string{
			"Pod/agent-a": "if no call is at it any more, " + reasonNeverNamed + ": ",
		}))
	})

	It("is a disk that is used without its attachment, but not one whose VM has ended", func() {
		_, vmPod := newVM("agent-a")
		used := manifest.Disk{Name: "disk-1", Director: "d"}.PVC()
		used.Labels[manifest.LabelVM] = vmPod.Name
		used.Annotations[manifest.AnnotationOwner] = "uid-of-the-attachment"
		attachment := manifest.Attachment{Disk: "disk-1", VM: vmPod, Director: "d"}.Pod()
		inv := inventory{pods: []*corev1.Pod{vmPod}, ownedDisks: []*corev1.PersistentVolumeClaim{used}}
		Expect(orphanReasons(inv)).To(Equal(map[string]string{
			"PersistentVolumeClaim/disk-1": "VM agent-a uses the disk, but somebody has taken its attachment away: attached again",
		}))
		attachment.DeletionTimestamp = new(metav1.NewTime(now))
		inv.pods = []*corev1.Pod{vmPod, attachment}
		Expect(orphanReasons(inv)).To(HaveKeyWithValue("PersistentVolumeClaim/disk-1", ContainSubstring("it stays until the disk is free: ")))
		vmPod.Status.Phase = corev1.PodFailed
		Expect(orphanReasons(inv)).To(BeEmpty())
	})

	It("is what has nodes keep a stemcell's image, where that is not wanted any more", func() {
		desired := manifest.Prefetch{Director: "d", Stemcell: "sc"}
		set, err := desired.DaemonSet(desired.Pod())
		Expect(err).NotTo(HaveOccurred())
		Expect(orphanReasons(inventory{obsoletePrefetches: []*extension.DaemonSet{set}})).To(HaveKeyWithValue("DaemonSet/"+set.Name,
			"nodes keep the image of stemcell sc for it, and stemcell.prefetch is not enabled any more: deleted"))
	})

	It("is not what is being deleted already", func() {
		_, pod := newVM("agent-a")
		delete(pod.Annotations, manifest.AnnotationMetadata)
		pod.DeletionTimestamp = new(metav1.NewTime(now))
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod}})).To(BeEmpty())
	})

	It("is a budget that asks for more machines than the group can spare, but not one that the operator set", func() {
		vm, pod := newVM("agent-a")
		pdb := vm.Budget.Object(vm, pod, 3)
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod}, pdbs: []*policyv1.PodDisruptionBudget{pdb}})).To(
			HaveKeyWithValue("PodDisruptionBudget/g", "2 VMs must stay, but the group has only 1 (right while BOSH replaces one): set to 0"))
		fixed := manifest.DisruptionBudget{MinAvailable: new(int32(5))}
		Expect(orphanReasons(inventory{pods: []*corev1.Pod{pod}, pdbs: []*policyv1.PodDisruptionBudget{fixed.Object(vm, pod, 0)}})).To(BeEmpty())
	})

	It("is not looked for without a director's name", func(ctx context.Context) {
		Expect(Collector{}.Run(ctx)).To(MatchError(ContainSubstring("-director")))
	})
})
