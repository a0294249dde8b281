package disk

import (
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("The owner of a disk", func() {
	var env *testEnv
	var cid string
	var vm manifest.VMPod

	BeforeEach(func() {
		env = newTestEnv()
		cid, vm = env.createDisk(fast), env.createVM("vm-1")
	})

	It("is the VM with the attachment Pod that starts", func() {
		attachment := env.attach(cid, vm)
		Expect(attachment.IsGated()).To(BeFalse())
		owner, ok := env.pvc(cid).Owner()
		Expect(ok).To(BeTrue())
		Expect(owner).To(Equal(manifest.DiskOwner{VM: "vm-1", Pod: attachment.UID}))
		Expect(env.OwningVM(env.pvc(cid))).To(Equal("vm-1"))
		Expect(env.ListOwnedBy("vm-1")).To(ConsistOf(HaveField("Name", cid)))
	})

	It("is decided again if the PVC changed", func() {
		stale := env.pvc(cid)
		attachment := env.attach(cid, vm)
		_, err := env.Release(cid, attachment.OwnerRecord())
		Expect(err).NotTo(HaveOccurred())
		validated := 0
		_, _, err = env.AssignAndStart(stale, attachment, func(manifest.DiskPVC) error { validated++; return nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(validated).To(Equal(2))
	})

	It("stays the same if another VM became the owner in the meantime", func() {
		stale := env.pvc(cid)
		attachment := env.attach(cid, vm)
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Labels[manifest.LabelVM], pvc.Annotations[manifest.AnnotationOwner] = "vm-2", "uid-of-other"
		})
		env.createVM("vm-2")
		_, _, err := env.AssignAndStart(stale, attachment, func(current manifest.DiskPVC) error { return env.CheckFreeFor(current, "vm-1") })
		Expect(err).To(haveCode(call.CodeDiskInUse))
		Expect(env.OwningVM(env.pvc(cid))).To(Equal("vm-2"))
	})

	It("is not an attachment Pod that was deleted after a conflict", func() {
		stale := env.pvc(cid)
		attachment := env.attach(cid, vm)
		Expect(env.Pods.Delete(env.Ctx, attachment.Pod)).To(Succeed())
		_, err := env.Release(cid, attachment.OwnerRecord())
		Expect(err).NotTo(HaveOccurred())
		_, _, err = env.AssignAndStart(stale, attachment, func(manifest.DiskPVC) error { return nil })
		Expect(err).To(haveCode(call.CodeHelperDeleted))
	})

	It("cannot be recorded on a deleted disk", func() {
		stale := env.pvc(cid)
		attachment := env.attach(cid, vm)
		Expect(env.PVCs.Delete(env.Ctx, env.pvc(cid).PVC)).To(Succeed())
		_, _, err := env.AssignAndStart(stale, attachment, func(manifest.DiskPVC) error { return nil })
		Expect(err).To(And(haveCode(call.CodeDiskNotFound), MatchError(ContainSubstring("deleted by a concurrent call"))))
	})

	It("is released only by the call that knows it", func() {
		attachment := env.attach(cid, vm)
		other := manifest.DiskOwner{VM: "vm-2", Pod: "uid-of-other"}
		Expect(env.Release(cid, other)).To(Equal(attachment.OwnerRecord()))
		Expect(env.Release(cid, attachment.OwnerRecord())).To(BeZero())
		Expect(env.OwningVM(env.pvc(cid))).To(BeEmpty())
	})

	// rejectRelease makes a webhook reject the next requests to change the disk with this status.
	rejectRelease := func(requests int, code int32, reason metav1.StatusReason) {
		env.api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPatch || requests == 0 {
				return false
			}
			requests--
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(code))
			Expect(json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: code, Reason: reason, Message: "denied by a webhook",
			})).To(Succeed())
			return true
		}
	}

	DescribeTable("is released although a webhook rejected the first request with", func(code int32, reason metav1.StatusReason) {
		attachment := env.attach(cid, vm)
		rejectRelease(1, code, reason)
		Expect(env.Release(cid, attachment.OwnerRecord())).To(BeZero())
		Expect(env.pvc(cid).Labels).NotTo(HaveKey(manifest.LabelVM))
	},
		Entry("a conflict", int32(http.StatusConflict), metav1.StatusReasonConflict),
		Entry("the status of a failed test", int32(http.StatusUnprocessableEntity), metav1.StatusReasonInvalid),
	)

	It("is released although the record no longer names the Pod", func() {
		attachment := env.attach(cid, vm)
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { delete(pvc.Annotations, manifest.AnnotationOwner) })
		Expect(env.Release(cid, attachment.OwnerRecord())).To(BeZero())
		Expect(env.pvc(cid).Labels).NotTo(HaveKey(manifest.LabelVM))
	})

	It("is not released by a late request for a record without Pod", func() {
		env.attach(cid, vm)
		Expect(env.Release(cid, manifest.DiskOwner{VM: "vm-1"})).To(HaveField("VM", "vm-1"))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner.VM).To(Equal("vm-1"))
	})

	It("is not released, which is an error, if a webhook rejects each request", func() {
		attachment := env.attach(cid, vm)
		rejectRelease(-1, http.StatusConflict, metav1.StatusReasonConflict)
		memoryapi.InVirtualTime(suite, func() {
			env.Session = env.newSession(time.Hour)
			_, err := env.Release(cid, attachment.OwnerRecord())
			Expect(err).To(HaveOccurred())
		})
	})

	It("is released with all disks of a VM", func() {
		env.attach(cid, vm)
		Expect(env.ReleaseAll("vm-1")).To(BeTrue())
		Expect(env.ReleaseAll("vm-1")).To(BeFalse())
	})

	It("does not exist if the VM's Pod finished", func() {
		env.attach(cid, vm)
		finish(env, "vm-1")
		Expect(env.OwningVM(env.pvc(cid))).To(BeEmpty())
	})

	It("is reported as an error with the repair command if the VM does not exist", func() {
		env.attach(cid, vm)
		Expect(env.Pods.Delete(env.Ctx, vm.Pod)).To(Succeed())
		_, err := env.OwningVM(env.pvc(cid))
		Expect(err).To(And(haveCode(call.CodeDiskOwnerMissing), MatchError(ContainSubstring("bosh -d DEPLOYMENT delete-vm vm-1"))))
	})

	It("is reported as an error with the repair command if the record is invalid", func() {
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations[manifest.AnnotationOwner] = "uid-of-other" })
		Expect(env.CheckFreeFor(env.pvc(cid), "vm-1")).To(And(haveCode(call.CodeDiskOwnerInvalid), MatchError(ContainSubstring("kubectl bosh collect"))))
		_, err := env.Release(cid, manifest.DiskOwner{VM: "vm-1", Pod: "uid"})
		Expect(err).To(haveCode(call.CodeDiskOwnerInvalid))
	})

	It("records that the disk has a filesystem, while its Pod owns the disk", func() {
		attachment := env.attach(cid, vm)
		other := manifest.AttachmentPod{Pod: attachment.DeepCopy()}
		other.UID = "uid-of-other"
		Expect(env.MarkFormatted(env.pvc(cid), other)).To(haveCode(call.CodeDiskBusy))
		Expect(env.MarkFormatted(env.pvc(cid), attachment)).To(Succeed())
		Expect(env.pvc(cid).IsFormatted()).To(BeTrue())
	})

	It("is not changed by an attachment Pod that never started", func() {
		pvc := env.pvc(cid)
		desired := manifest.Attachment{Disk: cid, Mode: pvc.VolumeMode(), VM: vm, Director: "director"}.Pod()
		pod, err := env.Pods.Create(env.Ctx, desired.Pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.DeleteSuperseded(manifest.AttachmentPod{Pod: pod})).To(Succeed())
		Expect(env.DeleteSuperseded(manifest.AttachmentPod{Pod: pod})).To(Succeed(), "it is gone")
		started := env.attach(cid, vm)
		Expect(env.DeleteSuperseded(started)).To(haveCode(call.CodeDiskInUse))
	})

	It("stays the same VM if the replacement of a lost attachment Pod is deleted while it is recorded", func() {
		lost := env.attach(cid, vm)
		Expect(env.Pods.Delete(env.Ctx, lost.Pod)).To(Succeed())
		replacement, err := env.Pods.Create(env.Ctx, manifest.Attachment{
			Disk: cid, Mode: env.pvc(cid).VolumeMode(), VM: vm, Director: "director", Reattached: true,
		}.Pod().Pod)
		Expect(err).NotTo(HaveOccurred())
		env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
					pvc.Annotations[manifest.AnnotationOwner] = string(replacement.UID)
				})
			}
			return false
		}
		Expect(env.DeleteSuperseded(manifest.AttachmentPod{Pod: replacement})).To(Succeed())
		Expect(env.OwningVM(env.pvc(cid))).To(Equal("vm-1"))
	})

	DescribeTable("has an attachment that is", func(change func(*manifest.VMPod, *manifest.AttachmentPod), lost, terminating bool) {
		attachment := env.attach(cid, vm)
		change(&vm, &attachment)
		isLost, isTerminating := InspectAttachment(vm, attachment)
		Expect(isLost).To(Equal(lost))
		Expect(isTerminating).To(Equal(terminating))
	},
		Entry("complete", func(*manifest.VMPod, *manifest.AttachmentPod) {}, false, false),
		Entry("lost", func(_ *manifest.VMPod, a *manifest.AttachmentPod) { a.Pod = nil }, true, false),
		Entry("terminating", func(_ *manifest.VMPod, a *manifest.AttachmentPod) { a.DeletionTimestamp = new(metav1.Now()) }, false, true),
		Entry("not necessary, because the VM is gone", func(v *manifest.VMPod, a *manifest.AttachmentPod) { v.Pod, a.Pod = nil, nil }, false, false),
	)
})

// finish ends a Pod.
func finish(env *testEnv, name string) {
	updatePod(env, name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
}
