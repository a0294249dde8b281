//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Disks that a machine has beside the one at /var/vcap/store, and formats itself: dynamic disks, which a director's
// clients ask for while the machine runs, and those of an instance group with several persistent disks.
var _ = DescribeTableSubtree("Under a director a machine with several disks", Label("director"), func(stemcell string) {
	It("is given dynamic disks all at once, loses them in any order, and has the others after a restart", func(ctx context.Context) {
		d := newDirectorEnv(ctx, stemcell)
		vm := d.createInstance(ctx)
		store := d.createDisk(ctx, 64, filesystemDisk)
		vm.attach(ctx, store)
		vm.run(ctx, "echo kept >/var/vcap/store/file")
		disks := []string{d.createDisk(ctx, 64, filesystemDisk), d.createDisk(ctx, 96, blockDisk), d.createDisk(ctx, 128, filesystemDisk)}
		mounted, raw, formatted := disks[0], disks[1], disks[2]
		runConcurrently(func() { vm.attachDynamicDisk(ctx, mounted) }, func() { vm.attachDynamicDisk(ctx, raw) }, func() { vm.attachDynamicDisk(ctx, formatted) })
		for i, disk := range disks {
			Expect(vm.run(ctx, "blockdev --getsize64 "+dynamicDiskPath(disk))).To(Equal(fmt.Sprint((64 + 32*i) << 20)))
		}

		By("what jobs do with them: one has its filesystem, one gets none, one gets its own")
		vm.run(ctx, "mkdir -p /mnt/mounted && mount "+dynamicDiskPath(mounted)+" /mnt/mounted && echo mounted >/mnt/mounted/file && umount /mnt/mounted")
		checksum := vm.run(ctx, "dd if=/dev/urandom of="+dynamicDiskPath(raw)+" bs=1M count=8 conv=fsync status=none && "+checksumRawDisk(raw))
		vm.run(ctx, "mkfs.ext4 -q -F "+dynamicDiskPath(formatted)+" && mkdir -p /mnt/own && mount "+dynamicDiskPath(formatted)+
			" /mnt/own && echo own >/mnt/own/file && sync -f /mnt/own")
		expectDisks := func(remaining ...string) {
			GinkgoHelper()
			Expect(strings.Fields(vm.run(ctx, "ls /var/vcap/data/dynamic_disks"))).To(ConsistOf(remaining))
			Expect(strings.Fields(vm.run(ctx, "ls /dev/bosh"))).To(ConsistOf(append(remaining, store)))
			var known []string
			Expect(json.Unmarshal(d.mustCall(ctx, "get_disks", vm.cid).Result, &known)).To(Succeed())
			Expect(known).To(ConsistOf(append(remaining, store)))
			Expect(vm.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
			Expect(vm.callAgent(ctx, "list_disk")).To(MatchJSON(`["` + store + `"]`))
		}
		expectDisks(mounted, raw, formatted)
		d.killAttachmentProcess(ctx, raw)
		d.waitForRestart(ctx, raw+"-attachment", 0)
		Expect(vm.run(ctx, checksumRawDisk(raw))).To(Equal(checksum))

		By("the one in use is not taken, the second one is")
		Expect(d.mustFail(ctx, "detach_disk", vm.cid, formatted).Message).To(ContainSubstring("still in use"))
		Expect(d.attachmentPod(ctx, raw).Status.ContainerStatuses[0].State.Running).NotTo(BeNil())
		vm.detachDynamicDisk(ctx, raw)
		expectDisks(mounted, formatted)

		By("a killed PID 1")
		vm.killInit(ctx)
		vm.waitForAgent(ctx)
		expectDisks(mounted, formatted)
		Expect(vm.run(ctx, "mount "+dynamicDiskPath(mounted)+" /mnt && cat /mnt/file && umount /mnt")).To(Equal("mounted"))
		Expect(vm.run(ctx, "mount "+dynamicDiskPath(formatted)+" /mnt && cat /mnt/file && umount /mnt")).To(Equal("own"))

		By("what was written without a filesystem, when it is given again")
		vm.attachDynamicDisk(ctx, raw)
		Expect(vm.run(ctx, checksumRawDisk(raw))).To(Equal(checksum))
		d.mustCall(ctx, "reboot_vm", vm.cid)
		vm.waitForAgent(ctx)
		expectDisks(mounted, raw, formatted)
		Expect(vm.run(ctx, checksumRawDisk(raw))).To(Equal(checksum))

		By("its end, before which the director takes them all")
		for _, disk := range []string{formatted, mounted, raw} {
			vm.detachDynamicDisk(ctx, disk)
			d.mustCall(ctx, "delete_disk", disk)
		}
		expectDisks()
	}, extended(stemcell == withSystemd), NodeTimeout(longTest))
},
	Entry("with runit", "E2E_STEMCELL"),
	Entry("with systemd", withSystemd),
)

var _ = Describe("The disks of an instance group with several", Label("disks", "extended"), Serial, func() {
	DescribeTable("have their names, and are there before any job when the machine's node boots", func(ctx context.Context, stemcell string) {
		env := newTestEnv(ctx)
		vm := env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{})
		associations := []map[string]any{}
		for name, properties := range map[string]map[string]any{"log": filesystemDisk, "data": blockDisk} {
			disk := env.createDisk(ctx, 64, properties)
			var hint map[string]any
			Expect(json.Unmarshal(env.mustCall(ctx, "attach_disk", vm.cid, disk).Result, &hint)).To(Succeed())
			vm.callAgent(ctx, "add_persistent_disk", disk, hint)
			associations = append(associations, map[string]any{"name": name, "cid": disk})
		}
		vm.callAgent(ctx, "update_settings", map[string]any{"disk_associations": associations, "trusted_certs": ""})
		const log, data = "/var/vcap/instance/disks/log", "/var/vcap/instance/disks/data"
		vm.run(ctx, "echo of the log | dd of="+log+" conv=fsync status=none; echo of the data | dd of="+data+" conv=fsync status=none")
		vm.run(ctx, strings.Replace(keeperJobScript, "mountpoint -q /var/vcap/store", "test -b "+log+" -a -b "+data, 1))
		vm.waitForJob(ctx)
		previous := vm.restartCount(ctx)

		Expect(env.powerCut(ctx)).To(Succeed())
		env.waitForRestart(ctx, vm.cid, previous)
		vm.waitForAgent(ctx)
		vm.waitForJob(ctx)
		Expect(strings.Fields(vm.run(ctx, "cat /var/vcap/data/keeper.starts"))).To(Equal([]string{"with", "with"}))
		Expect(vm.run(ctx, "head -n 1 "+log+"; head -n 1 "+data)).To(Equal("of the log\nof the data"))
	}, stemcellEntries())
})

