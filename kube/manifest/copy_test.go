package manifest_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest"
)

var _ = Describe("A disk that is to take another one's place", func() {
	disk := func(name string, mode corev1.PersistentVolumeMode) manifest.Disk {
		return manifest.Disk{
			Name: name, Namespace: "bosh", Director: "d1", SizeMiB: 1024, Mode: mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Filesystem: "ext4",
		}
	}
	old := disk("disk-1", corev1.PersistentVolumeFilesystem).PVC()
	old.Labels[manifest.Prefix+"job"] = "db"
	old.Labels["team"] = "of the old cloud_properties"
	old.Annotations[manifest.Prefix+"job"] = "db"
	old.Annotations[manifest.AnnotationMetadata] = `{"job":"db"}`
	old.Annotations["pv.kubernetes.io/bind-completed"] = "yes"

	It("has the metadata of the old one and is no disk yet", func() {
		desired := disk("disk-2", corev1.PersistentVolumeBlock)
		desired.Labels = map[string]string{"team": "a", manifest.LabelManagedBy: "not mine to set"}
		expectGolden("successor", desired.Successor(old))
	})

	It("gets its data from a Pod whose name is that of the old one's attachment", func() {
		successor := disk("disk-2", corev1.PersistentVolumeBlock).Successor(old)
		successor.UID = "uid-of-the-successor"
		vm := testVM()
		vm.PriorityClass = "high"
		vm.PullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		pod := manifest.Copy{Old: old, New: successor, VM: runningPod(vm), Node: "node-1", Director: "d1"}.Pod()
		Expect(pod.Name).To(Equal(manifest.AttachmentName("disk-1")))
		expectGolden("copy", withoutScripts(pod))
		Expect(manifest.Copy{Old: old, New: successor, VM: runningPod(vm)}.Pod().Spec.Affinity).To(BeNil())
	})
})
