package manifest_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("The successor of a disk", func() {
	disk := func(name string, mode corev1.PersistentVolumeMode) manifest.Disk {
		return manifest.Disk{
			Name: name, Namespace: "bosh", Director: "d1", SizeMiB: 1024, Mode: mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Filesystem: "ext4",
		}
	}
	old := disk("disk-1", corev1.PersistentVolumeFilesystem).PVC()
	old.Labels[manifest.Prefix+"job"] = "db"
	old.Labels["team"] = "a-label-of-the-old-cloud-properties"
	old.Annotations[manifest.Prefix+"job"] = "db"
	old.Annotations[manifest.AnnotationMetadata] = `{"job":"db"}`
	old.Annotations["pv.kubernetes.io/bind-completed"] = "yes"

	It("has the metadata of the old disk, and is marked as an incomplete copy", func() {
		desired := disk("disk-2", corev1.PersistentVolumeBlock)
		desired.Labels = map[string]string{"team": "a", manifest.LabelManagedBy: "ignored"}
		expectGolden("successor", desired.Successor(old))
	})

	It("gets its data from a copy Pod with the name of the old disk's attachment Pod", func() {
		successor := disk("disk-2", corev1.PersistentVolumeBlock).Successor(old)
		successor.UID = "uid-of-the-successor"
		vm := testVM()
		vm.PriorityClass = "high"
		vm.PullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		pod := manifest.Copy{Old: old, New: successor, VM: runningPod(vm), Node: "node-1", Director: "d1"}.Pod()
		Expect(pod.Name).To(Equal(manifest.DiskPodName("disk-1")))
		expectGolden("copy", withoutScripts(pod.Pod))
		Expect(manifest.Copy{Old: old, New: successor, VM: runningPod(vm)}.Pod().Spec.Affinity).To(BeNil())
	})
})
