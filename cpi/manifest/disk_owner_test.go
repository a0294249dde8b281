package manifest_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("The owner record of a disk", func() {
	recorded := func(vm, pod string) manifest.DiskPVC {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: "disk-1", UID: "uid-of-the-disk", ResourceVersion: "7", Labels: map[string]string{}, Annotations: map[string]string{},
		}}
		if vm != "" {
			pvc.Labels[manifest.LabelVM] = vm
		}
		if pod != "" {
			pvc.Annotations[manifest.AnnotationOwner] = pod
		}
		return manifest.DiskPVC{PVC: pvc}
	}

	DescribeTable("is read from its PVC:", func(vm, pod string, owner manifest.DiskOwner, ok bool) {
		found, valid := recorded(vm, pod).Owner()
		Expect(found).To(Equal(owner))
		Expect(valid).To(Equal(ok))
	},
		Entry("a free disk", "", "", manifest.DiskOwner{}, true),
		Entry("a disk of a VM", "agent-1", "u", manifest.DiskOwner{VM: "agent-1", Pod: "u"}, true),
		Entry("a VM without a Pod", "agent-1", "", manifest.DiskOwner{VM: "agent-1"}, false),
		Entry("a Pod without a VM", "", "u", manifest.DiskOwner{Pod: "u"}, false),
	)

	It("is set by a merge patch only if the PVC is unchanged since it was read", func() {
		raw := manifest.AssignDiskPatch(recorded("", ""), manifest.DiskOwner{VM: "agent-1", Pod: "u"})
		Expect(string(raw)).To(And(ContainSubstring(`"resourceVersion":"7"`), ContainSubstring(`"uid":"uid-of-the-disk"`)))
	})

	It("is removed by a JSON patch that tests each value first", func() {
		Expect(manifest.ReleaseDiskPatch(manifest.DiskOwner{VM: "agent-1", Pod: "u"})).To(MatchJSON(`[
			{"op": "test", "path": "/metadata/labels/bosh.cloudfoundry.org~1vm", "value": "agent-1"},
			{"op": "remove", "path": "/metadata/labels/bosh.cloudfoundry.org~1vm"},
			{"op": "test", "path": "/metadata/annotations/bosh.cloudfoundry.org~1owner-uid", "value": "u"},
			{"op": "remove", "path": "/metadata/annotations/bosh.cloudfoundry.org~1owner-uid"}
		]`))
	})
})

var _ = Describe("An attachment Pod", func() {
	It("is gated until it owns the disk", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod()
		Expect(attachment.IsGated()).To(BeTrue())
		patch := manifest.UngatePatch(attachment.UID)
		Expect(manifest.AttachmentPod{Pod: applyPatch(attachment.Pod, patch)}.IsGated()).To(BeFalse())
	})
})
