package disk

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
)

var _ = Describe("update_disk", func() {
	var env *testEnv
	var cid string
	BeforeEach(func() {
		env = newTestEnv()
		cid = env.createDisk(fast)
	})
	update := func(size int64, properties string) (string, error) {
		return env.Update(cid, size, json.RawMessage(properties))
	}
	unbind := func() {
		env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
			env.api.Simulate = nil
			pvc.Spec.VolumeName, pvc.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		})
	}
	attach := func() { env.attach(cid, env.createVM("vm-1")) }

	It("changes labels and size in place", func() {
		Expect(update(128, `{"storage_class": "fast", "labels": {"team": "a"}, "annotations": {"note": "b"}}`)).To(Equal(cid))
		pvc := env.pvc(cid)
		Expect(pvc.RecordedSize()).To(Equal("128"))
		Expect(pvc.Labels).To(HaveKeyWithValue("team", "a"))
		Expect(pvc.Annotations).To(HaveKeyWithValue("note", "b"))
	})

	It("changes labels of a disk that has no volume", func() {
		unbind()
		Expect(update(64, `{"storage_class": "fast", "labels": {"team": "a"}}`)).To(Equal(cid))
		Expect(env.pvc(cid).Labels).To(HaveKeyWithValue("team", "a"))
	})

	DescribeTable("changes nothing if", func(code call.Code, message string, size int64, properties string, prepare func()) {
		prepare()
		previous := env.pvc(cid).ResourceVersion
		_, err := update(size, properties)
		Expect(err).To(And(haveCode(code), MatchError(ContainSubstring(message))))
		Expect(env.pvc(cid).ResourceVersion).To(Equal(previous))
	},
		Entry("the size is invalid", call.CodeInvalidRequest, "use 1 to 1099511627776", int64(0), fast, func() {}),
		Entry("a property is invalid", call.CodeInvalidProperty, "btrfs", int64(64), `{"filesystem": "btrfs"}`, func() {}),
		Entry("a VM has the disk", call.CodeDiskInUse, "attached to VM vm-1", int64(64), fast, attach),
		Entry("a VM has the disk, and its filesystem differs", call.CodeDiskInUse, "attached to VM vm-1", int64(64), `{"filesystem": "xfs"}`, attach),
		Entry("the disk would shrink", call.CodeDiskResizeUnsupported, "from 64 MiB to 32 MiB", int64(32), fast, func() {}),
		Entry("the disk would grow, but has no volume yet", call.CodeDiskResizeUnsupported, "attach it to a VM first", int64(128), fast, unbind),
		Entry("the StorageClass does not allow expansion", call.CodeDiskResizeUnsupported, "set its allowVolumeExpansion to true", int64(128), fixed,
			func() { cid = env.createDisk(fixed) }),
	)

	DescribeTable("leaves it to BOSH to copy the disk if", func(change, properties string) {
		previous := env.pvc(cid).ResourceVersion
		_, err := update(64, properties)
		Expect(err).To(And(haveCode(call.CodeDiskUpdateUnsupported), Satisfy(call.NotSupported.Is),
			MatchError(ContainSubstring("cannot change %s in place; BOSH copies the data instead", strings.ReplaceAll(change, "DISK", cid)))))
		Expect(env.pvc(cid).ResourceVersion).To(Equal(previous))
	},
		Entry("the StorageClass differs", "storage_class of disk DISK from fast to fixed", fixed),
		Entry("the volume mode differs", "volume_mode of disk DISK from Filesystem to Block", `{"volume_mode": "Block"}`),
		Entry("the access modes differ", "access_modes of disk DISK from ReadWriteOnce to ReadWriteMany", `{"access_modes": ["ReadWriteMany"]}`),
		Entry("the filesystem differs", "filesystem of disk DISK from none to xfs", `{"filesystem": "xfs"}`),
	)

	It("reports a disk that does not exist", func() {
		cid = "disk-none"
		_, err := update(64, fast)
		Expect(err).To(haveCode(call.CodeDiskNotFound))
	})

	It("ignores the order of access modes", func() {
		cid = env.createDisk(`{"access_modes": ["ReadWriteOnce", "ReadWriteMany"]}`)
		Expect(update(64, `{"access_modes": ["ReadWriteMany", "ReadWriteOnce"]}`)).To(Equal(cid))
	})
})
