package integration

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("After etcd is restored from a backup,", Ordered, Serial, func() {
	var (
		env                                  testEnv
		vm, deletedVM, createdVM             string
		attachedDisk, movedDisk, createdDisk string
	)
	BeforeAll(func(ctx context.Context) {
		env, vm, attachedDisk = newTestEnvWithDisk(ctx)
		movedDisk = env.createDisk(ctx)
		deletedVM = env.createVM(ctx, "deleted")
		env.mustCall(ctx, "attach_disk", deletedVM, movedDisk)
		backup := filepath.Join(sharedDir, "etcd-backup")
		Expect(plane.BackUpEtcd(ctx, backup)).To(Succeed())

		env.mustCall(ctx, "attach_disk", vm, attachedDisk)
		env.mustCall(ctx, "detach_disk", deletedVM, movedDisk)
		env.mustCall(ctx, "delete_vm", deletedVM)
		createdVM = env.createVM(ctx, "created", movedDisk)
		env.mustCall(ctx, "attach_disk", createdVM, movedDisk)
		createdDisk = env.createDisk(ctx)
		Expect(plane.RestoreEtcd(ctx, backup)).To(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("a disk that was attached after the backup is not attached, until attach_disk attaches it to its VM again", func(ctx context.Context) {
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
		Expect(env.mustFail(ctx, "detach_disk", vm, attachedDisk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
		env.mustCall(ctx, "attach_disk", vm, attachedDisk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + attachedDisk + `"]`))
	})

	It("a disk belongs to the VM of its older owner record, until delete_vm deletes that VM", func(ctx context.Context) {
		other := env.createVM(ctx, "other", movedDisk)
		Expect(env.mustFail(ctx, "attach_disk", other, movedDisk).Message).To(ContainSubstring("disk " + movedDisk + " is attached to VM " + deletedVM))
		env.mustCall(ctx, "delete_vm", deletedVM)
		env.mustCall(ctx, "attach_disk", other, movedDisk)
	})

	It("calls for a VM or a disk that was created after the backup do not find it", func(ctx context.Context) {
		Expect(env.mustCall(ctx, "has_vm", createdVM).Result).To(MatchJSON(`false`))
		Expect(env.mustFail(ctx, "delete_vm", createdVM).Type).To(Equal("Bosh::Clouds::VMNotFound"))
		Expect(env.mustCall(ctx, "has_disk", createdDisk).Result).To(MatchJSON(`false`))
		Expect(env.mustFail(ctx, "attach_disk", vm, createdDisk).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})
})
