//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// These tests cover disks in addition to the disk at /var/vcap/store. Jobs format them themselves. Dynamic disks are requested by
// clients of the director while the VM runs. An instance group can also have several persistent disks.
var _ = DescribeTableSubtree("A VM with dynamic disks", Label("director", "extended"), func(stemcell string) {
	It("attaches disks concurrently, detaches them in any order, and keeps the other disks over a restart", func(ctx context.Context) {
		d := newDirectorEnv(ctx, stemcell)
		vm := d.createInstance(ctx)
		store := d.createDisk(ctx, 64, filesystemDisk)
		vm.attach(ctx, store)
		vm.run(ctx, "echo kept >/var/vcap/store/file")
		disks := []string{d.createDynamicDisk(ctx, 64, filesystemDisk), d.createDynamicDisk(ctx, 96, blockDisk), d.createDynamicDisk(ctx, 128, filesystemDisk)}
		mounted, raw, formatted := disks[0], disks[1], disks[2]
		runConcurrently(func() { vm.attachDynamicDisk(ctx, mounted) }, func() { vm.attachDynamicDisk(ctx, raw) }, func() { vm.attachDynamicDisk(ctx, formatted) })
		for i, disk := range disks {
			Expect(vm.run(ctx, "blockdev --getsize64 "+dynamicDiskPath(disk))).To(Equal(fmt.Sprint((64 + 32*i) << 20)))
		}

		By("using a disk with its filesystem, a disk without a filesystem, and a disk with a new filesystem")
		vm.run(ctx, "mkdir -p /mnt/mounted && mount "+dynamicDiskPath(mounted)+" /mnt/mounted && echo mounted >/mnt/mounted/file && umount /mnt/mounted")
		checksum := vm.run(ctx, "dd if=/dev/urandom of="+dynamicDiskPath(raw)+" bs=1M count=8 conv=fsync status=none && "+checksumRawDisk(raw))
		vm.run(ctx, "mkfs.ext4 -q -F "+dynamicDiskPath(formatted)+" && mkdir -p /mnt/new && mount "+dynamicDiskPath(formatted)+
			" /mnt/new && echo new >/mnt/new/file && sync -f /mnt/new")
		expectDisks := func(remaining ...string) {
			GinkgoHelper()
			Expect(strings.Fields(vm.run(ctx, "ls /var/vcap/data/dynamic_disks"))).To(ConsistOf(remaining))
			Expect(strings.Fields(vm.run(ctx, "ls /dev/bosh"))).To(ConsistOf(append(remaining, store)))
			var attached []string
			Expect(json.Unmarshal(d.mustCall(ctx, "get_disks", vm.cid).Result, &attached)).To(Succeed())
			Expect(attached).To(ConsistOf(append(remaining, store)))
			Expect(vm.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
			Expect(vm.callAgent(ctx, "list_disk")).To(MatchJSON(`["` + store + `"]`))
		}
		expectDisks(mounted, raw, formatted)
		d.killAttachmentProcess(ctx, raw)
		d.waitForRestart(ctx, raw+"-attachment", 0)
		Expect(vm.run(ctx, checksumRawDisk(raw))).To(Equal(checksum))

		By("detaching the disk without a filesystem, but not the disk in use")
		Expect(d.mustFail(ctx, "detach_disk", vm.cid, formatted).Message).To(ContainSubstring("still in use"))
		Expect(d.attachmentPod(ctx, raw).Status.ContainerStatuses[0].State.Running).NotTo(BeNil())
		vm.detachDynamicDisk(ctx, raw)
		expectDisks(mounted, formatted)

		By("killing PID 1")
		vm.killInit(ctx)
		vm.waitForAgent(ctx)
		expectDisks(mounted, formatted)
		Expect(vm.run(ctx, "mount "+dynamicDiskPath(mounted)+" /mnt && cat /mnt/file && umount /mnt")).To(Equal("mounted"))
		Expect(vm.run(ctx, "mount "+dynamicDiskPath(formatted)+" /mnt && cat /mnt/file && umount /mnt")).To(Equal("new"))

		By("attaching the disk without a filesystem again, with its data")
		vm.attachDynamicDisk(ctx, raw)
		Expect(vm.run(ctx, checksumRawDisk(raw))).To(Equal(checksum))
		d.mustCall(ctx, "reboot_vm", vm.cid)
		vm.waitForAgent(ctx)
		expectDisks(mounted, raw, formatted)
		Expect(vm.run(ctx, checksumRawDisk(raw))).To(Equal(checksum))

		By("detaching and deleting all disks, like the director before delete_vm")
		for _, disk := range []string{formatted, mounted, raw} {
			vm.detachDynamicDisk(ctx, disk)
			d.mustCall(ctx, "delete_disk", disk)
		}
		expectDisks()
	}, NodeTimeout(longTest))
},
	Entry("with runit", "E2E_STEMCELL"),
	Entry("with systemd", withSystemd),
)

var _ = Describe("The persistent disks of an instance group with several", Label("disks", "extended"), Serial, func() {
	DescribeTable("have their names, and are available before any job starts when the VM's node boots", func(ctx context.Context, stemcell string) {
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

// dynamicDiskPath returns the path of a dynamic disk for jobs.
func dynamicDiskPath(disk string) string { return "/var/vcap/data/dynamic_disks/" + disk }

// checksumRawDisk returns a command that reads a dynamic disk without a filesystem, bypassing the page cache.
func checksumRawDisk(disk string) string {
	return "dd if=" + dynamicDiskPath(disk) + " bs=1M count=8 iflag=direct status=none | b2sum"
}

// createDynamicDisk creates a dynamic disk like the director, which adds the disk's name to the cloud_properties.
func (env *testEnv) createDynamicDisk(ctx context.Context, sizeMiB int, properties map[string]any) string {
	GinkgoHelper()
	named := maps.Clone(properties)
	named["name"] = fmt.Sprintf("disk-of-%d", sizeMiB)
	return env.createDisk(ctx, sizeMiB, named)
}

// attachDynamicDisk attaches a dynamic disk like the director when a client requests it.
func (vm *testVM) attachDynamicDisk(ctx context.Context, disk string) {
	GinkgoHelper()
	var hint map[string]any
	Expect(json.Unmarshal(vm.env.mustCall(ctx, "attach_disk", vm.cid, disk).Result, &hint)).To(Succeed())
	link := dynamicDiskPath(disk)
	vm.callDynamicDiskAgent(ctx, fmt.Sprintf("mkdir -p $(dirname %s) && test -b %s && ln -sfn %[2]s %[1]s", link, hint["path"]), "add_dynamic_disk", disk, hint)
}

// detachDynamicDisk detaches a dynamic disk like the director when a client releases it.
func (vm *testVM) detachDynamicDisk(ctx context.Context, disk string) {
	GinkgoHelper()
	vm.callDynamicDiskAgent(ctx, "rm -f "+dynamicDiskPath(disk), "remove_dynamic_disk", disk)
	vm.env.mustCall(ctx, "detach_disk", vm.cid, disk)
}

// callDynamicDiskAgent sends a message about a dynamic disk to the agent. Agents before 2.834 do not support these messages. For
// them, fallbackCommand creates or removes the link to the device.
func (vm *testVM) callDynamicDiskAgent(ctx context.Context, fallbackCommand, method string, arguments ...any) {
	GinkgoHelper()
	_, err := vm.agent.Call(ctx, method, arguments...)
	if err != nil && strings.Contains(err.Error(), "unknown message "+method) {
		AddReportEntry("the agent does not support " + method)
		vm.run(ctx, fallbackCommand)
		return
	}
	Expect(err).NotTo(HaveOccurred())
}
