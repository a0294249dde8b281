//go:build e2e

package e2e

import (
	"context"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// cloud_properties of disks of both volume modes.
var (
	filesystemDisk = map[string]any{}
	blockDisk      = map[string]any{"storage_class": embedded.CSIClass, "volume_mode": "Block"}
)

const (
	fillDisk  = `head -c 1048576 /dev/urandom > /var/vcap/store/data && sync /var/vcap/store/data && sha256sum < /var/vcap/store/data`
	checkDisk = `mountpoint -q /var/vcap/store && sha256sum < /var/vcap/store/data`
)

// describeDiskOwnership specifies what happens when a user or a call detaches the disk, or tries to.
func describeDiskOwnership(f *diskFixture) {
	It("stays mounted until detach_disk when a user deletes its attachment Pod", func(ctx context.Context) {
		Expect(f.cluster.CoreV1().Pods(f.namespace).Delete(ctx, f.disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		f.vm.run(ctx, "touch /var/vcap/store/more && sync")
		otherVM := f.createVM(ctx)
		Expect(f.mustFail(ctx, "attach_disk", otherVM.cid, f.disk).Message).To(ContainSubstring("disk " + f.disk + " is attached to VM " + f.vm.cid))
		f.mustCall(ctx, "delete_vm", otherVM.cid)
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))

	for use, command := range map[string]string{
		"has a file open":                     `exec 7</var/vcap/store/data; exec sleep 1000`,
		"has the device open":                 `exec 7<$(echo /dev/bosh/disk-*); exec sleep 1000`,
		"has its working directory in it":     `cd /var/vcap/store && exec sleep 1000`,
		"has it mounted in another namespace": `cd / && exec unshare --mount sleep 1000`,
	} {
		It("is not detached while a process "+use+", even after a lazy unmount", func(ctx context.Context) {
			f.vm.run(ctx, "cd / && (setsid bash -c '"+command+"' </dev/null >/dev/null 2>&1 &)")
			Eventually(func() (string, error) { return f.vm.tryRun(ctx, "pgrep -fx 'sleep 1000'") }).WithContext(ctx).ShouldNot(BeEmpty())
			detachErr := f.mustFail(ctx, "detach_disk", f.vm.cid, f.disk)
			Expect(detachErr.Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
			f.vm.run(ctx, "umount --lazy /var/vcap/store")
			Expect(f.mustFail(ctx, "detach_disk", f.vm.cid, f.disk).Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
			f.vm.run(ctx, "pkill -fx 'sleep 1000'; mount /dev/bosh/"+f.disk+" /var/vcap/store")
			f.expectIntact(ctx)
		}, NodeTimeout(longTest))
	}

	It("is never partly attached after concurrent attach_disk and detach_disk calls", func(ctx context.Context) {
		f.vm.detach(ctx, f.disk)
		for range 3 {
			runConcurrently(func() { _, _ = f.Call(ctx, "attach_disk", f.vm.cid, f.disk) }, func() { _, _ = f.Call(ctx, "detach_disk", f.vm.cid, f.disk) })
			f.vm.attach(ctx, f.disk)
			Expect(f.vm.run(ctx, "cat /var/vcap/store/mark")).To(Equal(f.disk))
			f.vm.detach(ctx, f.disk)
		}
		f.vm.attach(ctx, f.disk)
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("can be attached to another VM right after detach_disk, and back", func(ctx context.Context) {
		otherVM := f.createVM(ctx)
		f.vm.detach(ctx, f.disk)
		otherVM.attach(ctx, f.disk)
		Expect(otherVM.run(ctx, checkLarge)).To(Equal(f.checksum))
		otherVM.detach(ctx, f.disk)
		f.vm.attach(ctx, f.disk)
		f.mustCall(ctx, "delete_vm", otherVM.cid)
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("survives the deletion of the VM that it is attached to, and can be attached again", func(ctx context.Context) {
		f.vm.detach(ctx, f.disk)
		otherVM := f.createVM(ctx)
		otherVM.attach(ctx, f.disk)
		f.mustCall(ctx, "delete_vm", otherVM.cid)
		f.vm.attach(ctx, f.disk)
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))
}

var _ = Describe("A persistent disk", Label("disks"), func() {
	for kind, properties := range map[string]map[string]any{"a Filesystem PVC": filesystemDisk, "a Block PVC": blockDisk} {
		Describe("on "+kind, extended(kind == "a Filesystem PVC"), Ordered, func() {
			var f diskFixture
			BeforeAll(func(ctx context.Context) { f.setUp(ctx, properties) }, NodeTimeout(longTest))
			describeDiskOwnership(&f)
		})

		Describe("on "+kind+" of a failing node", extended(kind == "a Filesystem PVC"), Ordered, Serial, func() {
			var f diskFixture
			BeforeAll(func(ctx context.Context) { f.setUp(ctx, properties) }, NodeTimeout(longTest))
			describeAttachmentPodFailures(&f)
			describeKubeletRestarts(&f)
			describeUnpublishedAttachments(&f)
			describeNodeReboots(&f)
		})
	}
})

var _ = Describe("A disk", Label("disks"), func() {
	kinds := map[string]map[string]any{"Filesystem": filesystemDisk, "Block": blockDisk}
	for from, old := range kinds {
		for to, successor := range kinds {
			It("keeps its data when the agent migrates it from a "+from+" PVC to a "+to+" PVC", func(ctx context.Context) {
				env := newTestEnv(ctx)
				env.expectMigration(ctx, env.createVM(ctx), old, successor)
			}, Label("extended"), NodeTimeout(longTest))
		}
	}

	for mode := range kinds {
		It("on a "+mode+" PVC has the new size and keeps its data after resize_disk", func(ctx context.Context) {
			env := newTestEnv(ctx)
			vm := env.createVM(ctx)
			disk := env.createDisk(ctx, 1280, map[string]any{"storage_class": embedded.CSIClass, "volume_mode": mode})
			vm.attach(ctx, disk)
			checksum := vm.run(ctx, fillGiB)
			vm.detach(ctx, disk)
			env.mustCall(ctx, "resize_disk", disk, 1440)
			vm.attach(ctx, disk)
			Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
			Expect(vm.diskSizeMiB(ctx, disk)).To(Equal(1440))
			Expect(strconv.Atoi(vm.run(ctx, "df --output=size --block-size=1M /var/vcap/store | tail -n 1 | tr -d ' '"))).To(BeNumerically(">", 1300))
			vm.detach(ctx, disk)
			env.mustCall(ctx, "delete_disk", disk)
		}, extended(mode == "Filesystem"), NodeTimeout(longTest))

		It("from a snapshot of a "+mode+" PVC has the data at the time of the snapshot", func(ctx context.Context) {
			env := newTestEnv(ctx)
			vm := env.createVM(ctx)
			properties := map[string]any{"storage_class": embedded.CSIClass, "volume_mode": mode}
			disk := env.createDisk(ctx, 1280, properties)
			vm.attach(ctx, disk)
			checksum := vm.run(ctx, fillGiB)
			snapshot := env.mustCall(ctx, "snapshot_disk", disk, map[string]any{"deployment": "e2e"}).Text()
			vm.run(ctx, "echo later > /var/vcap/store/later; truncate -s 0 /var/vcap/store/data")
			vm.detach(ctx, disk)
			restored := env.createDisk(ctx, 1408, map[string]any{"storage_class": embedded.CSIClass, "volume_mode": mode, "snapshot": snapshot})
			vm.attach(ctx, restored)
			Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
			Expect(vm.run(ctx, "ls /var/vcap/store")).NotTo(ContainSubstring("later"))
			Expect(vm.diskSizeMiB(ctx, restored)).To(Equal(1408))
			vm.detach(ctx, restored)
			env.mustCall(ctx, "delete_snapshot", snapshot)
			env.mustCall(ctx, "delete_disk", restored)
			env.mustCall(ctx, "delete_disk", disk)
		}, Label("extended"), NodeTimeout(longTest))
	}

	It("is fully allocated when it is attached, with preallocate", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm, disk := env.createVM(ctx), env.createDisk(ctx, 64, map[string]any{"preallocate": true})
		vm.attach(ctx, disk)
		allocatedMiB, err := env.embedded.ControlPlane.Kubectl(ctx, "exec", "-n", env.namespace, disk+"-attachment", "--",
			"bash", "-c", "echo $(($(stat -c '%b * %B' /volume/disk.img) >> 20))")
		Expect(err).NotTo(HaveOccurred())
		Expect(strconv.Atoi(strings.TrimSpace(allocatedMiB))).To(BeNumerically(">=", 64))
	}, NodeTimeout(longTest))

	It("from a snapshot of an xfs disk can be mounted on the node of its source", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm, otherVM := env.createVM(ctx), env.createVM(ctx)
		disk := env.createDisk(ctx, 400, map[string]any{"storage_class": embedded.CSIClass, "filesystem": "xfs"})
		vm.attach(ctx, disk)
		vm.run(ctx, "echo then > /var/vcap/store/mark")
		snapshot := env.mustCall(ctx, "snapshot_disk", disk, map[string]any{}).Text()
		restored := env.createDisk(ctx, 512, map[string]any{"storage_class": embedded.CSIClass, "filesystem": "xfs", "snapshot": snapshot})
		otherVM.attach(ctx, restored)
		Expect(otherVM.run(ctx, "cat /var/vcap/store/mark")).To(Equal("then"))
		Expect(otherVM.run(ctx, "findmnt --noheadings --output FSTYPE /var/vcap/store")).To(Equal("xfs"))
		otherVM.detach(ctx, restored)
		vm.detach(ctx, disk)
		env.mustCall(ctx, "delete_snapshot", snapshot)
		env.mustCall(ctx, "delete_disk", restored)
		env.mustCall(ctx, "delete_disk", disk)
	}, Label("extended"), NodeTimeout(longTest))
})

// diskSizeMiB returns the size of the disk's device in the VM.
func (vm *testVM) diskSizeMiB(ctx context.Context, disk string) int {
	GinkgoHelper()
	bytes, err := strconv.Atoi(vm.run(ctx, "blockdev --getsize64 /dev/bosh/"+disk))
	Expect(err).NotTo(HaveOccurred())
	return bytes >> 20
}

// extended returns the label of specs that CI skips, because similar specs cover nearly the same.
func extended(skippedInCI bool) Labels {
	if skippedInCI {
		return Label("extended")
	}
	return nil
}

// expectMigration makes the agent migrate 1 GiB of data to a larger disk, and expects the data there.
func (env *testEnv) expectMigration(ctx context.Context, vm *testVM, old, successor map[string]any) {
	GinkgoHelper()
	first := env.createDisk(ctx, 1280, old)
	vm.attach(ctx, first)
	checksum := vm.run(ctx, fillGiB)
	second := env.createDisk(ctx, 1408, successor)
	env.migrate(ctx, vm, first, second)
	Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
	Expect(vm.diskSizeMiB(ctx, second)).To(Equal(1408))
	vm.detach(ctx, second)
	env.mustCall(ctx, "delete_disk", second)
}

// migrate replaces the attached disk by the next one as a director does: the agent copies the data.
func (env *testEnv) migrate(ctx context.Context, vm *testVM, disk, next string) {
	GinkgoHelper()
	vm.attach(ctx, next)
	vm.callAgent(ctx, "migrate_disk", disk, next)
	vm.callAgent(ctx, "remove_persistent_disk", disk)
	env.mustCall(ctx, "detach_disk", vm.cid, disk)
	env.mustCall(ctx, "delete_disk", disk)
}
