package vm

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("get_disks", func() {
	It("recreates attachment Pods that another client deleted", func() {
		env := newTestEnv()
		vm, cid := env.createVM(`{}`), env.createDisk(`{}`)
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		env.deletePod(manifest.AttachmentName(cid))
		Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
		Expect(env.objects()).To(ContainElement(attachmentOf(cid)))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner.Pod).To(Equal(env.pod(manifest.AttachmentName(cid)).UID))
	})

	DescribeTable("recreates attachment Pods that were evicted", func(properties string) {
		env := newTestEnv()
		vm, cid := env.createVM(properties), env.createDisk(`{"volume_mode": "Block"}`)
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		evicted := env.evictAttachment(cid)
		Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
		uid := env.pod(manifest.AttachmentName(cid)).UID
		Expect(uid).NotTo(Equal(evicted))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner.Pod).To(Equal(uid))
	},
		Entry("hot-plug", `{}`),
		Entry("recreate", recreate),
	)
})
