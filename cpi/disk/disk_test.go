package disk

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("The name of a dynamic disk", func() {
	// buildPVC returns the PVC for cloud_properties as a director sends them for a dynamic disk.
	buildPVC := func(name string) manifest.DiskPVC {
		raw, err := json.Marshal(map[string]any{"storage_class": "fast", "name": name})
		Expect(err).NotTo(HaveOccurred())
		properties, err := parseProperties(raw)
		Expect(err).NotTo(HaveOccurred())
		return properties.buildDisk("disk-1", "director", 64).PVC()
	}

	It("is a label and an annotation of the PVC", func() {
		pvc := buildPVC("logs-2026")
		Expect(pvc.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/dynamic-disk", "logs-2026"))
		Expect(pvc.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/dynamic-disk", "logs-2026"))
	})

	It("is only an annotation if it is not a valid label value", func() {
		name := "disk for " + strings.Repeat("a", 63)
		pvc := buildPVC(name)
		Expect(pvc.Labels).NotTo(HaveKey("bosh.cloudfoundry.org/dynamic-disk"))
		Expect(pvc.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/dynamic-disk", name))
	})
})

var _ = Describe("set_disk_metadata", func() {
	It("does not change the PVC of another application", func() {
		env := newTestEnv()
		env.api.Add("persistentvolumeclaims", "bosh", &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-postgres-0"}})
		previous := env.pvc("data-postgres-0").ResourceVersion
		Expect(env.SetMetadata("data-postgres-0", map[string]any{"deployment": "cf"})).To(Satisfy(call.DiskNotFound.Is))
		Expect(env.pvc("data-postgres-0").ResourceVersion).To(Equal(previous))
	})
})

var _ = Describe("Properties of a disk", func() {
	DescribeTable("are rejected with the key and the remedy", func(properties, message string) {
		_, err := parseProperties(json.RawMessage(properties))
		Expect(err).To(And(haveCode(call.CodeInvalidProperty), MatchError(ContainSubstring(message))))
	},
		Entry(nil, `{"storage_clas": "x"}`, `unknown key "storage_clas" (did you mean "storage_class"?)`),
		Entry(nil, `{"volume_mode": "File"}`, `volume_mode "File" is not valid; use Filesystem or Block`),
		Entry(nil, `{"filesystem": "btrfs"}`, `filesystem "btrfs" is not valid; use ext4 or xfs`),
		Entry(nil, `{"volume_attributes_class": "Gold_1"}`, `cloud_properties.volume_attributes_class "Gold_1" is not valid; use the name of`),
		Entry(nil, `{"storage_class": "Fast"}`, `cloud_properties.storage_class "Fast" is not valid; use the name of a StorageClass`),
		Entry(nil, `{"preallocate": true, "volume_mode": "Block"}`, "preallocate applies only to disks that are image files"),
		Entry(nil, `{"access_modes": ["ReadOnlyMany"]}`, `"ReadOnlyMany" is not valid`),
		Entry(nil, `{"labels": {"a b": "c"}}`, "cloud_properties.labels"),
	)
})

var _ = Describe("A disk", func() {
	var env *testEnv
	BeforeEach(func() { env = newTestEnv() })

	It("is a PVC that requests space for the image file", func() {
		pvc := env.pvc(env.createDisk(fast))
		Expect(RecordedSizeMiB(pvc)).To(Equal(int64(64)))
		request := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
		Expect(request.Value() >> 20).To(Equal(manifest.PVCSizeMiB(64, corev1.PersistentVolumeFilesystem)))
		Expect(env.Subject.Object.Name).To(Equal(pvc.Name))
	})

	DescribeTable("is not created with an invalid request", func(size int64, properties string, code call.Code) {
		_, err := env.Create(size, json.RawMessage(properties), nil)
		Expect(err).To(haveCode(code))
		Expect(env.api.Names("persistentvolumeclaims")).To(BeEmpty())
	},
		Entry("of the size", int64(0), `{}`, call.CodeInvalidRequest),
		Entry("of a property", int64(64), `{"filesystem": "btrfs"}`, call.CodeInvalidProperty),
	)

	It("exists until its PVC is deleted", func() {
		cid := env.createDisk(fast)
		Expect(env.Has(cid)).To(BeTrue())
		Expect(env.Delete(cid)).To(Succeed())
		Expect(env.Has(cid)).To(BeFalse())
		Expect(env.Delete(cid)).To(haveCode(call.CodeDiskNotFound))
	})

	It("is not a PVC of something else", func() {
		cid := env.createDisk(fast)
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { delete(pvc.Labels, manifest.LabelRole) })
		Expect(env.Has(cid)).To(BeFalse())
		Expect(env.Delete(cid)).To(haveCode(call.CodeDiskNotFound))
		Expect(env.api.Names("persistentvolumeclaims")).To(ConsistOf(cid))
	})

	Describe("that a VM has, with a PVC that another client deleted,", func() {
		var cid string
		BeforeEach(func() {
			cid = env.createDisk(fast)
			env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { pvc.Finalizers = []string{"kubernetes.io/pvc-protection"} })
			env.attach(cid, env.createVM("vm-1"))
			Expect(env.PVCs.Delete(env.Ctx, env.pvc(cid).PVC)).To(Succeed())
		})
		// addVolume adds the volume of the disk.
		addVolume := func(policy corev1.PersistentVolumeReclaimPolicy) {
			env.api.Add("persistentvolumes", "", &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: env.pvc(cid).Spec.VolumeName},
				Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy}})
		}

		It("exists until the VM releases it", func() {
			Expect(env.Has(cid)).To(BeTrue())
			Expect(env.SetMetadata(cid, map[string]any{"deployment": "cf"})).To(Succeed())
			_, err := env.ReleaseAll("vm-1")
			Expect(err).NotTo(HaveOccurred())
			Expect(env.Has(cid)).To(BeFalse())
			Expect(env.SetMetadata(cid, map[string]any{})).To(haveCode(call.CodeDiskNotFound))
			Expect(env.CheckNotBeingDeleted(cid)).To(Succeed())
		})

		DescribeTable("is reported with the remedy by", func(method func() error) {
			addVolume(corev1.PersistentVolumeReclaimDelete)
			Expect(method()).To(And(haveCode(call.CodeDiskBeingDeleted),
				MatchError(And(ContainSubstring("VM vm-1 still has it"), ContainSubstring("PersistentVolume volume-"+cid+" to Retain")))))
		},
			Entry("GetPVC", func() error { _, err := env.GetPVC(cid); return err }),
			Entry("snapshot_disk", func() error { _, err := env.Snapshot(cid, map[string]any{}); return err }),
			Entry("resize_disk", func() error { return env.Resize(cid, 128) }),
			Entry("update_disk", func() error { _, err := env.Update(cid, 64, json.RawMessage(fixed)); return err }),
			Entry("delete_disk", func() error { return env.Delete(cid) }),
			Entry("CheckNotBeingDeleted", func() error { return env.CheckNotBeingDeleted(cid) }),
			Entry("CheckNoneBeingDeleted", func() error { return env.CheckNoneBeingDeleted("vm-1") }),
		)

		It("can be released if its volume stays", func() {
			addVolume(corev1.PersistentVolumeReclaimRetain)
			Expect(env.CheckNotBeingDeleted(cid)).To(Succeed())
			Expect(env.CheckNoneBeingDeleted("vm-1")).To(Succeed())
		})

		It("can be released if its volume does not exist", func() { Expect(env.CheckNotBeingDeleted(cid)).To(Succeed()) })
	})

	It("is not deleted while a VM has it", func() {
		cid := env.createDisk(fast)
		attachment := env.attach(cid, env.createVM("vm-1"))
		Expect(env.Delete(cid)).To(And(haveCode(call.CodeDiskInUse), MatchError(ContainSubstring("attached to VM vm-1"))))
		Expect(env.Pods.Delete(env.Ctx, attachment.Pod)).To(Succeed())
		Expect(env.Delete(cid)).To(haveCode(call.CodeDiskInUse), "the owner record counts, not the attachment Pod")
	})

	It("is deleted although an attachment Pod that never started exists", func() {
		cid := env.createDisk(fast)
		vm := env.createVM("vm-1")
		desired := manifest.Attachment{Disk: cid, Mode: corev1.PersistentVolumeFilesystem, VM: vm, Director: "director"}.Pod()
		_, err := env.Pods.Create(env.Ctx, desired.Pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Delete(cid)).To(Succeed())
		Expect(env.api.Names("pods")).To(ConsistOf("vm-1"))
	})

	It("gets the metadata of the director", func() {
		cid := env.createDisk(fast)
		Expect(env.SetMetadata(cid, map[string]any{"deployment": "cf"})).To(Succeed())
		Expect(env.pvc(cid).Labels).To(HaveKeyWithValue(manifest.Prefix+"deployment", "cf"))
		Expect(env.SetMetadata("disk-none", map[string]any{})).To(haveCode(call.CodeDiskNotFound))
	})
})
