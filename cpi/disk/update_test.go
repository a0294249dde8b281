package disk

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("update_disk", func() {
	const xfs = `{"storage_class": "fast", "filesystem": "xfs"}`
	var env *testEnv
	var cid string
	BeforeEach(func() {
		env = newTestEnv()
		cid = env.createDisk(fast)
	})
	update := func(size int64, properties string) (string, error) {
		return env.Update(cid, size, json.RawMessage(properties))
	}
	copied := func() string {
		GinkgoHelper()
		env.createVM("vm-1")
		successor, err := update(64, xfs)
		Expect(err).NotTo(HaveOccurred())
		return successor
	}
	// nextCall makes env use the session of another call.
	nextCall := func() { env.Session = env.newSession(time.Minute) }

	It("changes labels and size in place", func() {
		Expect(update(128, `{"storage_class": "fast", "labels": {"team": "a"}, "annotations": {"note": "b"}}`)).To(Equal(cid))
		pvc := env.pvc(cid)
		Expect(pvc.RecordedSize()).To(Equal("128"))
		Expect(pvc.Labels).To(HaveKeyWithValue("team", "a"))
		Expect(pvc.Annotations).To(HaveKeyWithValue("note", "b"))
	})

	DescribeTable("copies the disk if", func(size int64, properties string) {
		env.createVM("vm-1")
		successor, err := update(size, properties)
		Expect(err).NotTo(HaveOccurred())
		Expect(successor).NotTo(Equal(cid))
		Expect(env.pvc(successor).CopyState()).To(Equal(manifest.CopyVerified))
		Expect(env.pvc(cid).CopiedTo()).To(Equal(successor), "the original remains until the director uses the copy")
		owner, ok := env.pvc(cid).Owner()
		Expect(ok).To(BeTrue())
		Expect(owner).To(BeZero())
		Expect(env.api.Names("pods")).To(ConsistOf("vm-1"))
	},
		Entry("the filesystem differs", int64(64), xfs),
		Entry("the StorageClass differs", int64(64), fixed),
		Entry("the volume mode differs", int64(64), `{"storage_class": "fast", "volume_mode": "Block"}`),
		Entry("the access modes differ", int64(64), `{"storage_class": "fast", "access_modes": ["ReadWriteMany"]}`),
		Entry("it becomes smaller", int64(32), fast),
	)

	It("returns the same copy if it is repeated", func() {
		successor := copied()
		nextCall()
		Expect(update(64, xfs)).To(Equal(successor))
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid, successor))
	})

	It("returns the copy that replaced the disk if it is repeated", func() {
		successor := copied()
		Expect(env.ResolveCopy(env.pvc(successor))).To(HaveField("Name", successor))
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(successor))
		Expect(update(64, xfs)).To(Equal(successor))
		_, err := update(64, fixed)
		Expect(err).To(haveCode(call.CodeDiskNotFound))
	})

	It("needs no copy Pod for a disk that has no volume", func() {
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
			env.api.Simulate = nil
			pvc.Spec.VolumeName, pvc.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		})
		successor, err := update(64, xfs)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pvc(successor).CopyState()).To(Equal(manifest.CopyVerified))
	})

	It("abandons a copy with other properties", func() {
		first := copied()
		nextCall()
		second, err := update(64, fixed)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid, second))
		Expect(first).NotTo(Equal(second))
	})

	It("keeps the copy of an update_disk that started later", func() {
		earlier := env.newSession(time.Minute)
		earlier.ID = "01900000-0000-7000-8000-000000000000" // of an earlier time
		successor := copied()
		_, err := earlier.ResolveCopy(env.pvc(cid))
		Expect(err).To(And(haveCode(call.CodeDiskBusy), MatchError(ContainSubstring(successor))))
		Expect(env.Has(successor)).To(BeTrue())
	})

	It("abandons the copy of an update_disk on a host with a fast clock", func() {
		env.ID = "03000000-0000-7000-8000-000000000000" // of the year 2074
		copied()
		nextCall()
		Expect(env.ResolveCopy(env.pvc(cid))).To(HaveField("PVC.Name", cid))
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid))
	})

	DescribeTable("deletes the copy and keeps the disk if the copy Pod fails", func(exitCode int, code call.Code, message string) {
		env.exitCode = int32(exitCode) //nolint:gosec // small
		env.createVM("vm-1")
		_, err := update(64, xfs)
		Expect(err).To(And(haveCode(code), MatchError(ContainSubstring(message))))
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid))
		Expect(env.api.Names("pods")).To(ConsistOf("vm-1"))
		Expect(env.pvc(cid).CopiedTo()).To(BeEmpty())
		Expect(env.CheckFreeFor(env.pvc(cid), "")).To(Succeed())
	},
		Entry(nil, 1, call.CodeDiskCopyFailed, "exit status 1"),
		Entry(nil, int(manifest.ExitNoSpace), call.CodeDiskCopyFull, "the disk is unchanged"),
	)

	It("deletes the copy and keeps the disk if it times out", func() {
		env.exitCode = -1
		env.createVM("vm-1")
		env.Session = env.newSession(shortTimeout)
		_, err := update(64, xfs)
		Expect(err).To(haveCode(call.CodeDiskCopyTimeout))
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid))
	})

	DescribeTable("changes nothing if", func(code call.Code, message, properties string, prepare func()) {
		prepare()
		_, err := update(64, properties)
		Expect(err).To(And(haveCode(code), MatchError(ContainSubstring(message))))
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid))
		Expect(env.pvc(cid).CopiedTo()).To(BeEmpty())
	},
		Entry("a property is invalid", call.CodeInvalidProperty, "btrfs", `{"filesystem": "btrfs"}`, func() {}),
		Entry("the StorageClass does not exist", call.CodeInvalidProperty, "StorageClass gone not found", `{"storage_class": "gone"}`, func() {}),
		Entry("no VM provides an image", call.CodeDiskCopyUnsupported, "no running VM provides an image", xfs, func() {}),
		Entry("a VM has the disk", call.CodeDiskInUse, "attached to VM vm-1", xfs, func() { env.attach(cid, env.createVM("vm-1")) }),
		Entry("a VM has the disk, in place", call.CodeDiskInUse, "attached to VM vm-1", fast, func() { env.attach(cid, env.createVM("vm-1")) }),
		Entry("the volume is lost", call.CodeDiskVolumeLost, "no longer bound", xfs, func() {
			env.createVM("vm-1")
			env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
				env.api.Simulate = nil
				pvc.Status.Phase = corev1.ClaimLost
			})
		}),
	)

	Describe("before the director uses the copy", func() {
		It("lets delete_disk delete the disk and its copy", func() {
			copied()
			nextCall()
			Expect(env.Delete(cid)).To(Succeed())
			Expect(env.api.Names("persistentvolumeclaims")).To(BeEmpty())
		})

		It("is undone when the disk is used", func() {
			copied()
			nextCall()
			pvc, err := env.ResolveCopy(env.pvc(cid))
			Expect(err).NotTo(HaveOccurred())
			Expect(CheckNoPendingCopy(pvc)).To(Succeed())
			Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid))
		})

		It("makes both disks report disk-in-use", func() {
			successor := copied()
			Expect(CheckNoPendingCopy(env.pvc(cid))).To(haveCode(call.CodeDiskInUse))
			Expect(CheckNoPendingCopy(env.pvc(successor))).To(haveCode(call.CodeDiskInUse))
		})
	})

	Describe("that was interrupted", func() {
		var successor string
		BeforeEach(func() {
			successor = copied()
			env.updatePVC(successor, func(pvc *corev1.PersistentVolumeClaim) { pvc.Labels[manifest.LabelCopy] = manifest.CopyIncomplete })
			nextCall()
		})

		It("completes the copy if it is repeated", func() {
			Expect(update(64, xfs)).To(Equal(successor))
			Expect(env.pvc(successor).CopyState()).To(Equal(manifest.CopyVerified))
		})

		It("leaves a copy that cannot be used or deleted while update_disk can complete it", func() {
			_, err := env.ResolveCopy(env.pvc(successor))
			Expect(err).To(haveCode(call.CodeDiskCopyIncomplete))
			Expect(env.Delete(successor)).To(haveCode(call.CodeDiskCopyIncomplete))
		})

		It("leaves a copy that can be deleted if the disk does not exist", func() {
			Expect(env.PVCs.Delete(env.Ctx, env.pvc(cid).PVC)).To(Succeed())
			Expect(env.Delete(successor)).To(Succeed())
		})

		It("leaves a copy that can be deleted if the disk has another copy", func() {
			env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations[manifest.AnnotationCopiedTo] = "disk-other" })
			Expect(env.Delete(successor)).To(Succeed())
		})
	})
})
