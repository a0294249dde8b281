package manifest_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// recreatedVM is a VM with disk_strategy: recreate.
func recreatedVM() manifest.VM {
	vm := testVM()
	vm.Recreate, vm.EphemeralClaim, vm.RuntimeClass = true, &corev1.PersistentVolumeClaimSpec{}, "kata"
	return vm
}

// recreatedVMTemplate is the PodTemplate of recreatedVM.
func recreatedVMTemplate() *corev1.PodTemplate {
	template := recreatedVM().PodTemplate()
	template.UID = "uid-of-the-template"
	return template
}

// idleAttachment attaches a disk to a VM Pod that already has it as a volume.
func idleAttachment() manifest.AttachmentPod {
	vmPod := manifest.PodFromTemplate(recreatedVMTemplate(), "node-1")
	container := &vmPod.Spec.Containers[0]
	container.VolumeDevices = []corev1.VolumeDevice{{Name: "disk-1", DevicePath: manifest.DevicePath("disk-1")}}
	return manifest.Attachment{
		Disk: "disk-1", SizeMiB: 64, Filesystem: "ext4", Mode: corev1.PersistentVolumeBlock, VM: vmPod, Director: "d1", NodeImage: nodeImage,
	}.Pod()
}

var _ = Describe("A VM with disk_strategy: recreate", func() {
	vm, template := recreatedVM(), recreatedVMTemplate
	disk := func(name string, mode corev1.PersistentVolumeMode) manifest.DiskPVC {
		return manifest.Disk{Name: name, Namespace: "bosh", Mode: mode}.PVC()
	}
	// changed returns the template as the API server changes it.
	changed := func(from *corev1.PodTemplate, change manifest.TemplateChange) *corev1.PodTemplate {
		GinkgoHelper()
		patch := change.Patch(from)
		return applyPatch(from, patch)
	}

	It("has a template that owns the objects that outlive its Pod", func() {
		pod := manifest.PodFromTemplate(template(), "")
		Expect(pod.HasRecreateStrategy()).To(BeTrue())
		Expect(vm.SettingsSecret(nil, pod).OwnerReferences).To(Equal(pod.OwnerReferences))
		Expect(vm.EphemeralPVC(template()).OwnerReferences).To(Equal(pod.OwnerReferences))
		Expect(vm.Pod().HasRecreateStrategy()).To(BeFalse())
	})

	It("has its disks as volumes of its Pod, and no directory on the node", func() {
		updated := changed(template(), manifest.TemplateChange{
			AddDisk: disk("disk-1", corev1.PersistentVolumeBlock), Addresses: []string{"10.0.0.1"},
		})
		updated = changed(updated, manifest.TemplateChange{AddDisk: disk("disk-2", corev1.PersistentVolumeFilesystem)})
		Expect(manifest.DiskCIDs(updated.Template.Spec)).To(Equal([]string{"disk-1", "disk-2"}))
		expectGolden("vm-recreated", manifest.PodFromTemplate(updated, "node-1").Pod)
		Expect(updated.Annotations).To(HaveKeyWithValue(manifest.AnnotationFirstPodAddresses, "10.0.0.1"))
	})

	It("has its original template after a disk was added twice and removed twice", func() {
		updated := template()
		for range 2 {
			updated = changed(updated, manifest.TemplateChange{AddDisk: disk("disk-1", corev1.PersistentVolumeBlock)})
		}
		Expect(updated.Template.Spec.Volumes).To(HaveLen(5))
		for range 2 {
			updated = changed(updated, manifest.TemplateChange{RemoveDisk: "disk-1"})
		}
		delete(updated.Annotations, manifest.AnnotationPreviousVersion)
		Expect(equality.Semantic.DeepEqual(updated, template())).To(BeTrue(), "%+v", updated)
	})

	It("has a new version after each change, even if it already has the result", func() {
		original := template()
		original.ResourceVersion = "7"
		patch := manifest.TemplateChange{RemoveDisk: "disk-1"}.Patch(original)
		Expect(applyPatch(original, patch).Annotations).To(HaveKeyWithValue(manifest.AnnotationPreviousVersion, "7"))
		Expect(string(patch)).To(ContainSubstring(`"resourceVersion":"7","uid":"uid-of-the-template"`))
	})

	It("has a required node or none, even if the cluster adds to its affinity", func() {
		Expect(manifest.RequiredNode(manifest.PodFromTemplate(template(), "").Pod)).To(BeEmpty())
		Expect(manifest.RequiredNode(&corev1.Pod{})).To(BeEmpty())
		pod := manifest.PodFromTemplate(template(), "node-1")
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for i := range required.NodeSelectorTerms {
			required.NodeSelectorTerms[i].MatchExpressions = append(required.NodeSelectorTerms[i].MatchExpressions,
				corev1.NodeSelectorRequirement{Key: "added", Operator: corev1.NodeSelectorOpExists})
		}
		Expect(manifest.RequiredNode(pod.Pod)).To(Equal("node-1"))
	})

	It("has attachments that require its node, and not the Pod that is created after them", func() {
		vmPod := manifest.PodFromTemplate(template(), "node-1")
		vmPod.Spec.NodeName = "node-1"
		attachment := manifest.Attachment{Disk: "disk-1", VM: vmPod}.Pod()
		Expect(manifest.RequiredNode(attachment.Pod)).To(Equal("node-1"))
		Expect(attachment.Spec.Affinity.PodAffinity).To(BeNil())
	})

	It("has attachments of its volumes that only wait, in the image of bosh-node: any image runs there", func() {
		expectGolden("attachment-idle", idleAttachment().Pod)
	})

	It("has attachments without a directory on the node, and with a startup probe even if a VM had the disk before", func() {
		expectGolden("attachment-recreated", manifest.Attachment{
			Disk: "disk-1", SizeMiB: 64, Filesystem: "ext4", Formatted: true, Mode: corev1.PersistentVolumeBlock,
			VM: manifest.PodFromTemplate(template(), "node-1"), Director: "d1",
			NodeImage: nodeImage,
		}.Pod().Pod)
	})
})
