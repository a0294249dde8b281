package disk

import (
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("resize_disk", func() {
	var env *testEnv
	BeforeEach(func() { env = newTestEnv() })

	It("expands the volume, and then records the size", func() {
		cid := env.createDisk(fast)
		Expect(env.Resize(cid, 128)).To(Succeed())
		pvc := env.pvc(cid)
		Expect(RecordedSizeMiB(pvc)).To(Equal(int64(128)))
		capacity := pvc.Status.Capacity[corev1.ResourceStorage]
		Expect(capacity.Value() >> 20).To(Equal(manifest.PVCSizeMiB(128, corev1.PersistentVolumeFilesystem)))
		Expect(env.Resize(cid, 128)).To(Succeed(), "the size is the same")
	})

	// resizeWhileBinding resizes a disk with a volume that is not bound yet, and binds it after the call has read the PVC, and after
	// meanwhile.
	resizeWhileBinding := func(resize func(cid string) error, meanwhile func(cid string)) (cid string, err error) {
		cid = env.createDisk(fast)
		simulate := env.api.Simulate
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
			env.api.Simulate = nil
			pvc.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
			pvc.Status.Phase = corev1.ClaimPending
		})
		watching, result := make(chan bool, 10), make(chan error)
		env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") != "" {
				watching <- true
			}
			return false
		}
		go func() { result <- resize(cid) }()
		Eventually(watching, "1m").Should(Receive(), "the call has read the PVC")
		meanwhile(cid)
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
			env.api.Simulate = simulate
			pvc.Status.Phase = corev1.ClaimBound
		})
		Eventually(result, "1m").Should(Receive(&err))
		return cid, err
	}
	inResizeDisk := Entry("in resize_disk", func(cid string) error { return env.Resize(cid, 128) })
	inUpdateDisk := Entry("in update_disk", func(cid string) error {
		_, err := env.Update(cid, 128, json.RawMessage(fast))
		return err
	})

	DescribeTable("waits for the phase of a PVC that was bound just before", func(resize func(cid string) error) {
		cid, err := resizeWhileBinding(resize, func(string) {})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pvc(cid).RecordedSize()).To(Equal("128"))
	}, inResizeDisk, inUpdateDisk)

	DescribeTable("changes nothing if a VM gets the disk before its PVC is bound", func(resize func(cid string) error) {
		cid, err := resizeWhileBinding(resize, func(cid string) { env.attach(cid, env.createVM("vm-1")) })
		Expect(err).To(haveCode(call.CodeDiskInUse))
		Expect(env.pvc(cid).RecordedSize()).To(Equal("64"))
	}, inResizeDisk, inUpdateDisk)

	It("changes no size if a VM gets the disk while update_disk changes its labels", func() {
		cid := env.createDisk(fast)
		attached := false
		env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch && !attached {
				attached = true
				env.attach(cid, env.createVM("vm-1"))
			}
			return false
		}
		_, err := env.Update(cid, 128, json.RawMessage(`{"storage_class": "fast", "labels": {"team": "a"}}`))
		Expect(err).To(haveCode(call.CodeDiskInUse))
		Expect(env.pvc(cid).RecordedSize()).To(Equal("64"))
	})

	DescribeTable("changes nothing if", func(code call.Code, message, properties string, size int64, prepare func(cid string)) {
		cid := env.createDisk(properties)
		prepare(cid)
		Expect(env.Resize(cid, size)).To(And(haveCode(code), MatchError(ContainSubstring(message))))
		Expect(env.pvc(cid).RecordedSize()).To(BeElementOf("64", ""))
	},
		Entry("the size is invalid", call.CodeInvalidRequest, "use 1 to 1099511627776", fast, int64(0), func(string) {}),
		Entry("the disk would shrink", call.CodeDiskResizeUnsupported, "from 64 MiB to 32 MiB", fast, int64(32), func(string) {}),
		Entry("the StorageClass does not allow it", call.CodeDiskResizeUnsupported, "set its allowVolumeExpansion to true", fixed, int64(128), func(string) {}),
		Entry("the StorageClass does not exist", call.CodeDiskResizeUnsupported, "StorageClass gone not found", `{"storage_class": "gone"}`, int64(128),
			func(string) {}),
		Entry("the PVC has no StorageClass", call.CodeDiskResizeUnsupported, "has no StorageClass", `{}`, int64(128), func(string) {}),
		Entry("there is no volume yet", call.CodeDiskResizeUnsupported, "attach it to a VM first", fast, int64(128), func(cid string) {
			env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
				env.api.Simulate = nil
				pvc.Status.Phase = corev1.ClaimPending
			})
		}),
		Entry("a VM has the disk", call.CodeDiskInUse, "attached to VM vm-1", fast, int64(128), func(cid string) { env.attach(cid, env.createVM("vm-1")) }),
		Entry("the PVC is not of this CPI", call.CodeDiskNotManaged, "is missing or invalid", fast, int64(128), func(cid string) {
			env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { delete(pvc.Annotations, manifest.AnnotationSize) })
		}),
	)

	Describe("with a resizer that reports its state", func() {
		var cid string
		var status corev1.PersistentVolumeClaimStatus
		BeforeEach(func() {
			cid = env.createDisk(fast)
			bind := env.api.Simulate
			env.api.Simulate = func(obj *object) bool {
				if obj.GetKind() != "PersistentVolumeClaim" {
					return bind(obj)
				}
				return reportExpansion(obj, status)
			}
		})
		allocated := func(pending corev1.ClaimResourceStatus) corev1.PersistentVolumeClaimStatus {
			size := corev1.ResourceList{corev1.ResourceStorage: quantity(manifest.PVCSizeMiB(128, corev1.PersistentVolumeFilesystem))}
			return corev1.PersistentVolumeClaimStatus{
				AllocatedResources:        size,
				AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: pending},
			}
		}

		It("succeeds if only the expansion on the node remains", func() {
			status = allocated(corev1.PersistentVolumeClaimNodeResizePending)
			Expect(env.Resize(cid, 128)).To(Succeed())
			Expect(env.pvc(cid).RecordedSize()).To(Equal("128"))
		})

		It("succeeds if the filesystem is expanded when the disk is attached", func() {
			status = corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
			}}
			Expect(env.Resize(cid, 128)).To(Succeed())
		})

		It("fails if the driver cannot expand the volume", func() {
			status = allocated(corev1.PersistentVolumeClaimControllerResizeInfeasible)
			Expect(env.Resize(cid, 128)).To(haveCode(call.CodeDiskResizeFailed))
			Expect(env.pvc(cid).RecordedSize()).To(Equal("64"))
		})

		It("fails with the error of the resizer, and not with a condition of another controller", func() {
			status = allocated(corev1.PersistentVolumeClaimControllerResizeInfeasible)
			status.Conditions = []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "at most 1 TiB"},
				{Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, Message: "No pods are currently referencing this PVC"},
			}
			Expect(env.Resize(cid, 128)).To(MatchError(ContainSubstring(": ControllerResizeError: at most 1 TiB")))
		})

		It("times out with the last report of the resizer", func() {
			status = corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "quota exceeded"},
			}}
			memoryapi.InVirtualTime(suite, func() {
				env.Session = env.newSession(time.Hour)
				Expect(env.Resize(cid, 128)).To(And(haveCode(call.CodeDiskResizeTimeout), MatchError(ContainSubstring("quota exceeded"))))
			})
		})
	})
})
