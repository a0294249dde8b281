package manifest_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// applyPatch returns the object as the API server changes it with a strategic merge patch.
func applyPatch[T any](from *T, patch []byte) *T {
	GinkgoHelper()
	original, err := json.Marshal(from)
	Expect(err).NotTo(HaveOccurred())
	var result T
	after, err := strategicpatch.StrategicMergePatch(original, patch, result)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(after, &result)).To(Succeed())
	return &result
}

var _ = Describe("The director's metadata", func() {
	It("is in labels if the values are valid, in annotations always, and completely in one annotation", func() {
		result := manifest.BuildMetadata(map[string]any{"deployment": "cf", "name": "web/0 (bootstrap)", "index": 3})
		Expect(result.Annotations).To(Equal(map[string]string{
			manifest.Prefix + "deployment": "cf", manifest.Prefix + "name": "web/0 (bootstrap)", manifest.Prefix + "index": "3",
			manifest.AnnotationMetadata: `{"deployment":"cf","index":3,"name":"web/0 (bootstrap)"}`,
		}))
		Expect(result.Labels).To(Equal(map[string]*string{
			manifest.Prefix + "deployment": new("cf"), manifest.Prefix + "name": nil, manifest.Prefix + "index": new("3"),
		}))
	})

	It("never replaces a key that the CPI itself uses", func() {
		result := manifest.BuildMetadata(map[string]any{"vm": "x", "size-mib": "7"})
		Expect(result.Labels).To(Equal(map[string]*string{manifest.Prefix + "tag-vm": new("x"), manifest.Prefix + "tag-size-mib": new("7")}))
	})

	It("removes the label of a null", func() {
		result := manifest.BuildMetadata(map[string]any{"team": nil})
		Expect(result.Labels).To(Equal(map[string]*string{manifest.Prefix + "team": nil}))
		Expect(result.Annotations).To(Equal(map[string]string{manifest.AnnotationMetadata: `{"team":null}`}))
	})

	It("removes a label if its new value is not valid", func() {
		pod := testVM().Pod()
		pod.Labels[manifest.Prefix+"name"] = "web"
		patch := manifest.BuildMetadata(map[string]any{"name": "web/0"}).Patch()
		after := applyPatch(pod.Pod, patch)
		Expect(after.Labels).NotTo(HaveKey(manifest.Prefix + "name"))
		Expect(after.Labels).To(HaveKeyWithValue(manifest.LabelVM, pod.Name))
	})
})

func applyPVCPatch(pvc manifest.DiskPVC, patch []byte) manifest.DiskPVC {
	GinkgoHelper()
	return manifest.DiskPVC{PVC: applyPatch(pvc.PVC, patch)}
}

var _ = Describe("The PVC of a disk", func() {
	disk := manifest.Disk{Name: "disk-1", SizeMiB: 1024, Mode: corev1.PersistentVolumeBlock}

	It("keeps its labels if only annotations are requested, and vice versa", func() {
		pvc := disk.PVC()
		desired := disk
		desired.Annotations = map[string]string{"note": "b"}
		patch := desired.RelabelPatch(pvc)
		after := applyPVCPatch(pvc, patch)
		Expect(after.Labels).To(Equal(pvc.Labels))
		Expect(after.Annotations).To(HaveKeyWithValue("note", "b"))
		desired = disk
		desired.Labels = map[string]string{"team": "a"}
		patch = desired.RelabelPatch(pvc)
		after = applyPVCPatch(pvc, patch)
		Expect(after.Annotations).To(Equal(pvc.Annotations))
		Expect(after.Labels).To(HaveKeyWithValue("team", "a"))
	})

	It("gets and loses preallocation", func() {
		preallocated := disk
		preallocated.Preallocate = true
		patch := preallocated.RelabelPatch(disk.PVC())
		after := applyPVCPatch(disk.PVC(), patch)
		Expect(after.IsPreallocated()).To(BeTrue())
		Expect(preallocated.RelabelPatch(after)).To(BeNil())
		patch = disk.RelabelPatch(after)
		after = applyPVCPatch(after, patch)
		Expect(after.IsPreallocated()).To(BeFalse())
		Expect(disk.RelabelPatch(after)).To(BeNil())
	})

	It("is not patched if it has the requested labels", func() {
		desired := disk
		desired.Labels = map[string]string{"team": "a"}
		Expect(desired.RelabelPatch(desired.PVC())).To(BeNil())
	})

	It("requests more storage", func() {
		patch := manifest.RequestStoragePatch(disk.PVC(), resource.MustParse("3Gi"))
		after := applyPVCPatch(disk.PVC(), patch)
		Expect(after.Spec.Resources.Requests.Storage().String()).To(Equal("3Gi"))
		Expect(after.Spec.VolumeMode).To(HaveValue(Equal(corev1.PersistentVolumeBlock)))
	})
})

var _ = Describe("A VM Pod", func() {
	It("gets annotations if it still has the same UID", func() {
		pod := runningPod(testVM())
		patch := manifest.PodAnnotationsPatch(pod, map[string]string{"example.org/ip": "10.0.0.1"})
		Expect(applyPatch(pod.Pod, patch).Annotations).To(HaveKeyWithValue("example.org/ip", "10.0.0.1"))
		Expect(string(patch)).To(ContainSubstring(`"uid":"uid-of-the-vm"`))
	})
})

var _ = Describe("An attachment", func() {
	It("keeps the containers of earlier exclusivity checks, and finds the latest at any position", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod()
		for range 11 {
			patch := manifest.ExclusivityCheckPatch(attachment, manifest.ExclusivityCheckContainer(attachment, nodeImage))
			attachment.Pod = applyPatch(attachment.Pod, patch)
		}
		Expect(attachment.Spec.EphemeralContainers).To(HaveLen(11))
		Expect(manifest.LatestExclusivityCheck(attachment)).To(Equal("exclusivity-check-11"))
	})
})

var _ = Describe("The PodDisruptionBudget of a group", func() {
	vm := testVM()
	vm.Group, vm.Budget = "web", &manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}

	It("is resized for another number of VMs, if it is unchanged", func() {
		budget := vm.Budget.Object(vm, runningPod(vm), 3)
		budget.ResourceVersion = "7"
		patch := manifest.ResizePDBPatch(budget, 5)
		Expect(applyPatch(budget, patch).Spec.MinAvailable).To(HaveValue(Equal(intstr.FromInt32(4))))
		Expect(string(patch)).To(ContainSubstring(`"resourceVersion":"7"`))
	})

	DescribeTable("is not patched", func(budget manifest.DisruptionBudget, vms int) {
		Expect(manifest.ResizePDBPatch(budget.Object(vm, runningPod(vm), 3), vms)).To(BeNil())
	},
		Entry("if it is correct", manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}, 3),
		Entry("if it does not depend on the number of VMs", manifest.DisruptionBudget{MinAvailable: new(int32(2))}, 9),
	)

	It("is not patched without an annotation of the CPI", func() {
		Expect(manifest.ResizePDBPatch(&policyv1.PodDisruptionBudget{}, 3)).To(BeNil())
	})
})
