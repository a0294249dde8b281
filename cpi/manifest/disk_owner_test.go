package manifest_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("The owner record of a disk", func() {
	recorded := func(vm, pod, copiedTo string) manifest.DiskPVC {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: "disk-1", UID: "uid-of-the-disk", ResourceVersion: "7", Labels: map[string]string{}, Annotations: map[string]string{},
		}}
		if vm != "" {
			pvc.Labels[manifest.LabelVM] = vm
		}
		if pod != "" {
			pvc.Annotations[manifest.AnnotationOwner] = pod
		}
		if copiedTo != "" {
			pvc.Annotations[manifest.AnnotationCopiedTo] = copiedTo
		}
		return manifest.DiskPVC{PVC: pvc}
	}

	DescribeTable("is read from its PVC:", func(vm, pod, copiedTo string, owner manifest.DiskOwner, ok bool) {
		found, valid := recorded(vm, pod, copiedTo).Owner()
		Expect(found).To(Equal(owner))
		Expect(valid).To(Equal(ok))
	},
		Entry("a free disk", "", "", "", manifest.DiskOwner{}, true),
		Entry("a disk of a VM", "agent-1", "u", "", manifest.DiskOwner{VM: "agent-1", Pod: "u"}, true),
		Entry("a disk that is being copied", "", "u", "disk-2", manifest.DiskOwner{Pod: "u"}, true),
		Entry("a VM without a Pod", "agent-1", "", "", manifest.DiskOwner{VM: "agent-1"}, false),
		Entry("a Pod without a VM or a copy", "", "u", "", manifest.DiskOwner{Pod: "u"}, false),
	)

	DescribeTable("is changed by a merge patch only if the PVC is unchanged since it was read:",
		func(patch func(manifest.DiskPVC) ([]byte, error)) {
			raw, err := patch(recorded("", "", ""))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(raw)).To(And(ContainSubstring(`"resourceVersion":"7"`), ContainSubstring(`"uid":"uid-of-the-disk"`)))
		},
		Entry("assigned to a VM", func(pvc manifest.DiskPVC) ([]byte, error) {
			return manifest.AssignDiskPatch(pvc, manifest.DiskOwner{VM: "agent-1", Pod: "u"})
		}),
		Entry("assigned to a copy Pod", func(pvc manifest.DiskPVC) ([]byte, error) {
			return manifest.AssignCopyPatch(pvc, "disk-2", "u")
		}),
		Entry("with a new successor", func(pvc manifest.DiskPVC) ([]byte, error) { return manifest.BeginCopyPatch(pvc, "disk-2") }),
		Entry("without a successor", manifest.AbandonCopyPatch),
	)

	It("is removed by a JSON patch that tests each value first", func() {
		Expect(manifest.ReleaseDiskPatch(manifest.DiskOwner{VM: "agent-1", Pod: "u"})).To(MatchJSON(`[
			{"op": "test", "path": "/metadata/labels/bosh.cloudfoundry.org~1vm", "value": "agent-1"},
			{"op": "remove", "path": "/metadata/labels/bosh.cloudfoundry.org~1vm"},
			{"op": "test", "path": "/metadata/annotations/bosh.cloudfoundry.org~1owner-uid", "value": "u"},
			{"op": "remove", "path": "/metadata/annotations/bosh.cloudfoundry.org~1owner-uid"}
		]`))
	})
})

var _ = Describe("A Pod that opens a disk", func() {
	It("is gated until it owns the disk", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod()
		pod := manifest.DiskPod(attachment)
		Expect(pod.IsGated()).To(BeTrue())
		patch, err := manifest.UngatePatch(pod.UID)
		Expect(manifest.DiskPod{Pod: applyPatch(pod.Pod, patch, err)}.IsGated()).To(BeFalse())
	})
})
