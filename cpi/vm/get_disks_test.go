package vm

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// newTestEnvWithLostAttachment creates an environment with a VM that uses a disk, and another client deleted the attachment Pod.
func newTestEnvWithLostAttachment() (env *testEnv, vm, cid string) {
	GinkgoHelper()
	env = newTestEnv()
	vm, cid = env.createVM(`{}`), env.createDisk(`{}`)
	_, err := env.Attach(vm, cid)
	Expect(err).NotTo(HaveOccurred())
	env.deletePod(manifest.AttachmentName(cid))
	return env, vm, cid
}

var _ = Describe("get_disks", func() {
	It("recreates attachment Pods that another client deleted", func() {
		env, vm, cid := newTestEnvWithLostAttachment()
		Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
		Expect(env.objects()).To(ContainElement(attachmentOf(cid)))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner.Pod).To(Equal(env.pod(manifest.AttachmentName(cid)).UID))
	})

	It("succeeds if it cannot recreate an attachment Pod, which RestoreAttachments reports", func() {
		env, vm, cid := newTestEnvWithLostAttachment()
		env.api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusForbidden)
			}
			return r.Method == http.MethodPost
		}
		Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
		Expect(env.RestoreAttachments(vm)).To(MatchError(ContainSubstring("recreate the attachment Pod of disk " + cid)))
	})

	It("recreates an attachment Pod with the VM's image of bosh-node if it has no other", func() {
		env, vm, cid := newTestEnvWithLostAttachment()
		env.NodeImage.Configured = "" // as in `kubectl bosh collect`
		Expect(env.RestoreAttachments(vm)).To(Succeed())
		Expect(env.objects()).To(ContainElement(attachmentOf(cid)))
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