// dynamicDiskPath is where a job finds a dynamic disk.
func dynamicDiskPath(disk string) string { return "/var/vcap/data/dynamic_disks/" + disk }

// checksumRawDisk reads what is on a dynamic disk without a filesystem, from the disk.
func checksumRawDisk(disk string) string {
	return "dd if=" + dynamicDiskPath(disk) + " bs=1M count=8 iflag=direct status=none | b2sum"
}

// attachDynamicDisk is what the director does when a client asks for a dynamic disk, or for it again.
func (vm *testVM) attachDynamicDisk(ctx context.Context, disk string) {
	GinkgoHelper()
	var hint map[string]any
	Expect(json.Unmarshal(vm.env.mustCall(ctx, "attach_disk", vm.cid, disk).Result, &hint)).To(Succeed())
	link := dynamicDiskPath(disk)
	vm.callDynamicDiskAgent(ctx, fmt.Sprintf("mkdir -p $(dirname %s) && test -b %s && ln -sfn %[2]s %[1]s", link, hint["path"]), "add_dynamic_disk", disk, hint)
}

// detachDynamicDisk is what the director does when a client gives a dynamic disk back.
func (vm *testVM) detachDynamicDisk(ctx context.Context, disk string) {
	GinkgoHelper()
	vm.callDynamicDiskAgent(ctx, "rm -f "+dynamicDiskPath(disk), "remove_dynamic_disk", disk)
	vm.env.mustCall(ctx, "detach_disk", vm.cid, disk)
}

// callDynamicDiskAgent tells the agent of a dynamic disk. Agents know these messages from 2.834 on: for an older one what they
// mean is done here, a link to the device that the hint names.
func (vm *testVM) callDynamicDiskAgent(ctx context.Context, fallbackCommand, method string, arguments ...any) {
	GinkgoHelper()
	_, err := vm.agent.Call(ctx, method, arguments...)
	if err != nil && strings.Contains(err.Error(), "unknown message "+method) {
		AddReportEntry("the agent does not know " + method)
		vm.run(ctx, fallbackCommand)
		return
	}
	Expect(err).NotTo(HaveOccurred())
}
