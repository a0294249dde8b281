package disk

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("cloud_properties.volume_attributes_class", func() {
	const gold = `{"storage_class": "fast", "volume_attributes_class": "gold"}`
	const infeasible = `{"storage_class": "fast", "volume_attributes_class": "infeasible"}`
	var env *testEnv
	var resizer *fakeResizer
	BeforeEach(func() {
		env, resizer = newTestEnv(), &fakeResizer{rejected: "infeasible", requested: map[string]string{}}
		for _, name := range []string{"gold", "silver", "infeasible"} {
			env.api.Add("volumeattributesclasses", "", &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		bind := env.api.Simulate
		env.api.Simulate = func(obj *object) bool { return resizer.serve(obj) || bind(obj) }
	})
	update := func(cid, properties string) error {
		updated, err := env.Update(cid, 64, json.RawMessage(properties))
		if err == nil {
			Expect(updated).To(Equal(cid))
		}
		return err
	}

	It("is the class of a new disk", func() {
		pvc := env.pvc(env.createDisk(gold))
		Expect(pvc.AttributesClass()).To(Equal("gold"))
	})

	It("is rejected if it does not exist", func() {
		cid := env.createDisk(fast)
		properties := `{"storage_class": "fast", "volume_attributes_class": "none"}`
		_, err := env.Create(64, json.RawMessage(properties), nil)
		for _, err := range []error{err, update(cid, properties)} {
			Expect(err).To(And(haveCode(call.CodeInvalidProperty), MatchError(ContainSubstring("VolumeAttributesClass none not found"))))
		}
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid))
	})

	It("is changed by update_disk", func() {
		cid := env.createDisk(fast)
		Expect(update(cid, gold)).To(Succeed())
		Expect(env.pvc(cid).Status.CurrentVolumeAttributesClassName).To(HaveValue(Equal("gold")))
		Expect(update(cid, `{"storage_class": "fast", "volume_attributes_class": "silver"}`)).To(Succeed())
		Expect(env.pvc(cid).Status.CurrentVolumeAttributesClassName).To(HaveValue(Equal("silver")))
	})

	It("stays the same if update_disk requests none, or the same", func() {
		cid := env.createDisk(gold)
		previous := env.pvc(cid).ResourceVersion
		Expect(update(cid, fast)).To(Succeed())
		Expect(update(cid, gold)).To(Succeed())
		Expect(env.pvc(cid).ResourceVersion).To(Equal(previous))
	})

	It("is not changed for a disk without a volume", func() {
		env.api.Simulate = nil
		cid := env.createDisk(fast)
		Expect(update(cid, gold)).To(And(haveCode(call.CodeDiskUpdateUnsupported),
			MatchError(ContainSubstring("cannot change volume_attributes_class of disk %s from none to gold in place", cid))))
	})

	It("is rejected if it is not a valid name, even for a disk without a volume: a new disk could not have it either", func() {
		env.api.Simulate = nil
		Expect(update(env.createDisk(fast), `{"storage_class": "fast", "volume_attributes_class": "Gold_1"}`)).To(haveCode(call.CodeInvalidProperty))
	})

	DescribeTable("is the previous class after the driver rejects a class", func(initial, previous string) {
		cid := env.createDisk(initial)
		Expect(update(cid, infeasible)).To(And(haveCode(call.CodeDiskModifyFailed),
			MatchError(And(ContainSubstring("VolumeAttributesClass infeasible"), ContainSubstring("iops out of range")))))
		Expect(env.pvc(cid).AttributesClass()).To(Equal(previous))
	},
		Entry(nil, fast, ""),
		Entry(nil, gold, "gold"),
	)

	Describe("that the driver rejected, and with a status that remains", func() {
		var cid string
		BeforeEach(func() {
			cid = env.createDisk(fast)
			Expect(update(cid, infeasible)).To(haveCode(call.CodeDiskModifyFailed))
			Expect(env.pvc(cid).Status.ModifyVolumeStatus).NotTo(BeNil())
		})

		It("is applied by a retry if the driver now accepts it", func() {
			resizer.rejected = ""
			Expect(update(cid, infeasible)).To(Succeed())
			Expect(env.pvc(cid).Status.CurrentVolumeAttributesClassName).To(HaveValue(Equal("infeasible")))
		})

		It("is rejected by a retry only after the driver tried it again", func() {
			resizer.stopped = true
			memoryapi.InVirtualTime(suite, func() {
				env.Session = env.newSession(time.Hour)
				Expect(update(cid, infeasible)).To(haveCode(call.CodeDiskModifyTimeout))
			})
		})

		It("is rejected by a retry if the driver rejects it again", func() {
			Expect(update(cid, infeasible)).To(haveCode(call.CodeDiskModifyFailed))
		})
	})

	It("is reported as infeasible by a retry after the call was interrupted", func() {
		cid := env.createDisk(fast)
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.VolumeAttributesClassName = new("infeasible") })
		Expect(update(cid, infeasible)).To(haveCode(call.CodeDiskModifyFailed))
		Expect(env.pvc(cid).AttributesClass()).To(BeEmpty())
	})

	It("stays requested after a timeout, so that a retry can complete the change", func() {
		cid := env.createDisk(fast)
		resizer.stopped = true
		memoryapi.InVirtualTime(suite, func() {
			env.Session = env.newSession(time.Hour)
			Expect(update(cid, gold)).To(And(haveCode(call.CodeDiskModifyTimeout),
				MatchError(ContainSubstring("check that the CSI driver supports VolumeAttributesClasses"))))
		})
		env.Session = env.newSession(time.Minute)
		Expect(env.pvc(cid).AttributesClass()).To(Equal("gold"))
	})
})

// fakeResizer changes the VolumeAttributesClasses of bound PVCs like the external-resizer.
type fakeResizer struct {
	rejected  string            // the class that the driver rejects
	stopped   bool              // no class is applied
	requested map[string]string // the last served class of each PVC
	failures  int
}

// serve does the next step for the PVC, each of which a client can observe. It returns whether it changed the PVC.
func (r *fakeResizer) serve(obj *object) bool {
	if obj.GetKind() != "PersistentVolumeClaim" || r.stopped {
		return false
	}
	var pvc corev1.PersistentVolumeClaim
	memoryapi.FromObject(obj, &pvc)
	class, current, status := pvc.Spec.VolumeAttributesClassName, pvc.Status.CurrentVolumeAttributesClassName, pvc.Status.ModifyVolumeStatus
	switch {
	case pvc.Status.Phase != corev1.ClaimBound || class == nil:
		delete(r.requested, pvc.Name)
		return false
	case r.requested[pvc.Name] != *class && (status != nil || current == nil || *current != *class):
		pvc.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{
			TargetVolumeAttributesClassName: *class, Status: corev1.PersistentVolumeClaimModifyVolumeInProgress,
		}
	case status == nil || status.Status != corev1.PersistentVolumeClaimModifyVolumeInProgress:
		return false
	case *class == r.rejected:
		r.failures++
		status.Status = corev1.PersistentVolumeClaimModifyVolumeInfeasible
		pvc.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
			Type: corev1.PersistentVolumeClaimVolumeModifyVolumeError, Status: corev1.ConditionTrue,
			LastProbeTime: metav1.Unix(int64(r.failures), 0), Message: "iops out of range",
		}}
	default:
		pvc.Status.CurrentVolumeAttributesClassName, pvc.Status.ModifyVolumeStatus, pvc.Status.Conditions = class, nil, nil
	}
	r.requested[pvc.Name] = *class
	obj.Object = memoryapi.ToObject(&pvc).Object
	return true
}
