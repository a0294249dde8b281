//go:build e2e

package e2e

import (
	"context"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/embedded"
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

// describeDiskOwnership specifies what happens when something takes the disk from its VM, or tries to.
func describeDiskOwnership(s *diskFixture) {
	It("stays mounted until it is detached when its attachment Pod is deleted by someone else", func(ctx context.Context) {
		Expect(s.cluster.CoreV1().Pods(s.namespace).Delete(ctx, s.disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		s.vm.run(ctx, "touch /var/vcap/store/more && sync")
		other := s.createVM(ctx)
		Expect(s.mustFail(ctx, "attach_disk", other.cid, s.disk).Message).To(ContainSubstring("disk " + s.disk + " is attached to VM " + s.vm.cid))
		s.mustCall(ctx, "delete_vm", other.cid)
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))

	for use, command := range map[string]string{
		"has a file open":                      `exec 7</var/vcap/store/data; exec sleep 1000`,
		"has its working directory in it":      `cd /var/vcap/store && exec sleep 1000`,
		"has it in a separate mount namespace": `cd / && exec unshare --mount sleep 1000`,
	} {
		It("is not detached while a process "+use+", even after a lazy unmount", func(ctx context.Context) {
			s.vm.run(ctx, "cd / && (setsid bash -c '"+command+"' </dev/null >/dev/null 2>&1 &)")
			Eventually(func() (string, error) { return s.vm.tryRun(ctx, "pgrep -fx 'sleep 1000'") }).WithContext(ctx).ShouldNot(BeEmpty())
			busy := s.mustFail(ctx, "detach_disk", s.vm.cid, s.disk)
			Expect(busy.Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
			s.vm.run(ctx, "umount --lazy /var/vcap/store")
			Expect(s.mustFail(ctx, "detach_disk", s.vm.cid, s.disk).Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
			s.vm.run(ctx, "pkill -fx 'sleep 1000'; mount /dev/bosh/"+s.disk+" /var/vcap/store")
			s.expectIntact(ctx)
		}, NodeTimeout(longTest))
	}

	It("is either attached or detached, never partly, after concurrent attach_disk and detach_disk calls", func(ctx context.Context) {
		s.vm.detach(ctx, s.disk)
		for range 3 {
			runConcurrently(func() { _, _ = s.Call(ctx, "attach_disk", s.vm.cid, s.disk) }, func() { _, _ = s.Call(ctx, "detach_disk", s.vm.cid, s.disk) })
			s.vm.attach(ctx, s.disk)
			Expect(s.vm.run(ctx, "cat /var/vcap/store/mark")).To(Equal(s.disk))
			s.vm.detach(ctx, s.disk)
		}
		s.vm.attach(ctx, s.disk)
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("can be attached to another VM right after detach_disk, and back", func(ctx context.Context) {
		other := s.createVM(ctx)
		s.vm.detach(ctx, s.disk)
		other.attach(ctx, s.disk)
		Expect(other.run(ctx, checkLarge)).To(Equal(s.checksum))
		other.detach(ctx, s.disk)
		s.vm.attach(ctx, s.disk)
		s.mustCall(ctx, "delete_vm", other.cid)
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("survives the deletion of the VM that it is attached to, and can be attached again", func(ctx context.Context) {
		s.vm.detach(ctx, s.disk)
		other := s.createVM(ctx)
		other.attach(ctx, s.disk)
		s.mustCall(ctx, "delete_vm", other.cid)
		s.vm.attach(ctx, s.disk)
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))
}

var _ = Describe("A persistent disk", Label("disks"), func() {
	for kind, properties := range map[string]map[string]any{"a Filesystem PVC": filesystemDisk, "a Block PVC": blockDisk} {
		Describe("on "+kind, extended(kind == "a Filesystem PVC"), Ordered, func() {
			var s diskFixture
			BeforeAll(func(ctx context.Context) { s.setUp(ctx, properties) }, NodeTimeout(longTest))
			describeDiskOwnership(&s)
		})

		Describe("on "+kind+" of a failing node", extended(kind == "a Filesystem PVC"), Ordered, Serial, func() {
			var s diskFixture
			BeforeAll(func(ctx context.Context) { s.setUp(ctx, properties) }, NodeTimeout(longTest))
			describeAttachmentPodFailures(&s)
			describeKubeletRestarts(&s)
			describeNodeReboots(&s)
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
			}, extended(from == "Filesystem" || to == "Block"), NodeTimeout(longTest))
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

		It("from a snapshot of a "+mode+" PVC has the data of the time of the snapshot", func(ctx context.Context) {
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
		vm, other := env.createVM(ctx), env.createVM(ctx)
		disk := env.createDisk(ctx, 400, map[string]any{"storage_class": embedded.CSIClass, "filesystem": "xfs"})
		vm.attach(ctx, disk)
		vm.run(ctx, "echo then > /var/vcap/store/mark")
		snapshot := env.mustCall(ctx, "snapshot_disk", disk, map[string]any{}).Text()
		restored := env.createDisk(ctx, 512, map[string]any{"storage_class": embedded.CSIClass, "filesystem": "xfs", "snapshot": snapshot})
		other.attach(ctx, restored)
		Expect(other.run(ctx, "cat /var/vcap/store/mark")).To(Equal("then"))
		Expect(other.run(ctx, "findmnt --noheadings --output FSTYPE /var/vcap/store")).To(Equal("xfs"))
		other.detach(ctx, restored)
		vm.detach(ctx, disk)
		env.mustCall(ctx, "delete_snapshot", snapshot)
		env.mustCall(ctx, "delete_disk", restored)
		env.mustCall(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})

// diskSizeMiB returns the size of the disk's device in the VM.
func (vm *testVM) diskSizeMiB(ctx context.Context, disk string) int {
	GinkgoHelper()
	bytes, err := strconv.Atoi(vm.run(ctx, "blockdev --getsize64 /dev/bosh/"+disk))
	Expect(err).NotTo(HaveOccurred())
	return bytes >> 20
}

// extended labels specs that CI skips because similar ones cover nearly the same.
func extended(skippedInCI bool) Labels {
	if skippedInCI {
		return Label("extended")
	}
	return nil
}

// expectMigration lets the agent migrate 1 GiB of data to a larger disk.
func (env *testEnv) expectMigration(ctx context.Context, vm *testVM, old, successor map[string]any) {
	GinkgoHelper()
	first := env.createDisk(ctx, 1280, old)
	vm.attach(ctx, first)
	checksum := vm.run(ctx, fillGiB)
	second := env.createDisk(ctx, 1408, successor)
	vm.attach(ctx, second)
	vm.callAgent(ctx, "migrate_disk", first, second)
	vm.callAgent(ctx, "remove_persistent_disk", first)
	env.mustCall(ctx, "detach_disk", vm.cid, first)
	env.mustCall(ctx, "delete_disk", first)
	Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
	Expect(vm.diskSizeMiB(ctx, second)).To(Equal(1408))
	vm.detach(ctx, second)
	env.mustCall(ctx, "delete_disk", second)
}
